//! Keeps secrets out of everything that is printed, stored or logged.
//!
//! Two ways lead out: printing a request, and a driver that quotes what we sent in its error message. The first is shut
//! by `build.rs`, which writes the `Debug` of such messages with [`Hidden`] in it; the second by [`Scrub`].

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

use super::proto::csi::v1::VolumeCapability;
use super::proto::csi::v1::volume_capability::AccessType;

/// The longest message that leaves this module, in bytes.
pub const MESSAGE_LIMIT: usize = 1024;

/// Shorter values occur in ordinary words, and taking them out would make messages unreadable without hiding anything.
const SHORTEST: usize = 4;

/// So much of the `Debug` of a message is looked at, in bytes, before [`MESSAGE_LIMIT`] of it are kept.
const PRINTED: usize = 64 * 1024;

const MARK: &str = "<hidden>";

/// Stands for that many entries, in `Debug` output.
pub struct Hidden(pub usize);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} hidden>", self.0)
    }
}

/// What must not occur in a message about one call. It is overwritten when it is dropped.
#[derive(Default)]
pub struct Scrub {
    /// Longest first, so that a value which holds another one goes as a whole.
    pub(super) needles: Vec<Zeroizing<String>>,
}

impl Scrub {
    /// For a call that carries nothing secret.
    #[must_use]
    pub fn nothing() -> Self {
        Self::default()
    }

    /// For a call with these secrets and the mount flags of these capabilities.
    #[must_use]
    pub fn of<'a>(
        secrets: &BTreeMap<String, String>,
        capabilities: impl IntoIterator<Item = &'a VolumeCapability>,
    ) -> Self {
        Self::of_flags(secrets, capabilities.into_iter().flat_map(mount_flags))
    }

    /// For a call with these secrets after one with these mount flags, which the driver may remember.
    ///
    /// A driver may quote a value escaped, line by line or, when it is JSON, member by member; these forms are found.
    /// A value that it encoded otherwise (base64, URL) is not.
    #[must_use]
    pub fn of_flags<'a>(
        secrets: &BTreeMap<String, String>,
        mount_flags: impl IntoIterator<Item = &'a String>,
    ) -> Self {
        let copy = |text: &str| Zeroizing::new(text.to_owned());
        let mut plain = Vec::new();
        for value in secrets.values() {
            plain.push(copy(value));
            plain.push(copy(value.trim()));
            plain.extend(value.lines().map(|line| copy(line.trim())));
            if let Ok(json) = serde_json::from_str(value) {
                leaves(json, &mut plain);
            }
        }
        for flag in mount_flags {
            plain.push(copy(flag));
            for option in flag.split(',') {
                plain.push(copy(option));
                plain.extend(option.split_once('=').map(|(_, value)| copy(value)));
            }
        }
        let mut needles: Vec<_> = plain.iter().flat_map(|text| escaped(text)).collect();
        needles.extend(plain);
        needles.retain(|needle| needle.len() >= SHORTEST);
        needles.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.as_str().cmp(b)));
        needles.dedup();
        Self { needles }
    }

    /// The message as it may be shown: without the needles and control characters, at most [`MESSAGE_LIMIT`] bytes.
    #[must_use]
    pub fn clean(&self, message: &str) -> String {
        let scrubbed = self.without_needles(message.to_owned());
        let printable: String = scrubbed
            .chars()
            .map(|c| if c.is_whitespace() { ' ' } else { c })
            .filter(|c| !c.is_control())
            .collect();
        // Again, because taking out a character may have joined what it kept apart.
        let mut cleaned = self.without_needles(printable);
        cut(&mut cleaned, MESSAGE_LIMIT);
        cleaned
    }

    /// What a message says, as it may be shown: its `Debug`, which hides what is secret, cleaned of the same values where they
    /// stand elsewhere, as in an id that a driver has made of one.
    #[must_use]
    pub fn print(&self, message: &impl fmt::Debug) -> String {
        let mut printed = Bounded(String::new());
        // It stops where there is no room.
        let _ = fmt::write(&mut printed, format_args!("{message:?}"));
        self.clean(&printed.0)
    }

    fn without_needles(&self, mut message: String) -> String {
        for needle in &self.needles {
            if message.contains(needle.as_str()) {
                // The driver's words with the secret in them are overwritten too.
                let with_it = Zeroizing::new(message);
                message = with_it.replace(needle.as_str(), MARK);
            }
        }
        message
    }
}

/// A text that takes [`PRINTED`] bytes and no more: an answer may have as many as the driver likes.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > PRINTED {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Keeps at most so many bytes of a text, and no part of a character.
pub(super) fn cut(text: &mut String, most: usize) {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
}

/// The mount flags of a capability; none for a raw device.
pub(super) fn mount_flags(capability: &VolumeCapability) -> &[String] {
    match &capability.access_type {
        Some(AccessType::Mount(mount)) => &mount.mount_flags,
        Some(AccessType::Block(_)) | None => &[],
    }
}

/// A string without the quotes, as Go's `%q` and most JSON has it, and as Go's JSON has it, which escapes what HTML would
/// read.
fn escaped(value: &str) -> [Zeroizing<String>; 2] {
    // Not by way of a Value, which would be one more copy.
    let quoted = Zeroizing::new(serde_json::to_string(value).unwrap_or_default());
    let bare = Zeroizing::new(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned());
    let html = ['&', '<', '>', '\u{2028}', '\u{2029}'];
    let of_go = html
        .iter()
        .fold(bare.clone(), |text, c| Zeroizing::new(text.replace(*c, &format!("\\u{:04x}", u32::from(*c)))));
    [bare, of_go]
}

/// The texts in a value that is JSON, each of which takes its copy with it.
fn leaves(json: serde_json::Value, into: &mut Vec<Zeroizing<String>>) {
    match json {
        serde_json::Value::String(text) => into.push(Zeroizing::new(text)),
        serde_json::Value::Array(items) => items.into_iter().for_each(|item| leaves(item, into)),
        serde_json::Value::Object(members) => {
            members.into_iter().for_each(|(_, member)| leaves(member, into));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::proto::csi::v1::volume_capability::MountVolume;
    use super::*;

    fn scrub(secret: &str) -> Scrub {
        Scrub::of(&BTreeMap::from([("k".to_owned(), secret.to_owned())]), [])
    }

    #[test]
    fn a_quoted_secret_is_taken_out() {
        assert_eq!(scrub("hunter2").clean("login with hunter2 failed"), "login with <hidden> failed");
    }

    #[test]
    fn a_secret_with_a_trailing_newline_is_found_without_it() {
        assert_eq!(scrub("hunter2\n").clean("bad: hunter2"), "bad: <hidden>");
    }

    #[test]
    fn a_secret_is_found_escaped_line_by_line_and_inside_json() {
        assert_eq!(scrub("a\"long\nkey").clean(r#"key "a\"long\nkey""#), r#"key "<hidden>""#);
        assert_eq!(scrub("first line\nsecond line").clean("at second line"), "at <hidden>");
        assert_eq!(scrub(r#"{"user":{"token":"tok-123"}}"#).clean("tok-123 expired"), "<hidden> expired");
    }

    #[test]
    fn what_go_escapes_in_json_is_found() {
        let said = r#"{"error":"no login with p\u003cw\u0026d\u003e1 \"x"}"#;
        assert_eq!(scrub("p<w&d>1").clean(said), r#"{"error":"no login with <hidden> \"x"}"#);
        // Also a line, a value without its end of line, and a member of JSON.
        assert_eq!(scrub("a\"b&c\n").clean(r#""a\"b\u0026c""#), r#""<hidden>""#);
        assert_eq!(scrub("one\nt\"wo").clean(r#"at "t\"wo""#), r#"at "<hidden>""#);
        assert_eq!(scrub(r#"{"k":"t<ok\"en"}"#).clean(r#""t\u003cok\"en""#), r#""<hidden>""#);
    }

    #[test]
    fn a_mount_flag_is_found_escaped() {
        let flags = [r#"user=joe1,password=a"b<c"#.to_owned()];
        let scrub = Scrub::of_flags(&BTreeMap::new(), &flags);
        assert_eq!(scrub.clean(r#"-o "user=joe1,password=a\"b<c""#), r#"-o "<hidden>""#);
        assert_eq!(scrub.clean(r#"bad "a\"b<c""#), r#"bad "<hidden>""#);
        assert_eq!(scrub.clean(r#"{"o":"password=a\"b\u003cc"}"#), r#"{"o":"<hidden>"}"#);
    }

    #[test]
    fn a_secret_split_by_control_characters_is_still_found() {
        assert_eq!(scrub("hunter2").clean("hun\u{7}ter2"), "<hidden>");
    }

    #[test]
    fn a_secret_inside_another_one_leaves_nothing_of_the_longer() {
        let both =
            BTreeMap::from([("a".to_owned(), "pass".to_owned()), ("b".to_owned(), "passphrase".to_owned())]);
        assert_eq!(Scrub::of(&both, []).clean("x passphrase y pass"), "x <hidden> y <hidden>");
    }

    #[test]
    fn a_short_value_stays() {
        assert_eq!(scrub("abc").clean("abc"), "abc");
    }

    #[test]
    fn mount_flags_and_their_values_are_taken_out() {
        let flags = vec!["username=joe1,password=pa55w0rd".to_owned()];
        let mount = MountVolume { mount_flags: flags, ..MountVolume::default() };
        let capability =
            VolumeCapability { access_type: Some(AccessType::Mount(mount)), ..VolumeCapability::default() };
        let scrub = Scrub::of(&BTreeMap::new(), [&capability]);
        assert_eq!(scrub.clean("mount -o password=pa55w0rd"), "mount -o <hidden>");
        assert_eq!(scrub.clean("pa55w0rd is wrong for joe1"), "<hidden> is wrong for <hidden>");
    }

    #[test]
    fn a_printed_message_is_bounded_and_says_no_secret_anywhere() {
        let text = scrub("hunter2").print(&("of-hunter2", vec!["x\u{7}"; 100_000]));
        assert!(
            text.starts_with("(\"of-<hidden>\", [\"x\\u{7}\", ") && text.len() <= MESSAGE_LIMIT,
            "{text}"
        );
    }

    #[test]
    fn a_message_is_cut_on_a_character_boundary_and_has_no_control_characters() {
        let long = "é\u{1b}[31m\n".repeat(1000);
        let cleaned = Scrub::nothing().clean(&long);
        assert!(cleaned.len() <= MESSAGE_LIMIT && cleaned.len() > MESSAGE_LIMIT - 4);
        assert!(cleaned.chars().all(|c| !c.is_control()));
    }
}
