//! Changes to variables and their contents: assignments, assignments to members, mutating methods, simple
//! aliases, and functions that change their arguments.

use std::collections::{HashMap, HashSet};

use oxc_ast::AstKind;
use oxc_ast::ast::{
    Argument, BindingPattern, CallExpression, Expression, ForStatementLeft, FormalParameters,
};
use oxc_semantic::NodeId;
use oxc_span::{GetSpan, Span};
use oxc_syntax::operator::UnaryOperator;
use oxc_syntax::symbol::SymbolId;

use super::code::{CodeText, FunctionId, node_of, plain};
use super::names::{ScriptSymbols, SymbolMeaning};

/// A change to a variable or to its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VariableChange {
    /// The changing node.
    pub(crate) node: NodeId,
    pub(crate) symbol: SymbolId,
    /// Whether the variable itself is assigned.
    pub(crate) is_assignment: bool,
    /// The variable that is the first index: in `x[i].a = 1`, for `x`, it is `i`.
    pub(crate) index: Option<SymbolId>,
    /// Whether the changed object is certainly part of this variable's contents.
    pub(crate) is_sure: bool,
}

/// A variable that an expression is derived from, with its first index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootVariable {
    pub(crate) symbol: SymbolId,
    pub(crate) index: Option<SymbolId>,
}

/// The data flow of a text.
#[derive(Debug, Default)]
pub(crate) struct DataFlow {
    pub(crate) changes: Vec<VariableChange>,
    /// The variables whose contents, or a part of them, a variable may hold.
    aliases: HashMap<SymbolId, Vec<RootVariable>>,
    /// The variables that may also hold other values.
    unsure: HashSet<SymbolId>,
    /// The arguments of functions: the function, the parameter's index, the argument and the call.
    passed: Vec<(FunctionId, usize, RootVariable, NodeId)>,
}

/// Methods that change their receiver.
pub(crate) const CHANGING: &[&str] = &[
    "push",
    "pop",
    "shift",
    "unshift",
    "splice",
    "sort",
    "reverse",
    "fill",
    "copyWithin",
    "set",
    "add",
    "delete",
    "clear",
    "append",
];

/// Methods that return a part of their receiver.
const GIVING: &[&str] = &["at", "find", "findLast", "get"];

/// Methods that pass parts of their receiver to a callback.
pub(crate) const VISITING: &[&str] = &[
    "forEach",
    "map",
    "filter",
    "find",
    "findLast",
    "findIndex",
    "findLastIndex",
    "some",
    "every",
    "flatMap",
    "reduce",
    "reduceRight",
    "sort",
    "toSorted",
];

/// Built-in functions that change their first argument.
pub(crate) const CHANGING_FIRST: &[&str] = &[
    "Object.assign",
    "Object.defineProperty",
    "Object.defineProperties",
    "Object.setPrototypeOf",
    "Object.freeze",
    "Reflect.set",
    "Reflect.deleteProperty",
    "Reflect.defineProperty",
];

impl DataFlow {
    pub(crate) fn of(code: &CodeText<'_, '_>, names: &ScriptSymbols) -> Self {
        let mut flow = Self::default();
        for node in code.semantic.nodes().iter() {
            flow.visit(code, names, node.id());
        }
        flow.close(code);
        flow.changes.sort_by_key(|change| change.node);
        flow
    }

    /// Returns the changes within a node.
    pub(crate) fn changes_in(
        &self,
        code: &CodeText<'_, '_>,
        node: NodeId,
    ) -> impl Iterator<Item = &VariableChange> {
        let first = self.changes.partition_point(|change| change.node < node);
        self.changes[first..].iter().take_while(move |change| code.is_inside(change.node, node))
    }

    /// Returns pairs of variables that may share their contents.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (SymbolId, SymbolId)> + '_ {
        self.aliases.iter().flat_map(|(symbol, roots)| roots.iter().map(|root| (*symbol, root.symbol)))
    }

    fn visit(&mut self, code: &CodeText<'_, '_>, names: &ScriptSymbols, node: NodeId) {
        match code.kind(node) {
            AstKind::IdentifierReference(_) => self.assignment(code, node),
            AstKind::StaticMemberExpression(_) | AstKind::ComputedMemberExpression(_)
                if is_target(code, node) =>
            {
                self.change(root_of_member(code, node), node);
            }
            AstKind::VariableDeclarator(declarator) => {
                if let Some(init) = &declarator.init {
                    self.bind(code, &declarator.id, init);
                }
            }
            AstKind::AssignmentExpression(assignment) => {
                let name = assignment.left.get_identifier_name();
                let target = node_of(code, node, assignment.left.span()).filter(|_| name.is_some());
                if let Some(symbol) = target.and_then(|target| code.symbol(target)) {
                    self.alias(code, symbol, &assignment.right);
                }
            }
            AstKind::ForOfStatement(of) => {
                if let ForStatementLeft::VariableDeclaration(declaration) = &of.left {
                    declaration.declarations.iter().for_each(|it| self.bind(code, &it.id, &of.right));
                }
            }
            AstKind::CallExpression(call) => self.call(code, names, node, call),
            _ => {}
        }
    }

    fn assignment(&mut self, code: &CodeText<'_, '_>, node: NodeId) {
        let is_write = code.reference(node).is_some_and(|reference| reference.is_write());
        if let Some(symbol) = code.symbol(node).filter(|_| is_write) {
            self.changes.push(VariableChange {
                node,
                symbol,
                is_assignment: true,
                index: None,
                is_sure: true,
            });
        }
    }

    fn change(&mut self, root: Option<RootVariable>, node: NodeId) {
        if let Some(RootVariable { symbol, index }) = root {
            self.changes.push(VariableChange { node, symbol, is_assignment: false, index, is_sure: true });
        }
    }

    fn bind(&mut self, code: &CodeText<'_, '_>, pattern: &BindingPattern<'_>, value: &Expression<'_>) {
        for symbol in bound(pattern) {
            self.alias(code, symbol, value);
        }
    }

    fn alias(&mut self, code: &CodeText<'_, '_>, symbol: SymbolId, value: &Expression<'_>) {
        let roots = roots(code, value);
        if roots.is_empty() {
            self.unsure.insert(symbol);
        }
        self.aliases.entry(symbol).or_default().extend(roots);
    }

    fn call(
        &mut self,
        code: &CodeText<'_, '_>,
        names: &ScriptSymbols,
        node: NodeId,
        call: &CallExpression<'_>,
    ) {
        let callee = call.callee.get_inner_expression();
        if let Some((object, method)) = member(callee) {
            let root = roots(code, object).first().copied();
            let is_resource =
                root.is_some_and(|root| matches!(names.thing(root.symbol), Some(SymbolMeaning::External(_))));
            if is_resource {
                return;
            }
            if CHANGING.contains(&method) || method.starts_with("set") && method.len() > 3 {
                self.change(root, node);
            }
            if VISITING.contains(&method) {
                self.visited(code, call, object, if method.starts_with("reduce") { 1 } else { 0 });
            }
        }
        if CHANGING_FIRST.contains(&code.text(code.source(callee.span())))
            && let Some(first) = call.arguments.first().and_then(plain)
        {
            self.change(roots(code, first).first().copied(), node);
        }
        let Some(function) = identifier_function(code, callee) else { return };
        for (index, argument) in call.arguments.iter().enumerate() {
            let given = plain(argument).map(|argument| roots(code, argument)).unwrap_or_default();
            self.passed.extend(given.into_iter().map(|root| (function, index, root, node)));
        }
    }

    /// Binds the parameter of a callback to parts of the receiver: `list.forEach(..)`.
    fn visited(
        &mut self,
        code: &CodeText<'_, '_>,
        call: &CallExpression<'_>,
        object: &Expression<'_>,
        parameter: usize,
    ) {
        let Some(callback) = call.arguments.first().and_then(plain) else { return };
        let parameters = match callback.get_inner_expression() {
            Expression::ArrowFunctionExpression(arrow) => &arrow.params,
            Expression::FunctionExpression(function) => &function.params,
            _ => return,
        };
        if let Some(parameter) = parameters.items.get(parameter) {
            self.bind(code, &parameter.pattern, object);
        }
    }

    /// Propagates changes to aliases, and from parameters to arguments.
    fn close(&mut self, code: &CodeText<'_, '_>) {
        let mut takers: HashMap<SymbolId, Vec<(RootVariable, NodeId)>> = HashMap::new();
        for (function, index, root, node) in &self.passed {
            let parameters = parameters(code, *function);
            for symbol in parameters.get(*index).into_iter().flatten() {
                takers.entry(*symbol).or_default().push((*root, *node));
            }
        }
        let mut known: HashSet<(NodeId, SymbolId)> =
            self.changes.iter().map(|it| (it.node, it.symbol)).collect();
        let mut next = 0;
        while let Some(change) = self.changes.get(next).copied() {
            next += 1;
            if change.is_assignment {
                continue;
            }
            let is_sure = change.is_sure && !self.unsure.contains(&change.symbol);
            let held = self.aliases.get(&change.symbol).into_iter().flatten();
            let held =
                held.map(|root| VariableChange { symbol: root.symbol, index: root.index, is_sure, ..change });
            let given = takers.get(&change.symbol).into_iter().flatten();
            let given = given.map(|(root, node)| VariableChange {
                node: *node,
                symbol: root.symbol,
                index: root.index,
                ..change
            });
            let further: Vec<VariableChange> =
                held.chain(given).filter(|it| known.insert((it.node, it.symbol))).collect();
            self.changes.extend(further);
        }
    }
}

fn identifier_function(code: &CodeText<'_, '_>, callee: &Expression<'_>) -> Option<FunctionId> {
    code.named.get(&super::code::identifier(code, callee)?).copied()
}

/// Returns the symbols that each parameter of a function binds, without `...rest`.
pub(crate) fn parameters(code: &CodeText<'_, '_>, function: FunctionId) -> Vec<Vec<SymbolId>> {
    let Some(parameters) = formal(code, function) else { return Vec::new() };
    parameters.items.iter().map(|parameter| bound(&parameter.pattern)).collect()
}

/// Returns the symbols that may hold an argument of a call, by its index.
pub(crate) fn receivers(
    code: &CodeText<'_, '_>,
    function: FunctionId,
    arguments: &[Argument<'_>],
    index: usize,
) -> Vec<SymbolId> {
    let mut parameters = parameters(code, function);
    let rest = formal(code, function).and_then(|it| it.rest.as_ref());
    let rest = rest.map(|it| bound(&it.rest.argument)).unwrap_or_default();
    // Arguments after a spread can be at any index.
    if arguments.iter().take(index + 1).any(Argument::is_spread) {
        parameters.push(rest);
        return parameters.concat();
    }
    if index < parameters.len() { parameters.swap_remove(index) } else { rest }
}

fn formal<'a>(code: &CodeText<'_, 'a>, function: FunctionId) -> Option<&'a FormalParameters<'a>> {
    let parameters = match code.kind(code.functions[function].node) {
        AstKind::Function(function) => &function.params,
        AstKind::ArrowFunctionExpression(arrow) => &arrow.params,
        _ => return None,
    };
    Some(&**parameters)
}

/// Returns the symbols that a pattern binds.
pub(crate) fn bound(pattern: &BindingPattern<'_>) -> Vec<SymbolId> {
    pattern.get_binding_identifiers().iter().filter_map(|id| id.symbol_id.get()).collect()
}

/// Returns the object and the name of `object.name`.
pub(crate) fn member<'b, 'a>(expression: &'b Expression<'a>) -> Option<(&'b Expression<'a>, &'b str)> {
    match expression.get_inner_expression() {
        Expression::StaticMemberExpression(member) => Some((&member.object, member.property.name.as_str())),
        Expression::ComputedMemberExpression(member) => match &member.expression {
            Expression::StringLiteral(name) => Some((&member.object, name.value.as_str())),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the variables that an expression may be equal to, or a part of.
pub(crate) fn roots(code: &CodeText<'_, '_>, expression: &Expression<'_>) -> Vec<RootVariable> {
    match expression.get_inner_expression() {
        Expression::Identifier(_) => {
            let symbol = super::code::identifier(code, expression);
            symbol.map(|symbol| RootVariable { symbol, index: None }).into_iter().collect()
        }
        Expression::StaticMemberExpression(member) => roots(code, &member.object),
        Expression::ComputedMemberExpression(member) => {
            let index = super::code::identifier(code, &member.expression);
            let is_first = matches!(member.object.get_inner_expression(), Expression::Identifier(_));
            let mut roots = roots(code, &member.object);
            if is_first {
                roots.iter_mut().for_each(|root| root.index = index);
            }
            roots
        }
        Expression::ChainExpression(chain) => match &chain.expression {
            oxc_ast::ast::ChainElement::CallExpression(call) => given(code, call),
            other => other.as_member_expression().map(|it| roots(code, it.object())).unwrap_or_default(),
        },
        Expression::CallExpression(call) => given(code, call),
        Expression::LogicalExpression(either) => {
            [roots(code, &either.left), roots(code, &either.right)].concat()
        }
        Expression::ConditionalExpression(either) => {
            [roots(code, &either.consequent), roots(code, &either.alternate)].concat()
        }
        Expression::AssignmentExpression(assignment) => roots(code, &assignment.right),
        Expression::AwaitExpression(awaited) => roots(code, &awaited.argument),
        _ => Vec::new(),
    }
}

/// Returns the variables that the result of a call may be a part of: `list.find(..)`.
fn given(code: &CodeText<'_, '_>, call: &CallExpression<'_>) -> Vec<RootVariable> {
    match member(&call.callee) {
        Some((object, method)) if GIVING.contains(&method) => roots(code, object),
        _ => Vec::new(),
    }
}

fn root_of_member(code: &CodeText<'_, '_>, node: NodeId) -> Option<RootVariable> {
    let (object, index) = match code.kind(node) {
        AstKind::StaticMemberExpression(member) => (&member.object, None),
        AstKind::ComputedMemberExpression(member) => {
            (&member.object, super::code::identifier(code, &member.expression))
        }
        _ => return None,
    };
    let mut root = roots(code, object).first().copied()?;
    if matches!(object.get_inner_expression(), Expression::Identifier(_)) {
        root.index = index;
    }
    Some(root)
}

/// Whether an expression is assigned, updated or deleted.
pub(crate) fn is_target(code: &CodeText<'_, '_>, node: NodeId) -> bool {
    let span = code.span(node);
    let is = |other: Span| other == span;
    match code.kind(code.parent(node)) {
        AstKind::AssignmentExpression(assignment) => is(assignment.left.span()),
        AstKind::UpdateExpression(_)
        | AstKind::ArrayAssignmentTarget(_)
        | AstKind::AssignmentTargetRest(_) => true,
        AstKind::AssignmentTargetWithDefault(target) => is(target.binding.span()),
        AstKind::AssignmentTargetPropertyProperty(target) => is(target.binding.span()),
        AstKind::ForInStatement(each) => is(each.left.span()),
        AstKind::ForOfStatement(each) => is(each.left.span()),
        AstKind::UnaryExpression(unary) => unary.operator == UnaryOperator::Delete,
        AstKind::ParenthesizedExpression(_) | AstKind::ChainExpression(_) => {
            is_target(code, code.parent(node))
        }
        _ => false,
    }
}
