//! Explanation of a plan: the calls of a document, in the order in which they can be made, without executing
//! it.

use std::fmt;

use super::QueryPlan;
use super::data::{ObjectGroup, PlanCall, PlanStep, PositionId};
use super::response_keys::client_key;
use crate::subgraph::ParameterSource;
use crate::subgraph::{BatchStrategy, BoundCall};

/// The calls that a document will make. The `Display` form is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanExplanation {
    /// The calls. Each waits for the earlier calls that it depends on.
    pub steps: Vec<ExplainedStep>,
}

/// A call, or several calls of the same kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedStep {
    /// The wave, counted from 1. Calls of the same wave can be made concurrently.
    pub wave: usize,
    /// The service and the request.
    pub label: String,
    /// The places in the response that the call provides.
    pub response_paths: Vec<String>,
    /// A description of the number of calls.
    pub call_count: String,
    /// The conditions on variables under which the call is made.
    pub conditions: Vec<String>,
    /// The indices of the steps that it waits for.
    pub dependencies: Vec<usize>,
}

impl QueryPlan {
    /// Explains the plan.
    pub(crate) fn explain(&self) -> PlanExplanation {
        let mut waves: Vec<usize> = Vec::new();
        for step in &self.steps {
            let before = step.dependencies.iter().filter_map(|step| waves.get(*step)).max();
            waves.push(before.map_or(1, |wave| wave + 1));
        }
        let explained = |(number, step): (usize, &PlanStep)| ExplainedStep {
            wave: waves[number],
            label: format!("{}: {}", step.service, describe_call(&step.call)),
            response_paths: step.groups.iter().map(|group| self.group_path(group)).collect(),
            call_count: describe_call_count(&step.call),
            conditions: step
                .conditions
                .iter()
                .map(|(name, value)| format!("only if ${name} is {value}"))
                .collect(),
            dependencies: step.dependencies.clone(),
        };
        PlanExplanation { steps: self.steps.iter().enumerate().map(explained).collect() }
    }

    /// The place in the response that a step provides: the position, with the field if the step is for a link
    /// or root field.
    fn group_path(&self, group: &ObjectGroup) -> String {
        let position = &self.positions[group.position];
        let slot = &position.slots[group.slot];
        let mut path = self.position_path(group.position);
        path.extend(slot.field().map(|key| client_key(key).to_owned()));
        if path.is_empty() { "the response".to_owned() } else { path.join(".") }
    }

    fn position_path(&self, position: PositionId) -> Vec<String> {
        let Some((parent, key)) = &self.positions[position].parent else { return Vec::new() };
        let mut path = self.position_path(*parent);
        path.push(client_key(key).to_owned());
        path
    }
}

fn describe_call(call: &PlanCall) -> String {
    match call {
        PlanCall::Operation(operation, _) => format!("{} {}", operation.method, operation.path),
        PlanCall::Keys(how, _) | PlanCall::Linked { strategy: how, .. } => describe_request(how),
        PlanCall::Document(document) | PlanCall::Entities(document, _) => document.text.to_string(),
    }
}

fn describe_request(strategy: &BatchStrategy) -> String {
    let (BatchStrategy::KeyBatches(ask, _)
    | BatchStrategy::WholeList(ask, _)
    | BatchStrategy::PerObject(ask)) = strategy;
    match ask {
        BoundCall::Rest(operation) => {
            let filled = operation.parameters.iter().filter(|parameter| {
                !operation.path.contains(&format!("{{{}}}", parameter.name))
                    && !matches!(parameter.source, ParameterSource::Argument(_))
            });
            let filled: Vec<String> = filled.map(describe_parameter).collect();
            let query = if filled.is_empty() { String::new() } else { format!("?{}", filled.join("&")) };
            format!("{} {}{query}", operation.method, operation.path)
        }
        BoundCall::Field { name, .. } => format!("{{ {name} }}"),
    }
}

fn describe_parameter(parameter: &crate::subgraph::RestParameter) -> String {
    match &parameter.source {
        ParameterSource::Key(key) | ParameterSource::Argument(key) => format!("{}={{{key}}}", parameter.name),
        ParameterSource::Fixed(value) => format!("{}={value}", parameter.name),
    }
}

fn describe_call_count(call: &PlanCall) -> String {
    match call {
        PlanCall::Operation(..) | PlanCall::Document(_) => "one call".to_owned(),
        PlanCall::Entities(..) => "one call for all objects, without duplicates".to_owned(),
        PlanCall::Keys(how, _) | PlanCall::Linked { strategy: how, .. } => match how {
            BatchStrategy::KeyBatches(_, joined) => match joined.batch {
                Some(most) => format!("a call for every {most} keys of {}, without duplicates", joined.key),
                None => format!("one call for all keys of {}, as many as fit", joined.key),
            },
            BatchStrategy::WholeList(_, joined) => {
                format!("one call for the whole list, joined by {} = {}", joined.key, joined.item)
            }
            BatchStrategy::PerObject(_) => "a call for each object, without duplicates".to_owned(),
        },
    }
}

impl PlanExplanation {
    /// Formats the explanation as a Mermaid flowchart, with arrows for dependencies.
    #[must_use]
    pub fn mermaid(&self) -> String {
        let mut text = "flowchart LR\n".to_owned();
        for (number, step) in self.steps.iter().enumerate() {
            let label = step.label.replace('"', "&quot;");
            text.push_str(&format!("  s{number}[\"{}<br/>{label}\"]\n", step.response_paths.join(", ")));
        }
        for (number, step) in self.steps.iter().enumerate() {
            for need in &step.dependencies {
                text.push_str(&format!("  s{need} --> s{number}\n"));
            }
        }
        text
    }
}

impl fmt::Display for PlanExplanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps: Vec<&ExplainedStep> = self.steps.iter().collect();
        steps.sort_by_key(|step| step.wave);
        let mut wave = 0;
        for step in steps {
            let number = if step.wave == wave { String::new() } else { step.wave.to_string() };
            wave = step.wave;
            writeln!(out, "{number:>3}  {}", step.label)?;
            let mut notes = vec![step.call_count.clone()];
            notes.extend(step.conditions.clone());
            writeln!(out, "     for {}: {}", step.response_paths.join(", "), notes.join("; "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
