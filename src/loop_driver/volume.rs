//! Volumes: create, delete, list.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use serde::{Deserialize, Serialize};

use super::attachments::{self, Attachments};
use super::capacity;
use super::driver::{Call, Context, require, require_volume_id};
use super::error::Error;
use super::fence;
use super::state::{VolumeId, make_dir, read_json, remove_file, sync_parent, write_json};
use super::usage::{Access, Usage};
use crate::csi::proto::csi::v1::list_volumes_response::{Entry, VolumeStatus};
use crate::csi::proto::csi::v1::validate_volume_capabilities_response::Confirmed;
use crate::csi::proto::csi::v1::{
    CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse, ListVolumesRequest,
    ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume,
};

/// Key in the volume context. Ids come from names, so a volume that was deleted and made again has the same id; this
/// tells the two apart.
const INCARNATION: &str = "incarnation";

/// `volume.json`.
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

    /// A context that is not this volume's means that the caller has another volume in mind. An empty one is what a
    /// volume has that was registered by its id alone.
    pub(super) fn check_context(&self, context: &Context) -> Result<(), Error> {
        if context.is_empty() || context == &self.context() {
            return Ok(());
        }
        Err(Error::invalid("volume_context", "is not the one that CreateVolume returned for this volume"))
    }
}

/// The volume's record, or `None` when the volume does not exist (any more, or yet).
pub(super) fn load(call: &Call<'_>, id: &VolumeId) -> Result<Option<VolumeRecord>, Error> {
    read_json(&call.state().volume_file(id))
}

/// The volume's record, or NOT_FOUND.
pub(super) fn find(call: &Call<'_>, id: &VolumeId) -> Result<VolumeRecord, Error> {
    load(call, id)?.ok_or_else(|| Error::NoVolume(id.as_str().to_owned()))
}

fn describe(call: &Call<'_>, id: &VolumeId, record: &VolumeRecord) -> Volume {
    Volume {
        capacity_bytes: record.capacity_bytes,
        volume_id: id.as_str().to_owned(),
        volume_context: record.context(),
        accessible_topology: call.driver.own_topology().into_iter().collect(),
        ..Volume::default()
    }
}

/// CreateVolume.
pub(super) fn create(call: &Call<'_>, request: &CreateVolumeRequest) -> Result<CreateVolumeResponse, Error> {
    require("name", &request.name)?;
    if request.name.chars().any(char::is_control) {
        return Err(Error::invalid("name", "must not hold control characters"));
    }
    let usages = Usage::require_all(&request.volume_capabilities)?;
    if request.volume_content_source.is_some() {
        return Err(Error::invalid("volume_content_source", "this driver makes empty volumes only"));
    }
    if !request.mutable_parameters.is_empty() {
        return Err(Error::invalid("mutable_parameters", "this driver has none"));
    }
    let range = request.capacity_range.as_ref();
    let size = capacity::choose(range, least_bytes(&usages));
    let id = VolumeId::of_name(&request.name);
    let lock = call.state().lock_volume(&id)?;
    if let Some(found) = load(call, &id)? {
        if found.parameters != request.parameters || !capacity::fits(range, found.capacity_bytes)? {
            return Err(Error::Different(format!(
                "a volume named {:?} exists with {} bytes or other parameters",
                request.name, found.capacity_bytes
            )));
        }
        return Ok(CreateVolumeResponse { volume: Some(describe(call, &id, &found)) });
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
    clear(call, &id)?;
    make_dir(&call.state().volume_dir(&id))?;
    make_data(call, &id, capacity_bytes)?;
    call.step("data")?;
    write_json(&call.state().volume_file(&id), &record)?;
    drop(lock);
    Ok(CreateVolumeResponse { volume: Some(describe(call, &id, &record)) })
}

fn least_bytes(usages: &[Usage]) -> i64 {
    let least = |usage: &Usage| match usage.terms.access {
        Access::Mount(Some(kind)) => kind.least_bytes(),
        Access::Mount(None) | Access::Block => capacity::LEAST_BYTES,
    };
    usages.iter().map(least).max().unwrap_or(capacity::LEAST_BYTES)
}

fn make_data(call: &Call<'_>, id: &VolumeId, bytes: i64) -> Result<(), Error> {
    let path = call.state().data(id);
    let length = bytes.unsigned_abs();
    let made = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|file| file.set_len(length).and_then(|()| file.sync_all()));
    match made {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(Error::OutOfRange(format!("the state directory's file system has no files of {bytes} bytes")))
        }
        made => made.map_err(Error::io("make", &path)),
    }
}

/// DeleteVolume.
pub(super) fn delete(call: &Call<'_>, request: &DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Error> {
    let id = match require_volume_id(&request.volume_id) {
        Err(Error::NoVolume(_)) => return Ok(DeleteVolumeResponse {}),
        id => id?,
    };
    let lock = call.state().lock_volume(&id)?;
    if load(call, &id)?.is_some() {
        if let Some(node) = attachments::load(call, &id)?.keys().next() {
            let volume = id.as_str().to_owned();
            let reason = "ControllerUnpublishVolume comes before DeleteVolume";
            return Err(Error::AttachedElsewhere { volume, node: node.clone(), reason });
        }
        fence::sweep(call, &lock, &id, &Attachments::new())?;
        remove_file(&call.state().volume_file(&id))?;
        sync_parent(&call.state().volume_file(&id))?;
        call.step("forgotten")?;
    }
    clear(call, &id)?;
    let path = call.state().volume_dir(&id);
    lock.remove().map_err(Error::io("remove the lock of", &path))?;
    Ok(DeleteVolumeResponse {})
}

/// Removes what is left of a volume that does not exist.
fn clear(call: &Call<'_>, id: &VolumeId) -> Result<(), Error> {
    let dir = call.state().volume_dir(id);
    if !dir.exists() {
        return Ok(());
    }
    fence::thaw(&call.state().data(id))?;
    fs::remove_dir_all(&dir).map_err(Error::io("remove", &dir))?;
    sync_parent(&dir)
}

/// ListVolumes. A page's token is the last id on it, so volumes may come and go between pages.
pub(super) fn list(call: &Call<'_>, request: &ListVolumesRequest) -> Result<ListVolumesResponse, Error> {
    let most = usize::try_from(request.max_entries)
        .map_err(|_| Error::invalid("max_entries", "must not be negative"))?;
    let after = match request.starting_token.as_str() {
        "" => None,
        token => Some(VolumeId::parse(token).ok_or(Error::Token)?),
    };
    let mut page = ListVolumesResponse::default();
    for id in
        call.state().volume_ids()?.into_iter().filter(|id| after.as_ref().is_none_or(|after| id > after))
    {
        let Some(record) = load(call, &id)? else { continue };
        if most != 0 && page.entries.len() == most {
            let last = page.entries.last().and_then(|entry| entry.volume.as_ref());
            page.next_token = last.map(|volume| volume.volume_id.clone()).unwrap_or_default();
            break;
        }
        let published_node_ids = attachments::load(call, &id)?.into_keys().collect();
        page.entries.push(Entry {
            volume: Some(describe(call, &id, &record)),
            status: Some(VolumeStatus { published_node_ids, ..VolumeStatus::default() }),
        });
    }
    Ok(page)
}

/// What could be written right now. Volumes are sparse, so this is no promise to any of them.
fn available_bytes(call: &Call<'_>) -> Result<i64, Error> {
    let root = call.state().root();
    let found = rustix::fs::statvfs(root).map_err(|errno| Error::io("measure", root)(errno.into()))?;
    Ok(i64::try_from(found.f_bavail.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX))
}

/// ValidateVolumeCapabilities.
pub(super) fn validate(
    call: &Call<'_>,
    request: ValidateVolumeCapabilitiesRequest,
) -> Result<ValidateVolumeCapabilitiesResponse, Error> {
    let id = require_volume_id(&request.volume_id)?;
    if request.volume_capabilities.is_empty() {
        return Err(Error::Missing("volume_capabilities"));
    }
    let record = find(call, &id)?;
    let refusal = Usage::require_all(&request.volume_capabilities)
        .map(|_| ())
        .and_then(|()| record.check_context(&request.volume_context))
        .and_then(|()| {
            let same = request.parameters.is_empty() || request.parameters == record.parameters;
            if same { Ok(()) } else { Err(Error::invalid("parameters", "are not the volume's")) }
        });
    if let Err(refusal) = refusal {
        return Ok(ValidateVolumeCapabilitiesResponse { confirmed: None, message: refusal.to_string() });
    }
    let confirmed = Confirmed {
        volume_context: request.volume_context,
        volume_capabilities: request.volume_capabilities,
        parameters: request.parameters,
        ..Confirmed::default()
    };
    Ok(ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() })
}
