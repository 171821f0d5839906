//! Rules 2 and 11: resources of one path are one resource; a nested one that takes nothing along is there from the
//! start.

use std::collections::BTreeMap;

use super::Analysis;
use crate::diagnostic::{Code as Says, Diagnostic};
use crate::syntax::ConstructKind;

pub(crate) fn check(analysis: &Analysis<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Analysis { code, names, .. } = analysis;
    let mut known = BTreeMap::new();
    for handler in &names.handlers {
        let construct = code.construct(handler.construct);
        let ConstructKind::On { method_span, .. } = &construct.kind else { continue };
        let head = construct.span.start..method_span.end;
        if let Some(first) = known.insert((handler.resource, handler.method as u8), head.clone()) {
            let message = format!("this path has a {} handler already", handler.method.word());
            let help = "remove one of the two, or give the resource another path";
            let error = Diagnostic::error(Says::HandlerTwice, head, message, "the second one", help);
            found.push(error.and(first, "the first one"));
        }
    }
    for resource in names.resources.iter().filter(|resource| resource.parent.is_none()) {
        for id in resource.constructs.iter().filter(|id| code.handler_of(code.statements[**id]).is_some()) {
            let ConstructKind::Res { path, .. } = &code.construct(*id).kind else { continue };
            found.push(
                Diagnostic::error(
                    Says::Hoisted,
                    path.clone(),
                    "this resource is there from the start of the service",
                    "its path is known, and it uses no variable of the handler",
                    "nothing has to be done; to say so, move it out of the handler, into the service",
                )
                .as_note(),
            );
        }
    }
}
