//! The reasons of conditions that only Plugins and PluginInstances have. [`Reason`](super::reason::Reason) has them with all others.

/// Declares an enum of words that has these beside its own.
macro_rules! with_plugin_reasons {
    ($(#[$attribute:meta])* pub enum $name:ident: $group:ty { $($own:tt)* }) => { words! {
    $(#[$attribute])*
    pub enum $name: $group {
        $($own)*
        Place { kinds: "Plugin", condition: IN_ORDER, status: true } => {
            /// Every PluginInstance counts for what it says.
            InOrder,
        }
        Place { kinds: "Plugin", condition: IN_ORDER, status: false } => {
            /// A PluginInstance is of another driver, or not named as its agent names it, and counts nowhere. Delete it
            /// unless it is of an earlier Plugin.
            NotCounted,
            /// A node serves the Controller service and is not selected by spec.controllerNodes, so it gets no new volumes.
            NotSelected,
            /// Nodes share a node id at the driver, and get no new claims. Start the driver with an id of its own on each.
            SharedNodeID = "SameNodeID",
            /// A node reports mounts that no Attachment accounts for. See status.forgotten of the PluginInstance.
            ForgottenMounts = "Forgotten",
        }
        Place { kinds: "Plugin", condition: DEPLOYED, status: true } => {
            /// As many Pods as wanted are available, and all of them are made of the present template.
            Deployed,
        }
        Place { kinds: "Plugin", condition: DEPLOYED, status: false } => {
            /// Pods are started, or made anew of another template. If that does not end, look at those of the message.
            RollingOut,
            /// No Pods can be made of spec.controller or spec.node as it is. The message names the field, or has the API
            /// server's words. Pods that run already go on.
            TemplateRefused,
            /// The Plugin declares Pods no more that something still needs; the message names it. They go when that is deleted.
            PluginInUse = "InUse",
        }
        Place { kinds: "Plugin", condition: REMOVABLE, status: false } => {
            /// The deleted Plugin waits for what needs its driver; the message names it. Delete that, and the Plugin goes.
            DeletionWaits = "InUse",
        }
        Place { kinds: "Plugin", condition: ORPHANS, status: true } => {
            /// The driver lists storage that moor has had made and that no object stands for. `kubectl moor orphans` shows it, with what
            /// to do. moor deletes nothing of it.
            OrphansFound,
        }
        Place { kinds: "Plugin", condition: ORPHANS, status: false } => {
            /// An object stands for everything that moor has had made and the driver lists.
            NoOrphans,
        }
        Place { kinds: "Plugin", condition: PODS, status: true } => {
            /// The CSIDriver object is as kubelets need it, and no kubelet has refused moor.
            PodsServed = "Served",
            /// As Served, and another provisioner of the driver runs: it has made a PersistentVolume that moor was to make.
            /// End the driver's external-provisioner.
            OtherProvisioner,
        }
        Place { kinds: "Plugin", condition: PODS, status: false } => {
            /// spec.kubernetes.enabled is false, or spec.roles has no Node service: Pods' volumes are not moor's.
            PodsNotServed = "NotServed",
            /// The same, and Pods still have volumes of the driver, for which it is served on; the message names them. Or
            /// moor is being uninstalled.
            PodsStillServed = "StillServed",
            /// An older Plugin has the driver, or the name by which kubelets would know it. Delete one of the two, or change
            /// spec.kubernetes.driverName.
            PodsServedByOther = "DuplicateDriver",
            /// Another installation of the driver has made the CSIDriver object of its name, or the API server does not
            /// take moor's. Pods get none of moor's volumes under this name. The message has the commands that end it.
            CSIDriverConflict,
            /// A kubelet has another socket under the driver's name. End the driver's registrar on the nodes that the message
            /// names.
            KubeletNameTaken,
            /// A kubelet has not registered the driver, for the reason that the message has. Its Pods wait, and it looks
            /// again within half a minute.
            KubeletRefused,
        }
        Place { kinds: "PluginInstance", condition: UNDONE, status: true } => {
            /// Nothing waits to be undone of which no claim tells.
            NothingWaits,
        }
        Place { kinds: "PluginInstance", condition: UNDONE, status: false } => {
            /// Something is still to be undone on the node, and no claim is left to say so. The message says what and why.
            UndoWaits,
        }
    }
    } };
}
pub(super) use with_plugin_reasons;
