//! Rule 17: resource calls look synchronous but are asynchronous. Finds the calls and the functions that
//! become asynchronous through them, up to a fixed point, and reports calls in places that cannot wait.

use std::collections::{BTreeMap, BTreeSet};

use diagnostics::Diagnostic;
use oxc_ast::AstKind;
use oxc_ast::ast::CallExpression;
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::symbol::SymbolId;

use super::cells::capturing_statement;
use super::code::{CallForm, CodeText, FunctionId, FunctionRole};
use super::names::{CellSymbol, ScriptSymbols};
use crate::diagnostic::DiagnosticCode;
use crate::method::HandlerMethod;
use crate::syntax::ConstructKind;

/// An operation to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOperation {
    /// A call of a resource.
    Resource { external: usize, symbol: SymbolId, method: HandlerMethod },
    /// A call of a function of the file that waits.
    Function(FunctionId),
    /// A declaration of a resource.
    Declare(usize),
    /// An `await` of the author.
    Await,
}

/// The waits of a text.
#[derive(Debug, Default)]
pub(crate) struct WaitSites {
    /// The waits, by the node of the call, or of the statement of a declaration.
    pub(crate) waits: BTreeMap<NodeId, WaitOperation>,
    /// The functions that become asynchronous.
    pub(crate) async_functions: BTreeSet<FunctionId>,
    /// The functions outside of handlers that receive the run as a parameter.
    pub(crate) run_receivers: BTreeSet<FunctionId>,
}

impl WaitSites {
    pub(crate) fn from_code(
        code: &CodeText<'_, '_>,
        names: &ScriptSymbols,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut calls = Self::default();
        calls.find_resources(code, names, diagnostics);
        calls.find_declarations(code, names);
        for node in code.semantic.nodes().iter() {
            let awaits = match node.kind() {
                AstKind::AwaitExpression(_) => true,
                AstKind::ForOfStatement(of) => of.r#await,
                _ => false,
            };
            if awaits {
                calls.waits.insert(node.id(), WaitOperation::Await);
            }
        }
        calls.propagate_waits(code, diagnostics);
        calls.mark_run_receivers(code, names, diagnostics);
        calls
    }

    /// Whether a function itself waits.
    pub(crate) fn has_waits_in(&self, code: &CodeText<'_, '_>, function: FunctionId) -> bool {
        self.waits.keys().any(|node| code.enclosing_function(*node) == function)
    }

    /// Returns the waits within a node, without those in nested functions.
    pub(crate) fn waits_within(&self, code: &CodeText<'_, '_>, node: NodeId) -> Vec<(NodeId, WaitOperation)> {
        let Some(last) = code.subtree_nodes(node).next_back() else { return Vec::new() };
        let function = code.enclosing_function(node);
        let waits =
            self.waits.range(node..=last).filter(|(node, _)| code.enclosing_function(**node) == function);
        waits.map(|(node, wait)| (*node, *wait)).collect()
    }

    fn find_resources(
        &mut self,
        code: &CodeText<'_, '_>,
        names: &ScriptSymbols,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        for (symbol, _) in names.symbol_meanings.iter() {
            let Some(external) = names.external(*symbol) else { continue };
            for reference in code.symbol_references(*symbol) {
                match enclosing_resource_call(code, reference.node_id()) {
                    Ok((call, method)) => {
                        self.waits
                            .insert(call, WaitOperation::Resource { external, symbol: *symbol, method });
                    }
                    Err(said) => diagnostics.push(said(code.name(*symbol))),
                }
            }
        }
    }

    fn find_declarations(&mut self, code: &CodeText<'_, '_>, names: &ScriptSymbols) {
        for (index, resource) in names.resources.iter().enumerate() {
            if resource.parent.is_some() {
                self.waits.insert(code.statements[resource.constructs[0]], WaitOperation::Declare(index));
            }
        }
    }

    /// Propagates waits outwards: a function that waits becomes asynchronous, and so do its callers.
    fn propagate_waits(&mut self, code: &CodeText<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
        let mut next: Vec<(NodeId, WaitOperation)> =
            self.waits.iter().map(|(node, wait)| (*node, *wait)).collect();
        next.retain(|(_, wait)| *wait != WaitOperation::Await);
        while let Some((node, _)) = next.pop() {
            let function = code.enclosing_function(node);
            if let Some(diagnostic) = check_wait_allowed(code, node, function) {
                diagnostics.push(diagnostic);
                continue;
            }
            let routine = &code.functions[function];
            if routine.role != FunctionRole::Plain
                || routine.is_async
                || !self.async_functions.insert(function)
            {
                continue;
            }
            if !matches!(routine.call_form, CallForm::ByName(_)) {
                let outer = code.skip_parentheses(routine.node);
                next.push((code.parent(outer), WaitOperation::Function(function)));
            }
            for name in code.name_references(function) {
                match call_by_name(code, name) {
                    Some(call) => next.push((call, WaitOperation::Function(function))),
                    None => diagnostics.push(function_value_error(code, name)),
                }
            }
            next.iter().for_each(|(node, wait)| {
                self.waits.entry(*node).or_insert(*wait);
            });
        }
    }

    /// Marks functions outside of handlers that need the run, directly or through their callees. Their
    /// callers pass it.
    fn mark_run_receivers(
        &mut self,
        code: &CodeText<'_, '_>,
        names: &ScriptSymbols,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        // Captured state is a plain value.
        let is_live = |node: &NodeId, cell: &CellSymbol| {
            capturing_statement(code, *node, code.declaration(cell.symbol)).is_none()
        };
        let cells = names.cells.iter().flat_map(|cell| {
            let uses = code.symbol_references(cell.symbol).map(|reference| reference.node_id());
            uses.filter(move |node| is_live(node, cell))
        });
        // The author's `await` needs no run, but a `pfor` around it does.
        let needs_run = |(node, wait): &(&NodeId, &WaitOperation)| {
            **wait != WaitOperation::Await || is_in_pfor(code, **node)
        };
        let waits = self.waits.iter().filter(needs_run).map(|(node, _)| *node);
        let mut next: Vec<NodeId> = cells.chain(waits).collect();
        while let Some(node) = next.pop() {
            let Some(outermost) = outermost_function(code, code.enclosing_function(node)) else {
                continue;
            };
            let CallForm::ByName(_) = code.functions[outermost].call_form else {
                let is_told = self.waits.contains_key(&node)
                    || call_by_name(code, node).is_some_and(|call| self.waits.contains_key(&call));
                if !is_told {
                    diagnostics.push(unknown_caller_error(code, node));
                }
                continue;
            };
            if self.run_receivers.insert(outermost) {
                next.extend(code.name_references(outermost));
            }
        }
    }
}

/// Returns the outermost function around code that is emitted outside of all handlers, such as the block of a
/// nested resource.
pub(crate) fn outermost_function(code: &CodeText<'_, '_>, function: FunctionId) -> Option<FunctionId> {
    let mut last = None;
    for id in code.enclosing_functions(function) {
        match code.functions[id].role {
            FunctionRole::Plain => last = Some(id),
            FunctionRole::File | FunctionRole::Service(_) | FunctionRole::Resource(_) => return last,
            FunctionRole::Handler(_) => return None,
        }
    }
    last
}

/// Whether a node is in a `pfor` of the same function.
fn is_in_pfor(code: &CodeText<'_, '_>, node: NodeId) -> bool {
    let function = code.enclosing_function(node);
    let mut around = code.ancestors(node).take_while(|outer| code.enclosing_function(*outer) == function);
    around.any(|outer| {
        let construct = code.construct_at(outer).map(|id| &code.construct(id).kind);
        matches!(construct, Some(ConstructKind::Pfor { .. }))
    })
}

type CallDescription = Box<dyn Fn(&str) -> Diagnostic>;

/// Returns the call that a reference to a resource is part of.
fn enclosing_resource_call(
    code: &CodeText<'_, '_>,
    name: NodeId,
) -> Result<(NodeId, HandlerMethod), CallDescription> {
    let member = code.parent(name);
    let place = code.node_range(name);
    let AstKind::StaticMemberExpression(access) = code.kind(member) else {
        return Err(Box::new(move |name| {
            let message = format!("the resource `{name}` is used as a value");
            let help = format!(
                "call it here, as in `{name}.get()`, and pass on the result; a function can use a resource that is declared around it"
            );
            Diagnostic::in_text(
                DiagnosticCode::ResourceValue,
                place.clone(),
                message,
                "only its methods can be called",
                help,
            )
        }));
    };
    let word = access.property.name.to_string();
    let method = HandlerMethod::from_name(&word.to_uppercase())
        .filter(|_| word.chars().all(|c| c.is_ascii_lowercase()));
    let call = code.parent(member);
    let is_called = matches!(code.kind(call), AstKind::CallExpression(it) if it.callee.span() == code.span(member) && !it.optional);
    if let (Some(method), true, false) = (method, is_called, access.optional) {
        return Ok((call, method));
    }
    let place = code.source_range(access.property.span);
    Err(Box::new(move |name| {
        let help = format!("call one of its methods: `{name}.get()`, head, post, put, patch, delete");
        if method.is_some() {
            let message = format!("`{name}.{word}` is used as a value");
            return Diagnostic::in_text(
                DiagnosticCode::ResourceValue,
                place.clone(),
                message,
                "this is not called",
                help,
            );
        }
        let message = format!("a resource has no `{word}`");
        Diagnostic::in_text(
            DiagnosticCode::ResourceValue,
            place.clone(),
            message,
            "not a method of HTTP",
            help,
        )
    }))
}

/// Returns the call of a function by its name.
pub(crate) fn call_by_name(code: &CodeText<'_, '_>, name: NodeId) -> Option<NodeId> {
    let name = code.skip_parentheses(name);
    let call = code.parent(name);
    let AstKind::CallExpression(it) = code.kind(call) else { return None };
    let is_callee = |call: &CallExpression<'_>| call.callee.span() == code.span(name) && !call.optional;
    is_callee(it).then_some(call)
}

/// Returns the diagnostic for a wait in a place that cannot wait.
fn check_wait_allowed(code: &CodeText<'_, '_>, node: NodeId, function: FunctionId) -> Option<Diagnostic> {
    let routine = &code.functions[function];
    let place = code.node_range(node);
    let place = if code.construct_at(node).is_some() {
        code.construct(code.construct_at(node)?).span.clone()
    } else {
        place
    };
    let message = |what: &str| format!("a resource is called {what}");
    let said = |message: String, label: &str, help: &str| {
        Some(Diagnostic::in_text(DiagnosticCode::CallPlace, place.clone(), message, label, help))
    };
    match routine.role {
        FunctionRole::File | FunctionRole::Service(_) | FunctionRole::Resource(_) => {
            return said(
                message("outside of a handler"),
                "there is no request to wait for this",
                "move the call into a handler, or into a function that handlers call",
            );
        }
        FunctionRole::Plain => {}
        FunctionRole::Handler(_) => return check_initial_value(code, node),
    }
    let in_parameters = code
        .ancestors(node)
        .take_while(|it| *it != routine.node)
        .any(|it| matches!(code.kind(it), AstKind::FormalParameters(_)));
    if in_parameters {
        return said(
            message("in a parameter's default value"),
            "this can't be waited for",
            "leave the parameter without a default, and set it in the function's body",
        );
    }
    if routine.is_async {
        return None;
    }
    match routine.call_form {
        CallForm::CannotWait => said(
            message("in a generator, getter, setter, constructor or class field"),
            "this can't be waited for",
            "move the call into a function that is called by its name, and give this the result",
        ),
        CallForm::Unknown => Some(
            Diagnostic::in_text(
                DiagnosticCode::CallPlace,
                place.clone(),
                message("in a callback"),
                "the caller of this function would not wait for it",
                "use `pfor(var i in list) { .. }`, which runs the iterations in parallel, or a `for` loop; \
                 a function that is called by its name may call resources too",
            )
            .with_label(
                code.node_range(routine.node).start..code.node_range(routine.node).start + 1,
                "the callback begins here",
            ),
        ),
        _ => None,
    }
}

/// Reports a wait in an initial value, which is evaluated synchronously.
fn check_initial_value(code: &CodeText<'_, '_>, node: NodeId) -> Option<Diagnostic> {
    let is_state = |id: usize| matches!(code.construct(id).kind, ConstructKind::State { .. });
    code.ancestors(node).filter_map(|it| code.construct_at(it)).take(1).find(|id| is_state(*id))?;
    Some(Diagnostic::in_text(
        DiagnosticCode::InitialCalls,
        code.node_range(node),
        "an initial value must not call a resource",
        "this is called for it",
        "declare the state without a value, and set it once: `state a` and then `if (a === undefined) a = ..`",
    ))
}

fn function_value_error(code: &CodeText<'_, '_>, name: NodeId) -> Diagnostic {
    let text = code.node_text(name);
    Diagnostic::in_text(
        DiagnosticCode::FunctionValue,
        code.node_range(name),
        format!("`{text}` calls resources, and is passed as a value here"),
        "its caller would not wait for it",
        format!(
            "call it here, by its name: `{text}(..)`; over a list, use `pfor(var i in list) {{ {text}(list[i]) }}`"
        ),
    )
}

fn unknown_caller_error(code: &CodeText<'_, '_>, node: NodeId) -> Diagnostic {
    Diagnostic::in_text(
        DiagnosticCode::FunctionValue,
        code.node_range(node),
        "state or a resource is used in a function that no handler calls by its name",
        "it is unknown which request this is for",
        "write a function with a name, `function f() { .. }`, and call it as `f()` from handlers",
    )
}
