//! Rules 5 and 6: where a writer's changes are committed. At its end; or early, after the last statement that can
//! change state, if nothing was waited for until then and something is waited for later: others need not wait for that.

use std::collections::BTreeSet;

use oxc_semantic::NodeId;
use oxc_syntax::symbol::SymbolId;

use super::calls::{Calls, Wait};
use super::cells::Touched;
use super::code::{Called, Code, FunctionId, Role, statements};
use super::names::Names;
use super::reads::Reads;
use super::sharing::Sharing;
use super::{Analysis, Handling};
use crate::diagnostic::{Code as Says, Diagnostic};
use crate::program::Class;

/// The statement after which a handler commits early, if it does.
pub(crate) fn early(
    code: &Code<'_, '_>,
    names: &Names,
    sharing: &Sharing,
    touched: &Touched,
    calls: &Calls,
    handler: usize,
    class: Class,
) -> Option<NodeId> {
    if class != Class::Writer {
        return None;
    }
    let statements = statements(code, code.functions[names.handlers[handler].function].node);
    let writes = writes(code, names, sharing, touched, handler)?;
    let is_before = |node: &NodeId| writes.iter().any(|write| code.is_inside(*write, *node));
    let last = statements.iter().rposition(is_before)?;
    let waits =
        |statements: &[NodeId]| statements.iter().any(|statement| !calls.inside(code, *statement).is_empty());
    let (earlier, later) = statements.split_at(last + 1);
    (!waits(earlier) && waits(later)).then(|| statements[last])
}

/// The places of a handler where it can change state; none if that can't be told.
fn writes(
    code: &Code<'_, '_>,
    names: &Names,
    sharing: &Sharing,
    touched: &Touched,
    handler: usize,
) -> Option<Vec<NodeId>> {
    let function = names.handlers[handler].function;
    let accesses = touched.by(function).iter().filter(|access| !access.reads).map(|access| access.node);
    let changes = accesses.chain(shared(code, names, sharing, touched, function)).collect();
    let mut writes = execution_places(code, function, changes);
    // A callback may run at any time.
    let may_come_later = |node: &NodeId| {
        let within = code.function_of(*node);
        within != function && matches!(code.functions[within].called, Called::Unknown | Called::Never)
    };
    if writes.iter().any(may_come_later) {
        return None;
    }
    for (used, node) in touched.uses_of(function) {
        if touched.all_by(*used).iter().any(|access| !access.reads) {
            writes.push(*node);
        }
    }
    Some(writes)
}

/// Places of a handler where given nodes of it are executed: the body of a named function is where its name is used.
fn execution_places(code: &Code<'_, '_>, handler: FunctionId, mut next: Vec<NodeId>) -> Vec<NodeId> {
    let (mut places, mut seen) = (Vec::new(), BTreeSet::new());
    while let Some(node) = next.pop() {
        let home = code.home(node);
        if home == handler || code.functions[home].role != Role::Plain {
            places.push(node);
        } else if seen.insert(home) {
            next.extend(code.mentions(home));
        }
    }
    places
}

/// The places where a handler may change what is in its state by a variable of its own.
fn shared(
    code: &Code<'_, '_>,
    names: &Names,
    sharing: &Sharing,
    touched: &Touched,
    function: FunctionId,
) -> Vec<NodeId> {
    let cells: BTreeSet<SymbolId> =
        touched.all_by(function).iter().map(|access| names.cells[access.cell].symbol).collect();
    let holders: BTreeSet<SymbolId> = cells.iter().map(|cell| sharing.holder(*cell)).collect();
    let symbols = holders.into_iter().flat_map(|holder| sharing.class(holder));
    // What a function returns is looked at where it takes it from.
    let own = symbols.filter(|symbol| names.cell(*symbol).is_none() && !code.named.contains_key(symbol));
    let uses = own.flat_map(|symbol| {
        code.uses(symbol).filter(|it| it.is_read()).map(|it| it.node_id()).collect::<Vec<_>>()
    });
    let in_handler = uses.filter(|node| code.is_inside(*node, code.functions[function].node));
    in_handler.filter(|node| !Reads::new(code, names).only_reads(*node)).collect()
}

/// Warns where a resource is declared with state in it that may still be dropped.
pub(crate) fn check(analysis: &Analysis<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Analysis { code, names, touched, calls, handlers, .. } = analysis;
    for (node, wait) in &calls.waits {
        let Wait::Declare(resource) = wait else { continue };
        let Some(handler) = names.resources[*resource].parent else { continue };
        let Handling { classified, early } = &handlers[handler];
        if classified.class != Class::Writer || early.is_some_and(|early| early < *node) {
            continue;
        }
        let accesses = touched.all_by(names.handlers[handler].function);
        let written = |cell: usize| accesses.iter().find(|access| access.cell == cell && !access.reads);
        let mut here = accesses.iter().filter(|access| code.is_inside(access.node, *node));
        let Some((read, write)) = here.find_map(|read| Some((read, written(read.cell)?))) else { continue };
        let cell = &names.cells[read.cell];
        let construct = &names.resources[*resource].constructs[0];
        let place = code.construct(*construct);
        let head = place.body.as_ref().map_or(place.span.end, |body| body.start);
        found.push(
            Diagnostic::error(
                Says::DeclareEarly,
                place.span.start..head,
                format!("a resource is declared with `{}` before that is committed", cell.name),
                "this lasts from here on, whatever the handler does later",
                "change state first, then call and declare: with no resource call before the last change, it is committed early",
            )
            .and(code.place(write.node), "this is committed only when the handler has ended")
            .as_warning(),
        );
    }
}
