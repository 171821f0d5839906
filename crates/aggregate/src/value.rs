//! What a request is answered of: what its client sent, and what each part's calls brought, which are JSON texts with
//! their indexes, and places in them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use json::{Document, Kind, Node, NotArray, Path, Spot};

use crate::input::Values;
use crate::plan::Plan;
use crate::problem::Reason;
use crate::stream::Held;

/// All that is known of a request so far.
pub(crate) struct Known<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) inputs: Values,
    /// The client's body, where it is looked at.
    pub(crate) body: Option<Document>,
    values: Vec<OnceLock<Value>>,
}

/// A value in a JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    document: Arc<Document>,
    spot: Spot,
}

/// What a part's calls brought.
#[derive(Debug)]
pub(crate) enum Value {
    One(Body),
    Each(Fan),
    /// A long one, which nobody looks into: for all others `null`.
    Long(Held, Body),
}

/// The answers of an `each`.
#[derive(Debug)]
pub(crate) struct Fan {
    /// Each only once.
    pub(crate) answers: Vec<Body>,
    /// Of each item the number of its answer; `None` for `null`.
    pub(crate) of_item: Vec<Option<usize>>,
    list: OnceLock<Body>,
}

impl<'a> Known<'a> {
    pub(crate) fn new(plan: &'a Plan, inputs: Values, body: Option<Document>) -> Self {
        let values = plan.parts.iter().map(|_| OnceLock::new()).collect();
        Self { plan, inputs, body, values }
    }

    /// The value of a part that is over.
    pub(crate) fn value(&self, part: usize) -> Option<&Value> {
        self.values.get(part)?.get()
    }

    /// A part is over.
    pub(crate) fn add(&self, part: usize, value: Value) {
        let _ = self.values[part].set(value);
    }
}

impl Body {
    /// The value that a document is.
    pub(crate) fn whole(document: Arc<Document>) -> Self {
        let spot = document.root().spot();
        Self { document, spot }
    }

    /// The value at a spot of a document.
    pub(crate) fn at(document: Document, spot: Spot) -> Self {
        Self { document: Arc::new(document), spot }
    }

    /// A value that every JSON reader knows.
    pub(crate) fn literal(text: &'static str) -> Self {
        Self::read(Bytes::from_static(text.as_bytes()))
    }

    /// A text that is JSON, as this crate wrote it; `null` if it is none after all, or too long.
    pub(crate) fn read(text: Bytes) -> Self {
        let null = || Document::new(Bytes::from_static(b"null"));
        match Document::new(text).or_else(|_| null()) {
            Ok(document) => Self::whole(Arc::new(document)),
            Err(_) => unreachable!("`null` is JSON"),
        }
    }

    pub(crate) fn root(&self) -> Node<'_> {
        self.document.at(self.spot).unwrap_or_else(|| self.document.root())
    }
}

impl Value {
    /// The value; that of an `each` is the list of its answers.
    pub(crate) fn root(&self) -> Node<'_> {
        match self {
            Self::One(body) | Self::Long(_, body) => body.root(),
            Self::Each(fan) => fan.list.get_or_init(|| fan.to_list()).root(),
        }
    }
}

impl Fan {
    pub(crate) fn new(answers: Vec<Body>, of_item: Vec<Option<usize>>) -> Self {
        Self { answers, of_item, list: OnceLock::new() }
    }

    fn to_list(&self) -> Body {
        let texts = self.of_item.iter().map(|answer| {
            answer.and_then(|answer| self.answers.get(answer)).map_or(&b"null"[..], |body| body.root().text())
        });
        Body::read(array(texts))
    }
}

/// The arrays that several calls for one list brought, as one array.
pub(crate) fn joined(bodies: &[Body]) -> Result<Body, Reason> {
    match bodies.iter().any(|body| body.root().kind() != Kind::Array) {
        true => Err(Reason::BatchNotArray),
        false => Ok(Body::read(array(bodies.iter().flat_map(|body| body.root().items()).map(Node::text)))),
    }
}

/// The text of an array.
fn array<'a>(items: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut text = vec![b'['];
    for item in items {
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend_from_slice(item);
    }
    text.push(b']');
    text.into()
}

/// Shows all that values are put into: the items of the arrays that a path leads to, and what else it leads to.
pub(crate) fn targets<'a>(
    root: Node<'a>,
    path: &Path,
    see: &mut dyn FnMut(Node<'a>),
) -> Result<(), NotArray> {
    path.visit(root, &mut |node| match node.kind() {
        Kind::Array => node.items().for_each(&mut *see),
        _ => see(node),
    })
}
