//! Emission of `par` as units that `$r.par` starts when their dependencies have completed, and of `pfor` as
//! iterations that `$r.pfor` runs.

use std::ops::Range;

use oxc_ast::AstKind;
use oxc_semantic::NodeId;
use oxc_span::GetSpan;

use super::CodeEmitter;
use super::edits::ReplacementPiece;
use crate::analyse::effects::jump_target;
use crate::analyse::parallel::units::declaration_keyword;
use crate::analyse::parallel::{ParPlan, ParSegment, ParUnit, UnitStep};
use crate::analyse::pfor;
use crate::syntax::{ConstructId, ConstructKind};

/// The keys that `pfor` iterates over, for a body without calls. Must match `$r.pfor`.
const PFOR_KEYS: &str = "((e) => Array.isArray(e) || ArrayBuffer.isView(e) || typeof e === \"string\" \
                    ? Object.keys(e).map(Number) : Object.keys(Object(e)))";

impl CodeEmitter<'_, '_, '_> {
    pub(super) fn emit_parallel(&mut self) {
        for plan in &self.analysis.plans {
            self.emit_par(plan);
        }
        for (id, construct) in self.analysis.code.parsed.syntax.constructs.iter().enumerate() {
            if let ConstructKind::Pfor { name } = &construct.kind {
                self.emit_pfor(id, &name.text);
            }
        }
    }

    fn emit_pfor(&mut self, id: ConstructId, index: &str) {
        let it = self.analysis;
        let statement = it.code.statements[id];
        let (AstKind::ForInStatement(each), Some(body)) =
            (it.code.kind(statement), pfor::loop_body(&it.code, id))
        else {
            return;
        };
        let list = it.code.source_range(each.right.span());
        let construct = it.code.construct(id);
        let Some(text) = construct.body.clone() else { return };
        // A body without braces ends at the end of its statement in the tree: `if (a) b(); else c()`.
        let text = text.start..it.code.node_range(body).end.max(text.start);
        let span = construct.span.start..it.code.node_range(statement).end.max(construct.span.end);
        let waits = !it.calls.waits_within(&it.code, body).is_empty();
        if !waits || pfor::is_sequential(&it.code, id) {
            let head = [
                ReplacementPiece::from_text(format!("for (const {index} of {PFOR_KEYS}(")),
                ReplacementPiece::Source(list),
                ReplacementPiece::from_text(")) "),
            ];
            return self.edits.replace(span, [head.as_slice(), &[ReplacementPiece::Source(text)]].concat());
        }
        let pieces = vec![
            ReplacementPiece::from_text("await $r.pfor("),
            ReplacementPiece::Source(list),
            ReplacementPiece::from_text(format!(", async ({index}) => {{")),
            ReplacementPiece::Source(text),
            ReplacementPiece::from_text("});"),
        ];
        self.edits.replace(span, pieces);
        for node in it
            .code
            .subtree_nodes(body)
            .filter(|node| matches!(it.code.kind(*node), AstKind::ContinueStatement(_)))
        {
            let is_label = |node: NodeId| matches!(it.code.kind(node), AstKind::LabeledStatement(_));
            let ends =
                |node: NodeId| node == statement || (is_label(node) && it.code.parent(statement) == node);
            if jump_target(&it.code, node).is_some_and(ends) {
                self.edits.replace_text(it.code.node_range(node), "return;");
            }
        }
    }

    fn emit_par(&mut self, plan: &ParPlan) {
        let it = self.analysis;
        let construct = it.code.construct(plan.construct);
        let Some(body) = construct.body.clone() else { return };
        let block = it.code.statements[plan.construct];
        let mut pieces = vec![ReplacementPiece::from_text("{")];
        let results: Vec<String> = plan.hoisted_calls().map(|call| self.result_variable(call)).collect();
        let names = [
            ("var", self.lifted_names(block, true)),
            ("let", [results, self.lifted_names(block, false)].concat()),
        ];
        for (word, names) in names.iter().filter(|(_, names)| !names.is_empty()) {
            pieces.push(ReplacementPiece::from_text(format!(" {word} {};", names.join(", "))));
        }
        for function in &plan.functions {
            pieces.extend([
                ReplacementPiece::from_text(" "),
                ReplacementPiece::Source(it.code.node_range(*function)),
                ReplacementPiece::from_text(";"),
            ]);
        }
        let mut at = body.start + 1;
        for segment in &plan.segments {
            self.emit_segment(plan, segment, &mut at, &mut pieces);
        }
        let functions = plan.functions.iter().map(|function| it.code.node_range(*function).end);
        pieces.push(ReplacementPiece::Source(functions.max().unwrap_or(at).max(at)..body.end - 1));
        pieces.push(ReplacementPiece::from_text("}"));
        self.edits.replace(construct.span.clone(), pieces);
    }

    fn emit_segment(
        &self,
        plan: &ParPlan,
        segment: &ParSegment,
        at: &mut usize,
        pieces: &mut Vec<ReplacementPiece>,
    ) {
        let parallel: Vec<usize> = segment.parallel_units().map(|(index, _)| index).collect();
        for (index, unit) in segment.units.iter().enumerate() {
            let number = parallel.binary_search(&index).ok();
            if let Some(number) = number {
                let needs = unit.dependencies.keys().filter_map(|needed| parallel.binary_search(needed).ok());
                let needs: Vec<String> = needs.map(|needed| needed.to_string()).collect();
                let begin = if number == 0 { " await $r.par(" } else { ", " };
                pieces.push(ReplacementPiece::from_text(format!(
                    "{begin}[[{}], async () => {{",
                    needs.join(", ")
                )));
            }
            self.emit_unit(plan, unit, number.is_some(), at, pieces);
            if number.is_some() {
                pieces.push(ReplacementPiece::from_text("}]"));
            }
            if number.is_some_and(|number| number + 1 == parallel.len()) {
                pieces.push(ReplacementPiece::from_text(");"));
            }
        }
    }

    fn emit_unit(
        &self,
        plan: &ParPlan,
        unit: &ParUnit,
        in_parallel: bool,
        at: &mut usize,
        pieces: &mut Vec<ReplacementPiece>,
    ) {
        let code = &self.analysis.code;
        for step in &unit.steps {
            match step {
                UnitStep::Call(call) if in_parallel || self.hoisted_numbers.contains_key(call) => {
                    pieces.push(ReplacementPiece::from_text(format!(
                        " {} = await ",
                        self.result_variable(*call)
                    )));
                    pieces.push(ReplacementPiece::MappedOffset(code.node_range(*call).start));
                    pieces.extend(self.call_pieces(*call));
                    pieces.push(ReplacementPiece::from_text(";"));
                }
                // In sequential code the call stays in place.
                UnitStep::Call(_) => {}
                UnitStep::Statement(part) => {
                    let place = self.statement_range(*part);
                    // The text before the part, comments included, but without functions, which have been
                    // moved.
                    let functions = plan.functions.iter().map(|function| code.node_range(*function));
                    let before =
                        functions.filter(|it| it.end <= place.start).map(|it| it.end).max().unwrap_or(0);
                    let before = (*at).max(before).min(place.start)..place.start;
                    match declaration_keyword(code, *part) {
                        Some(word) => self.emit_declarator(*part, word, before, pieces),
                        None => pieces.push(ReplacementPiece::Source(before)),
                    }
                    pieces.push(ReplacementPiece::Source(place.clone()));
                    pieces.push(ReplacementPiece::from_text(";"));
                    *at = self.part_end(*part).max(*at);
                }
            }
        }
    }

    /// Emits the text before a declarator that is a unit of its own. It replaces the common keyword or the
    /// comma by a keyword of its own.
    fn emit_declarator(
        &self,
        part: NodeId,
        word: &str,
        before: Range<usize>,
        pieces: &mut Vec<ReplacementPiece>,
    ) {
        let code = &self.analysis.code;
        let declaration = code.parent(part);
        let AstKind::VariableDeclaration(it) = code.kind(declaration) else { return };
        let index = it.declarations.iter().position(|it| it.node_id.get() == part).unwrap_or(0);
        let gap = index.checked_sub(1).map(|last| it.declarations[last].span.end..code.span(part).start);
        let cut = match gap.and_then(|gap| code.find_sign(gap, b',')) {
            Some(comma) => comma..comma + 1,
            None => code.node_range(declaration).start..code.node_range(declaration).start + word.len(),
        };
        pieces.push(ReplacementPiece::Source(before.start.min(cut.start)..cut.start));
        pieces.push(ReplacementPiece::Source(cut.end..before.end));
        if !self.lifts.assigned_declarations.contains(&part) {
            pieces.push(ReplacementPiece::from_text(format!(" {word} ")));
        }
    }

    /// Returns the offset at which the source continues after a part: after the semicolon, if the part is the
    /// last variable of a declaration.
    fn part_end(&self, part: NodeId) -> usize {
        let code = &self.analysis.code;
        match code.kind(code.parent(part)) {
            AstKind::VariableDeclaration(it)
                if it.declarations.last().map(|it| it.node_id.get()) == Some(part) =>
            {
                code.node_range(code.parent(part)).end
            }
            _ => self.statement_range(part).end,
        }
    }

    /// Returns the range of a statement in the S text, with its semicolon.
    fn statement_range(&self, node: NodeId) -> Range<usize> {
        let code = &self.analysis.code;
        let place = code.node_range(node);
        match code.construct_at(node) {
            Some(id) => {
                code.construct(id).span.start..match code.construct(id).kind {
                    ConstructKind::Res { .. } | ConstructKind::Par => code.construct(id).span.end,
                    _ => place.end.max(code.construct(id).span.end),
                }
            }
            None => place,
        }
    }

    pub(super) fn result_variable(&self, call: NodeId) -> String {
        format!("${}", self.hoisted_numbers.get(&call).copied().unwrap_or(0))
    }
}
