//! The invariants.

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Harm {
    AttachedTwice,
    AttachedUnderLeftovers,
    PublishedOnTwoNodes,
    SecondTarget,
    TwoWriters,
    DetachedUnderMount,
    DetachedUnderSibling,
    StagedUnattached,
    StagedTwice,
    UnstagedUnderTarget,
    PublishedUnready,
    GrownUnready,
    UnmountedWhileReady,
    ClaimGoneWithTarget,
    ClaimGoneStaged,
    FreedInUse,
    LostWhileHeard,
    StateWentBack,
    SwitchedWhileAttached,
    ReadInCircles,
    HandleGoneInUse,
    ServedUnmounted,
    LeftMounted,
}

impl Harm {
    /// The invariant that it breaks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttachedTwice => "never attached on two nodes in a single-node mode",
            Self::AttachedUnderLeftovers => "never attached again under what a lost Attachment left mounted",
            Self::PublishedOnTwoNodes => "never mounted on two nodes in a single-node mode",
            Self::SecondTarget => "never a second target in an exclusive mode",
            Self::TwoWriters => "never two writers in MultiNodeSingleWriter",
            Self::DetachedUnderMount => "never detached from a node that has it staged or mounted",
            Self::DetachedUnderSibling => "never detached under another Attachment of the node",
            Self::StagedUnattached => "never staged while not attached",
            Self::StagedTwice => "never staged at two paths of a node",
            Self::UnstagedUnderTarget => "never unstaged under a target",
            Self::PublishedUnready => "never mounted while not attached and staged",
            Self::GrownUnready => "never made larger on a node while not attached and mounted there",
            Self::UnmountedWhileReady => "never unmounted under a claim that is Ready and wanted",
            Self::ClaimGoneWithTarget => "a claim is gone only when its target is",
            Self::ClaimGoneStaged => "the last claim is gone only when its volume is unstaged",
            Self::FreedInUse => "an Attachment is gone only when nothing of it is left",
            Self::LostWhileHeard => "never declared lost while its agent is heard",
            Self::StateWentBack => "an Attachment's state never goes back",
            Self::SwitchedWhileAttached => "a mode switch ends only when nothing older is attached",
            Self::HandleGoneInUse => "a VolumeHandle is gone or another's only when nothing is attached",
            Self::ServedUnmounted => {
                "kubelet is answered that a volume is published only while it is mounted"
            }
            Self::LeftMounted => {
                "kubelet is answered that a volume is unpublished only when it is not mounted"
            }
            Self::ReadInCircles => "no live read repeats itself for ever",
        }
    }
}
