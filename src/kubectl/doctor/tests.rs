use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::super::objects_tests::{deleted, holder, now, scene};
use super::facts::{Facts, ServerClock};
use super::finding::{Finding, Mark, faults, page};
use super::install::POLICIES;
use super::judged;
use crate::api::all_crds;
use crate::k8s::scripted_tests::{Answer, Scripted};
use crate::kubectl::connect::Cluster;

fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn pod(component: &str, node: &str) -> Value {
    let labels = json!({ "app.kubernetes.io/name": "moor", "app.kubernetes.io/component": component,
        "app.kubernetes.io/version": env!("CARGO_PKG_VERSION") });
    json!({ "metadata": { "name": format!("{component}-{node}"), "labels": labels },
        "spec": { "nodeName": node, "containers": [{ "name": component, "image": "moor:1" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } })
}

/// A Lease that was renewed nine minutes and 57 seconds past midnight, by a clock that is so many seconds ahead.
fn lease(name: &str, ahead: i64) -> Value {
    let second = 57 + ahead;
    json!({ "metadata": { "name": name, "managedFields": [
            { "manager": "moor", "time": "2026-01-01T00:09:57Z", "fieldsV1": { "f:spec": { "f:renewTime": {} } } },
            { "manager": "kubectl", "time": "2026-01-01T00:09:59Z", "fieldsV1": { "f:metadata": {} } }] },
        "spec": { "holderIdentity": "pod-1", "leaseDurationSeconds": 40,
            "renewTime": format!("2026-01-01T00:{:02}:{:02}.100000Z", 9 + second / 60, second % 60) } })
}

fn agents() -> Value {
    let container = json!({ "name": "agent", "image": "moor:1", "args": ["--kubelet-dir=/data/kubelet"],
        "securityContext": { "privileged": true },
        "volumeMounts": [{ "name": "kubelet", "mountPath": "/data/kubelet", "mountPropagation": "Bidirectional" }] });
    json!({ "metadata": { "name": "moor-agent", "namespace": "moor-system" },
        "spec": { "selector": {}, "template": { "spec": { "hostPID": true, "containers": [container],
            "volumes": [{ "name": "kubelet", "hostPath": { "path": "/data/kubelet" } }] } } },
        "status": { "desiredNumberScheduled": 2, "numberReady": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0 } })
}

fn crds() -> Vec<CustomResourceDefinition> {
    let established = json!({ "conditions": [{ "type": "Established", "status": "True" }] });
    let mut all = all_crds();
    for crd in &mut all {
        crd.status = Some(read(established.clone()));
    }
    all
}

/// An installation that is as it should be.
fn well() -> Facts {
    let scene = scene();
    let mut instances = scene.instances;
    let healthy = instances[0].status.clone();
    instances[1].status = healthy;
    let plugins = scene.plugins;
    let csi_driver = json!({ "metadata": { "name": "d.example", "labels":
            { "moor.dev/plugin": "p", "app.kubernetes.io/managed-by": "moor" } },
        "spec": { "attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent"],
            "fsGroupPolicy": "ReadWriteOnceWithFSType", "seLinuxMount": false, "requiresRepublish": false,
            "storageCapacity": false } });
    let names = POLICIES.map(str::to_owned);
    let sockets = json!({ "directory": "/data/kubelet/plugins", "found": [{ "answer": { "driver": "d.example" }, "path": "d/csi.sock" }] });
    let mut agent = lease("moor-agent-node-1", 0);
    agent["metadata"]["annotations"] = json!({ "moor.dev/sockets": sockets.to_string() });
    let node = |name: &str| json!({ "metadata": { "name": name, "uid": format!("uid-{name}") } });
    Facts {
        namespace: "moor-system".into(),
        clock: Ok(ServerClock { said: now(), here: now() }),
        version: Ok((1, 34, "v1.34.1".into())),
        crds: Ok(crds()),
        deployments: Ok(vec![read(json!({ "metadata": { "name": "moor-controller" },
            "spec": { "replicas": 2, "selector": {}, "template": {} }, "status": { "readyReplicas": 2 } }))]),
        sees_everywhere: true,
        daemon_sets: Ok(vec![read(agents())]),
        pods: Ok([pod("controller", "node-1"), pod("agent", "node-1"), pod("agent", "node-2")]
            .map(read)
            .into()),
        leases: Ok([agent, lease("moor-agent-node-2", 0), lease("moor-controller", 0)].map(read).into()),
        nodes: Ok(["node-1", "node-2"].map(|name| read(node(name))).into()),
        csi_drivers: Ok(vec![read(csi_driver)]),
        policies: Ok((names.clone().into(), names.into())),
        plugins: Ok(plugins),
        instances: Ok(instances),
        volumes: Ok(scene.volumes),
        snapshots: Ok(scene.snapshots),
        claims: Ok(scene.claims),
        attachments: Ok(scene.attachments),
    }
}

/// What is not well, and that everything else is.
fn ill(facts: &Facts) -> Vec<(Mark, &'static str, String)> {
    let all = judged(facts).into_iter().filter(|finding| finding.mark != Mark::Ok);
    all.map(|Finding { mark, what, said, .. }| (mark, what, said)).collect()
}

#[track_caller]
fn says(facts: &Facts, mark: Mark, what: &str, part: &str) {
    let found = judged(facts);
    let said = found.iter().find(|finding| finding.mark == mark && finding.what == what);
    assert!(said.is_some_and(|said| said.said.contains(part)), "{part}: {found:#?}");
    let remedy = said.is_some_and(|said| !said.remedy.is_empty());
    assert!(remedy || matches!(mark, Mark::Ok | Mark::NotChecked), "what is to be done about {what}?");
}

#[test]
fn what_is_as_it_should_be_is_told_so() {
    let found = judged(&well());
    assert_eq!(ill(&well()), []);
    let text = page(&found).to_string();
    for line in [
        "ok           Kubernetes            v1.34.1\n",
        "ok           controller            2 of 2 replicas are ready; pod-1 leads\n",
        "ok           agents                2 of 2 are ready, one on every node\n",
        "ok           clocks of nodes       all 3 within 5 s, ",
        "ok           sockets               1 of drivers answer on 1 nodes\n",
        "ok           drivers               p: 2 instances, all well\n",
        "ok           CSIDrivers            1 served to Pods, each as its Plugin says\n",
        "\n19 ok, 0 warnings, 0 faults, 0 not checked\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn what_cannot_be_looked_at_is_never_well() {
    let why = || "forbidden".to_owned();
    let blind = Facts {
        namespace: "moor-system".into(),
        clock: Err(why()),
        version: Err(why()),
        crds: Err(why()),
        deployments: Err(why()),
        sees_everywhere: false,
        daemon_sets: Err(why()),
        pods: Err(why()),
        leases: Err(why()),
        nodes: Err(why()),
        csi_drivers: Err(why()),
        policies: Err(why()),
        plugins: Err(why()),
        instances: Err(why()),
        volumes: Err(why()),
        snapshots: Err(why()),
        claims: Err(why()),
        attachments: Err(why()),
    };
    assert!(judged(&blind).iter().all(|finding| finding.mark == Mark::NotChecked), "{:#?}", judged(&blind));
    let without = Facts { clock: Err(why()), sees_everywhere: false, ..well() };
    says(&without, Mark::NotChecked, "agents' Leases", "forbidden");
    says(&without, Mark::NotChecked, "controller", "forbidden");
    says(
        &without,
        Mark::NotChecked,
        "other installations",
        "only DaemonSets of namespace moor-system are seen",
    );
    let without = Facts { nodes: Err(why()), ..well() };
    says(&without, Mark::NotChecked, "agents", "2 of 2 are ready; whether every node has one is not seen");
    assert_eq!(ill(&without).len(), 2);
}

#[test]
fn moor_itself_is_checked() {
    let empty = Facts { deployments: Ok(vec![]), daemon_sets: Ok(vec![]), pods: Ok(vec![]), ..well() };
    says(
        &empty,
        Mark::Fault,
        "controller",
        "there is no Deployment moor-controller in namespace moor-system",
    );
    says(&empty, Mark::Fault, "agents", "there is no DaemonSet moor-agent");
    says(&empty, Mark::Fault, "versions", "no Pod of moor");
    says(&empty, Mark::NotChecked, "mount propagation", "");
    says(&empty, Mark::NotChecked, "agents' Leases", "no agent has a Pod");
    says(
        &Facts { version: Ok((1, 31, "v1.31".into())), ..well() },
        Mark::Fault,
        "Kubernetes",
        "older than 1.32",
    );
    let later = ServerClock { here: "2026-01-01T00:10:09Z".parse().unwrap(), said: now() };
    says(&Facts { clock: Ok(later), ..well() }, Mark::Warning, "this machine's clock", "is 9 s ahead");
    let mut few = well();
    few.deployments.as_mut().unwrap()[0].status.as_mut().unwrap().ready_replicas = Some(1);
    says(&few, Mark::Warning, "controller", "1 of 2 replicas are ready; pod-1 leads");
    let mut late = well();
    late.clock = Ok(ServerClock {
        said: "2026-01-01T00:11:00Z".parse().unwrap(),
        here: "2026-01-01T00:11:00Z".parse().unwrap(),
    });
    says(&late, Mark::Fault, "controller", "nobody leads: pod-1 was last heard 63 s ago");
    says(&late, Mark::Fault, "agents' Leases", "node-1: renewed 63 s ago, lasts 40 s");
    let mut mixed = well();
    mixed.pods.as_mut().unwrap()[1].spec.as_mut().unwrap().containers[0].image = Some("moor:2".into());
    says(&mixed, Mark::Warning, "versions", "(moor:2)");
    let mut half = well();
    half.policies.as_mut().unwrap().1.remove("moor-grants");
    says(&half, Mark::Fault, "admission policies", "missing, or not bound: moor-grants");
    says(
        &Facts { policies: Ok(Default::default()), ..well() },
        Mark::Warning,
        "admission policies",
        "none is there",
    );
}

#[test]
fn kinds_of_another_version_are_told_by_their_fields() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut facts = well();
        let crds = facts.crds.as_mut().unwrap();
        let at = crds.iter().position(|crd| crd.spec.names.kind == "Volume").unwrap();
        let mut volume = serde_json::to_value(&crds[at]).unwrap();
        change(&mut volume);
        crds[at] = read(volume);
        facts
    };
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let older = with(&|crd| drop(crd.pointer_mut(spec).unwrap().as_object_mut().unwrap().remove("capacity")));
    says(
        &older,
        Mark::Fault,
        "kinds",
        "volumes.moor.dev is older than this program: it lacks v1alpha1.spec.capacity",
    );
    let newer = with(&|crd| crd.pointer_mut(spec).unwrap()["later"] = json!({ "type": "string" }));
    says(&newer, Mark::Warning, "kinds", "volumes.moor.dev has v1alpha1.spec.later");
    let going = with(&|crd| crd["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    says(&going, Mark::Fault, "kinds", "volumes.moor.dev is being deleted");
    says(&Facts { crds: Ok(vec![]), ..well() }, Mark::Fault, "kinds", "plugins.moor.dev is not there");
}

#[test]
fn nodes_are_checked() {
    let mut apart = well();
    apart.leases.as_mut().unwrap()[1] = read(lease("moor-agent-node-2", 30));
    says(&apart, Mark::Warning, "clocks of nodes", "node-2 is 30 s ahead, by the API server's time");
    let mut unsaid = well();
    unsaid.leases.as_mut().unwrap().iter_mut().for_each(|lease| lease.metadata.managed_fields = None);
    says(&unsaid, Mark::NotChecked, "clocks of nodes", "no Lease says");
    let mut more = well();
    more.nodes.as_mut().unwrap().push(read(json!({ "metadata": { "name": "node-3", "uid": "u" } })));
    says(&more, Mark::Warning, "agents", "no agent is for 1 nodes: node-3");
    for (pointer, value, part) in [
        (
            "/containers/0/volumeMounts/0/mountPropagation",
            json!(null),
            "/data/kubelet has mountPropagation None",
        ),
        (
            "/containers/0/args/0",
            json!("--kubelet-dir=/other"),
            "/other, which is --kubelet-dir, is not mounted",
        ),
        (
            "/volumes/0/hostPath/path",
            json!("/var/lib/kubelet"),
            "/data/kubelet is /var/lib/kubelet of the host",
        ),
        ("/containers/0/securityContext/privileged", json!(false), "not privileged"),
        ("/hostPID", json!(false), "no hostPID"),
    ] {
        let mut set = agents();
        *set["spec"]["template"]["spec"].pointer_mut(pointer).unwrap() = value;
        says(&Facts { daemon_sets: Ok(vec![read(set)]), ..well() }, Mark::Fault, "mount propagation", part);
    }
    let mut unseen = well();
    let status = unseen.claims.as_mut().unwrap()[1].status.as_mut().unwrap();
    status.conditions[0].reason = "MountNotVisible".into();
    says(&unseen, Mark::Fault, "mounts", "MountNotVisible: shop/b");
}

#[test]
fn drivers_are_checked() {
    let ill = Facts { instances: Ok(scene().instances), ..well() };
    says(
        &ill,
        Mark::Fault,
        "drivers",
        "p: 1 of 2 instances are not well: node-2: Probe: Unavailable: no storage",
    );
    says(
        &Facts { instances: Ok(vec![]), ..well() },
        Mark::Fault,
        "drivers",
        "p has no instance on any node: all well",
    );
    let mut refused = well();
    let status = refused.instances.as_mut().unwrap()[0].status.as_mut().unwrap();
    status.kubelet = Some(read(
        json!({ "driverName": "d.example", "registered": false, "message": "already registered" }),
    ));
    says(
        &refused,
        Mark::Fault,
        "drivers",
        "node-1: kubelet does not come to moor for d.example: already registered",
    );
    let status = refused.instances.as_mut().unwrap()[0].status.as_mut().unwrap();
    status.kubelet.as_mut().unwrap().message = None;
    says(&refused, Mark::Warning, "drivers", "kubelet has not said yet whether it comes to moor on node-1");
    let mut sockets = well();
    let said = json!({ "directory": "/d", "found": [{ "answer": "nobodyListens", "path": "old/csi.sock" }] });
    sockets.leases.as_mut().unwrap()[0]
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert("moor.dev/sockets".into(), said.to_string());
    says(
        &sockets,
        Mark::Warning,
        "sockets",
        "0 of drivers answer on 1 nodes; not so 1: node-1 old/csi.sock: nobody listens",
    );
    says(&Facts { csi_drivers: Ok(vec![]), ..well() }, Mark::Fault, "CSIDrivers", "d.example is not there");
    let mut foreign = well();
    foreign.csi_drivers.as_mut().unwrap()[0].metadata.labels = None;
    says(&foreign, Mark::Fault, "CSIDrivers", "moor has not made CSIDriver d.example and leaves it alone");
    let mut set = agents();
    set["spec"]["template"]["spec"]["containers"][0]["args"] =
        json!(["--kubelet-dir=/data/kubelet", "--inline-volumes"]);
    says(
        &Facts { daemon_sets: Ok(vec![read(set)]), ..well() },
        Mark::Fault,
        "inline volumes",
        "no CSIDriver moor.dev",
    );
}

#[test]
fn what_was_left_is_told() {
    let mut other = agents();
    other["metadata"]["namespace"] = json!("old");
    let facts = Facts { daemon_sets: Ok([agents(), other].map(read).into()), ..well() };
    says(
        &facts,
        Mark::Fault,
        "other installations",
        "DaemonSet old/moor-agent beside that of namespace moor-system",
    );
    let gone = Facts { nodes: Ok(vec![well().nodes.unwrap()[0].clone()]), ..well() };
    says(&gone, Mark::Warning, "left of nodes", "Lease moor-agent-node-2, PluginInstance node-2-p");
    let anew = Facts { plugins: Ok(vec![]), ..well() };
    says(&anew, Mark::Warning, "left of Plugins", "CSIDriver d.example, PluginInstance node-1-p");
    // Ten minutes are long, two are not.
    let soon = Facts { claims: Ok(vec![deleted(holder())]), ..well() };
    says(&soon, Mark::Ok, "deletions", "none takes longer than 10 minutes");
    let at = "2026-01-01T01:00:00Z".parse().unwrap();
    let long = Facts { clock: Ok(ServerClock { said: at, here: at }), ..soon };
    says(&long, Mark::Warning, "deletions", "1 take long: VolumeClaim shop/a for 52m");
}

/// As an API server says it.
#[tokio::test]
async fn who_may_nothing_is_told_that_nothing_was_checked() {
    let (_, client) = Scripted::start((0..40).map(|_| Answer::Error(403, "Forbidden")).collect()).await;
    let facts = Facts::read(&Cluster::of(client, "moor-system", "shop")).await;
    let found = judged(&facts);
    assert_eq!(faults(&found), 0);
    let clock = |finding: &&Finding| finding.mark != Mark::NotChecked;
    let checked: Vec<_> = found.iter().filter(clock).map(|finding| finding.what).collect();
    // A refusal has a Date like every answer.
    assert_eq!(checked, ["this machine's clock"], "{found:#?}");
}
