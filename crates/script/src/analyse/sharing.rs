//! Which variables may hold the same objects, or parts of them: by what is put into what, given to functions, returned.
//!
//! State holds what is assigned to it as the object that it is, until the handler ends. So what changes a local variable's
//! content may change state, and says so here. A doubt shares.

use std::collections::HashMap;

use oxc_ast::AstKind;
use oxc_ast::ast::{
    Argument, ArrayExpressionElement, AssignmentTarget, CallExpression, Expression, ForStatementLeft,
    ObjectPropertyKind,
};
use oxc_semantic::NodeId;
use oxc_span::{GetSpan, Span};
use oxc_syntax::symbol::SymbolId;

use super::code::{Code, FunctionId, identifier, node_of, plain};
use super::flow::{CHANGING, Flow, bound, member, parameters};
use super::names::{Names, Thing};
use super::reads;

/// Methods whose result was in what they are called on, and is there no longer.
const TAKING: &[&str] = &["pop", "shift", "splice"];

/// Classes of variables.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Those that stand for others.
    heads: HashMap<SymbolId, SymbolId>,
    /// All of a class that has several, by the one that stands for it.
    members: HashMap<SymbolId, Vec<SymbolId>>,
}

struct Links<'l, 'p, 'a> {
    code: &'l Code<'p, 'a>,
    names: &'l Names,
    sharing: Sharing,
    /// What is handed to functions: the variables of the parameter, and what may be in it.
    passed: Vec<(FunctionId, Vec<SymbolId>, Vec<SymbolId>)>,
}

impl Sharing {
    pub(crate) fn of(code: &Code<'_, '_>, names: &Names, flow: &Flow) -> Self {
        let mut links = Links { code, names, sharing: Self::default(), passed: Vec::new() };
        for (a, b) in flow.shares() {
            links.sharing.join(a, b);
        }
        for node in code.semantic.nodes().iter() {
            links.visit(node.id());
        }
        links.pass();
        links.sharing
    }

    /// The variable that stands for all that may share what this one holds.
    pub(crate) fn holder(&self, symbol: SymbolId) -> SymbolId {
        self.heads.get(&symbol).copied().unwrap_or(symbol)
    }

    /// All that may share what a variable holds, with it.
    pub(crate) fn class(&self, symbol: SymbolId) -> Vec<SymbolId> {
        self.members.get(&self.holder(symbol)).cloned().unwrap_or_else(|| vec![symbol])
    }

    /// Whether that was not so before.
    fn join(&mut self, a: SymbolId, b: SymbolId) -> bool {
        let (a, b) = (self.holder(a), self.holder(b));
        if a == b {
            return false;
        }
        let (head, other) = (a.min(b), a.max(b));
        let joining = self.members.remove(&other).unwrap_or_else(|| vec![other]);
        self.heads.extend(joining.iter().map(|symbol| (*symbol, head)));
        self.members.entry(head).or_insert_with(|| vec![head]).extend(joining);
        true
    }
}

impl<'a> Links<'_, '_, 'a> {
    fn join(&mut self, symbols: impl IntoIterator<Item = SymbolId>) {
        let mut symbols = symbols.into_iter();
        let Some(first) = symbols.next() else { return };
        for other in symbols {
            self.sharing.join(first, other);
        }
    }

    fn visit(&mut self, node: NodeId) {
        match self.code.kind(node) {
            AstKind::VariableDeclarator(declarator) => {
                if let Some(init) = &declarator.init {
                    self.join(bound(&declarator.id).into_iter().chain(self.held(init)));
                }
            }
            AstKind::AssignmentExpression(assignment) => {
                let targets = self.targets(node, &assignment.left);
                let held = self.held(&assignment.right);
                self.join(targets.into_iter().chain(held));
            }
            AstKind::ForOfStatement(of) => {
                let left = match &of.left {
                    ForStatementLeft::VariableDeclaration(it) => {
                        it.declarations.iter().flat_map(|it| bound(&it.id)).collect()
                    }
                    left => self.all_in(node, left.span()),
                };
                self.join(left.into_iter().chain(self.held(&of.right)));
            }
            AstKind::CallExpression(call) => self.call(call),
            AstKind::ReturnStatement(it) => {
                if let Some(value) = &it.argument {
                    self.returned(self.code.function_of(node), value);
                }
            }
            AstKind::ArrowFunctionExpression(arrow) => {
                let function = self.code.named.values().find(|it| self.code.functions[**it].node == node);
                if let (Some(function), Some(value)) = (function, arrow.get_expression()) {
                    self.returned(*function, value);
                }
            }
            _ => {}
        }
    }

    /// The variables of which something is set.
    fn targets(&self, node: NodeId, target: &AssignmentTarget<'a>) -> Vec<SymbolId> {
        match target {
            AssignmentTarget::StaticMemberExpression(it) => self.held(&it.object),
            AssignmentTarget::ComputedMemberExpression(it) => self.held(&it.object),
            _ => self.all_in(node, target.span()),
        }
    }

    fn returned(&mut self, function: FunctionId, value: &Expression<'a>) {
        let named = self.code.named.iter().find(|(_, it)| **it == function).map(|(symbol, _)| *symbol);
        if let Some(symbol) = named {
            self.join([symbol].into_iter().chain(self.held(value)));
        }
    }

    fn call(&mut self, call: &CallExpression<'a>) {
        let code = self.code;
        if let Some(function) = code.callee(call) {
            let parameters = parameters(code, function);
            for (index, argument) in call.arguments.iter().enumerate() {
                // Those behind a spread are anywhere.
                let is_sure = !call.arguments[..=index].iter().any(Argument::is_spread);
                let symbols = match parameters.get(index).filter(|_| is_sure) {
                    Some(symbols) => symbols.clone(),
                    None => parameters.concat(),
                };
                self.passed.push((function, symbols, self.argument(argument)));
            }
            return;
        }
        let arguments: Vec<SymbolId> =
            call.arguments.iter().flat_map(|argument| self.argument(argument)).collect();
        let Some((object, method)) = member(&call.callee) else {
            if !self.is_pure(call) {
                self.join(arguments);
            }
            return;
        };
        let is_quiet = reads::is_known(method) && !CHANGING.contains(&method);
        if self.is_resource(object) || self.is_pure(call) || is_quiet {
            return;
        }
        self.join(self.held(object).into_iter().chain(arguments));
    }

    /// What parameters hold is shared with what is handed over where the function lets it out, or puts it into another
    /// parameter: else it only uses it.
    fn pass(&mut self) {
        let passed = std::mem::take(&mut self.passed);
        loop {
            let mut grows = false;
            for (function, parameter, given) in &passed {
                let escaping = parameter.iter().filter(|symbol| self.escapes(*function, parameter, **symbol));
                for symbol in escaping.copied().collect::<Vec<_>>() {
                    for other in given {
                        grows |= self.sharing.join(symbol, *other);
                    }
                }
            }
            if !grows {
                return;
            }
        }
    }

    fn escapes(&self, function: FunctionId, parameter: &[SymbolId], symbol: SymbolId) -> bool {
        let node = self.code.functions[function].node;
        let others = parameters(self.code, function).concat();
        self.sharing.class(symbol).into_iter().any(|other| {
            let is_inside = self.code.is_inside(self.code.declaration(other), node);
            !is_inside
                || self.code.named.get(&other) == Some(&function)
                || (others.contains(&other) && !parameter.contains(&other))
        })
    }

    /// The variables of which a value may hold something.
    fn held(&self, value: &Expression<'a>) -> Vec<SymbolId> {
        let code = self.code;
        match value.get_inner_expression() {
            Expression::Identifier(_) => identifier(code, value).into_iter().collect(),
            Expression::StringLiteral(_)
            | Expression::NumericLiteral(_)
            | Expression::BooleanLiteral(_)
            | Expression::NullLiteral(_)
            | Expression::BigIntLiteral(_)
            | Expression::RegExpLiteral(_)
            | Expression::TemplateLiteral(_)
            | Expression::BinaryExpression(_)
            | Expression::UnaryExpression(_)
            | Expression::UpdateExpression(_) => Vec::new(),
            Expression::StaticMemberExpression(it) if it.property.name == "length" => Vec::new(),
            Expression::StaticMemberExpression(it) => self.held(&it.object),
            Expression::ComputedMemberExpression(it) => self.held(&it.object),
            Expression::ChainExpression(it) => match &it.expression {
                oxc_ast::ast::ChainElement::CallExpression(call) => self.result(call),
                other => other.as_member_expression().map(|it| self.held(it.object())).unwrap_or_default(),
            },
            Expression::CallExpression(call) => self.result(call),
            Expression::LogicalExpression(it) => [self.held(&it.left), self.held(&it.right)].concat(),
            Expression::ConditionalExpression(it) => {
                [self.held(&it.consequent), self.held(&it.alternate)].concat()
            }
            Expression::AssignmentExpression(it) => {
                [self.targets(NodeId::ROOT, &it.left), self.held(&it.right)].concat()
            }
            Expression::SequenceExpression(it) => {
                it.expressions.last().map(|it| self.held(it)).unwrap_or_default()
            }
            Expression::AwaitExpression(it) => self.held(&it.argument),
            Expression::NewExpression(it) => it.arguments.iter().flat_map(|it| self.argument(it)).collect(),
            Expression::ArrayExpression(it) => it.elements.iter().flat_map(|it| self.element(it)).collect(),
            Expression::ObjectExpression(it) => it
                .properties
                .iter()
                .flat_map(|it| match it {
                    ObjectPropertyKind::ObjectProperty(it) => self.held(&it.value),
                    ObjectPropertyKind::SpreadProperty(it) => self.held(&it.argument),
                })
                .collect(),
            other => self.all_in(NodeId::ROOT, other.span()),
        }
    }

    fn element(&self, element: &ArrayExpressionElement<'a>) -> Vec<SymbolId> {
        match element {
            ArrayExpressionElement::SpreadElement(it) => self.held(&it.argument),
            ArrayExpressionElement::Elision(_) => Vec::new(),
            other => other.as_expression().map(|it| self.held(it)).unwrap_or_default(),
        }
    }

    fn argument(&self, argument: &Argument<'a>) -> Vec<SymbolId> {
        match argument {
            Argument::SpreadElement(it) => self.held(&it.argument),
            other => plain(other).map(|it| self.held(it)).unwrap_or_default(),
        }
    }

    /// What the result of a call may hold.
    fn result(&self, call: &CallExpression<'a>) -> Vec<SymbolId> {
        if self.code.callee(call).is_some() {
            return identifier(self.code, &call.callee).into_iter().collect();
        }
        if self.is_pure(call) {
            return Vec::new();
        }
        let arguments = || call.arguments.iter().flat_map(|it| self.argument(it)).collect::<Vec<_>>();
        match member(&call.callee) {
            Some((object, _)) if self.is_resource(object) => Vec::new(),
            Some((_, method)) if TAKING.contains(&method) || reads::is_answering(method) => Vec::new(),
            Some((object, _)) => [self.held(object), arguments()].concat(),
            None if call.callee.get_inner_expression().is_function() => self.all_in(NodeId::ROOT, call.span),
            None => arguments(),
        }
    }

    fn is_resource(&self, object: &Expression<'a>) -> bool {
        let symbol = identifier(self.code, object);
        symbol.is_some_and(|symbol| matches!(self.names.thing(symbol), Some(Thing::External(_))))
    }

    fn is_pure(&self, call: &CallExpression<'a>) -> bool {
        let callee = self.code.text(self.code.source(call.callee.span()));
        reads::PURE.contains(&callee) || callee.starts_with("Math.")
    }

    /// All variables that are named there.
    fn all_in(&self, outer: NodeId, span: Span) -> Vec<SymbolId> {
        let node = node_of(self.code, outer, span);
        let inside = node.into_iter().flat_map(|node| self.code.inside(node));
        inside.filter_map(|node| self.code.symbol(node)).collect()
    }
}
