//! ControllerPublishVolume and its inverse: who may have a volume beside whom.

use super::attachments::{Attachment, Attachments, load, token};
use super::driver::{Call, Context, check_volume_id};
use super::error::Error;
use super::fence;
use super::holding;
use super::ids::VolumeId;
use super::record;
use super::state::{LockedVolume, NodeKey, NodeRecord, VolumeDir, read_json, write_json};
use super::usage::{Mode, Terms, Usage};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::sizes;

/// The key in the publish context under which a node proves its attachment.
const TOKEN: &str = "attachment";

/// The attachment of this node, which it needs before it may stage or publish, and which the publish context proves.
pub(super) fn prove(
    call: &Call<'_>,
    volume: &VolumeDir,
    context: &Context,
    terms: Terms,
) -> Result<Attachment, Error> {
    let node = call.node_id();
    let Some(attachment) = load(volume)?.remove(node) else {
        return Err(Error::OutOfOrder(format!(
            "volume {:?} is not attached to node {node:?}: ControllerPublishVolume comes first",
            volume.id
        )));
    };
    let token = context.get(TOKEN).ok_or(Error::Missing("publish_context"))?;
    if token != &attachment.token {
        return Err(Error::OutOfOrder("publish_context is of an attachment that has ended".to_owned()));
    }
    if terms != attachment.terms {
        return Err(Error::OutOfOrder(format!(
            "the volume is attached as {}, and cannot be used as {terms}",
            attachment.terms
        )));
    }
    Ok(attachment)
}

/// Decides whether `node` may have the volume too. The answer is `Ok(true)` when the node has it already.
fn judge(volume: &VolumeId, table: &Attachments, node: &str, wanted: &Attachment) -> Result<bool, Error> {
    if let Some(found) = table.get(node) {
        if found.same_arguments(wanted) {
            return Ok(true);
        }
        return Err(Error::Different(format!(
            "volume {volume:?} is attached to node {node:?} as {}{}, or with other mount flags",
            found.terms,
            if found.readonly { " read-only" } else { "" },
        )));
    }
    let refusal = |other: &Attachment| {
        let modes = [other.terms.mode, wanted.terms.mode];
        if modes.iter().any(|mode| !mode.is_multi_node()) {
            Some("its access mode is for one node")
        } else if modes[0] != modes[1] {
            Some("with another access mode")
        } else if modes[0] == Mode::MultiNodeSingleWriter && other.is_writable() && wanted.is_writable() {
            Some("which is the one that writes")
        } else {
            None
        }
    };
    match table.iter().find_map(|(other, found)| Some((other, refusal(found)?))) {
        None => Ok(false),
        Some((other, reason)) => {
            Err(Error::AttachedElsewhere { volume: volume.as_str().to_owned(), node: other.clone(), reason })
        }
    }
}

/// ControllerPublishVolume.
pub(super) fn publish(
    call: &Call<'_>,
    request: &wire::ControllerPublishVolumeRequest,
) -> Result<wire::ControllerPublishVolumeResponse, Error> {
    check_volume_id(&request.volume_id)?;
    sizes::node_id(&request.node_id)?;
    let usage = Usage::require(request.volume_capability.as_ref())?;
    let volume = record::open(call, &request.volume_id, &request.volume_context)?;
    let limit = find_node(call, &request.node_id)?;
    let mut table = load(&volume)?;
    let wanted = Attachment {
        token: token(),
        readonly: request.readonly,
        terms: usage.terms,
        flags: usage.flags_digest(),
    };
    if !judge(&volume.id, &table, &request.node_id, &wanted)? {
        let key = NodeKey::of(&request.node_id);
        // Between counting and the new entry, no other volume may take the last place.
        let _held = (limit != 0).then(|| call.state().lock_node(&key)).transpose()?;
        check_room(call, &request.node_id, limit)?;
        settle(call, &volume, &table, wanted.is_writable())?;
        table.insert(request.node_id.clone(), wanted);
        write_json(&volume.attachments(), &table)?;
    }
    let token = table.get(&request.node_id).map(|found| found.token.clone()).unwrap_or_default();
    Ok(wire::ControllerPublishVolumeResponse { publish_context: Context::from([(TOKEN.to_owned(), token)]) })
}

/// How many volumes a node takes that this instance can reach; 0 is no limit.
fn find_node(call: &Call<'_>, node_id: &str) -> Result<i64, Error> {
    let driver = call.driver;
    let unknown = || Error::NoNode(node_id.to_owned());
    if !driver.args.shared && node_id != driver.args.node_id {
        return Err(unknown());
    }
    let record = read_json::<NodeRecord>(&driver.state.node_file(&NodeKey::of(node_id)))?;
    match record.filter(|record| record.node_id == node_id) {
        Some(record) => Ok(record.max_volumes),
        // The node has not registered, because its process offers the Controller service alone.
        None if node_id == driver.args.node_id => Ok(driver.args.max_volumes_per_node),
        None => Err(unknown()),
    }
}

fn check_room(call: &Call<'_>, node_id: &str, limit: i64) -> Result<(), Error> {
    if limit == 0 {
        return Ok(());
    }
    let mut count = 0;
    for volume in call.state().volumes()? {
        count += i64::from(load(&volume)?.contains_key(node_id));
    }
    if count < limit {
        return Ok(());
    }
    Err(Error::Exhausted(format!("node {node_id:?} has {limit} volumes, its limit")))
}

/// Makes sure that what ended attachments have left behind does not write beside the new one.
fn settle(call: &Call<'_>, volume: &LockedVolume, table: &Attachments, writes: bool) -> Result<(), Error> {
    if !table.is_empty() && !writes {
        return Ok(());
    }
    match fence::sweep(volume, table)? {
        None => Ok(()),
        Some(_) if table.is_empty() => fence::renew(call, volume),
        Some(node) => Err(Error::AttachedElsewhere {
            volume: volume.id.as_str().to_owned(),
            node,
            reason: "it was detached by force, and still has the device open",
        }),
    }
}

/// ControllerUnpublishVolume. For a node other than the serving one this is a fence: whatever of the volume is still in
/// use there is cut off.
pub(super) fn unpublish(
    call: &Call<'_>,
    request: &wire::ControllerUnpublishVolumeRequest,
) -> Result<wire::ControllerUnpublishVolumeResponse, Error> {
    let done = Ok(wire::ControllerUnpublishVolumeResponse {});
    check_volume_id(&request.volume_id)?;
    let every_node = request.node_id.is_empty();
    if !every_node {
        sizes::node_id(&request.node_id)?;
    }
    let Some(volume) = call.lock_if_known(&request.volume_id)? else { return done };
    if record::load(&volume)?.is_none() {
        return done;
    }
    let mut table = load(&volume)?;
    let leaves = |node: &str| every_node || node == request.node_id;
    if let Some(own) = table.get(call.node_id()).filter(|_| leaves(call.node_id())) {
        holding::check_unstaged(call, &volume, own)?;
    }
    table.retain(|node, _| !leaves(node));
    match fence::sweep(&volume, &table)? {
        Some(_) if table.is_empty() => fence::renew(call, &volume)?,
        Some(node) => {
            tracing::warn!(volume = request.volume_id, node, "a fenced node still has the device open");
        }
        None => {}
    }
    call.step("fenced")?;
    write_json(&volume.attachments(), &table)?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loop_driver::usage::Access;
    use tonic::Code;

    fn attachment(mode: Mode, readonly: bool) -> Attachment {
        Attachment {
            token: token(),
            readonly,
            terms: Terms { mode, access: Access::Block },
            flags: String::new(),
        }
    }

    fn verdict(held: Option<Attachment>, on: &str, wanted: &Attachment) -> Result<bool, Error> {
        let table = held.into_iter().map(|held| ("a".to_owned(), held)).collect();
        judge(&VolumeId::of_name("v"), &table, on, wanted)
    }

    #[test]
    fn repeats_are_the_same_and_changes_are_refused() {
        let held = attachment(Mode::SingleNodeWriter, false);
        assert!(!verdict(None, "a", &held).unwrap());
        assert!(verdict(Some(held.clone()), "a", &attachment(Mode::SingleNodeWriter, false)).unwrap());
        let changed = [
            attachment(Mode::SingleNodeWriter, true),
            attachment(Mode::SingleNodeMultiWriter, false),
            Attachment { flags: "x".into(), ..attachment(Mode::SingleNodeWriter, false) },
        ];
        for wanted in changed {
            assert_eq!(verdict(Some(held.clone()), "a", &wanted).unwrap_err().code(), Code::AlreadyExists);
        }
    }

    #[test]
    fn other_nodes_are_let_in_by_mode() {
        use Mode::{MultiNodeMultiWriter, MultiNodeReaderOnly, MultiNodeSingleWriter, SingleNodeWriter};
        let cases = [
            (SingleNodeWriter, false, SingleNodeWriter, false, false),
            (SingleNodeWriter, true, SingleNodeWriter, true, false),
            (SingleNodeWriter, false, MultiNodeReaderOnly, true, false),
            (MultiNodeReaderOnly, false, MultiNodeReaderOnly, false, true),
            (MultiNodeReaderOnly, false, MultiNodeMultiWriter, false, false),
            (MultiNodeMultiWriter, false, MultiNodeMultiWriter, false, true),
            (MultiNodeSingleWriter, false, MultiNodeSingleWriter, true, true),
            (MultiNodeSingleWriter, true, MultiNodeSingleWriter, false, true),
            (MultiNodeSingleWriter, false, MultiNodeSingleWriter, false, false),
        ];
        for (mode, readonly, wanted_mode, wanted_readonly, allowed) in cases {
            let case = format!("{mode:?} {readonly} then {wanted_mode:?} {wanted_readonly}");
            match verdict(Some(attachment(mode, readonly)), "b", &attachment(wanted_mode, wanted_readonly)) {
                Ok(held) => assert!(allowed && !held, "{case}"),
                Err(error) => {
                    assert!(!allowed, "{case}");
                    assert_eq!(error.code(), Code::FailedPrecondition);
                    assert!(error.to_string().contains("\"a\""), "names the node: {error}");
                }
            }
        }
    }
}
