//! Recipes of handlers that only call resources and compose the responses. A recipe is pure data, sufficient
//! to run the handler without its JavaScript. The JavaScript remains available for unusual cases.

use serde::Serialize;
use serde_json::Value;

use crate::method::Method;

/// A plan to run a handler without its JavaScript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recipe {
    /// The steps, in source order. Each has a value and runs once.
    pub steps: Vec<Step>,
    /// The response after all steps have completed.
    pub answer: Part,
}

/// A step, which produces a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The steps that must complete before this one. They include its inputs, or steps that in turn wait for
    /// those.
    pub after: Vec<usize>,
    /// The operation that produces the value.
    pub what: What,
}

/// The operation of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum What {
    /// A safe call to a service outside of the gateway.
    Call {
        /// Its number among the program's sites.
        site: usize,
        /// The method of the call.
        method: Method,
        /// The URL.
        url: Vec<Piece>,
        /// Whether the response is passed through as the handler's response.
        passes: bool,
    },
    /// A member of another step's value.
    Member(usize, String),
    /// A text, or a number or boolean that is converted to text in a URL.
    Text(Part),
}

/// A piece of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Piece {
    /// Literal text.
    Text(String),
    /// A template value, to be percent-encoded.
    Encoded(Part),
    /// The text value of a step.
    Step(usize),
}

/// A value, or the parts that it is composed of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Part {
    /// `undefined`
    Undefined,
    /// A text, a whole number, a boolean or null.
    Constant(Value),
    /// A query parameter of the request.
    Query(String),
    /// The value of a step.
    Step(usize),
    /// An object.
    Object(Vec<Entry>),
    /// A list.
    List(Vec<Part>),
}

/// An entry of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Entry {
    /// A member. Its name needs no escapes and is not an array index.
    Named(String, Part),
    /// The members of a step's value.
    Spread(usize),
}

impl Recipe {
    /// Returns the number of calls.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.what, What::Call { .. })).count()
    }

    /// Whether it reads the request's query parameters.
    #[must_use]
    pub fn reads_query(&self) -> bool {
        let in_url = |piece: &Piece| matches!(piece, Piece::Encoded(part) if part.reads_query());
        self.answer.reads_query()
            || self.steps.iter().any(|step| match &step.what {
                What::Call { url, .. } => url.iter().any(in_url),
                What::Text(part) => part.reads_query(),
                What::Member(..) => false,
            })
    }
}

impl Part {
    fn reads_query(&self) -> bool {
        match self {
            Self::Query(_) => true,
            Self::Object(entries) => {
                entries.iter().any(|entry| matches!(entry, Entry::Named(_, part) if part.reads_query()))
            }
            Self::List(items) => items.iter().any(Self::reads_query),
            Self::Undefined | Self::Constant(_) | Self::Step(_) => false,
        }
    }
}
