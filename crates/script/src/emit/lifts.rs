//! Variables that the units of a `par` share: the enclosing block declares them, and the units assign them.

use std::collections::{BTreeMap, BTreeSet};

use oxc_ast::AstKind;
use oxc_ast::ast::{VariableDeclaration, VariableDeclarator};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::symbol::SymbolId;

use super::CodeEmitter;
use super::edits::ReplacementPiece;
use crate::analyse::ScriptAnalysis;
use crate::analyse::code::CodeText;
use crate::analyse::flow::bound_symbols;
use crate::analyse::parallel::units::declaration_keyword;
use crate::syntax::ConstructKind;

impl CodeEmitter<'_, '_, '_> {
    /// Returns the names that a block declares for its units: `var` names, which belong to the enclosing
    /// function, or others.
    pub(super) fn lifted_names(&self, block: NodeId, is_var: bool) -> Vec<String> {
        let names = self.lifts.names.iter().filter(|((of, _), var)| *of == block && **var == is_var);
        names.map(|((_, symbol), _)| self.analysis.code.name(*symbol).to_owned()).collect()
    }

    /// Turns the declarations in units into assignments where other units use the declared names.
    pub(super) fn emit_assignments(&mut self) {
        let it = self.analysis;
        for node in &self.lifts.assigned_declarations {
            match it.code.kind(*node) {
                AstKind::VariableDeclaration(declaration) => {
                    let pieces = declaration_assignments(self, *node, declaration);
                    self.edits.replace(it.code.node_range(*node), pieces);
                }
                AstKind::VariableDeclarator(declarator) => {
                    let pieces = declarator_assignment(self, declarator, false);
                    self.edits.replace(it.code.node_range(*node), pieces);
                }
                AstKind::Class(class) => {
                    let name = class.id.as_ref().map_or("", |id| id.name.as_str());
                    self.edits.wrap(it.code.node_range(*node), &format!("{name} = "), "");
                }
                _ => {}
            }
        }
    }
}

/// The variables that `par` blocks declare for their units.
#[derive(Debug, Default)]
pub(super) struct LiftedVariables {
    /// Whether the declaration is a `var`, by block and variable.
    names: BTreeMap<(NodeId, SymbolId), bool>,
    /// Declarations that become assignments.
    pub(super) assigned_declarations: BTreeSet<NodeId>,
}

impl LiftedVariables {
    /// Collects the lifted variables. Plans are visited from the innermost, so that a name is declared by the
    /// outermost block whose units share it.
    pub(super) fn from_analysis(it: &ScriptAnalysis<'_, '_>) -> Self {
        let mut lifts = Self::default();
        for plan in it.plans.iter().rev() {
            for statement in plan.moved_statements() {
                for node in it.code.subtree_nodes(statement) {
                    lifts.visit_node(it, it.code.statements[plan.construct], statement, node);
                }
            }
        }
        lifts
    }

    fn visit_node(&mut self, it: &ScriptAnalysis<'_, '_>, block: NodeId, statement: NodeId, node: NodeId) {
        let code = &it.code;
        let (symbols, is_var) = match code.kind(node) {
            AstKind::VariableDeclaration(declaration) => {
                let symbols =
                    declaration.declarations.iter().flat_map(|it| bound_symbols(&it.id)).collect::<Vec<_>>();
                (symbols, declaration.kind.is_var())
            }
            AstKind::VariableDeclarator(declarator) if node == statement => {
                (bound_symbols(&declarator.id), declaration_keyword(code, node) == Some("var"))
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
            code.enclosing_function(node) == code.enclosing_function(statement)
                && !is_in_pfor_body(it, node, statement)
                && symbols.iter().any(|symbol| is_used_outside(code, *symbol, statement))
        } else {
            node == statement && !is_state
        };
        if is_shared {
            self.assigned_declarations.insert(node);
            for symbol in symbols {
                // The outer block replaces a nested block of the same iteration as the place of the
                // declaration.
                let is_within = |it_block: NodeId| {
                    code.is_inside(it_block, block) && !is_in_pfor_body(it, it_block, block)
                };
                self.names.retain(|(of, name), _| *name != symbol || *of == block || !is_within(*of));
                self.names.insert((block, symbol), is_var);
            }
        }
    }
}

/// Whether a node is in the body of a `pfor` within `statement`. Each iteration has its own variables.
fn is_in_pfor_body(it: &ScriptAnalysis<'_, '_>, node: NodeId, statement: NodeId) -> bool {
    let code = &it.code;
    let mut around = code.ancestors(node).take_while(|outer| code.is_inside(*outer, statement));
    around.any(|outer| {
        code.construct_at(outer)
            .is_some_and(|id| matches!(code.construct(id).kind, ConstructKind::Pfor { .. }) && outer != node)
    })
}

fn is_used_outside(code: &CodeText<'_, '_>, symbol: SymbolId, statement: NodeId) -> bool {
    let scoping = code.semantic.scoping();
    let declared = scoping.symbol_declarations(symbol);
    let used = code.symbol_references(symbol).map(|reference| reference.node_id());
    declared.chain(used).any(|node| !code.is_inside(node, statement))
}

/// Returns the assignments for a declaration: `x = 1` for `var x = 1`.
fn declaration_assignments(
    emitter: &CodeEmitter<'_, '_, '_>,
    node: NodeId,
    declaration: &VariableDeclaration<'_>,
) -> Vec<ReplacementPiece> {
    let code = &emitter.analysis.code;
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
        if in_head {
            return vec![ReplacementPiece::Source(code.source_range(declarator.id.span()))];
        }
        let assigned = declarator_assignment(emitter, declarator, is_external);
        if !pieces.is_empty() && !assigned.is_empty() {
            pieces.push(ReplacementPiece::from_text(", "));
        }
        pieces.extend(assigned);
    }
    let is_in_for = matches!(code.kind(parent), AstKind::ForStatement(_));
    pieces.push(ReplacementPiece::from_text(if is_in_for { "" } else { ";" }));
    pieces
}

/// Returns the assignment for one variable of a declaration. It is empty if the variable has no initial
/// value.
fn declarator_assignment(
    emitter: &CodeEmitter<'_, '_, '_>,
    declarator: &VariableDeclarator<'_>,
    is_external: bool,
) -> Vec<ReplacementPiece> {
    let code = &emitter.analysis.code;
    let Some(init) = &declarator.init else { return Vec::new() };
    let is_pattern = declarator.id.get_binding_identifier().is_none();
    let mut pieces = vec![
        ReplacementPiece::from_text(if is_pattern { "(" } else { "" }),
        ReplacementPiece::Source(code.source_range(declarator.id.span())),
        ReplacementPiece::from_text(" = "),
    ];
    let symbol = bound_symbols(&declarator.id).first().copied();
    match symbol.and_then(|symbol| emitter.analysis.names.external(symbol)).filter(|_| is_external) {
        Some(external) => pieces.extend(emitter.template_pieces(external)),
        None => pieces.push(ReplacementPiece::Source(code.source_range(init.span()))),
    }
    pieces.push(ReplacementPiece::from_text(if is_pattern { ")" } else { "" }));
    pieces
}
