//! Nothing that a driver must keep secret can be printed, whichever message it is in.

use std::collections::BTreeMap;

use super::capability::{SingleNode, to_proto};
use super::proto::csi::v1 as wire;
use crate::api::capability::{AccessMode, AttachmentMode};

/// The `Debug` implementations that `build.rs` wrote.
const REDACTED: &str = include_str!(concat!(env!("OUT_DIR"), "/redacted.rs"));

/// One of each message that has something to hide, filled so that every hidden value holds the marker.
macro_rules! printed {
    ($($message:ident { $($maps:ident),* $(; $capability:ident)? }),+ $(,)?) => {
        [$({
            let mut message = wire::$message::default();
            $(message.$maps.insert("marker-key".to_owned(), "marker-value".to_owned());)*
            $(message.$capability.extend([marked_capability()]);)?
            (stringify!($message), format!("{message:?}") + &format!("{message:#?}"))
        }),+]
    };
}

fn marked_capability() -> wire::VolumeCapability {
    let flags = ["marker-flag".to_owned()];
    to_proto(AccessMode::SingleNodeWriter, AttachmentMode::FileSystem, None, &flags, SingleNode::WriterOnly)
}

#[test]
fn no_request_or_answer_prints_a_secret_a_context_a_parameter_or_a_mount_flag() {
    let mut node = wire::NodePublishVolumeRequest {
        volume_id: "vol-1".to_owned(),
        volume_capability: Some(marked_capability()),
        ..Default::default()
    };
    node.secrets.insert("marker-key".to_owned(), "marker-value".to_owned());
    let publish = format!("{node:?}");
    assert!(publish.contains("vol-1") && publish.contains("secrets: <1 hidden>"), "{publish}");
    assert!(publish.contains("mount_flags: <1 hidden>"), "{publish}");
    assert!(!publish.contains("marker"), "{publish}");

    let printed = printed![
        CreateVolumeRequest { parameters, secrets, mutable_parameters; volume_capabilities },
        DeleteVolumeRequest { secrets },
        ControllerPublishVolumeRequest { secrets, volume_context },
        ControllerPublishVolumeResponse { publish_context },
        ControllerUnpublishVolumeRequest { secrets },
        ValidateVolumeCapabilitiesRequest {
            volume_context, parameters, secrets, mutable_parameters; volume_capabilities
        },
        GetCapacityRequest { parameters; volume_capabilities },
        Volume { volume_context },
        CreateSnapshotRequest { secrets, parameters },
        DeleteSnapshotRequest { secrets },
        ListSnapshotsRequest { secrets },
        GetSnapshotRequest { secrets },
        ControllerExpandVolumeRequest { secrets },
        ControllerModifyVolumeRequest { secrets, mutable_parameters },
        NodeStageVolumeRequest { publish_context, secrets, volume_context },
        NodePublishVolumeRequest { publish_context, secrets, volume_context },
        NodeExpandVolumeRequest { secrets },
        CreateVolumeGroupSnapshotRequest { secrets, parameters },
        DeleteVolumeGroupSnapshotRequest { secrets },
        GetVolumeGroupSnapshotRequest { secrets },
        GetMetadataAllocatedRequest { secrets },
        GetMetadataDeltaRequest { secrets },
    ];
    for (message, text) in &printed {
        assert!(text.contains("hidden") && !text.contains("marker"), "{message}: {text}");
    }

    let mut confirmed = wire::validate_volume_capabilities_response::Confirmed::default();
    confirmed.volume_context.insert("marker-key".to_owned(), "marker-value".to_owned());
    assert!(!format!("{confirmed:?}").contains("marker"));

    // Those above, this one, and MountVolume: a message that a newer protocol adds has to be looked at here.
    assert_eq!(REDACTED.matches("impl ::core::fmt::Debug").count(), printed.len() + 2);
}

#[test]
fn no_arguments_of_ours_print_a_secret_a_context_or_a_mount_flag() {
    let marked = || BTreeMap::from([("marker-key".to_owned(), "marker-value".to_owned())]);
    let stage = wire::NodeStageVolumeRequest {
        publish_context: marked(),
        volume_capability: Some(marked_capability()),
        secrets: marked().into(),
        volume_context: marked(),
        ..Default::default()
    };
    let text = format!("{stage:?}");
    assert!(text.contains("hidden") && !text.contains("marker"), "{text}");
}
