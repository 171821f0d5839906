//! Rule 11: a nested resource that takes nothing along is there from the start.

use super::Analysis;
use crate::diagnostic::{Code as Says, Diagnostic};
use crate::syntax::ConstructKind;

pub(crate) fn check(analysis: &Analysis<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Analysis { code, names, .. } = analysis;
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
