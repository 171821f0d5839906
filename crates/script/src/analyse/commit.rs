//! Rules 5 and 6: the point at which a writer's changes are committed. That is the end of the handler, or
//! earlier, after the last statement that can change state, if nothing before it waits and something after it
//! does. Other writers then need not wait for that.
//!
//! The last statement must be certain. There is none if state reaches code that `reads` does not follow, or
//! if callbacks or functions passed as values change it, since these may run at any time.

use std::collections::{BTreeMap, BTreeSet};

use diagnostics::Diagnostic;
use oxc_semantic::NodeId;
use oxc_syntax::symbol::SymbolId;

use super::calls::{WaitOperation, WaitSites, call_by_name};
use super::cells::StateAccesses;
use super::code::{CallForm, CodeText, FunctionId, FunctionRole, body_statements};
use super::names::{ScriptSymbols, SymbolMeaning};
use super::reads::{UsageAnalysis, ValueUsage};
use super::sharing::VariableSharing;
use super::{HandlerMode, ScriptAnalysis};
use crate::diagnostic::DiagnosticCode;
use crate::program::ConcurrencyClass;

/// Returns the statement after which a handler commits early, if it does.
pub(crate) fn early_commit_statement(
    code: &CodeText<'_, '_>,
    names: &ScriptSymbols,
    sharing: &VariableSharing,
    touched: &StateAccesses,
    calls: &WaitSites,
    handler: usize,
    class: ConcurrencyClass,
) -> Option<NodeId> {
    if class != ConcurrencyClass::Writer {
        return None;
    }
    let statements = body_statements(code, code.functions[names.handlers[handler].function].node);
    let writes = state_writes(code, names, sharing, touched, handler)?;
    let is_before = |node: &NodeId| writes.iter().any(|write| code.is_inside(*write, *node));
    let last = statements.iter().rposition(is_before)?;
    let waits = |statements: &[NodeId]| {
        statements.iter().any(|statement| !calls.waits_within(code, *statement).is_empty())
    };
    let (earlier, ids) = statements.split_at(last + 1);
    (!waits(earlier) && waits(ids)).then(|| statements[last])
}

/// Returns the places of a handler that can change state, or `None` if they are unknown because the code may
/// run at any time.
fn state_writes(
    code: &CodeText<'_, '_>,
    names: &ScriptSymbols,
    sharing: &VariableSharing,
    touched: &StateAccesses,
    handler: usize,
) -> Option<Vec<NodeId>> {
    let function = names.handlers[handler].function;
    let reach = touched.reachable_functions(function);
    let accesses =
        reach.iter().flat_map(|it| touched.accesses_in(*it)).map(|access| (access.node, access.usage));
    let mut changes = Vec::new();
    for (node, usage) in accesses.chain(shared_variable_changes(code, names, sharing, touched, function)) {
        match usage {
            ValueUsage::Read => {}
            ValueUsage::Write => changes.push(node),
            ValueUsage::Escape => return None,
        }
    }
    let writers: BTreeSet<FunctionId> = changes.iter().map(|node| code.owning_function(*node)).collect();
    if changes.iter().any(|node| may_run_later(code, *node)) {
        return None;
    }
    changes.retain(|node| code.is_inside(*node, code.functions[function].node));
    let mut writes = execution_places(code, function, changes)?;
    writes.extend(writer_call_sites(code, touched, &reach, writers, function)?);
    Some(writes)
}

/// Whether code may run after the statement that contains it, as seen from the enclosing named function or
/// handler. A callback may run at any time, and an asynchronous function may continue after an `await`.
fn may_run_later(code: &CodeText<'_, '_>, node: NodeId) -> bool {
    let home = code.owning_function(node);
    let mut within = code.enclosing_functions(code.enclosing_function(node)).take_while(|id| *id != home);
    let is_late = |id: FunctionId| {
        let routine = &code.functions[id];
        routine.is_async || matches!(routine.call_form, CallForm::Unknown | CallForm::CannotWait)
    };
    let is_asynchronous = code.functions[home].role == FunctionRole::Plain && code.functions[home].is_async;
    is_asynchronous || within.any(is_late)
}

/// Returns the places of a handler that execute the given nodes: for a node in a named function, the calls of
/// that function. Returns `None` if one of the functions is passed as a value.
fn execution_places(
    code: &CodeText<'_, '_>,
    handler: FunctionId,
    mut next: Vec<NodeId>,
) -> Option<Vec<NodeId>> {
    let (mut ids, mut seen) = (Vec::new(), BTreeSet::new());
    while let Some(node) = next.pop() {
        if may_run_later(code, node) {
            return None;
        }
        let home = code.owning_function(node);
        if home == handler || code.functions[home].role != FunctionRole::Plain {
            ids.push(node);
        } else if seen.insert(home) {
            for name in code.name_references(home) {
                call_by_name(code, name)?;
                next.push(name);
            }
        }
    }
    Some(ids)
}

/// Returns the places of a handler that call functions which change state, directly or indirectly. Returns
/// `None` if one of them is passed as a value, since it may then be called at any time.
fn writer_call_sites(
    code: &CodeText<'_, '_>,
    touched: &StateAccesses,
    reach: &BTreeSet<FunctionId>,
    writers: BTreeSet<FunctionId>,
    handler: FunctionId,
) -> Option<Vec<NodeId>> {
    let mut mentions: BTreeMap<FunctionId, Vec<(FunctionId, NodeId)>> = BTreeMap::new();
    for user in reach {
        for (used, node) in touched.referenced_functions(*user) {
            mentions.entry(*used).or_default().push((*user, *node));
        }
    }
    let (mut ids, mut seen) = (Vec::new(), BTreeSet::new());
    let mut next: Vec<FunctionId> = writers.into_iter().collect();
    while let Some(writer) = next.pop() {
        if !seen.insert(writer) {
            continue;
        }
        for (user, node) in mentions.get(&writer).into_iter().flatten() {
            call_by_name(code, *node)?;
            if may_run_later(code, *node) {
                return None;
            }
            ids.extend((*user == handler).then_some(*node));
            next.push(*user);
        }
    }
    Some(ids)
}

/// Returns the places where a handler may change the contents of its state through a local variable.
fn shared_variable_changes(
    code: &CodeText<'_, '_>,
    names: &ScriptSymbols,
    sharing: &VariableSharing,
    touched: &StateAccesses,
    function: FunctionId,
) -> Vec<(NodeId, ValueUsage)> {
    let cells: BTreeSet<SymbolId> =
        touched.reachable_accesses(function).iter().map(|access| names.cells[access.cell].symbol).collect();
    let holders: BTreeSet<SymbolId> = cells.iter().map(|cell| sharing.representative(*cell)).collect();
    let symbols = holders.into_iter().flat_map(|holder| sharing.alias_class(holder));
    // The result of a function is examined at its calls.
    let own = symbols.filter(|symbol| {
        let is_declared = matches!(
            names.symbol_meaning(*symbol),
            Some(SymbolMeaning::Cell(_) | SymbolMeaning::External(_))
        );
        !is_declared && !code.functions_by_symbol.contains_key(symbol)
    });
    let uses = own.flat_map(|symbol| {
        code.symbol_references(symbol).filter(|it| it.is_read()).map(|it| it.node_id()).collect::<Vec<_>>()
    });
    let in_handler = uses.filter(|node| code.is_inside(*node, code.functions[function].node));
    in_handler.map(|node| (node, UsageAnalysis::new(code, names).reference_usage(node))).collect()
}

/// Warns about a resource that captures state before the state has been committed.
pub(crate) fn check(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let ScriptAnalysis { code, names, state_accesses: touched, calls, handlers, .. } = analysis;
    for (node, wait) in &calls.waits {
        let WaitOperation::Declare(resource) = wait else { continue };
        let Some(handler) = names.resources[*resource].parent else { continue };
        let HandlerMode { classification: classified, early_commit: early } = &handlers[handler];
        if classified.class != ConcurrencyClass::Writer || early.is_some_and(|early| early < *node) {
            continue;
        }
        let accesses = touched.reachable_accesses(names.handlers[handler].function);
        let written = |cell: usize| accesses.iter().find(|access| access.cell == cell && !access.is_read());
        let mut here = accesses.iter().filter(|access| code.is_inside(access.node, *node));
        let Some((read, write)) = here.find_map(|read| Some((read, written(read.cell)?))) else { continue };
        let cell = &names.cells[read.cell];
        let construct = &names.resources[*resource].constructs[0];
        let syntax_construct = code.construct(*construct);
        let head = syntax_construct.body.as_ref().map_or(syntax_construct.span.end, |body| body.start);
        diagnostics.push(
            Diagnostic::in_text(
                DiagnosticCode::DeclareEarly,
                syntax_construct.span.start..head,
                format!("a resource is declared with `{}` before its value is committed", cell.name),
                "this takes effect here, whatever the handler does later",
                "change state first, then call and declare: with no resource call before the last change, it is committed early",
            )
            .with_label(code.node_range(write.node), "this is committed only when the handler has ended")
            .as_warning(),
        );
    }
}
