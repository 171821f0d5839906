//! Explanation of a plan: the calls of a document, in the order in which they can be made, without executing
//! it.

use std::fmt;

use super::QueryPlan;
use super::data::{ObjectGroup, PlanCall, PlanStep, PositionId};
use super::response_keys::client_key;
use crate::subgraph::ParameterSource;
use crate::{BatchStrategy, BoundCall};

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
    pub places: Vec<String>,
    /// A description of the number of calls.
    pub times: String,
    /// The conditions on variables under which the call is made.
    pub conditions: Vec<String>,
    /// The indices of the steps that it waits for.
    pub needs: Vec<usize>,
}

impl QueryPlan {
    /// Explains the plan.
    pub(crate) fn explain(&self) -> PlanExplanation {
        let mut waves: Vec<usize> = Vec::new();
        for step in &self.steps {
            let before = step.after.iter().filter_map(|step| waves.get(*step)).max();
            waves.push(before.map_or(1, |wave| wave + 1));
        }
        let explained = |(number, step): (usize, &PlanStep)| ExplainedStep {
            wave: waves[number],
            label: format!("{}: {}", step.service, call(&step.call)),
            places: step.groups.iter().map(|group| self.place(group)).collect(),
            times: times(&step.call),
            conditions: step
                .conditions
                .iter()
                .map(|(name, value)| format!("only if ${name} is {value}"))
                .collect(),
            needs: step.after.clone(),
        };
        PlanExplanation { steps: self.steps.iter().enumerate().map(explained).collect() }
    }

    /// The place in the response that a step provides: the position, with the field if the step is for a link
    /// or root field.
    fn place(&self, group: &ObjectGroup) -> String {
        let position = &self.positions[group.position];
        let slot = &position.slots[group.slot];
        let mut path = self.path(group.position);
        path.extend(slot.field().map(|key| client_key(key).to_owned()));
        if path.is_empty() { "the response".to_owned() } else { path.join(".") }
    }

    fn path(&self, position: PositionId) -> Vec<String> {
        let Some((parent, key)) = &self.positions[position].parent else { return Vec::new() };
        let mut path = self.path(*parent);
        path.push(client_key(key).to_owned());
        path
    }
}

fn call(call: &PlanCall) -> String {
    match call {
        PlanCall::Operation(operation, _) => format!("{} {}", operation.method, operation.path),
        PlanCall::Keys(how, _) | PlanCall::Linked { how, .. } => asked(how),
        PlanCall::Document(document) | PlanCall::Entities(document, _) => document.text.to_string(),
    }
}

fn asked(how: &BatchStrategy) -> String {
    let (BatchStrategy::Ids(ask, _) | BatchStrategy::List(ask, _) | BatchStrategy::Each(ask)) = how;
    match ask {
        BoundCall::Rest(operation) => {
            let filled = operation.parameters.iter().filter(|parameter| {
                !operation.path.contains(&format!("{{{}}}", parameter.name))
                    && !matches!(parameter.from, ParameterSource::Argument(_))
            });
            let filled: Vec<String> = filled.map(parameter).collect();
            let query = if filled.is_empty() { String::new() } else { format!("?{}", filled.join("&")) };
            format!("{} {}{query}", operation.method, operation.path)
        }
        BoundCall::Field { name, .. } => format!("{{ {name} }}"),
    }
}

fn parameter(parameter: &crate::RestParameter) -> String {
    match &parameter.from {
        ParameterSource::Key(key) | ParameterSource::Argument(key) => format!("{}={{{key}}}", parameter.name),
        ParameterSource::Fixed(value) => format!("{}={value}", parameter.name),
    }
}

fn times(call: &PlanCall) -> String {
    match call {
        PlanCall::Operation(..) | PlanCall::Document(_) => "one call".to_owned(),
        PlanCall::Entities(..) => "one call for all objects, without duplicates".to_owned(),
        PlanCall::Keys(how, _) | PlanCall::Linked { how, .. } => match how {
            BatchStrategy::Ids(_, joined) => match joined.batch {
                Some(most) => format!("a call for every {most} keys of {}, without duplicates", joined.key),
                None => format!("one call for all keys of {}, as many as fit", joined.key),
            },
            BatchStrategy::List(_, joined) => {
                format!("one call for the whole list, joined by {} = {}", joined.key, joined.item)
            }
            BatchStrategy::Each(_) => "a call for each object, without duplicates".to_owned(),
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
            text.push_str(&format!("  s{number}[\"{}<br/>{label}\"]\n", step.places.join(", ")));
        }
        for (number, step) in self.steps.iter().enumerate() {
            for need in &step.needs {
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
            let mut notes = vec![step.times.clone()];
            notes.extend(step.conditions.clone());
            writeln!(out, "     for {}: {}", step.places.join(", "), notes.join("; "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
