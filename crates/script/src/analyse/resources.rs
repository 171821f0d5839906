//! Rule 11: a nested resource without captured variables exists from the start of the service.

use diagnostics::Diagnostic;

use super::ScriptAnalysis;
use crate::diagnostic::DiagnosticCode;
use crate::syntax::ConstructKind;

pub(crate) fn check(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let ScriptAnalysis { code, names, .. } = analysis;
    for resource in names.resources.iter().filter(|resource| resource.parent.is_none()) {
        for id in
            resource.constructs.iter().filter(|id| code.enclosing_handler(code.statements[**id]).is_some())
        {
            let ConstructKind::Res { path, .. } = &code.construct(*id).kind else { continue };
            diagnostics.push(
                Diagnostic::in_text(
                    DiagnosticCode::Hoisted,
                    path.clone(),
                    "this resource exists from the start of the service",
                    "its path is known, and it uses no variable of the handler",
                    "no change is needed; to make this explicit, move it out of the handler, into the service",
                )
                .as_note(),
            );
        }
    }
}
