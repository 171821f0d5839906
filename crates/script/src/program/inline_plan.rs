//! Recipes of handlers that only call resources and compose the responses. A recipe is pure data, sufficient
//! to run the handler without its JavaScript. The JavaScript remains available for unusual cases.

use serde::Serialize;
use serde_json::Value;

use crate::method::HandlerMethod;

/// A plan to run a handler without its JavaScript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InlinePlan {
    /// The steps, in source order. Each has a value and runs once.
    pub steps: Vec<InlineStep>,
    /// The response after all steps have completed.
    pub answer: ValuePart,
}

/// A step, which produces a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InlineStep {
    /// The steps that must complete before this one. They include its inputs, or steps that in turn wait for
    /// those.
    pub after: Vec<usize>,
    /// The operation that produces the value.
    pub what: InlineOperation,
}

/// The operation of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum InlineOperation {
    /// A safe call to a service outside of the gateway.
    Call {
        /// Its number among the program's sites.
        site: usize,
        /// The method of the call.
        method: HandlerMethod,
        /// The URL.
        url: Vec<UrlPiece>,
        /// Whether the response is passed through as the handler's response.
        passes: bool,
    },
    /// A member of another step's value.
    Member(usize, String),
    /// A text, or a number or boolean that is converted to text in a URL.
    Text(ValuePart),
}

/// A piece of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum UrlPiece {
    /// Literal text.
    Text(String),
    /// A template value, to be percent-encoded.
    Encoded(ValuePart),
    /// The text value of a step.
    Step(usize),
}

/// A value, or the parts that it is composed of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ValuePart {
    /// `undefined`
    Undefined,
    /// A text, a whole number, a boolean or null.
    Constant(Value),
    /// A query parameter of the request.
    Query(String),
    /// The value of a step.
    Step(usize),
    /// An object.
    Object(Vec<ObjectEntry>),
    /// A list.
    List(Vec<ValuePart>),
}

/// An entry of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ObjectEntry {
    /// A member. Its name needs no escapes and is not an array index.
    Named(String, ValuePart),
    /// The members of a step's value.
    Spread(usize),
}

impl InlinePlan {
    /// Returns the number of calls.
    #[must_use]
    pub fn call_count(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.what, InlineOperation::Call { .. })).count()
    }

    /// Whether it reads the request's query parameters.
    #[must_use]
    pub fn reads_query(&self) -> bool {
        let in_url = |piece: &UrlPiece| matches!(piece, UrlPiece::Encoded(part) if part.reads_query());
        self.answer.reads_query()
            || self.steps.iter().any(|step| match &step.what {
                InlineOperation::Call { url, .. } => url.iter().any(in_url),
                InlineOperation::Text(part) => part.reads_query(),
                InlineOperation::Member(..) => false,
            })
    }
}

impl ValuePart {
    fn reads_query(&self) -> bool {
        match self {
            Self::Query(_) => true,
            Self::Object(entries) => {
                entries.iter().any(|entry| matches!(entry, ObjectEntry::Named(_, part) if part.reads_query()))
            }
            Self::List(items) => items.iter().any(Self::reads_query),
            Self::Undefined | Self::Constant(_) | Self::Step(_) => false,
        }
    }
}
