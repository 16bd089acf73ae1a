//! Arbitrary objects as decisions see them, for `properties.rs`. All fields are spelled out, so that none is left the same.

use std::collections::BTreeMap;

use moor::api::VolumeHandle;
use moor::api::caller::ControllerRef;
use moor::api::capability::VolumeUse;
use moor::api::claim::Assignment;
use moor::api::handle::{Writer, WriterRef};
use moor::api::lock::attachment_name;
use moor::api::{AccessMode, AttachmentMode, AttachmentState, AttachmentUid, ClaimState, ClaimUid};
use moor::attachment::node_side::{self, LiveAttachment};
use moor::attachment::record::{Done, Forgotten, Imprint, Lapse, Left, Record, TargetRecord};
use moor::attachment::{AttachmentSeen, HandleSeen, NodeGrowth, StagedAs};
use moor::claim::{ClaimSeen, ForgottenSeen, Mount, NodeSeen, VolumeSeen};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use crate::fixtures::{self, DRIVER, DRIVER_VOLUME, VOLUME_ID};

const NODES: [&str; 2] = ["node-1", "node-2"];
const CLAIMS: [&str; 4] = ["a", "b", "c", "d"];
const UIDS: [&str; 3] = ["u1", "u2", "u3"];
pub const INSTANCES: [&str; 2] = ["c1", "c2"];
pub const STATES: [AttachmentState; 4] = [
    AttachmentState::Taken,
    AttachmentState::Attached,
    AttachmentState::NodeDetached,
    AttachmentState::ControllerDetached,
];
pub const CLAIM_STATES: [ClaimState; 5] =
    [ClaimState::Pending, ClaimState::Taken, ClaimState::Ready, ClaimState::NodeDetached, ClaimState::Lost];

fn mode() -> impl Strategy<Value = AccessMode> {
    // Most claims of one volume agree on the mode, so most cases should.
    prop_oneof![4 => Just(AccessMode::SingleNodeWriter), 3 => select(AccessMode::ALL.to_vec())]
}

fn attachment_mode() -> impl Strategy<Value = AttachmentMode> {
    prop_oneof![5 => Just(AttachmentMode::FileSystem), 1 => Just(AttachmentMode::BlockDevice)]
}

fn controller() -> impl Strategy<Value = Option<ControllerRef>> {
    let given = (select(INSTANCES.to_vec()), 0..2_i64);
    of(given.prop_map(|(i, tenure)| ControllerRef::new(i, NODES[0], tenure)))
}

pub fn claim(uid: &'static str) -> impl Strategy<Value = ClaimSeen> {
    let meta = (0..3_i64, any::<(bool, bool)>(), of(select(NODES.to_vec())), any::<(bool, bool)>());
    let state = (mode(), attachment_mode(), select(CLAIM_STATES.to_vec()));
    let grant = (of((select(UIDS.to_vec()), select(NODES.to_vec()))), of(select(UIDS.to_vec())));
    (meta, state, grant).prop_map(
        move |((created, (deleted, held), node, (read_only, of_pod)), state, (assigned, yielded))| {
            let (mode, attachment_mode, state) = state;
            ClaimSeen {
                namespace: "default".into(),
                name: uid.into(),
                uid: uid.into(),
                created,
                deleted,
                held,
                force: false,
                node: node.map(Into::into),
                node_selector: BTreeMap::new(),
                read_only,
                mode,
                attachment_mode,
                state,
                assignment: assigned.map(|(uid, node)| Assignment {
                    // Of this handle or of another one.
                    attachment: if held { attachment_name(DRIVER_VOLUME, mode, node) } else { "h".into() },
                    attachment_uid: uid.into(),
                    handle_name: "handle".into(),
                    node_name: node.into(),
                    node_uid: node.into(),
                }),
                yielded: yielded.map(Into::into),
                of_pod,
                grown_by_kubelet: of_pod && created > 0,
                pod: of_pod.then(|| "ns/pod".into()),
                staged_as: staged_as(created == 1),
                not_entitled: (of_pod && created == 2 && held).then(|| "not entitled".into()),
                silence: None,
            }
        },
    )
}

fn staged_as(flagged: bool) -> StagedAs {
    StagedAs { flags: flagged.then(|| "noatime".into()).into_iter().collect(), group: None }
}

pub fn claims() -> impl Strategy<Value = Vec<ClaimSeen>> {
    let each = CLAIMS.map(|c| of(claim(c)));
    each.prop_map(|all| all.into_iter().flatten().collect())
}

prop_compose! {
    pub fn attachment(uid: &'static str)(
        node in select(NODES.to_vec()),
        node_uid in prop_oneof![4 => Just(None), 1 => Just(Some("other"))],
        (mode, attachment_mode) in (mode(), attachment_mode()),
        (epoch, controller) in (1..4_i64, controller()),
        (attach, stage, read_only, exclusive) in any::<(bool, bool, bool, bool)>(),
        (deleted, lost, lingers) in any::<(bool, bool, bool)>(),
        state in select(STATES.to_vec()),
    ) -> AttachmentSeen {
        AttachmentSeen {
            name: attachment_name(DRIVER_VOLUME, mode, node),
            uid: uid.into(),
            deleted,
            let_go: deleted && stage && state == AttachmentState::ControllerDetached,
            namespace: "default".into(),
            volume_uid: "volume".into(),
            handle_name: "handle".into(),
            node: node.into(),
            node_uid: node_uid.unwrap_or(node).into(),
            node_id: format!("id-of-{node}"),
            mode,
            attachment_mode,
            epoch,
            controller,
            attach,
            stage,
            read_only,
            exclusive,
            lingers,
            multi_writer: epoch == 2,
            staged_as: staged_as(epoch == 3),
            state,
            lost,
            growth: NodeGrowth { asked: epoch, reached: 2 },
        }
    }
}

pub fn attachments() -> impl Strategy<Value = Vec<AttachmentSeen>> {
    let each = UIDS.map(|u| of(attachment(u)));
    each.prop_map(|all| all.into_iter().flatten().collect())
}

fn writer_ref() -> impl Strategy<Value = WriterRef> {
    (select(CLAIMS.to_vec()), select(UIDS.to_vec())).prop_map(|(claim, uid)| WriterRef {
        claim: format!("default/{claim}"),
        claim_uid: claim.into(),
        attachment: "h".into(),
        attachment_uid: uid.into(),
    })
}

fn writer() -> impl Strategy<Value = Writer> {
    (writer_ref(), 1..4_i64, any::<bool>(), of(writer_ref()))
        .prop_map(|(holder, grant, released, after)| Writer { holder, grant, released, after })
}

prop_compose! {
    pub fn handle()(
        volume_uid in prop_oneof![4 => Just("volume"), 1 => Just("other")],
        mode in mode(),
        epoch in 1..4_i64,
        (closing, last, let_go) in (prop::bool::weighted(0.25), of(any::<bool>()), any::<bool>()),
        (controller, writer) in (controller(), of(writer())),
    ) -> HandleSeen {
        let closed_for = last.filter(|_| closing).map(moor::api::volume::DeletionPolicy::of);
        let (known, volume_uid) = (HandleSeen::of(&VolumeHandle::default()), volume_uid.into());
        HandleSeen { volume_uid, mode, epoch, closing, closed_for, let_go, controller, writer, ..known }
    }
}

prop_compose! {
    fn volume()(
        (deleted, ready, prepared, attaches_read_only) in
            (prop::bool::weighted(0.1), prop::bool::weighted(0.9), prop::bool::weighted(0.9), any::<bool>()),
        uses in prop::collection::vec((mode(), attachment_mode()), 0..4),
        (read_only, flagged, tolerates_second_target) in (prop::bool::weighted(0.1), any::<bool>(), of(any::<bool>())),
    ) -> VolumeSeen {
        let one = |(access_mode, attachment_mode)| VolumeUse { access_mode, attachment_mode };
        VolumeSeen {
            uid: "volume".into(),
            deleted,
            ready,
            driver: DRIVER.into(),
            handle: VOLUME_ID.into(),
            uses: uses.into_iter().map(one).collect(),
            mount_flags: staged_as(flagged).flags,
            unprepared: (!prepared).then(|| "unprepared".into()),
            attaches_read_only,
            read_only,
            is_to_be_placed: !ready && prepared,
            tolerates_second_target,
        }
    }
}

fn nodes() -> impl Strategy<Value = Vec<NodeSeen>> {
    let each = NODES.map(|name| {
        of((
            any::<bool>(),
            any::<bool>(),
            prop::bool::weighted(0.1),
            any::<bool>(),
            prop::bool::weighted(0.1),
            0..3_usize,
        ))
        .prop_map(move |n| {
            n.map(|(healthy, reachable, unclean, has_room, retires, load)| NodeSeen {
                healthy,
                reachable,
                unclean,
                has_room,
                retires,
                load,
                ..fixtures::node(name)
            })
        })
    });
    each.prop_map(|all| all.into_iter().flatten().collect())
}

fn done() -> impl Strategy<Value = Done> {
    select(vec![Done::No, Done::Maybe, Done::Yes])
}

prop_compose! {
    pub fn record(uid: &'static str)(
        boot in select(vec!["this-boot", "old-boot"]),
        stage in any::<bool>(),
        staged in done(),
        targets in prop::collection::btree_map(select(CLAIMS.to_vec()), done(), 0..3),
        left in prop::collection::btree_set(select([&CLAIMS[..], &UIDS[..1]].concat()), 0..2),
        revision in 0..3_u64,
        forgotten in prop::option::weighted(0.2, select(vec![Lapse::WentBack, Lapse::LockRemoved])),
    ) -> Record {
        let target = |(claim, published): (&str, Done)| {
            let target = TargetRecord {
                namespace: "default".into(),
                name: claim.into(),
                path: format!("/targets/{claim}"),
                published,
                covered: false,
                device: None,
                imprint: None,
                revision,
            };
            (ClaimUid::from(claim), target)
        };
        Record {
            attachment_uid: uid.into(),
            attachment_name: "h".into(),
            handle_name: "handle".into(),
            driver_name: DRIVER.into(),
            plugin_name: DRIVER.into(),
            volume_handle: VOLUME_ID.into(),
            namespace: "default".into(),
            boot_id: boot.into(),
            stage,
            staging_path: format!("/staging/{uid}"),
            staged,
            targets: targets.into_iter().map(target).collect::<BTreeMap<_, _>>(),
            left: left.into_iter().map(|of| (of.to_owned(), left_behind(of))).collect(),
            revision,
            forgotten: forgotten.map(|why| Forgotten { why, since: 1 }),
        }
    }
}

fn left_behind(of: &str) -> Left {
    let (device, root) = ("7:1".into(), "/".into());
    let imprint = Imprint { device, root, source: None, disk: None, raw: false };
    Left { path: format!("/targets/{of}"), imprint }
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let each = UIDS.map(|u| of(record(u)));
    each.prop_map(|all| all.into_iter().flatten().collect())
}

fn live() -> impl Strategy<Value = Vec<(AttachmentUid, LiveAttachment)>> {
    let each = UIDS.map(|u| {
        of(prop_oneof![
            1 => Just(LiveAttachment::Gone),
            4 => attachment(u).prop_map(LiveAttachment::Present),
        ])
        .prop_map(move |l| l.map(|l| (u.into(), l)))
    });
    each.prop_map(|all| all.into_iter().flatten().collect())
}

fn some_claims<T: From<&'static str> + std::fmt::Debug>() -> impl Strategy<Value = Vec<T>> {
    prop::sample::subsequence(CLAIMS.to_vec(), 0..=CLAIMS.len())
        .prop_map(|all| all.into_iter().map(Into::into).collect())
}

fn some_uids<T: From<&'static str> + Clone + std::fmt::Debug>() -> impl Strategy<Value = Vec<T>> {
    let each = [UIDS.as_slice(), CLAIMS.as_slice()].concat();
    let many =
        prop::sample::subsequence(each, 0..4).prop_map(|all| all.into_iter().map(Into::into).collect());
    prop_oneof![2 => Just(Vec::new()), 1 => many]
}

prop_compose! {
    pub fn node_seen()(
        (claims, attachments, records) in (claims(), attachments(), records()),
        (live_attachments, live_handle) in (live(), of((select(CLAIMS.to_vec()), of(handle())))),
        (gone_claims, mounted, backing_off) in (some_claims(), some_claims(), some_claims()),
        (asked, released) in (some_claims(), some_claims()),
        (doubted, revision, orders) in (some_uids(), of(0..3_u64), some_uids()),
        (unreadable, unreadable_here, grows_later) in (some_uids(), some_uids(), some_uids()),
        grows_only_unused in any::<bool>(),
    ) -> node_side::Seen {
        node_side::Seen {
            node_uid: NODES[0].into(),
            boot_id: "this-boot".into(),
            claims,
            attachments,
            records,
            gone_claims,
            live_attachments,
            live_handle: live_handle.map(|(claim, read)| (claim.into(), read)),
            mounted,
            doubted,
            revision,
            orders,
            unreadable,
            unreadable_here,
            asked,
            released,
            backing_off,
            grows_later,
            grows_only_unused,
        }
    }
}

/// What admission looks at.
#[derive(Clone, Debug)]
pub struct Scene {
    pub volume: Option<VolumeSeen>,
    pub handle: Option<HandleSeen>,
    pub claims: Vec<ClaimSeen>,
    pub attachments: Vec<AttachmentSeen>,
    pub nodes: Vec<NodeSeen>,
    pub forgotten: Vec<ForgottenSeen>,
}

fn mount((node, uid): (&str, &str)) -> ForgottenSeen {
    ForgottenSeen { node: node.into(), instance: node.into(), mount: Mount::Reported(uid.into()) }
}

prop_compose! {
    /// Objects of one volume, which agree in most respects most of the time: else nothing is ever granted.
    pub fn scene()(
        mode in mode(),
        (volume, handle) in (prop::option::weighted(0.95, volume()), prop::option::weighted(0.95, handle())),
        (claims, attachments, nodes) in (claims(), attachments(), nodes()),
        agree in prop::array::uniform6(prop::bool::weighted(0.85)),
        forgotten in prop::option::weighted(0.2, (select(NODES.to_vec()), select(vec!["gone", UIDS[0]]))),
        agrees in prop::collection::vec(prop::bool::weighted(0.85), UIDS.len() + CLAIMS.len()),
    ) -> Scene {
        let mut scene = Scene { volume, handle, claims, attachments, nodes, forgotten: forgotten.map(mount).into_iter().collect() };
        if let Some(volume) = &mut scene.volume {
            (volume.ready, volume.deleted) = (volume.ready || agree[0], volume.deleted && !agree[0]);
            if agree[1] {
                let fs = AttachmentMode::FileSystem;
                volume.uses.push(VolumeUse { access_mode: mode, attachment_mode: fs });
            }
        }
        if let Some(handle) = &mut scene.handle {
            if agree[2] {
                (handle.mode, handle.volume_uid, handle.closing, handle.closed_for) = (mode, "volume".into(), false, None);
            }
            for (attachment, agrees) in scene.attachments.iter_mut().zip(&agrees) {
                if *agrees {
                    attachment.mode = mode;
                    attachment.attachment_mode = AttachmentMode::FileSystem;
                    attachment.epoch = handle.epoch;
                    attachment.name = attachment_name(DRIVER_VOLUME, mode, &attachment.node);
                }
            }
        }
        if agree[3] {
            scene.attachments.truncate(1);
        }
        for (claim, agrees) in scene.claims.iter_mut().zip(&agrees[UIDS.len()..]) {
            if *agrees {
                (claim.mode, claim.attachment_mode) = (mode, AttachmentMode::FileSystem);
                claim.state = if claim.uses().is_none() { ClaimState::Pending } else { claim.state };
                // The mode is part of the name: a claim never changes it, so its grant goes with it.
                if let Some(grant) = claim.assignment.as_mut().filter(|grant| grant.attachment != "h") {
                    grant.attachment = attachment_name(DRIVER_VOLUME, mode, &grant.node_name);
                }
            }
        }
        for node in &mut scene.nodes {
            (node.healthy, node.reachable) = (node.healthy || agree[4], node.reachable || agree[5]);
        }
        scene
    }
}
