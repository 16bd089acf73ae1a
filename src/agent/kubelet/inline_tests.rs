use kube::ResourceExt as _;

use super::{mode_of, named};
use crate::api::capability::{MountOptions, VolumeUse};
use crate::api::{AccessMode, AttachmentMode, Volume};
use crate::csi::proto::csi::v1::volume_capability::{AccessType, MountVolume};
use crate::csi::proto::csi::v1::{NodePublishVolumeRequest, VolumeCapability};

fn request(attributes: &[(&str, &str)]) -> NodePublishVolumeRequest {
    let all = attributes.iter().chain(&[("csi.storage.k8s.io/ephemeral", "true")]);
    NodePublishVolumeRequest {
        volume_context: all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..NodePublishVolumeRequest::default()
    }
}

fn with_fs_type(fs_type: &str) -> NodePublishVolumeRequest {
    let mount = MountVolume { fs_type: fs_type.to_owned(), ..MountVolume::default() };
    let capability = VolumeCapability { access_type: Some(AccessType::Mount(mount)), access_mode: None };
    NodePublishVolumeRequest { volume_capability: Some(capability), ..NodePublishVolumeRequest::default() }
}

fn volume(modes: &[AccessMode], attachment_mode: AttachmentMode) -> Volume {
    let mut made = Volume::default();
    made.metadata.name = Some("data".to_owned());
    made.spec.capabilities =
        modes.iter().map(|access_mode| VolumeUse { access_mode: *access_mode, attachment_mode }).collect();
    made
}

#[test]
fn a_pod_says_which_volume_and_nothing_else() {
    assert_eq!(named(&request(&[("volume", "data")])), Ok("data"));
    for (attributes, part) in [
        (&[][..], "volumeAttributes.volume is missing"),
        (&[("volume", "")], "volumeAttributes.volume is missing"),
        (&[("volume", "data"), ("capacity", "1Gi"), ("plugin", "p")], "remove capacity, plugin"),
    ] {
        let refused = named(&request(attributes)).unwrap_err();
        assert!(refused.contains(part), "{refused}");
    }
    let mut secret = request(&[("volume", "data")]);
    secret.secrets.insert("key".to_owned(), "hidden".to_owned());
    let refused = named(&secret).unwrap_err();
    assert!(refused.contains("nodePublishSecretRef") && !refused.contains("hidden"), "{refused}");
}

#[test]
fn the_mode_is_one_that_the_volume_has() {
    use AccessMode::{MultiNodeReader, MultiNodeSingleWriter, SingleNodeWriter};
    let of = |modes: &[AccessMode], readonly| {
        let request = NodePublishVolumeRequest { readonly, ..NodePublishVolumeRequest::default() };
        mode_of(&volume(modes, AttachmentMode::FileSystem), &request)
    };
    assert_eq!(of(&[SingleNodeWriter], false), Ok(SingleNodeWriter));
    assert_eq!(of(&[SingleNodeWriter], true), Ok(SingleNodeWriter));
    assert_eq!(of(&[MultiNodeReader, MultiNodeSingleWriter], false), Ok(MultiNodeSingleWriter));
    assert_eq!(of(&[MultiNodeSingleWriter, MultiNodeReader], true), Ok(MultiNodeReader));
    assert!(of(&[MultiNodeReader], false).unwrap_err().contains("readOnly: true"));
    let mut read_only = volume(&[SingleNodeWriter], AttachmentMode::FileSystem);
    read_only.spec.read_only = true;
    assert!(mode_of(&read_only, &request(&[])).unwrap_err().contains("readOnly: true"));
}

#[test]
fn what_a_volume_is_not_it_is_not_for_a_pod() {
    let block = volume(&[AccessMode::SingleNodeWriter], AttachmentMode::BlockDevice);
    let refused = mode_of(&block, &request(&[])).unwrap_err();
    assert!(refused.contains("no FileSystem") && refused.contains(&block.name_any()), "{refused}");
    let mut xfs = volume(&[AccessMode::SingleNodeWriter], AttachmentMode::FileSystem);
    assert!(mode_of(&xfs, &with_fs_type("ext4")).is_ok());
    xfs.spec.mount_options =
        Some(Box::new(MountOptions { fs_type: Some("xfs".to_owned()), ..MountOptions::default() }));
    assert!(mode_of(&xfs, &with_fs_type("xfs")).is_ok() && mode_of(&xfs, &with_fs_type("")).is_ok());
    let refused = mode_of(&xfs, &with_fs_type("ext4")).unwrap_err();
    assert!(refused.contains("fsType is ext4, and Volume data is xfs"), "{refused}");
}
