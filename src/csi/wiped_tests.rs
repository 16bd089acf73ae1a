//! What held a secret is overwritten when it is dropped: looked at by reading this process's own memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::Secrets;
use super::proto::csi::v1::NodeStageVolumeRequest;
use super::redact::Scrub;

/// Long enough to be recognised by its end: the first bytes of freed memory are overwritten in any case.
const VALUE: &str = "correct horse battery staple, and then some more words to recognise it by";

/// Whether the memory of this text is something else when its owner has been dropped.
fn is_wiped<T>(owner: T, text: impl Fn(&T) -> &str) -> bool {
    let memory = File::open("/proc/self/mem").unwrap();
    let at = text(&owner);
    assert_eq!(at, VALUE);
    let place = at.as_ptr().expose_provenance() as u64;
    let mut found = [0; VALUE.len()];
    memory.read_exact_at(&mut found, place).unwrap();
    assert_eq!(&found, VALUE.as_bytes(), "this shows nothing");
    drop(owner);
    // What was given back to the kernel cannot be read.
    memory.read_exact_at(&mut found, place).is_err() || !found.ends_with(b"words to recognise it by")
}

fn map() -> BTreeMap<String, String> {
    BTreeMap::from([("password".to_owned(), VALUE.to_owned())])
}

#[test]
fn secrets_are_overwritten_when_they_are_dropped() {
    assert!(is_wiped(Secrets::from(map()), |secrets| &secrets["password"]));
}

#[test]
fn a_request_takes_its_secrets_with_it() {
    let request = NodeStageVolumeRequest { secrets: map().into(), ..Default::default() };
    assert!(is_wiped(request, |request| &request.secrets["password"]));
}

#[test]
fn what_is_looked_for_in_a_drivers_words_is_overwritten() {
    assert!(is_wiped(Scrub::of_flags(&map(), []), |scrub| &scrub.needles[0]));
}
