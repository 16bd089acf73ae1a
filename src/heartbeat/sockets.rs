//! The sockets that an agent has found, as its Lease tells of them.
//!
//! A driver that was found has a PluginInstance. Of one that was not, nothing else says what is there in its place: whoever
//! asks why reads it on the Plugin. It costs no write of its own, and is never decided by.

use k8s_openapi::api::coordination::v1::Lease;
use serde::{Deserialize, Serialize};

use crate::api::conditions::shortened;

/// Annotation with what was found, as JSON.
const SOCKETS: &str = "moor.dev/sockets";
/// Most sockets that are written, and that are believed.
const MOST: usize = 16;
/// Longest path, name or error, in bytes.
const LONGEST: usize = 256;
/// Longest annotation that is believed, in bytes: what is written is shorter, also where every character is escaped.
const LARGEST: usize = 64 << 10;

/// What an agent has found where it looks for drivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// The plugin directory.
    pub directory: String,
    /// The sockets one folder down, and those that Plugins name.
    pub found: Vec<Socket>,
    /// How many more there are.
    #[serde(default)]
    pub more: usize,
}

/// A socket and who is behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Socket {
    /// Who is behind it. First, because by it sockets are ordered: those with whom something is wrong before others.
    pub answer: Answer,
    /// Its path below the plugin directory; the whole path of one elsewhere.
    pub path: String,
}

/// What came of asking at a socket who is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// What is there is no socket but this.
    NoSocket(String),
    /// It is a folder that does not answer whoever looks into it.
    Hangs,
    /// Nobody accepts connections on it: its process has ended.
    NobodyListens,
    /// Whoever is there has not said the name of a driver, for this reason.
    Nameless(String),
    /// A driver that calls itself so.
    Driver(String),
}

impl Sockets {
    /// A report of these sockets of a plugin directory.
    #[must_use]
    pub fn of(directory: &str, mut found: Vec<Socket>) -> Self {
        found.sort();
        let more = found.len().saturating_sub(MOST);
        Self { directory: directory.to_owned(), found, more }.bounded()
    }

    /// Reads the report from a Lease; None where there is none that can be read.
    #[must_use]
    pub fn said_in(lease: &Lease) -> Option<Self> {
        let said = lease.metadata.annotations.as_ref()?.get(SOCKETS).filter(|said| said.len() <= LARGEST)?;
        let read: Self = serde_json::from_str(said).ok()?;
        Some(read.bounded())
    }

    /// Whether a Lease reports something else than it did before.
    #[must_use]
    pub fn differ(before: Option<&Lease>, after: &Lease) -> bool {
        let said =
            |lease: &Lease| lease.metadata.annotations.as_ref().and_then(|all| all.get(SOCKETS)).cloned();
        before.and_then(said) != said(after)
    }

    /// Writes this report into a Lease.
    pub fn say_in(&self, lease: &mut Lease) {
        // There is nothing in it that JSON cannot say.
        if let Ok(text) = serde_json::to_string(self) {
            lease.metadata.annotations.get_or_insert_default().insert(SOCKETS.into(), text);
        }
    }

    /// A Lease that is too large is not renewed, and a message is read by people.
    fn bounded(mut self) -> Self {
        self.found.truncate(MOST);
        for Socket { answer, path } in &mut self.found {
            bound(path);
            match answer {
                Answer::Hangs | Answer::NobodyListens => {}
                Answer::NoSocket(text) | Answer::Nameless(text) | Answer::Driver(text) => bound(text),
            }
        }
        bound(&mut self.directory);
        self
    }
}

fn bound(text: &mut String) {
    if text.len() > LONGEST || text.contains(char::is_control) {
        let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        shortened(&plain, LONGEST).clone_into(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(path: &str, answer: Answer) -> Socket {
        Socket { path: path.to_owned(), answer }
    }

    #[test]
    fn what_is_said_is_read() {
        let mut lease = Lease::default();
        assert_eq!(Sockets::said_in(&lease), None);
        let found = vec![
            socket("a/csi.sock", Answer::Driver("a".into())),
            socket("b/csi.sock", Answer::Nameless("GetPluginInfo: Unimplemented: \"no\"".into())),
            socket("c/csi.sock", Answer::NobodyListens),
        ];
        let said = Sockets::of("/plugins", found);
        let order: Vec<_> = said.found.iter().map(|s| s.path.as_str()).collect();
        assert_eq!(order, ["c/csi.sock", "b/csi.sock", "a/csi.sock"]);
        let before = lease.clone();
        said.say_in(&mut lease);
        assert!(Sockets::differ(Some(&before), &lease) && Sockets::differ(None, &lease));
        assert!(!Sockets::differ(Some(&lease), &lease));
        assert_eq!(Sockets::said_in(&lease), Some(said));
        let nothing = Sockets::of("/plugins", Vec::new());
        nothing.say_in(&mut lease);
        assert_eq!(Sockets::said_in(&lease), Some(nothing), "that there is none is worth saying");
    }

    #[test]
    fn no_more_is_said_or_believed_than_people_read() {
        let long = "\u{1}é".repeat(LONGEST);
        let found = (0..MOST + 3).map(|n| socket(&format!("{n}{long}"), Answer::Nameless(long.clone())));
        let said = Sockets::of(&long, found.collect());
        assert_eq!((said.found.len(), said.more), (MOST, 3));
        assert!(said.found.iter().all(|s| s.path.len() <= LONGEST && !s.path.contains(char::is_control)));
        let mut lease = Lease::default();
        said.say_in(&mut lease);
        assert!(lease.metadata.annotations.as_ref().unwrap()[SOCKETS].len() < LARGEST);
        assert_eq!(Sockets::said_in(&lease), Some(said.clone()));

        let name = "é".repeat(LONGEST);
        let lie = Sockets { found: vec![socket("x", Answer::Driver(name)); MOST * 2], ..said };
        lie.say_in(&mut lease);
        let believed = Sockets::said_in(&lease).unwrap();
        assert_eq!(believed.found.len(), MOST);
        assert!(matches!(&believed.found[0].answer, Answer::Driver(name) if name.len() <= LONGEST));
        for broken in ["", "[]", "{\"directory\":1}", &"x".repeat(LARGEST + 1)] {
            lease.metadata.annotations.as_mut().unwrap().insert(SOCKETS.into(), broken.to_owned());
            assert_eq!(Sockets::said_in(&lease), None, "{}", broken.len());
        }
    }
}
