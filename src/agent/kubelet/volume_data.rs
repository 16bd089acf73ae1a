//! What kubelet itself has written down of the volumes that it has: a file for each, from before its first call until after its
//! last one (kubernetes `pkg/volume/csi`, `vol_data.json`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "vol_data.json";
const DRIVER: &str = "driverName";

/// Where the files are below kubelet's directory, of what is staged, of raw devices, and of what Pods have. A star is any name.
const PLACES: [&str; 3] = [
    "plugins/kubernetes.io/csi/*/*",
    "plugins/kubernetes.io/csi/volumeDevices/*/data",
    "pods/*/volumes/kubernetes.io~csi/*",
];

/// Whether kubelet has a volume of the driver that it knows by this name, and so calls to make.
///
/// # Errors
/// If a folder or a file cannot be read.
pub(super) fn speaks_of(kubelet: &Path, driver: &str) -> io::Result<bool> {
    for place in PLACES {
        let mut folders = vec![kubelet.to_owned()];
        for part in place.split('/') {
            folders = match part {
                "*" => all_in(&folders)?,
                name => folders.into_iter().map(|folder| folder.join(name)).collect(),
            };
        }
        for folder in folders {
            if driver_in(&folder.join(FILE))?.as_deref() == Some(driver) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn all_in(folders: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in folders {
        match fs::read_dir(folder) {
            Ok(entries) => {
                for entry in entries {
                    found.push(entry?.path());
                }
            }
            Err(error) if is_none(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The driver that a file names; None of one that is not there, or is none of kubelet's.
fn driver_in(file: &Path) -> io::Result<Option<String>> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if is_none(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let said: Result<BTreeMap<String, String>, _> = serde_json::from_slice(&text);
    Ok(said.ok().and_then(|mut said| said.remove(DRIVER)))
}

fn is_none(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelet_has_what_any_of_its_files_names() {
        for place in [
            "plugins/kubernetes.io/csi/d.example.com/4c94485e",
            "plugins/kubernetes.io/csi/volumeDevices/pv-1/data",
            "pods/5a8c3d52/volumes/kubernetes.io~csi/pv-1",
        ] {
            let dir = tempfile::tempdir().unwrap();
            let has = |driver: &str| speaks_of(dir.path(), driver).unwrap();
            assert!(!has("d.example.com"));
            let folder = dir.path().join(place);
            fs::create_dir_all(&folder).unwrap();
            fs::create_dir_all(folder.join("globalmount")).unwrap();
            fs::write(folder.join(FILE), r#"{"driverName":"d.example.com","volumeHandle":"v"}"#).unwrap();
            assert!(has("d.example.com") && !has("e.example.com"), "{place}");
            fs::write(folder.join(FILE), "{").unwrap();
            assert!(!has("d.example.com"), "{place}");
        }
    }
}
