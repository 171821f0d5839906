//! Long variable values: they are converted to a service's spelling once, instead of once per call, and their
//! total size in all calls is limited, so that a request stays within its memory.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use super::Variables;
use crate::Bindings;
use crate::error::{Code, GraphqlError};
use crate::plan::Plan;
use crate::plan::data::{Call, Step};
use crate::plan::values::{Arguments, Speller, Template};

/// Values up to this size in bytes are converted anew for each call.
const SHORT: usize = 8 << 10;
/// The maximum total size in bytes of variable values, and of those in all calls of an operation.
pub(super) const ARGUMENTS: usize = 8 << 20;

/// Variable values in the spelling of services, by the address of the service's bindings.
#[derive(Debug, Default)]
pub(super) struct SpelledValues(HashMap<usize, HashMap<Box<str>, Bytes>>);

impl SpelledValues {
    /// Returns a variable in a service's spelling; `None` if the values are short.
    #[inline]
    pub(super) fn get(&self, name: &str, bindings: Option<&Bindings>) -> Option<&Bytes> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&std::ptr::from_ref(bindings?).addr())?.get(name)
    }
}

/// Returns the number of services that a plan calls.
pub(super) fn services(plan: &Plan) -> usize {
    let services: HashSet<usize> =
        plan.steps.iter().map(|step| std::ptr::from_ref(&*step.bindings).addr()).collect();
    services.len()
}

impl Variables {
    /// Converts long values to the spelling of each service of a plan. Fails if the calls would contain too
    /// many bytes of them.
    pub(super) fn spelled(mut self, plan: &Plan) -> Result<Self, Box<GraphqlError>> {
        let Some(document) = self.document.as_ref().filter(|document| document.text().len() > SHORT) else {
            return Ok(self);
        };
        let sum = plan.steps.iter().map(|step| self.bytes_of(step)).fold(0, usize::saturating_add);
        if sum > ARGUMENTS {
            let message = format!(
                "the operation sends variable values of {sum} bytes in all to services; \
                 at most {ARGUMENTS} are allowed"
            );
            return Err(Box::new(GraphqlError::new(Code::Limit, message)));
        }
        let mut spelled = SpelledValues::default();
        for step in &plan.steps {
            let known = spelled.0.entry(std::ptr::from_ref(&*step.bindings).addr());
            known.or_insert_with(|| {
                let speller = Speller { types: &plan.types, bindings: Some(&step.bindings) };
                let mut values = HashMap::new();
                for (name, declared) in &self.declared {
                    let Some(node) = declared.spot.and_then(|spot| document.at(spot)) else { continue };
                    let mut text = Vec::new();
                    speller.respell(node, &declared.ty, &mut text);
                    values.insert(name.clone(), text.into());
                }
                values
            });
        }
        self.spelled = spelled;
        Ok(self)
    }

    /// The number of bytes of variable values in a step's calls; 0 if the values are short.
    pub(in crate::execute) fn long_bytes(&self, step: &Step) -> usize {
        if self.spelled.0.is_empty() { 0 } else { self.bytes_of(step) }
    }

    /// The number of bytes of variable values in a step's calls.
    fn bytes_of(&self, step: &Step) -> usize {
        let named = |names: &[Box<str>]| names.iter().map(|name| self.bytes(name)).sum::<usize>();
        match &step.call {
            Call::Operation(_, arguments) | Call::Keys(_, arguments) => self.bytes_in(arguments),
            Call::Document(document) | Call::Entities(document, _) => named(&document.variables),
            Call::Linked { arguments, variables, .. } => self.bytes_in(arguments) + named(variables),
        }
    }

    fn bytes(&self, name: &str) -> usize {
        self.get(name).map_or(0, |node| node.text().len())
    }

    fn bytes_in(&self, arguments: &Arguments) -> usize {
        fn of(variables: &Variables, template: &Template) -> usize {
            match template {
                Template::Text(_) => 0,
                Template::Variable { name, .. } => variables.bytes(name),
                Template::List(items) => items.iter().map(|item| of(variables, item)).sum(),
                Template::Object(members) => members.iter().map(|(_, value)| of(variables, value)).sum(),
            }
        }
        arguments.0.iter().map(|(_, value)| of(self, value)).sum()
    }
}
