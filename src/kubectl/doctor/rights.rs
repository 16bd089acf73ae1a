//! Rights: what who runs this may do, and whether moor's service accounts may do what the chart grants them.

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::super::connect::Cluster;
use super::finding::Finding;
use super::install::{AGENT, CONTROLLER, named};
use crate::k8s::ApiError;
use crate::k8s::error::Request;

/// Reviews at a time.
const AT_A_TIME: usize = 8;

const READ: &[&str] = &["get", "list", "watch"];
const OWN: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
const MAKE: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
const CHANGE: &[&str] = &["get", "list", "watch", "update", "patch"];

/// Verbs on resources of one API group, as a rule of a role has them.
type Grant = (&'static str, &'static [&'static str], &'static [&'static str]);

/// What the ClusterRole of the controller grants in any case.
const CONTROLLER_EVERYWHERE: &[Grant] = &[
    ("moor.dev", &["attachments", "volumehandles"], OWN),
    ("moor.dev", &["snapshots", "volumes"], CHANGE),
    ("moor.dev", &["volumeclaims"], &["get", "list", "watch", "update", "patch", "delete"]),
    ("moor.dev", &["plugins"], CHANGE),
    ("moor.dev", &["plugininstances"], &["get", "list", "watch", "patch", "delete"]),
    (
        "moor.dev",
        &[
            "attachments/status",
            "plugins/status",
            "snapshots/status",
            "volumeclaims/status",
            "volumehandles/status",
            "volumes/status",
        ],
        &["patch"],
    ),
    ("", &["namespaces", "nodes"], READ),
    ("", &["pods"], &["get"]),
    ("storage.k8s.io", &["csidrivers"], MAKE),
    ("", &["persistentvolumes"], OWN),
    ("", &["persistentvolumeclaims"], MAKE),
    ("", &["persistentvolumeclaims/status"], &["patch"]),
    ("storage.k8s.io", &["storageclasses"], READ),
    ("storage.k8s.io", &["volumeattributesclasses"], &["get"]),
    ("snapshot.storage.k8s.io", &["volumesnapshotcontents"], CHANGE),
    ("snapshot.storage.k8s.io", &["volumesnapshotcontents/status"], &["patch"]),
    ("snapshot.storage.k8s.io", &["volumesnapshotclasses", "volumesnapshots"], &["get"]),
    ("groupsnapshot.storage.k8s.io", &["volumegroupsnapshotcontents"], CHANGE),
    ("groupsnapshot.storage.k8s.io", &["volumegroupsnapshotcontents/status"], &["patch"]),
    ("groupsnapshot.storage.k8s.io", &["volumegroupsnapshotclasses"], &["get"]),
    ("events.k8s.io", &["events"], &["create", "patch"]),
];
/// What the Role of the controller grants in moor's namespace.
const CONTROLLER_AT_HOME: &[Grant] = &[
    ("coordination.k8s.io", &["leases"], OWN),
    ("moor.dev", &["snapshots", "volumes"], &["create", "delete"]),
    ("storage.k8s.io", &["csistoragecapacities"], MAKE),
    ("apps", &["deployments", "daemonsets"], MAKE),
    ("", &["pods"], &["list", "watch", "delete"]),
];
/// What the ClusterRole of the agents grants in any case.
const AGENT_EVERYWHERE: &[Grant] = &[
    ("moor.dev", &["attachments", "plugins", "snapshots", "volumeclaims", "volumehandles", "volumes"], READ),
    ("moor.dev", &["plugininstances"], &["get", "list", "watch", "create", "delete"]),
    (
        "moor.dev",
        &[
            "attachments/status",
            "plugininstances/status",
            "snapshots/status",
            "volumeclaims/status",
            "volumehandles/status",
            "volumes/status",
        ],
        &["patch"],
    ),
    ("", &["nodes", "namespaces"], &["get"]),
    ("events.k8s.io", &["events"], &["create", "patch"]),
    ("storage.k8s.io", &["csidrivers"], &["get"]),
];
/// What the agents have in moor's namespace: by their Role, and with admission policies by their ClusterRole.
const AGENT_AT_HOME: &[Grant] = &[
    ("coordination.k8s.io", &["leases"], &["get", "create", "update"]),
    ("", &["pods"], &["list", "watch"]),
    ("moor.dev", &["volumeclaims"], &["create", "delete"]),
];
/// What this program reads in all namespaces.
const OF_USERS: &[Grant] = &[
    (
        "moor.dev",
        &[
            "plugins",
            "plugininstances",
            "volumes",
            "snapshots",
            "volumeclaims",
            "attachments",
            "volumehandles",
        ],
        &["list"],
    ),
    ("events.k8s.io", &["events"], &["list"]),
];
/// What this program needs in moor's namespace.
const OF_USERS_AT_MOORS: &[Grant] = &[
    ("coordination.k8s.io", &["leases"], &["list"]),
    ("", &["pods"], &["list"]),
    ("", &["pods/exec"], &["get", "create"]),
];

/// One right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Right<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    namespace: Option<&'a str>,
}

impl Right<'_> {
    fn attributes(&self) -> ResourceAttributes {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, sub)) => (resource, Some(sub.to_owned())),
            None => (self.resource, None),
        };
        ResourceAttributes {
            verb: Some(self.verb.to_owned()),
            group: Some(self.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            namespace: self.namespace.map(str::to_owned),
            ..ResourceAttributes::default()
        }
    }

    fn words(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let place = self.namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        format!("{} {}{group}{place}", self.verb, self.resource)
    }
}

fn rights<'a>(grants: &'a [Grant], namespace: Option<&'a str>) -> impl Iterator<Item = Right<'a>> {
    grants.iter().flat_map(move |(group, resources, verbs)| {
        resources.iter().flat_map(move |resource| {
            verbs.iter().map(move |verb| Right { verb, group, resource, namespace })
        })
    })
}

/// All checks of this file.
pub async fn check(cluster: &Cluster) -> Vec<Finding> {
    let home = cluster.moor_namespace.as_str();
    let account = |name: &str| format!("system:serviceaccount:{home}:{name}");
    let of_controller: Vec<_> =
        rights(CONTROLLER_EVERYWHERE, None).chain(rights(CONTROLLER_AT_HOME, Some(home))).collect();
    let of_agent: Vec<_> = rights(AGENT_EVERYWHERE, None).chain(rights(AGENT_AT_HOME, Some(home))).collect();
    vec![
        of_user(cluster, home).await,
        of_account(cluster, "controller's rights", &account(CONTROLLER), &of_controller).await,
        of_account(cluster, "agents' rights", &account(AGENT), &of_agent).await,
    ]
}

async fn of_user(cluster: &Cluster, home: &str) -> Finding {
    const WHAT: &str = "your rights";
    let wanted: Vec<_> = rights(OF_USERS, None).chain(rights(OF_USERS_AT_MOORS, Some(home))).collect();
    let review = |right: Right<'_>| {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(right.attributes()),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let client = cluster.client.clone();
        async move {
            let asked = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let reviews = Api::<SelfSubjectAccessReview>::all(client);
            let answer = reviews.create(&PostParams::default(), &asked).await;
            answer.map(|answer| answer.status.is_some_and(|status| status.allowed))
        }
    };
    let missing = match denied(&wanted, review, "SelfSubjectAccessReview").await {
        Err(why) => return Finding::not_checked(WHAT, why),
        Ok(missing) => missing,
    };
    if missing.is_empty() {
        return Finding::ok(WHAT, "all that kubectl moor can need");
    }
    Finding::warning(
        WHAT,
        format!("you may not: {}", named(&missing)),
        "pages say what is not seen. The role moor-view lets you read; pods/exec, which trace needs, is root on the nodes",
    )
}

async fn of_account(cluster: &Cluster, what: &'static str, user: &str, wanted: &[Right<'_>]) -> Finding {
    let namespace = cluster.moor_namespace.as_str();
    let review = |right: Right<'_>| {
        // The groups that every service account is in.
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        let spec = SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            groups: Some(groups.into_iter().chain(["system:authenticated".to_owned()]).collect()),
            resource_attributes: Some(right.attributes()),
            ..SubjectAccessReviewSpec::default()
        };
        let client: Client = cluster.client.clone();
        async move {
            let asked = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            let reviews = Api::<SubjectAccessReview>::all(client);
            let answer = reviews.create(&PostParams::default(), &asked).await;
            answer.map(|answer| answer.status.is_some_and(|status| status.allowed))
        }
    };
    match denied(wanted, review, "SubjectAccessReview").await {
        Err(why) => Finding::not_checked(what, why),
        Ok(missing) if missing.is_empty() => {
            Finding::ok(what, format!("all {} that the chart grants", wanted.len()))
        }
        Ok(missing) => {
            let said =
                format!("{user} may not do {} of {}: {}", missing.len(), wanted.len(), named(&missing));
            Finding::fault(what, said, "upgrade the chart, which brings its roles with it")
        }
    }
}

/// Those that are not granted, in words; or why that cannot be said.
async fn denied<'a, F>(
    wanted: &'a [Right<'a>],
    review: impl Fn(Right<'a>) -> F,
    kind: &str,
) -> Result<Vec<String>, String>
where
    F: Future<Output = Result<bool, kube::Error>>,
{
    let mut answers = stream::iter(wanted.iter().map(|right| {
        let asked = review(*right);
        async move { (*right, asked.await) }
    }))
    .buffered(AT_A_TIME);
    let mut missing = Vec::new();
    while let Some((right, answer)) = answers.next().await {
        let request =
            || Request { verb: "create", kind: kind.to_owned(), subresource: "", object: right.words() };
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(right.words()),
            Err(error) => return Err(ApiError::sort(request(), error).to_string()),
        }
    }
    Ok(missing)
}

#[cfg(test)]
#[path = "rights_tests.rs"]
mod tests;
