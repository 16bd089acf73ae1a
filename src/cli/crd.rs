//! `moor crd`: the CustomResourceDefinitions, as they are applied and shipped in the chart.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use thiserror::Error;

use super::CrdArgs;
use crate::api::all_crds;

/// Why the definitions could not be printed.
#[derive(Debug, Error)]
pub enum CrdError {
    /// A CustomResourceDefinition has no YAML form, which is a bug.
    #[error("{plural}: {source}")]
    Yaml {
        /// Plural of the kind.
        plural: String,
        /// What the serializer said.
        #[source]
        source: serde_saphyr::ser::Error,
    },
    /// A file could not be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Standard output could not be written.
    #[error("standard output: {0}")]
    Print(#[source] io::Error),
}

/// The file of each kind: its name and content.
pub fn files() -> Result<Vec<(String, String)>, CrdError> {
    all_crds().iter().map(file).collect()
}

fn file(crd: &CustomResourceDefinition) -> Result<(String, String), CrdError> {
    let plural = crd.spec.names.plural.clone();
    let yaml =
        serde_saphyr::to_string(crd).map_err(|source| CrdError::Yaml { plural: plural.clone(), source })?;
    Ok((format!("{plural}.yaml"), format!("{}\n", yaml.trim_end())))
}

/// Writes the files, or prints all as one YAML stream.
pub fn run(args: &CrdArgs, out: &mut impl Write) -> Result<(), CrdError> {
    let files = files()?;
    let Some(directory) = &args.output_dir else {
        return match files.iter().try_for_each(|(_, yaml)| write!(out, "---\n{yaml}")) {
            // The reader has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed.map_err(CrdError::Print),
        };
    };
    fs::create_dir_all(directory).map_err(|source| CrdError::Write { path: directory.clone(), source })?;
    for (name, yaml) in files {
        let path = directory.join(name);
        fs::write(&path, yaml).map_err(|source| CrdError::Write { path, source })?;
    }
    Ok(())
}
