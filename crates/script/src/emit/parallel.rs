//! `par` as units that `$r.par` runs as soon as what they need is there, and `pfor` as turns that `$r.pfor` runs.

use std::collections::{BTreeMap, BTreeSet};

use oxc_ast::AstKind;
use oxc_ast::ast::VariableDeclaration;
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::symbol::SymbolId;

use super::Emitter;
use super::edits::Piece;
use crate::analyse::Analysis;
use crate::analyse::code::Code;
use crate::analyse::effects::target;
use crate::analyse::flow::bound;
use crate::analyse::parallel::{Plan, Segment, Step, Unit};
use crate::analyse::pfor;
use crate::syntax::{ConstructId, ConstructKind};

/// The keys that `pfor` goes over, where no call stands in it: as `$r.pfor` has them.
const KEYS: &str = "((e) => Array.isArray(e) || ArrayBuffer.isView(e) || typeof e === \"string\" \
                    ? Object.keys(e).map(Number) : Object.keys(Object(e)))";

impl Emitter<'_, '_, '_> {
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
        let span = construct.span.start..it.code.place(statement).end.max(construct.span.end);
        let waits = !it.calls.inside(&it.code, body).is_empty();
        if !waits || pfor::is_sequential(&it.code, id) {
            let head = [
                Piece::words(format!("for (const {index} of {KEYS}(")),
                Piece::Source(list),
                Piece::words(")) "),
            ];
            return self.edits.replace(span, [head.as_slice(), &[Piece::Source(text)]].concat());
        }
        let pieces = vec![
            Piece::words("await $r.pfor("),
            Piece::Source(list),
            Piece::words(format!(", async ({index}) => {{")),
            Piece::Source(text),
            Piece::words("});"),
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

    fn par(&mut self, plan: &Plan) {
        let it = self.it;
        let construct = it.code.construct(plan.construct);
        let Some(body) = construct.body.clone() else { return };
        let block = it.code.statements[plan.construct];
        let mut pieces = vec![Piece::words("{")];
        let results: Vec<String> = plan.taken_out().map(|call| self.result(call)).collect();
        let names = [
            ("var", self.declared_by(block, true)),
            ("let", [results, self.declared_by(block, false)].concat()),
        ];
        for (word, names) in names.iter().filter(|(_, names)| !names.is_empty()) {
            pieces.push(Piece::words(format!(" {word} {};", names.join(", "))));
        }
        for function in &plan.functions {
            pieces.extend([Piece::words(" "), Piece::Source(it.code.place(*function)), Piece::words(";")]);
        }
        let mut at = body.start + 1;
        for segment in &plan.segments {
            self.segment(plan, segment, &mut at, &mut pieces);
        }
        let functions = plan.functions.iter().map(|function| it.code.place(*function).end);
        pieces.push(Piece::Source(functions.max().unwrap_or(at).max(at)..body.end - 1));
        pieces.push(Piece::words("}"));
        self.edits.replace(construct.span.clone(), pieces);
    }

    fn segment(&self, plan: &Plan, segment: &Segment, at: &mut usize, pieces: &mut Vec<Piece>) {
        let parallel: Vec<usize> = segment.parallel().map(|(index, _)| index).collect();
        for (index, unit) in segment.units.iter().enumerate() {
            let number = parallel.binary_search(&index).ok();
            if let Some(number) = number {
                let needs = unit.needs.keys().filter_map(|needed| parallel.binary_search(needed).ok());
                let needs: Vec<String> = needs.map(|needed| needed.to_string()).collect();
                let begin = if number == 0 { " await $r.par(" } else { ", " };
                pieces.push(Piece::words(format!("{begin}[[{}], async () => {{", needs.join(", "))));
            }
            self.unit(plan, unit, number.is_some(), at, pieces);
            if number.is_some() {
                pieces.push(Piece::words("}]"));
            }
            if number.is_some_and(|number| number + 1 == parallel.len()) {
                pieces.push(Piece::words(");"));
            }
        }
    }

    fn unit(&self, plan: &Plan, unit: &Unit, in_parallel: bool, at: &mut usize, pieces: &mut Vec<Piece>) {
        let code = &self.it.code;
        for step in &unit.steps {
            match step {
                Step::Call(call) if in_parallel || self.hoisted.contains_key(call) => {
                    pieces.push(Piece::words(format!(" {} = await ", self.result(*call))));
                    pieces.push(Piece::At(code.place(*call).start));
                    pieces.extend(self.call(*call));
                    pieces.push(Piece::words(";"));
                }
                // In a sequence the call stays where it was.
                Step::Call(_) => {}
                Step::Statement(statement) => {
                    let place = self.statement(*statement);
                    // What stands before it, comments too, but no function, which was moved.
                    let functions = plan.functions.iter().map(|function| code.place(*function));
                    let before =
                        functions.filter(|it| it.end <= place.start).map(|it| it.end).max().unwrap_or(0);
                    pieces.push(Piece::Source((*at).max(before).min(place.start)..place.start));
                    pieces.push(Piece::Source(place.clone()));
                    pieces.push(Piece::words(";"));
                    *at = place.end.max(*at);
                }
            }
        }
    }

    /// Where a statement stands in S, with its semicolon.
    fn statement(&self, node: NodeId) -> std::ops::Range<usize> {
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

    /// Names that a block declares for its units: with `var` what belongs to the function around.
    fn declared_by(&self, block: NodeId, is_var: bool) -> Vec<String> {
        let names = self.lifts.names.iter().filter(|((of, _), var)| *of == block && **var == is_var);
        names.map(|((_, symbol), _)| self.it.code.name(*symbol).to_owned()).collect()
    }

    /// Declarations in units become assignments, where others see what they declare.
    pub(super) fn lift(&mut self) {
        let it = self.it;
        for node in &self.lifts.assigned {
            match it.code.kind(*node) {
                AstKind::VariableDeclaration(declaration) => {
                    let pieces = assignments(self, *node, declaration);
                    self.edits.replace(it.code.place(*node), pieces);
                }
                AstKind::Class(class) => {
                    let name = class.id.as_ref().map_or("", |id| id.name.as_str());
                    self.edits.wrap(it.code.place(*node), &format!("{name} = "), "");
                }
                _ => {}
            }
        }
    }
}

/// What blocks of `par` declare for their units.
#[derive(Debug, Default)]
pub(super) struct Lifts {
    /// By the block, and whether it is a `var`.
    names: BTreeMap<(NodeId, SymbolId), bool>,
    /// Declarations that become assignments.
    pub(super) assigned: BTreeSet<NodeId>,
}

impl Lifts {
    /// From the inside: the outermost block whose units share a name has it.
    pub(super) fn of(it: &Analysis<'_, '_>) -> Self {
        let mut lifts = Self::default();
        for plan in it.plans.iter().rev() {
            for statement in plan.moved() {
                for node in it.code.inside(statement) {
                    lifts.visit(it, it.code.statements[plan.construct], statement, node);
                }
            }
        }
        lifts
    }

    fn visit(&mut self, it: &Analysis<'_, '_>, block: NodeId, statement: NodeId, node: NodeId) {
        let code = &it.code;
        let (symbols, is_var) = match code.kind(node) {
            AstKind::VariableDeclaration(declaration) => {
                let symbols =
                    declaration.declarations.iter().flat_map(|it| bound(&it.id)).collect::<Vec<_>>();
                (symbols, declaration.kind.is_var())
            }
            AstKind::Class(class) => {
                (class.id.as_ref().and_then(|id| id.symbol_id.get()).into_iter().collect(), false)
            }
            _ => return,
        };
        let is_state = code
            .construct_at(node)
            .is_some_and(|id| matches!(code.construct(id).kind, ConstructKind::State { .. }));
        let is_shared = if is_var {
            code.function_of(node) == code.function_of(statement)
                && !is_in_turn(it, node, statement)
                && symbols.iter().any(|symbol| is_seen_outside(code, *symbol, statement))
        } else {
            node == statement && !is_state
        };
        if is_shared {
            self.assigned.insert(node);
            for symbol in symbols {
                // A block within, of the same turn, has it no longer.
                let is_within =
                    |it_block: NodeId| code.is_inside(it_block, block) && !is_in_turn(it, it_block, block);
                self.names.retain(|(of, name), _| *name != symbol || *of == block || !is_within(*of));
                self.names.insert((block, symbol), is_var);
            }
        }
    }
}

/// Whether a node stands in a turn of a `pfor` within a statement: such a turn has its own variables.
fn is_in_turn(it: &Analysis<'_, '_>, node: NodeId, statement: NodeId) -> bool {
    let code = &it.code;
    let mut around = code.ancestors(node).take_while(|outer| code.is_inside(*outer, statement));
    around.any(|outer| {
        code.construct_at(outer)
            .is_some_and(|id| matches!(code.construct(id).kind, ConstructKind::Pfor { .. }) && outer != node)
    })
}

fn is_seen_outside(code: &Code<'_, '_>, symbol: SymbolId, statement: NodeId) -> bool {
    let scoping = code.semantic.scoping();
    let declared = scoping.symbol_declarations(symbol);
    let used = code.uses(symbol).map(|reference| reference.node_id());
    declared.chain(used).any(|node| !code.is_inside(node, statement))
}

/// `x = 1` for `var x = 1`.
fn assignments(
    emitter: &Emitter<'_, '_, '_>,
    node: NodeId,
    declaration: &VariableDeclaration<'_>,
) -> Vec<Piece> {
    let code = &emitter.it.code;
    let is_external = code
        .construct_at(node)
        .is_some_and(|id| matches!(code.construct(id).kind, ConstructKind::External { .. }));
    let parent = code.parent(node);
    let in_head = match code.kind(parent) {
        AstKind::ForInStatement(each) => each.left.span() == code.span(node),
        AstKind::ForOfStatement(each) => each.left.span() == code.span(node),
        _ => false,
    };
    let mut pieces = Vec::new();
    for declarator in &declaration.declarations {
        let target = code.source(declarator.id.span());
        if in_head {
            return vec![Piece::Source(target)];
        }
        let Some(init) = &declarator.init else { continue };
        pieces.push(Piece::words(if pieces.is_empty() { "" } else { ", " }));
        let is_pattern = declarator.id.get_binding_identifier().is_none();
        pieces.push(Piece::words(if is_pattern { "(" } else { "" }));
        pieces.push(Piece::Source(target));
        pieces.push(Piece::words(" = "));
        let symbol = bound(&declarator.id).first().copied();
        match symbol.and_then(|symbol| emitter.it.names.external(symbol)).filter(|_| is_external) {
            Some(external) => pieces.extend(emitter.template(external)),
            None => pieces.push(Piece::Source(code.source(init.span()))),
        }
        pieces.push(Piece::words(if is_pattern { ")" } else { "" }));
    }
    let is_in_for = matches!(code.kind(parent), AstKind::ForStatement(_));
    pieces.push(Piece::words(if is_in_for { "" } else { ";" }));
    pieces
}
