use serde_json::{Value, json};

use super::*;
use crate::api::conditions::CallFailure;

fn tier(tier: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("tier".to_owned(), tier.to_owned())])
}

/// A claim that names one class and has another, with what it says of a modification.
fn claim(asks: Option<&str>, has: Option<&str>, says: Option<(&str, &str)>) -> PersistentVolumeClaim {
    let says = says.map(|(word, of)| json!({ "status": word, "targetVolumeAttributesClassName": of }));
    serde_json::from_value(json!({
        "metadata": { "name": "c", "namespace": "n", "uid": "u" },
        "spec": { "volumeName": "pv", "volumeAttributesClassName": asks },
        "status": { "phase": "Bound", "currentVolumeAttributesClassName": has, "modifyVolumeStatus": says },
    }))
    .unwrap()
}

fn persistent(class: Option<&str>) -> PersistentVolume {
    serde_json::from_value(json!({
        "metadata": { "name": "pv", "uid": "pv-uid" },
        "spec": { "volumeAttributesClassName": class, "claimRef": { "uid": "u" } },
    }))
    .unwrap()
}

/// A Volume that is to have what the class of the one name says and has what that of the other says.
fn volume(asked: Option<&str>, has: Option<&str>) -> Volume {
    serde_json::from_value(json!({
        "metadata": { "name": "pvc-u", "namespace": "moor", "uid": "v", "generation": 3 },
        "spec": { "pluginName": "p", "capacity": "1Gi", "mutableParameters": asked.map(tier).unwrap_or_default() },
        "status": { "state": "Ready", "mutableParameters": has.map(tier).unwrap_or_default() },
    }))
    .unwrap()
}

/// The same, after an answer to a call for `of`.
fn failed(mut volume: Volume, of: &str, code: &str, outcome_unknown: bool) -> Volume {
    let error = CallFailure { rpc: modification::CALL.into(), code: code.into(), message: "no".into() };
    modification::failed(volume.status.as_mut().unwrap(), &tier(of), error, outcome_unknown);
    volume.status.as_mut().unwrap().mutable_parameters.clear();
    volume
}

fn words(code: &str) -> String {
    format!("ControllerModifyVolume: {code}: no")
}

/// The class of a name, of this driver unless it says another.
fn class(name: &str) -> Option<VolumeAttributesClass> {
    let driver = if name == "theirs" { "other" } else { "d" };
    let class = json!({ "metadata": { "name": name }, "driverName": driver, "parameters": { "tier": name } });
    (name != "absent").then(|| serde_json::from_value(class).unwrap())
}

/// What is done: the class is looked up as it is asked for.
fn plan(claim: &PersistentVolumeClaim, named: Option<&str>, volume: &Volume) -> Modify {
    let persistent = persistent(named);
    let seen = Claimed { claim, persistent: &persistent, volume, driver: "d", modifies: true };
    modify(&seen, target(claim, volume).and_then(class).as_ref())
}

#[test]
fn a_claim_is_made_like_its_class_step_by_step() {
    let (none, asks) = (claim(None, None, None), claim(Some("gold"), None, None));
    assert_eq!(plan(&none, None, &volume(None, None)), Modify::Nothing);
    assert_eq!(plan(&asks, None, &volume(None, None)), Modify::Say(Said::InProgress("gold".into())));
    let begun = claim(Some("gold"), None, Some(("InProgress", "gold")));
    assert_eq!(plan(&begun, None, &volume(None, None)), Modify::Ask(tier("gold")));
    assert_eq!(plan(&begun, None, &volume(Some("gold"), None)), Modify::Wait(None));
    let followed = volume(Some("gold"), Some("gold"));
    assert_eq!(plan(&begun, None, &followed), Modify::Name("gold".into()));
    assert_eq!(plan(&begun, Some("gold"), &followed), Modify::Say(Said::Done("gold".into())));
    let done = claim(Some("gold"), Some("gold"), None);
    assert_eq!(plan(&done, Some("gold"), &followed), Modify::Nothing);
}

#[test]
fn one_that_is_not_bound_or_ready_waits() {
    let mut pending = claim(Some("gold"), None, None);
    pending.status.as_mut().unwrap().phase = Some("Pending".into());
    assert_eq!(plan(&pending, None, &volume(None, None)), Modify::Nothing);
    let mut made = volume(None, None);
    made.status.as_mut().unwrap().state = VolumeState::Created;
    let asks = claim(Some("gold"), None, None);
    assert_eq!(plan(&asks, None, &made), Modify::Wait(None));
    let mut deleted = volume(None, None);
    deleted.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(plan(&asks, None, &deleted), Modify::Nothing);
}

fn pending(step: &Modify, class: &str, why: &str) {
    let Modify::Say(Said::Pending(of, words)) = step else { panic!("{step:?}") };
    assert!(of == class && words.contains(why), "{step:?}");
}

#[test]
fn a_class_of_no_use_is_waited_for() {
    let at = volume(Some("gold"), Some("gold"));
    let asks = |class| claim(Some(class), Some("gold"), None);
    pending(&plan(&asks("absent"), Some("gold"), &at), "absent", "does not exist");
    let theirs = plan(&asks("theirs"), Some("gold"), &at);
    let Modify::Say(Said::Infeasible(of, why)) = &theirs else { panic!("{theirs:?}") };
    assert!(of == "theirs" && why.contains("for the driver other"), "{theirs:?}");
    let (silver, persistent) = (asks("silver"), persistent(Some("gold")));
    let seen = Claimed { claim: &silver, persistent: &persistent, volume: &at, driver: "d", modifies: false };
    pending(&modify(&seen, class("silver").as_ref()), "silver", "MODIFY_VOLUME");
    // It says so already.
    let said = claim(Some("absent"), Some("gold"), Some(("Pending", "absent")));
    assert!(matches!(plan(&said, Some("gold"), &at), Modify::Wait(Some(_))));
    // By now there is one.
    let there = claim(Some("silver"), Some("gold"), Some(("Pending", "silver")));
    assert_eq!(plan(&there, Some("gold"), &at), Modify::Say(Said::InProgress("silver".into())));
}

#[test]
fn a_class_with_more_than_a_driver_can_be_given_is_infeasible() {
    let (asks, at) = (claim(Some("large"), Some("gold"), None), volume(Some("gold"), Some("gold")));
    let plan = |parameters: BTreeMap<String, String>| {
        let large = VolumeAttributesClass { parameters: Some(parameters), ..class("large").unwrap() };
        let persistent = persistent(Some("gold"));
        let seen =
            Claimed { claim: &asks, persistent: &persistent, volume: &at, driver: "d", modifies: true };
        modify(&seen, Some(&large))
    };
    let keys = |count: usize| (0..count).map(|n| (format!("key{n}"), String::new())).collect();
    let bytes = |count: usize| BTreeMap::from([("k".to_owned(), "v".repeat(count - 1))]);
    for (parameters, why) in [(keys(65), "65 parameters"), (bytes(4097), "4097 bytes")] {
        let step = plan(parameters);
        let Modify::Say(Said::Infeasible(of, words)) = &step else { panic!("{step:?}") };
        assert!(of == "large" && words.contains(why), "{step:?}");
    }
    for parameters in [keys(64), bytes(4096)] {
        assert_eq!(plan(parameters), Modify::Say(Said::InProgress("large".into())));
    }
}

#[test]
fn only_an_invalid_argument_is_infeasible() {
    let begun = claim(Some("gold"), None, Some(("InProgress", "gold")));
    let after =
        |code, unknown| plan(&begun, None, &failed(volume(Some("gold"), None), "gold", code, unknown));
    let never = Said::Infeasible("gold".into(), words("InvalidArgument"));
    assert_eq!(after("InvalidArgument", false), Modify::Say(never.clone()));
    for code in ["NotFound", "OutOfRange", "Internal", "SecretNotFound"] {
        assert_eq!(after(code, false), Modify::Say(Said::Failing(words(code))));
    }
    assert_eq!(after("Unavailable", true), Modify::Say(Said::Failing(words("Unavailable"))));
    // It is tried again slowly, and the claim stays as it is.
    let mut infeasible = begun.clone();
    infeasible.status = status(&begun, &never, None);
    let refused = failed(volume(Some("gold"), None), "gold", "InvalidArgument", false);
    assert_eq!(plan(&infeasible, None, &refused), Modify::Wait(Some(words("InvalidArgument"))));
    // A class of the same name that says something else.
    let other = failed(volume(Some("lead"), None), "lead", "InvalidArgument", false);
    assert_eq!(plan(&infeasible, None, &other), Modify::Say(Said::InProgress("gold".into())));
}

#[test]
fn a_change_of_mind_goes_to_the_newest_class_unless_one_may_be_followed() {
    let asks = |word| claim(Some("silver"), Some("lead"), Some((word, "gold")));
    let newest = || Modify::Say(Said::InProgress("silver".into()));
    let refused = || failed(volume(Some("gold"), None), "gold", "InvalidArgument", false);
    assert_eq!(plan(&asks("Infeasible"), Some("lead"), &refused()), newest());
    assert_eq!(plan(&asks("Pending"), Some("lead"), &volume(Some("lead"), Some("lead"))), newest());
    assert_eq!(
        plan(&asks("InProgress"), Some("lead"), &volume(Some("gold"), Some("lead"))),
        newest(),
        "not begun"
    );
    let open = || failed(volume(Some("gold"), None), "gold", "Unavailable", true);
    assert_eq!(
        plan(&asks("InProgress"), Some("lead"), &open()),
        Modify::Say(Said::Failing(words("Unavailable")))
    );
    assert_eq!(
        plan(&asks("InProgress"), Some("gold"), &volume(Some("gold"), Some("gold"))),
        newest(),
        "it has ended"
    );
    // The class of what may be followed is gone: it goes on without.
    let gone = claim(Some("silver"), None, Some(("InProgress", "absent")));
    assert!(matches!(plan(&gone, None, &open()), Modify::Wait(Some(_))));
}

/// A leader that has died may have asked for gold, and the write is under way still. It lands on the Volume as it was.
#[test]
fn before_a_class_that_was_begun_is_left_the_volume_is_written() {
    let at = |version: &str, mut claim: PersistentVolumeClaim| {
        claim.metadata.resource_version = Some(version.into());
        claim
    };
    let back = |version| at(version, claim(Some("silver"), Some("silver"), Some(("InProgress", "gold"))));
    let mut as_before = volume(Some("silver"), Some("silver"));
    assert_eq!(plan(&back("7"), Some("silver"), &as_before), Modify::Leave("7".into()));
    as_before.metadata.annotations = Some([(LEFT_AT.to_owned(), "7".to_owned())].into());
    assert_eq!(plan(&back("7"), Some("silver"), &as_before), Modify::Say(Said::InProgress("silver".into())));
    assert_eq!(
        plan(&back("9"), Some("silver"), &as_before),
        Modify::Leave("9".into()),
        "gold was begun anew"
    );

    let none = at("7", claim(None, None, Some(("InProgress", "gold"))));
    let mut as_before = volume(None, None);
    assert_eq!(plan(&none, None, &as_before), Modify::Leave("7".into()));
    as_before.metadata.annotations = Some([(LEFT_AT.to_owned(), "7".to_owned())].into());
    assert_eq!(plan(&none, None, &as_before), Modify::Say(Said::Cancelled));
}

#[test]
fn whoever_goes_back_has_the_driver_asked_for_what_it_had() {
    let back = |word, of| claim(Some("gold"), Some("gold"), Some((word, of)));
    let refused = || failed(volume(Some("bad"), None), "bad", "InvalidArgument", false);
    assert_eq!(
        plan(&back("Infeasible", "bad"), Some("gold"), &refused()),
        Modify::Say(Said::InProgress("gold".into()))
    );
    assert_eq!(plan(&back("InProgress", "gold"), Some("gold"), &refused()), Modify::Ask(tier("gold")));
    // It was not begun.
    let untouched = volume(Some("gold"), Some("gold"));
    assert_eq!(
        plan(&back("InProgress", "gold"), Some("gold"), &untouched),
        Modify::Say(Said::Done("gold".into()))
    );
}

#[test]
fn a_claim_that_had_no_class_may_name_none_again() {
    let refused = || failed(volume(Some("bad"), None), "bad", "InvalidArgument", false);
    for asks in [None, Some("")] {
        let back = claim(asks, None, Some(("Infeasible", "bad")));
        assert_eq!(plan(&back, None, &refused()), Modify::Ask(BTreeMap::new()));
        assert_eq!(plan(&back, None, &volume(None, None)), Modify::Say(Said::Cancelled));
    }
    let open = failed(volume(Some("gold"), None), "gold", "Unavailable", true);
    let begun = claim(None, None, Some(("InProgress", "gold")));
    assert_eq!(
        plan(&begun, None, &open),
        Modify::Say(Said::Failing(words("Unavailable"))),
        "it may be followed"
    );
}

/// The claim says what it has got, so that nobody looks for its class in vain.
/// The same Volume, asked for what it is asked for by the claim with this UID.
fn asked_by(mut volume: Volume, uid: &str) -> Volume {
    volume.metadata.annotations.get_or_insert_default().insert(MODIFIED_FOR.into(), uid.into());
    volume
}

/// The agent tries slowly what the driver calls infeasible, and may be at it when the claim names none any more.
#[test]
fn what_was_infeasible_and_is_tried_again_ends_first() {
    let mut begun = volume(Some("bad"), None);
    modification::begins(begun.status.as_mut().unwrap(), &tier("bad"));
    for asks in [None, Some("gold")] {
        let refused = claim(asks, None, Some(("Infeasible", "bad")));
        assert_eq!(target(&refused, &begun), Some("bad"));
        assert_eq!(plan(&refused, None, &begun), Modify::Wait(None));
    }
    let settled = failed(volume(Some("bad"), None), "bad", "InvalidArgument", false);
    let none = claim(None, None, Some(("Infeasible", "bad")));
    assert_eq!(plan(&none, None, &settled), Modify::Ask(BTreeMap::new()));
}

#[test]
fn a_claim_that_names_none_when_the_driver_has_followed_has_the_class() {
    let none = claim(None, None, Some(("InProgress", "gold")));
    let followed = asked_by(volume(Some("gold"), Some("gold")), "u");
    assert_eq!(plan(&none, None, &followed), Modify::Name("gold".into()));
    assert_eq!(plan(&none, Some("gold"), &followed), Modify::Say(Said::Done("gold".into())));
    let of_another = asked_by(volume(Some("silver"), Some("silver")), "other");
    assert_eq!(plan(&none, None, &of_another), Modify::Ask(BTreeMap::new()));
}

/// Else the driver follows it later, and no claim names it.
#[test]
fn what_the_claim_named_before_a_class_of_no_use_is_not_asked_for_any_more() {
    let asks = claim(Some("absent"), Some("gold"), Some(("InProgress", "silver")));
    let ordered = asked_by(volume(Some("silver"), Some("gold")), "u");
    assert_eq!(plan(&asks, Some("gold"), &ordered), Modify::Ask(tier("gold")));
    let refused = failed(volume(Some("silver"), Some("gold")), "silver", "Internal", false);
    assert_eq!(plan(&asks, Some("gold"), &asked_by(refused, "u")), Modify::Ask(BTreeMap::new()));
    pending(&plan(&asks, Some("gold"), &asked_by(ordered, "other")), "absent", "does not exist");
}

/// Else each has the driver asked as soon as the other one has, for ever.
#[test]
fn claims_of_one_storage_are_followed_one_after_the_other() {
    let mine = claim(Some("gold"), None, Some(("InProgress", "gold")));
    let theirs = asked_by(volume(Some("silver"), None), "other");
    let Modify::Wait(Some(words)) = plan(&mine, None, &theirs) else { panic!("asks over it") };
    assert!(words.contains("same storage"), "{words}");
    let followed = asked_by(volume(Some("silver"), Some("silver")), "other");
    assert_eq!(plan(&mine, None, &followed), Modify::Ask(tier("gold")));
    assert_eq!(plan(&mine, Some("gold"), &followed), Modify::Say(Said::Done("gold".into())));
    let own = asked_by(volume(Some("silver"), None), "u");
    assert_eq!(plan(&mine, None, &own), Modify::Ask(tier("gold")), "it has changed its mind");
}

#[test]
fn a_claim_that_names_none_when_it_is_done_has_the_class() {
    let late = claim(None, None, Some(("InProgress", "gold")));
    let followed = volume(Some("gold"), Some("gold"));
    assert_eq!(plan(&late, Some("gold"), &followed), Modify::Say(Said::Done("gold".into())));
    assert_eq!(plan(&late, None, &followed), Modify::Ask(BTreeMap::new()), "the PersistentVolume has none");
    let done = claim(None, Some("gold"), None);
    assert_eq!(plan(&done, Some("gold"), &followed), Modify::Nothing);
}

fn types(claim: &PersistentVolumeClaim) -> Vec<String> {
    let conditions = claim.status.as_ref().unwrap().conditions.clone().unwrap_or_default();
    conditions.into_iter().map(|condition| condition.type_).collect()
}

#[test]
fn the_words_on_the_claim_are_the_stock_resizers() {
    let mut before = claim(Some("gold"), Some("lead"), None);
    let other = json!([{ "type": "Resizing", "status": "True" }]);
    before.status.as_mut().unwrap().conditions = serde_json::from_value(other).unwrap();
    let say = |claim: &PersistentVolumeClaim, said: Said| {
        let after = status(claim, &said, None);
        PersistentVolumeClaim { status: after, ..claim.clone() }
    };
    let of = |claim: &PersistentVolumeClaim| -> Value {
        serde_json::to_value(claim.status.as_ref().unwrap().modify_volume_status.as_ref()).unwrap()
    };
    let waits = say(&before, Said::Pending("gold".into(), "no".into()));
    assert_eq!(of(&waits), json!({ "status": "Pending", "targetVolumeAttributesClassName": "gold" }));
    assert_eq!(types(&waits), ["Resizing"]);
    let begun = say(&waits, Said::InProgress("gold".into()));
    assert_eq!(of(&begun), json!({ "status": "InProgress", "targetVolumeAttributesClassName": "gold" }));
    assert_eq!(types(&begun), ["Resizing", "ModifyingVolume"]);
    let fails = say(&begun, Said::Failing("no".into()));
    assert_eq!(
        (of(&fails), types(&fails)),
        (of(&begun), vec!["Resizing".into(), "ModifyVolumeError".into()])
    );
    let infeasible = say(&fails, Said::Infeasible("gold".into(), "never".into()));
    assert_eq!(of(&infeasible), json!({ "status": "Infeasible", "targetVolumeAttributesClassName": "gold" }));
    assert_eq!(types(&infeasible), ["Resizing", "ModifyVolumeError"]);
    let done = say(&infeasible, Said::Done("gold".into()));
    assert_eq!((of(&done), types(&done)), (Value::Null, vec!["Resizing".to_owned()]));
    assert_eq!(current(&done), Some("gold"));
    let cancelled = say(&infeasible, Said::Cancelled);
    assert_eq!((of(&cancelled), current(&cancelled)), (Value::Null, Some("lead")));
}
