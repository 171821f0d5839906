//! What calls are made with: the services of a route, a request's own account with them, and the values that it asks by.

use std::sync::Arc;

use bytes::Bytes;
use json::{Document, Node};
use services::{Call, CallError, Calls, Coalescer, PathError, Service, Services};

use crate::answer::Answer;
use crate::reason::Reason;

/// The services of a route.
pub(crate) struct Sources {
    services: Services,
    limits: SourceLimits,
    coalescer: Option<Arc<Coalescer<Answer>>>,
}

/// How much is asked at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceLimits {
    /// Calls for the objects of one field.
    pub(crate) calls: usize,
    /// Calls under way at once.
    pub(crate) parallel: usize,
    /// Bytes of an answer that several requests get.
    pub(crate) received: u64,
}

/// What a request's calls are made with.
pub(crate) struct Ground {
    pub(crate) calls: Calls<Answer>,
    pub(crate) limits: SourceLimits,
}

/// Where a service is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint<'a> {
    /// The service's name.
    pub(crate) service: &'a str,
    /// Where it answers GraphQL; nothing for one that speaks REST.
    pub(crate) path: &'a str,
}

/// The values of a field's arguments, as the service spells them: an object.
#[derive(Debug, Default)]
pub(crate) struct Arguments(Option<Document>);

/// The keys of the objects that something is asked for, each once.
#[derive(Clone, Debug)]
pub(crate) struct Keys<'a> {
    /// The fields of the key.
    pub(crate) fields: &'a [Box<str>],
    /// Their values, object by object. `null` is the key of nothing.
    pub(crate) values: Vec<Node<'a>>,
}

impl Sources {
    /// The services of a route. With `coalesces`, equal calls of several requests at the same time are made once.
    pub(crate) fn new(services: Services, limits: SourceLimits, coalesces: bool) -> Arc<Self> {
        let coalescer = coalesces.then(|| Arc::new(Coalescer::new(limits.received)));
        Arc::new(Self { services, limits, coalescer })
    }

    /// What the calls of a request are made with.
    pub(crate) fn ground(&self, call: Call) -> Ground {
        let calls = Calls::new(self.services.clone(), call);
        let calls = match &self.coalescer {
            Some(coalescer) => calls.together(Arc::clone(coalescer)),
            None => calls,
        };
        Ground { calls, limits: self.limits }
    }
}

impl Ground {
    /// The service of this name.
    pub(crate) fn service(&self, name: &str) -> Result<&Arc<Service>, Reason> {
        let unknown = || Reason::Call(Arc::new(CallError::Path(PathError::UnknownService)));
        self.calls.services().get(name).ok_or_else(unknown)
    }
}

impl Endpoint<'_> {
    /// The service's name, for messages.
    pub(crate) fn name(&self, ground: &Ground) -> Arc<str> {
        ground
            .service(self.service)
            .map_or_else(|_| self.service.into(), |service| Arc::clone(service.name()))
    }
}

impl Arguments {
    /// Reads the text of an object.
    ///
    /// # Errors
    /// When it is not JSON.
    pub(crate) fn read(text: Bytes) -> Result<Self, json::Error> {
        Ok(Self(Some(Document::new(text)?)))
    }

    /// The value of an argument; none where it is absent.
    pub(crate) fn get(&self, name: &str) -> Option<Node<'_>> {
        self.0.as_ref()?.root().member(name.as_bytes())
    }
}

impl<'a> Keys<'a> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self.fields.len() {
            0 => 1,
            width => self.values.len() / width,
        }
    }

    /// The values of one of them, in the order of the fields.
    pub(crate) fn row(&self, number: usize) -> &[Node<'a>] {
        let width = self.fields.len();
        self.values.get(number * width..(number + 1) * width).unwrap_or_default()
    }

    /// The values of a field, object by object.
    pub(crate) fn column(&self, field: &str) -> Option<impl Iterator<Item = Node<'a>> + use<'a, '_>> {
        let place = self.fields.iter().position(|known| **known == *field)?;
        Some(self.values.iter().skip(place).step_by(self.fields.len()).copied())
    }
}
