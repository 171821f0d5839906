//! Substitution of `${env:NAME}` and `${file:PATH}` in any string of the config. A missing value is a
//! mistake, never an empty string. `$${` is an escaped `${`.

use std::path::Path;

/// A text with all `${...}` substituted.
#[derive(Debug)]
pub(super) struct SubstitutedText {
    pub(super) text: String,
    /// Whether anything was substituted, so that the text must not be printed.
    pub(super) was_substituted: bool,
}

/// Returns the files that `${file:...}` in this text names, as they are written there.
pub(super) fn referenced_files(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.split("${file:").skip(1);
    ends.filter_map(|rest| rest.split_once('}').map(|(file, _)| file))
}

/// The reason why a substitution failed.
#[derive(Debug)]
pub(super) struct SubstitutionError {
    pub(super) message: String,
    pub(super) hint: String,
}

/// Substitutes every `${...}`. Relative paths start in `folder`.
pub(super) fn substitute_all(text: &str, folder: &Path) -> Result<SubstitutedText, SubstitutionError> {
    let mut substituted_text =
        SubstitutedText { text: String::with_capacity(text.len()), was_substituted: false };
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        if let Some(before) = before.strip_suffix('$') {
            substituted_text.text.push_str(before);
            substituted_text.text.push_str("${");
            rest = &from[2..];
            continue;
        }
        let Some(end) = from.find('}') else {
            return Err(substitution_error(
                "`${` has no `}`",
                "write ${env:NAME} or ${file:PATH}, or $${ for the text itself",
            ));
        };
        substituted_text.text.push_str(before);
        substituted_text.text.push_str(&look_up(&from[2..end], folder)?);
        substituted_text.was_substituted = true;
        rest = &from[end + 1..];
    }
    substituted_text.text.push_str(rest);
    Ok(substituted_text)
}

fn look_up(reference: &str, folder: &Path) -> Result<String, SubstitutionError> {
    match reference.split_once(':') {
        Some(("env", name)) => std::env::var(name).map_err(|_| SubstitutionError {
            message: format!("the environment variable `{name}` is not set"),
            hint: format!("set {name} before the start"),
        }),
        Some(("file", path)) => match super::read_file(&folder.join(path)) {
            Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
            Err(error) => Err(SubstitutionError {
                message: format!("the file `{path}` cannot be read: {error}"),
                hint: "the path is relative to the config's folder".to_owned(),
            }),
        },
        _ => Err(substitution_error(
            &format!("`${{{reference}}}` is unknown"),
            "write ${env:NAME} or ${file:PATH}",
        )),
    }
}

fn substitution_error(message: &str, hint: &str) -> SubstitutionError {
    SubstitutionError { message: message.to_owned(), hint: hint.to_owned() }
}
