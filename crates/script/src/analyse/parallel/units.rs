//! Rule 18: the units of a `par` before their dependencies are known: its statements, each variable of a
//! declaration, and the calls that can be made before the rest of these.

use std::collections::BTreeMap;

use oxc_ast::AstKind;
use oxc_ast::ast::{VariableDeclarationKind, VariableDeclarator};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::symbol::SymbolId;

use super::super::ScriptAnalysis;
use super::super::calls::WaitOperation;
use super::super::code::{CodeText, child_statements};
use super::super::effects::{EffectAnalyzer, EffectLocation};
use super::super::flow::bound_symbols;
use super::{ParUnit, UnitStep};
use crate::syntax::ConstructKind;

/// Returns the parts of a block: its statements, with declarations of several variables split up.
pub(super) fn block_parts(code: &CodeText<'_, '_>, block: NodeId) -> Vec<NodeId> {
    let parts = |statement| split_declaration(code, statement).unwrap_or_else(|| vec![statement]);
    child_statements(code, block).into_iter().flat_map(parts).collect()
}

fn split_declaration(code: &CodeText<'_, '_>, statement: NodeId) -> Option<Vec<NodeId>> {
    use VariableDeclarationKind::{Const, Let, Var};
    let AstKind::VariableDeclaration(declaration) = code.kind(statement) else { return None };
    let is_ours = code.construct_at(statement).is_some();
    let several = declaration.declarations.len() > 1 && matches!(declaration.kind, Var | Let | Const);
    let nodes = declaration.declarations.iter().map(|it| it.node_id.get());
    (several && !is_ours).then(|| nodes.collect())
}

/// Returns the keyword of a declarator that is a part: `var`, `let` or `const`.
pub(crate) fn declaration_keyword(code: &CodeText<'_, '_>, part: NodeId) -> Option<&'static str> {
    let AstKind::VariableDeclarator(_) = code.kind(part) else { return None };
    match code.kind(code.parent(part)) {
        AstKind::VariableDeclaration(declaration) => Some(declaration.kind.as_str()),
        _ => None,
    }
}

/// Whether declarations can become assignments to variables that are declared at the beginning of the block.
/// They cannot if a variable is used before its declaration, or a constant is assigned: both throw, and must
/// continue to throw.
pub(super) fn can_hoist_declarations(code: &CodeText<'_, '_>, units: &[ParUnit]) -> bool {
    let scoping = code.semantic.scoping();
    units.iter().enumerate().all(|(index, unit)| {
        let mut symbols = unit.steps.iter().flat_map(|step| match step {
            UnitStep::Statement(part) => declared_variables(code, *part),
            UnitStep::Call(_) => Vec::new(),
        });
        symbols.all(|symbol| {
            let variable = EffectLocation::Variable(symbol);
            let touches = |unit: &ParUnit| {
                unit.effects.reads.contains(&variable) || unit.effects.writes.contains(&variable)
            };
            let is_set = scoping.symbol_flags(symbol).is_const_variable()
                && code.symbol_references(symbol).any(|reference| reference.is_write());
            !(is_set || is_used_before_init(code, symbol) || units[..index].iter().any(touches))
        })
    })
}

/// Returns the variables that a part declares in the scope of its block.
fn declared_variables(code: &CodeText<'_, '_>, part: NodeId) -> Vec<SymbolId> {
    let of = |declarator: &VariableDeclarator<'_>| bound_symbols(&declarator.id);
    let symbols = match code.kind(part) {
        AstKind::VariableDeclaration(declaration) => declaration.declarations.iter().flat_map(of).collect(),
        AstKind::VariableDeclarator(declarator) => of(declarator),
        AstKind::Class(class) => class.id.iter().filter_map(|id| id.symbol_id.get()).collect(),
        _ => Vec::new(),
    };
    let is_state = code
        .construct_at(part)
        .is_some_and(|id| matches!(code.construct(id).kind, ConstructKind::State { .. }));
    let scoping = code.semantic.scoping();
    let is_in_block = |symbol: &SymbolId| scoping.symbol_flags(*symbol).is_block_scoped() && !is_state;
    symbols.into_iter().filter(is_in_block).collect()
}

/// Whether a variable is used in its own initial value, or before its position in a pattern: `let a = a`.
/// Uses in a function that is called by its name are ignored, because it runs later.
fn is_used_before_init(code: &CodeText<'_, '_>, symbol: SymbolId) -> bool {
    let declaration = code.declaration(symbol);
    let AstKind::VariableDeclarator(declarator) = code.kind(declaration) else { return false };
    let name = code.semantic.scoping().symbol_span(symbol);
    let initial = declarator.init.as_ref().map(GetSpan::span);
    let mut uses = code.symbol_references(symbol).map(|reference| reference.node_id());
    uses.any(|node| {
        let span = code.span(node);
        let is_before = span.start < name.start || initial.is_some_and(|it| it.contains_inclusive(span));
        code.is_inside(node, declaration)
            && is_before
            && code.owning_function(node) == code.owning_function(declaration)
    })
}

/// Splits a part into units: one for each call that is made unconditionally, and one for the rest.
pub(super) fn split_into_units(
    analysis: &ScriptAnalysis<'_, '_>,
    observer: &EffectAnalyzer<'_, '_, '_>,
    statement: NodeId,
) -> Vec<ParUnit> {
    let code = &analysis.code;
    let whole = |effects| {
        vec![ParUnit { steps: vec![UnitStep::Statement(statement)], effects, dependencies: BTreeMap::new() }]
    };
    let calls = hoistable_calls(analysis, observer, statement);
    if calls.is_empty() {
        return whole(observer.effects(statement, &[]));
    }
    let mut units = Vec::new();
    // The calls so far that are not nested in another.
    let mut outer: Vec<NodeId> = Vec::new();
    for call in &calls {
        let inner = outer.split_off(outer.partition_point(|it| !code.is_inside(*it, *call)));
        let mut effects = observer.effects(*call, &inner);
        outer.push(*call);
        effects.io = 1;
        effects.writes.insert(EffectLocation::Result(*call));
        units.push(ParUnit { steps: vec![UnitStep::Call(*call)], effects, dependencies: BTreeMap::new() });
    }
    let mut code_effects = observer.effects(statement, &outer);
    code_effects.io = 0;
    let mut effects = code_effects;
    if let Some(last) = calls.last() {
        // The last call is the whole statement, or its result is only assigned to a variable.
        let is_alone = matches!(code.kind(code.parent(*last)), AstKind::ExpressionStatement(_));
        let puts = effects.writes.iter().all(|it| matches!(it, EffectLocation::Variable(_)));
        let reads = effects.reads.iter().all(|it| *it == EffectLocation::Result(*last));
        if (is_alone || (puts && reads)) && !effects.barrier && !effects.full_barrier {
            let call = units.pop().map(|unit| unit.effects).unwrap_or_default();
            effects.io = 1;
            effects.reads.extend(call.reads);
            effects.writes.extend(call.writes);
            effects.barrier |= call.barrier;
            effects.reads.remove(&EffectLocation::Result(*last));
        }
    }
    units.push(ParUnit {
        steps: vec![UnitStep::Statement(statement)],
        effects,
        dependencies: BTreeMap::new(),
    });
    units
}

/// Returns the calls of a statement that can be made before the rest of it, in evaluation order. Returns none
/// if the statement branches, or has side effects before a call.
fn hoistable_calls(
    analysis: &ScriptAnalysis<'_, '_>,
    observer: &EffectAnalyzer<'_, '_, '_>,
    statement: NodeId,
) -> Vec<NodeId> {
    let code = &analysis.code;
    let is_plain = matches!(
        code.kind(statement),
        AstKind::ExpressionStatement(_)
            | AstKind::VariableDeclaration(_)
            | AstKind::VariableDeclarator(_)
            | AstKind::ThrowStatement(_)
            | AstKind::ReturnStatement(_)
    );
    let is_nested = code
        .construct_at(statement)
        .is_some_and(|id| matches!(code.construct(id).kind, ConstructKind::Res { .. }));
    let waits = analysis.calls.waits_within(code, statement);
    if !is_plain
        || is_nested
        || waits.iter().any(|(_, wait)| matches!(wait, WaitOperation::Await | WaitOperation::Declare(_)))
    {
        return Vec::new();
    }
    let has_order = code.subtree_nodes(statement).any(|node| constrains_order(code, statement, node));
    if has_order
        || waits.iter().any(|(node, _)| is_immediately_invoked(code, *node))
        || passes_response_through(code, statement, &waits)
    {
        return Vec::new();
    }
    let mut calls: Vec<NodeId> = waits.into_iter().map(|(node, _)| node).collect();
    if code.subtree_nodes(statement).any(|node| has_conflicting_effects(code, observer, &calls, node)) {
        return Vec::new();
    }
    calls.sort_by_key(|node| code.evaluation_order(*node));
    calls
}

/// Whether a call changes something that the rest of its statement may read. A call that is made after all
/// extracted calls keeps its place.
fn has_conflicting_effects(
    code: &CodeText<'_, '_>,
    observer: &EffectAnalyzer<'_, '_, '_>,
    calls: &[NodeId],
    node: NodeId,
) -> bool {
    let is_call = matches!(code.kind(node), AstKind::CallExpression(_) | AstKind::NewExpression(_));
    let is_last = !calls.contains(&node) && calls.iter().all(|call| code.is_inside(*call, node));
    if !is_call || is_last {
        return false;
    }
    let effects = observer.effects(node, &[]);
    let changes = effects
        .writes
        .iter()
        .any(|it| matches!(it, EffectLocation::Variable(_) | EffectLocation::Content(_)));
    changes || effects.barrier
}

fn is_immediately_invoked(code: &CodeText<'_, '_>, node: NodeId) -> bool {
    matches!(code.kind(node), AstKind::CallExpression(call) if call.callee.get_inner_expression().is_function())
}

/// Whether the statement passes a response through: `respond g.get(x)`.
fn passes_response_through(
    code: &CodeText<'_, '_>,
    statement: NodeId,
    waits: &[(NodeId, WaitOperation)],
) -> bool {
    let AstKind::ThrowStatement(throw) = code.kind(statement) else { return false };
    let value = throw.argument.without_parentheses().span();
    code.construct_at(statement).is_some()
        && waits
            .iter()
            .any(|(node, wait)| code.span(*node) == value && matches!(wait, WaitOperation::Resource { .. }))
}

/// Whether an expression branches, or changes a variable before the rest is evaluated.
fn constrains_order(code: &CodeText<'_, '_>, statement: NodeId, node: NodeId) -> bool {
    if code.enclosing_function(node) != code.enclosing_function(statement) {
        return false;
    }
    match code.kind(node) {
        AstKind::LogicalExpression(_)
        | AstKind::ConditionalExpression(_)
        | AstKind::ChainExpression(_)
        | AstKind::UpdateExpression(_)
        | AstKind::AssignmentPattern(_)
        | AstKind::AssignmentTargetWithDefault(_)
        | AstKind::YieldExpression(_) => true,
        AstKind::UnaryExpression(unary) => unary.operator == oxc_syntax::operator::UnaryOperator::Delete,
        AstKind::AssignmentExpression(assignment) => {
            let is_outer = matches!(code.kind(code.parent(node)), AstKind::ExpressionStatement(_));
            !is_outer || !assignment.operator.is_assign()
        }
        AstKind::VariableDeclaration(declaration) => declaration.declarations.len() > 1,
        _ => false,
    }
}
