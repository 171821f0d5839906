//! Alias analysis: classes of variables that may hold the same objects, or parts of them, through
//! assignments, arguments and results.
//!
//! Until the handler ends, state holds an assigned object itself and not a copy. So changing the contents of
//! a local variable may change state. In doubt, variables are joined. Every form that `reads` follows from
//! one variable to another must be joined here. Where `reads` loses track of a value, it reports an escape.

use std::collections::{BTreeSet, HashMap};

use oxc_ast::AstKind;
use oxc_ast::ast::{
    Argument, ArrayExpressionElement, AssignmentTarget, BindingIdentifier, CallExpression, Expression,
    ForStatementLeft, FormalParameter, ObjectPropertyKind,
};
use oxc_semantic::{AstNode, NodeId};
use oxc_span::{GetSpan, Span};
use oxc_syntax::symbol::SymbolId;

use super::builtins::{
    NON_ALIASING_METHODS, REMOVAL_METHODS, callback_argument, is_known_method, is_pure_call,
};
use super::code::{CodeText, FunctionId, argument_expression, find_node_by_span, identifier_symbol};
use super::flow::{
    DataFlow, MUTATING_METHODS, argument_receivers, bound_symbols, member_access, parameter_symbols,
};
use super::names::{ScriptSymbols, SymbolMeaning};

/// The classes of variables.
#[derive(Debug, Default)]
pub(crate) struct VariableSharing {
    /// The representative of each variable that is not its own.
    representatives: HashMap<SymbolId, SymbolId>,
    /// The members of each class with several variables, by their representative.
    members: HashMap<SymbolId, Vec<SymbolId>>,
}

struct SharingLinks<'l, 'p, 'a> {
    code: &'l CodeText<'p, 'a>,
    names: &'l ScriptSymbols,
    sharing: VariableSharing,
    /// The arguments of functions: the variables of the parameter, and those that the argument may hold.
    passed_arguments: Vec<(FunctionId, Vec<SymbolId>, Vec<SymbolId>)>,
    /// The variables that thrown values may hold, and the variables of `catch`.
    thrown_variables: Vec<SymbolId>,
    catch_variables: Vec<SymbolId>,
    /// Functions that receive values other than through their parameters, or return values other than through
    /// `return`.
    open_functions: BTreeSet<FunctionId>,
}

impl VariableSharing {
    pub(crate) fn from_code(code: &CodeText<'_, '_>, names: &ScriptSymbols, flow: &DataFlow) -> Self {
        let mut links = SharingLinks {
            code,
            names,
            sharing: Self::default(),
            passed_arguments: Vec::new(),
            thrown_variables: Vec::new(),
            catch_variables: Vec::new(),
            open_functions: find_open_functions(code),
        };
        for (a, b) in flow.alias_pairs() {
            links.sharing.merge_classes(a, b);
        }
        for (symbol, function) in &code.functions_by_symbol {
            if links.open_functions.contains(function) {
                let inside = links.variables_inside(code.functions[*function].node);
                links.join_symbols([*symbol].into_iter().chain(inside));
            }
        }
        for node in code.semantic.nodes().iter() {
            links.visit_node(node.id());
        }
        links.join_caught_values();
        links.join_passed_arguments();
        links.sharing
    }

    /// Returns the representative of all variables that may share the contents of a variable.
    pub(crate) fn representative(&self, symbol: SymbolId) -> SymbolId {
        self.representatives.get(&symbol).copied().unwrap_or(symbol)
    }

    /// Returns all variables that may share the contents of a variable, including itself.
    pub(crate) fn alias_class(&self, symbol: SymbolId) -> Vec<SymbolId> {
        self.members.get(&self.representative(symbol)).cloned().unwrap_or_else(|| vec![symbol])
    }

    /// Joins two classes. Returns whether they were separate.
    fn merge_classes(&mut self, a: SymbolId, b: SymbolId) -> bool {
        let (a, b) = (self.representative(a), self.representative(b));
        if a == b {
            return false;
        }
        let (head, other) = (a.min(b), a.max(b));
        let joining = self.members.remove(&other).unwrap_or_else(|| vec![other]);
        self.representatives.extend(joining.iter().map(|symbol| (*symbol, head)));
        self.members.entry(head).or_insert_with(|| vec![head]).extend(joining);
        true
    }
}

impl<'a> SharingLinks<'_, '_, 'a> {
    fn join_symbols(&mut self, symbols: impl IntoIterator<Item = SymbolId>) {
        let mut symbols = symbols.into_iter();
        let Some(first) = symbols.next() else { return };
        for other in symbols {
            self.sharing.merge_classes(first, other);
        }
    }

    fn visit_node(&mut self, node: NodeId) {
        match self.code.kind(node) {
            AstKind::VariableDeclarator(declarator) => {
                if let Some(init) = &declarator.init {
                    self.join_symbols(
                        bound_symbols(&declarator.id).into_iter().chain(self.held_variables(init)),
                    );
                }
            }
            AstKind::AssignmentExpression(assignment) => {
                let targets = self.assignment_targets(node, &assignment.left);
                let held = self.held_variables(&assignment.right);
                self.join_symbols(targets.into_iter().chain(held));
            }
            AstKind::ForOfStatement(of) => {
                let left = match &of.left {
                    ForStatementLeft::VariableDeclaration(it) => {
                        it.declarations.iter().flat_map(|it| bound_symbols(&it.id)).collect()
                    }
                    left => self.variables_in_span(node, left.span()),
                };
                self.join_symbols(left.into_iter().chain(self.held_variables(&of.right)));
            }
            // Default values.
            AstKind::AssignmentPattern(pattern) => {
                self.join_symbols(
                    bound_symbols(&pattern.left).into_iter().chain(self.held_variables(&pattern.right)),
                );
            }
            AstKind::FormalParameter(parameter) => {
                if let Some(value) = &parameter.initializer {
                    self.join_symbols(
                        bound_symbols(&parameter.pattern).into_iter().chain(self.held_variables(value)),
                    );
                }
            }
            AstKind::ThrowStatement(it) if !self.code.is_respond(node) => {
                let held = self.held_variables(&it.argument);
                self.thrown_variables.extend(held);
            }
            AstKind::CatchParameter(it) => self.catch_variables.extend(bound_symbols(&it.pattern)),
            // The result of calling a generator, a replaceable function or a class may contain everything
            // that it uses.
            AstKind::Function(it) if it.is_declaration() => self.join_declared_name(node, it.id.as_ref()),
            AstKind::Class(it) => self.join_declared_name(node, it.id.as_ref()),
            AstKind::CallExpression(call) => self.visit_call(call),
            AstKind::ReturnStatement(it) => {
                if let Some(value) = &it.argument {
                    self.join_returned_value(self.code.enclosing_function(node), value);
                }
            }
            AstKind::ArrowFunctionExpression(arrow) => {
                let function =
                    self.code.functions_by_symbol.values().find(|it| self.code.functions[**it].node == node);
                if let (Some(function), Some(value)) = (function, arrow.get_expression()) {
                    self.join_returned_value(*function, value);
                }
            }
            _ => {}
        }
    }

    fn join_declared_name(&mut self, node: NodeId, name: Option<&BindingIdentifier<'_>>) {
        let symbol = name.and_then(|name| name.symbol_id.get());
        if let Some(symbol) = symbol.filter(|symbol| !self.code.functions_by_symbol.contains_key(symbol)) {
            self.join_symbols([symbol].into_iter().chain(self.variables_inside(node)));
        }
    }

    /// Joins thrown and caught values: a thrown value may be caught anywhere.
    fn join_caught_values(&mut self) {
        let (thrown, caught) =
            (std::mem::take(&mut self.thrown_variables), std::mem::take(&mut self.catch_variables));
        if !thrown.is_empty() && !caught.is_empty() {
            self.join_symbols(thrown.into_iter().chain(caught));
        }
    }

    /// Returns the variables whose contents an assignment changes.
    fn assignment_targets(&self, node: NodeId, target: &AssignmentTarget<'a>) -> Vec<SymbolId> {
        match target {
            AssignmentTarget::StaticMemberExpression(it) => self.held_variables(&it.object),
            AssignmentTarget::ComputedMemberExpression(it) => self.held_variables(&it.object),
            _ => self.variables_in_span(node, target.span()),
        }
    }

    fn join_returned_value(&mut self, function: FunctionId, value: &Expression<'a>) {
        let named =
            self.code.functions_by_symbol.iter().find(|(_, it)| **it == function).map(|(symbol, _)| *symbol);
        if let Some(symbol) = named {
            self.join_symbols([symbol].into_iter().chain(self.held_variables(value)));
        }
    }

    fn visit_call(&mut self, call: &CallExpression<'a>) {
        if let Some(function) = self.code.callee(call) {
            return self.record_arguments(function, call);
        }
        let arguments = self.call_argument_variables(call);
        let Some((object, method)) = member_access(&call.callee) else {
            if !is_pure_call(self.code, call) {
                self.join_symbols(self.held_variables(&call.callee).into_iter().chain(arguments));
            }
            return;
        };
        if self.is_resource(object) || is_pure_call(self.code, call) {
            return;
        }
        let is_known = is_known_method(method) && !self.code.members.defines_method(method);
        let callback = callback_argument(call, method).and_then(argument_expression).filter(|_| is_known);
        if let Some(callback) = callback {
            return self.join_callback_parameters(call, object, callback);
        }
        if !is_known || MUTATING_METHODS.contains(&method) {
            self.join_symbols(self.held_variables(object).into_iter().chain(arguments));
        }
    }

    fn record_arguments(&mut self, function: FunctionId, call: &CallExpression<'a>) {
        for (index, argument) in call.arguments.iter().enumerate() {
            let symbols = argument_receivers(self.code, function, &call.arguments, index);
            let held = self.argument_variables(argument);
            self.passed_arguments.push((function, symbols, held));
        }
        if self.open_functions.contains(&function) {
            self.join_symbols(
                self.held_variables(&call.callee).into_iter().chain(self.call_argument_variables(call)),
            );
        }
    }

    /// Joins a callback's parameters with the receiver of the method and with the other arguments. The first
    /// parameter of a `reduce` callback holds the initial value and the callback's results.
    fn join_callback_parameters(
        &mut self,
        call: &CallExpression<'a>,
        object: &Expression<'a>,
        callback: &Expression<'a>,
    ) {
        let others =
            call.arguments.iter().skip(1).flat_map(|it| self.argument_variables(it)).collect::<Vec<_>>();
        let (node, items) = match callback.get_inner_expression() {
            Expression::ArrowFunctionExpression(it) => (it.node_id.get(), &it.params.items),
            Expression::FunctionExpression(it) => (it.node_id.get(), &it.params.items),
            name => {
                let function = identifier_symbol(self.code, name)
                    .and_then(|it| self.code.functions_by_symbol.get(&it))
                    .copied();
                if let Some(function) = function {
                    let given = [self.held_variables(object), others].concat();
                    self.passed_arguments.push((
                        function,
                        parameter_symbols(self.code, function).concat(),
                        given,
                    ));
                }
                return;
            }
        };
        let is_reduced = member_access(&call.callee).is_some_and(|(_, method)| method.starts_with("reduce"));
        let has_initial = is_reduced && call.arguments.len() > 1;
        let (first, rest) = items.split_at(usize::from(has_initial).min(items.len()));
        let symbols = |items: &[FormalParameter<'a>]| -> Vec<SymbolId> {
            items.iter().flat_map(|it| bound_symbols(&it.pattern)).collect()
        };
        if is_reduced {
            let kept = items.first().map(|it| bound_symbols(&it.pattern)).unwrap_or_default();
            self.join_symbols(kept.into_iter().chain(self.function_results(node)));
        }
        if has_initial {
            self.join_symbols(symbols(first).into_iter().chain(others));
            self.join_symbols(symbols(rest).into_iter().chain(self.held_variables(object)));
        } else {
            self.join_symbols(symbols(rest).into_iter().chain(self.held_variables(object)).chain(others));
        }
    }

    /// Returns the variables that a function's result may hold.
    fn function_results(&self, function: NodeId) -> Vec<SymbolId> {
        if let AstKind::ArrowFunctionExpression(arrow) = self.code.kind(function)
            && let Some(value) = arrow.get_expression()
        {
            return self.held_variables(value);
        }
        let own = self.code.function_at_node(function);
        let inside =
            self.code.subtree_nodes(function).filter(|node| Some(self.code.enclosing_function(*node)) == own);
        let values = inside.filter_map(|node| match self.code.kind(node) {
            AstKind::ReturnStatement(it) => it.argument.as_ref(),
            _ => None,
        });
        values.flat_map(|value| self.held_variables(value)).collect()
    }

    /// Joins parameters with their arguments, if the function lets the parameter escape or stores it in
    /// another parameter. Otherwise the function only uses it.
    fn join_passed_arguments(&mut self) {
        let passed = std::mem::take(&mut self.passed_arguments);
        loop {
            let mut grows = false;
            for (function, parameter, given) in &passed {
                let escaping =
                    parameter.iter().filter(|symbol| self.parameter_escapes(*function, parameter, **symbol));
                for symbol in escaping.copied().collect::<Vec<_>>() {
                    for other in given {
                        grows |= self.sharing.merge_classes(symbol, *other);
                    }
                }
            }
            if !grows {
                return;
            }
        }
    }

    fn parameter_escapes(&self, function: FunctionId, parameter: &[SymbolId], symbol: SymbolId) -> bool {
        let node = self.code.functions[function].node;
        let others = parameter_symbols(self.code, function).concat();
        self.sharing.alias_class(symbol).into_iter().any(|other| {
            let is_inside = self.code.is_inside(self.code.declaration(other), node);
            !is_inside
                || self.code.functions_by_symbol.get(&other) == Some(&function)
                || (others.contains(&other) && !parameter.contains(&other))
        })
    }

    /// Returns the variables whose contents, or parts of them, a value may hold.
    fn held_variables(&self, value: &Expression<'a>) -> Vec<SymbolId> {
        let code = self.code;
        match value.get_inner_expression() {
            Expression::Identifier(_) => identifier_symbol(code, value).into_iter().collect(),
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
            Expression::StaticMemberExpression(it) => self.held_variables(&it.object),
            Expression::ComputedMemberExpression(it) => self.held_variables(&it.object),
            Expression::ChainExpression(it) => match &it.expression {
                oxc_ast::ast::ChainElement::CallExpression(call) => self.call_result_variables(call),
                other => other
                    .as_member_expression()
                    .map(|it| self.held_variables(it.object()))
                    .unwrap_or_default(),
            },
            Expression::CallExpression(call) => self.call_result_variables(call),
            Expression::LogicalExpression(it) => {
                [self.held_variables(&it.left), self.held_variables(&it.right)].concat()
            }
            Expression::ConditionalExpression(it) => {
                [self.held_variables(&it.consequent), self.held_variables(&it.alternate)].concat()
            }
            Expression::AssignmentExpression(it) => {
                [self.assignment_targets(NodeId::ROOT, &it.left), self.held_variables(&it.right)].concat()
            }
            Expression::SequenceExpression(it) => {
                it.expressions.last().map(|it| self.held_variables(it)).unwrap_or_default()
            }
            Expression::AwaitExpression(it) => self.held_variables(&it.argument),
            Expression::NewExpression(it) => {
                let arguments = it.arguments.iter().flat_map(|it| self.argument_variables(it));
                self.held_variables(&it.callee).into_iter().chain(arguments).collect()
            }
            Expression::ArrayExpression(it) => {
                it.elements.iter().flat_map(|it| self.element_variables(it)).collect()
            }
            Expression::ObjectExpression(it) => it
                .properties
                .iter()
                .flat_map(|it| match it {
                    ObjectPropertyKind::ObjectProperty(it) => self.held_variables(&it.value),
                    ObjectPropertyKind::SpreadProperty(it) => self.held_variables(&it.argument),
                })
                .collect(),
            other => self.variables_in_span(NodeId::ROOT, other.span()),
        }
    }

    fn element_variables(&self, element: &ArrayExpressionElement<'a>) -> Vec<SymbolId> {
        match element {
            ArrayExpressionElement::SpreadElement(it) => self.held_variables(&it.argument),
            ArrayExpressionElement::Elision(_) => Vec::new(),
            other => other.as_expression().map(|it| self.held_variables(it)).unwrap_or_default(),
        }
    }

    fn argument_variables(&self, argument: &Argument<'a>) -> Vec<SymbolId> {
        match argument {
            Argument::SpreadElement(it) => self.held_variables(&it.argument),
            other => argument_expression(other).map(|it| self.held_variables(it)).unwrap_or_default(),
        }
    }

    fn call_argument_variables(&self, call: &CallExpression<'a>) -> Vec<SymbolId> {
        call.arguments.iter().flat_map(|it| self.argument_variables(it)).collect()
    }

    /// Returns the variables whose contents the result of a call may hold.
    fn call_result_variables(&self, call: &CallExpression<'a>) -> Vec<SymbolId> {
        if self.code.callee(call).is_some() {
            return identifier_symbol(self.code, &call.callee).into_iter().collect();
        }
        if is_pure_call(self.code, call) {
            return Vec::new();
        }
        match member_access(&call.callee) {
            Some((object, _)) if self.is_resource(object) => Vec::new(),
            Some((_, method))
                if !self.code.members.defines_method(method)
                    && (REMOVAL_METHODS.contains(&method) || NON_ALIASING_METHODS.contains(&method)) =>
            {
                Vec::new()
            }
            Some((object, _)) => [self.held_variables(object), self.call_argument_variables(call)].concat(),
            None if call.callee.get_inner_expression().is_function() => {
                self.variables_in_span(NodeId::ROOT, call.span)
            }
            None => [self.held_variables(&call.callee), self.call_argument_variables(call)].concat(),
        }
    }

    fn is_resource(&self, object: &Expression<'a>) -> bool {
        let symbol = identifier_symbol(self.code, object);
        symbol.is_some_and(|symbol| {
            matches!(self.names.symbol_meaning(symbol), Some(SymbolMeaning::External(_)))
        })
    }

    /// Returns all variables that are used in the node with this span.
    fn variables_in_span(&self, outer: NodeId, span: Span) -> Vec<SymbolId> {
        find_node_by_span(self.code, outer, span).map(|node| self.variables_inside(node)).unwrap_or_default()
    }

    fn variables_inside(&self, node: NodeId) -> Vec<SymbolId> {
        self.code.subtree_nodes(node).filter_map(|node| self.code.symbol(node)).collect()
    }
}

/// Returns the functions that use `arguments`, in nested arrow functions too, and those that are used as
/// constructors.
fn find_open_functions(code: &CodeText<'_, '_>) -> BTreeSet<FunctionId> {
    let is_arrow =
        |id: &FunctionId| matches!(code.kind(code.functions[*id].node), AstKind::ArrowFunctionExpression(_));
    let opened = |node: &AstNode<'_>| match node.kind() {
        AstKind::IdentifierReference(name) if name.name == "arguments" => {
            code.enclosing_functions(code.enclosing_function(node.id())).find(|id| !is_arrow(id))
        }
        AstKind::NewExpression(new) => {
            code.functions_by_symbol.get(&identifier_symbol(code, &new.callee)?).copied()
        }
        _ => None,
    };
    code.semantic.nodes().iter().filter_map(opened).collect()
}
