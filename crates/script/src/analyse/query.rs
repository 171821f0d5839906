//! Rule 14: the parts of the request that a handler reads, and query parameters, which are texts, used as
//! numbers.

use std::collections::{BTreeMap, BTreeSet};

use diagnostics::Diagnostic;
use oxc_ast::AstKind;
use oxc_ast::ast::{BindingPattern, Expression};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::operator::{AssignmentOperator, UnaryOperator};
use oxc_syntax::symbol::SymbolId;

use super::ScriptAnalysis;
use super::code::{CodeText, FunctionId, identifier_symbol};
use super::flow::member_access;
use super::names::{ScriptSymbols, SymbolMeaning};
use crate::diagnostic::DiagnosticCode;
use crate::program::{HeaderReads, RequestReads};

/// Returns the parts of the request that a handler can read.
pub(crate) fn request_reads(
    code: &CodeText<'_, '_>,
    names: &ScriptSymbols,
    function: FunctionId,
) -> RequestReads {
    let mut reads = RequestReads { query: false, headers: false, body: false };
    let node = code.functions[function].node;
    if !matches!(code.kind(node), AstKind::Function(_)) {
        return RequestReads::default();
    }
    let Some(query) = request_parameter(code, names, function) else { return reads };
    for reference in code.symbol_references(query) {
        let Some(names) = read_members(code, reference.node_id()) else { return RequestReads::default() };
        for name in names {
            match name.as_str() {
                "$headers" => reads.headers = true,
                "$body" => reads.body = true,
                "$method" | "$path" => {}
                _ => reads.query = true,
            }
        }
    }
    reads
}

/// Returns the request headers that a handler can read.
pub(crate) fn header_reads(
    code: &CodeText<'_, '_>,
    names: &ScriptSymbols,
    function: FunctionId,
) -> HeaderReads {
    if !request_reads(code, names, function).headers {
        return HeaderReads::Named(Vec::new());
    }
    let Some(query) = request_parameter(code, names, function) else { return HeaderReads::Any };
    let mut found = BTreeSet::new();
    for reference in code.symbol_references(query) {
        let Some(members) = read_members(code, reference.node_id()) else { return HeaderReads::Any };
        if !members.iter().any(|name| name == "$headers") {
            continue;
        }
        // A single member of `query.$headers`.
        let headers = code.parent(reference.node_id());
        let is_member = matches!(
            code.kind(headers),
            AstKind::StaticMemberExpression(_) | AstKind::ComputedMemberExpression(_)
        );
        match read_members(code, headers).filter(|_| is_member) {
            Some(members) => found.extend(members),
            None => return HeaderReads::Any,
        }
    }
    HeaderReads::Named(found.into_iter().collect())
}

/// Returns the parameter of a handler that holds the request.
fn request_parameter(
    code: &CodeText<'_, '_>,
    names: &ScriptSymbols,
    function: FunctionId,
) -> Option<SymbolId> {
    let AstKind::Function(it) = code.kind(code.functions[function].node) else { return None };
    let query = it.params.items.first()?.pattern.get_binding_identifier()?.symbol_id.get()?;
    (names.symbol_meaning(query) == Some(SymbolMeaning::Query)).then_some(query)
}

/// Returns the members that a use of an object reads, or `None` if it may read any.
fn read_members(code: &CodeText<'_, '_>, name: NodeId) -> Option<Vec<String>> {
    match code.kind(code.parent(name)) {
        AstKind::StaticMemberExpression(member) => Some(vec![member.property.name.to_string()]),
        AstKind::ComputedMemberExpression(member) if member.object.span() == code.span(name) => {
            match &member.expression {
                Expression::StringLiteral(text) => Some(vec![text.value.to_string()]),
                _ => None,
            }
        }
        AstKind::VariableDeclarator(declarator) => match &declarator.id {
            BindingPattern::ObjectPattern(pattern) if pattern.rest.is_none() => pattern
                .properties
                .iter()
                .map(|it| it.key.static_name().map(|name| name.to_string()))
                .collect(),
            _ => None,
        },
        _ => None,
    }
}

/// Checks for `s += query.count` where `s` is initialised with a number.
pub(crate) fn check(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let ScriptAnalysis { code, names, .. } = analysis;
    let numbers: BTreeMap<_, _> = names
        .cells
        .iter()
        .filter(|cell| cell.initial.is_some_and(|it| is_number(code, it)))
        .map(|cell| (cell.symbol, cell))
        .collect();
    for node in code.semantic.nodes().iter() {
        let AstKind::AssignmentExpression(assignment) = node.kind() else { continue };
        let target = code
            .subtree_nodes(node.id())
            .find(|it| code.span(*it) == assignment.left.span() && *it != node.id());
        let cell = target.and_then(|target| code.symbol(target)).and_then(|symbol| numbers.get(&symbol));
        let (Some(cell), AssignmentOperator::Addition) = (cell, assignment.operator) else { continue };
        let from = member_access(&assignment.right).and_then(|(object, _)| identifier_symbol(code, object));
        if from.is_none_or(|symbol| names.symbol_meaning(symbol) != Some(SymbolMeaning::Query)) {
            continue;
        }
        let place = code.source_range(assignment.right.span());
        let text = code.source_text(place.clone());
        diagnostics.push(
            Diagnostic::in_text(
                DiagnosticCode::QueryText,
                place,
                format!("`{}` begins as a number, but clients send text", cell.name),
                "from a client's URL, `+=` appends this to the digits",
                format!("write `{} += Number({text})`", cell.name),
            )
            .as_warning(),
        );
    }
}

fn is_number(code: &CodeText<'_, '_>, node: NodeId) -> bool {
    match code.kind(node) {
        AstKind::NumericLiteral(_) => true,
        AstKind::UnaryExpression(unary) => {
            unary.operator == UnaryOperator::UnaryNegation
                && matches!(unary.argument, Expression::NumericLiteral(_))
        }
        _ => false,
    }
}
