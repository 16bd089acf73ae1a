//! Tables and facts that several pages have.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::page::Page;
use super::super::scene::{Scene, node_of};
use super::super::words::{deleted, full_name, last_said, pod, turned_age, why};
use crate::api::caller::ControllerRef;
use crate::api::conditions::{Condition, UNDONE, find_as};
use crate::api::{Attachment, AttachmentStatus, PluginInstance, VolumeClaim};

/// The conditions of an object that may have no status yet.
pub(super) fn conditions_of<S>(status: Option<&S>, of: impl Fn(&S) -> &Vec<Condition>) -> &[Condition] {
    status.map_or(&[][..], |status| of(status).as_slice())
}

/// A claim's state, and that it is leaving.
pub(super) fn state_of(claim: &VolumeClaim) -> String {
    let state = claim.status.as_ref().map(|status| status.state).unwrap_or_default();
    match claim.metadata.deletion_timestamp {
        Some(_) => format!("{state:?}, leaving"),
        None => format!("{state:?}"),
    }
}

/// Adds a table of claims, if there are any.
pub(super) fn claims<'a>(
    page: &mut Page,
    scene: &Scene,
    heading: &str,
    claims: impl Iterator<Item = &'a VolumeClaim>,
) {
    let row = |claim: &VolumeClaim| {
        let conditions = conditions_of(claim.status.as_ref(), |status| &status.conditions);
        let mode = claim.spec.access_mode.to_string();
        [
            full_name(&claim.metadata),
            claim.spec.volume_name.clone(),
            node_of(claim).unwrap_or("any").to_owned(),
            state_of(claim),
            turned_age(scene.now, &claim.metadata, conditions),
            if claim.spec.read_only { format!("{mode}, read-only") } else { mode },
            why(conditions),
            claim.spec.pod.as_deref().map_or_else(String::new, pod),
        ]
    };
    let rows: Vec<_> = claims.map(row).collect();
    if !rows.is_empty() {
        page.heading(heading);
        let heads = ["CLAIM", "VOLUME", "NODE", "STATE", "SINCE", "MODE", "WHY", "FOR"];
        page.table(2, heads, &rows);
    }
}

/// Adds a table of Attachments, each with what its driver last said.
pub(super) fn attachments<'a>(
    page: &mut Page,
    scene: &Scene,
    attachments: impl Iterator<Item = &'a Attachment>,
) {
    let all: Vec<_> = attachments.collect();
    if all.is_empty() {
        return;
    }
    let row = |attachment: &&Attachment| {
        let (spec, volume) = (&attachment.spec, &attachment.spec.volume);
        let conditions = conditions_of(attachment.status.as_ref(), |status| &status.conditions);
        [
            format!("{}/{}", volume.namespace, volume.name),
            spec.node_name.clone(),
            attachment_state(attachment),
            turned_age(scene.now, &attachment.metadata, conditions),
            by(attachment),
            why(conditions),
        ]
    };
    page.heading("Attachments");
    let rows: Vec<_> = all.iter().map(row).collect();
    page.table(2, ["VOLUME", "NODE", "STATE", "SINCE", "ATTACHED BY", "WHY"], &rows);
    for attachment in all {
        if let Some(said) = said_of(scene, attachment) {
            page.line(4, &format!("on {}: {said}", attachment.spec.node_name));
        }
    }
}

/// An Attachment's state, and whether it ends.
pub(super) fn attachment_state(attachment: &Attachment) -> String {
    let state = attachment.status.as_ref().map(|status| status.state).unwrap_or_default();
    let mut text = format!("{state:?}");
    if let Some(lost) = &attachment.spec.lost {
        text = format!("{text}, node lost ({})", lost.reason);
    }
    if attachment.metadata.deletion_timestamp.is_some() { format!("{text}, closing") } else { text }
}

/// Who attaches.
pub(super) fn by(attachment: &Attachment) -> String {
    let agent = attachment.spec.controller.as_ref().map(|controller| controller.agent.clone());
    agent.unwrap_or_else(|| "nobody: the driver does not attach".into())
}

/// What the driver last said of an Attachment.
pub(super) fn said_of(scene: &Scene, attachment: &Attachment) -> Option<String> {
    let AttachmentStatus { last_error, attempts, next_retry, .. } = attachment.status.as_ref()?;
    last_said(scene.now, last_error.as_deref(), *attempts, next_retry.as_ref())
}

/// The instance that makes an object's calls, and whether its agent is heard.
pub(super) fn caller(scene: &Scene, caller: &ControllerRef) -> String {
    let gone = scene.instance(&caller.instance).is_none() && !scene.instances.is_empty();
    let gone = if gone { ", which is not there any more" } else { "" };
    format!("PluginInstance {}{gone}; {}", caller.instance, scene.heard(&caller.agent))
}

/// Adds what is wrong with an instance, behind the name of its node or its Plugin.
pub(super) fn ills(page: &mut Page, scene: &Scene, instance: &PluginInstance, who: &str) {
    let Some(status) = &instance.status else {
        page.line(4, &format!("{who}: nothing is said of it yet"));
        return;
    };
    if !status.healthy {
        let said = status.last_error.clone().unwrap_or_else(|| why(&status.conditions));
        let lasted = turned_age(scene.now, &instance.metadata, &status.conditions);
        page.line(4, &format!("{who}: not well for {lasted}: {said}"));
    }
    for mount in &status.forgotten {
        let volume = if mount.volume_handle.is_empty() { "a volume" } else { mount.volume_handle.as_str() };
        let claims = if mount.claims.is_empty() { "no claim".into() } else { mount.claims.join(", ") };
        let uid = &mount.attachment_uid;
        page.line(4, &format!("{who}: {volume} is or may be mounted there, of which no object tells ({}; it was for {claims}; Attachment {uid})", mount.reason));
    }
    if !status.forgotten_handles.is_empty() {
        page.line(
            4,
            &format!("{who}: {} more such mounts (status.forgottenHandles)", status.forgotten_handles.len()),
        );
    }
    if let Some(undone) = find_as(&status.conditions, UNDONE, "False") {
        page.line(4, &format!("{who}: {}: {}", undone.reason, undone.message));
    }
    if let Some(kubelet) = status.kubelet.as_ref().filter(|kubelet| !kubelet.registered) {
        let message = kubelet.message.as_deref().unwrap_or("it has not decided yet");
        page.line(4, &format!("{who}: kubelet does not come to moor for {}: {message}", kubelet.driver_name));
    }
}

/// Adds that an object is being deleted.
pub(super) fn leaving(page: &mut Page, scene: &Scene, meta: &ObjectMeta) {
    page.fact_if("Deleted", deleted(scene.now, meta));
}
