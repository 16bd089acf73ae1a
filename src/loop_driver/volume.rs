//! CreateVolume, DeleteVolume, ListVolumes and ValidateVolumeCapabilities.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::attachments::{self, Attachments};
use super::capacity;
use super::driver::{Call, Context, check_volume_id};
use super::error::Error;
use super::fence;
use super::state::{
    LockedVolume, VolumeDir, VolumeId, make_dir, read_json, remove_file, sync_parent, write_json,
};
use super::usage::{Access, Usage};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::list_volumes_response::{Entry, VolumeStatus};
use crate::csi::proto::csi::v1::validate_volume_capabilities_response::Confirmed;
use crate::csi::sizes;

/// The key in the volume context that tells a volume from another one of the same id: ids come from names, so a volume
/// that was deleted and made again has the id that it had before.
const INCARNATION: &str = "incarnation";

/// The content of `volume.json`: a volume that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumeRecord {
    name: String,
    pub(super) capacity_bytes: i64,
    parameters: BTreeMap<String, String>,
    incarnation: String,
}

impl VolumeRecord {
    fn context(&self) -> Context {
        Context::from([(INCARNATION.to_owned(), self.incarnation.clone())])
    }

    /// Checks that the context is this volume's; otherwise the caller has another volume in mind. An empty context is what
    /// a volume has that was registered by its id alone.
    pub(super) fn check_context(&self, context: &Context) -> Result<(), Error> {
        if context.is_empty() || context == &self.context() {
            return Ok(());
        }
        Err(Error::invalid("volume_context", "is not the one that CreateVolume returned for this volume"))
    }
}

/// The volume's record, or `None` when the volume does not exist (any more, or yet).
pub(super) fn load(volume: &VolumeDir) -> Result<Option<VolumeRecord>, Error> {
    read_json(&volume.record())
}

/// Takes the lock of a volume, and checks that it exists and is the one that the caller has in mind.
pub(super) fn open(call: &Call<'_>, volume_id: &str, context: &Context) -> Result<LockedVolume, Error> {
    let volume = call.lock(volume_id)?;
    find(&volume)?.check_context(context)?;
    Ok(volume)
}

/// The volume's record, or NOT_FOUND.
fn find(volume: &VolumeDir) -> Result<VolumeRecord, Error> {
    load(volume)?.ok_or_else(|| Error::NoVolume(volume.id.as_str().to_owned()))
}

fn describe(call: &Call<'_>, volume: &VolumeDir, record: &VolumeRecord) -> wire::Volume {
    wire::Volume {
        capacity_bytes: record.capacity_bytes,
        volume_id: volume.id.as_str().to_owned(),
        volume_context: record.context(),
        accessible_topology: call.driver.own_topology().into_iter().collect(),
        ..wire::Volume::default()
    }
}

/// CreateVolume.
pub(super) fn create(
    call: &Call<'_>,
    request: &wire::CreateVolumeRequest,
) -> Result<wire::CreateVolumeResponse, Error> {
    sizes::name("name", &request.name)?;
    let usages = Usage::require_all(&request.volume_capabilities)?;
    if request.volume_content_source.is_some() {
        return Err(Error::invalid("volume_content_source", "this driver makes empty volumes only"));
    }
    if !request.mutable_parameters.is_empty() {
        return Err(Error::invalid("mutable_parameters", "this driver has none"));
    }
    let range = request.capacity_range.as_ref();
    let size = capacity::choose(range, least_bytes(&usages));
    let volume = call.state().lock_volume(VolumeId::of_name(&request.name))?;
    if let Some(found) = load(&volume)? {
        if found.parameters != request.parameters || !capacity::fits(range, found.capacity_bytes)? {
            return Err(Error::Different(format!(
                "a volume named {:?} exists with {} bytes or other parameters",
                request.name, found.capacity_bytes
            )));
        }
        return Ok(wire::CreateVolumeResponse { volume: Some(describe(call, &volume, &found)) });
    }
    let capacity_bytes = size?;
    call.driver.check_topology(request.accessibility_requirements.as_ref())?;
    if capacity_bytes > available_bytes(call)? {
        return Err(Error::Exhausted(format!("there is no room for {capacity_bytes} bytes")));
    }
    let record = VolumeRecord {
        name: request.name.clone(),
        capacity_bytes,
        parameters: request.parameters.clone(),
        incarnation: attachments::token(),
    };
    // Without volume.json there is no volume: what is there was being made or deleted when the driver was killed, and in
    // the latter case holds somebody's data.
    clear(&volume)?;
    make_dir(&volume.path)?;
    make_data(&volume.data(), capacity_bytes)?;
    call.step("data")?;
    write_json(&volume.record(), &record)?;
    Ok(wire::CreateVolumeResponse { volume: Some(describe(call, &volume, &record)) })
}

fn least_bytes(usages: &[Usage]) -> i64 {
    let least = |usage: &Usage| match usage.terms.access {
        Access::Mount(Some(kind)) => kind.least_bytes(),
        Access::Mount(None) | Access::Block => capacity::LEAST_BYTES,
    };
    usages.iter().map(least).max().unwrap_or(capacity::LEAST_BYTES)
}

fn make_data(path: &Path, bytes: i64) -> Result<(), Error> {
    let opened = File::options().write(true).create_new(true).mode(0o600).open(path);
    let made = opened.and_then(|file| {
        file.set_len(bytes.unsigned_abs())?;
        file.sync_all()
    });
    match made {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(Error::OutOfRange(format!("the state directory's file system has no files of {bytes} bytes")))
        }
        made => made.map_err(Error::io("make", path)),
    }
}

/// DeleteVolume.
pub(super) fn delete(
    call: &Call<'_>,
    request: &wire::DeleteVolumeRequest,
) -> Result<wire::DeleteVolumeResponse, Error> {
    let done = Ok(wire::DeleteVolumeResponse {});
    check_volume_id(&request.volume_id)?;
    let Some(volume) = call.lock_if_known(&request.volume_id)? else { return done };
    if load(&volume)?.is_some() {
        if let Some((node, _)) = attachments::load(&volume)?.pop_first() {
            let reason = "ControllerUnpublishVolume comes before DeleteVolume";
            return Err(Error::AttachedElsewhere { volume: request.volume_id.clone(), node, reason });
        }
        fence::sweep(&volume, &Attachments::new())?;
        remove_file(&volume.record())?;
        sync_parent(&volume.record())?;
        call.step("forgotten")?;
    }
    clear(&volume)?;
    volume.unlock_for_good()?;
    done
}

/// Removes what is left of a volume that does not exist.
fn clear(volume: &VolumeDir) -> Result<(), Error> {
    let dir = &volume.path;
    if !dir.exists() {
        return Ok(());
    }
    fence::thaw(&volume.data())?;
    fs::remove_dir_all(dir).map_err(Error::io("remove", dir))?;
    sync_parent(dir)
}

/// ListVolumes. A page's token is the last id on it, so volumes may come and go between pages.
pub(super) fn list(
    call: &Call<'_>,
    request: &wire::ListVolumesRequest,
) -> Result<wire::ListVolumesResponse, Error> {
    let most = usize::try_from(request.max_entries)
        .map_err(|_| Error::invalid("max_entries", "must not be negative"))?;
    let after = match request.starting_token.as_str() {
        "" => None,
        token => Some(VolumeId::parse(token).ok_or(Error::Token)?),
    };
    let mut page = wire::ListVolumesResponse::default();
    for volume in call.state().volumes()?.into_iter().filter(|volume| Some(&volume.id) > after.as_ref()) {
        let Some(record) = load(&volume)? else { continue };
        if most != 0 && page.entries.len() == most {
            let last = page.entries.last().and_then(|entry| entry.volume.as_ref());
            page.next_token = last.map(|volume| volume.volume_id.clone()).unwrap_or_default();
            break;
        }
        let published_node_ids = attachments::load(&volume)?.into_keys().collect();
        page.entries.push(Entry {
            volume: Some(describe(call, &volume, &record)),
            status: Some(VolumeStatus { published_node_ids, ..VolumeStatus::default() }),
        });
    }
    Ok(page)
}

/// How many bytes could be written right now. Volumes are sparse, so this is no promise to any of them.
fn available_bytes(call: &Call<'_>) -> Result<i64, Error> {
    let root = call.state().root();
    let found = rustix::fs::statvfs(root).map_err(Error::io("measure", root))?;
    Ok(i64::try_from(found.f_bavail.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX))
}

/// ValidateVolumeCapabilities.
pub(super) fn validate(
    call: &Call<'_>,
    request: &wire::ValidateVolumeCapabilitiesRequest,
) -> Result<wire::ValidateVolumeCapabilitiesResponse, Error> {
    let wire::ValidateVolumeCapabilitiesRequest { volume_id, volume_capabilities, .. } = request;
    check_volume_id(volume_id)?;
    if volume_capabilities.is_empty() {
        return Err(Error::Missing("volume_capabilities"));
    }
    let id = VolumeId::parse(volume_id).ok_or_else(|| Error::NoVolume(volume_id.clone()))?;
    let record = find(&call.state().volume(id))?;
    let refusal = Usage::require_all(volume_capabilities)
        .and_then(|_| record.check_context(&request.volume_context))
        .and_then(|()| {
            let same = request.parameters.is_empty() || request.parameters == record.parameters;
            if same { Ok(()) } else { Err(Error::invalid("parameters", "are not the volume's")) }
        });
    if let Err(refusal) = refusal {
        return Ok(wire::ValidateVolumeCapabilitiesResponse {
            confirmed: None,
            message: refusal.to_string(),
        });
    }
    let confirmed = Confirmed {
        volume_context: request.volume_context.clone(),
        volume_capabilities: volume_capabilities.clone(),
        parameters: request.parameters.clone(),
        ..Confirmed::default()
    };
    Ok(wire::ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() })
}
