//! Events about moor's objects.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::args::EventsOf;
use super::page::Page;
use super::scene::{Scene, Scope};
use super::words::{age, full_name};
use crate::api::conditions::shortened;
use crate::api::{GROUP, Volume, VolumeClaim};

/// So much of a note is shown, in bytes: others than moor may write Events, and as long as they like.
const NOTE: usize = 1024;

/// Namespace of the Events about objects that have none.
const OF_THE_CLUSTER: &str = "default";

/// An object whose Events are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    kind: &'static str,
    namespace: Option<String>,
    name: String,
    /// Of another object of this name that was there before nothing is wanted.
    uid: Option<String>,
}

impl Subject {
    /// Whatever has, or had, this name.
    fn named(kind: &'static str, namespace: Option<&str>, name: &str) -> Self {
        Self { kind, namespace: namespace.map(str::to_owned), name: name.to_owned(), uid: None }
    }

    fn of(kind: &'static str, meta: &ObjectMeta) -> Self {
        let name = meta.name.clone().unwrap_or_default();
        Self { kind, namespace: meta.namespace.clone(), name, uid: meta.uid.clone() }
    }

    fn is(&self, about: &ObjectReference) -> bool {
        let kind_and_name =
            about.kind.as_deref() == Some(self.kind) && about.name.as_deref() == Some(self.name.as_str());
        let namespace = self.namespace.is_none() || about.namespace == self.namespace;
        kind_and_name && namespace && (self.uid.is_none() || about.uid == self.uid)
    }
}

/// The object and what hangs on it. One that is gone may have Events yet, so its name is enough.
pub(super) fn subjects(scene: &Scene, of: &EventsOf, scope: &Scope) -> Vec<Subject> {
    let mut all = Vec::new();
    match of {
        EventsOf::Volume(named) => {
            all.push(Subject::named("Volume", scope.namespace(), &named.name));
            for volume in scene.volumes.iter().filter(|v| v.metadata.name.as_deref() == Some(&named.name)) {
                of_volume(scene, volume, &mut all);
                all.extend(scene.claims_of(volume).map(|claim| Subject::of("VolumeClaim", &claim.metadata)));
                let attached = scene.attachments_of(volume);
                all.extend(attached.map(|attachment| Subject::of("Attachment", &attachment.metadata)));
            }
        }
        EventsOf::Snapshot(named) => all.push(Subject::named("Snapshot", scope.namespace(), &named.name)),
        EventsOf::Claim(named) => {
            all.push(Subject::named("VolumeClaim", scope.namespace(), &named.name));
            for claim in scene.claims.iter().filter(|c| c.metadata.name.as_deref() == Some(&named.name)) {
                of_claim(scene, claim, &mut all);
            }
        }
        EventsOf::Plugin(named) => {
            all.push(Subject::named("Plugin", None, &named.name));
            let instances = scene.instances.iter().filter(|i| i.spec.plugin_name == named.name);
            all.extend(
                instances
                    .map(|instance| Subject::named("PluginInstance", None, &full_name(&instance.metadata))),
            );
        }
    }
    all
}

/// The namespaces in which these objects have their Events. A claim that moor keeps for a Pod is in another one than the Pod.
pub(super) fn namespaces(subjects: &[Subject]) -> BTreeSet<String> {
    let own = |subject: &Subject| subject.namespace.clone().unwrap_or_else(|| OF_THE_CLUSTER.to_owned());
    subjects.iter().map(own).chain([OF_THE_CLUSTER.to_owned()]).collect()
}

fn of_volume(scene: &Scene, volume: &Volume, all: &mut Vec<Subject>) {
    let handle = volume.status.as_ref().and_then(|status| status.handle_name.as_deref());
    all.extend(
        handle
            .and_then(|name| scene.handle(name))
            .map(|handle| Subject::of("VolumeHandle", &handle.metadata)),
    );
    if let Some(made) = &volume.spec.persistent_volume {
        all.push(Subject::named("PersistentVolumeClaim", Some(&made.claim.namespace), &made.claim.name));
        all.push(Subject::named("PersistentVolume", None, &made.name));
    }
}

fn of_claim(scene: &Scene, claim: &VolumeClaim, all: &mut Vec<Subject>) {
    if let Some(pod) = &claim.spec.pod {
        let uid = Some(pod.uid.clone());
        all.push(Subject { uid, ..Subject::named("Pod", Some(&pod.namespace), &pod.name) });
    }
    let attached = scene.attachment_of(claim);
    all.extend(attached.map(|attachment| Subject::of("Attachment", &attachment.metadata)));
    let handle = attached.map(|attachment| attachment.spec.fixed.handle_name.as_str());
    all.extend(
        handle
            .and_then(|name| scene.handle(name))
            .map(|handle| Subject::of("VolumeHandle", &handle.metadata)),
    );
}

/// Whether an Event is about an object of moor's, or told by moor about another one.
fn is_ours(event: &Event) -> bool {
    let about = event.regarding.as_ref().and_then(|about| about.api_version.as_deref());
    let group = about.and_then(|version| version.split_once('/')).map(|(group, _)| group);
    group == Some(GROUP) || by_moor(event).is_some()
}

/// The role of moor that reports an Event.
fn by_moor(event: &Event) -> Option<&str> {
    event.reporting_controller.as_deref()?.strip_prefix(GROUP)?.strip_prefix('/')
}

/// The table, the oldest first. With subjects only the Events about these.
pub(super) fn page(
    (events, unseen): &(Vec<Event>, Vec<String>),
    subjects: Option<&[Subject]>,
    now: Timestamp,
) -> Page {
    let wanted = |event: &&Event| {
        let about = event.regarding.as_ref();
        let is_subject =
            |all: &[Subject]| about.is_some_and(|about| all.iter().any(|subject| subject.is(about)));
        is_ours(event) && subjects.is_none_or(is_subject)
    };
    let mut all: Vec<_> = events.iter().filter(wanted).collect();
    all.sort_by_key(|event| (last(event), event.metadata.name.clone()));
    let row = |event: &&Event| {
        [
            when(event, now),
            event.type_.clone().unwrap_or_default(),
            event.reason.clone().unwrap_or_default(),
            event.regarding.as_ref().map_or_else(String::new, object),
            by(event),
            shortened(event.note.as_deref().unwrap_or_default(), NOTE).to_owned(),
        ]
    };
    let mut page = Page::default();
    if all.is_empty() {
        page.line(0, "There is no Event. The API server forgets them, after an hour if not told otherwise");
    } else {
        let rows: Vec<_> = all.iter().map(row).collect();
        page.table(0, ["LAST", "TYPE", "REASON", "ABOUT", "BY", "NOTE"], &rows);
    }
    page.not_seen(unseen);
    page
}

/// When it was told last.
fn last(event: &Event) -> Option<Timestamp> {
    let of_series = event.series.as_ref().map(|series| series.last_observed_time.0);
    let old = || event.deprecated_last_timestamp.as_ref().map(|at| at.0);
    let made = || event.metadata.creation_timestamp.as_ref().map(|at| at.0);
    of_series.or_else(|| event.event_time.as_ref().map(|at| at.0)).or_else(old).or_else(made)
}

fn when(event: &Event, now: Timestamp) -> String {
    let Some(last) = last(event) else { return String::new() };
    let first = event.event_time.as_ref().map(|at| at.0);
    match (&event.series, first) {
        (Some(series), Some(first)) => {
            format!("{} (x{} over {})", age(now, last), series.count, age(last, first))
        }
        _ => age(now, last),
    }
}

fn object(about: &ObjectReference) -> String {
    let kind = about.kind.as_deref().unwrap_or_default();
    let name = about.name.as_deref().unwrap_or_default();
    let namespace = about.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{kind} {namespace}{name}")
}

fn by(event: &Event) -> String {
    let role = by_moor(event).or(event.reporting_controller.as_deref()).unwrap_or_default();
    match event.reporting_instance.as_deref() {
        Some(instance) if !instance.is_empty() => format!("{role} {instance}"),
        _ => role.to_owned(),
    }
}
