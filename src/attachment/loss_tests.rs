//! Every way in which a node is, or is not, lost.

use super::*;
use crate::fixtures;

fn attachment(attach: bool, mode: AccessMode, state: AttachmentState) -> AttachmentSeen {
    AttachmentSeen { attach, mode, state, node_uid: "uid".into(), ..fixtures::attachment("att") }
}

fn usual() -> AttachmentSeen {
    attachment(true, AccessMode::SingleNodeWriter, AttachmentState::Attached)
}

fn claim(name: &str, deleted: bool, force: bool) -> ClaimSeen {
    ClaimSeen { deleted, force, ..fixtures::granted(name, &usual()) }
}

fn there(uid: &str) -> NodeNow {
    NodeNow::There { uid: uid.into(), out_of_service: false, boot_id: "boot-2".into(), node_id: None }
}

fn known_as(uid: &str, boot: &str, id: &str) -> NodeNow {
    NodeNow::There { uid: uid.into(), out_of_service: false, boot_id: boot.into(), node_id: Some(id.into()) }
}

fn tainted() -> NodeNow {
    NodeNow::There { uid: "uid".into(), out_of_service: true, boot_id: "boot".into(), node_id: None }
}

fn facts(now: &NodeNow, silent: bool, heard: &[Heard]) -> NodeFacts {
    let machine = Machine { node_uid: "uid".into(), node_id: "id".into(), boot_id: "boot".into() };
    NodeFacts { machine, now: now.clone(), silent, heard: heard.to_vec() }
}

/// An agent under another UID.
fn heard(boot: &str, id: Option<&str>) -> Heard {
    Heard { boot_id: boot.into(), node_id: id.map(Into::into) }
}

/// By these facts, where nobody is heard under another UID.
fn verdict(attachment: &AttachmentSeen, node: &NodeNow, silent: bool, claims: &[ClaimSeen]) -> Verdict {
    judge(&Seen { attachment, node: &facts(node, silent, &[]), claims })
}

/// Where the recorded Node's own agent is silent.
fn beside(heard: &[Heard], node: &NodeNow, claims: &[ClaimSeen]) -> Verdict {
    judge(&Seen { attachment: &usual(), node: &facts(node, true, heard), claims })
}

#[test]
fn silence_alone_is_no_loss() {
    assert_eq!(verdict(&usual(), &there("uid"), true, &[]), Verdict::Silent { forced: None });
    let live = [claim("a", false, false)];
    assert_eq!(verdict(&usual(), &there("uid"), true, &live), Verdict::Silent { forced: None });
}

#[test]
fn nothing_is_lost_while_the_agent_is_heard() {
    let force = [claim("a", true, true)];
    assert_eq!(verdict(&usual(), &there("uid"), false, &force), Verdict::Well);
    assert_eq!(verdict(&usual(), &NodeNow::Gone, false, &force), Verdict::Contradiction(Cause::NodeDeleted));
    assert_eq!(verdict(&usual(), &tainted(), false, &[]), Verdict::Contradiction(Cause::OutOfService));
}

#[test]
fn a_silent_node_that_is_gone_or_out_of_service_is_lost() {
    assert_eq!(verdict(&usual(), &NodeNow::Gone, true, &[]), Verdict::Lost(Cause::NodeDeleted));
    assert_eq!(verdict(&usual(), &tainted(), true, &[]), Verdict::Lost(Cause::OutOfService));
}

#[test]
fn only_a_provably_other_machine_is_a_replacement() {
    let replaced = Verdict::Lost(Cause::NodeReplaced);
    let by = |boot: &str, id: &str| beside(&[heard(boot, Some(id))], &known_as("uid-2", boot, id), &[]);
    assert_eq!(by("boot-2", "id-2"), replaced);
    assert_eq!(by("", "id-2"), replaced);
    // The same machine under a new UID: its agent takes over in order.
    assert_eq!(by("boot", "id-2"), Verdict::Well);
    assert_eq!(by("boot-2", "id"), Verdict::Well);
    // Two machines that do not say which boot it is are not the same for that.
    let mut mute = facts(&known_as("uid-2", "", "id-2"), true, &[heard("", Some("id-2"))]);
    mute.machine.boot_id.clear();
    assert_eq!(judge(&Seen { attachment: &usual(), node: &mute, claims: &[] }), replaced);
    // Nobody knows yet. If it is the same machine it takes over in order, and if not it gives back what it has not.
    assert_eq!(verdict(&usual(), &there("uid-2"), true, &[]), Verdict::Silent { forced: None });
    assert_eq!(beside(&[heard("boot-2", None)], &there("uid-2"), &[]), Verdict::Well);
}

/// B6, B7: a Node that was deleted under a machine that lives is registered anew, and deleted once more, or tainted.
#[test]
fn a_machine_that_was_registered_anew_is_not_lost_while_it_is_heard() {
    let off =
        NodeNow::There { uid: "uid-2".into(), out_of_service: true, boot_id: String::new(), node_id: None };
    let cases = [(NodeNow::Gone, Cause::NodeDeleted), (off, Cause::OutOfService)];
    for (node, cause) in &cases {
        let kept = Verdict::Contradiction(*cause);
        assert_eq!(beside(&[heard("boot", None)], node, &[]), kept, "the boot is the recorded one");
        assert_eq!(beside(&[heard("boot-2", Some("id"))], node, &[]), kept, "the driver knows it");
        // The Attachment may have outlived its boot, and the instance that would tell goes with its Node.
        assert_eq!(beside(&[heard("boot-2", None)], node, &[]), kept, "it may be the recorded one");
        let other = heard("boot-2", Some("id-2"));
        assert_eq!(beside(&[heard("", None), other.clone()], node, &[]), kept, "one of two may be");
        assert_eq!(beside(&[other], node, &[]), Verdict::Lost(*cause), "another machine says nothing of it");
        assert_eq!(beside(&[], node, &[]), Verdict::Lost(*cause), "nobody is heard");
    }
    let forced = [claim("a", true, true)];
    assert_eq!(beside(&[heard("boot-2", None)], &there("uid-2"), &forced), Verdict::Well, "an order to it");
    assert_eq!(beside(&[], &there("uid-2"), &forced), Verdict::Lost(Cause::ForceDetach));
}

/// B7: after `spec.lost` was written, before what nothing fences is freed.
#[test]
fn a_lost_node_stays_out_until_it_is_heard_or_its_word_is_taken_back() {
    let out = |mode, node: &NodeNow, silent| {
        let attachment = AttachmentSeen { lost: true, ..attachment(false, mode, AttachmentState::Taken) };
        is_still_out(&Seen { attachment: &attachment, node: &facts(node, silent, &[]), claims: &[] })
    };
    let single = AccessMode::SingleNodeWriter;
    for node in [NodeNow::Gone, tainted(), known_as("uid-2", "boot-2", "id-2")] {
        assert!(out(single, &node, true), "{node:?}");
        assert!(!out(single, &node, false), "{node:?} is heard");
    }
    // The machine was started again, under its old UID or a new one.
    for node in [there("uid"), known_as("uid-2", "boot-2", "id"), there("uid-2")] {
        assert!(!out(single, &node, true), "{node:?}");
        assert!(out(AccessMode::MultiNodeMultiWriter, &node, true), "{node:?} excludes nobody");
    }
    // It came back, was registered anew, and its Node was deleted or tainted under it.
    for (by, is_out) in [
        (heard("boot", None), false),
        (heard("boot-2", Some("id")), false),
        (heard("boot-2", None), false),
        (heard("boot-2", Some("id-2")), true),
    ] {
        for mode in [single, AccessMode::MultiNodeMultiWriter] {
            let attachment = AttachmentSeen { lost: true, ..attachment(false, mode, AttachmentState::Taken) };
            let node = facts(&NodeNow::Gone, true, std::slice::from_ref(&by));
            let seen = Seen { attachment: &attachment, node: &node, claims: &[] };
            assert_eq!(is_still_out(&seen), is_out, "{by:?}");
        }
    }
}

#[test]
fn the_same_machine_that_is_not_heard_either_stays_silent() {
    let node = facts(&known_as("uid-2", "boot", "id"), true, &[]);
    let attachment = usual();
    let seen = Seen { attachment: &attachment, node: &node, claims: &[] };
    assert_eq!(judge(&seen), Verdict::Silent { forced: None });
}

#[test]
fn force_needs_every_claim_deleted_with_it() {
    let asked = claim("a", true, true);
    assert_eq!(
        verdict(&usual(), &there("uid"), true, std::slice::from_ref(&asked)),
        Verdict::Lost(Cause::ForceDetach)
    );
    for other in [claim("b", false, false), claim("b", false, true), claim("b", true, false)] {
        let refused = Refusal::OthersStay(vec![other.key()]);
        assert_eq!(
            verdict(&usual(), &there("uid"), true, &[asked.clone(), other]),
            Verdict::Silent { forced: Some(refused) }
        );
    }
    // forceDetach of a claim that nobody deleted asks for nothing.
    let undeleted = [claim("a", false, true)];
    assert_eq!(verdict(&usual(), &there("uid"), true, &undeleted), Verdict::Silent { forced: None });
}

/// L1.
#[test]
fn force_works_from_every_state_in_which_the_node_may_have_something() {
    let asked = [claim("a", true, true)];
    for state in [AttachmentState::Taken, AttachmentState::Attached] {
        let held = attachment(true, AccessMode::SingleNodeWriter, state);
        assert_eq!(
            verdict(&held, &there("uid"), true, &asked),
            Verdict::Lost(Cause::ForceDetach),
            "{state:?}"
        );
    }
    for state in [
        crate::api::ClaimState::Pending,
        crate::api::ClaimState::Taken,
        crate::api::ClaimState::Ready,
        crate::api::ClaimState::NodeDetached,
    ] {
        let mut asked = claim("a", true, true);
        asked.state = state;
        assert_eq!(
            verdict(&usual(), &there("uid"), true, &[asked]),
            Verdict::Lost(Cause::ForceDetach),
            "{state:?}"
        );
    }
}

#[test]
fn force_is_refused_where_nothing_fences_the_node() {
    let asked = [claim("a", true, true)];
    for mode in AccessMode::ALL {
        let attachment = attachment(false, mode, AttachmentState::Taken);
        let expected = match mode {
            AccessMode::MultiNodeReader | AccessMode::MultiNodeMultiWriter => {
                Verdict::Lost(Cause::ForceDetach)
            }
            _ => Verdict::Silent { forced: Some(Refusal::NothingFences) },
        };
        assert_eq!(verdict(&attachment, &there("uid"), true, &asked), expected, "{mode}");
        // The Node's own word is enough in every mode.
        assert_eq!(verdict(&attachment, &tainted(), true, &asked), Verdict::Lost(Cause::OutOfService));
    }
}

#[test]
fn what_the_node_has_finished_or_was_declared_is_not_judged_again() {
    for state in [AttachmentState::NodeDetached, AttachmentState::ControllerDetached] {
        let done = attachment(true, AccessMode::SingleNodeWriter, state);
        assert_eq!(verdict(&done, &NodeNow::Gone, true, &[]), Verdict::Well);
    }
    let declared = AttachmentSeen { lost: true, ..usual() };
    assert_eq!(verdict(&declared, &NodeNow::Gone, true, &[]), Verdict::Well);
}

#[test]
fn a_call_is_left_out_only_when_nobody_could_ever_make_it() {
    let lost = AttachmentSeen { lost: true, ..usual() };
    assert!(is_abandoned(&lost, &NodeNow::Gone, true, false));
    assert!(is_abandoned(&lost, &there("uid-2"), true, false));
    assert!(!is_abandoned(&lost, &there("uid"), true, false), "the Node may come back");
    assert!(!is_abandoned(&lost, &NodeNow::Gone, false, false), "its instance may still be calling");
    assert!(!is_abandoned(&lost, &NodeNow::Gone, true, true), "another instance can make the call");
    assert!(!is_abandoned(&usual(), &NodeNow::Gone, true, false), "not declared lost");
    let made = AttachmentSeen { state: AttachmentState::ControllerDetached, ..lost.clone() };
    assert!(!is_abandoned(&made, &NodeNow::Gone, true, false), "the call has been made");
    let no_attach = AttachmentSeen {
        lost: true,
        ..attachment(false, AccessMode::SingleNodeWriter, AttachmentState::Taken)
    };
    assert!(!is_abandoned(&no_attach, &NodeNow::Gone, true, false), "there is no call to leave out");
}
