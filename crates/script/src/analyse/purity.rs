//! Rule 3: GET and HEAD handlers are safe. Reports definite changes of state, declarations of state and
//! resources, and unsafe calls. The read-only views of the worker enforce the rest at runtime.

use std::collections::BTreeSet;

use oxc_ast::AstKind;
use oxc_semantic::NodeId;

use super::ScriptAnalysis;
use super::calls::WaitOperation;
use super::code::{CodeText, FunctionId};
use crate::diagnostic::{DiagnosticCode, ScriptDiagnostic};
use crate::method::HandlerMethod;
use crate::syntax::{ConstructId, ConstructKind};

/// The directive of a file, service or handler that allows its GET handlers to make unsafe calls.
const ALLOWED: &str = "allow unsafe calls in GET";

pub(crate) fn check(analysis: &ScriptAnalysis<'_, '_>, found: &mut Vec<ScriptDiagnostic>) {
    let mut told = BTreeSet::new();
    let allowing = allowing(&analysis.code);
    for handler in &analysis.names.handlers {
        if matches!(handler.method, HandlerMethod::Get | HandlerMethod::Head) {
            let method = handler.method.word();
            let safe = PurityAnalysis {
                analysis,
                allowing: &allowing,
                construct: handler.construct,
                function: handler.function,
                method,
            };
            safe.declarations(found);
            safe.changes(&mut told, found);
            safe.calls(&mut told, found);
        }
    }
}

struct PurityAnalysis<'s, 'p, 'a> {
    analysis: &'s ScriptAnalysis<'p, 'a>,
    allowing: &'s BTreeSet<FunctionId>,
    construct: ConstructId,
    function: FunctionId,
    method: &'static str,
}

impl PurityAnalysis<'_, '_, '_> {
    fn code(&self) -> &CodeText<'_, '_> {
        &self.analysis.code
    }

    fn declarations(&self, found: &mut Vec<ScriptDiagnostic>) {
        let code = self.code();
        for (id, construct) in code.parsed.syntax.within(self.construct) {
            if code.handler_of(code.statements[id]) != Some(self.construct) {
                continue;
            }
            let error = match &construct.kind {
                // State in a nested resource belongs to that resource.
                ConstructKind::State { names } if construct.parent.is_none_or(|it| !self.is_resource(it)) => {
                    let name = names.first().map_or(construct.span.clone(), |name| name.span.clone());
                    ScriptDiagnostic::error(
                        DiagnosticCode::GetState,
                        name,
                        format!("a {} handler has no state of its own", self.method),
                        "state is declared here",
                        "use `var` for the data of one request; declare shared data in the service or resource",
                    )
                }
                ConstructKind::Res { path, .. } => ScriptDiagnostic::error(
                    DiagnosticCode::GetDeclares,
                    path.clone(),
                    format!("a {} handler declares a resource", self.method),
                    "a safe request must not create anything",
                    "declare it in a POST or PUT handler, or beside this resource in the service",
                ),
                _ => continue,
            };
            found.push(error);
        }
    }

    fn is_resource(&self, id: ConstructId) -> bool {
        matches!(self.code().construct(id).kind, ConstructKind::Res { .. })
    }

    /// Returns the functions that this handler may run, with the node that refers to each.
    fn reached(&self) -> Vec<(FunctionId, Option<NodeId>)> {
        let touched = &self.analysis.touched;
        let mut all = vec![(self.function, None)];
        for (function, node) in touched.uses_of(self.function) {
            all.extend(touched.reach(*function).into_iter().map(|it| (it, Some(*node))));
        }
        all
    }

    fn changes(&self, told: &mut BTreeSet<(NodeId, DiagnosticCode)>, found: &mut Vec<ScriptDiagnostic>) {
        let code = self.code();
        for (function, from) in self.reached() {
            for change in
                self.analysis.flow.changes.iter().filter(|it| it.is_sure && code.home(it.node) == function)
            {
                let Some(cell) = self.analysis.names.cell(change.symbol) else { continue };
                let is_own = code.own_handler_of(change.node).is_none_or(|it| it == self.construct);
                if !is_own || !told.insert((change.node, DiagnosticCode::GetWrites)) {
                    continue;
                }
                let (name, method) = (&self.analysis.names.cells[cell].name, self.method);
                let label = if change.is_assignment { "this sets it" } else { "this changes it" };
                let error = ScriptDiagnostic::error(
                    DiagnosticCode::GetWrites,
                    code.place(change.node),
                    format!("a {method} handler changes the state `{name}`"),
                    label,
                    "change state in a PUT, POST, PATCH or DELETE handler; to sort or cut a list for an answer, copy it \
                     before, as in `list.slice()`",
                );
                found.push(
                    self.with_place(error, from)
                        .and(self.analysis.names.cells[cell].place.clone(), "declared here"),
                );
            }
        }
    }

    fn calls(&self, told: &mut BTreeSet<(NodeId, DiagnosticCode)>, found: &mut Vec<ScriptDiagnostic>) {
        let code = self.code();
        if self.is_allowed() {
            return;
        }
        for (function, from) in self.reached() {
            for (node, wait) in
                self.analysis.calls.waits.iter().filter(|(node, _)| code.home(**node) == function)
            {
                let WaitOperation::Resource { method, .. } = wait else { continue };
                let is_safe =
                    matches!(method, HandlerMethod::Get | HandlerMethod::Head | HandlerMethod::Options);
                if is_safe || !told.insert((*node, DiagnosticCode::GetUnsafe)) {
                    continue;
                }
                let error = ScriptDiagnostic::error(
                    DiagnosticCode::GetUnsafe,
                    code.place(*node),
                    format!("a {} handler makes a {} request", self.method, method.word()),
                    "callers do not expect that it changes anything",
                    format!(
                        "answer a POST or PUT with it instead; or, if it changes nothing, allow it in the handler's first line: `\"{ALLOWED}\"`"
                    ),
                );
                found.push(self.with_place(error, from));
            }
        }
    }

    fn with_place(&self, error: ScriptDiagnostic, from: Option<NodeId>) -> ScriptDiagnostic {
        let construct = self.code().construct(self.construct);
        let head = match &construct.kind {
            ConstructKind::On { method_span, .. } => construct.span.start..method_span.end,
            _ => construct.span.clone(),
        };
        let error = error.and(head, "in this handler");
        match from {
            Some(node) => error.and(self.code().place(node), "reached from here"),
            None => error,
        }
    }

    fn is_allowed(&self) -> bool {
        let mut around = self.code().functions_around(self.function);
        around.any(|function| self.allowing.contains(&function))
    }
}

/// Returns the functions, services and files with the directive.
fn allowing(code: &CodeText<'_, '_>) -> BTreeSet<FunctionId> {
    let says = |kind: AstKind<'_>| matches!(kind, AstKind::Directive(it) if it.expression.value == ALLOWED);
    let directives = code.semantic.nodes().iter().filter(|node| says(node.kind()));
    directives.map(|node| code.function_of(node.id())).collect()
}
