//! What a leader's plan looks at, in the words of the product, and the answers to its live looks.

use moor::api::AttachmentMode;
use moor::api::capability::VolumeUse;
use moor::api::plugin::Balancing;
use moor::attachment::closing::Unused;
use moor::attachment::loss::{Heard, Machine, NodeFacts, NodeNow};
use moor::claim::{ClaimSeen, Entitled, ForgottenSeen, Mount, NodeSeen, VolumeSeen};
use moor::leader::{Look, Looked};
use moor::volume::CallerNow;
use moor::volume::{InstanceSeen, elect};

use super::super::fixtures;
use super::super::observed::Observed;
use super::config::{Config, instance_name, node_ids, node_name};
use super::leader::{LeaderView, view};
use super::pods::Kubelet;
use super::seen::{NAMES, att_seen, claim_of, claim_seen, controller_ref, given, handle_seen};
use super::seen::{node_uid, uid_name, uid_of, volume_uid};
use super::state::{Actor, Att, Given, State, Uid};
use super::volumes::{self, Name};

/// Everything that a leader has observed about one name of a Volume.
pub fn observed(config: &Config, view: &LeaderView, name: &Name) -> Observed {
    let own: Vec<&Att> = view.atts.iter().filter(|a| name.volumes.contains(&a.volume)).collect();
    let reported = |(n, uid): (u8, Option<Uid>)| {
        let mount = Mount::Reported(uid_name(uid?).into());
        Some(ForgottenSeen { node: node_name(n).into(), instance: instance_name(n).into(), mount })
    };
    // A Volume that was removed by hand leaves its VolumeHandle to be found by what was made for it.
    let found = name.current.is_some() || (!own.is_empty() && name.volumes.contains(&view.handle.owner));
    let instances = instances(config, view);
    // A Plugin's active instance is whoever was given the handle last.
    let before = controller_ref(view.handle.controller);
    Observed {
        plugin: Some(Balancing::SingleActive),
        active: elect(Some(&before), &instances),
        volume: name.current.map(|(v, vol)| volumes::object(config, v, &vol)),
        volume_seen: volume_seen(config, name),
        instances,
        can_create: false,
        attaches: config.attach,
        grows: None,
        modifies: None,
        handle: handle_seen(config, &view.handle).filter(|_| found),
        claims: claims(config, view, |c| name.claims.contains(&c)),
        attachments: own.iter().map(|a| att_seen(config, a)).collect(),
        nodes_of: own.iter().map(|a| (uid_name(a.uid).into(), node_facts(view, a))).collect(),
        locks: view.atts.iter().map(|a| att_seen(config, a)).collect(),
        nodes: node_ids().map(|n| node_seen(view, n)).collect(),
        unused: own
            .iter()
            .filter(|_| config.lingers)
            .map(|a| (uid_name(a.uid).into(), unused(view, a)))
            .collect(),
        forgotten: (0..).zip(view.forgotten).filter_map(reported).collect(),
        ..Observed::default()
    }
}

/// A leader that has seen claims leave closes without another look at them, which is bolder than one that has just begun.
fn unused(view: &LeaderView, att: &Att) -> Unused {
    Unused { lingers: !view.lingered.contains(&att.uid), was_used: true }
}

/// Answers a look as the world is now.
pub fn answer(config: &Config, state: &State, seen: &LeaderView, look: Look, looked: &mut Looked) {
    match look {
        Look::Node { attachment } => {
            let uid = uid_of(&attachment);
            if let Some(att) = seen.atts.iter().find(|a| a.uid == uid) {
                looked.nodes.insert(attachment, node_facts(&looked_at(state), att));
            }
        }
        Look::Users { attachment } => {
            let mut users = claims(config, &looked_at(state), |_| true);
            users.retain(|claim| claim.uses() == Some(&attachment));
            looked.users.insert(attachment, users);
        }
        // The writer's lock names an Attachment by its UID here.
        Look::Attachment { name } => {
            let is_it = |a: &&Att| NAMES.of(a.mode, a.node) == name || uid_name(a.uid) == name;
            let live = state.atts.iter().find(is_it).map(|a| uid_name(a.uid).into());
            looked.attachments.insert(name, live);
        }
        Look::Locks => looked.locks = Some(state.atts.iter().map(|a| att_seen(config, a)).collect()),
        Look::Claim { key: _, uid } => {
            let c = claim_of(&uid);
            let live = state.claims[usize::from(c)].map(|claim| claim_seen(config, c, &claim));
            looked.claims.insert(uid, live);
        }
        Look::Caller(controller) => {
            let given = given(&controller);
            let instance = &state.controllers[usize::from(given.instance)];
            let now = match config.relief {
                true if given.tenure < instance.relieved => CallerNow::Relieved,
                false if !instance.alive => CallerNow::CutOff,
                _ => CallerNow::MayCall,
            };
            looked.callers.insert(controller, now);
        }
        Look::Assigned => {
            let live = |v: u8| Some(volumes::object(config, v, &state.volumes[usize::from(v)]?));
            looked.assigned = Some(live(seen.handle.owner).and_then(|volume| volume.spec.assignment));
        }
        Look::Owner => {
            looked.owner_exists = Some(state.volumes[usize::from(seen.handle.owner)].is_some());
        }
        // Nothing is copied here.
        Look::Copies { .. } => looked.copied_by = Some(None),
        // No stock stack is here.
        Look::Holders { .. } => looked.shared_with = Some(None),
        Look::PersistentVolumes(_) => looked.named_by = Some(None),
        Look::EndedReports => looked.reports_have_ended = Some(true),
        Look::Pod { claim } => {
            let gone =
                matches!(state.kubelet[usize::from(claim_of(&claim))], Kubelet::Leaves | Kubelet::Gone);
            looked.pods.insert(claim, if gone { Entitled::PodGone } else { Entitled::Yes });
        }
        Look::Handle { name } => {
            looked.handles.insert(name, handle_seen(config, &state.handle));
        }
    }
}

/// What live reads show of nodes and claims, or, where that is a habit, the caches of an old leader.
fn looked_at(state: &State) -> LeaderView {
    view(state, Actor::Leader(u8::from(state.habits.blind_loss)))
}

fn claims(config: &Config, view: &LeaderView, which: impl Fn(u8) -> bool) -> Vec<ClaimSeen> {
    let all = (0..).zip(&view.claims).filter(|(c, _)| which(*c));
    all.filter_map(|(c, claim)| claim.as_ref().map(|k| claim_seen(config, c, k))).collect()
}

fn volume_seen(config: &Config, name: &Name) -> Option<VolumeSeen> {
    let (v, vol) = name.current?;
    let uses = config
        .claims
        .iter()
        .map(|c| VolumeUse { access_mode: c.mode, attachment_mode: AttachmentMode::FileSystem });
    Some(VolumeSeen {
        uid: volume_uid(v),
        deleted: vol.deleted,
        ready: vol.ready,
        uses: uses.collect(),
        ..fixtures::volume()
    })
}

/// The controller instances, as a leader sees them.
fn instances(config: &Config, view: &LeaderView) -> Vec<InstanceSeen> {
    let seen = |i: u8| {
        let (alive, (tenure, relieved)) = (view.alive[usize::from(i)], view.tenures[usize::from(i)]);
        InstanceSeen {
            healthy: alive,
            serving: alive,
            dead: !alive && !config.relief,
            relieved: relieved.into(),
            ..fixtures::instance(&controller_ref(Given { instance: i, tenure }))
        }
    };
    node_ids().filter(|_| config.attach).map(seen).collect()
}

fn node_seen(view: &LeaderView, n: u8) -> NodeSeen {
    let (machine, node) = (&view.machines[usize::from(n)], &view.nodes[usize::from(n)]);
    NodeSeen {
        uid: node_uid(n, machine.uid),
        healthy: view.sick != Some(n) && !machine.away && !node.tainted && !node.unregistered,
        unclean: view.unclean[usize::from(n)],
        load: view.atts.iter().filter(|a| a.node == n).count(),
        ..fixtures::node(node_name(n))
    }
}

/// A machine keeps its name for the driver.
fn node_facts(view: &LeaderView, att: &Att) -> NodeFacts {
    let (now, object) = (&view.machines[usize::from(att.node)], &view.nodes[usize::from(att.node)]);
    let there = NodeNow::There {
        uid: node_uid(att.node, object.uid),
        out_of_service: object.tainted,
        boot_id: String::new(),
        node_id: Some(node_name(att.node).into()),
    };
    // An instance goes with its Node, and then nobody says what the driver calls the machine.
    let node_id = (!object.unregistered).then(|| node_name(att.node).into());
    let heard = (!now.away && now.uid != att.node_uid).then(|| Heard { boot_id: String::new(), node_id });
    NodeFacts {
        machine: Machine {
            node_uid: node_uid(att.node, att.node_uid),
            node_id: node_name(att.node).into(),
            boot_id: String::new(),
        },
        now: if object.unregistered { NodeNow::Gone } else { there },
        silent: now.away || now.uid != att.node_uid,
        heard: heard.into_iter().collect(),
    }
}
