//! Variable values that are long in all calls together: they are converted once to the spelling of each
//! service that they are sent to, and their total size is limited, so that a request stays within its memory.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use super::CoercedVariables;
use crate::error::{GraphqlError, GraphqlErrorKind};
use crate::plan::QueryPlan;
use crate::plan::data::{PlanCall, PlanStep};
use crate::plan::values::{CallArgumentTexts, ValueSpeller, ValueTemplate};
use crate::subgraph::SubgraphBindings;

/// Values up to this total size in all calls are converted anew for each call.
const SHORT_BYTES: usize = 8 << 10;
/// The maximum total size in bytes of variable values, and of those in all calls of an operation.
pub(super) const MAX_ARGUMENT_BYTES: usize = 8 << 20;

/// Variable values in the spelling of services, by the address of the service's bindings.
#[derive(Debug, Default)]
pub(super) struct SpelledValues(HashMap<usize, HashMap<Box<str>, Bytes>>);

impl SpelledValues {
    /// Converts long values to the spelling of each service that they are sent to. Fails if the calls would
    /// contain too many bytes of them.
    pub(super) fn new(variables: &CoercedVariables, plan: &QueryPlan) -> Result<Self, Box<GraphqlError>> {
        let bytes = plan.steps.iter().map(|step| variable_bytes(variables, step));
        let sum = bytes.fold(0, usize::saturating_add);
        if sum <= SHORT_BYTES {
            return Ok(Self::default());
        }
        if sum > MAX_ARGUMENT_BYTES {
            let message = format!(
                "the operation sends variable values of {sum} bytes in all to services; \
                 at most {MAX_ARGUMENT_BYTES} are allowed"
            );
            return Err(Box::new(GraphqlError::new(GraphqlErrorKind::Limit, message)));
        }
        let mut spelled = Self::default();
        for step in &plan.steps {
            let speller = ValueSpeller { types: &plan.types, bindings: Some(&step.bindings) };
            let values = spelled.0.entry(std::ptr::from_ref(&*step.bindings).addr()).or_default();
            for_each_variable(step, &mut |name| {
                if values.contains_key(name) {
                    return;
                }
                let (Some(node), Some(declared)) = (variables.get(name), variables.declarations.get(name))
                else {
                    return;
                };
                let mut text = Vec::new();
                speller.respell(node, &declared.ty, &mut text);
                values.insert(name.into(), text.into());
            });
        }
        Ok(spelled)
    }

    /// Whether the values are short.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a variable in a service's spelling; `None` if the values are short, or it is not sent there.
    #[inline]
    pub(super) fn get(&self, name: &str, bindings: Option<&SubgraphBindings>) -> Option<&Bytes> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&std::ptr::from_ref(bindings?).addr())?.get(name)
    }
}

/// Returns the number of services that a plan calls.
pub(super) fn count_services(plan: &QueryPlan) -> usize {
    let services: HashSet<usize> =
        plan.steps.iter().map(|step| std::ptr::from_ref(&*step.bindings).addr()).collect();
    services.len()
}

/// The number of bytes of variable values in a step's calls.
pub(super) fn variable_bytes(variables: &CoercedVariables, step: &PlanStep) -> usize {
    let mut bytes = 0;
    for_each_variable(step, &mut |name| bytes += variables.get(name).map_or(0, |node| node.text().len()));
    bytes
}

/// Calls a closure with the name of each variable in a step's call, as often as the call contains its value.
fn for_each_variable(step: &PlanStep, see: &mut dyn FnMut(&str)) {
    fn visit_arguments(arguments: &CallArgumentTexts, see: &mut dyn FnMut(&str)) {
        for (_, value) in &arguments.0 {
            visit_value(value, see);
        }
    }
    fn visit_value(value: &ValueTemplate, see: &mut dyn FnMut(&str)) {
        match value {
            ValueTemplate::Text(_) => {}
            ValueTemplate::Variable { name, .. } => see(name),
            ValueTemplate::List(items) => items.iter().for_each(|item| visit_value(item, see)),
            ValueTemplate::Object(members) => members.iter().for_each(|(_, value)| visit_value(value, see)),
        }
    }
    match &step.call {
        PlanCall::Operation(_, arguments) | PlanCall::Keys(_, arguments) => visit_arguments(arguments, see),
        PlanCall::Document(document) | PlanCall::Entities(document, _) => {
            document.variables.iter().for_each(|name| see(name));
        }
        PlanCall::Linked { arguments, variables, .. } => {
            visit_arguments(arguments, see);
            variables.iter().for_each(|name| see(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use offload::SHORT_TEXT;

    use super::*;
    use crate::compose::{ServiceSchema, compose};
    use crate::config::GraphqlLimits;
    use crate::plan::QueryPlanner;
    use crate::subgraph::{Subgraph, SubgraphProtocol};

    /// Plans a document over two services, each of which has a field with its name.
    fn plan_document(document: &str) -> Arc<QueryPlan> {
        let subgraphs = ["one", "two"].map(|name| Subgraph {
            name: name.into(),
            sdl: format!("type Query {{ {name}(text: String): Int }}"),
            kind: SubgraphProtocol::Remote {
                path: "/graphql".into(),
                bindings: Arc::default(),
                is_federated: true,
            },
        });
        let parts = subgraphs.each_ref().map(|part| ServiceSchema { name: &part.name, sdl: &part.sdl });
        let supergraph = compose(&parts).expect("a supergraph");
        let planner = QueryPlanner::new(&supergraph.sdl, subgraphs.into(), &GraphqlLimits::default(), true);
        planner.expect("a planner").plan(document, None).expect("a plan")
    }

    #[test]
    fn does_not_count_the_values_of_long_variables() {
        let plan = plan_document("query($a: String) { one(text: $a) }");
        for length in [SHORT_TEXT, SHORT_TEXT + 1] {
            let counts = CoercedVariables::coercion_work(&plan, &vec![b','; length]) > length;
            assert_eq!(counts, length <= SHORT_TEXT, "{length} bytes");
        }
    }

    #[test]
    fn spells_a_variable_only_for_the_services_that_it_is_sent_to() {
        let plan = plan_document("query($a: String, $b: String) { one(text: $a) two(text: $b) }");
        let text = "x".repeat(SHORT_BYTES);
        let given = format!(r#"{{"a":"{text}","b":"{text}"}}"#);
        let variables = CoercedVariables::coerce(&plan, given.into()).expect("variables");
        let spelled = variables.spelled_values.0.values();
        let mut names: Vec<Vec<&str>> =
            spelled.map(|values| values.keys().map(|name| &**name).collect()).collect();
        names.sort_unstable();
        assert_eq!(names, [["a"], ["b"]]);
    }
}
