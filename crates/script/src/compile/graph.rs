//! The data dependence graph of a `par`, as text and as an SVG image.

use std::fmt::Write as _;

use diagnostics::TextPosition;

use crate::analyse::ScriptAnalysis;
use crate::analyse::effects::EffectLocation;
use crate::analyse::parallel::units::declaration_keyword;
use crate::analyse::parallel::{ParPlan, ParUnit, UnitStep};
use crate::program::{DependenceGraph, DependenceNode};

/// Returns the graph of each `par`.
pub(crate) fn par_graphs(
    analysis: &ScriptAnalysis<'_, '_>,
    position: impl Fn(usize) -> TextPosition,
) -> Vec<DependenceGraph> {
    let mut results = Vec::new();
    analysis.plans.iter().for_each(|plan| results.extend(plan.hoisted_calls()));
    let number = |call| results.iter().position(|it| *it == call).map_or(0, |index| index + 1);
    analysis.plans.iter().map(|plan| build_graph(analysis, plan, &position, &number)).collect()
}

fn build_graph(
    analysis: &ScriptAnalysis<'_, '_>,
    plan: &ParPlan,
    position: &impl Fn(usize) -> TextPosition,
    number: &impl Fn(oxc_semantic::NodeId) -> usize,
) -> DependenceGraph {
    let code = &analysis.code;
    let mut graph = DependenceGraph {
        position: position(code.construct(plan.construct).span.start),
        nodes: Vec::new(),
        edges: Vec::new(),
    };
    let mut before: Vec<usize> = Vec::new();
    for segment in &plan.segments {
        let base = graph.nodes.len();
        for (index, unit) in segment.units.iter().enumerate() {
            let first = unit.steps.first().map(|step| match step {
                UnitStep::Statement(node) | UnitStep::Call(node) => *node,
            });
            let start = first.map_or(0, |node| {
                code.construct_at(node)
                    .map_or_else(|| code.node_range(node).start, |id| code.construct(id).span.start)
            });
            graph.nodes.push(DependenceNode {
                label: unit_label(analysis, unit, number),
                position: position(start),
                io: unit.effects.io,
                barrier: unit.effects.barrier || unit.effects.full_barrier,
            });
            for (needed, why) in &unit.dependencies {
                graph.edges.push((base + needed, base + index, dependency_reason(analysis, *why, number)));
            }
            if unit.dependencies.is_empty() {
                graph.edges.extend(before.iter().map(|earlier| (*earlier, base + index, "order".to_owned())));
            }
        }
        let is_needed = |index: &usize| graph.edges.iter().any(|(from, _, _)| from == index);
        before = (base..graph.nodes.len()).filter(|index| !is_needed(index)).collect();
    }
    graph
}

fn unit_label(
    analysis: &ScriptAnalysis<'_, '_>,
    unit: &ParUnit,
    number: &impl Fn(oxc_semantic::NodeId) -> usize,
) -> String {
    let code = &analysis.code;
    let text = |step: &UnitStep| match step {
        UnitStep::Call(call) if number(*call) > 0 => {
            format!("${} = {}", number(*call), code.node_text(*call))
        }
        UnitStep::Call(call) => code.node_text(*call).to_owned(),
        UnitStep::Statement(node) => match code.construct_at(*node) {
            Some(id) => code.source_text(code.construct(id).span.clone()).to_owned(),
            None => match declaration_keyword(code, *node) {
                Some(word) => format!("{word} {}", code.node_text(*node)),
                None => code.node_text(*node).to_owned(),
            },
        },
    };
    let all: Vec<String> = unit.steps.iter().map(text).collect();
    let one_line = all.join("; ").split_whitespace().collect::<Vec<_>>().join(" ");
    truncate_label(&one_line)
}

fn truncate_label(text: &str) -> String {
    const MAX_LABEL_CHARS: usize = 64;
    if text.chars().count() <= MAX_LABEL_CHARS {
        return text.to_owned();
    }
    text.chars().take(MAX_LABEL_CHARS - 2).chain("..".chars()).collect()
}

fn dependency_reason(
    analysis: &ScriptAnalysis<'_, '_>,
    why: EffectLocation,
    number: &impl Fn(oxc_semantic::NodeId) -> usize,
) -> String {
    match why {
        EffectLocation::Variable(symbol)
        | EffectLocation::Content(symbol)
        | EffectLocation::Resource(symbol) => analysis.code.name(symbol).to_owned(),
        EffectLocation::Result(call) => format!("${}", number(call)),
        EffectLocation::Response => "order".to_owned(),
    }
}

impl DependenceGraph {
    /// Returns the graph as text: one line for each unit, with its label and its dependencies.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = format!("par at {}\n", self.position);
        let width = self.nodes.iter().map(|node| node.label.chars().count()).max().unwrap_or(0);
        for (index, node) in self.nodes.iter().enumerate() {
            let calls = match node.io {
                0 => String::new(),
                1 => "1 call".to_owned(),
                io => format!("{io} calls"),
            };
            let needs: Vec<String> = self
                .edges
                .iter()
                .filter(|(_, to, _)| *to == index)
                .map(|(from, _, why)| format!("{from} ({why})"))
                .collect();
            let after = if needs.is_empty() { String::new() } else { format!("after {}", needs.join(", ")) };
            let line = format!("  {index:>2}  {:<width$}  {calls:<8}  {after}", node.label);
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }

    /// Returns the graph as an SVG image, with each unit below its dependencies.
    #[must_use]
    pub fn to_svg(&self) -> String {
        const HEIGHT: usize = 36;
        const GAP: usize = 44;
        let levels = self.levels();
        let widths: Vec<usize> = self.nodes.iter().map(|node| node.label.chars().count() * 8 + 24).collect();
        let rows = levels.iter().max().map_or(0, |level| level + 1);
        let (mut places, mut width) = (vec![(0, 0); self.nodes.len()], 0);
        for row in 0..rows {
            let mut x = 16;
            for (index, _) in levels.iter().enumerate().filter(|(_, level)| **level == row) {
                places[index] = (x, 16 + row * (HEIGHT + GAP));
                x += widths[index] + 24;
            }
            width = width.max(x);
        }
        let height = 16 + rows * (HEIGHT + GAP);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"13\">\n\
             <defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
             <path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n"
        );
        for (from, to, why) in &self.edges {
            let ((x1, y1), (x2, y2)) = (places[*from], places[*to]);
            let (x1, y1, x2) = (x1 + widths[*from] / 2, y1 + HEIGHT, x2 + widths[*to] / 2);
            let _ = writeln!(
                out,
                "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"black\" marker-end=\"url(#end)\"/>"
            );
            let (x, y) = (x1.midpoint(x2) + 6, y1.midpoint(y2));
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" fill=\"gray\">{}</text>", escape_xml(why));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let ((x, y), width) = (places[index], widths[index]);
            let fill = if node.io > 0 { "#cfe8ff" } else { "#f2f2f2" };
            let dash = if node.barrier { " stroke-width=\"2\"" } else { "" };
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"{fill}\" stroke=\"black\"{dash}/>"
            );
            let _ =
                writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", x + 12, y + 23, escape_xml(&node.label));
        }
        out.push_str("</svg>\n");
        out
    }

    /// Returns the level of each unit: the length of its longest chain of dependencies.
    fn levels(&self) -> Vec<usize> {
        let mut levels = vec![0; self.nodes.len()];
        for index in 0..self.nodes.len() {
            let needs = self.edges.iter().filter(|(_, to, _)| *to == index);
            levels[index] = needs.map(|(from, _, _)| levels[*from] + 1).max().unwrap_or(0);
        }
        levels
    }
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
