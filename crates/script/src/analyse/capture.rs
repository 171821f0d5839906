//! Rule 9: what a nested resource takes along from the handler that declares it: the free variables of its handlers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use oxc_ast::AstKind;
use oxc_semantic::NodeId;
use oxc_syntax::symbol::SymbolId;

use super::Analysis;
use super::code::{Code, Role};
use super::names::{Names, Thing};
use crate::diagnostic::{Code as Says, Diagnostic};
use crate::syntax::ConstructId;

/// What is taken along.
#[derive(Clone, Debug, Default)]
pub(crate) struct Captured {
    /// Each variable, and where it is used first. Resources among them.
    pub(crate) values: BTreeMap<SymbolId, NodeId>,
    /// The functions and classes that are written once more: their declarations, and where they are used first.
    pub(crate) copies: BTreeMap<NodeId, NodeId>,
}

impl Captured {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// What the handlers and initialisers of a resource take along.
pub(crate) fn of(code: &Code<'_, '_>, names: &Names, resource: ConstructId) -> Captured {
    let mut captured = Captured::default();
    if let Some(function) = code.function_for(resource) {
        let node = code.functions[function].node;
        within(code, names, node, node, &mut captured);
    }
    captured
}

/// What a node within a resource takes along from outside of `resource`, the node of the resource's function.
pub(crate) fn within(
    code: &Code<'_, '_>,
    names: &Names,
    outer: NodeId,
    resource: NodeId,
    captured: &mut Captured,
) {
    for node in code.inside(outer) {
        let AstKind::IdentifierReference(_) = code.kind(node) else { continue };
        let Some(symbol) = code.symbol(node) else { continue };
        let declaration = code.declaration(symbol);
        let is_own = code.is_inside(declaration, resource) || code.is_inside(declaration, outer);
        if is_own || !is_narrow(code, names, symbol, declaration) {
            continue;
        }
        if !is_copied(code, symbol, declaration) {
            captured.values.entry(symbol).or_insert(node);
        } else if let Entry::Vacant(copy) = captured.copies.entry(declaration) {
            copy.insert(node);
            within(code, names, declaration, resource, captured);
        }
    }
}

/// Whether a variable is a handler's, or state of a resource: what a service shares is not taken along.
fn is_narrow(code: &Code<'_, '_>, names: &Names, symbol: SymbolId, declaration: NodeId) -> bool {
    let roles = code.functions_around(code.function_of(declaration)).map(|id| code.functions[id].role);
    let mut roles = roles.filter(|role| *role != Role::Plain);
    if let Some(Thing::Cell(_)) = names.thing(symbol) {
        return matches!(roles.next(), Some(Role::Handler(_) | Role::Resource(_)));
    }
    roles.any(|role| matches!(role, Role::Handler(_)))
}

/// Functions and classes are code: they go along as they are written.
fn is_copied(code: &Code<'_, '_>, symbol: SymbolId, declaration: NodeId) -> bool {
    code.named.contains_key(&symbol) || matches!(code.kind(declaration), AstKind::Class(_))
}

/// Rule 9: what a nested resource can't take along, and can't change.
pub(crate) fn check(analysis: &Analysis<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Analysis { code, names, flow, .. } = analysis;
    for resource in &names.resources {
        let Some(function) = code.function_for(resource.constructs[0]) else { continue };
        let node = code.functions[function].node;
        for (declaration, at) in &resource.captured.copies {
            let mut inner = Captured::default();
            within(code, names, *declaration, node, &mut inner);
            for symbol in inner.values.keys() {
                let what = match names.thing(*symbol) {
                    Some(Thing::Cell(_)) => "state of the handler around",
                    Some(Thing::Query | Thing::Response) => "the request around",
                    _ => continue,
                };
                let name = code.name(*symbol);
                found.push(Diagnostic::error(
                    Says::CapturedUse,
                    code.place(*at),
                    format!("this function uses {what}, which a nested resource has only a copy of"),
                    format!("it uses `{name}`"),
                    format!("give the function `{name}` as an argument"),
                ));
            }
        }
        for symbol in resource.captured.values.keys() {
            if names.thing(*symbol) == Some(Thing::Response) {
                let place = code.place(resource.captured.values[symbol]);
                found.push(Diagnostic::error(
                    Says::CapturedUse,
                    place,
                    "the response of the handler around is gone when this runs",
                    "it belongs to another request",
                    "use the handler's own `response`",
                ));
            }
            for change in
                flow.changes.iter().filter(|it| it.symbol == *symbol && code.is_inside(it.node, node))
            {
                let name = code.name(*symbol);
                found.push(
                    Diagnostic::error(
                        Says::Captured,
                        code.place(change.node),
                        format!("`{name}` is captured by a snapshot and can't be changed here"),
                        "the nested resource has a copy, made at its declaration",
                        format!("declare state in the resource: `state mine = {name}`"),
                    )
                    .and(code.declared(*symbol), "captured from here"),
                );
            }
        }
    }
}
