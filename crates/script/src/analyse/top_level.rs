//! Rules 8 and 21: the code that is allowed outside of handlers, and the values that state can have. Code
//! outside of handlers runs once in each worker, so its variables are not shared.

use diagnostics::Diagnostic;
use oxc_ast::AstKind;
use oxc_semantic::NodeId;
use oxc_span::GetSpan;

use super::ScriptAnalysis;
use super::cells::capturing_statement;
use super::code::{CodeText, FunctionRole, child_statements};
use crate::diagnostic::DiagnosticCode;
use crate::program::CellScope;
use crate::syntax::ConstructKind;

pub(crate) fn check(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    check_statements(&analysis.code, diagnostics);
    check_modules(&analysis.code, diagnostics);
    check_reserved_names(&analysis.code, diagnostics);
    check_shared_variables(analysis, diagnostics);
    check_resource_paths(analysis, diagnostics);
    check_cells(analysis, diagnostics);
    check_request_calls(analysis, diagnostics);
}

/// Checks that the top level of a file has only constants, functions and services.
fn check_statements(code: &CodeText<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    for statement in child_statements(code, NodeId::ROOT) {
        let is_fine = matches!(
            code.kind(statement),
            AstKind::VariableDeclaration(_)
                | AstKind::Function(_)
                | AstKind::Class(_)
                | AstKind::EmptyStatement(_)
        );
        let is_module = code.kind(statement).is_module_declaration();
        if is_fine || is_module || code.construct_at(statement).is_some() {
            continue;
        }
        diagnostics.push(Diagnostic::in_text(
            DiagnosticCode::TopLevel,
            code.node_range(statement),
            "only constants and functions are allowed outside of services",
            "this would run once in each worker",
            "move it into a handler; what handlers use is declared with `const` or `function`",
        ));
    }
}

fn check_modules(code: &CodeText<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    for node in code.semantic.nodes().iter() {
        let (what, help) = match node.kind() {
            AstKind::ImportMeta(_) => {
                ("`import.meta` is not available in an S file", "import packages by their names")
            }
            AstKind::ExportDeclaration(_)
            | AstKind::ExportNamedDeclaration(_)
            | AstKind::ExportFromDeclaration(_)
            | AstKind::ExportDefaultDeclaration(_)
            | AstKind::ExportAllDeclaration(_) => {
                ("an S file can't export anything", "leave out `export`; services reach each other by HTTP")
            }
            _ => continue,
        };
        diagnostics.push(Diagnostic::in_text(
            DiagnosticCode::Module,
            code.node_range(node.id()),
            what,
            "not allowed here",
            help,
        ));
    }
}

/// Rejects names that the emitted code uses, such as `$r`.
fn check_reserved_names(code: &CodeText<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let is_ours = |name: &str| {
        let rest = name.strip_prefix('$');
        rest.is_some_and(|rest| {
            ["s", "r", "c"].contains(&rest) || (!rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    for node in code.semantic.nodes().iter() {
        let name = match node.kind() {
            AstKind::BindingIdentifier(name) => name.name,
            AstKind::IdentifierReference(name) => name.name,
            _ => continue,
        };
        if is_ours(&name) {
            diagnostics.push(Diagnostic::in_text(
                DiagnosticCode::ReservedName,
                code.node_range(node.id()),
                format!("the name `{name}` is taken"),
                "the compiled code uses it",
                "choose another; `$s`, `$r`, `$c` and `$` with a number are reserved",
            ));
        }
    }
}

/// Reports changes of variables outside of handlers, since each worker has its own.
fn check_shared_variables(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let code = &analysis.code;
    for change in &analysis.flow.changes {
        let is_plain = analysis.names.symbol_meaning(change.symbol).is_none();
        let node_id = code.declaration(change.symbol);
        // Code at the level of the declaration initialises the variable.
        let sets_up = code.enclosing_function(change.node) == code.enclosing_function(node_id)
            || !runs_in_request(code, change.node);
        if !is_plain || !is_worker_global(code, node_id) || sets_up || !change.is_certain {
            continue;
        }
        let name = code.name(change.symbol);
        let place = match code.functions[code.enclosing_function(node_id)].role {
            FunctionRole::Resource(_) => "resource",
            _ => "service",
        };
        let error = Diagnostic::in_text(
            DiagnosticCode::SharedVariable,
            code.node_range(change.node),
            format!("`{name}` is changed by a request, and each worker has its own"),
            "other workers don't see this change",
            format!("declare it as state, in the {place}: `state {name}`"),
        );
        let error = error.with_label(code.declaration_range(change.symbol), "declared outside of handlers");
        diagnostics.push(if change.is_assignment { error } else { error.as_warning() });
    }
}

/// Whether a variable exists once in each worker. The block of a nested resource is outside of the enclosing
/// handler.
fn is_worker_global(code: &CodeText<'_, '_>, node_id: NodeId) -> bool {
    let role = code.functions[code.enclosing_function(node_id)].role;
    matches!(role, FunctionRole::File | FunctionRole::Service(_) | FunctionRole::Resource(_))
}

/// Checks that the paths of top-level resources are literals.
fn check_resource_paths(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let code = &analysis.code;
    for (id, construct) in code.parsed.syntax.constructs.iter().enumerate() {
        let ConstructKind::Res { path, literal: None, .. } = &construct.kind else { continue };
        if code.enclosing_handler(code.statements[id]).is_some() {
            continue;
        }
        diagnostics.push(Diagnostic::in_text(
            DiagnosticCode::ResPath,
            path.clone(),
            "the path of a resource outside of handlers must be a literal",
            "this is computed, and there is no request to declare it",
            "write the whole path as one string; a resource with a computed path is declared in a handler",
        ));
    }
}

fn runs_in_request(code: &CodeText<'_, '_>, node: NodeId) -> bool {
    matches!(
        code.functions[code.enclosing_function(node)].role,
        FunctionRole::Plain | FunctionRole::Handler(_)
    )
}

fn check_cells(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let ScriptAnalysis { code, names, .. } = analysis;
    for cell in &names.cells {
        if let Some(initial) = cell.initial.filter(|initial| is_function(code, *initial)) {
            diagnostics.push(function_state_error(code, initial));
        }
        for reference in code.symbol_references(cell.symbol) {
            let node = reference.node_id();
            let node_id = capturing_statement(code, node, code.declaration(cell.symbol)).unwrap_or(node);
            let role = code.functions[code.enclosing_function(node_id)].role;
            let in_initial = is_in_state_declaration(code, node);
            if in_initial && !matches!(cell.scope, CellScope::Handler(_)) && node_id == node {
                diagnostics.push(Diagnostic::in_text(
                    DiagnosticCode::InitialState,
                    code.node_range(node),
                    format!("an initial value uses the state `{}`", cell.name),
                    "the order of the two is undefined",
                    "begin with a constant, and compute the rest in a handler",
                ));
            } else if matches!(
                role,
                FunctionRole::Service(_) | FunctionRole::Resource(_) | FunctionRole::File
            ) && !in_initial
            {
                diagnostics.push(Diagnostic::in_text(
                    DiagnosticCode::StateUse,
                    code.node_range(node),
                    format!("the state `{}` is used outside of a handler", cell.name),
                    "there is no request to read it for",
                    "use it in a handler, or in a function that handlers call",
                ));
            }
            check_assigned_value(code, node, diagnostics);
        }
    }
}

/// Rejects uses of functions that need a request where there is none.
fn check_request_calls(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let ScriptAnalysis { code, names, state_accesses: touched, calls, .. } = analysis;
    for (id, routine) in code.functions.iter().enumerate() {
        if matches!(routine.role, FunctionRole::Plain | FunctionRole::Handler(_)) {
            continue;
        }
        for (used, node) in touched.referenced_functions(id) {
            // `calls` reports functions that wait, and callbacks. `capture` reports a handler's own state.
            if code.enclosing_function(*node) != id || calls.async_functions.contains(used) {
                continue;
            }
            let is_shared = |cell: usize| !matches!(names.cells[cell].scope, CellScope::Handler(_));
            // A handler's function that is copied into an initial value is not in `given`.
            let is_handlers = code.emitting_handler(code.functions[*used].node).is_some();
            let touches = || touched.reachable_accesses(*used).iter().any(|access| is_shared(access.cell));
            let needs_request = calls.run_receivers.contains(used) || (is_handlers && touches());
            if !needs_request {
                continue;
            }
            let name = code.node_text(*node);
            diagnostics.push(Diagnostic::in_text(
                DiagnosticCode::StateUse,
                code.node_range(*node),
                format!("`{name}` needs the request that it runs for, and is used outside of a handler"),
                "no request has arrived yet",
                format!("use `{name}` in a handler, or in a function that handlers call"),
            ));
        }
    }
}

/// Whether a node is in a declaration of state.
fn is_in_state_declaration(code: &CodeText<'_, '_>, node: NodeId) -> bool {
    let mut around = code.ancestors(node).filter_map(|it| code.construct_at(it));
    around.next().is_some_and(|id| matches!(code.construct(id).kind, ConstructKind::State { .. }))
}

/// Checks rule 8: state is data.
fn check_assigned_value(code: &CodeText<'_, '_>, node: NodeId, diagnostics: &mut Vec<Diagnostic>) {
    let AstKind::AssignmentExpression(assignment) = code.kind(code.parent(node)) else { return };
    let value = super::code::find_node_by_span(code, code.parent(node), assignment.right.span());
    if let Some(value) = value.filter(|value| *value != node && is_function(code, *value)) {
        diagnostics.push(function_state_error(code, value));
    }
}

fn is_function(code: &CodeText<'_, '_>, node: NodeId) -> bool {
    matches!(code.kind(node), AstKind::Function(_) | AstKind::ArrowFunctionExpression(_) | AstKind::Class(_))
}

fn function_state_error(code: &CodeText<'_, '_>, node: NodeId) -> Diagnostic {
    let place = code.node_range(node);
    Diagnostic::in_text(
        DiagnosticCode::StateFunction,
        place.start..place.end,
        "state can't be a function",
        "state is data: it is written to disk",
        "declare the function in the service, and keep what it needs as state",
    )
}
