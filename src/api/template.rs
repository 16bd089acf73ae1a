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
