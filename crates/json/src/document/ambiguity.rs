//! Values that parsers may interpret differently: objects with duplicate names (RFC 8259, section 4), and
//! unpaired surrogates (section 8.2). I-JSON (RFC 7493) allows neither.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

use super::node::{JsonNode, ValueKind};

/// The maximum number of characters of a name, and of steps of a path, in messages.
const MAX_NAME_CHARS: usize = 40;
const MAX_PATH_STEPS: usize = 10;

/// A value that parsers may interpret differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmbiguousValue {
    /// The steps to the value, from the last to the first.
    steps: Vec<PathStep>,
    cause: AmbiguityCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Name(String),
    Index(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AmbiguityCause {
    RepeatedName(String),
    UnpairedSurrogate,
}

impl AmbiguousValue {
    /// The path from the checked value, for example `.items[3]`; empty for the checked value itself. A long
    /// path is truncated.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = String::new();
        for step in self.steps.iter().rev().take(MAX_PATH_STEPS) {
            let _ = match step {
                PathStep::Name(name) => write!(path, ".{name}"),
                PathStep::Index(index) => write!(path, "[{index}]"),
            };
        }
        if self.steps.len() > MAX_PATH_STEPS {
            path.push_str("...");
        }
        path
    }

    /// The requirement that the value violates, as in "must have each name once, ...".
    #[must_use]
    pub fn requirement(&self) -> String {
        match &self.cause {
            AmbiguityCause::RepeatedName(name) => format!("have each name once, and not `{name}` twice"),
            AmbiguityCause::UnpairedSurrogate => "have no half of a surrogate pair".to_owned(),
        }
    }

    fn new(cause: AmbiguityCause) -> Self {
        Self { steps: Vec::new(), cause }
    }

    fn with_step(mut self, step: PathStep) -> Self {
        self.steps.push(step);
        self
    }
}

/// Checks a value and everything in it, in linear time.
pub(crate) fn check_ambiguity(node: JsonNode<'_>) -> Result<(), AmbiguousValue> {
    match node.kind() {
        ValueKind::String if node.has_unpaired_surrogate() => {
            Err(AmbiguousValue::new(AmbiguityCause::UnpairedSurrogate))
        }
        ValueKind::Array => {
            for (index, item) in node.items().enumerate() {
                check_ambiguity(item)
                    .map_err(|ambiguous_value| ambiguous_value.with_step(PathStep::Index(index)))?;
            }
            Ok(())
        }
        ValueKind::Object => {
            let mut names: HashSet<Cow<'_, [u8]>> = HashSet::new();
            for (key, value) in node.members() {
                let name = key.node();
                if name.has_unpaired_surrogate() {
                    return Err(AmbiguousValue::new(AmbiguityCause::UnpairedSurrogate));
                }
                if !names.insert(name.string().unwrap_or_default()) {
                    return Err(AmbiguousValue::new(AmbiguityCause::RepeatedName(truncate_name(name))));
                }
                check_ambiguity(value)
                    .map_err(|found| found.with_step(PathStep::Name(truncate_name(name))))?;
            }
            Ok(())
        }
        ValueKind::String | ValueKind::Null | ValueKind::Bool(_) | ValueKind::Number => Ok(()),
    }
}

fn truncate_name(name: JsonNode<'_>) -> String {
    name.scalar_text().unwrap_or_default().chars().take(MAX_NAME_CHARS).collect()
}
