//! Rule 9: the variables that a nested resource captures from the handler that declares it, namely the free
//! variables of its handlers.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use diagnostics::Diagnostic;
use oxc_ast::AstKind;
use oxc_semantic::{AstNode, NodeId};
use oxc_syntax::symbol::SymbolId;

use super::ScriptAnalysis;
use super::code::{CodeText, FunctionId, FunctionRole};
use super::names::{ScriptSymbols, SymbolMeaning};
use crate::diagnostic::DiagnosticCode;
use crate::syntax::{ConstructId, ConstructKind};

/// Captured variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct CapturedVariables {
    /// Each captured variable, resources included, with its first use.
    pub(crate) values: BTreeMap<SymbolId, NodeId>,
    /// The functions and classes to copy: their declarations, with their first uses.
    pub(crate) copies: BTreeMap<NodeId, NodeId>,
}

impl CapturedVariables {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// Returns the variables that the handlers and initialisers of a resource capture.
pub(crate) fn resource_captures(
    code: &CodeText<'_, '_>,
    names: &ScriptSymbols,
    resource: ConstructId,
) -> CapturedVariables {
    let mut captured = CapturedVariables::default();
    if let Some(function) = code.construct_function(resource) {
        let node = code.functions[function].node;
        collect_captures(code, names, node, node, &mut captured);
    }
    captured
}

/// Adds the variables that a node in a resource captures from outside of `resource`, the node of the
/// resource's function.
pub(crate) fn collect_captures(
    code: &CodeText<'_, '_>,
    names: &ScriptSymbols,
    outer: NodeId,
    resource: NodeId,
    captured: &mut CapturedVariables,
) {
    for node in code.subtree_nodes(outer) {
        let AstKind::IdentifierReference(_) = code.kind(node) else { continue };
        let Some(symbol) = code.symbol(node) else { continue };
        let declaration = code.declaration(symbol);
        let is_in_block = code.is_inside(declaration, resource);
        let is_own = code.is_inside(declaration, outer)
            || (is_in_block && !names.capturing_declarations.contains(&declaration));
        if is_own || !(is_in_block || is_capturable(code, names, symbol, declaration)) {
            continue;
        }
        if !is_copied(code, symbol, declaration) {
            captured.values.entry(symbol).or_insert(node);
        } else if let Entry::Vacant(copy) = captured.copies.entry(declaration) {
            copy.insert(node);
            collect_captures(code, names, declaration, resource, captured);
        }
    }
}

/// Returns the functions and classes in blocks of nested resources that use variables of an enclosing
/// handler, directly or through their callees. A block is emitted outside of that handler, so its handlers
/// and initial values get copies of these.
pub(crate) fn find_capturing_declarations(
    code: &CodeText<'_, '_>,
    names: &ScriptSymbols,
) -> BTreeSet<NodeId> {
    let mut users: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    let mut next = Vec::new();
    for symbol in code.semantic.scoping().symbol_ids() {
        let declaration = code.declaration(symbol);
        let Some(resource) = nested_block(code, declaration) else { continue };
        if !is_copied(code, symbol, declaration) {
            continue;
        }
        for (used, at) in free_variables(code, declaration) {
            if code.is_inside(at, resource) {
                users.entry(at).or_default().push(declaration);
            } else if is_capturable(code, names, used, at) {
                next.push(declaration);
            }
        }
    }
    let mut capturing = BTreeSet::new();
    while let Some(declaration) = next.pop() {
        if capturing.insert(declaration) {
            next.extend(users.remove(&declaration).unwrap_or_default());
        }
    }
    capturing
}

/// Returns the function of a nested resource, for a node directly in the resource's block.
fn nested_block(code: &CodeText<'_, '_>, node: NodeId) -> Option<NodeId> {
    let function = &code.functions[code.enclosing_function(node)];
    let is_nested =
        matches!(function.role, FunctionRole::Resource(_)) && code.enclosing_handler(node).is_some();
    is_nested.then_some(function.node)
}

/// Returns the symbols that are used within a node and declared outside of it, with their declarations.
fn free_variables(code: &CodeText<'_, '_>, node: NodeId) -> impl Iterator<Item = (SymbolId, NodeId)> {
    let names =
        code.subtree_nodes(node).filter(|it| matches!(code.kind(*it), AstKind::IdentifierReference(_)));
    let symbols = names.filter_map(|it| code.symbol(it));
    let declared = symbols.map(|symbol| (symbol, code.declaration(symbol)));
    declared.filter(move |(_, declaration)| !code.is_inside(*declaration, node))
}

/// Whether a variable belongs to a handler, or is state of a resource. Variables of a service are shared and
/// not captured.
fn is_capturable(
    code: &CodeText<'_, '_>,
    names: &ScriptSymbols,
    symbol: SymbolId,
    declaration: NodeId,
) -> bool {
    let roles =
        code.enclosing_functions(code.enclosing_function(declaration)).map(|id| code.functions[id].role);
    let mut roles = roles.filter(|role| *role != FunctionRole::Plain);
    if let Some(SymbolMeaning::Cell(_)) = names.symbol_meaning(symbol) {
        return matches!(roles.next(), Some(FunctionRole::Handler(_) | FunctionRole::Resource(_)));
    }
    roles.any(|role| matches!(role, FunctionRole::Handler(_)))
}

/// Whether a captured variable is a function or class, whose code is copied.
fn is_copied(code: &CodeText<'_, '_>, symbol: SymbolId, declaration: NodeId) -> bool {
    code.functions_by_symbol.contains_key(&symbol) || matches!(code.kind(declaration), AstKind::Class(_))
}

/// Checks rule 9: variables that a nested resource cannot capture, and captured variables that it changes.
pub(crate) fn check(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    check_requests(analysis, diagnostics);
    check_blocks(analysis, diagnostics);
    check_names(analysis, diagnostics);
    let ScriptAnalysis { code, names, flow, .. } = analysis;
    for resource in &names.resources {
        let Some(function) = code.construct_function(resource.constructs[0]) else { continue };
        let node = code.functions[function].node;
        for (declaration, at) in &resource.captures.copies {
            let mut inner = CapturedVariables::default();
            collect_captures(code, names, *declaration, node, &mut inner);
            for symbol in inner.values.keys() {
                let what = match names.symbol_meaning(*symbol) {
                    Some(SymbolMeaning::Cell(_)) => "state of the enclosing handler",
                    Some(SymbolMeaning::Query | SymbolMeaning::Response) => {
                        "the request of the enclosing handler"
                    }
                    _ => continue,
                };
                let name = code.name(*symbol);
                diagnostics.push(Diagnostic::in_text(
                    DiagnosticCode::CapturedUse,
                    code.node_range(*at),
                    format!("this function uses {what}, but a nested resource only has a copy of it"),
                    format!("it uses `{name}`"),
                    format!("give the function `{name}` as an argument"),
                ));
            }
        }
        for symbol in resource.captures.values.keys() {
            if names.symbol_meaning(*symbol) == Some(SymbolMeaning::Response) {
                let place = code.node_range(resource.captures.values[symbol]);
                diagnostics.push(Diagnostic::in_text(
                    DiagnosticCode::CapturedUse,
                    place,
                    "the response of the enclosing handler no longer exists when this runs",
                    "it belongs to another request",
                    "use the handler's own `response`",
                ));
            }
            for change in
                flow.changes.iter().filter(|it| it.symbol == *symbol && code.is_inside(it.node, node))
            {
                let name = code.name(*symbol);
                diagnostics.push(
                    Diagnostic::in_text(
                        DiagnosticCode::Captured,
                        code.node_range(change.node),
                        format!("`{name}` is captured by a snapshot and can't be changed here"),
                        "the nested resource has a copy, made at its declaration",
                        format!("declare state in the resource: `state mine = {name}`"),
                    )
                    .with_label(code.declaration_range(*symbol), "captured from here"),
                );
            }
        }
    }
}

/// Rejects functions of a nested block that use the enclosing handler's request, because the block's handlers
/// have their own.
fn check_requests(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let ScriptAnalysis { code, names, .. } = analysis;
    for declaration in &names.capturing_declarations {
        for node in code.subtree_nodes(*declaration) {
            let thing = code.symbol(node).and_then(|symbol| names.symbol_meaning(symbol));
            if thing != Some(SymbolMeaning::Query) || code.reference(node).is_none() {
                continue;
            }
            diagnostics.push(Diagnostic::in_text(
                DiagnosticCode::CapturedUse,
                code.node_range(node),
                "this function uses the request of the enclosing handler, but a nested resource only has a copy of it",
                "it belongs to the handler that declares the resource",
                "pass `query` to the function as an argument; or copy the values that it needs into a variable of the enclosing handler",
            ));
        }
    }
}

/// Rejects captured variables in the rest of a nested block, which runs once, before any request.
fn check_blocks(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let ScriptAnalysis { code, names, .. } = analysis;
    for node in code.semantic.nodes().iter().map(AstNode::id) {
        let Some(symbol) = code.symbol(node).filter(|_| code.reference(node).is_some()) else { continue };
        let home = &code.functions[code.owning_function(node)];
        if !matches!(home.role, FunctionRole::Resource(_)) || code.enclosing_handler(home.node).is_none() {
            continue;
        }
        let declaration = code.declaration(symbol);
        let is_missing = match code.is_inside(declaration, home.node) {
            true => names.capturing_declarations.contains(&declaration),
            false => is_capturable(code, names, symbol, declaration),
        };
        if !is_missing || is_copied_to_handlers(code, names, node) {
            continue;
        }
        let name = code.name(symbol);
        diagnostics.push(Diagnostic::in_text(
            DiagnosticCode::CapturedUse,
            code.node_range(node),
            format!("`{name}` is used in the block of a nested resource, outside of its handlers"),
            "this runs once in each worker, before any request",
            "declare it in the handlers, in a function that they call, or as state of the resource",
        ));
    }
}

/// Rejects captured variables that are shadowed by another variable, because values are captured and looked
/// up by name.
fn check_names(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let ScriptAnalysis { code, names, .. } = analysis;
    for resource in names.resources.iter().filter(|resource| resource.parent.is_some()) {
        let CapturedVariables { values, copies } = &resource.captures;
        let statement = code.statements[resource.constructs[0]];
        for (value, at) in values {
            let copied = || copies.values().filter_map(|node| code.symbol(*node));
            let hiding = shadowing_variable(code, *value, statement)
                .or_else(|| copied().find(|copy| is_shadowed_by_copy(code, *copy, *value)));
            diagnostics.extend(hiding.map(|other| shadowed_capture_error(code, *value, *at, other)));
        }
    }
    // A handler's body is in a block after the copies, and a block does not limit the scope of a `var`.
    for handler in &names.handlers {
        let Some(resource) =
            code.construct(handler.construct).parent.and_then(|it| code.construct_function(it))
        else {
            continue;
        };
        let mut captured = CapturedVariables::default();
        let node = code.functions[handler.function].node;
        collect_captures(code, names, node, code.functions[resource].node, &mut captured);
        let values = if captured.copies.is_empty() { BTreeMap::new() } else { captured.values };
        for (value, at) in values {
            let hiding =
                own_variables(code, handler.function).find(|own| code.name(*own) == code.name(value));
            diagnostics.extend(hiding.map(|other| shadowed_capture_error(code, value, at, other)));
        }
    }
}

/// Returns a variable that shadows a captured one at the declaration of a resource.
fn shadowing_variable(code: &CodeText<'_, '_>, captured: SymbolId, statement: NodeId) -> Option<SymbolId> {
    let scoping = code.semantic.scoping();
    let (own, from) =
        (scoping.symbol_scope_id(captured), code.semantic.nodes().get_node(statement).scope_id());
    let scopes = scoping.scope_ancestors(from).take_while(|scope| *scope != own);
    let mut bindings = scopes.flat_map(|scope| scoping.iter_bindings_in(scope));
    bindings.find(|symbol| code.name(*symbol) == code.name(captured))
}

/// Whether a copied function or class shadows a captured variable in handlers. The variables are parameters.
/// The copies follow them, with a block for each function that they come from, outermost first.
fn is_shadowed_by_copy(code: &CodeText<'_, '_>, copy: SymbolId, captured: SymbolId) -> bool {
    let around = code.functions[code.enclosing_function(code.declaration(copy))].node;
    code.name(copy) == code.name(captured) && code.is_inside(code.declaration(captured), around)
}

/// Returns the variables that a function declares with `var`.
fn own_variables(code: &CodeText<'_, '_>, function: FunctionId) -> impl Iterator<Item = SymbolId> {
    let scoping = code.semantic.scoping();
    scoping.symbol_ids().filter(move |symbol| {
        let declaration = code.declaration(*symbol);
        scoping.symbol_flags(*symbol).is_function_scoped_declaration()
            && matches!(code.kind(declaration), AstKind::VariableDeclarator(_))
            && code.enclosing_function(declaration) == function
    })
}

fn shadowed_capture_error(
    code: &CodeText<'_, '_>,
    captured: SymbolId,
    at: NodeId,
    other: SymbolId,
) -> Diagnostic {
    let name = code.name(captured);
    Diagnostic::in_text(
        DiagnosticCode::CapturedUse,
        code.node_range(at),
        format!("a nested resource captures `{name}`, and another `{name}` hides it"),
        "the captured one is used here",
        "give one of the two another name",
    )
    .with_label(code.declaration_range(captured), "captured from here")
    .with_label(code.declaration_range(other), "this one hides it")
}

/// Whether a node in a block is part of an initial value, or of a class that is copied into handlers.
fn is_copied_to_handlers(code: &CodeText<'_, '_>, names: &ScriptSymbols, node: NodeId) -> bool {
    code.ancestors(node).any(|outer| {
        let construct = code.construct_at(outer).map(|id| &code.construct(id).kind);
        matches!(construct, Some(ConstructKind::State { .. }))
            || names.capturing_declarations.contains(&outer)
    })
}
