//! Uses of a value: whether the surrounding code only reads it, may change it, or lets it escape from the
//! analysis.
//!
//! Only the forms listed here are known to be harmless. A handler that only reads state can run concurrently
//! with others, so in doubt it is a writer. A handler whose state escapes cannot commit early, since the
//! state may be changed at any time afterwards. Every form that is followed here from variable to variable
//! must also be joined in `sharing`.

use std::collections::HashSet;

use oxc_ast::AstKind;
use oxc_ast::ast::{
    Argument, AssignmentExpression, AssignmentTarget, BindingPattern, CallExpression, Expression,
    ForStatementLeft, FormalParameters,
};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::operator::BinaryOperator;
use oxc_syntax::symbol::SymbolId;

use super::builtins::{
    ALIASING_METHODS, BuiltinFunction, DEFERRED_CALL_METHODS, NON_ALIASING_METHODS, REMOVAL_METHODS,
    SCALAR_MUTATORS, callback_argument, global_name, has_function_argument, mapper_argument,
};
use super::calls::call_by_name;
use super::code::{
    CallForm, CodeText, FunctionId, FunctionRole, argument_expression, identifier_symbol, is_data,
};
use super::flow::{
    CALLBACK_METHODS, MUTATING_METHODS, argument_receivers, bound_symbols, is_assignment_target,
    member_access, parameter_symbols,
};
use super::names::{ScriptSymbols, SymbolMeaning};

/// The use of a value, from harmless to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ValueUsage {
    /// The value is only read.
    Read,
    /// The value may be changed, directly or through a variable of the same class in `sharing`.
    Write,
    /// The value escapes from the analysis.
    Escape,
}

/// The analysis of uses.
pub(crate) struct UsageAnalysis<'c, 'p, 'a> {
    code: &'c CodeText<'p, 'a>,
    names: &'c ScriptSymbols,
    /// The variables that have been visited.
    visited_symbols: HashSet<SymbolId>,
}

impl<'c, 'p, 'a> UsageAnalysis<'c, 'p, 'a> {
    pub(crate) fn new(code: &'c CodeText<'p, 'a>, names: &'c ScriptSymbols) -> Self {
        Self { code, names, visited_symbols: HashSet::new() }
    }

    /// Returns the use of a variable's value by one reference to the variable.
    pub(crate) fn reference_usage(mut self, node: NodeId) -> ValueUsage {
        let is_write = self.code.reference(node).is_some_and(|reference| reference.is_write());
        if is_write { self.target_usage(node) } else { self.value_usage(node) }
    }

    /// Returns the use of an expression's value by the surrounding code.
    fn value_usage(&mut self, node: NodeId) -> ValueUsage {
        let (code, parent, span) = (self.code, self.code.parent(node), self.code.span(node));
        match code.kind(parent) {
            // The value of the parent is this value, or contains it.
            AstKind::ParenthesizedExpression(_)
            | AstKind::ChainExpression(_)
            | AstKind::LogicalExpression(_)
            | AstKind::SpreadElement(_)
            | AstKind::AwaitExpression(_)
            | AstKind::ArrayExpression(_)
            | AstKind::ObjectProperty(_) => self.value_usage(parent),
            AstKind::ObjectExpression(object) if is_data(code, object) => self.value_usage(parent),
            AstKind::SequenceExpression(it) if it.expressions.last().is_some_and(|it| it.span() == span) => {
                self.value_usage(parent)
            }
            AstKind::ConditionalExpression(either) if either.test.span() != span => self.value_usage(parent),
            AstKind::StaticMemberExpression(access) if access.object.span() == span => {
                self.member_usage(parent)
            }
            AstKind::ComputedMemberExpression(access) if access.object.span() == span => {
                self.member_usage(parent)
            }
            // The parent only inspects the value, or converts it to a text, number or boolean.
            AstKind::SequenceExpression(_)
            | AstKind::ConditionalExpression(_)
            | AstKind::StaticMemberExpression(_)
            | AstKind::ComputedMemberExpression(_)
            | AstKind::UnaryExpression(_)
            | AstKind::IfStatement(_)
            | AstKind::WhileStatement(_)
            | AstKind::DoWhileStatement(_)
            | AstKind::ForStatement(_)
            | AstKind::ForInStatement(_)
            | AstKind::SwitchStatement(_)
            | AstKind::SwitchCase(_)
            | AstKind::ExpressionStatement(_) => ValueUsage::Read,
            // The right side may define `Symbol.hasInstance`, which receives the value.
            AstKind::BinaryExpression(it) => match it.operator {
                BinaryOperator::Instanceof if global_name(code, &it.right).is_none() => ValueUsage::Escape,
                _ => ValueUsage::Read,
            },
            AstKind::TemplateLiteral(_) => match code.kind(code.parent(parent)) {
                AstKind::TaggedTemplateExpression(_) => ValueUsage::Escape,
                _ => ValueUsage::Read,
            },
            AstKind::ReturnStatement(_) | AstKind::ArrowFunctionExpression(_) => self.returned_usage(node),
            AstKind::ThrowStatement(_) => self.thrown_usage(parent),
            AstKind::VariableDeclarator(declarator) => self.pattern_usage(&declarator.id),
            // Default values.
            AstKind::AssignmentPattern(pattern) => self.pattern_usage(&pattern.left),
            AstKind::FormalParameter(parameter) => self.pattern_usage(&parameter.pattern),
            AstKind::ForOfStatement(of) => match &of.left {
                ForStatementLeft::VariableDeclaration(declaration) => {
                    self.worst_usage(declaration.declarations.iter(), |reads, it| reads.pattern_usage(&it.id))
                }
                _ => self.stored_usage(),
            },
            AstKind::AssignmentExpression(assignment) => self.assignment_usage(parent, assignment),
            AstKind::CallExpression(call) => self.argument_usage(parent, node, call),
            AstKind::NewExpression(new) if new.callee.span() != span => {
                match BuiltinFunction::from_constructor(code, new) {
                    Some(BuiltinFunction::Pure) => ValueUsage::Read,
                    Some(_) => ValueUsage::Write.max(self.value_usage(parent)),
                    None => ValueUsage::Escape,
                }
            }
            // Tags, `yield`, `import(..)`, classes with their fields, decorators, default values in
            // assignment targets, objects with methods, callees and constructors, and future syntax.
            _ => ValueUsage::Escape,
        }
    }

    fn worst_usage<'l, T: 'l>(
        &mut self,
        all: impl IntoIterator<Item = &'l T>,
        mut usage: impl FnMut(&mut Self, &'l T) -> ValueUsage,
    ) -> ValueUsage {
        all.into_iter().map(|it| usage(self, it)).max().unwrap_or(ValueUsage::Read)
    }

    /// Returns the use of `value.part`.
    fn member_usage(&mut self, node: NodeId) -> ValueUsage {
        if is_assignment_target(self.code, node) {
            return self.target_usage(node);
        }
        // A number for every built-in type.
        if matches!(self.code.kind(node), AstKind::StaticMemberExpression(it) if it.property.name == "length")
        {
            return ValueUsage::Read;
        }
        let parent = self.code.parent(node);
        match self.code.kind(parent) {
            AstKind::CallExpression(call) if call.callee.span() == self.code.span(node) => {
                self.method_usage(parent, call)
            }
            _ => self.value_usage(node),
        }
    }

    /// Returns the use of an assignment target. The assigned value becomes state, and is the value of the
    /// assignment too.
    fn target_usage(&mut self, node: NodeId) -> ValueUsage {
        let parent = self.code.parent(node);
        match self.code.kind(parent) {
            AstKind::AssignmentExpression(it) if it.operator.is_assign() || it.operator.is_logical() => {
                ValueUsage::Write.max(self.value_usage(parent))
            }
            _ => ValueUsage::Write,
        }
    }

    /// Returns the use of a value by a call of one of its methods.
    fn method_usage(&mut self, node: NodeId, call: &CallExpression<'a>) -> ValueUsage {
        let Some((_, method)) = member_access(&call.callee) else { return ValueUsage::Escape };
        if self.code.members.defines_method(method) || DEFERRED_CALL_METHODS.contains(&method) {
            return ValueUsage::Escape;
        }
        let visited = match callback_argument(call, method) {
            Some(callback) => self.callback_usage(callback),
            None => ValueUsage::Read,
        };
        if NON_ALIASING_METHODS.contains(&method) {
            visited
        } else if ALIASING_METHODS.contains(&method) {
            visited.max(self.value_usage(node))
        } else if REMOVAL_METHODS.contains(&method) || SCALAR_MUTATORS.contains(&method) {
            ValueUsage::Write
        } else if MUTATING_METHODS.contains(&method) || !has_function_argument(self.code, call) {
            ValueUsage::Write.max(visited).max(self.value_usage(node))
        } else {
            ValueUsage::Escape
        }
    }

    /// Returns the use of the parameters of a callback that is passed to a JavaScript built-in.
    fn callback_usage(&mut self, callback: &Argument<'a>) -> ValueUsage {
        let code = self.code;
        match argument_expression(callback).map(Expression::get_inner_expression) {
            Some(Expression::ArrowFunctionExpression(it)) => {
                self.callback_parameters_usage(&it.params, it.r#async)
            }
            Some(Expression::FunctionExpression(it)) => {
                let is_open = code.subtree_nodes(it.node_id.get()).any(|node| match code.kind(node) {
                    AstKind::ThisExpression(_) => true,
                    AstKind::IdentifierReference(name) => name.name == "arguments",
                    _ => false,
                });
                if is_open {
                    return ValueUsage::Escape;
                }
                self.callback_parameters_usage(&it.params, it.r#async || it.generator)
            }
            Some(name @ Expression::Identifier(_)) => {
                let function =
                    identifier_symbol(code, name).and_then(|symbol| code.functions_by_symbol.get(&symbol));
                function.map_or(ValueUsage::Escape, |function| {
                    let all = parameter_symbols(code, *function).concat();
                    self.parameters_usage(*function, &all)
                })
            }
            // `JSON.stringify(value, null, 2)`, or with an array of member names.
            Some(Expression::NullLiteral(_) | Expression::ArrayExpression(_)) => ValueUsage::Read,
            _ => ValueUsage::Escape,
        }
    }

    fn callback_parameters_usage(&mut self, parameters: &FormalParameters<'a>, is_later: bool) -> ValueUsage {
        if parameters.rest.is_some() {
            return ValueUsage::Escape;
        }
        let usage = self.worst_usage(parameters.items.iter(), |reads, it| reads.pattern_usage(&it.pattern));
        if is_later { deferred_usage(usage) } else { usage }
    }

    /// Returns the use of some parameters of a named function.
    fn parameters_usage(&mut self, function: FunctionId, symbols: &[SymbolId]) -> ValueUsage {
        if !self.code.arguments_references(function).is_empty() {
            return ValueUsage::Escape;
        }
        let usage = self.worst_usage(symbols, |reads, it| reads.symbol_usage(*it));
        if self.code.functions[function].is_async { deferred_usage(usage) } else { usage }
    }

    fn argument_usage(&mut self, call_node: NodeId, node: NodeId, call: &CallExpression<'a>) -> ValueUsage {
        let code = self.code;
        let index = call.arguments.iter().position(|argument| argument.span() == code.span(node));
        let Some(index) = index else { return ValueUsage::Escape };
        let to_resource = member_access(&call.callee).and_then(|(object, _)| identifier_symbol(code, object));
        if to_resource.is_some_and(|symbol| {
            matches!(self.names.symbol_meaning(symbol), Some(SymbolMeaning::External(_)))
        }) {
            return ValueUsage::Read;
        }
        if let Some(function) = code.callee(call) {
            let symbols = argument_receivers(code, function, &call.arguments, index);
            return self.parameters_usage(function, &symbols).max(self.value_usage(call_node));
        }
        let mapped =
            mapper_argument(code, call).map_or(ValueUsage::Read, |mapper| self.callback_usage(mapper));
        match BuiltinFunction::from_call(code, call) {
            Some(BuiltinFunction::Pure) => return mapped,
            Some(BuiltinFunction::Copying) => return mapped.max(self.value_usage(call_node)),
            Some(BuiltinFunction::Storing) => return self.stored_usage().max(self.value_usage(call_node)),
            None => {}
        }
        match member_access(&call.callee) {
            Some((_, method)) if !code.members.defines_method(method) => {
                self.builtin_argument_usage(call_node, call, method, index)
            }
            _ => ValueUsage::Escape,
        }
    }

    /// Returns the use of an argument that is passed to a method of JavaScript.
    fn builtin_argument_usage(
        &mut self,
        call_node: NodeId,
        call: &CallExpression<'a>,
        method: &str,
        index: usize,
    ) -> ValueUsage {
        if let Some(callback) = callback_argument(call, method) {
            let is_initial = matches!(method, "reduce" | "reduceRight") && index == 1;
            return if is_initial {
                self.callback_usage(callback).max(self.value_usage(call_node))
            } else {
                ValueUsage::Escape
            };
        }
        if NON_ALIASING_METHODS.contains(&method) {
            ValueUsage::Read
        } else if ALIASING_METHODS.contains(&method) {
            self.value_usage(call_node)
        } else if SCALAR_MUTATORS.contains(&method) {
            ValueUsage::Write
        } else if MUTATING_METHODS.contains(&method) || method.starts_with("set") {
            ValueUsage::Write.max(self.value_usage(call_node))
        } else {
            ValueUsage::Escape
        }
    }

    /// Returns the use of a value that is stored in a member of an object.
    fn stored_usage(&self) -> ValueUsage {
        if self.code.members.has_setter { ValueUsage::Escape } else { ValueUsage::Write }
    }

    fn assignment_usage(&mut self, node: NodeId, assignment: &AssignmentExpression<'a>) -> ValueUsage {
        let operator = assignment.operator;
        // Operators like `+=` convert the value to a number or text.
        if !operator.is_assign() && !operator.is_logical() {
            return ValueUsage::Read;
        }
        let usage = match &assignment.left {
            AssignmentTarget::AssignmentTargetIdentifier(name) => {
                let reference = name.reference_id.get();
                let symbol =
                    reference.and_then(|it| self.code.semantic.scoping().get_reference(it).symbol_id());
                symbol.map_or(ValueUsage::Escape, |symbol| self.symbol_usage(symbol))
            }
            _ => self.stored_usage(),
        };
        usage.max(self.value_usage(node))
    }

    fn pattern_usage(&mut self, pattern: &BindingPattern<'_>) -> ValueUsage {
        self.worst_usage(&bound_symbols(pattern), |reads, symbol| reads.symbol_usage(*symbol))
    }

    /// Returns the use of a variable's value by all references to the variable. Assignments to the variable
    /// do not count. If the variable is state, assigning it makes the handler a writer anyway. The address of
    /// a resource is a text.
    fn symbol_usage(&mut self, symbol: SymbolId) -> ValueUsage {
        let is_known = matches!(
            self.names.symbol_meaning(symbol),
            Some(SymbolMeaning::Cell(_) | SymbolMeaning::External(_))
        );
        if is_known || !self.visited_symbols.insert(symbol) {
            return ValueUsage::Read;
        }
        let uses = self.code.symbol_references(symbol).filter(|it| it.is_read()).map(|it| it.node_id());
        let uses: Vec<NodeId> = uses.filter(|node| !self.is_update(*node)).collect();
        self.worst_usage(&uses, |reads, node| reads.value_usage(*node))
    }

    fn is_update(&self, node: NodeId) -> bool {
        matches!(self.code.kind(self.code.parent(node)), AstKind::UpdateExpression(_))
    }

    /// Returns the use of a returned value: none for a handler, that of the callers for a function. For a
    /// callback it depends on the method that receives the callback.
    fn returned_usage(&mut self, node: NodeId) -> ValueUsage {
        let code = self.code;
        let function = code.enclosing_function(node);
        let routine = &code.functions[function];
        match (routine.role, routine.call_form) {
            (FunctionRole::Plain, CallForm::ByName(symbol)) => {
                if !self.visited_symbols.insert(symbol) {
                    return ValueUsage::Read;
                }
                let mentions = code.name_references(function);
                self.worst_usage(&mentions, |reads, name| match call_by_name(code, *name) {
                    Some(call) => reads.value_usage(call),
                    None => ValueUsage::Escape,
                })
            }
            (FunctionRole::Plain, CallForm::InPlace) => {
                self.value_usage(code.parent(code.skip_parentheses(routine.node)))
            }
            (FunctionRole::Plain, CallForm::Unknown) => self.callback_result_usage(routine.node),
            (FunctionRole::Plain, CallForm::CannotWait) => ValueUsage::Escape,
            (
                FunctionRole::Handler(_)
                | FunctionRole::Resource(_)
                | FunctionRole::Service(_)
                | FunctionRole::File,
                _,
            ) => ValueUsage::Read,
        }
    }

    /// Returns the use of the result of a callback by the call that receives the callback.
    fn callback_result_usage(&mut self, function: NodeId) -> ValueUsage {
        let code = self.code;
        let node = code.parent(code.skip_parentheses(function));
        let AstKind::CallExpression(call) = code.kind(node) else { return ValueUsage::Escape };
        if BuiltinFunction::from_call(code, call) == Some(BuiltinFunction::Copying) {
            return self.value_usage(node);
        }
        let Some((_, method)) = member_access(&call.callee) else { return ValueUsage::Escape };
        if code.members.defines_method(method) {
            return ValueUsage::Escape;
        }
        match method {
            "map" | "flatMap" => self.value_usage(node),
            // The next call of the callback receives the result.
            "reduce" | "reduceRight" => {
                let usage = callback_argument(call, method)
                    .map_or(ValueUsage::Read, |callback| self.callback_usage(callback));
                usage.max(self.value_usage(node))
            }
            // The result is converted to a text, boolean or number, or discarded.
            _ if method.starts_with("replace") || CALLBACK_METHODS.contains(&method) => ValueUsage::Read,
            _ => ValueUsage::Escape,
        }
    }

    /// Returns the use of a thrown value. `respond` only reads it, and so does an uncaught `throw` in a
    /// handler. Otherwise it may be caught anywhere.
    fn thrown_usage(&self, node: NodeId) -> ValueUsage {
        let code = self.code;
        if code.is_respond(node) {
            return ValueUsage::Read;
        }
        let function = code.enclosing_function(node);
        let mut around = code.ancestors(node).take_while(|outer| code.enclosing_function(*outer) == function);
        let is_tried = around.any(|outer| matches!(code.kind(outer), AstKind::TryStatement(_)));
        let ends = matches!(code.functions[function].role, FunctionRole::Handler(_)) && !is_tried;
        if ends { ValueUsage::Read } else { ValueUsage::Escape }
    }
}

/// Turns a change by code that may run later into an escape, since it can happen at any time.
fn deferred_usage(usage: ValueUsage) -> ValueUsage {
    if usage == ValueUsage::Read { ValueUsage::Read } else { ValueUsage::Escape }
}
