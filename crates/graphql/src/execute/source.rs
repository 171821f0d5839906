//! Who answers the steps: the services, or in tests a table.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use json::{Document, Node};

use crate::by_key::{Selection, by_key};
use crate::plan::data::{Call, Step};
use crate::remote::{self, Batch};
use crate::rest;
use crate::sources::{Arguments, Endpoint, Ground, Keys};
use crate::{Fetched, Place};

/// Who answers the steps of a plan.
pub(crate) trait Source: Sync {
    /// What a step brings: something found for each of whom it is made for.
    fn fetch<'a>(&'a self, step: &'a Step, asked: Asked) -> BoxFuture<'a, Fetched>;

    /// Asks for a step's list before it is known who finds something in it.
    fn ahead<'a>(&'a self, step: &'a Step, asked: Asked) -> BoxFuture<'a, ()>;
}

/// What a step is made with.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The values of its field's arguments, an object; nothing where there are none.
    pub(crate) arguments: Option<Bytes>,
    /// The variables of a GraphQL document, those that are there.
    pub(crate) variables: Vec<(Box<str>, Bytes)>,
    pub(crate) keys: KeyRows,
    /// By alias.
    pub(crate) representations: Vec<Vec<Bytes>>,
}

/// The keys of objects, each once, as places in documents.
#[derive(Debug, Default)]
pub(crate) struct KeyRows {
    documents: Vec<Arc<Document>>,
    places: Vec<Place>,
    /// The document of the whole answer's that was added last.
    last: Option<u32>,
}

impl KeyRows {
    /// Adds a value; `number` is that of its document.
    pub(crate) fn add(&mut self, number: u32, document: &Arc<Document>, node: Node<'_>) {
        if self.last != Some(number) {
            self.documents.push(Arc::clone(document));
            self.last = Some(number);
        }
        let document = u32::try_from(self.documents.len() - 1).unwrap_or(u32::MAX);
        self.places.push(Place { document, spot: node.spot() });
    }

    /// The values, row by row.
    pub(crate) fn nodes(&self) -> Vec<Node<'_>> {
        let node = |place: &Place| self.documents.get(place.document as usize)?.at(place.spot);
        self.places.iter().filter_map(node).collect()
    }
}

impl Source for Ground {
    fn fetch<'a>(&'a self, step: &'a Step, asked: Asked) -> BoxFuture<'a, Fetched> {
        Box::pin(fetch(self, step, asked))
    }

    fn ahead<'a>(&'a self, step: &'a Step, asked: Asked) -> BoxFuture<'a, ()> {
        // What comes of it is fetched later, and is the same then.
        Box::pin(fetch(self, step, asked).map(drop))
    }
}

async fn fetch(ground: &Ground, step: &Step, asked: Asked) -> Fetched {
    let Asked { arguments, variables, keys, representations } = asked;
    // What was written here is JSON.
    let arguments = arguments.and_then(|text| Arguments::read(text).ok()).unwrap_or_default();
    let mut pairs: Vec<(&str, Bytes)> = Vec::with_capacity(variables.len());
    for (name, value) in &variables {
        pairs.push((name, value.clone()));
    }
    let (path, document) = match &step.call {
        Call::Operation(operation, _) => {
            return rest::root(ground, &step.service, operation, &arguments).await;
        }
        Call::Keys(how, _) => {
            let keys = Keys { fields: step.needs(), values: keys.nodes() };
            let endpoint = Endpoint { service: &step.service, path: "" };
            return by_key(ground, &endpoint, how, &keys, &arguments, &Selection::default()).await;
        }
        Call::Linked { path, how, selection, declares, .. } => {
            let keys = Keys { fields: step.needs(), values: keys.nodes() };
            let endpoint = Endpoint { service: &step.service, path };
            let selection = Selection { text: selection, declares, variables: &pairs };
            return by_key(ground, &endpoint, how, &keys, &arguments, &selection).await;
        }
        Call::Document(document) => (&document.path, document),
        Call::Entities(document, _) => (&document.path, document),
    };
    let endpoint = Endpoint { service: &step.service, path };
    let Call::Entities(_, aliases) = &step.call else {
        return remote::root(ground, &endpoint, &document.query, &pairs, document.is_query).await;
    };
    let mut batches = Vec::with_capacity(aliases.len());
    for ((alias, variable), representations) in aliases.iter().zip(representations) {
        batches.push(Batch { alias, variable, representations });
    }
    remote::entities(ground, &endpoint, &document.query, &batches, &pairs).await
}
