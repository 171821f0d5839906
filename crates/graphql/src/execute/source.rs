//! Who answers the steps: the services, or in tests a table.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use json::{Document, Node};

use crate::by_key::{Selection, by_key};
use crate::plan::data::{Call, Step};
use crate::remote::{self, Batch};
use crate::rest;
use crate::sources::{Arguments, Endpoint, Ground, Keys};
use crate::{Fetched, How};

/// Who answers the steps of a plan.
pub(crate) trait Source: Sync {
    /// What a step brings: something found for each of whom it is made for.
    fn fetch<'a>(&'a self, step: &'a Step, asked: Asked) -> BoxFuture<'a, Fetched>;
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
    places: Vec<(u32, u32)>,
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
        let start = u32::try_from(node.start()).unwrap_or(u32::MAX);
        self.places.push((u32::try_from(self.documents.len() - 1).unwrap_or(u32::MAX), start));
    }

    /// The values, row by row.
    pub(crate) fn nodes(&self) -> Vec<Node<'_>> {
        let node = |(document, start): &(u32, u32)| {
            self.documents.get(*document as usize).and_then(|document| document.node(*start as usize))
        };
        self.places.iter().filter_map(node).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

impl Source for Ground {
    fn fetch<'a>(&'a self, step: &'a Step, asked: Asked) -> BoxFuture<'a, Fetched> {
        Box::pin(async move {
            let Asked { arguments, variables, keys, representations } = asked;
            // What was written here is JSON.
            let arguments = arguments.and_then(|text| Arguments::read(text).ok()).unwrap_or_default();
            let variables: Vec<(&str, Bytes)> =
                variables.iter().map(|(name, value)| (&**name, value.clone())).collect();
            let endpoint = |path| Endpoint { service: &step.service, path };
            let linked = async |path, how: &How, selection: Selection<'_>| {
                let keys = Keys { fields: step.needs(), values: keys.nodes() };
                by_key(self, &endpoint(path), how, &keys, &arguments, &selection).await
            };
            match &step.call {
                Call::Operation(operation, _) => {
                    rest::root(self, &step.service, operation, &arguments).await
                }
                Call::Keys(how, _) => linked("", how, Selection::default()).await,
                Call::Document(document) => {
                    let endpoint = endpoint(&document.path);
                    remote::root(self, &endpoint, &document.query, &variables, document.is_query).await
                }
                Call::Entities(document, aliases) => {
                    let batch = |((alias, variable), representations): (&'a (Box<str>, Box<str>), _)| Batch {
                        alias,
                        variable,
                        representations,
                    };
                    let batches: Vec<Batch<'_>> = aliases.iter().zip(representations).map(batch).collect();
                    remote::entities(self, &endpoint(&document.path), &document.query, &batches, &variables).await
                }
                Call::Linked { path, how, selection, declares, .. } => {
                    let selection = Selection { text: selection, declares, variables: &variables };
                    linked(path, how, selection).await
                }
            }
        })
    }
}
