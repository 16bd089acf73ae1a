//! Whatever is at a socket, and whatever a driver says of itself: the agent goes on, and a condition says what is wrong.

mod driver;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use kube::Api;
use kube::api::DeleteParams;
use moor::api::Plugin;
use moor::api::conditions::READY;
use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::json;
use tonic::Code;

use self::driver::{Driver, Other, Probe, serve, serve_other};
use crate::cases;
use crate::rig::fake::backend::Answers;
use crate::rig::{Case, Cluster, Fault, Options, Rig, registered, volume, volume_claim};

const NODE: &str = "node-1";
const MANY: usize = 10_000;

impl Rig {
    /// A Plugin whose driver has its name and listens at `<name>/csi.sock`.
    async fn expect_driver(&self, name: &str) {
        let spec = json!({"socketPath": format!("{name}/csi.sock"), "healthTimeoutSeconds": 1, "kubernetes": {"enabled": false}});
        self.make_plugin_named(name, spec).await;
    }

    /// The agent has not ended, and nothing that was there is in the way of a driver that is all right.
    async fn is_well(&self, plugins: &[&str]) {
        let api = self.plugin_api();
        for name in plugins {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        self.make_volume(&volume("v")).await;
        self.make_claim(&volume_claim("v", "v", NODE)).await;
        self.until_ready("v").await;
        self.remove(&["v"], &["v"]).await;
    }
}

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    let options = Options { nodes: vec![(NODE, true)], supervised: false, ..Options::default() };
    Rig::start(cluster, options).await
}

/// What is no driver at all, or does not say a name that can be one: its Plugin has no instance that could tell.
async fn who_is_no_driver_is_told_of(cluster: Arc<Cluster>) {
    const GRPC: &str = "application/grpc";
    let rig = start(&cluster).await;
    let called = |name: &str| Driver::named(name);
    let no_name = "the plugin name is not a domain name of at most 63 characters";
    let drivers = [
        ("no-name", called(""), no_name),
        ("bad-name", called("a/../b"), no_name),
        ("long-name", called(&"a".repeat(1 << 20)), no_name),
        ("mute", Driver { is_mute: true, ..called("mute") }, "no answer within 5s"),
    ];
    let others = [
        ("closes", Other::Closes, ""),
        ("dies", Other::ClosesWhenAsked, ""),
        ("silent", Other::IsSilent, "no answer within 5s"),
        ("http", Other::Sends(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"), ""),
        ("noise", Other::Sends(&[0xfe; 4096]), ""),
        ("page", Other::Answers(404, "text/html", b"<html>"), "404 Not Found"),
        (
            "undecodable",
            Other::Answers(200, GRPC, &[0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff]),
            "failed to decode",
        ),
        ("endless", Other::Answers(200, GRPC, &[0, 0xff, 0xff, 0xff, 0xff, 1]), "length too large"),
        ("cut", Other::Answers(200, GRPC, &[0, 0, 0, 0, 9, 1]), "Missing response message"),
        ("packed", Other::Answers(200, GRPC, &[1, 0, 0, 0, 0]), "no grpc-encoding"),
        ("nothing", Other::Answers(200, GRPC, &[]), "Missing response message"),
    ];
    let mut words = HashMap::new();
    let mut servers = Vec::new();
    for (name, driver, said) in drivers {
        servers.push(serve(&rig.plugin_dir(NODE).join(name).join("csi.sock"), driver));
        words.insert(name, said);
    }
    for (name, other, said) in others {
        servers.push(serve_other(&rig.plugin_dir(NODE).join(name).join("csi.sock"), other));
        words.insert(name, said);
    }
    for name in words.keys() {
        rig.expect_driver(name).await;
    }
    for (name, said) in &words {
        let at = format!("On {NODE}: {name}/csi.sock, which does not say its driver's name: ");
        rig.until_plugin_says(name, READY, "NoInstance", &[&at, said]).await;
    }
    rig.is_well(&words.into_keys().collect::<Vec<_>>()).await;
}

/// What is no socket, where one is looked for. A symbolic link to a socket is as good as the socket.
async fn what_is_no_socket_is_told_of(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let at = |name: &str| rig.plugin_dir(NODE).join(name).join("csi.sock");
    let make = |name: &'static str, make: &dyn Fn(&Path)| {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        make(&at(name));
        name
    };
    let node = |path: &Path, kind, device| mknodat(CWD, path, kind, Mode::RWXU, device).unwrap();
    let others = [
        (make("directory", &|path| fs::create_dir(path).unwrap()), "a directory"),
        (make("file", &|path| fs::write(path, "").unwrap()), "a file"),
        (make("pipe", &|path| node(path, FileType::Fifo, 0)), "a pipe"),
        (make("device", &|path| node(path, FileType::CharacterDevice, makedev(1, 3))), "a device"),
        (make("dangling", &|path| symlink("nowhere", path).unwrap()), "a symbolic link that leads nowhere"),
        (make("circle", &|path| symlink("csi.sock", path).unwrap()), "a symbolic link that leads nowhere"),
    ];
    for (name, _) in others {
        rig.expect_driver(name).await;
    }
    for (name, what) in others {
        let said = format!("On {NODE}: {name}/csi.sock, which is {what} and no socket");
        rig.until_plugin_says(name, READY, "NoInstance", &[&said]).await;
    }
    let _linked = serve(&at("elsewhere").with_file_name("real"), Driver::named("linked"));
    make("linked", &|path| symlink("../elsewhere/real", path).unwrap());
    rig.expect_driver("linked").await;
    rig.until_plugin_says("linked", READY, "Healthy", &[]).await;

    fs::remove_file(at("linked")).unwrap();
    fs::create_dir(at("linked")).unwrap();
    let last = at("linked");
    let words =
        ["on node node-1: no socket of driver linked is there; its last one was", last.to_str().unwrap()];
    rig.until_plugin_says("linked", READY, "Unhealthy", &words).await;
    let all: Vec<_> = others.iter().map(|(name, _)| *name).chain(["linked"]).collect();
    rig.is_well(&all).await;
}

/// A driver that says its name, and something that cannot be of what it is.
async fn wrong_answers_of_a_driver_are_told_of(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let numbered = |n: usize| (format!("key-{n}"), "value".to_owned());
    let segments = wire::Topology { segments: (0..MANY).map(numbered).collect() };
    let long = wire::Topology { segments: [("k".repeat(MANY), "value".to_owned())].into() };
    let info = |name: &str, change: fn(&mut wire::NodeGetInfoResponse)| {
        let mut driver = Driver::named(name);
        change(&mut driver.node_info);
        driver
    };
    let place = |name: &str, place: wire::Topology| {
        let mut driver = Driver::named(name);
        driver.node_info.accessible_topology = Some(place);
        driver
    };
    let probe = |name: &str, probe: Probe| Driver { probe, ..Driver::named(name) };
    let broken = "NodeGetInfo: Internal: the driver's answer breaks CSI: ";
    let taken = "NodeGetInfo: Internal: the driver's answer is not taken: accessible_topology has ";
    let rows = [
        (info("no-id", |info| info.node_id.clear()), format!("{broken}node_id is empty")),
        (info("long-id", |info| info.node_id = "n".repeat(MANY)), format!("{broken}node_id has 10000 bytes")),
        (
            info("negative", |info| info.max_volumes_per_node = -1),
            format!("{broken}max_volumes_per_node is -1"),
        ),
        (
            info("least", |info| info.max_volumes_per_node = i64::MIN),
            format!("{broken}max_volumes_per_node is -9"),
        ),
        (place("places", segments), format!("{taken}10000 segments")),
        (place("place", long), format!("{taken}a key or a value of 10000 bytes")),
        (probe("hangs", Probe::Hangs), "Probe: DeadlineExceeded: no answer within 5s".to_owned()),
        (probe("starts", Probe::NotReady), "Probe: not ready, for longer than 1 s".to_owned()),
        (probe("ill", Probe::Fails("no disk".to_owned())), "Probe: FailedPrecondition: no disk".to_owned()),
        (
            probe("talks", Probe::Fails("disk ".repeat(1000))),
            "Probe: FailedPrecondition: disk disk".to_owned(),
        ),
    ];
    let (mut servers, mut told) = (Vec::new(), Vec::new());
    for (driver, said) in rows {
        let name = driver.info.name.clone();
        servers.push(serve(&rig.plugin_dir(NODE).join(&name).join("csi.sock"), driver));
        rig.expect_driver(&name).await;
        told.push((name, said));
    }
    for (name, said) in &told {
        rig.until_plugin_says(name, READY, "Unhealthy", &[&format!("on node {NODE}: {said}")]).await;
    }
    rig.is_well(&told.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>()).await;
}

/// What is too much, or not known to anybody, and stands in the way of nothing.
async fn what_a_driver_says_too_much_is_left_out(cluster: Arc<Cluster>) {
    use wire::controller_service_capability::{Rpc as ControllerRpc, Type as ControllerType};
    use wire::node_service_capability::{Rpc as NodeRpc, Type as NodeType};
    use wire::plugin_capability::{Service, Type, service};
    let rig = start(&cluster).await;
    let numbers = || (0..MANY).map(|n| i32::try_from(n).unwrap() - 100).chain([i32::MIN, i32::MAX]);
    let services = numbers().chain([service::Type::ControllerService.into()]);
    let service = |n| wire::PluginCapability { r#type: Some(Type::Service(Service { r#type: n })) };
    let controller = |n| wire::ControllerServiceCapability {
        r#type: Some(ControllerType::Rpc(ControllerRpc { r#type: n })),
    };
    let node = |n| wire::NodeServiceCapability { r#type: Some(NodeType::Rpc(NodeRpc { r#type: n })) };
    let mut driver = Driver::named("much");
    driver.info.vendor_version = "1\u{7}\n".repeat(MANY);
    driver.info.manifest = (0..MANY).map(|n| (n.to_string(), "x".repeat(100))).collect();
    driver.services.capabilities = services.map(service).chain([wire::PluginCapability::default()]).collect();
    driver.controller.capabilities =
        numbers().map(controller).chain([wire::ControllerServiceCapability::default()]).collect();
    driver.node.capabilities = numbers().map(node).chain([wire::NodeServiceCapability::default()]).collect();
    driver.node_info.max_volumes_per_node = i64::MAX;
    let _server = serve(&rig.plugin_dir(NODE).join("much/csi.sock"), driver);
    rig.expect_driver("much").await;
    rig.until_plugin_says("much", READY, "Healthy", &[]).await;
    let plugins: Api<Plugin> = Api::all(cluster.admin.clone());
    let status = plugins.get("much").await.unwrap().status.unwrap();
    let known = status.capabilities;
    assert!(
        known.controller_has("CREATE_DELETE_VOLUME") && known.node_has("STAGE_UNSTAGE_VOLUME"),
        "{known:?}"
    );
    let longest = [&known.plugin, &known.controller, &known.node].map(Vec::len);
    assert!(longest.iter().all(|entries| *entries < 20), "{longest:?}");
    assert!(status.version.is_some_and(|v| v.len() <= 128 && !v.contains(char::is_control)));
    rig.is_well(&["much"]).await;
}

/// What it says of a volume that it has made. It is kept in no object, and the volume is not used.
async fn wrong_answers_about_a_volume_are_told_of(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let sized = |bytes| Answers { capacity_bytes: Some(bytes), ..Answers::default() };
    let rows = [
        ("no-id", Answers { hides_id: true, ..Answers::default() }, "volume_id is empty"),
        ("negative", sized(-1), "the driver made -1 bytes"),
        ("least", sized(i64::MIN), "the driver made -9223372036854775808 bytes"),
        ("small", sized(1), "deleted again"),
    ];
    for (name, answers, _) in &rows {
        rig.fake.backend().answers.insert((*name).to_owned(), answers.clone());
        rig.make_volume(&volume(name)).await;
    }
    for (name, _, words) in &rows {
        rig.until_volume_says(name, "CreateVolumeFailed", &[words, "next in"]).await;
        rig.fake.backend().answers.remove(*name);
    }
    let names = rows.map(|(name, ..)| name);
    rig.remove(&[""; 0], &names).await;
    assert!(names.iter().all(|name| !rig.has_storage(name)));
}

/// Drivers are known that do not confirm anything, or have no ValidateVolumeCapabilities. Whoever wants more than their word
/// says so.
async fn what_a_driver_does_not_confirm_is_registered_and_told(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let names = ["silent", "unserved", "usual"];
    for name in names {
        let answers = Answers { confirms_nothing: name == "silent", ..Answers::default() };
        rig.fake.backend().answers.insert(name.to_owned(), answers);
    }
    let unimplemented = Fault::CodeBefore(Code::Unimplemented);
    rig.fake.fail("unserved", Rpc::ValidateVolumeCapabilities, unimplemented);

    rig.patch_plugin(json!({"validation": "Strict"})).await;
    // An agent may hear of the Volume before it hears of that; one that has just begun has heard of both.
    rig.restart_and_wait(NODE).await;
    for name in names {
        let handle = rig.fake.backend().add(name);
        rig.make_volume(&registered(name, &handle)).await;
    }
    rig.until_volume_says("silent", "NotConfirmed", &["no idea", "is Strict"]).await;
    rig.until_volume_says("unserved", "ValidateFailed", &["Unimplemented", "is Strict"]).await;
    rig.until_volume_ready("usual").await;

    rig.patch_plugin(json!({"validation": "Lenient"})).await;
    rig.restart_and_wait(NODE).await;
    let said = |name: &'static str, words: &'static [&'static str]| {
        let conditions = cluster.volume(name).unwrap().status.clone().unwrap().conditions;
        let said = conditions.into_iter().find(|c| c.type_ == "Confirmed").unwrap();
        assert!(words.iter().all(|word| said.message.contains(word)), "{said:?}");
        (said.status.into_owned(), said.reason.into_owned())
    };
    // A failure before is tried again in its own time; one that is made anew shows what a new Volume meets.
    for name in ["silent", "unserved"] {
        rig.delete_volume(name).await;
        rig.until_volume_gone(name).await;
        let handle = rig.fake.backend().id(name);
        rig.make_volume(&registered(name, &handle)).await;
    }
    for (name, status, reason, words) in [
        ("silent", "False", "Unconfirmed", ["no idea", "Strict"].as_slice()),
        ("unserved", "False", "Unconfirmed", &["Unimplemented", "Strict"]),
        ("usual", "True", "Confirmed", &["confirms what is asked"]),
    ] {
        rig.until_volume_ready(name).await;
        assert_eq!(said(name, words), (status.to_owned(), reason.to_owned()));
        rig.make_claim(&volume_claim(name, name, NODE)).await;
        rig.until_ready(name).await;
    }
    rig.remove(&names, &names).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    who_is_no_driver_is_told_of,
    what_is_no_socket_is_told_of,
    wrong_answers_of_a_driver_are_told_of,
    what_a_driver_says_too_much_is_left_out,
    wrong_answers_about_a_volume_are_told_of,
    what_a_driver_does_not_confirm_is_registered_and_told,
];
