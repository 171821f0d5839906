//! Values that parsers may interpret differently: objects with duplicate names (RFC 8259, section 4), and
//! unpaired surrogates (section 8.2). I-JSON (RFC 7493) allows neither.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

use crate::{JsonNode, ValueKind};

/// The maximum number of characters of a name, and of steps of a path, in messages.
const NAME: usize = 40;
const STEPS: usize = 10;

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
    HalfPair,
}

impl AmbiguousValue {
    /// The path from the checked value, for example `.items[3]`; empty for the checked value itself. A long
    /// path is truncated.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = String::new();
        for step in self.steps.iter().rev().take(STEPS) {
            let _ = match step {
                PathStep::Name(name) => write!(path, ".{name}"),
                PathStep::Index(index) => write!(path, "[{index}]"),
            };
        }
        if self.steps.len() > STEPS {
            path.push_str("...");
        }
        path
    }

    /// The requirement that the value violates, as in "must have each name once, ...".
    #[must_use]
    pub fn must(&self) -> String {
        match &self.cause {
            AmbiguityCause::RepeatedName(name) => format!("have each name once, and not `{name}` twice"),
            AmbiguityCause::HalfPair => "have no half of a surrogate pair".to_owned(),
        }
    }

    fn new(cause: AmbiguityCause) -> Self {
        Self { steps: Vec::new(), cause }
    }

    fn below(mut self, step: PathStep) -> Self {
        self.steps.push(step);
        self
    }
}

/// Checks a value and everything in it, in linear time.
pub(crate) fn check(node: JsonNode<'_>) -> Result<(), AmbiguousValue> {
    match node.kind() {
        ValueKind::String if node.is_unpaired() => Err(AmbiguousValue::new(AmbiguityCause::HalfPair)),
        ValueKind::Array => {
            for (index, item) in node.items().enumerate() {
                check(item).map_err(|found| found.below(PathStep::Index(index)))?;
            }
            Ok(())
        }
        ValueKind::Object => {
            let mut names: HashSet<Cow<'_, [u8]>> = HashSet::new();
            for (key, value) in node.members() {
                let name = key.node();
                if name.is_unpaired() {
                    return Err(AmbiguousValue::new(AmbiguityCause::HalfPair));
                }
                if !names.insert(name.string().unwrap_or_default()) {
                    return Err(AmbiguousValue::new(AmbiguityCause::RepeatedName(short(name))));
                }
                check(value).map_err(|found| found.below(PathStep::Name(short(name))))?;
            }
            Ok(())
        }
        ValueKind::String | ValueKind::Null | ValueKind::Bool(_) | ValueKind::Number => Ok(()),
    }
}

fn short(name: JsonNode<'_>) -> String {
    name.plain().unwrap_or_default().chars().take(NAME).collect()
}
