//! The GroupController service: snapshots of several volumes at one moment.

use std::collections::BTreeSet;

use super::capability::{GroupCapability, known};
use super::channel::Plugin;
use super::error::CallError;
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::group_controller_service_capability::Type;
use super::redact::Scrub;
use super::rpc::Rpc;
use super::sizes;
use super::snapshots::taken;

impl Plugin {
    /// GroupControllerGetCapabilities. Unknown ones are left out.
    pub async fn group_controller_get_capabilities(&self) -> Result<BTreeSet<GroupCapability>, CallError> {
        let answer = self.ask(&wire::GroupControllerGetCapabilitiesRequest {}).await?;
        let kinds = answer.capabilities.into_iter().filter_map(|capability| capability.r#type);
        Ok(known(kinds.map(|Type::Rpc(rpc)| rpc.r#type)))
    }

    /// CreateVolumeGroupSnapshot (needs `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT`). The same name has to come with the same
    /// arguments, always. An answer that is not ready to use is asked for again by the same call. The members are in the order of
    /// `source_volume_ids`.
    ///
    /// Fails with `Origin::Reply`, outcome unknown, if the answer names no group, or has not one snapshot of each volume.
    pub async fn create_group_snapshot(
        &self,
        request: wire::CreateVolumeGroupSnapshotRequest,
    ) -> Result<wire::VolumeGroupSnapshot, CallError> {
        let ids = &request.source_volume_ids;
        ids.iter()
            .try_for_each(|id| sizes::id("source_volume_ids", id))
            .and_then(|()| sizes::name("name", &request.name))
            .and_then(|()| sizes::map("parameters", &request.parameters))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::CreateVolumeGroupSnapshot, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, []);
        let of: Vec<&str> = ids.iter().chain([&request.name]).map(String::as_str).collect();
        let answer = self.call(&of, &scrub, &request).await?;
        group(answer.group_snapshot, ids, |snapshot| &snapshot.source_volume_id)
            .map_err(|what| CallError::reply(Rpc::CreateVolumeGroupSnapshot, what))
    }

    /// GetVolumeGroupSnapshot (needs `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT`) of the group with these members.
    ///
    /// Fails with `Origin::Reply` if the answer is another group, or has other members.
    pub async fn get_group_snapshot(
        &self,
        request: wire::GetVolumeGroupSnapshotRequest,
    ) -> Result<wire::VolumeGroupSnapshot, CallError> {
        let (id, ids) = (&request.group_snapshot_id, &request.snapshot_ids);
        names(id, ids)
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::GetVolumeGroupSnapshot, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, []);
        let answer = self.call(&[id], &scrub, &request).await?;
        let found = group(answer.group_snapshot, ids, |snapshot| &snapshot.snapshot_id)
            .map_err(|what| CallError::reply(Rpc::GetVolumeGroupSnapshot, what))?;
        if found.group_snapshot_id != *id {
            let what = "it has another group than the one that was asked for";
            return Err(CallError::reply(Rpc::GetVolumeGroupSnapshot, what));
        }
        Ok(found)
    }

    /// DeleteVolumeGroupSnapshot (needs `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT`) with all its members. A group that the driver
    /// does not know is success.
    pub async fn delete_group_snapshot(
        &self,
        request: wire::DeleteVolumeGroupSnapshotRequest,
    ) -> Result<(), CallError> {
        names(&request.group_snapshot_id, &request.snapshot_ids)
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::DeleteVolumeGroupSnapshot, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, []);
        self.call(&[&request.group_snapshot_id], &scrub, &request).await.map(drop)
    }
}

fn names(id: &str, members: &[String]) -> Result<(), sizes::SizeError> {
    sizes::id("group_snapshot_id", id)?;
    members.iter().try_for_each(|id| sizes::id("snapshot_ids", id))
}

/// A group that an answer names, with its members in the order of `wanted`, of which each has to be there once and nothing else.
fn group(
    group: Option<wire::VolumeGroupSnapshot>,
    wanted: &[String],
    key: impl Fn(&wire::Snapshot) -> &String,
) -> Result<wire::VolumeGroupSnapshot, String> {
    let mut group = group.ok_or("group_snapshot is absent")?;
    sizes::id("group_snapshot_id", &group.group_snapshot_id).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for snapshot in std::mem::take(&mut group.snapshots) {
        let snapshot = taken(Some(snapshot))?;
        if found.iter().any(|other: &wire::Snapshot| other.snapshot_id == snapshot.snapshot_id) {
            return Err(format!("snapshots has {} twice", snapshot.snapshot_id));
        }
        found.push(snapshot);
    }
    if found.len() != wanted.len() {
        return Err(format!("snapshots has {} members, and {} were asked for", found.len(), wanted.len()));
    }
    for wanted in wanted {
        let place = found.iter().position(|snapshot| key(snapshot) == wanted);
        let place = place.ok_or_else(|| format!("snapshots has none of {wanted}"))?;
        group.snapshots.push(found.swap_remove(place));
    }
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(id: &str, of: &str) -> wire::Snapshot {
        wire::Snapshot { snapshot_id: id.into(), source_volume_id: of.into(), ..wire::Snapshot::default() }
    }

    fn of(snapshots: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let snapshots = snapshots.iter().map(|(id, of)| snapshot(id, of)).collect();
        let answer = wire::VolumeGroupSnapshot {
            group_snapshot_id: "g".into(),
            snapshots,
            ..wire::VolumeGroupSnapshot::default()
        };
        let wanted = ["a".to_owned(), "b".to_owned()];
        let group = group(Some(answer), &wanted, |snapshot| &snapshot.source_volume_id)?;
        Ok(group.snapshots.into_iter().map(|snapshot| snapshot.snapshot_id).collect())
    }

    #[test]
    fn a_group_has_one_member_of_each_volume() {
        assert_eq!(of(&[("2", "b"), ("1", "a")]).unwrap(), ["1", "2"], "in the order of the volumes");
        for (snapshots, words) in [
            (&[("1", "a")][..], "1 members, and 2 were asked for"),
            (&[("1", "a"), ("2", "a")], "none of b"),
            (&[("1", "a"), ("1", "b")], "1 twice"),
            (&[("1", "a"), ("", "b")], "snapshot_id"),
            (&[("1", "a"), ("2", "c")], "none of b"),
            (&[("1", "a"), ("2", "b"), ("3", "c")], "3 members"),
        ] {
            let error = of(snapshots).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let nameless = wire::VolumeGroupSnapshot::default();
        assert!(group(Some(nameless), &[], |snapshot| &snapshot.snapshot_id).is_err());
        assert!(group(None, &[], |snapshot| &snapshot.snapshot_id).is_err());
    }
}
