//! Rule 14: what a handler looks at of its request, and numbers that are texts when they come from outside.

use std::collections::BTreeMap;

use oxc_ast::AstKind;
use oxc_ast::ast::{BindingPattern, Expression};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::operator::{AssignmentOperator, UnaryOperator};

use super::Analysis;
use super::code::{Code, FunctionId, identifier};
use super::flow::member;
use super::names::{Names, Thing};
use crate::diagnostic::{Code as Says, Diagnostic};
use crate::program::Reads;

/// What a handler can look at.
pub(crate) fn reads(code: &Code<'_, '_>, names: &Names, function: FunctionId) -> Reads {
    let mut reads = Reads { query: false, headers: false, body: false };
    let node = code.functions[function].node;
    let AstKind::Function(it) = code.kind(node) else { return Reads::default() };
    let query = it.params.items.first().and_then(|it| it.pattern.get_binding_identifier()?.symbol_id.get());
    let Some(query) = query.filter(|query| names.thing(*query) == Some(Thing::Query)) else { return reads };
    for reference in code.uses(query) {
        let Some(names) = parts(code, reference.node_id()) else { return Reads::default() };
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

/// The members that a use of an object takes; none if it may take any.
fn parts(code: &Code<'_, '_>, name: NodeId) -> Option<Vec<String>> {
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

/// `s += query.count` where `s` began as a number.
pub(crate) fn check(analysis: &Analysis<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Analysis { code, names, .. } = analysis;
    let numbers: BTreeMap<_, _> = names
        .cells
        .iter()
        .filter(|cell| cell.initial.is_some_and(|it| is_number(code, it)))
        .map(|cell| (cell.symbol, cell))
        .collect();
    for node in code.semantic.nodes().iter() {
        let AstKind::AssignmentExpression(assignment) = node.kind() else { continue };
        let target =
            code.inside(node.id()).find(|it| code.span(*it) == assignment.left.span() && *it != node.id());
        let cell = target.and_then(|target| code.symbol(target)).and_then(|symbol| numbers.get(&symbol));
        let (Some(cell), AssignmentOperator::Addition) = (cell, assignment.operator) else { continue };
        let from = member(&assignment.right).and_then(|(object, _)| identifier(code, object));
        if from.is_none_or(|symbol| names.thing(symbol) != Some(Thing::Query)) {
            continue;
        }
        let place = code.source(assignment.right.span());
        let text = code.text(place.clone());
        found.push(
            Diagnostic::error(
                Says::QueryText,
                place,
                format!("`{}` began as a number, and what clients send is text", cell.name),
                "from a client's URL, `+=` appends this to the digits",
                format!("write `{} += Number({text})`", cell.name),
            )
            .as_warning(),
        );
    }
}

fn is_number(code: &Code<'_, '_>, node: NodeId) -> bool {
    match code.kind(node) {
        AstKind::NumericLiteral(_) => true,
        AstKind::UnaryExpression(unary) => {
            unary.operator == UnaryOperator::UnaryNegation
                && matches!(unary.argument, Expression::NumericLiteral(_))
        }
        _ => false,
    }
}
