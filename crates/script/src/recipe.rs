//! Recipes: what handlers do that only call resources and put their answers together. Pure data, enough to do the same
//! without the JavaScript, which is there all the same for whatever is unusual.

use serde::Serialize;
use serde_json::Value;

use crate::method::Method;

/// What a handler does, for whoever does it in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recipe {
    /// In the order of the text. Each has a value, and is done once.
    pub steps: Vec<Step>,
    /// What is responded when all steps are done.
    pub answer: Part,
}

/// Something that has a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The steps that have to be done before it: what it uses is among them, or they have waited for it.
    pub after: Vec<usize>,
    /// How it comes to its value.
    pub what: What,
}

/// How a step comes to its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum What {
    /// A call that changes nothing, to the outside of the gateway.
    Call {
        /// Its number among the program's sites.
        site: usize,
        /// By this method.
        method: Method,
        /// The URL.
        url: Vec<Piece>,
        /// Whether what comes is the answer, as it comes.
        passes: bool,
    },
    /// A member of another step's value.
    Member(usize, String),
    /// A text, or what becomes one in a URL: a number or a boolean.
    Text(Part),
}

/// A piece of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Piece {
    /// As it is.
    Text(String),
    /// A value that was put into a hole.
    Encoded(Part),
    /// The text that a step has.
    Step(usize),
}

/// A value, or what one is put together of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Part {
    /// `undefined`
    Undefined,
    /// A text, a whole number, a boolean or null.
    Constant(Value),
    /// A parameter of the request.
    Query(String),
    /// A step's value.
    Step(usize),
    /// An object.
    Object(Vec<Entry>),
    /// A list.
    List(Vec<Part>),
}

/// What an object is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Entry {
    /// A member. Its name needs no escapes, and is no index.
    Named(String, Part),
    /// The members of a step's value.
    Spread(usize),
}

impl Recipe {
    /// How many calls it makes.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.what, What::Call { .. })).count()
    }

    /// Whether it looks at the request's parameters.
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
