//! Emission of `par` as units that `$r.par` starts when their dependencies have completed, and of `pfor` as
//! iterations that `$r.pfor` runs.

use std::ops::Range;

use oxc_ast::AstKind;
use oxc_semantic::NodeId;
use oxc_span::GetSpan;

use super::CodeEmitter;
use super::edits::ReplacementPiece;
use crate::analyse::effects::target;
use crate::analyse::parallel::units::keyword;
use crate::analyse::parallel::{ParPlan, ParSegment, ParUnit, UnitStep};
use crate::analyse::pfor;
use crate::syntax::{ConstructId, ConstructKind};

/// The keys that `pfor` iterates over, for a body without calls. Must match `$r.pfor`.
const KEYS: &str = "((e) => Array.isArray(e) || ArrayBuffer.isView(e) || typeof e === \"string\" \
                    ? Object.keys(e).map(Number) : Object.keys(Object(e)))";

impl CodeEmitter<'_, '_, '_> {
    pub(super) fn parallel(&mut self) {
        for plan in &self.it.plans {
            self.par(plan);
        }
        for (id, construct) in self.it.code.parsed.syntax.constructs.iter().enumerate() {
            if let ConstructKind::Pfor { name } = &construct.kind {
                self.pfor(id, &name.text);
            }
        }
    }

    fn pfor(&mut self, id: ConstructId, index: &str) {
        let it = self.it;
        let statement = it.code.statements[id];
        let (AstKind::ForInStatement(each), Some(body)) = (it.code.kind(statement), pfor::body(&it.code, id))
        else {
            return;
        };
        let list = it.code.source(each.right.span());
        let construct = it.code.construct(id);
        let Some(text) = construct.body.clone() else { return };
        // A body without braces ends at the end of its statement in the tree: `if (a) b(); else c()`.
        let text = text.start..it.code.place(body).end.max(text.start);
        let span = construct.span.start..it.code.place(statement).end.max(construct.span.end);
        let waits = !it.calls.inside(&it.code, body).is_empty();
        if !waits || pfor::is_sequential(&it.code, id) {
            let head = [
                ReplacementPiece::words(format!("for (const {index} of {KEYS}(")),
                ReplacementPiece::Source(list),
                ReplacementPiece::words(")) "),
            ];
            return self.edits.replace(span, [head.as_slice(), &[ReplacementPiece::Source(text)]].concat());
        }
        let pieces = vec![
            ReplacementPiece::words("await $r.pfor("),
            ReplacementPiece::Source(list),
            ReplacementPiece::words(format!(", async ({index}) => {{")),
            ReplacementPiece::Source(text),
            ReplacementPiece::words("});"),
        ];
        self.edits.replace(span, pieces);
        for node in
            it.code.inside(body).filter(|node| matches!(it.code.kind(*node), AstKind::ContinueStatement(_)))
        {
            let is_label = |node: NodeId| matches!(it.code.kind(node), AstKind::LabeledStatement(_));
            let ends =
                |node: NodeId| node == statement || (is_label(node) && it.code.parent(statement) == node);
            if target(&it.code, node).is_some_and(ends) {
                self.edits.words(it.code.place(node), "return;");
            }
        }
    }

    fn par(&mut self, plan: &ParPlan) {
        let it = self.it;
        let construct = it.code.construct(plan.construct);
        let Some(body) = construct.body.clone() else { return };
        let block = it.code.statements[plan.construct];
        let mut pieces = vec![ReplacementPiece::words("{")];
        let results: Vec<String> = plan.taken_out().map(|call| self.result(call)).collect();
        let names = [
            ("var", self.declared_by(block, true)),
            ("let", [results, self.declared_by(block, false)].concat()),
        ];
        for (word, names) in names.iter().filter(|(_, names)| !names.is_empty()) {
            pieces.push(ReplacementPiece::words(format!(" {word} {};", names.join(", "))));
        }
        for function in &plan.functions {
            pieces.extend([
                ReplacementPiece::words(" "),
                ReplacementPiece::Source(it.code.place(*function)),
                ReplacementPiece::words(";"),
            ]);
        }
        let mut at = body.start + 1;
        for segment in &plan.segments {
            self.segment(plan, segment, &mut at, &mut pieces);
        }
        let functions = plan.functions.iter().map(|function| it.code.place(*function).end);
        pieces.push(ReplacementPiece::Source(functions.max().unwrap_or(at).max(at)..body.end - 1));
        pieces.push(ReplacementPiece::words("}"));
        self.edits.replace(construct.span.clone(), pieces);
    }

    fn segment(
        &self,
        plan: &ParPlan,
        segment: &ParSegment,
        at: &mut usize,
        pieces: &mut Vec<ReplacementPiece>,
    ) {
        let parallel: Vec<usize> = segment.parallel().map(|(index, _)| index).collect();
        for (index, unit) in segment.units.iter().enumerate() {
            let number = parallel.binary_search(&index).ok();
            if let Some(number) = number {
                let needs = unit.needs.keys().filter_map(|needed| parallel.binary_search(needed).ok());
                let needs: Vec<String> = needs.map(|needed| needed.to_string()).collect();
                let begin = if number == 0 { " await $r.par(" } else { ", " };
                pieces
                    .push(ReplacementPiece::words(format!("{begin}[[{}], async () => {{", needs.join(", "))));
            }
            self.unit(plan, unit, number.is_some(), at, pieces);
            if number.is_some() {
                pieces.push(ReplacementPiece::words("}]"));
            }
            if number.is_some_and(|number| number + 1 == parallel.len()) {
                pieces.push(ReplacementPiece::words(");"));
            }
        }
    }

    fn unit(
        &self,
        plan: &ParPlan,
        unit: &ParUnit,
        in_parallel: bool,
        at: &mut usize,
        pieces: &mut Vec<ReplacementPiece>,
    ) {
        let code = &self.it.code;
        for step in &unit.steps {
            match step {
                UnitStep::Call(call) if in_parallel || self.hoisted.contains_key(call) => {
                    pieces.push(ReplacementPiece::words(format!(" {} = await ", self.result(*call))));
                    pieces.push(ReplacementPiece::At(code.place(*call).start));
                    pieces.extend(self.call(*call));
                    pieces.push(ReplacementPiece::words(";"));
                }
                // In sequential code the call stays in place.
                UnitStep::Call(_) => {}
                UnitStep::Statement(part) => {
                    let place = self.statement(*part);
                    // The text before the part, comments included, but without functions, which have been
                    // moved.
                    let functions = plan.functions.iter().map(|function| code.place(*function));
                    let before =
                        functions.filter(|it| it.end <= place.start).map(|it| it.end).max().unwrap_or(0);
                    let before = (*at).max(before).min(place.start)..place.start;
                    match keyword(code, *part) {
                        Some(word) => self.declarator(*part, word, before, pieces),
                        None => pieces.push(ReplacementPiece::Source(before)),
                    }
                    pieces.push(ReplacementPiece::Source(place.clone()));
                    pieces.push(ReplacementPiece::words(";"));
                    *at = self.end_of(*part).max(*at);
                }
            }
        }
    }

    /// Emits the text before a declarator that is a unit of its own. It replaces the common keyword or the
    /// comma by a keyword of its own.
    fn declarator(&self, part: NodeId, word: &str, before: Range<usize>, pieces: &mut Vec<ReplacementPiece>) {
        let code = &self.it.code;
        let declaration = code.parent(part);
        let AstKind::VariableDeclaration(it) = code.kind(declaration) else { return };
        let index = it.declarations.iter().position(|it| it.node_id.get() == part).unwrap_or(0);
        let gap = index.checked_sub(1).map(|last| it.declarations[last].span.end..code.span(part).start);
        let cut = match gap.and_then(|gap| code.sign(gap, b',')) {
            Some(comma) => comma..comma + 1,
            None => code.place(declaration).start..code.place(declaration).start + word.len(),
        };
        pieces.push(ReplacementPiece::Source(before.start.min(cut.start)..cut.start));
        pieces.push(ReplacementPiece::Source(cut.end..before.end));
        if !self.lifts.assigned.contains(&part) {
            pieces.push(ReplacementPiece::words(format!(" {word} ")));
        }
    }

    /// Returns the offset at which the source continues after a part: after the semicolon, if the part is the
    /// last variable of a declaration.
    fn end_of(&self, part: NodeId) -> usize {
        let code = &self.it.code;
        match code.kind(code.parent(part)) {
            AstKind::VariableDeclaration(it)
                if it.declarations.last().map(|it| it.node_id.get()) == Some(part) =>
            {
                code.place(code.parent(part)).end
            }
            _ => self.statement(part).end,
        }
    }

    /// Returns the range of a statement in the S text, with its semicolon.
    fn statement(&self, node: NodeId) -> Range<usize> {
        let code = &self.it.code;
        let place = code.place(node);
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

    pub(super) fn result(&self, call: NodeId) -> String {
        format!("${}", self.hoisted.get(&call).copied().unwrap_or(0))
    }
}
