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
    pub times: String,
    /// The parts that it waits for.
    pub needs: Vec<String>,
    /// The part that its value is put into, if there is one.
    pub into: Option<String>,
    /// A description of the place that its value is put into.
    pub goes: Option<String>,
    /// A description of the consequences of a failure.
    pub fails: &'static str,
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
                waves[number] = 1 + part.needs.iter().map(|need| waves[*need]).max().unwrap_or(0);
            }
        }
        let mut order: Vec<usize> = (0..plan.parts.len()).collect();
        order.sort_by_key(|part| waves[*part]);
        let limits = &plan.limits;
        AggregateExplanation {
            request: format!("{} {}", self.methods(), self.path),
            inputs: plan.inputs.all.iter().map(input).collect(),
            steps: order.into_iter().map(|part| self.step(part, waves[part])).collect(),
            response: self.shape(),
            limits: format!(
                "at most {} calls, {} at once, {} from services, {}",
                limits.calls, limits.concurrency, limits.upstream_bytes, limits.timeout
            ),
        }
    }

    fn step(&self, number: usize, wave: usize) -> ExplainedPart {
        let part = &self.plan.parts[number];
        ExplainedPart {
            wave,
            part: part.name.to_string(),
            call: format!("{} {}", part.method, part.target),
            times: self.times(part),
            needs: part.needs.iter().map(|need| self.name(*need).to_owned()).collect(),
            into: part.goes_into().map(|target| self.name(target.part).to_owned()),
            goes: part.goes_into().map(|target| self.goes(part, target)),
            fails: match part.fallback {
                FailureFallback::Required => "required",
                FailureFallback::Null => "optional",
                FailureFallback::Default(_) => "has a default",
            },
        }
    }

    fn times(&self, part: &PartPlan) -> String {
        let limits = &self.plan.limits;
        let over = match part.each.as_ref().map(|each| &each.over) {
            None if !part.url.slots().any(|slot| self.is_list(slot)) => return "one call".to_owned(),
            None => match part.batch {
                Some(most) => return format!("a call for every {most} values"),
                None => return "one call, several if the URL had more than 8000 bytes".to_owned(),
            },
            Some(ItemSource::Part(part, _)) => self.name(*part),
            Some(ItemSource::Input(input)) => {
                self.plan.inputs.all.get(*input).map_or("", |input| &input.name)
            }
        };
        let (most, concurrency) = (limits.fan_out.min(limits.calls), self.plan.concurrency);
        let once = if is_safe(&part.method) { ", equal ones once" } else { "" };
        let several = match part.url.slots().any(|slot| self.is_list(slot)) {
            true => ", several for a long array",
            false => "",
        };
        format!("a call for each of {over}{several}{once}: at most {most}, {concurrency} at once")
    }

    fn is_list(&self, slot: &crate::template::TemplateSlot) -> bool {
        match &slot.source {
            crate::template::SlotSource::Input(input) => {
                let input = self.plan.inputs.all.get(*input);
                input.is_some_and(|input| input.declared.kind == crate::declaration::InputType::Array)
            }
            source => source.is_many(),
        }
    }

    fn goes(&self, part: &PartPlan, target: &PartPath) -> String {
        let into = format!("into {} as `{}`", self.name(target.part), target.name);
        match &part.joins {
            Some(joins) if joins.one == RowCardinality::Only(false) => {
                format!("{into}, an array by {}", joins.on)
            }
            Some(joins) => format!("{into}, by {}", joins.on),
            None => into,
        }
    }

    fn shape(&self) -> String {
        let list = |parts: &mut dyn Iterator<Item = usize>| {
            parts.map(|part| self.name(part)).collect::<Vec<_>>().join(", ")
        };
        match &self.plan.answer {
            AggregateShape::Part(part) => self.name(*part).to_owned(),
            AggregateShape::Parts(parts) => {
                format!("{{ {} }}", list(&mut parts.iter().map(|(_, part)| *part)))
            }
            AggregateShape::Merged(parts, _) => {
                format!("the members of {}", list(&mut parts.iter().copied()))
            }
        }
    }

    fn name(&self, part: usize) -> &str {
        &self.plan.parts[part].name
    }
}

fn input(input: &crate::input::AggregateInput) -> String {
    let kind = format!("{:?}", input.declared.kind).to_ascii_lowercase();
    let mut words = format!("{} ({}, {kind}", input.name, input.place.name());
    if let Some(default) = &input.declared.default {
        words.push_str(&format!(", default {default}"));
    }
    if let Some(most) = input.declared.maximum {
        words.push_str(&format!(", at most {most}"));
    }
    words + ")"
}

impl AggregateExplanation {
    /// Returns the calls as a Mermaid flowchart. Solid arrows are dependencies, dotted arrows lead to the
    /// part that a value is put into.
    #[must_use]
    pub fn mermaid(&self) -> String {
        let mut text = "flowchart LR\n".to_owned();
        for step in &self.steps {
            let call = step.call.replace('"', "&quot;");
            text.push_str(&format!("  {}[\"{}<br/>{call}\"]\n", step.part, step.part));
        }
        for step in &self.steps {
            for need in &step.needs {
                text.push_str(&format!("  {need} --> {}\n", step.part));
            }
            if let Some(target) = &step.into {
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
            let mut notes = vec![step.times.clone()];
            notes.extend(step.goes.clone());
            notes.extend((step.fails != "required").then(|| step.fails.to_owned()));
            writeln!(out, "     {:width$}  {}", "", notes.join("; "))?;
        }
        writeln!(out, "  response {}", self.response)?;
        writeln!(out, "  {}", self.limits)
    }
}
