//! Why a condition is as it is: every reason that moor writes, with what it means for who reads it and what to do.
//!
//! docs/reference.md is made from these sentences.

use super::change_reasons::with_change_reasons;
use super::conditions::{
    APPLIED, CONFIRMED, DEPLOYED, DRIFTED, EXPANDED, EXPORTED, HEALTHY, IN_ORDER, MODIFIED, ORPHANS,
    PERSISTENT_VOLUME, PODS, READY, REMOVABLE, SCHEDULABLE, SILENT, STORAGE_FOUND, UNDONE,
};
use super::plugin_reasons::with_plugin_reasons;
use super::words::{Place, words};

with_change_reasons! {
    /// Reason of a condition. Closed, so that alerts can be written against it.
    pub enum Reason: Place {
        Place { kinds: "VolumeClaim", condition: READY, status: true } => {
            /// The volume is mounted on the node at status.targetPath and may be used.
            Published,
        }
        Place { kinds: "VolumeClaim, Snapshot", condition: READY, status: false } => {
            /// The namespace has no Volume of the name that the object gives. Create it, or delete the object and create one
            /// with the right name.
            VolumeNotFound,
            /// The Volume cannot be used yet. Its own Ready condition says why.
            VolumeNotReady,
            /// The Volume is being deleted and takes no new claims, and no snapshot is taken of it. Delete the object.
            VolumeDeleted,
        }
        Place { kinds: "VolumeClaim", condition: READY, status: false } => {
            /// spec.capabilities of the Volume does not list what the claim asks for, or lists it since an edit that does not
            /// count yet. Add it there, or delete the claim and create one with a listed use.
            UseNotListed,
            /// The node that the claim needs cannot take the volume now. The message says what is missing there.
            NodeNotUsable,
            /// No node can take the volume. The message says how many lack what: see `kubectl get plugininstances` and
            /// `kubectl get nodes`.
            NoNode,
            /// What the claim needs to know of the driver is not known. The message says what is missing and where to look.
            PluginNotReady,
            /// The claim's Pod does not use the volume, is on another node, or asks for it with other volumeAttributes. The
            /// message says what does not fit. Only an agent makes such a claim, for kubelet.
            PodNotEntitled,
            /// Another claim holds the volume; status.waitingFor names it. This claim is next when that one is gone.
            Held,
            /// An older claim waits for the same volume. Nothing is to be done.
            InLine,
            /// The volume is being prepared for another access mode, or for its driver's Controller service. Wait.
            ModeChanging,
            /// The volume is used without ControllerPublishVolume since before its driver had a Controller service. Delete
            /// the claims that use it.
            NotAttached,
            /// A node may have the volume mounted without an Attachment that says so, for example after etcd was restored.
            /// The message says how that mount is undone.
            Forgotten,
            /// As many calls of the driver are running on the node as may. Nothing is to be done, unless they hang.
            Queued,
            /// The volume is being attached to the node. The message repeats what the driver says if that fails.
            Attaching,
            /// NodeStageVolume is running, or an earlier use of the volume on the node is undone first.
            Staging,
            /// NodePublishVolume is running.
            Publishing,
            /// The mount is gone, by a reboot or by hand, and is made again. Whoever uses it has to wait.
            Remounting,
            /// The Attachment could not be used any more, so the node gave it back. Another one is granted.
            Yielded,
            /// NodeUnpublishVolume is running for the deleted claim.
            Unpublishing,
            /// NodeUnstageVolume is running for the deleted claim, or an earlier use of the volume on the node is undone
            /// before the volume is detached.
            Unstaging,
            /// The deleted claim is unmounted, and its volume is being detached from the node.
            Detaching,
            /// The node was declared lost, and the claim has ended with it. Delete the claim and create one for another node.
            NodeLost,
        }
        Place { kinds: "VolumeClaim, Volume, Snapshot", condition: READY, status: false } => {
            /// The Plugin does not allow the namespace what the object asks for. Have an administrator add the namespace to
            /// spec.allow of the Plugin, or do as the message says.
            NotAllowed,
        }
        Place { kinds: "Attachment", condition: READY, status: true } => {
            /// ControllerPublishVolume has succeeded.
            Attached,
        }
        Place { kinds: "VolumeClaim, Attachment", condition: READY, status: false } => {
            /// The volume is unmounted from the node, and is detached next. A claim that says so and that nobody has
            /// deleted was ended from outside: delete it and create another.
            NodeDetached,
        }
        Place { kinds: "Attachment", condition: READY, status: false } => {
            /// The volume is detached from the node, or was never attached.
            Detached,
            /// The node that made the controller calls is gone, and nobody else could call ControllerUnpublishVolume, so it
            /// was left out. Look in the storage whether the volume is detached.
            Abandoned,
        }
        Place { kinds: "VolumeClaim, Attachment, Volume, Snapshot", condition: READY, status: false } => {
            /// ControllerPublishVolume failed and is tried again. The message has the driver's words.
            ControllerPublishFailed,
            /// ControllerUnpublishVolume failed and is tried again; the volume is free for no other node before it succeeds.
            ControllerUnpublishFailed,
            /// NodeStageVolume failed and is tried again. The message has the driver's words.
            NodeStageFailed,
            /// NodeUnstageVolume failed and is tried again. The message has the driver's words.
            NodeUnstageFailed,
            /// NodePublishVolume failed and is tried again. The message has the driver's words.
            NodePublishFailed,
            /// NodeUnpublishVolume failed and is tried again. spec.forceDetach of the deleted claim has it unmounted where
            /// the driver cannot.
            NodeUnpublishFailed,
            /// CreateVolume failed and is tried again. The message has the driver's words.
            CreateVolumeFailed,
            /// DeleteVolume failed and is tried again. spec.deletionPolicy Retain gives the storage up.
            DeleteVolumeFailed,
            /// ValidateVolumeCapabilities failed and is tried again. The message has the driver's words.
            ValidateFailed,
            /// CreateSnapshot, or CreateVolumeGroupSnapshot, failed and is tried again. The message has the driver's words.
            CreateSnapshotFailed,
            /// DeleteSnapshot, or DeleteVolumeGroupSnapshot, failed and is tried again. spec.deletionPolicy Retain gives the snapshot up.
            DeleteSnapshotFailed,
            /// ListSnapshots failed and is tried again. The message has the driver's words.
            ListSnapshotsFailed,
            /// GetVolumeGroupSnapshot failed and is tried again. The message has the driver's words.
            GetVolumeGroupSnapshotFailed,
            /// Another call failed and is tried again. The message has the driver's words.
            CallFailed,
            /// No process on the node answers with the driver's name and serves what the call needs. Start the driver there.
            PluginNotRunning,
            /// The node has as many volumes of the driver as moor keeps account of. Delete claims there, or create this one
            /// for another node.
            TooManyVolumes,
            /// The driver knows two nodes by one node id, and the other one has the volume. Start the driver with an id of
            /// its own on each node.
            SameNodeID,
            /// A Secret that the call needs does not exist. Create it.
            SecretNotFound,
            /// A Secret that the call needs cannot be read. The message has the command that allows it, or says what is wrong
            /// with its name or content.
            SecretUnreadable,
            /// The call succeeded, and the API server does not take what the driver answered. Look at the driver.
            AnswerRefused,
            /// The volume is unmounted, or cannot be, and somebody on the node still uses it. End who the message names.
            StillInUse,
            /// Who still uses the volume on the node cannot be found out, so nobody else gets it. The message says why, and
            /// how it is given up all the same.
            UsersUnknown,
            /// The disk with the node's records takes no writes, so nothing new is mounted there. Free space, or repair it.
            /// PluginInstances of the node say it too.
            StateNotWritable,
            /// The call cannot be made from what the objects say. The message names what is wrong.
            BadArguments,
            /// The driver says that it has unmounted the volume, and it is still mounted. Look at the driver.
            StillMounted,
            /// The driver says that it has mounted the volume, and nothing is to be seen on the node. Its Pod needs a
            /// hostPath volume with mountPropagation Bidirectional.
            MountNotVisible,
            /// The claim is read-only, and its mount could not be made so.
            MountWritable,
            /// The mount flags of the claim could not be set on its mount.
            MountFlagsMissing,
            /// The claim is read-only, and the driver has published a device that takes writes. Create a claim without
            /// spec.readOnly if that is wanted.
            DeviceWritable,
            /// What covers the claim's path on the node could not be taken away, since it is in use.
            TargetInUse,
            /// A directory or a mount on the node could not be made, looked at or removed. The message names it.
            NodePathFailed,
            /// The deleted Volume does not hold its VolumeHandle closed, so the storage may be somebody's and is not deleted.
            /// spec.deletionPolicy Retain gives it up.
            HandleNotClosed,
            /// CreateVolume answered with a volume that has a VolumeHandle. Delete the Volume with spec.deletionPolicy
            /// Retain.
            HandleInUse,
            /// The driver confirms something else than the Volume says, or nothing at all and spec.validation of the Plugin
            /// is Strict. The message has its words.
            NotConfirmed,
        }
        Place { kinds: "Volume, Snapshot", condition: READY, status: true } => {
            /// Of a Volume: claims are granted. Of a Snapshot: volumes can be made of it.
            Ready,
        }
        Place { kinds: "Snapshot", condition: READY, status: false } => {
            /// The driver of the Volume takes no snapshots, or none of several volumes at one moment.
            CannotSnapshot,
            /// The Volumes of a group are not such that one call could take it. The message says why, and what to do.
            VolumesDiffer,
            /// The driver has no snapshot of the handle that spec.snapshotHandle gives. Delete the Snapshot, and create one with
            /// the right handle.
            SnapshotNotFound,
            /// The driver has the snapshot, and still works on it. Wait.
            NotReadyToUse,
            /// The snapshot's volume is not held for the Volume that it is of. The message says what can be done.
            SourceNotHeld,
            /// Another Snapshot stands for the same, and this one is to delete it. Delete the other one, or set
            /// spec.deletionPolicy to Retain.
            SnapshotShared,
        }
        Place { kinds: "Volume, Snapshot", condition: READY, status: false } => {
            /// The Plugin does not exist, or is being deleted. Create it.
            PluginNotFound,
            /// The agent that is to make the next call is not heard. The message says whose, and what ends that.
            AgentNotHeard,
            /// What is deleted waits for what uses it, or is being made of it. The message names that.
            InUse,
            /// CreateVolume or CreateSnapshot is called.
            Creating,
            /// What was asked for is deleted at the driver, or was never made, and the object goes.
            Deleted,
            /// spec.deletionPolicy Retain ends the calls, and what the driver has stays.
            Retained,
        }
        Place { kinds: "Volume", condition: READY, status: false } => {
            /// The volume cannot be made of what spec.source names, or not yet. The message says why.
            SourceNotUsable,
            /// The volume is made where its first claim is (spec.binding). Create one, or see why it has no node.
            WaitsForFirstClaim,
            /// The driver of the Plugin cannot create volumes. Register an existing one with spec.volumeHandle.
            CannotCreate,
            /// Another Volume has the same driver and handle. Delete one of the two.
            DuplicateHandle,
            /// The VolumeHandle was closed because the Volume is being deleted, and the Volume is not. See the message.
            HandleClosed,
            /// A PersistentVolume stands or may stand for the same storage. The message says what to do.
            HandleInPersistentVolume,
            /// The deleted Volume leaves its storage, which a PersistentVolume names and which is that one's from now on.
            StorageLeft,
            /// The driver has made the volume; its VolumeHandle comes next.
            Created,
            /// The driver confirms what is asked of it; the volume's VolumeHandle comes next.
            Validated,
            /// What CreateVolume made is of no use, for example too small, and is deleted again. The message says why.
            Unusable,
        }
        Place { kinds: "Volume, Snapshot, Plugin", condition: READY, status: false } => {
            /// No instance of the Plugin is there for what is to be called, or its driver is another one than before. A
            /// Plugin says where agents have looked for its driver and what they found. See also `kubectl get
            /// plugininstances`.
            NoInstance,
            /// An older Plugin has the same driver. Delete one of the two.
            DuplicateDriver,
        }
        Place { kinds: "Plugin", condition: READY, status: false } => {
            /// Nobody serves the Controller service that the driver has, or nobody on a node of spec.controllerNodes. Start it there.
            NoController,
        }
        Place { kinds: "Plugin, PluginInstance", condition: READY, status: true } => {
            /// The driver answers.
            Healthy,
        }
        Place { kinds: "Plugin, PluginInstance", condition: READY, status: false } => {
            /// The driver runs and does not answer as it should. The message has its words.
            Unhealthy,
        }
        Place { kinds: "PluginInstance", condition: READY, status: false } => {
            /// The driver has just started and does not say yet that it is ready.
            Starting,
            /// The driver's process has ended.
            Gone,
            /// The Plugin was deleted, and the object stays for what is still mounted. Create the Plugin again, or follow
            /// status.forgotten.
            NoPlugin,
            /// moor's agent on the node is shutting down. Another one takes over when it is started again.
            AgentShutdown,
        }
        Place { kinds: "VolumeClaim", condition: SILENT, status: true } => {
            /// Nothing is heard of moor's agent on the claim's node, so the claim keeps the volume. The message says what
            /// ends that if the machine is off.
            NoHeartbeat,
            /// spec.forceDetach cannot be followed. The message says what is missing.
            ForceDetachRefused,
            /// The node was declared lost, and the volume is freed without it.
            NodeDeclaredLost = "NodeLost",
        }
        Place { kinds: "VolumeClaim", condition: SILENT, status: false } => {
            /// The node is to be given up, by its Node or by force, and moor's agent there is alive and uses the volume. Stop
            /// the machine, or end that state of the Node.
            HeardThoughGone,
        }
        Place { kinds: "Volume", condition: DRIFTED, status: true } => {
            /// The driver does not list the volume where moor has attached it: its data may be out of reach.
            AttachmentMissing,
            /// The driver lists the volume as attached where moor has not attached it. The message has the steps that detach it.
            AttachmentUnexpected,
        }
        Place { kinds: "Volume", condition: DRIFTED, status: false } => {
            /// The driver lists the volume where moor has attached it.
            InStep,
        }
        Place { kinds: "Volume, Snapshot", condition: STORAGE_FOUND, status: true } => {
            /// The driver lists the storage again, or is not known to lack it any more.
            StorageListed,
        }
        Place { kinds: "Volume, Snapshot", condition: STORAGE_FOUND, status: false } => {
            /// The driver does not list the storage any more, which it has listed before: somebody may have deleted it there. moor does
            /// nothing about it.
            StorageMissing,
        }
        Place { kinds: "Volume", condition: HEALTHY, status: true } => {
            /// Nothing is wrong with the volume as far as the agents of its nodes see and its driver says.
            VolumeConditionNormal,
        }
        Place { kinds: "Volume", condition: HEALTHY, status: false } => {
            /// Something is wrong with the volume. status.health says what, where, since when and in whose words. moor does
            /// nothing about it.
            VolumeConditionAbnormal,
        }
        Place { kinds: "Volume", condition: PERSISTENT_VOLUME, status: true } => {
            /// The volume's PersistentVolume is there.
            PersistentVolumeMade,
        }
        Place { kinds: "Volume", condition: PERSISTENT_VOLUME, status: false } => {
            /// The volume's PersistentVolume was removed by force; the storage and all that uses it stay. Create it again,
            /// or delete the Volume, with spec.deletionPolicy Delete if the storage is to go too.
            PersistentVolumeGone,
        }
        Place { kinds: "Volume", condition: EXPORTED, status: true } => {
            /// The PersistentVolumeClaim that spec.persistentVolumeClaim names is there, with its PersistentVolume. Pods use
            /// the volume by it.
            Exported,
        }
        Place { kinds: "Volume", condition: EXPORTED, status: false } => {
            /// The PersistentVolumeClaim is not made yet, or is made anew. The message says what it waits for.
            ExportWaits,
            /// A PersistentVolumeClaim or a PersistentVolume of the name was made for somebody else, and is not touched.
            /// Delete it, or name another one in spec.persistentVolumeClaim.
            ExportNameTaken,
            /// Pods cannot use the Volume as it is, or the API server does not take what is to be made, as with a quota.
            /// The message says why.
            CannotExport,
            /// The PersistentVolumeClaim and its PersistentVolume are to go. The message names the Pods that they wait for:
            /// end those.
            ExportEnds,
        }
        Place { kinds: "Volume", condition: SCHEDULABLE, status: true } => {
            /// The volume's Plugin has healthy instances for what a claim needs.
            Schedulable,
        }
        Place { kinds: "Volume", condition: SCHEDULABLE, status: false } => {
            /// The volume's Plugin has no healthy controller or node instance, for 30 s or longer: of many volumes 50 say so in a
            /// second. See `kubectl get plugins`.
            NoHealthyInstance,
            /// The Plugin that the Volume names does not exist, or is being deleted and takes no new volume. Create it.
            PluginMissing = "PluginNotFound",
        }
        Place { kinds: "Volume", condition: CONFIRMED, status: true } => {
            /// The driver has confirmed what the Volume says of its storage, but for what the message names.
            Confirmed,
        }
        Place { kinds: "Volume", condition: CONFIRMED, status: false } => {
            /// The driver has not confirmed what the Volume says of its storage, which is used all the same. If it cannot be
            /// attached or mounted, look whether handle and capabilities are right.
            Unconfirmed,
        }
        Place { kinds: "Volume", condition: APPLIED, status: true } => {
            /// Claims get the volume as spec.capabilities and spec.mountOptions say since they were edited.
            Applied,
        }
        Place { kinds: "Volume", condition: APPLIED, status: false } => {
            /// spec.capabilities or spec.mountOptions was edited, and the driver is asked whether the volume can be used so.
            /// Wait; claims get it as before.
            EditPending,
            /// The driver does not confirm that the volume can be used as spec.capabilities and spec.mountOptions say since they
            /// were edited, or could not be asked. Claims get it as before. Set them back, or do as the message says.
            EditNotConfirmed,
            /// The Plugin does not allow the namespace to choose mount flags (spec.allow.parameterise). The volume is staged as
            /// before. Set them back, or have an administrator add the namespace.
            EditNotAllowed,
            /// A capability was taken out of spec.capabilities, and claims that the message names still use the volume so. They
            /// keep it until they are deleted.
            StillUsed,
            /// The volume is staged on a node with other mount flags than spec.mountOptions says now. They count there when all
            /// claims of the node have been deleted.
            StagedBefore,
        }
    }
}
