//! Volumes that come and go, and the one VolumeHandle that they contend for. They are registered: their storage stays.
//!
//! Validation by an agent is one write with the assignment; removing the VolumeHandle is one write after its LIST.
//! No watch of Volumes falls behind: their UIDs stand in everything that a decision compares.

use moor::api::volume::{VolumeAssignment, VolumeOperation, VolumeState};
use moor::api::{Volume, VolumeState::Ready};
use moor::volume::VolumeStep;

use super::actions::What;
use super::config::{Config, VOLUME_ID, Volumes, claim_ids};
use super::harm::Harm;
use super::leader::heir_without_volume;
use super::seen::{NAMESPACE, VOLUME, controller_ref, handle_seen, volume_uid};
use super::state::{Actor, Cached, Handle, Kind, State, Vol};

/// What hangs on one Volume's name.
#[derive(Clone, Debug)]
pub struct Name {
    /// The Volume that has the name now.
    pub current: Option<(u8, Vol)>,
    /// Every Volume that ever had it.
    pub volumes: Vec<u8>,
    /// Claims that give the name.
    pub claims: Vec<u8>,
}

/// The names of this configuration.
pub fn names(config: &Config, volumes: &[Option<Vol>; 2]) -> Vec<Name> {
    let current = |v: u8| volumes[usize::from(v)].map(|vol| (v, vol));
    match config.volumes {
        Volumes::Stays | Volumes::Again => {
            let current = current(1).or(current(0));
            vec![Name { current, volumes: vec![0, 1], claims: claim_ids().collect() }]
        }
        Volumes::Beside => {
            [0, 1].map(|v| Name { current: current(v), volumes: vec![v], claims: vec![v] }).to_vec()
        }
    }
}

/// The object that [`moor::volume::plan`] looks at.
pub fn object(config: &Config, v: u8, vol: &Vol) -> Volume {
    let mut volume = Volume::default();
    volume.metadata.name = Some(VOLUME.into());
    volume.metadata.namespace = Some(NAMESPACE.into());
    volume.metadata.uid = Some(volume_uid(v));
    if vol.deleted {
        volume.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    }
    volume.spec.volume_handle = Some(VOLUME_ID.into());
    let controller = config.attach.then(|| controller_ref(0));
    volume.spec.assignment =
        vol.held.then_some(VolumeAssignment { operation: VolumeOperation::Validate, controller });
    let state = match (vol.held, vol.ready) {
        (_, true) => Ready,
        (true, false) => VolumeState::Created,
        (false, false) => VolumeState::Pending,
    };
    volume.status.get_or_insert_default().state = state;
    volume
}

/// A [`VolumeStep`] that changes a Volume or the VolumeHandle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeDoes {
    Assign,
    Make,
    Contest,
    ReportReady,
    Remove,
    Free,
}

/// In the model's words.
pub fn kind(step: &VolumeStep) -> VolumeDoes {
    match step {
        VolumeStep::Assign(_) => VolumeDoes::Assign,
        VolumeStep::MakeHandle => VolumeDoes::Make,
        VolumeStep::ContestHandle => VolumeDoes::Contest,
        VolumeStep::ReportReady => VolumeDoes::ReportReady,
        VolumeStep::RemoveHandle => VolumeDoes::Remove,
        VolumeStep::FreeVolume => VolumeDoes::Free,
        other => unreachable!("{other:?} has a word of its own"),
    }
}

/// Does the step: live looks first, then the write, guarded by what was seen.
pub fn act(
    config: &Config,
    state: &mut State,
    who: Actor,
    (v, seen): (u8, Vol),
    handle: &Handle,
    does: VolumeDoes,
) {
    let at = usize::from(v);
    let same = state.volumes[at] == Some(seen);
    match does {
        VolumeDoes::Assign if same => state.volumes[at] = Some(Vol { held: true, ..seen }),
        VolumeDoes::ReportReady if same => state.volumes[at] = Some(Vol { ready: true, ..seen }),
        VolumeDoes::Free if same && !(state.handle.there && state.handle.owner == v) => {
            state.volumes[at] = None;
        }
        VolumeDoes::Assign | VolumeDoes::ReportReady | VolumeDoes::Free => {}
        VolumeDoes::Make => make(config, state, who, v),
        VolumeDoes::Contest => contest(config, state, who, v, handle),
        VolumeDoes::Remove => {
            if state.atts.is_empty() && state.handle == *handle {
                in_use(state);
                put(state, who, Handle { there: false, ..*handle });
            }
        }
    }
}

/// `controller/handles.rs`, `make`: closed behind Attachments that are left.
fn make(config: &Config, state: &mut State, who: Actor, v: u8) {
    if state.handle.there {
        let live = state.handle;
        put(state, who, live);
        return;
    }
    let epoch = state.atts.iter().map(|a| a.epoch).max().map_or(1, |latest| latest + 1);
    let closing = !state.atts.is_empty();
    let mode = config.mode;
    let new = Handle { there: true, owner: v, mode, epoch, closing, controller: 0, writer: None };
    put(state, who, new);
}

/// `controller/handles.rs`, `contest`: closes first, takes over when nothing older is left.
fn contest(config: &Config, state: &mut State, who: Actor, v: u8, seen: &Handle) {
    if state.volumes[usize::from(seen.owner)].is_some() {
        return;
    }
    let alive = state.controllers.map(|c| c.alive);
    let heir = handle_seen(config, seen).and_then(|seen| heir_without_volume(config, &seen, &alive));
    if let Some(controller) = heir {
        state.update_handle(who, seen, Handle { controller, ..*seen });
    } else if !seen.closing {
        state.update_handle(who, seen, Handle { closing: true, epoch: seen.epoch + 1, ..*seen });
    } else if state.atts.iter().all(|a| a.epoch >= seen.epoch) && state.handle == *seen {
        in_use(state);
        let new =
            Handle { closing: false, owner: v, mode: config.mode, controller: 0, writer: None, ..*seen };
        state.update_handle(who, seen, new);
    }
}

fn in_use(state: &mut State) {
    let truth = &state.truth;
    let left = |uid: &u8| !truth.cut.contains(uid);
    let attached = truth.attached.iter().flatten().any(|(uid, _)| left(uid));
    if attached || truth.staged.iter().flatten().chain(truth.published.iter().flatten().flatten()).any(left) {
        state.harmed(Harm::HandleGoneInUse);
    }
}

fn put(state: &mut State, who: Actor, new: Handle) {
    state.handle = new;
    if let Some(Cached::Handle(cache)) = state.cache_mut(who, Kind::Handle) {
        *cache = new;
    }
}

/// What users do to Volumes.
pub fn users(config: &Config, s: &State, actions: &mut Vec<What>) {
    if config.volumes == Volumes::Stays {
        return;
    }
    if s.volumes[0].is_some_and(|v| !v.deleted) {
        actions.push(What::DeleteVolume(0));
    }
    if config.volumes == Volumes::Again && s.volumes == [None; 2] && !s.made_again {
        actions.push(What::MakeVolumeAgain);
    }
}

/// A Volume is removed by hand, finalizer and all.
pub fn trouble(config: &Config, s: &State, actions: &mut Vec<What>) {
    if config.volumes != Volumes::Stays
        && config.removed.is_none()
        && s.budget.force > 0
        && s.volumes[0].is_some()
    {
        actions.push(What::RemoveVolumeByForce(0));
    }
}
