//! Names in which words stand for parts of others, as StorageClasses have them: `${pvc.namespace}`.

/// The text with what every `${word}` in it stands for. Err is the first that stands for nothing.
pub fn expand<'a>(template: &str, word: impl Fn(&str) -> Option<&'a str>) -> Result<String, String> {
    let mut said = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        said.push_str(before);
        let inner = after.strip_prefix('{').ok_or("$")?;
        let (token, behind) = inner.split_once('}').ok_or("${")?;
        said.push_str(word(token).ok_or_else(|| format!("${{{token}}}"))?);
        rest = behind;
    }
    said.push_str(rest);
    Ok(said)
}

/// Whether a namespace may have this name.
#[must_use]
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Whether a Secret may have this name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let of_it = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().last()];
    ends.into_iter().all(|end| end.is_some_and(of_it)) && text.bytes().all(|byte| of_it(byte) || byte == b'-')
}
