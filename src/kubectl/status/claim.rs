//! The page of a VolumeClaim: what it has, or what it waits for.

use super::super::page::Page;
use super::super::scene::{Scene, node_of};
use super::super::words::{age, conditions, full_name, last_said, pod, since, turned};
use super::rows::{attachment_state, by, caller, conditions_of, leaving, said_of};
use crate::api::claim::WaitingFor;
use crate::api::{Attachment, Volume, VolumeClaim, VolumeClaimStatus};

/// Adds the page.
pub(super) fn add(page: &mut Page, scene: &Scene, claim: &VolumeClaim) {
    let now = scene.now;
    let status = claim.status.clone().unwrap_or_default();
    page.heading(&format!("VolumeClaim {}", full_name(&claim.metadata)));
    page.fact("Volume", &volume(scene, claim));
    page.fact("Asks for", &asks(claim));
    page.fact_if("Made for", claim.spec.pod.as_deref().map(pod));
    let conditions_now = conditions_of(claim.status.as_ref(), |status| &status.conditions);
    let lasted = turned(&claim.metadata, conditions_now).map(|at| format!(" {}", since(now, at)));
    page.fact("State", &format!("{:?}{}", status.state, lasted.unwrap_or_default()));
    leaving(page, scene, &claim.metadata);
    if claim.spec.force_detach {
        page.fact("Forced", "spec.forceDetach is set");
    }
    page.fact_if("Waits for", status.waiting_for.as_ref().map(|holder| waits_for(scene, claim, holder)));
    if let Some(assignment) = &claim.spec.assignment {
        page.fact("Node", &format!("{}; {}", assignment.node_name, scene.heard(&assignment.node_name)));
    }
    page.fact_if("Mounted at", status.target_path.clone());
    match (scene.attachment_of(claim), &claim.spec.assignment) {
        (Some(attachment), _) => of_attachment(page, scene, attachment),
        (None, Some(assignment)) => {
            let missing = scene.missing::<Attachment>();
            page.fact("Attachment", &format!("{}, {missing}", assignment.attachment));
        }
        (None, None) => {}
    }
    page.fact_if("Last said", said(scene, &status));
    conditions(page, now, "VolumeClaim", conditions_now);
}

fn volume(scene: &Scene, claim: &VolumeClaim) -> String {
    let name = &claim.spec.volume_name;
    let Some(volume) = scene.volume_of(claim) else {
        return format!("{name}, {}", scene.missing::<Volume>());
    };
    let handle = volume.status.as_ref().and_then(|status| status.volume_handle.as_deref());
    let handle = handle.map(|handle| format!(" (handle {handle})")).unwrap_or_default();
    format!("{name} of Plugin {}, {:?}{handle}", volume.spec.plugin_name, volume.state())
}

fn asks(claim: &VolumeClaim) -> String {
    let spec = &claim.spec;
    let place = match (&spec.node_name, spec.node_selector.is_empty()) {
        (Some(node), _) => format!("node {node}"),
        (None, true) => "any node".into(),
        (None, false) => {
            let labels: Vec<_> =
                spec.node_selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("a node with {}", labels.join(", "))
        }
    };
    let read_only = if spec.read_only { ", read-only" } else { "" };
    format!("{place}, {}, {}{read_only}", spec.access_mode, spec.attachment_mode)
}

/// The claim that is in the way of this one. What was written of it has its name and no UID: one of that name is another one if it
/// is of another Volume, on another node, or was made after the moment since which the holder has the volume, or is before this one
/// in the line.
fn holder<'a>(scene: &'a Scene, claim: &VolumeClaim, waiting: &WaitingFor) -> Option<&'a VolumeClaim> {
    let made = |claim: &VolumeClaim| claim.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let latest = waiting.since.as_ref().map(|at| at.0).or_else(|| made(claim));
    scene.claims.iter().find(|other| {
        full_name(&other.metadata) == waiting.holder
            && other.spec.volume_name == claim.spec.volume_name
            && made(other) <= latest
            && waiting.node_name.as_deref().is_none_or(|node| node_of(other) == Some(node))
    })
}

/// Who is in the way. The holder's own claim says more than what was written of it, where it can be seen.
fn waits_for(scene: &Scene, claim: &VolumeClaim, waiting: &WaitingFor) -> String {
    let holder = holder(scene, claim, waiting);
    let is_unheard = |node: &&str| scene.agents.is_some() && scene.is_silent(node) != Some(false);
    let silent = waiting.node_name.as_deref().filter(is_unheard);
    let deleted = holder.and_then(|holder| holder.metadata.deletion_timestamp.as_ref());
    let parts = [
        Some(waiting.holder.clone()),
        waiting.node_name.as_ref().map(|node| format!(" on node {node}")),
        waiting.state.as_ref().map(|state| format!(" ({state})")),
        waiting.since.as_ref().map(|at| format!(", which has it {}", since(scene.now, at.0))),
        holder.and_then(|holder| holder.spec.pod.as_ref()).map(|of| format!("; it is that of {}", pod(of))),
        deleted.map(|at| format!("; it was deleted {} ago", age(scene.now, at.0))),
        silent.map(|node| format!("; {}", scene.heard(node))),
    ];
    parts.into_iter().flatten().collect()
}

fn of_attachment(page: &mut Page, scene: &Scene, attachment: &Attachment) {
    let name = full_name(&attachment.metadata);
    let now = conditions_of(attachment.status.as_ref(), |status| &status.conditions);
    let lasted = turned(&attachment.metadata, now).map(|at| format!(" {}", since(scene.now, at)));
    let state = attachment_state(attachment);
    page.fact("Attachment", &format!("{name}: {state}{}", lasted.unwrap_or_default()));
    match &attachment.spec.controller {
        Some(controller) => page.fact("Attached by", &caller(scene, controller)),
        None => page.fact("Attached by", &by(attachment)),
    }
    page.fact_if("It last said", said_of(scene, attachment));
}

fn said(scene: &Scene, status: &VolumeClaimStatus) -> Option<String> {
    let VolumeClaimStatus { last_error, attempts, next_retry, .. } = status;
    last_said(scene.now, last_error.as_deref(), *attempts, next_retry.as_ref())
}
