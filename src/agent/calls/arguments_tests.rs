use super::*;
use crate::api::attachment::{AttachmentSpec, AttachmentStatus, Fixed};
use crate::api::capability::{MountOptions, VolumeUse};
use crate::api::claim::{ClaimMountOptions, VolumeClaimSpec};
use crate::api::volume::{Segments, TopologyRequest, VolumeAssignment, VolumeSpec};
use crate::csi::proto::csi::v1::volume_capability::{AccessType, access_mode::Mode};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

fn map(key: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), "v".to_owned())])
}

fn attachment() -> Attachment {
    let fixed = Fixed {
        node_id: "id-1".into(),
        read_only: true,
        mount_options: MountOptions { fs_type: Some("xfs".into()), mount_flags: vec!["noatime".into()] }
            .into(),
        volume_context: map("volume"),
        attach: true,
        stage: true,
        single_node_multi_writer: true,
        ..Fixed::default()
    };
    let spec = AttachmentSpec { volume_handle: "vol".into(), fixed, ..AttachmentSpec::default() };
    let status = AttachmentStatus { publish_context: map("publish"), ..AttachmentStatus::default() };
    Attachment { status: Some(status), ..Attachment::new("a", spec) }
}

fn flags(capability: Option<&wire::VolumeCapability>) -> Vec<String> {
    match &capability.unwrap().access_type {
        Some(AccessType::Mount(mount)) => mount.mount_flags.clone(),
        _ => Vec::new(),
    }
}

#[test]
fn attaching_and_staging_say_what_the_attachment_fixed() {
    let attachment = attachment();
    let publish = controller_publish(&attachment, Secrets::none());
    let stage = node_stage(&attachment, &HostPath::recorded("/s"), Secrets::none());
    assert_eq!(
        (publish.volume_id.as_str(), publish.node_id.as_str(), publish.readonly),
        ("vol", "id-1", true)
    );
    assert_eq!(publish.volume_capability, stage.volume_capability);
    assert_eq!(flags(stage.volume_capability.as_ref()), ["noatime"]);
    let mode = stage.volume_capability.as_ref().unwrap().access_mode.unwrap().mode();
    assert_eq!(mode, Mode::SingleNodeMultiWriter);
    assert_eq!(stage.publish_context, map("publish"));
    assert_eq!(stage.volume_context, map("volume"));
    assert_eq!(stage.staging_target_path, "/s");
    assert_eq!(stage, node_stage(&attachment, &HostPath::recorded("/s"), Secrets::none()));
}

/// A volume is staged for the Pod that came first, and published for each with its own group.
#[test]
fn the_driver_gives_the_volume_to_the_group_of_a_pod() {
    let group = |capability: Option<&wire::VolumeCapability>| match &capability.unwrap().access_type {
        Some(AccessType::Mount(mount)) => mount.volume_mount_group.clone(),
        _ => panic!("no file system"),
    };
    let (mut attachment, path) = (attachment(), HostPath::recorded("/p"));
    let none = Secrets::none;
    assert_eq!(group(node_stage(&attachment, &path, none()).volume_capability.as_ref()), "");
    attachment.spec.fixed.volume_mount_group = Some("2000".into());
    assert_eq!(group(node_stage(&attachment, &path, none()).volume_capability.as_ref()), "2000");
    let published = |claim: &VolumeClaim| {
        group(node_publish(&attachment, claim, &path, &path, none()).request.volume_capability.as_ref())
    };
    let mut of_pod = claim();
    for own in [Some("3000"), None] {
        let volume_mount_group = own.map(Into::into);
        of_pod.spec.pod = Some(crate::api::claim::PodUse { volume_mount_group, ..Default::default() }.into());
        assert_eq!(published(&of_pod), own.unwrap_or_default());
    }
    assert_eq!(published(&claim()), "2000", "a user's claim has none of its own");
}

fn record() -> Record {
    let mut stored = crate::agent::records::store::tests::stored("a");
    stored.record.volume_handle = "vol".into();
    stored.record
}

fn claim() -> VolumeClaim {
    VolumeClaim::new("c", VolumeClaimSpec::default())
}

/// The names that the driver gave, in every call; those of our objects in none (trap T1, T2, L2).
#[test]
fn every_call_names_the_volume_and_the_node_as_the_driver_does() {
    let (attachment, record, path) = (attachment(), record(), HostPath::recorded("/p"));
    let none = Secrets::none;
    let attach = controller_publish(&attachment, none());
    let detach = controller_unpublish(&attachment, none());
    assert_eq!((attach.volume_id.as_str(), attach.node_id.as_str()), ("vol", "id-1"));
    assert_eq!((detach.request.volume_id.as_str(), detach.request.node_id.as_str()), ("vol", "id-1"));
    assert_eq!(node_stage(&attachment, &path, none()).volume_id, "vol");
    assert_eq!(node_publish(&attachment, &claim(), &path, &path, none()).request.volume_id, "vol");
    assert_eq!(node_unpublish(&record, &path, vec![]).request.volume_id, "vol");
    assert_eq!(node_unstage(&record, vec![]).request.volume_id, "vol");
}

/// T11.
#[test]
fn every_call_carries_the_contexts_of_the_volume() {
    let (attachment, path) = (attachment(), HostPath::recorded("/p"));
    let attach = controller_publish(&attachment, Secrets::none());
    let stage = node_stage(&attachment, &path, Secrets::none());
    let publish = node_publish(&attachment, &claim(), &path, &path, Secrets::none()).request;
    assert_eq!(attach.volume_context, map("volume"));
    assert_eq!((stage.volume_context, stage.publish_context), (map("volume"), map("publish")));
    assert_eq!((publish.volume_context, publish.publish_context), (map("volume"), map("publish")));
    let mut volume = volume();
    volume.spec.volume_handle = Some("registered".into());
    volume.spec.volume_context = map("registered");
    let asked = validate(&volume, &GrantedUse::of(&volume), Secrets::none(), SingleNode::WriterOnly).unwrap();
    assert_eq!(asked.volume_context, map("registered"));
}

/// What is computed today may be another path than the one at which it was mounted (trap T21, T62).
#[test]
fn undo_goes_to_the_recorded_paths() {
    let record = record();
    let target = HostPath::recorded(&record.targets[&"claim-uid".into()].path);
    assert_eq!(node_unpublish(&record, &target, vec![]).request.target_path, "/k/claims/c/target");
    assert_eq!(node_unstage(&record, vec![]).request.staging_target_path, "/k/staging/a");
}

/// T26, L12.
#[test]
fn every_call_that_takes_secrets_gets_them() {
    let (attachment, path) = (attachment(), HostPath::recorded("/p"));
    let given = || Secrets::from(map("secret"));
    let mut volume = volume();
    volume.spec.volume_handle = Some("registered".into());
    assert_eq!(controller_publish(&attachment, given()).secrets, map("secret"));
    assert_eq!(controller_unpublish(&attachment, given()).request.secrets, map("secret"));
    assert_eq!(node_stage(&attachment, &path, given()).secrets, map("secret"));
    assert_eq!(node_publish(&attachment, &claim(), &path, &path, given()).request.secrets, map("secret"));
    assert_eq!(create_volume(&volume, given(), ALL).unwrap().secrets, map("secret"));
    assert_eq!(
        validate(&volume, &GrantedUse::of(&volume), given(), SingleNode::WriterOnly).unwrap().secrets,
        map("secret")
    );
    assert_eq!(delete_volume(VolumeCall::Delete, &volume, given()).unwrap().request.secrets, map("secret"));
}

/// A driver may repeat what it was told before.
#[test]
fn every_call_hides_the_flags_of_the_one_that_it_goes_on_from() {
    let (mut attachment, mut claim, mut volume) = (attachment(), claim(), volume());
    let options = |flag: &str| MountOptions { fs_type: None, mount_flags: vec![flag.to_owned()] };
    attachment.spec.fixed.mount_options = options("password=one").into();
    claim.spec.mount_options = Some(ClaimMountOptions { mount_flags: vec!["password=two".to_owned()] });
    volume.spec.volume_handle = Some("registered".into());
    volume.spec.mount_options = Some(Box::new(options("password=three")));
    assert_eq!(controller_unpublish(&attachment, Secrets::none()).earlier_flags, ["password=one"]);
    let path = HostPath::recorded("/p");
    let publish = node_publish(&attachment, &claim, &path, &path, Secrets::none());
    assert_eq!(publish.earlier_flags, ["password=one"], "the driver knows how it was staged");
    assert_eq!(flags_to_hide(Some(&attachment), Some(&claim)), ["password=one", "password=two"]);
    let delete = delete_volume(VolumeCall::Delete, &volume, Secrets::none()).unwrap();
    assert_eq!(delete.earlier_flags, ["password=three", "password=three"]);
    let granted = GrantedUse { mount_flags: vec!["password=four".into()], ..GrantedUse::default() };
    volume.spec.assignment = Some(VolumeAssignment { granted: Some(granted), ..VolumeAssignment::default() });
    let delete = delete_volume(VolumeCall::Delete, &volume, Secrets::none()).unwrap();
    assert_eq!(delete.earlier_flags, ["password=three", "password=four"], "edited, and not granted yet");
}

/// T25.
#[test]
fn validation_asks_for_every_use_with_its_options() {
    let mut volume = volume();
    volume.spec.volume_handle = Some("registered".into());
    volume.spec.mount_options =
        Some(Box::new(MountOptions { fs_type: Some("xfs".into()), mount_flags: vec!["noatime".into()] }));
    let reader = VolumeUse { access_mode: AccessMode::MultiNodeReader, ..VolumeUse::default() };
    volume.spec.capabilities.push(reader);
    let asked = validate(&volume, &GrantedUse::of(&volume), Secrets::none(), SingleNode::WriterOnly)
        .unwrap()
        .volume_capabilities;
    let modes: Vec<_> = asked.iter().map(|c| c.access_mode.unwrap().mode()).collect();
    assert_eq!(modes, [Mode::SingleNodeWriter, Mode::MultiNodeReaderOnly]);
    for capability in &asked {
        let Some(AccessType::Mount(mount)) = &capability.access_type else { panic!("{capability:?}") };
        assert_eq!((mount.fs_type.as_str(), mount.mount_flags.as_slice()), ("xfs", &["noatime".into()][..]));
    }
}

#[test]
fn a_claims_own_flags_and_read_only_count_at_publish_only() {
    let attachment = attachment();
    let paths = (HostPath::recorded("/s"), HostPath::recorded("/t"));
    let publish =
        |claim: &VolumeClaim| node_publish(&attachment, claim, &paths.0, &paths.1, Secrets::none()).request;
    let mut claim = VolumeClaim::new("c", VolumeClaimSpec::default());
    let plain = publish(&claim);
    assert_eq!(flags(plain.volume_capability.as_ref()), ["noatime"]);
    assert!(!plain.readonly, "the claim's, not the Attachment's");
    assert_eq!((plain.target_path.as_str(), plain.staging_target_path.as_str()), ("/t", "/s"));
    claim.spec.read_only = true;
    claim.spec.mount_options = Some(ClaimMountOptions { mount_flags: vec!["nodev".into()] });
    let own = publish(&claim);
    assert_eq!(flags(own.volume_capability.as_ref()), ["nodev"]);
    assert!(own.readonly);
    assert_eq!(own.volume_capability.unwrap().access_mode, plain.volume_capability.unwrap().access_mode);
}

#[test]
fn a_driver_that_does_not_stage_gets_no_staging_path() {
    let mut attachment = attachment();
    attachment.spec.fixed.stage = false;
    let claim = VolumeClaim::new("c", VolumeClaimSpec::default());
    let (s, t) = (HostPath::recorded("/s"), HostPath::recorded("/t"));
    let publish = node_publish(&attachment, &claim, &s, &t, Secrets::none()).request;
    assert_eq!(publish.staging_target_path, "");
}

fn volume() -> Volume {
    let spec = VolumeSpec {
        capacity: Some(Quantity("1Gi".into())),
        capacity_limit: Some(Quantity("2G".into())),
        parameters: map("parameter"),
        capabilities: vec![VolumeUse::default()],
        mount_options: Some(Box::new(MountOptions { fs_type: Some("ext4".into()), mount_flags: Vec::new() })),
        topology: Some(Box::new(TopologyRequest {
            required: vec![Segments { segments: map("zone") }],
            preferred: vec![],
        })),
        ..VolumeSpec::default()
    };
    let mut volume = Volume::new("v", spec);
    volume.metadata.uid = Some("uid-1".into());
    volume
}

const ALL: Offers = Offers { modes: SingleNode::WriterOnly, topology: true, modifies: true };

#[test]
fn a_volume_is_created_under_its_uid() {
    let args = create_volume(&volume(), Secrets::none(), ALL).unwrap();
    assert_eq!(args.name, "moor-uid-1");
    let range = args.capacity_range.unwrap();
    assert_eq!((range.required_bytes, range.limit_bytes), (1 << 30, 2_000_000_000));
    assert_eq!(args.accessibility_requirements.unwrap().requisite[0].segments, map("zone"));
    assert_eq!(args.volume_capabilities.len(), 1);
}

/// A driver may take a range of zeroes for a size of zero (trap T27).
#[test]
fn no_size_asks_for_no_range() {
    let mut volume = volume();
    (volume.spec.capacity, volume.spec.capacity_limit) = (None, None);
    let args = create_volume(&volume, Secrets::none(), ALL).unwrap();
    assert_eq!(args.capacity_range, None);
}

#[test]
fn topology_is_asked_only_of_a_driver_that_has_it() {
    let mut volume = volume();
    let request = volume.spec.topology.as_mut().unwrap();
    request.preferred = std::mem::take(&mut request.required);
    let args = create_volume(&volume, Secrets::none(), Offers { topology: false, ..ALL }).unwrap();
    assert_eq!(args.accessibility_requirements, None);
}

/// It would be made anywhere, and nobody would be told.
#[test]
fn required_topology_needs_a_driver_that_has_it() {
    let error = create_volume(&volume(), Secrets::none(), Offers { topology: false, ..ALL }).unwrap_err();
    assert!(error.to_string().contains("spec.topology.required"), "{error}");
}

/// It would leave them out, and the Volume would say that it has them.
#[test]
fn mutable_parameters_need_a_driver_that_has_them() {
    let mut volume = volume();
    volume.spec.mutable_parameters = map("tier");
    let none = Offers { modifies: false, ..ALL };
    let error = create_volume(&volume, Secrets::none(), none).unwrap_err();
    assert!(error.to_string().contains("spec.mutableParameters"), "{error}");
    let args = create_volume(&volume, Secrets::none(), ALL).unwrap();
    assert_eq!(args.mutable_parameters, map("tier"));
    volume.spec.mutable_parameters.clear();
    assert!(create_volume(&volume, Secrets::none(), none).is_ok());
}

#[test]
fn what_cannot_be_asked_is_an_error_with_the_field() {
    let mut volume = volume();
    volume.spec.capacity = Some(Quantity("lots".into()));
    let error = create_volume(&volume, Secrets::none(), ALL).unwrap_err();
    assert!(error.to_string().contains("spec.capacity"), "{error}");
    assert!(delete_volume(VolumeCall::Delete, &volume, Secrets::none()).is_err());
    assert!(validate(&volume, &GrantedUse::of(&volume), Secrets::none(), SingleNode::WriterOnly).is_err());
}

#[test]
fn the_handle_of_the_status_comes_before_that_of_the_spec() {
    let mut volume = volume();
    volume.spec.volume_handle = Some("registered".into());
    assert_eq!(
        delete_volume(VolumeCall::Delete, &volume, Secrets::none()).unwrap().request.volume_id,
        "registered"
    );
    volume.status =
        Some(crate::api::VolumeStatus { volume_handle: Some("known".into()), ..Default::default() });
    assert_eq!(
        delete_volume(VolumeCall::Delete, &volume, Secrets::none()).unwrap().request.volume_id,
        "known"
    );
}

/// A driver knows a call that is repeated by its arguments.
#[test]
fn what_was_changed_since_is_not_in_a_repeated_creation() {
    let mut volume = volume();
    volume.spec.mutable_parameters = map("tier");
    let first = create_volume(&volume, Secrets::none(), ALL).unwrap();
    volume.spec.assignment = Some(VolumeAssignment {
        created_with: Some(Box::new(CreatedWith::asked(&volume.spec).unwrap())),
        ..VolumeAssignment::default()
    });
    volume.spec.capacity = Some(Quantity("7Gi".into()));
    volume.spec.mutable_parameters = map("colour");
    assert_eq!(create_volume(&volume, Secrets::none(), ALL).unwrap(), first);
}
