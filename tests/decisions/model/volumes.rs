//! Volumes that come and go, and the one VolumeHandle that they contend for. They are registered: their storage stays.
//!
//! Validation by an agent is one write with the assignment; removing the VolumeHandle is one write after its LIST.
//! No watch of Volumes falls behind: their UIDs stand in everything that a decision compares.

use moor::api::volume::{VolumeAssignment, VolumeOperation, VolumeState};
use moor::api::{FINALIZER, Volume, VolumeState::Ready};

use super::actions::What;
use super::config::{Config, Volumes, claim_ids};
use super::harm::Harm;
use super::seen::{VOLUME, controller_ref, volume_uid};
use super::state::{Actor, Cached, Given, Handle, Kind, State, Vol};
use crate::fixtures::{NAMESPACE, VOLUME_ID};

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

/// The object that [`moor::leader::plan`] looks at.
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
    let controller = config.attach.then(|| controller_ref(Given::default()));
    volume.spec.assignment = vol.held.then_some(VolumeAssignment {
        operation: VolumeOperation::Validate,
        controller,
        ..VolumeAssignment::default()
    });
    let state = match (vol.held, vol.ready) {
        (_, true) => Ready,
        (true, false) => VolumeState::Created,
        (false, false) => VolumeState::Pending,
    };
    let status = volume.status.get_or_insert_default();
    status.state = state;
    status.volume_handle = vol.held.then(|| VOLUME_ID.into());
    volume.metadata.finalizers = vol.held.then(|| vec![FINALIZER.into()]);
    volume
}

/// A step that changes a Volume or the VolumeHandle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeDoes {
    Assign,
    Make { epoch: u8, closing: bool, last: Option<bool>, controller: Given },
    TakeOver,
    ReportReady,
    Remove,
    Free,
}

/// Does the step: the write, guarded by what was seen.
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
    let mode = config.mode;
    match does {
        VolumeDoes::Assign if same => state.volumes[at] = Some(Vol { held: true, ..seen }),
        VolumeDoes::ReportReady if same => state.volumes[at] = Some(Vol { ready: true, ..seen }),
        VolumeDoes::Free if same => state.volumes[at] = None,
        VolumeDoes::Assign | VolumeDoes::ReportReady | VolumeDoes::Free => {}
        // The one that is there is read.
        VolumeDoes::Make { .. } if state.handle.there => put(state, who, state.handle),
        VolumeDoes::Make { epoch, closing, last, controller } => {
            let (there, owner, writer) = (true, v, None);
            put(state, who, Handle { there, owner, mode, epoch, closing, last, controller, writer });
        }
        VolumeDoes::TakeOver => {
            if state.handle == *handle {
                in_use(state);
            }
            let new = Handle {
                closing: false,
                last: None,
                owner: v,
                mode,
                controller: Given::default(),
                writer: None,
                ..*handle
            };
            state.update_handle(who, handle, new);
        }
        VolumeDoes::Remove => {
            if state.handle == *handle {
                in_use(state);
                put(state, who, Handle { there: false, ..*handle });
            }
        }
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
