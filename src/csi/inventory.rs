//! A question to the Controller service: what a volume allows.

use super::channel::Plugin;
use super::error::CallError;
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::volume_capability::AccessType;
use super::redact::Scrub;
use super::rpc::Rpc;
use super::sizes;

/// The answer of ValidateVolumeCapabilities, after comparing it with the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validation {
    /// The volume allows all that was asked.
    Confirmed {
        /// Fields that were asked and that the answer does not repeat: an older driver did not look at them.
        unchecked: Vec<&'static str>,
    },
    /// The driver does not confirm. CSI has no other way to refuse, and drivers are known that never confirm.
    Unconfirmed {
        /// The driver's words, or that it has none.
        message: String,
    },
    /// The driver confirms something else than was asked.
    Refused {
        /// Which field it confirmed differently.
        message: String,
    },
}

impl Plugin {
    /// ValidateVolumeCapabilities. Needs no capability but the controller service.
    pub async fn validate_volume_capabilities(
        &self,
        request: wire::ValidateVolumeCapabilitiesRequest,
    ) -> Result<Validation, CallError> {
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::capabilities(&request.volume_capabilities))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::ValidateVolumeCapabilities, &error))?;
        let scrub = Scrub::of(&request.secrets, &request.volume_capabilities);
        let answer = self.call(&[&request.volume_id], &scrub, &request).await?;
        Ok(compare(&request, &answer, &scrub))
    }
}

/// A driver confirms by repeating what it checked, and one that does not know a field leaves it out (CSI
/// ValidateVolumeCapabilities). Mode and kind of access have to be repeated; mount options and maps may be absent.
fn compare(
    asked: &wire::ValidateVolumeCapabilitiesRequest,
    answer: &wire::ValidateVolumeCapabilitiesResponse,
    scrub: &Scrub,
) -> Validation {
    let Some(confirmed) = &answer.confirmed else {
        let message = scrub.clean(&answer.message);
        let silent = || "the driver does not confirm the capabilities and does not say why".to_owned();
        return Validation::Unconfirmed { message: if message.is_empty() { silent() } else { message } };
    };
    let differs =
        |field: &str| Validation::Refused { message: format!("the driver confirmed another {field}") };
    let mut unchecked = Vec::new();
    for wanted in &asked.volume_capabilities {
        let mut all = confirmed.volume_capabilities.iter();
        let Some(left_out) = all.find_map(|found| left_out(wanted, found)) else {
            return differs("volume_capability than asked");
        };
        unchecked.extend(left_out);
    }
    let context = &confirmed.volume_context;
    if *context != asked.volume_context {
        if !context.is_empty() {
            return differs("volume_context");
        }
        unchecked.push("volume_context");
    }
    // None are asked.
    if !confirmed.parameters.is_empty() {
        return differs("parameters");
    }
    Validation::Confirmed { unchecked }
}

/// The mount options that a confirmed capability leaves out; nothing if it is another one than was wanted. Drivers are
/// known to repeat the mode and the kind of access and to leave the rest out.
fn left_out(wanted: &wire::VolumeCapability, found: &wire::VolumeCapability) -> Option<Vec<&'static str>> {
    let mode = |c: &wire::VolumeCapability| c.access_mode.map(|m| m.mode);
    if mode(wanted) != mode(found) {
        return None;
    }
    match (&wanted.access_type, &found.access_type) {
        (Some(AccessType::Mount(wanted)), Some(AccessType::Mount(found))) => {
            let fields = [
                ("fs_type", wanted.fs_type == found.fs_type, found.fs_type.is_empty()),
                ("mount_flags", wanted.mount_flags == found.mount_flags, found.mount_flags.is_empty()),
                (
                    "volume_mount_group",
                    wanted.volume_mount_group == found.volume_mount_group,
                    found.volume_mount_group.is_empty(),
                ),
            ];
            let other = fields.iter().any(|(_, same, absent)| !same && !absent);
            (!other).then(|| fields.iter().filter(|(_, same, _)| !same).map(|(field, ..)| *field).collect())
        }
        (wanted, found) => (wanted == found).then(Vec::new),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::capability::{SingleNode, to_proto};
    use super::*;
    use crate::api::capability::{AccessMode, AttachmentMode};

    fn asked() -> wire::ValidateVolumeCapabilitiesRequest {
        let flags = ["password=hunter2".to_owned()];
        let mode = AccessMode::MultiNodeMultiWriter;
        let capability = to_proto(mode, AttachmentMode::FileSystem, None, &flags, SingleNode::WriterOnly);
        wire::ValidateVolumeCapabilitiesRequest {
            volume_id: "vol".to_owned(),
            volume_context: BTreeMap::from([("pool".to_owned(), "a".to_owned())]),
            volume_capabilities: vec![capability],
            ..Default::default()
        }
    }

    fn answer(confirmed: Option<wire::validate_volume_capabilities_response::Confirmed>) -> Validation {
        let asked = asked();
        let scrub = Scrub::of(&asked.secrets, &asked.volume_capabilities);
        let message = "hunter2 is no option".to_owned();
        compare(&asked, &wire::ValidateVolumeCapabilitiesResponse { confirmed, message }, &scrub)
    }

    fn confirmed() -> wire::validate_volume_capabilities_response::Confirmed {
        wire::validate_volume_capabilities_response::Confirmed {
            volume_capabilities: asked().volume_capabilities,
            volume_context: asked().volume_context,
            ..Default::default()
        }
    }

    #[test]
    fn an_answer_that_repeats_the_question_confirms() {
        assert_eq!(answer(Some(confirmed())), Validation::Confirmed { unchecked: vec![] });
    }

    #[test]
    fn an_answer_without_confirmation_confirms_nothing_and_its_message_is_clean() {
        let message = "<hidden> is no option".to_owned();
        assert_eq!(answer(None), Validation::Unconfirmed { message });
    }

    #[test]
    fn an_older_driver_leaves_the_context_unchecked() {
        let mut older = confirmed();
        older.volume_context.clear();
        assert_eq!(answer(Some(older)), Validation::Confirmed { unchecked: vec!["volume_context"] });
    }

    /// T8.
    #[test]
    fn a_driver_may_leave_mount_options_out_but_not_change_them() {
        let with = |mount: Option<AccessType>, mode: i32| {
            let mut part = confirmed();
            part.volume_capabilities[0].access_type = mount;
            part.volume_capabilities[0].access_mode = Some(wire::volume_capability::AccessMode { mode });
            answer(Some(part))
        };
        let mount = |flags: &[&str]| {
            let mount_flags = flags.iter().map(|&f| f.to_owned()).collect();
            Some(AccessType::Mount(wire::volume_capability::MountVolume {
                mount_flags,
                ..Default::default()
            }))
        };
        let mode = confirmed().volume_capabilities[0].access_mode.unwrap().mode;
        assert_eq!(with(mount(&[]), mode), Validation::Confirmed { unchecked: vec!["mount_flags"] });
        assert!(matches!(with(mount(&["other"]), mode), Validation::Refused { .. }));
        assert!(matches!(with(mount(&[]), mode + 1), Validation::Refused { .. }));
        assert!(matches!(with(None, mode), Validation::Refused { .. }));
        let block = AccessType::Block(wire::volume_capability::BlockVolume {});
        assert!(matches!(with(Some(block), mode), Validation::Refused { .. }));
    }

    #[test]
    fn another_capability_or_context_than_asked_is_no_confirmation() {
        let mut other = confirmed();
        other.volume_capabilities.clear();
        assert!(matches!(answer(Some(other)), Validation::Refused { .. }));
        let mut other = confirmed();
        other.volume_context.insert("pool".to_owned(), "b".to_owned());
        assert!(matches!(answer(Some(other)), Validation::Refused { .. }));
    }
}
