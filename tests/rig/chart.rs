//! moor's CRDs, roles and policies, as its chart installs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kube::{Client, Error};
use serde_json::{Value, json};

use super::NAMESPACE;

/// How long the API server may take to serve new kinds and to heed new policies.
const PATIENCE: Duration = Duration::from_secs(60);

/// Kinds of the chart that are of use without nodes, in the order in which they are made.
const KINDS: [(&str, &str, &str); 10] = [
    ("CustomResourceDefinition", "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
    ("ServiceAccount", "/api/v1", "serviceaccounts"),
    ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    ("ClusterRoleBinding", "/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    ("Role", "/apis/rbac.authorization.k8s.io/v1", "roles"),
    ("RoleBinding", "/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    ("PriorityLevelConfiguration", "/apis/flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations"),
    ("FlowSchema", "/apis/flowcontrol.apiserver.k8s.io/v1", "flowschemas"),
    ("ValidatingAdmissionPolicy", "/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies"),
    (
        "ValidatingAdmissionPolicyBinding",
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
    ),
];

/// moor's chart as it is here.
pub fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/moor")
}

/// Installs the chart in this folder.
pub async fn install(admin: &Client, parts: &Path, chart: &Path) {
    install_changed(admin, parts, chart, |_| {}).await;
}

/// Installs the chart in this folder, but for what is changed in its objects. Returns what it consists of.
pub async fn install_changed(
    admin: &Client,
    parts: &Path,
    chart: &Path,
    change: fn(&mut Vec<Value>),
) -> Vec<Value> {
    post(admin, "/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}})).await.unwrap();
    let mut objects = rendered(parts, chart);
    change(&mut objects);
    for (kind, group, plural) in KINDS {
        for object in objects.iter().filter(|object| object["kind"] == kind) {
            let path = match object.pointer("/metadata/namespace").and_then(Value::as_str) {
                Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}"),
                None => format!("{group}/{plural}"),
            };
            let made = post(admin, &path, object).await;
            made.unwrap_or_else(|error| panic!("{kind} {}: {error}", object["metadata"]["name"]));
        }
    }
    until("the kinds are served", || served(admin, &objects)).await;
    if objects.iter().any(|object| object["kind"] == "ValidatingAdmissionPolicyBinding") {
        until("the policies are heeded", || refused(admin)).await;
    }
    objects
}

/// What a chart has in the environment of the agent, but for what each Pod has of its own.
pub fn agent_env(objects: &[Value]) -> Vec<(String, String)> {
    let is_it = |object: &&Value| object["kind"] == "DaemonSet" && object["metadata"]["name"] == "moor-agent";
    let pod = &objects.iter().find(is_it).unwrap()["spec"]["template"]["spec"];
    let agent = pod["containers"].as_array().unwrap().iter().find(|one| one["name"] == "agent").unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().map(str::to_owned);
    agent["env"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| Some((text(one, "name")?, text(one, "value")?)))
        .collect()
}

fn rendered(parts: &Path, chart: &Path) -> Vec<Value> {
    let helm = Command::new(parts.join("helm"))
        .args(["template", "moor"])
        .arg(chart)
        .args(["--namespace", NAMESPACE, "--set", "agent.secretAccess=cluster"])
        .output()
        .unwrap();
    assert!(helm.status.success(), "{}", String::from_utf8_lossy(&helm.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(helm.stdout).unwrap()).unwrap()
}

async fn post(client: &Client, path: &str, object: &Value) -> Result<String, Error> {
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request_text(request.body(object.to_string().into_bytes()).unwrap()).await
}

async fn served(admin: &Client, objects: &[Value]) -> bool {
    for crd in objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition") {
        let plural = crd.pointer("/spec/names/plural").and_then(Value::as_str).unwrap();
        let path = format!("/apis/moor.dev/v1alpha1/{plural}");
        if admin.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await.is_err() {
            return false;
        }
    }
    true
}

/// An agent may not write another agent's Lease.
async fn refused(admin: &Client) -> bool {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases?dryRun=All");
    let lease = json!({"metadata": {"name": "moor-agent-other"}});
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .header("impersonate-user", format!("system:serviceaccount:{NAMESPACE}:moor-agent"))
        .header("impersonate-extra-authentication.kubernetes.io%2fnode-name", "one");
    match admin.request_text(request.body(lease.to_string().into_bytes()).unwrap()).await {
        Err(Error::Api(status)) => status.message.contains("of its own node"),
        _ => false,
    }
}

async fn until<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    let end = Instant::now() + PATIENCE;
    while !is().await {
        assert!(Instant::now() < end, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
