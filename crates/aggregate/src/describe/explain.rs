//! Explanations of aggregates: the calls of an aggregate, in the order in which they can be made.

use std::fmt;

use crate::aggregate::Aggregate;
use crate::declaration::RowCardinality;
use crate::plan::{AggregateShape, FailureFallback, ItemSource, PartPath, PartPlan, is_safe};

/// The explanation of an aggregate. Its `Display` form is text for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateExplanation {
    /// The method and the route's path.
    pub request: String,
    /// A short description of each input.
    pub inputs: Vec<String>,
    /// The calls. Those of the same wave run concurrently.
    pub steps: Vec<ExplainedPart>,
    /// A description of the response.
    pub response: String,
    /// A description of the limits of a request.
    pub limits: String,
}

/// The calls of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedPart {
    /// The number of the wave, from 1.
    pub wave: usize,
    /// The part's name.
    pub part: String,
    /// The method, service, path and query, with placeholders.
    pub call: String,
    /// A description of the number of calls.
    pub call_count: String,
    /// The parts that it waits for.
    pub dependencies: Vec<String>,
    /// The part that its value is put into, if there is one.
    pub target_part: Option<String>,
    /// A description of the place that its value is put into.
    pub destination: Option<String>,
    /// A description of the consequences of a failure.
    pub failure_effect: &'static str,
}

impl Aggregate {
    /// Explains the aggregate.
    #[must_use]
    pub fn explain(&self) -> AggregateExplanation {
        let plan = &self.plan;
        let mut waves = vec![0; plan.parts.len()];
        // Dependencies are acyclic, so the waves are final after as many rounds as there are parts.
        for _ in 0..plan.parts.len() {
            for (number, part) in plan.parts.iter().enumerate() {
                waves[number] = 1 + part.dependencies.iter().map(|need| waves[*need]).max().unwrap_or(0);
            }
        }
        let mut order: Vec<usize> = (0..plan.parts.len()).collect();
        order.sort_by_key(|part| waves[*part]);
        let limits = &plan.limits;
        AggregateExplanation {
            request: format!("{} {}", self.methods(), self.path),
            inputs: plan.inputs.entries.iter().map(describe_input).collect(),
            steps: order.into_iter().map(|part| self.explain_part(part, waves[part])).collect(),
            response: self.describe_shape(),
            limits: format!(
                "at most {} calls, {} at once, {} from services, {}",
                limits.calls, limits.concurrency, limits.upstream_bytes, limits.timeout
            ),
        }
    }

    fn explain_part(&self, number: usize, wave: usize) -> ExplainedPart {
        let part = &self.plan.parts[number];
        ExplainedPart {
            wave,
            part: part.name.to_string(),
            call: format!("{} {}", part.method, part.target),
            call_count: self.describe_call_count(part),
            dependencies: part.dependencies.iter().map(|need| self.part_name(*need).to_owned()).collect(),
            target_part: part.put_target().map(|target| self.part_name(target.part).to_owned()),
            destination: part.put_target().map(|target| self.describe_target(part, target)),
            failure_effect: match part.fallback {
                FailureFallback::Required => "required",
                FailureFallback::Null => "optional",
                FailureFallback::Default(_) => "has a default",
            },
        }
    }

    fn describe_call_count(&self, part: &PartPlan) -> String {
        let limits = &self.plan.limits;
        let over = match part.each.as_ref().map(|each| &each.source) {
            None if !part.url.slots().any(|slot| self.is_list_slot(slot)) => return "one call".to_owned(),
            None => match part.batch {
                Some(most) => return format!("a call for every {most} values"),
                None => return "one call, several if the URL had more than 8000 bytes".to_owned(),
            },
            Some(ItemSource::Part(part, _)) => self.part_name(*part),
            Some(ItemSource::Input(input)) => {
                self.plan.inputs.entries.get(*input).map_or("", |input| &input.name)
            }
        };
        let (most, concurrency) = (limits.fan_out.min(limits.calls), self.plan.concurrency);
        let once = if is_safe(&part.method) { ", equal ones once" } else { "" };
        let several = match part.url.slots().any(|slot| self.is_list_slot(slot)) {
            true => ", several for a long array",
            false => "",
        };
        format!("a call for each of {over}{several}{once}: at most {most}, {concurrency} at once")
    }

    fn is_list_slot(&self, slot: &crate::plan::template::TemplateSlot) -> bool {
        match &slot.source {
            crate::plan::template::SlotSource::Input(input) => {
                let input = self.plan.inputs.entries.get(*input);
                input.is_some_and(|input| input.declaration.kind == crate::declaration::InputType::Array)
            }
            source => source.is_many(),
        }
    }

    fn describe_target(&self, part: &PartPlan, target: &PartPath) -> String {
        let into = format!("into {} as `{}`", self.part_name(target.part), target.name);
        match &part.joins {
            Some(joins) if joins.cardinality == RowCardinality::Only(false) => {
                format!("{into}, an array by {}", joins.key_text)
            }
            Some(joins) => format!("{into}, by {}", joins.key_text),
            None => into,
        }
    }

    fn describe_shape(&self) -> String {
        let list = |parts: &mut dyn Iterator<Item = usize>| {
            parts.map(|part| self.part_name(part)).collect::<Vec<_>>().join(", ")
        };
        match &self.plan.answer {
            AggregateShape::Part(part) => self.part_name(*part).to_owned(),
            AggregateShape::Parts(parts) => {
                format!("{{ {} }}", list(&mut parts.iter().map(|(_, part)| *part)))
            }
            AggregateShape::Merged(parts, _) => {
                format!("the members of {}", list(&mut parts.iter().copied()))
            }
        }
    }

    fn part_name(&self, part: usize) -> &str {
        &self.plan.parts[part].name
    }
}

fn describe_input(input: &crate::plan::input::AggregateInput) -> String {
    let kind = format!("{:?}", input.declaration.kind).to_ascii_lowercase();
    let mut words = format!("{} ({}, {kind}", input.name, input.place.name());
    if let Some(default) = &input.declaration.default {
        words.push_str(&format!(", default {default}"));
    }
    if let Some(most) = input.declaration.maximum {
        words.push_str(&format!(", at most {most}"));
    }
    words + ")"
}

impl AggregateExplanation {
    /// Returns the calls as a Mermaid flowchart. Solid arrows are dependencies, dotted arrows lead to the
    /// part that a value is put into.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        let mut text = "flowchart LR\n".to_owned();
        for step in &self.steps {
            let call = step.call.replace('"', "&quot;");
            text.push_str(&format!("  {}[\"{}<br/>{call}\"]\n", step.part, step.part));
        }
        for step in &self.steps {
            for need in &step.dependencies {
                text.push_str(&format!("  {need} --> {}\n", step.part));
            }
            if let Some(target) = &step.target_part {
                text.push_str(&format!("  {} -.-> {target}\n", step.part));
            }
        }
        text
    }
}

impl fmt::Display for AggregateExplanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.request)?;
        if !self.inputs.is_empty() {
            writeln!(out, "  inputs {}", self.inputs.join("; "))?;
        }
        let width = self.steps.iter().map(|step| step.part.len()).max().unwrap_or(0);
        let mut wave = 0;
        for step in &self.steps {
            let number = if step.wave == wave { String::new() } else { step.wave.to_string() };
            wave = step.wave;
            writeln!(out, "{number:>3}  {:width$}  {}", step.part, step.call)?;
            let mut notes = vec![step.call_count.clone()];
            notes.extend(step.destination.clone());
            notes.extend((step.failure_effect != "required").then(|| step.failure_effect.to_owned()));
            writeln!(out, "     {:width$}  {}", "", notes.join("; "))?;
        }
        writeln!(out, "  response {}", self.response)?;
        writeln!(out, "  {}", self.limits)
    }
}
