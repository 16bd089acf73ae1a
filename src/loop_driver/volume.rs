//! CreateVolume, DeleteVolume, ListVolumes and ValidateVolumeCapabilities.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::attachments::{self, Attachments};
use super::capacity;
use super::condition;
use super::copy::{self, Source};
use super::driver::{Call, check_volume_id};
use super::error::Error;
use super::fence;
use super::ids::VolumeId;
use super::modify;
use super::record::{VolumeRecord, find, load};
use super::room;
use super::state::{VolumeDir, make_dir, remove_file, remove_tree, sync_parent, write_json};
use super::usage::{Access, Usage};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::list_volumes_response::{Entry, VolumeStatus};
use crate::csi::proto::csi::v1::validate_volume_capabilities_response::Confirmed;
use crate::csi::sizes;

fn describe(call: &Call<'_>, volume: &VolumeDir, record: &VolumeRecord) -> wire::Volume {
    wire::Volume {
        capacity_bytes: record.capacity_bytes,
        volume_id: volume.id.as_str().to_owned(),
        volume_context: record.context(),
        accessible_topology: call.driver.own_topology().into_iter().collect(),
        content_source: record.content_source(),
    }
}

/// CreateVolume.
pub(super) fn create(
    call: &Call<'_>,
    request: &wire::CreateVolumeRequest,
) -> Result<wire::CreateVolumeResponse, Error> {
    sizes::name("name", &request.name)?;
    let usages = Usage::require_all(&request.volume_capabilities)?;
    let source = copy::source_of(request.volume_content_source.as_ref())?;
    let label = modify::label(&request.mutable_parameters)?;
    let range = request.capacity_range.as_ref();
    let volume = call.state().lock_volume(VolumeId::of_name(&request.name))?;
    if let Some(found) = load(&volume)? {
        // Its label may have been changed since it was made.
        let is_same = found.parameters == request.parameters
            && found.source.as_deref() == source.as_ref().map(Source::id);
        if !is_same || !capacity::fits(range, found.capacity_bytes)? {
            return Err(Error::Different(format!(
                "a volume named {:?} exists with {} bytes, other parameters or another source",
                request.name, found.capacity_bytes
            )));
        }
        return Ok(wire::CreateVolumeResponse { volume: Some(describe(call, &volume, &found)) });
    }
    let opened = source.as_ref().map(|source| copy::open(call, source, range)).transpose()?;
    let least = opened.as_ref().map_or(0, |(_, bytes)| *bytes).max(least_bytes(&usages));
    let capacity_bytes = capacity::choose(range, least)?;
    call.driver.check_topology(request.accessibility_requirements.as_ref())?;
    room::check(call, capacity_bytes)?;
    let record = VolumeRecord {
        name: request.name.clone(),
        capacity_bytes,
        parameters: request.parameters.clone(),
        label,
        incarnation: attachments::token(),
        source: source.as_ref().map(|source| source.id().to_owned()),
    };
    // Without volume.json there is no volume: what is there was being made or deleted when the driver was killed, and in
    // the latter case holds somebody's data.
    clear(&volume)?;
    make_dir(&volume.path)?;
    let filled = match &opened {
        Some((source, _)) => copy::copy(call, source, &volume, capacity_bytes),
        None => make_data(&volume.data(), capacity_bytes),
    };
    let made = filled.and_then(|()| call.step("data")).and_then(|()| write_json(&volume.record(), &record));
    if let Err(error) = made {
        // The caller may take the error for final, and then nobody deletes what was begun.
        remove_file(&volume.record())?;
        clear(&volume)?;
        volume.unlock_for_good()?;
        return Err(error);
    }
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
    fence::thaw(&volume.data())?;
    remove_tree(&volume.path)
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
        let volume_condition = Some(condition::of_data(&volume, &record)?);
        let published_node_ids = attachments::load(&volume)?.into_keys().collect();
        page.entries.push(Entry {
            volume: Some(describe(call, &volume, &record)),
            status: Some(VolumeStatus { published_node_ids, volume_condition }),
        });
    }
    Ok(page)
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
