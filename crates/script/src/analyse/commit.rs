//! Rules 5 and 6: where a writer's changes are committed. At its end; or early, after the last statement that can
//! change state, if nothing was waited for until then and something is waited for later: others need not wait for that.

use oxc_semantic::NodeId;

use super::calls::{Calls, Wait};
use super::cells::Touched;
use super::code::{Called, Code, statements};
use super::names::Names;
use super::{Analysis, Handling};
use crate::diagnostic::{Code as Says, Diagnostic};
use crate::program::Class;

/// The statement after which a handler commits early, if it does.
pub(crate) fn early(
    code: &Code<'_, '_>,
    names: &Names,
    touched: &Touched,
    calls: &Calls,
    handler: usize,
    class: Class,
) -> Option<NodeId> {
    if class != Class::Writer {
        return None;
    }
    let statements = statements(code, code.functions[names.handlers[handler].function].node);
    let writes = writes(code, names, touched, handler)?;
    let is_before = |node: &NodeId| writes.iter().any(|write| code.is_inside(*write, *node));
    let last = statements.iter().rposition(is_before)?;
    let waits =
        |statements: &[NodeId]| statements.iter().any(|statement| !calls.inside(code, *statement).is_empty());
    let (earlier, later) = statements.split_at(last + 1);
    (!waits(earlier) && waits(later)).then(|| statements[last])
}

/// The places of a handler where it can change state; none if that can't be told.
fn writes(code: &Code<'_, '_>, names: &Names, touched: &Touched, handler: usize) -> Option<Vec<NodeId>> {
    let function = names.handlers[handler].function;
    let mut writes = Vec::new();
    for access in touched.by(function).iter().filter(|access| !access.reads) {
        // A callback may run at any time.
        let within = code.function_of(access.node);
        if within != function && code.functions[within].called == Called::Unknown {
            return None;
        }
        writes.push(access.node);
    }
    for (used, node) in touched.uses_of(function) {
        if touched.all_by(*used).iter().any(|access| !access.reads) {
            writes.push(*node);
        }
    }
    Some(writes)
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
