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

use super::builtins::{ANSWERING, TAKING, callback, is_known, is_pure};
use super::code::{CodeText, FunctionId, identifier, node_of, plain};
use super::flow::{CHANGING, DataFlow, bound, member, parameters, receivers};
use super::names::{ScriptSymbols, SymbolMeaning};

/// The classes of variables.
#[derive(Debug, Default)]
pub(crate) struct VariableSharing {
    /// The representative of each variable that is not its own.
    heads: HashMap<SymbolId, SymbolId>,
    /// The members of each class with several variables, by their representative.
    members: HashMap<SymbolId, Vec<SymbolId>>,
}

struct SharingLinks<'l, 'p, 'a> {
    code: &'l CodeText<'p, 'a>,
    names: &'l ScriptSymbols,
    sharing: VariableSharing,
    /// The arguments of functions: the variables of the parameter, and those that the argument may hold.
    passed: Vec<(FunctionId, Vec<SymbolId>, Vec<SymbolId>)>,
    /// The variables that thrown values may hold, and the variables of `catch`.
    thrown: Vec<SymbolId>,
    caught: Vec<SymbolId>,
    /// Functions that receive values other than through their parameters, or return values other than through
    /// `return`.
    open: BTreeSet<FunctionId>,
}

impl VariableSharing {
    pub(crate) fn of(code: &CodeText<'_, '_>, names: &ScriptSymbols, flow: &DataFlow) -> Self {
        let mut links = SharingLinks {
            code,
            names,
            sharing: Self::default(),
            passed: Vec::new(),
            thrown: Vec::new(),
            caught: Vec::new(),
            open: open(code),
        };
        for (a, b) in flow.shares() {
            links.sharing.join(a, b);
        }
        for (symbol, function) in &code.named {
            if links.open.contains(function) {
                let inside = links.inside(code.functions[*function].node);
                links.join([*symbol].into_iter().chain(inside));
            }
        }
        for node in code.semantic.nodes().iter() {
            links.visit(node.id());
        }
        links.catch();
        links.pass();
        links.sharing
    }

    /// Returns the representative of all variables that may share the contents of a variable.
    pub(crate) fn holder(&self, symbol: SymbolId) -> SymbolId {
        self.heads.get(&symbol).copied().unwrap_or(symbol)
    }

    /// Returns all variables that may share the contents of a variable, including itself.
    pub(crate) fn class(&self, symbol: SymbolId) -> Vec<SymbolId> {
        self.members.get(&self.holder(symbol)).cloned().unwrap_or_else(|| vec![symbol])
    }

    /// Joins two classes. Returns whether they were separate.
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

impl<'a> SharingLinks<'_, '_, 'a> {
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
            // Default values.
            AstKind::AssignmentPattern(pattern) => {
                self.join(bound(&pattern.left).into_iter().chain(self.held(&pattern.right)));
            }
            AstKind::FormalParameter(parameter) => {
                if let Some(value) = &parameter.initializer {
                    self.join(bound(&parameter.pattern).into_iter().chain(self.held(value)));
                }
            }
            AstKind::ThrowStatement(it) if !self.code.responds(node) => {
                let held = self.held(&it.argument);
                self.thrown.extend(held);
            }
            AstKind::CatchParameter(it) => self.caught.extend(bound(&it.pattern)),
            // The result of calling a generator, a replaceable function or a class may contain everything
            // that it uses.
            AstKind::Function(it) if it.is_declaration() => self.declared(node, it.id.as_ref()),
            AstKind::Class(it) => self.declared(node, it.id.as_ref()),
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

    fn declared(&mut self, node: NodeId, name: Option<&BindingIdentifier<'_>>) {
        let symbol = name.and_then(|name| name.symbol_id.get());
        if let Some(symbol) = symbol.filter(|symbol| !self.code.named.contains_key(symbol)) {
            self.join([symbol].into_iter().chain(self.inside(node)));
        }
    }

    /// Joins thrown and caught values: a thrown value may be caught anywhere.
    fn catch(&mut self) {
        let (thrown, caught) = (std::mem::take(&mut self.thrown), std::mem::take(&mut self.caught));
        if !thrown.is_empty() && !caught.is_empty() {
            self.join(thrown.into_iter().chain(caught));
        }
    }

    /// Returns the variables whose contents an assignment changes.
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
        if let Some(function) = self.code.callee(call) {
            return self.pass_to(function, call);
        }
        let arguments = self.arguments(call);
        let Some((object, method)) = member(&call.callee) else {
            if !is_pure(self.code, call) {
                self.join(self.held(&call.callee).into_iter().chain(arguments));
            }
            return;
        };
        if self.is_resource(object) || is_pure(self.code, call) {
            return;
        }
        let is_known = is_known(method) && !self.code.members.defines(method);
        let callback = callback(call, method).and_then(plain).filter(|_| is_known);
        if let Some(callback) = callback {
            return self.visited(call, object, callback);
        }
        if !is_known || CHANGING.contains(&method) {
            self.join(self.held(object).into_iter().chain(arguments));
        }
    }

    fn pass_to(&mut self, function: FunctionId, call: &CallExpression<'a>) {
        for (index, argument) in call.arguments.iter().enumerate() {
            let symbols = receivers(self.code, function, &call.arguments, index);
            let held = self.argument(argument);
            self.passed.push((function, symbols, held));
        }
        if self.open.contains(&function) {
            self.join(self.held(&call.callee).into_iter().chain(self.arguments(call)));
        }
    }

    /// Joins a callback's parameters with the receiver of the method and with the other arguments. The first
    /// parameter of a `reduce` callback holds the initial value and the callback's results.
    fn visited(&mut self, call: &CallExpression<'a>, object: &Expression<'a>, callback: &Expression<'a>) {
        let others = call.arguments.iter().skip(1).flat_map(|it| self.argument(it)).collect::<Vec<_>>();
        let (node, items) = match callback.get_inner_expression() {
            Expression::ArrowFunctionExpression(it) => (it.node_id.get(), &it.params.items),
            Expression::FunctionExpression(it) => (it.node_id.get(), &it.params.items),
            name => {
                let function = identifier(self.code, name).and_then(|it| self.code.named.get(&it)).copied();
                if let Some(function) = function {
                    let given = [self.held(object), others].concat();
                    self.passed.push((function, parameters(self.code, function).concat(), given));
                }
                return;
            }
        };
        let is_reduced = member(&call.callee).is_some_and(|(_, method)| method.starts_with("reduce"));
        let has_initial = is_reduced && call.arguments.len() > 1;
        let (first, rest) = items.split_at(usize::from(has_initial).min(items.len()));
        let symbols = |items: &[FormalParameter<'a>]| -> Vec<SymbolId> {
            items.iter().flat_map(|it| bound(&it.pattern)).collect()
        };
        if is_reduced {
            let kept = items.first().map(|it| bound(&it.pattern)).unwrap_or_default();
            self.join(kept.into_iter().chain(self.results(node)));
        }
        if has_initial {
            self.join(symbols(first).into_iter().chain(others));
            self.join(symbols(rest).into_iter().chain(self.held(object)));
        } else {
            self.join(symbols(rest).into_iter().chain(self.held(object)).chain(others));
        }
    }

    /// Returns the variables that a function's result may hold.
    fn results(&self, function: NodeId) -> Vec<SymbolId> {
        if let AstKind::ArrowFunctionExpression(arrow) = self.code.kind(function)
            && let Some(value) = arrow.get_expression()
        {
            return self.held(value);
        }
        let own = self.code.function_at(function);
        let inside = self.code.inside(function).filter(|node| Some(self.code.function_of(*node)) == own);
        let values = inside.filter_map(|node| match self.code.kind(node) {
            AstKind::ReturnStatement(it) => it.argument.as_ref(),
            _ => None,
        });
        values.flat_map(|value| self.held(value)).collect()
    }

    /// Joins parameters with their arguments, if the function lets the parameter escape or stores it in
    /// another parameter. Otherwise the function only uses it.
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

    /// Returns the variables whose contents, or parts of them, a value may hold.
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
            Expression::NewExpression(it) => {
                let arguments = it.arguments.iter().flat_map(|it| self.argument(it));
                self.held(&it.callee).into_iter().chain(arguments).collect()
            }
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

    fn arguments(&self, call: &CallExpression<'a>) -> Vec<SymbolId> {
        call.arguments.iter().flat_map(|it| self.argument(it)).collect()
    }

    /// Returns the variables whose contents the result of a call may hold.
    fn result(&self, call: &CallExpression<'a>) -> Vec<SymbolId> {
        if self.code.callee(call).is_some() {
            return identifier(self.code, &call.callee).into_iter().collect();
        }
        if is_pure(self.code, call) {
            return Vec::new();
        }
        match member(&call.callee) {
            Some((object, _)) if self.is_resource(object) => Vec::new(),
            Some((_, method))
                if !self.code.members.defines(method)
                    && (TAKING.contains(&method) || ANSWERING.contains(&method)) =>
            {
                Vec::new()
            }
            Some((object, _)) => [self.held(object), self.arguments(call)].concat(),
            None if call.callee.get_inner_expression().is_function() => self.all_in(NodeId::ROOT, call.span),
            None => [self.held(&call.callee), self.arguments(call)].concat(),
        }
    }

    fn is_resource(&self, object: &Expression<'a>) -> bool {
        let symbol = identifier(self.code, object);
        symbol.is_some_and(|symbol| matches!(self.names.thing(symbol), Some(SymbolMeaning::External(_))))
    }

    /// Returns all variables that are used in the node with this span.
    fn all_in(&self, outer: NodeId, span: Span) -> Vec<SymbolId> {
        node_of(self.code, outer, span).map(|node| self.inside(node)).unwrap_or_default()
    }

    fn inside(&self, node: NodeId) -> Vec<SymbolId> {
        self.code.inside(node).filter_map(|node| self.code.symbol(node)).collect()
    }
}

/// Returns the functions that use `arguments`, in nested arrow functions too, and those that are used as
/// constructors.
fn open(code: &CodeText<'_, '_>) -> BTreeSet<FunctionId> {
    let is_arrow =
        |id: &FunctionId| matches!(code.kind(code.functions[*id].node), AstKind::ArrowFunctionExpression(_));
    let opened = |node: &AstNode<'_>| match node.kind() {
        AstKind::IdentifierReference(name) if name.name == "arguments" => {
            code.functions_around(code.function_of(node.id())).find(|id| !is_arrow(id))
        }
        AstKind::NewExpression(new) => code.named.get(&identifier(code, &new.callee)?).copied(),
        _ => None,
    };
    code.semantic.nodes().iter().filter_map(opened).collect()
}
