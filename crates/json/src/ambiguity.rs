//! Values that parsers may interpret differently: objects with duplicate names (RFC 8259, section 4), and
//! unpaired surrogates (section 8.2). I-JSON (RFC 7493) allows neither.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

use crate::{Kind, Node};

/// The maximum number of characters of a name, and of steps of a path, in messages.
const NAME: usize = 40;
const STEPS: usize = 10;

/// A value that parsers may interpret differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguity {
    /// The steps to the value, from the last to the first.
    steps: Vec<PathStep>,
    cause: Cause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Name(String),
    Index(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    RepeatedName(String),
    HalfPair,
}

impl Ambiguity {
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
            Cause::RepeatedName(name) => format!("have each name once, and not `{name}` twice"),
            Cause::HalfPair => "have no half of a surrogate pair".to_owned(),
        }
    }

    fn new(cause: Cause) -> Self {
        Self { steps: Vec::new(), cause }
    }

    fn below(mut self, step: PathStep) -> Self {
        self.steps.push(step);
        self
    }
}

/// Checks a value and everything in it, in linear time.
pub(crate) fn check(node: Node<'_>) -> Result<(), Ambiguity> {
    match node.kind() {
        Kind::String if node.is_unpaired() => Err(Ambiguity::new(Cause::HalfPair)),
        Kind::Array => {
            for (index, item) in node.items().enumerate() {
                check(item).map_err(|found| found.below(PathStep::Index(index)))?;
            }
            Ok(())
        }
        Kind::Object => {
            let mut names: HashSet<Cow<'_, [u8]>> = HashSet::new();
            for (key, value) in node.members() {
                let name = key.node();
                if name.is_unpaired() {
                    return Err(Ambiguity::new(Cause::HalfPair));
                }
                if !names.insert(name.string().unwrap_or_default()) {
                    return Err(Ambiguity::new(Cause::RepeatedName(short(name))));
                }
                check(value).map_err(|found| found.below(PathStep::Name(short(name))))?;
            }
            Ok(())
        }
        Kind::String | Kind::Null | Kind::Bool(_) | Kind::Number => Ok(()),
    }
}

fn short(name: Node<'_>) -> String {
    name.plain().unwrap_or_default().chars().take(NAME).collect()
}
