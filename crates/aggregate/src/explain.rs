//! What an aggregate will do, told before it does it: its calls in the order in which they can be made.

use std::fmt;

use crate::aggregate::Aggregate;
use crate::declaration::One;
use crate::plan::{Fallback, Over, Part, Shape, Target, is_safe};

/// What an aggregate will do. Written out, it is a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Its method and its route's path.
    pub request: String,
    /// Its inputs, each in a few words.
    pub inputs: Vec<String>,
    /// Its calls; those of the same wave are made at the same time.
    pub steps: Vec<Step>,
    /// What the answer is.
    pub answer: String,
    /// What a request may use.
    pub limits: String,
}

/// A part's calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// From 1 on.
    pub wave: usize,
    /// The part's name.
    pub part: String,
    /// Method, service, path and query, with placeholders.
    pub call: String,
    /// How many calls it is.
    pub times: String,
    /// The parts that it waits for.
    pub needs: Vec<String>,
    /// The part that its value is put into, if it is.
    pub into: Option<String>,
    /// The same, with how.
    pub goes: Option<String>,
    /// What becomes of the answer if it fails.
    pub fails: &'static str,
}

impl Aggregate {
    /// What it will do.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        let plan = &self.plan;
        let mut waves = vec![0; plan.parts.len()];
        // Parts that others need come before them at the latest in as many rounds as there are parts.
        for _ in 0..plan.parts.len() {
            for (number, part) in plan.parts.iter().enumerate() {
                waves[number] = 1 + part.needs.iter().map(|need| waves[*need]).max().unwrap_or(0);
            }
        }
        let mut order: Vec<usize> = (0..plan.parts.len()).collect();
        order.sort_by_key(|part| waves[*part]);
        let limits = &plan.limits;
        Explanation {
            request: format!("{} {}", self.methods(), self.path),
            inputs: plan.inputs.all.iter().map(input).collect(),
            steps: order.into_iter().map(|part| self.step(part, waves[part])).collect(),
            answer: self.shape(),
            limits: format!(
                "at most {} calls, {} at once, {} from services, {}",
                limits.calls, limits.parallel, limits.received, limits.deadline
            ),
        }
    }

    fn step(&self, number: usize, wave: usize) -> Step {
        let part = &self.plan.parts[number];
        Step {
            wave,
            part: part.name.to_string(),
            call: format!("{} {}", part.method, part.target),
            times: self.times(part),
            needs: part.needs.iter().map(|need| self.name(*need).to_owned()).collect(),
            into: part.goes_into().map(|target| self.name(target.part).to_owned()),
            goes: part.goes_into().map(|target| self.goes(part, target)),
            fails: match part.fallback {
                Fallback::Required => "required",
                Fallback::Null => "optional",
                Fallback::Default(_) => "has a default",
            },
        }
    }

    fn times(&self, part: &Part) -> String {
        let limits = &self.plan.limits;
        let over = match part.each.as_ref().map(|each| &each.over) {
            None if !part.url.slots().any(|slot| self.is_list(slot)) => return "one call".to_owned(),
            None => match part.batch {
                Some(most) => return format!("a call for every {most} values"),
                None => return "one call, several if the URL had more than 8000 bytes".to_owned(),
            },
            Some(Over::Part(part, _)) => self.name(*part),
            Some(Over::Input(input)) => self.plan.inputs.all.get(*input).map_or("", |input| &input.name),
        };
        let (most, parallel) = (limits.fan_out.min(limits.calls), self.plan.parallel);
        let once = if is_safe(&part.method) { ", equal ones once" } else { "" };
        let several = match part.url.slots().any(|slot| self.is_list(slot)) {
            true => ", several for a long list",
            false => "",
        };
        format!("a call for each of {over}{several}{once}: at most {most}, {parallel} at once")
    }

    fn is_list(&self, slot: &crate::template::Slot) -> bool {
        match &slot.source {
            crate::template::Source::Input(input) => {
                let input = self.plan.inputs.all.get(*input);
                input.is_some_and(|input| input.declared.kind == crate::declaration::InputType::List)
            }
            source => source.is_many(),
        }
    }

    fn goes(&self, part: &Part, target: &Target) -> String {
        let into = format!("into {} as `{}`", self.name(target.part), target.name);
        match &part.joins {
            Some(joins) if joins.one == One::Only(false) => format!("{into}, a list by {}", joins.on),
            Some(joins) => format!("{into}, by {}", joins.on),
            None => into,
        }
    }

    fn shape(&self) -> String {
        let list = |parts: &mut dyn Iterator<Item = usize>| {
            parts.map(|part| self.name(part)).collect::<Vec<_>>().join(", ")
        };
        match &self.plan.answer {
            Shape::Part(part) => self.name(*part).to_owned(),
            Shape::Parts(parts) => format!("{{ {} }}", list(&mut parts.iter().map(|(_, part)| *part))),
            Shape::Merged(parts, _) => format!("the members of {}", list(&mut parts.iter().copied())),
        }
    }

    fn name(&self, part: usize) -> &str {
        &self.plan.parts[part].name
    }
}

fn input(input: &crate::input::Input) -> String {
    let kind = format!("{:?}", input.declared.kind).to_ascii_lowercase();
    let mut words = format!("{} ({}, {kind}", input.name, input.place.name());
    if let Some(default) = &input.declared.default {
        words.push_str(&format!(", {default} where it is missing"));
    }
    if let Some(most) = input.declared.maximum {
        words.push_str(&format!(", at most {most}"));
    }
    words + ")"
}

impl Explanation {
    /// The same as a flowchart of Mermaid: arrows for what a call waits for, dotted ones for what is put where.
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

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.request)?;
        if !self.inputs.is_empty() {
            writeln!(out, "  takes {}", self.inputs.join("; "))?;
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
        writeln!(out, "  answers {}", self.answer)?;
        writeln!(out, "  {}", self.limits)
    }
}
