//! What the leader's decision about a Volume looks at, and the steps that it can come to.

use super::instance::{Places, PluginSeen};
use super::reason::VolumeWaiting;
use super::source::{self, SourceSeen};
use crate::api::caller::ControllerRef;
use crate::api::volume::{DeletionPolicy, Segments, VolumeAssignment};
use crate::api::{AccessMode, Volume};
use crate::attachment::HandleSeen;
use crate::plugin::allow::NotAllowed;

/// Everything the decision looks at.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The Volume.
    pub volume: &'a Volume,
    /// Whether the Volume carries our finalizer.
    pub held: bool,
    /// The Volume's Plugin and its instances.
    pub plugin: PluginSeen<'a>,
    /// What the Volume asks for and its namespace may not have. It counts only for what has not been granted yet.
    pub not_allowed: Option<NotAllowed>,
    /// The instance that its own calls are assigned to is of the driver that would be asked now. It is not where the Plugin
    /// was made anew for another one, which knows other volumes by the same handles.
    pub same_driver: bool,
    /// moor keeps the Volume for PersistentVolumes: by them Kubernetes has taken it, and no answer of the driver changes that.
    pub adopts: bool,
    /// Its VolumeHandle, by the handle that status or spec names.
    pub handle: Option<&'a HandleSeen>,
    /// What it is to be made from.
    pub source: SourceSeen<'a>,
    /// What is being made of it, in words.
    pub copied_by: Option<String>,
    /// What still uses the volume: a claim or an Attachment, in words.
    pub in_use_by: Option<String>,
    /// Whether there are Attachments that were made for it.
    pub has_attachments: bool,
    /// Where its first claim is, if there is one that has a node. Empty: anywhere.
    pub first_place: Option<Segments>,
    /// Mode that the first claim in line needs, if it is not the current one.
    pub wanted_mode: Option<AccessMode>,
}

/// One step. Every variant is at most one side effect, after the live reads that its doc names.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeStep {
    /// Nothing to do until something changes.
    Idle,
    /// Write the condition and wait.
    Wait(VolumeWaiting),
    /// Write finalizer and assignment in one patch.
    Assign(VolumeAssignment),
    /// Create the VolumeHandle. First GET it, and list PersistentVolumes: one that names the handle keeps this Volume off.
    MakeHandle,
    /// The VolumeHandle names another Volume: GET that one; if it is gone take over, else DuplicateHandle.
    ContestHandle,
    /// List PersistentVolumes: if none names what CreateVolume made and nobody can use, write that it may be deleted.
    JudgeRejected,
    /// Write that it may not be deleted yet: another instance is to delete it, and it is judged again for that one.
    JudgeAnew,
    /// Write that the Volume is Ready.
    ReportReady,
    /// Write closing on the VolumeHandle, and epoch + 1 if it was open.
    BeginClosing {
        /// If it stays closed, as the Volume is deleted: what becomes of the storage.
        last: Option<DeletionPolicy>,
    },
    /// List its Attachments by quorum; if no earlier one is left clear closing and set what it is used with from now on.
    FinishClosing {
        /// Mode.
        mode: AccessMode,
        /// The instance of all its controller calls, if it had none.
        first_controller: Option<ControllerRef>,
    },
    /// List its Attachments and PersistentVolumes by quorum; if none is left or names it write the Delete operation, after the
    /// VolumeHandle was closed for that.
    AssignDelete(Option<ControllerRef>),
    /// Write again what the VolumeHandle says: that the storage was made, and what the driver calls it.
    RestoreStatus,
    /// List its Attachments by quorum; if none is left remove the VolumeHandle. Where DeleteVolume has not ended it is closed before
    /// without that call, and then the Volume read.
    RemoveHandle,
    /// GET the VolumeHandle; if it is gone or another Volume's take the finalizer off.
    FreeVolume,
    /// Look whether this instance can still be making a call; if not, remove the VolumeHandle and take the finalizer off.
    GiveUp(ControllerRef),
    /// Write another controller instance on the VolumeHandle: the old one is dead (rule R2).
    MoveHandle(ControllerRef),
    /// Write that the Volume has the size that is asked for; with a size where no call makes it so and the nodes do.
    ReportExpanded(Option<i64>),
    /// Write that nothing is asked for any more than the driver has taken.
    ReportModified,
}

/// What comes of one of the things that a Ready volume may be asked for.
#[derive(Debug)]
pub(super) enum Wish {
    /// It has it, or it is not known yet what is to be done.
    Nothing,
    /// This is written.
    Write(VolumeStep),
    /// It waits for this.
    Wait(VolumeWaiting),
    /// Its call is due.
    Call,
}

impl<'a> Seen<'a> {
    /// The VolumeHandle, if this very Volume owns it.
    pub(super) fn own_handle(&self) -> Option<&'a HandleSeen> {
        self.handle.filter(|handle| handle.volume_uid == self.key())
    }

    /// The Volume's name.
    pub(super) fn name(&self) -> String {
        self.volume.metadata.name.clone().unwrap_or_default()
    }

    /// What volumes are spread over instances by: the UID.
    pub(super) fn key(&self) -> &'a str {
        self.volume.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Where the volume is, or before that is known, where it must and should be.
    fn places(&self) -> Places<'_> {
        let to_be = self.volume.is_to_be_placed().then_some(self.first_place.as_ref()).flatten();
        let place = to_be.or_else(|| self.volume.place()).filter(|place| !place.segments.is_empty());
        let known = self.volume.status.as_ref().map_or(&[][..], |s| &s.accessible_topology);
        if let Some(place) = place.filter(|_| known.is_empty()) {
            return Places { required: std::slice::from_ref(place), preferred: &[] };
        }
        match &self.volume.spec.topology {
            Some(asked) if known.is_empty() => {
                let required = if asked.required.is_empty() { &asked.preferred } else { &asked.required };
                Places { required, preferred: &asked.preferred }
            }
            _ if known.is_empty() => Places { required: source::place(self.source), preferred: &[] },
            _ => Places { required: known, preferred: &[] },
        }
    }

    /// The instance that new work on the volume goes to.
    pub(super) fn chosen(&self) -> Option<ControllerRef> {
        self.plugin.choose(self.places(), self.key())
    }

    /// The instance that takes over from `current`, if `current` may be left at all.
    pub(super) fn successor(&self, current: &ControllerRef) -> Option<ControllerRef> {
        self.plugin.successor(current, self.places(), self.key())
    }

    /// Who takes the VolumeHandle over from a dead instance. This comes before anything that waits for its
    /// Attachments: nobody else could detach them.
    pub(super) fn heir(&self) -> Option<ControllerRef> {
        self.successor(self.own_handle()?.controller.as_ref()?)
    }
}
