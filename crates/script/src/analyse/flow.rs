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

use super::code::{CodeText, FunctionId, argument_expression, find_node_by_span};
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
    pub(crate) is_certain: bool,
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
    uncertain_variables: HashSet<SymbolId>,
    /// The arguments of functions: the function, the parameter's index, the argument and the call.
    passed_arguments: Vec<(FunctionId, usize, RootVariable, NodeId)>,
}

/// Methods that change their receiver.
pub(crate) const MUTATING_METHODS: &[&str] = &[
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
const ELEMENT_METHODS: &[&str] = &["at", "find", "findLast", "get"];

/// Methods that pass parts of their receiver to a callback.
pub(crate) const CALLBACK_METHODS: &[&str] = &[
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
pub(crate) const FIRST_ARGUMENT_MUTATORS: &[&str] = &[
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
    pub(crate) fn from_code(code: &CodeText<'_, '_>, names: &ScriptSymbols) -> Self {
        let mut flow = Self::default();
        for node in code.semantic.nodes().iter() {
            flow.visit_node(code, names, node.id());
        }
        flow.propagate_changes(code);
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
    pub(crate) fn alias_pairs(&self) -> impl Iterator<Item = (SymbolId, SymbolId)> + '_ {
        self.aliases.iter().flat_map(|(symbol, roots)| roots.iter().map(|root| (*symbol, root.symbol)))
    }

    fn visit_node(&mut self, code: &CodeText<'_, '_>, names: &ScriptSymbols, node: NodeId) {
        match code.kind(node) {
            AstKind::IdentifierReference(_) => self.record_assignment(code, node),
            AstKind::StaticMemberExpression(_) | AstKind::ComputedMemberExpression(_)
                if is_assignment_target(code, node) =>
            {
                self.record_change(root_of_member(code, node), node);
            }
            AstKind::VariableDeclarator(declarator) => {
                if let Some(init) = &declarator.init {
                    self.bind_pattern(code, &declarator.id, init);
                }
            }
            AstKind::AssignmentExpression(assignment) => {
                let name = assignment.left.get_identifier_name();
                let target = find_node_by_span(code, node, assignment.left.span()).filter(|_| name.is_some());
                if let Some(symbol) = target.and_then(|target| code.symbol(target)) {
                    self.record_alias(code, symbol, &assignment.right);
                }
            }
            AstKind::ForOfStatement(of) => {
                if let ForStatementLeft::VariableDeclaration(declaration) = &of.left {
                    declaration.declarations.iter().for_each(|it| self.bind_pattern(code, &it.id, &of.right));
                }
            }
            AstKind::CallExpression(call) => self.visit_call(code, names, node, call),
            _ => {}
        }
    }

    fn record_assignment(&mut self, code: &CodeText<'_, '_>, node: NodeId) {
        let is_write = code.reference(node).is_some_and(|reference| reference.is_write());
        if let Some(symbol) = code.symbol(node).filter(|_| is_write) {
            self.changes.push(VariableChange {
                node,
                symbol,
                is_assignment: true,
                index: None,
                is_certain: true,
            });
        }
    }

    fn record_change(&mut self, root: Option<RootVariable>, node: NodeId) {
        if let Some(RootVariable { symbol, index }) = root {
            self.changes.push(VariableChange { node, symbol, is_assignment: false, index, is_certain: true });
        }
    }

    fn bind_pattern(
        &mut self,
        code: &CodeText<'_, '_>,
        pattern: &BindingPattern<'_>,
        value: &Expression<'_>,
    ) {
        for symbol in bound_symbols(pattern) {
            self.record_alias(code, symbol, value);
        }
    }

    fn record_alias(&mut self, code: &CodeText<'_, '_>, symbol: SymbolId, value: &Expression<'_>) {
        let roots = root_variables(code, value);
        if roots.is_empty() {
            self.uncertain_variables.insert(symbol);
        }
        self.aliases.entry(symbol).or_default().extend(roots);
    }

    fn visit_call(
        &mut self,
        code: &CodeText<'_, '_>,
        names: &ScriptSymbols,
        node: NodeId,
        call: &CallExpression<'_>,
    ) {
        let callee = call.callee.get_inner_expression();
        if let Some((object, method)) = member_access(callee) {
            let root = root_variables(code, object).first().copied();
            let is_resource = root.is_some_and(|root| {
                matches!(names.symbol_meaning(root.symbol), Some(SymbolMeaning::External(_)))
            });
            if is_resource {
                return;
            }
            if MUTATING_METHODS.contains(&method) || method.starts_with("set") && method.len() > 3 {
                self.record_change(root, node);
            }
            if CALLBACK_METHODS.contains(&method) {
                self.bind_callback_parameter(
                    code,
                    call,
                    object,
                    if method.starts_with("reduce") { 1 } else { 0 },
                );
            }
        }
        if FIRST_ARGUMENT_MUTATORS.contains(&code.source_text(code.source_range(callee.span())))
            && let Some(first) = call.arguments.first().and_then(argument_expression)
        {
            self.record_change(root_variables(code, first).first().copied(), node);
        }
        let Some(function) = identifier_function(code, callee) else { return };
        for (index, argument) in call.arguments.iter().enumerate() {
            let variables = argument_expression(argument)
                .map(|argument| root_variables(code, argument))
                .unwrap_or_default();
            self.passed_arguments.extend(variables.into_iter().map(|root| (function, index, root, node)));
        }
    }

    /// Binds the parameter of a callback to parts of the receiver: `list.forEach(..)`.
    fn bind_callback_parameter(
        &mut self,
        code: &CodeText<'_, '_>,
        call: &CallExpression<'_>,
        object: &Expression<'_>,
        parameter: usize,
    ) {
        let Some(callback) = call.arguments.first().and_then(argument_expression) else { return };
        let parameters = match callback.get_inner_expression() {
            Expression::ArrowFunctionExpression(arrow) => &arrow.params,
            Expression::FunctionExpression(function) => &function.params,
            _ => return,
        };
        if let Some(parameter) = parameters.items.get(parameter) {
            self.bind_pattern(code, &parameter.pattern, object);
        }
    }

    /// Propagates changes to aliases, and from parameters to arguments.
    fn propagate_changes(&mut self, code: &CodeText<'_, '_>) {
        let mut takers: HashMap<SymbolId, Vec<(RootVariable, NodeId)>> = HashMap::new();
        for (function, index, root, node) in &self.passed_arguments {
            let parameters = parameter_symbols(code, *function);
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
            let is_sure = change.is_certain && !self.uncertain_variables.contains(&change.symbol);
            let held = self.aliases.get(&change.symbol).into_iter().flatten();
            let held = held.map(|root| VariableChange {
                symbol: root.symbol,
                index: root.index,
                is_certain: is_sure,
                ..change
            });
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
    code.functions_by_symbol.get(&super::code::identifier_symbol(code, callee)?).copied()
}

/// Returns the symbols that each parameter of a function binds, without `...rest`.
pub(crate) fn parameter_symbols(code: &CodeText<'_, '_>, function: FunctionId) -> Vec<Vec<SymbolId>> {
    let Some(parameters) = formal_parameters(code, function) else { return Vec::new() };
    parameters.items.iter().map(|parameter| bound_symbols(&parameter.pattern)).collect()
}

/// Returns the symbols that may hold an argument of a call, by its index.
pub(crate) fn argument_receivers(
    code: &CodeText<'_, '_>,
    function: FunctionId,
    arguments: &[Argument<'_>],
    index: usize,
) -> Vec<SymbolId> {
    let mut parameters = parameter_symbols(code, function);
    let rest = formal_parameters(code, function).and_then(|it| it.rest.as_ref());
    let rest = rest.map(|it| bound_symbols(&it.rest.argument)).unwrap_or_default();
    // Arguments after a spread can be at any index.
    if arguments.iter().take(index + 1).any(Argument::is_spread) {
        parameters.push(rest);
        return parameters.concat();
    }
    if index < parameters.len() { parameters.swap_remove(index) } else { rest }
}

fn formal_parameters<'a>(code: &CodeText<'_, 'a>, function: FunctionId) -> Option<&'a FormalParameters<'a>> {
    let parameters = match code.kind(code.functions[function].node) {
        AstKind::Function(function) => &function.params,
        AstKind::ArrowFunctionExpression(arrow) => &arrow.params,
        _ => return None,
    };
    Some(&**parameters)
}

/// Returns the symbols that a pattern binds.
pub(crate) fn bound_symbols(pattern: &BindingPattern<'_>) -> Vec<SymbolId> {
    pattern.get_binding_identifiers().iter().filter_map(|id| id.symbol_id.get()).collect()
}

/// Returns the object and the name of `object.name`.
pub(crate) fn member_access<'b, 'a>(expression: &'b Expression<'a>) -> Option<(&'b Expression<'a>, &'b str)> {
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
pub(crate) fn root_variables(code: &CodeText<'_, '_>, expression: &Expression<'_>) -> Vec<RootVariable> {
    match expression.get_inner_expression() {
        Expression::Identifier(_) => {
            let symbol = super::code::identifier_symbol(code, expression);
            symbol.map(|symbol| RootVariable { symbol, index: None }).into_iter().collect()
        }
        Expression::StaticMemberExpression(member) => root_variables(code, &member.object),
        Expression::ComputedMemberExpression(member) => {
            let index = super::code::identifier_symbol(code, &member.expression);
            let is_first = matches!(member.object.get_inner_expression(), Expression::Identifier(_));
            let mut roots = root_variables(code, &member.object);
            if is_first {
                roots.iter_mut().for_each(|root| root.index = index);
            }
            roots
        }
        Expression::ChainExpression(chain) => match &chain.expression {
            oxc_ast::ast::ChainElement::CallExpression(call) => call_result_roots(code, call),
            other => {
                other.as_member_expression().map(|it| root_variables(code, it.object())).unwrap_or_default()
            }
        },
        Expression::CallExpression(call) => call_result_roots(code, call),
        Expression::LogicalExpression(either) => {
            [root_variables(code, &either.left), root_variables(code, &either.right)].concat()
        }
        Expression::ConditionalExpression(either) => {
            [root_variables(code, &either.consequent), root_variables(code, &either.alternate)].concat()
        }
        Expression::AssignmentExpression(assignment) => root_variables(code, &assignment.right),
        Expression::AwaitExpression(awaited) => root_variables(code, &awaited.argument),
        _ => Vec::new(),
    }
}

/// Returns the variables that the result of a call may be a part of: `list.find(..)`.
fn call_result_roots(code: &CodeText<'_, '_>, call: &CallExpression<'_>) -> Vec<RootVariable> {
    match member_access(&call.callee) {
        Some((object, method)) if ELEMENT_METHODS.contains(&method) => root_variables(code, object),
        _ => Vec::new(),
    }
}

fn root_of_member(code: &CodeText<'_, '_>, node: NodeId) -> Option<RootVariable> {
    let (object, index) = match code.kind(node) {
        AstKind::StaticMemberExpression(member) => (&member.object, None),
        AstKind::ComputedMemberExpression(member) => {
            (&member.object, super::code::identifier_symbol(code, &member.expression))
        }
        _ => return None,
    };
    let mut root = root_variables(code, object).first().copied()?;
    if matches!(object.get_inner_expression(), Expression::Identifier(_)) {
        root.index = index;
    }
    Some(root)
}

/// Whether an expression is assigned, updated or deleted.
pub(crate) fn is_assignment_target(code: &CodeText<'_, '_>, node: NodeId) -> bool {
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
            is_assignment_target(code, code.parent(node))
        }
        _ => false,
    }
}
