//! Rule 3: GET and HEAD handlers are safe. Reports definite changes of state, declarations of state and
//! resources, and unsafe calls. The read-only views of the worker enforce the rest at runtime.

use std::collections::BTreeSet;

use diagnostics::Diagnostic;
use oxc_ast::AstKind;
use oxc_semantic::NodeId;

use super::ScriptAnalysis;
use super::calls::WaitOperation;
use super::code::{CodeText, FunctionId};
use crate::diagnostic::DiagnosticCode;
use crate::method::HandlerMethod;
use crate::syntax::{ConstructId, ConstructKind};

/// The directive of a file, service or handler that allows its GET handlers to make unsafe calls.
const ALLOW_UNSAFE_DIRECTIVE: &str = "allow unsafe calls in GET";

pub(crate) fn check(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let mut told = BTreeSet::new();
    let allowing = find_allowing_functions(&analysis.code);
    for handler in &analysis.names.handlers {
        if matches!(handler.method, HandlerMethod::Get | HandlerMethod::Head) {
            let method = handler.method.as_str();
            let safe = PurityAnalysis {
                analysis,
                allowing_functions: &allowing,
                construct: handler.construct,
                function: handler.function,
                method,
            };
            safe.check_declarations(diagnostics);
            safe.check_changes(&mut told, diagnostics);
            safe.check_calls(&mut told, diagnostics);
        }
    }
}

struct PurityAnalysis<'s, 'p, 'a> {
    analysis: &'s ScriptAnalysis<'p, 'a>,
    allowing_functions: &'s BTreeSet<FunctionId>,
    construct: ConstructId,
    function: FunctionId,
    method: &'static str,
}

impl PurityAnalysis<'_, '_, '_> {
    fn code(&self) -> &CodeText<'_, '_> {
        &self.analysis.code
    }

    fn check_declarations(&self, diagnostics: &mut Vec<Diagnostic>) {
        let code = self.code();
        for (id, construct) in code.parsed.syntax.nested_constructs(self.construct) {
            if code.enclosing_handler(code.statements[id]) != Some(self.construct) {
                continue;
            }
            let error = match &construct.kind {
                // State in a nested resource belongs to that resource.
                ConstructKind::State { names } if construct.parent.is_none_or(|it| !self.is_resource(it)) => {
                    let name = names.first().map_or(construct.span.clone(), |name| name.span.clone());
                    Diagnostic::in_text(
                        DiagnosticCode::GetState,
                        name,
                        format!("a {} handler has no state of its own", self.method),
                        "state is declared here",
                        "use `var` for the data of one request; declare shared data in the service or resource",
                    )
                }
                ConstructKind::Res { path, .. } => Diagnostic::in_text(
                    DiagnosticCode::GetDeclares,
                    path.clone(),
                    format!("a {} handler declares a resource", self.method),
                    "a safe request must not create anything",
                    "declare it in a POST or PUT handler, or beside this resource in the service",
                ),
                _ => continue,
            };
            diagnostics.push(error);
        }
    }

    fn is_resource(&self, id: ConstructId) -> bool {
        matches!(self.code().construct(id).kind, ConstructKind::Res { .. })
    }

    /// Returns the functions that this handler may run, with the node that refers to each.
    fn reached_functions(&self) -> Vec<(FunctionId, Option<NodeId>)> {
        let touched = &self.analysis.state_accesses;
        let mut all = vec![(self.function, None)];
        for (function, node) in touched.referenced_functions(self.function) {
            all.extend(touched.reachable_functions(*function).into_iter().map(|it| (it, Some(*node))));
        }
        all
    }

    fn check_changes(
        &self,
        told: &mut BTreeSet<(NodeId, DiagnosticCode)>,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let code = self.code();
        for (function, from) in self.reached_functions() {
            for change in self
                .analysis
                .flow
                .changes
                .iter()
                .filter(|it| it.is_certain && code.owning_function(it.node) == function)
            {
                let Some(cell) = self.analysis.names.cell(change.symbol) else { continue };
                let is_own = code.emitting_handler(change.node).is_none_or(|it| it == self.construct);
                if !is_own || !told.insert((change.node, DiagnosticCode::GetWrites)) {
                    continue;
                }
                let (name, method) = (&self.analysis.names.cells[cell].name, self.method);
                let label = if change.is_assignment { "this sets it" } else { "this changes it" };
                let error = Diagnostic::in_text(
                    DiagnosticCode::GetWrites,
                    code.node_range(change.node),
                    format!("a {method} handler changes the state `{name}`"),
                    label,
                    "change state in a PUT, POST, PATCH or DELETE handler; to sort or cut a list for an answer, copy it \
                     before, as in `list.slice()`",
                );
                diagnostics.push(
                    self.add_context_labels(error, from)
                        .with_label(self.analysis.names.cells[cell].place.clone(), "declared here"),
                );
            }
        }
    }

    fn check_calls(&self, told: &mut BTreeSet<(NodeId, DiagnosticCode)>, found: &mut Vec<Diagnostic>) {
        let code = self.code();
        if self.allows_unsafe_calls() {
            return;
        }
        for (function, from) in self.reached_functions() {
            for (node, wait) in
                self.analysis.calls.waits.iter().filter(|(node, _)| code.owning_function(**node) == function)
            {
                let WaitOperation::Resource { method, .. } = wait else { continue };
                let is_safe =
                    matches!(method, HandlerMethod::Get | HandlerMethod::Head | HandlerMethod::Options);
                if is_safe || !told.insert((*node, DiagnosticCode::GetUnsafe)) {
                    continue;
                }
                let error = Diagnostic::in_text(
                    DiagnosticCode::GetUnsafe,
                    code.node_range(*node),
                    format!("a {} handler makes a {} request", self.method, method.as_str()),
                    "callers do not expect that it changes anything",
                    format!(
                        "answer a POST or PUT with it instead; or, if it changes nothing, allow it in the handler's first line: `\"{ALLOW_UNSAFE_DIRECTIVE}\"`"
                    ),
                );
                found.push(self.add_context_labels(error, from));
            }
        }
    }

    fn add_context_labels(&self, error: Diagnostic, from: Option<NodeId>) -> Diagnostic {
        let construct = self.code().construct(self.construct);
        let head = match &construct.kind {
            ConstructKind::On { method_span, .. } => construct.span.start..method_span.end,
            _ => construct.span.clone(),
        };
        let error = error.with_label(head, "in this handler");
        match from {
            Some(node) => error.with_label(self.code().node_range(node), "reached from here"),
            None => error,
        }
    }

    fn allows_unsafe_calls(&self) -> bool {
        let mut around = self.code().enclosing_functions(self.function);
        around.any(|function| self.allowing_functions.contains(&function))
    }
}

/// Returns the functions, services and files with the directive.
fn find_allowing_functions(code: &CodeText<'_, '_>) -> BTreeSet<FunctionId> {
    let says = |kind: AstKind<'_>| matches!(kind, AstKind::Directive(it) if it.expression.value == ALLOW_UNSAFE_DIRECTIVE);
    let directives = code.semantic.nodes().iter().filter(|node| says(node.kind()));
    directives.map(|node| code.enclosing_function(node.id())).collect()
}
