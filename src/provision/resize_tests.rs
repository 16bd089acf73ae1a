use serde_json::{Value, json};

use super::*;

const GI: i64 = 1 << 30;

/// A claim that asks for so many Gi and has so many, with further fields of its status.
fn claim(asks: i64, has: i64, status: &Value) -> PersistentVolumeClaim {
    let mut all = json!({ "phase": "Bound", "capacity": { "storage": format!("{has}Gi") } });
    all.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": { "name": "c", "namespace": "n", "uid": "u" },
        "spec": { "volumeName": "pv", "resources": { "requests": { "storage": format!("{asks}Gi") } } },
        "status": all,
    }))
    .unwrap()
}

fn said(word: &str, allocated: i64) -> Value {
    json!({ "allocatedResources": { "storage": format!("{allocated}Gi") },
            "allocatedResourceStatuses": { "storage": word } })
}

fn persistent(capacity: i64) -> PersistentVolume {
    serde_json::from_value(json!({
        "metadata": { "name": "pv", "uid": "pv-uid" },
        "spec": { "capacity": { "storage": format!("{capacity}Gi") }, "claimRef": { "uid": "u" } },
    }))
    .unwrap()
}

/// A Volume that is to have so many Gi and has so many.
fn volume(asked: i64, made: i64) -> Volume {
    serde_json::from_value(json!({
        "metadata": { "name": "pvc-u", "namespace": "moor", "uid": "v", "generation": 3 },
        "spec": { "pluginName": "p", "capacity": format!("{asked}Gi") },
        "status": { "state": "Ready", "capacityBytes": made * GI },
    }))
    .unwrap()
}

/// As after an answer of ControllerExpandVolume.
fn grown(gi: i64, by_node: bool) -> Volume {
    let mut grown = volume(gi, gi);
    grown.status.as_mut().unwrap().expansion =
        Some(crate::api::volume::Expansion { capacity_bytes: gi * GI, node_expansion_required: by_node });
    grown
}

fn failed(mut volume: Volume, reason: &str, code: &str) -> Volume {
    let status = volume.status.as_mut().unwrap();
    let condition = json!({ "type": "Expanded", "status": "False", "reason": reason, "message": "waits",
        "observedGeneration": 3, "lastTransitionTime": "2025-01-01T00:00:00Z" });
    status.conditions = vec![serde_json::from_value(condition).unwrap()];
    let error = json!({ "rpc": "ControllerExpandVolume", "code": code, "message": "no" });
    let capacity_bytes = quantity::bytes(volume.spec.capacity.as_ref().unwrap()).unwrap();
    let failure = json!({ "capacityBytes": capacity_bytes, "error": error });
    status.expansion_failure = Some(serde_json::from_value(failure).unwrap());
    volume
}

fn words(code: &str) -> String {
    format!("ControllerExpandVolume: {code}: no")
}

/// What a row sees, and what comes of it.
struct Row {
    claim: (i64, i64, Value),
    capacity: i64,
    volume: Volume,
    is: Resize,
}

fn row(claim: (i64, i64, Value), capacity: i64, volume: Volume, is: Resize) -> Row {
    Row { claim, capacity, volume, is }
}

fn check(rows: Vec<Row>) {
    for (n, Row { claim: (asks, has, status), capacity, volume, is }) in rows.into_iter().enumerate() {
        let claim = claim(asks, has, &status);
        assert_eq!(resize(&claim, &persistent(capacity), &volume), is, "row {n}");
    }
}

#[test]
fn a_claim_grows_step_by_step() {
    let begun = || said(IN_PROGRESS, 2);
    check(vec![
        row((1, 1, json!({})), 1, volume(1, 1), Resize::Nothing),
        row((2, 1, json!({})), 1, volume(1, 1), Resize::Say(Said::InProgress(2 * GI))),
        row((2, 1, begun()), 1, volume(1, 1), Resize::Ask(2 * GI)),
        row((2, 1, begun()), 1, volume(2, 1), Resize::Wait(None)),
        row((2, 1, begun()), 1, grown(2, true), Resize::Enlarge(2 * GI)),
        row((2, 1, begun()), 2, grown(2, true), Resize::Say(Said::OnNode)),
        row((2, 1, said(NODE_PENDING, 2)), 2, grown(2, true), Resize::Nothing),
        row((2, 1, said(NODE_IN_PROGRESS, 2)), 2, grown(2, true), Resize::Nothing),
        row((2, 1, begun()), 2, grown(2, false), Resize::Say(Said::Done(2 * GI))),
        row(
            (2, 2, json!({ "allocatedResources": { "storage": "2Gi" } })),
            2,
            grown(2, false),
            Resize::Nothing,
        ),
        // Again, after the first time.
        row(
            (3, 2, json!({ "allocatedResources": { "storage": "2Gi" } })),
            2,
            grown(2, false),
            Resize::Say(Said::InProgress(3 * GI)),
        ),
        // The driver has made more than was asked for, at first and now.
        row((2, 1, begun()), 1, grown(4, false), Resize::Enlarge(4 * GI)),
        row((2, 1, begun()), 4, grown(4, false), Resize::Say(Said::Done(4 * GI))),
    ]);
}

#[test]
fn what_was_begun_ends_before_another_size_is_asked_for() {
    let uncertain = || failed(volume(2, 1), "ExpandVolumeFailed", "DeadlineExceeded");
    check(vec![
        row((5, 1, said(IN_PROGRESS, 2)), 1, volume(2, 1), Resize::Wait(None)),
        row((5, 1, said(IN_PROGRESS, 2)), 1, uncertain(), Resize::Wait(Some(words("DeadlineExceeded")))),
        row((5, 1, said(NODE_PENDING, 2)), 2, grown(2, true), Resize::Nothing),
        row((5, 2, json!({})), 2, grown(2, true), Resize::Say(Said::InProgress(5 * GI))),
        // A plugin that is not there says nothing of the call before.
        row(
            (5, 1, said(IN_PROGRESS, 2)),
            1,
            failed(volume(2, 1), "ExpandVolumeFailed", "PluginNotRunning"),
            Resize::Wait(Some(words("PluginNotRunning"))),
        ),
    ]);
}

#[test]
fn a_size_that_cannot_be_had_may_be_lowered() {
    let full = || failed(volume(9, 1), "ExpandVolumeFailed", "OutOfRange");
    let infeasible = |allocated| said(INFEASIBLE, allocated);
    check(vec![
        row((9, 1, said(IN_PROGRESS, 9)), 1, full(), Resize::Say(Said::Infeasible(words("OutOfRange")))),
        row((2, 1, said(IN_PROGRESS, 9)), 1, full(), Resize::Say(Said::InProgress(2 * GI))),
        row((2, 1, infeasible(9)), 1, full(), Resize::Say(Said::InProgress(2 * GI))),
        // What the Volume says is of the size before.
        row((2, 1, said(IN_PROGRESS, 2)), 1, full(), Resize::Ask(2 * GI)),
        row(
            (2, 1, said(IN_PROGRESS, 9)),
            1,
            failed(volume(9, 1), "ExpandVolumeFailed", "Aborted"),
            Resize::Wait(Some(words("Aborted"))),
        ),
    ]);
    // Another order in between changes nothing about it; what was said of another size says nothing of this one.
    let (mut later, mut stale) = (full(), full());
    later.metadata.generation = Some(4);
    stale.status.as_mut().unwrap().expansion_failure.as_mut().unwrap().capacity_bytes = 5 * GI;
    check(vec![
        row((9, 1, said(IN_PROGRESS, 9)), 1, later, Resize::Say(Said::Infeasible(words("OutOfRange")))),
        row((9, 1, said(IN_PROGRESS, 9)), 1, stale.clone(), Resize::Wait(None)),
        row((2, 1, said(IN_PROGRESS, 9)), 1, stale, Resize::Wait(None)),
    ]);
    // The claim says it once, and the words stay until they are others.
    let mut refused = claim(9, 1, &said(IN_PROGRESS, 9));
    refused.status = status(&refused, &Said::Infeasible(words("OutOfRange")), None);
    let again = resize(&refused, &persistent(1), &full());
    assert_eq!(again, Resize::Wait(Some(words("OutOfRange"))));
}

#[test]
fn a_driver_that_wants_it_unused_or_cannot_at_all_is_told_of() {
    let unused = failed(volume(2, 1), "ExpandsUnused", "FailedPrecondition");
    let never = failed(volume(2, 1), "CannotExpand", "");
    check(vec![
        row((2, 1, said(IN_PROGRESS, 2)), 1, unused, Resize::Say(Said::Failing("waits".into()))),
        row((2, 1, said(IN_PROGRESS, 2)), 1, never, Resize::Say(Said::Infeasible("waits".into()))),
        row(
            (2, 1, said(IN_PROGRESS, 2)),
            1,
            failed(volume(2, 1), "ExpandVolumeFailed", "FailedPrecondition"),
            Resize::Say(Said::Failing(words("FailedPrecondition"))),
        ),
    ]);
}

#[test]
fn what_fails_on_a_node_is_tried_there_again() {
    // Grown by nodes alone, so that less may be asked for: nothing has been done.
    let mut by_nodes = volume(4, 1);
    by_nodes.status.as_mut().unwrap().expansion = grown(4, true).status.unwrap().expansion;
    check(vec![
        row((4, 1, said(NODE_INFEASIBLE, 4)), 4, grown(4, true), Resize::Say(Said::OnNode)),
        row((2, 1, said(NODE_INFEASIBLE, 4)), 4, grown(4, true), Resize::Say(Said::OnNode)),
        row((2, 1, said(NODE_INFEASIBLE, 4)), 4, by_nodes.clone(), Resize::Say(Said::InProgress(2 * GI))),
        row((2, 1, said(IN_PROGRESS, 2)), 4, by_nodes, Resize::Ask(2 * GI)),
    ]);
}

#[test]
fn nothing_is_done_for_what_is_not_bound_or_goes() {
    let asks = || claim(2, 1, &json!({}));
    let begins = Resize::Say(Said::InProgress(2 * GI));
    assert_eq!(resize(&asks(), &persistent(1), &volume(1, 1)), begins);
    let mut another = persistent(1);
    another.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some("x".into());
    assert_eq!(resize(&asks(), &another, &volume(1, 1)), Resize::Nothing);
    let mut pending = asks();
    pending.status.as_mut().unwrap().phase = Some("Pending".into());
    assert_eq!(resize(&pending, &persistent(1), &volume(1, 1)), Resize::Nothing);
    let mut going = asks();
    going.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(resize(&going, &persistent(1), &volume(1, 1)), Resize::Nothing);
    let mut early = volume(1, 1);
    early.status.as_mut().unwrap().state = VolumeState::Created;
    assert_eq!(resize(&asks(), &persistent(1), &early), Resize::Wait(None));
}

#[test]
fn a_claim_says_what_kubelet_reads() {
    let now = Time(jiff::Timestamp::UNIX_EPOCH);
    let after = |claim: &PersistentVolumeClaim, said: &Said| {
        let mut claim = claim.clone();
        claim.status = status(&claim, said, Some(&now));
        claim
    };
    let shown = |claim: &PersistentVolumeClaim| serde_json::to_value(claim.status.as_ref().unwrap()).unwrap();
    let types = |claim: &PersistentVolumeClaim| -> Vec<String> {
        claim.status.iter().flat_map(|s| s.conditions.iter().flatten()).map(|c| c.type_.clone()).collect()
    };
    let mut asks = claim(2, 1, &json!({}));
    asks.status.as_mut().unwrap().conditions =
        Some(vec![PersistentVolumeClaimCondition { type_: "Mine".into(), ..Default::default() }]);
    let begun = after(&asks, &Said::InProgress(2 * GI));
    assert_eq!(shown(&begun)["allocatedResources"], json!({ "storage": "2Gi" }));
    assert_eq!(shown(&begun)["allocatedResourceStatuses"], json!({ "storage": IN_PROGRESS }));
    assert_eq!(types(&begun), ["Mine", RESIZING]);
    let failing = after(&begun, &Said::Failing("words".into()));
    assert_eq!(types(&failing), ["Mine", RESIZING, ERROR]);
    let infeasible = after(&failing, &Said::Infeasible("others".into()));
    assert_eq!(shown(&infeasible)["allocatedResourceStatuses"], json!({ "storage": INFEASIBLE }));
    assert_eq!(shown(&infeasible)["conditions"][2]["message"], "others");
    let on_node = after(&infeasible, &Said::OnNode);
    assert_eq!(shown(&on_node)["allocatedResourceStatuses"], json!({ "storage": NODE_PENDING }));
    assert_eq!(types(&on_node), ["Mine", FILE_SYSTEM_PENDING]);
    let done = after(&on_node, &Said::Done(2 * GI));
    assert_eq!(shown(&done)["capacity"], json!({ "storage": "2Gi" }));
    assert_eq!(shown(&done)["allocatedResources"], json!({ "storage": "2Gi" }), "it stays");
    assert!(shown(&done).get("allocatedResourceStatuses").is_none());
    assert_eq!(types(&done), ["Mine"]);
}
