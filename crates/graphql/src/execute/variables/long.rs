//! Long values of variables: they are put into a service's words once, and not for each call that has them; and calls have no
//! more of them together than a request may have memory for.

use std::collections::HashMap;

use bytes::Bytes;

use super::Variables;
use crate::Bindings;
use crate::error::{Code, GraphqlError};
use crate::plan::Plan;
use crate::plan::data::{Call, Step};
use crate::plan::values::{Arguments, Speller, Template};

/// Values of so few bytes are put into words for each call anew.
const SHORT: usize = 8 << 10;
/// The bytes that the values of variables may have in all calls together.
const ARGUMENTS: usize = 8 << 20;

/// The values of variables in services' words, by the address of the services' bindings.
#[derive(Debug, Default)]
pub(super) struct SpelledValues(HashMap<usize, HashMap<Box<str>, Bytes>>);

impl SpelledValues {
    /// A variable in a service's words; none if values are short.
    #[inline]
    pub(super) fn get(&self, name: &str, bindings: Option<&Bindings>) -> Option<&Bytes> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&std::ptr::from_ref(bindings?).addr())?.get(name)
    }
}

impl Variables {
    /// These in the words of all services of a plan, if they are long; refused where calls have too many bytes of them.
    pub(super) fn spelled(mut self, plan: &Plan) -> Result<Self, Box<GraphqlError>> {
        let Some(document) = self.document.as_ref().filter(|document| document.text().len() > SHORT) else {
            return Ok(self);
        };
        let sum = plan.steps.iter().map(|step| self.bytes_of(step)).fold(0, usize::saturating_add);
        if sum > ARGUMENTS {
            let message = format!(
                "the operation has the values of its variables sent to services with {sum} bytes in all; \
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
                for (name, ty) in &self.types {
                    let Some(node) = document.root().member(name.as_bytes()) else { continue };
                    let mut text = Vec::new();
                    speller.respell(node, ty, &mut text);
                    values.insert(name.clone(), text.into());
                }
                values
            });
        }
        self.spelled = spelled;
        Ok(self)
    }

    /// The bytes of values that a step has.
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
