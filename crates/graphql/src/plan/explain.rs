//! What a document will do, told before it does it: its calls in the order in which they can be made.

use std::fmt;

use super::Plan;
use super::data::{Call, Group, PositionId, Step};
use super::response_keys::client_key;
use crate::subgraph::From;
use crate::{Ask, How};

/// What a document will do. Written out, it is a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Its calls; each waits for those before it that it needs.
    pub steps: Vec<ExplainedStep>,
}

/// A call, or several alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedStep {
    /// From 1 on; those of the same wave can be made at the same time.
    pub wave: usize,
    /// What is asked of whom.
    pub label: String,
    /// For which places in the answer.
    pub places: Vec<String>,
    /// How many calls it is.
    pub times: String,
    /// On which variables it depends whether it is made.
    pub conditions: Vec<String>,
    /// The steps that it waits for, by their places in the list.
    pub needs: Vec<usize>,
}

impl Plan {
    /// What it will do.
    pub(crate) fn explain(&self) -> Explanation {
        let mut waves: Vec<usize> = Vec::new();
        for step in &self.steps {
            let before = step.after.iter().filter_map(|step| waves.get(*step)).max();
            waves.push(before.map_or(1, |wave| wave + 1));
        }
        let explained = |(number, step): (usize, &Step)| ExplainedStep {
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
        Explanation { steps: self.steps.iter().enumerate().map(explained).collect() }
    }

    /// The place in the answer that a step is for: a position, and of a link or root field that field.
    fn place(&self, group: &Group) -> String {
        let position = &self.positions[group.position];
        let slot = &position.slots[group.slot];
        let mut path = self.path(group.position);
        path.extend(slot.field().map(|key| client_key(key).to_owned()));
        if path.is_empty() { "the answer".to_owned() } else { path.join(".") }
    }

    fn path(&self, position: PositionId) -> Vec<String> {
        let Some((parent, key)) = &self.positions[position].parent else { return Vec::new() };
        let mut path = self.path(*parent);
        path.push(client_key(key).to_owned());
        path
    }
}

fn call(call: &Call) -> String {
    match call {
        Call::Operation(operation, _) => format!("{} {}", operation.method, operation.path),
        Call::Keys(how, _) | Call::Linked { how, .. } => asked(how),
        Call::Document(document) | Call::Entities(document, _) => document.text.to_string(),
    }
}

fn asked(how: &How) -> String {
    let (How::Ids(ask, _) | How::List(ask, _) | How::Each(ask)) = how;
    match ask {
        Ask::Rest(operation) => {
            let filled = operation.parameters.iter().filter(|parameter| {
                !operation.path.contains(&format!("{{{}}}", parameter.name))
                    && !matches!(parameter.from, From::Argument(_))
            });
            let filled: Vec<String> = filled.map(parameter).collect();
            let query = if filled.is_empty() { String::new() } else { format!("?{}", filled.join("&")) };
            format!("{} {}{query}", operation.method, operation.path)
        }
        Ask::Field { name, .. } => format!("{{ {name} }}"),
    }
}

fn parameter(parameter: &crate::Parameter) -> String {
    match &parameter.from {
        From::Key(key) | From::Argument(key) => format!("{}={{{key}}}", parameter.name),
        From::Fixed(value) => format!("{}={value}", parameter.name),
    }
}

fn times(call: &Call) -> String {
    match call {
        Call::Operation(..) | Call::Document(_) => "one call".to_owned(),
        Call::Entities(..) => "one call for all objects, equal ones once".to_owned(),
        Call::Keys(how, _) | Call::Linked { how, .. } => match how {
            How::Ids(_, joined) => match joined.batch {
                Some(most) => format!("a call for every {most} keys of {}, equal ones once", joined.key),
                None => format!("one call for all keys of {}, as many as fit", joined.key),
            },
            How::List(_, joined) => {
                format!("one call for the whole list, joined by {} = {}", joined.key, joined.item)
            }
            How::Each(_) => "a call for each object, equal ones once".to_owned(),
        },
    }
}

impl Explanation {
    /// The same as a flowchart of Mermaid: arrows for what a call waits for.
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

impl fmt::Display for Explanation {
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
