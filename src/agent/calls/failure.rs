//! What went wrong in a step, as data: for the status, for the log and for when to try again. Pure.

use std::fmt;

use crate::agent::records::store::RecordError;
use crate::api::conditions::{CallFailure, Reason};
use crate::api::instance::MAX_STAGED;
use crate::api::names::DriverOn;
use crate::attachment::AttachmentSeen;
use crate::csi::{CallError, Meaning, Rpc};
use crate::k8s::ApiError;
use crate::k8s::secrets::SecretError;

/// How soon a failed step is worth another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// 1 s doubling to 5 min.
    Usual,
    /// Not before a minute: the same arguments will hardly succeed.
    Slow,
    /// 1 s doubling to 15 s: a look that costs little and for whose end somebody waits.
    Steady,
}

/// What keeps a node from writing to a volume that goes to another node while somebody here may still use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// ControllerUnpublishVolume, as far as the driver does what CSI asks of it.
    Detach,
    /// Nothing.
    None,
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Detach => {
                "whoever gets it then is safe from them only if its driver keeps this node from it when it is detached"
            }
            Self::None => {
                "no call follows that cuts this node off, so end them first, or both may write to it at a time"
            }
        })
    }
}

/// A failed step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The condition's reason.
    pub reason: Reason,
    /// CSI call that was made or was due.
    pub rpc: Rpc,
    /// gRPC code of a call that was made, else a word of ours.
    pub code: String,
    /// A sentence for people, without secrets and mount flags.
    pub message: String,
    /// What is known of the outcome.
    pub meaning: Meaning,
    /// When to try again.
    pub pace: Pace,
    /// The plugin was not reached, so its return is a reason to try again at once.
    pub plugin_missing: bool,
}

impl Failure {
    /// A call failed.
    #[must_use]
    pub fn of_call(error: &CallError) -> Self {
        let meaning = error.meaning();
        let slow = matches!(meaning, Meaning::Infeasible | Meaning::Unsupported);
        Self {
            reason: reason(error.rpc),
            rpc: error.rpc,
            code: format!("{:?}", error.code),
            message: error.message.clone(),
            meaning,
            pace: if slow { Pace::Slow } else { Pace::Usual },
            plugin_missing: error.is_transport(),
        }
    }

    /// ControllerPublishVolume failed. Where the driver says that something else has the volume, moor does not know of it:
    /// what moor attaches is kept apart by its Attachments.
    #[must_use]
    pub fn of_attach(error: &CallError) -> Self {
        let failure = Self::of_call(error);
        if failure.meaning != Meaning::Blocked {
            return failure;
        }
        let way = "; if the volume is attached to another node, where moor has not attached it, and nobody uses it there, \
                   detach it with the storage's own tools, or delete this claim, and create one with that node as \
                   spec.nodeName and delete it when it is Ready";
        Self { message: format!("{}{way}", failure.message), ..failure }
    }

    /// A call that undoes a mount failed, and it is there still.
    #[must_use]
    pub fn of_undo(error: &CallError) -> Self {
        let failure = Self::of_call(error);
        if failure.meaning != Meaning::AlreadyGone || error.rpc != Rpc::NodeUnpublishVolume {
            return failure;
        }
        let way = "; the driver does not know what is mounted, and spec.forceDetach of the deleted claim has it unmounted";
        Self { message: format!("{}{way}", failure.message), ..failure }
    }

    /// No process answers with the driver's name on this node and serves what the call needs.
    #[must_use]
    pub fn plugin_not_running(rpc: Rpc, at: DriverOn<'_>) -> Self {
        let DriverOn { driver, node } = at;
        let service = rpc.service();
        let way = if rpc == Rpc::NodeUnpublishVolume {
            "; the undo goes on when one does, and spec.forceDetach of the deleted claim has it unmounted without waiting \
             for that; where no claim is left, or the driver does not come back, moor.dev/force-undo on the \
             PluginInstance of the driver on this node has it undone without the driver"
        } else if rpc == Rpc::NodeUnstageVolume {
            "; the undo goes on when one does, and moor.dev/force-undo on the PluginInstance of the driver on this node \
             has it undone without the driver"
        } else if rpc == Rpc::ControllerUnpublishVolume {
            "; the undo goes on when one does"
        } else {
            ""
        };
        let message = format!(
            "no plugin on node {node} answers with the driver name {driver} and has the {service:?} service{way}"
        );
        Self { plugin_missing: true, ..Self::local(Reason::PluginNotRunning, rpc, message) }
    }

    /// The node has as many volumes of the driver as it could report if etcd were restored.
    #[must_use]
    pub fn too_many_volumes(rpc: Rpc, at: DriverOn<'_>) -> Self {
        let DriverOn { driver, node } = at;
        let message = format!(
            "node {node} has {MAX_STAGED} volumes of driver {driver}, which is as many as moor keeps account of; this one \
             waits until another is undone, or delete this claim and create one for another node"
        );
        Self::local(Reason::TooManyVolumes, rpc, message)
    }

    /// The driver knows the node by an id under which another one uses the volume.
    #[must_use]
    pub fn same_node_id(rpc: Rpc, attachment: &AttachmentSeen, other: &AttachmentSeen) -> Self {
        let message = format!(
            "the driver knows node {} and node {} by one node id, {}, and the volume is attached there: this call waits \
             until it is detached from node {}. Start the driver with an id of its own on each node",
            attachment.node, other.node, other.node_id, other.node
        );
        Self::local(Reason::SameNodeID, rpc, message)
    }

    /// A Secret that the call needs cannot be had.
    #[must_use]
    pub fn secret(rpc: Rpc, namespace: &str, error: &SecretError) -> Self {
        let reason = match error {
            SecretError::NotFound(_) => Reason::SecretNotFound,
            SecretError::Unreadable(_) | SecretError::Unusable(_) => Reason::SecretUnreadable,
        };
        let remedy = if let SecretError::Unreadable(ApiError::Forbidden { .. }) = error {
            format!(
                "; allow it with `kubectl create rolebinding moor-agent-secrets -n {namespace} \
                 --clusterrole=moor-agent-secrets --serviceaccount=<namespace of moor>:moor-agent`"
            )
        } else {
            String::new()
        };
        Self::local(reason, rpc, format!("{error}{remedy}"))
    }

    /// The driver said OK and the mounts say otherwise (rule R8).
    #[must_use]
    pub fn contradicted(reason: Reason, rpc: Rpc, message: String) -> Self {
        Self { meaning: Meaning::StillRunning, ..Self::local(reason, rpc, message) }
    }

    /// The driver said OK, and its answer cannot be right. Asking again soon is no use.
    #[must_use]
    pub fn bad_answer(reason: Reason, rpc: Rpc, message: String) -> Self {
        Self { pace: Pace::Slow, ..Self::local(reason, rpc, message) }
    }

    /// The driver said OK, and the API server does not take what it answered.
    #[must_use]
    pub fn unstorable(rpc: Rpc, why: &str) -> Self {
        let message = format!("{rpc} went well, and the API server refuses to store its answer: {why}");
        let failure = Self::local(Reason::AnswerRefused, rpc, message);
        Self { meaning: Meaning::StillRunning, pace: Pace::Slow, ..failure }
    }

    /// What was unmounted is in use on the node. `way` says how it is given up all the same.
    #[must_use]
    pub fn in_use(path: &str, users: &dyn fmt::Display, way: &str, fence: Fence) -> Self {
        let message = format!(
            "{path} is unmounted, and what was there is still in use on the node, by {users}; nobody else gets it \
             before that ends, or {way}: {fence}"
        );
        Self { pace: Pace::Steady, ..Self::local(Reason::StillInUse, Rpc::NodeUnpublishVolume, message) }
    }

    /// What the driver could not unmount is in use on the node. `way` says how it is unmounted all the same.
    #[must_use]
    pub fn busy(path: &dyn fmt::Display, way: &str, failure: &Self) -> Self {
        let message = format!(
            "{path} is in use on the node, by somebody who has a file open in it or something mounted below it, and is \
             unmounted when that ends, or {way}: {failure}"
        );
        Self { pace: Pace::Steady, ..Self::local(Reason::StillInUse, failure.rpc, message) }
    }

    /// Whether what was unmounted is in use cannot be found out.
    #[must_use]
    pub fn users_unknown(path: &str, error: &dyn fmt::Display, way: &str, fence: Fence) -> Self {
        let message = format!(
            "{path} is unmounted, and who still uses what was there on the node cannot be found out: {error}; nobody else \
             gets it before that succeeds, or {way}: {fence}"
        );
        Self { pace: Pace::Steady, ..Self::local(Reason::UsersUnknown, Rpc::NodeUnpublishVolume, message) }
    }

    /// Something of ours failed before the call.
    #[must_use]
    pub fn local(reason: Reason, rpc: Rpc, message: String) -> Self {
        Self {
            reason,
            rpc,
            code: reason.as_str().to_owned(),
            message,
            meaning: Meaning::NeverSent,
            pace: Pace::Usual,
            plugin_missing: false,
        }
    }

    /// The record of what the call would make cannot be stored, so the call is not made.
    #[must_use]
    pub fn unrecorded(rpc: Rpc, node: &str, error: &RecordError) -> Self {
        let message = format!(
            "{error}; nothing new is mounted on node {node} until its state directory takes writes: free space there, or \
             repair the disk"
        );
        Self::local(Reason::StateNotWritable, rpc, message)
    }

    /// An argument cannot be made from what the objects say.
    #[must_use]
    pub fn arguments(rpc: Rpc, why: &dyn fmt::Display) -> Self {
        Self { pace: Pace::Slow, ..Self::local(Reason::BadArguments, rpc, why.to_string()) }
    }

    /// The failed call as a status shows it.
    #[must_use]
    pub fn shown(&self) -> CallFailure {
        CallFailure {
            rpc: self.rpc.name().to_owned(),
            code: self.code.clone(),
            message: self.message.clone(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code == self.reason.as_str() {
            write!(f, "{}: {}", self.rpc, self.message)
        } else {
            write!(f, "{}: {}: {}", self.rpc, self.code, self.message)
        }
    }
}

/// The condition's reason of a failed call.
fn reason(rpc: Rpc) -> Reason {
    match rpc {
        Rpc::ControllerPublishVolume => Reason::ControllerPublishFailed,
        Rpc::ControllerUnpublishVolume => Reason::ControllerUnpublishFailed,
        Rpc::NodeStageVolume => Reason::NodeStageFailed,
        Rpc::NodeUnstageVolume => Reason::NodeUnstageFailed,
        Rpc::NodePublishVolume => Reason::NodePublishFailed,
        Rpc::NodeUnpublishVolume => Reason::NodeUnpublishFailed,
        Rpc::CreateVolume => Reason::CreateVolumeFailed,
        Rpc::DeleteVolume => Reason::DeleteVolumeFailed,
        Rpc::ControllerExpandVolume => Reason::ExpandVolumeFailed,
        Rpc::NodeExpandVolume => Reason::NodeExpandFailed,
        Rpc::ControllerModifyVolume => Reason::ModifyVolumeFailed,
        Rpc::ValidateVolumeCapabilities => Reason::ValidateFailed,
        Rpc::CreateSnapshot | Rpc::CreateVolumeGroupSnapshot => Reason::CreateSnapshotFailed,
        Rpc::DeleteSnapshot | Rpc::DeleteVolumeGroupSnapshot => Reason::DeleteSnapshotFailed,
        Rpc::GetVolumeGroupSnapshot => Reason::GetVolumeGroupSnapshotFailed,
        Rpc::ListSnapshots => Reason::ListSnapshotsFailed,
        Rpc::GetPluginInfo
        | Rpc::GetPluginCapabilities
        | Rpc::Probe
        | Rpc::ControllerGetCapabilities
        | Rpc::GroupControllerGetCapabilities
        | Rpc::ListVolumes
        | Rpc::ControllerGetVolume
        | Rpc::GetCapacity
        | Rpc::NodeGetCapabilities
        | Rpc::NodeGetInfo
        | Rpc::NodeGetVolumeStats => Reason::CallFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::Origin;
    use crate::k8s::error::Request;

    const AT: DriverOn<'_> = DriverOn { driver: "d", node: "n" };

    fn error(code: tonic::Code, origin: Origin) -> CallError {
        CallError { rpc: Rpc::NodeStageVolume, code, message: "words".into(), origin }
    }

    #[test]
    fn an_infeasible_call_is_repeated_slowly() {
        let slow = Failure::of_call(&error(tonic::Code::InvalidArgument, Origin::Driver));
        assert_eq!((slow.pace, slow.reason), (Pace::Slow, Reason::NodeStageFailed));
        let usual = Failure::of_call(&error(tonic::Code::Internal, Origin::Driver));
        assert_eq!(usual.pace, Pace::Usual);
    }

    #[test]
    fn a_lost_connection_is_tried_again_when_the_plugin_is_back() {
        assert!(Failure::of_call(&error(tonic::Code::Unavailable, Origin::Dial)).plugin_missing);
        assert!(!Failure::of_call(&error(tonic::Code::Unavailable, Origin::Driver)).plugin_missing);
        assert!(Failure::plugin_not_running(Rpc::NodeStageVolume, AT).plugin_missing);
    }

    #[test]
    fn a_secret_that_may_not_be_read_comes_with_the_command_that_allows_it() {
        let (kind, object) = ("Secret".to_owned(), "shop/s".to_owned());
        let request = Request { verb: "get", kind, subresource: "", object };
        let forbidden = ApiError::Forbidden { request, message: "no".into() };
        let told = |error| Failure::secret(Rpc::NodeStageVolume, "shop", &error);
        let failure = told(SecretError::Unreadable(forbidden));
        assert_eq!(failure.reason, Reason::SecretUnreadable);
        let command =
            "`kubectl create rolebinding moor-agent-secrets -n shop --clusterrole=moor-agent-secrets ";
        assert!(failure.message.contains(command), "{failure}");
        let failure = told(SecretError::NotFound("shop/s".into()));
        assert_eq!(
            (failure.reason, failure.message.as_str()),
            (Reason::SecretNotFound, "Secret shop/s does not exist")
        );
    }

    #[test]
    fn an_undo_without_its_driver_names_the_way_out() {
        let told = |rpc| Failure::plugin_not_running(rpc, AT).message;
        assert!(told(Rpc::NodeUnpublishVolume).contains("spec.forceDetach"));
        assert!(!told(Rpc::NodeUnstageVolume).contains("forceDetach"), "it waits for the driver in any case");
        assert!(!told(Rpc::NodePublishVolume).contains("undo"));
    }

    #[test]
    fn a_volume_that_the_driver_says_is_attached_elsewhere_comes_with_the_steps() {
        let told = |code| {
            let rpc = Rpc::ControllerPublishVolume;
            Failure::of_attach(&CallError { rpc, ..error(code, Origin::Driver) }).message
        };
        let message = told(tonic::Code::FailedPrecondition);
        assert!(message.starts_with("words; ") && message.contains("spec.nodeName"), "{message}");
        assert_eq!(told(tonic::Code::Internal), "words");
    }

    #[test]
    fn a_driver_that_denies_what_is_mounted_gets_a_way_out() {
        let told = |code, rpc| Failure::of_undo(&CallError { rpc, ..error(code, Origin::Driver) }).message;
        let (unpublish, unstage) = (Rpc::NodeUnpublishVolume, Rpc::NodeUnstageVolume);
        assert!(told(tonic::Code::NotFound, unpublish).contains("spec.forceDetach"));
        assert_eq!(told(tonic::Code::Internal, unpublish), "words");
        assert_eq!(told(tonic::Code::NotFound, unstage), "words", "it is not forced");
    }

    #[test]
    fn a_failure_reads_as_the_call_the_code_and_the_words() {
        let failed = Failure::of_call(&error(tonic::Code::DeadlineExceeded, Origin::Deadline));
        assert_eq!(failed.to_string(), "NodeStageVolume: DeadlineExceeded: words");
        let missing = Failure::plugin_not_running(Rpc::NodeStageVolume, AT);
        assert_eq!(
            missing.to_string(),
            "NodeStageVolume: no plugin on node n answers with the driver name d and has the Node service"
        );
    }
}
