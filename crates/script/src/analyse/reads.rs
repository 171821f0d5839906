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
    ANSWERING, BuiltinFunction, COUNTING, DEFERRING, SHARING, TAKING, callback, gives_function, global,
    mapper,
};
use super::calls::call_by;
use super::code::{CallForm, CodeText, FunctionId, FunctionRole, identifier, is_data, plain};
use super::flow::{CHANGING, VISITING, bound, is_target, member, parameters, receivers};
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
    seen: HashSet<SymbolId>,
}

impl<'c, 'p, 'a> UsageAnalysis<'c, 'p, 'a> {
    pub(crate) fn new(code: &'c CodeText<'p, 'a>, names: &'c ScriptSymbols) -> Self {
        Self { code, names, seen: HashSet::new() }
    }

    /// Returns the use of a variable's value by one reference to the variable.
    pub(crate) fn usage(mut self, node: NodeId) -> ValueUsage {
        let is_write = self.code.reference(node).is_some_and(|reference| reference.is_write());
        if is_write { self.target(node) } else { self.value(node) }
    }

    /// Returns the use of an expression's value by the surrounding code.
    fn value(&mut self, node: NodeId) -> ValueUsage {
        let (code, parent, span) = (self.code, self.code.parent(node), self.code.span(node));
        match code.kind(parent) {
            // The value of the parent is this value, or contains it.
            AstKind::ParenthesizedExpression(_)
            | AstKind::ChainExpression(_)
            | AstKind::LogicalExpression(_)
            | AstKind::SpreadElement(_)
            | AstKind::AwaitExpression(_)
            | AstKind::ArrayExpression(_)
            | AstKind::ObjectProperty(_) => self.value(parent),
            AstKind::ObjectExpression(object) if is_data(code, object) => self.value(parent),
            AstKind::SequenceExpression(it) if it.expressions.last().is_some_and(|it| it.span() == span) => {
                self.value(parent)
            }
            AstKind::ConditionalExpression(either) if either.test.span() != span => self.value(parent),
            AstKind::StaticMemberExpression(access) if access.object.span() == span => self.part(parent),
            AstKind::ComputedMemberExpression(access) if access.object.span() == span => self.part(parent),
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
                BinaryOperator::Instanceof if global(code, &it.right).is_none() => ValueUsage::Escape,
                _ => ValueUsage::Read,
            },
            AstKind::TemplateLiteral(_) => match code.kind(code.parent(parent)) {
                AstKind::TaggedTemplateExpression(_) => ValueUsage::Escape,
                _ => ValueUsage::Read,
            },
            AstKind::ReturnStatement(_) | AstKind::ArrowFunctionExpression(_) => self.returned(node),
            AstKind::ThrowStatement(_) => self.thrown(parent),
            AstKind::VariableDeclarator(declarator) => self.pattern(&declarator.id),
            // Default values.
            AstKind::AssignmentPattern(pattern) => self.pattern(&pattern.left),
            AstKind::FormalParameter(parameter) => self.pattern(&parameter.pattern),
            AstKind::ForOfStatement(of) => match &of.left {
                ForStatementLeft::VariableDeclaration(declaration) => {
                    self.worst(declaration.declarations.iter(), |reads, it| reads.pattern(&it.id))
                }
                _ => self.kept(),
            },
            AstKind::AssignmentExpression(assignment) => self.assigned(parent, assignment),
            AstKind::CallExpression(call) => self.argument(parent, node, call),
            AstKind::NewExpression(new) if new.callee.span() != span => {
                match BuiltinFunction::constructed(code, new) {
                    Some(BuiltinFunction::Pure) => ValueUsage::Read,
                    Some(_) => ValueUsage::Write.max(self.value(parent)),
                    None => ValueUsage::Escape,
                }
            }
            // Tags, `yield`, `import(..)`, classes with their fields, decorators, default values in
            // assignment targets, objects with methods, callees and constructors, and future syntax.
            _ => ValueUsage::Escape,
        }
    }

    fn worst<'l, T: 'l>(
        &mut self,
        all: impl IntoIterator<Item = &'l T>,
        mut usage: impl FnMut(&mut Self, &'l T) -> ValueUsage,
    ) -> ValueUsage {
        all.into_iter().map(|it| usage(self, it)).max().unwrap_or(ValueUsage::Read)
    }

    /// Returns the use of `value.part`.
    fn part(&mut self, node: NodeId) -> ValueUsage {
        if is_target(self.code, node) {
            return self.target(node);
        }
        // A number for every built-in type.
        if matches!(self.code.kind(node), AstKind::StaticMemberExpression(it) if it.property.name == "length")
        {
            return ValueUsage::Read;
        }
        let parent = self.code.parent(node);
        match self.code.kind(parent) {
            AstKind::CallExpression(call) if call.callee.span() == self.code.span(node) => {
                self.method(parent, call)
            }
            _ => self.value(node),
        }
    }

    /// Returns the use of an assignment target. The assigned value becomes state, and is the value of the
    /// assignment too.
    fn target(&mut self, node: NodeId) -> ValueUsage {
        let parent = self.code.parent(node);
        match self.code.kind(parent) {
            AstKind::AssignmentExpression(it) if it.operator.is_assign() || it.operator.is_logical() => {
                ValueUsage::Write.max(self.value(parent))
            }
            _ => ValueUsage::Write,
        }
    }

    /// Returns the use of a value by a call of one of its methods.
    fn method(&mut self, node: NodeId, call: &CallExpression<'a>) -> ValueUsage {
        let Some((_, method)) = member(&call.callee) else { return ValueUsage::Escape };
        if self.code.members.defines(method) || DEFERRING.contains(&method) {
            return ValueUsage::Escape;
        }
        let visited = match callback(call, method) {
            Some(callback) => self.visited(callback),
            None => ValueUsage::Read,
        };
        if ANSWERING.contains(&method) {
            visited
        } else if SHARING.contains(&method) {
            visited.max(self.value(node))
        } else if TAKING.contains(&method) || COUNTING.contains(&method) {
            ValueUsage::Write
        } else if CHANGING.contains(&method) || !gives_function(self.code, call) {
            ValueUsage::Write.max(visited).max(self.value(node))
        } else {
            ValueUsage::Escape
        }
    }

    /// Returns the use of the parameters of a callback that is passed to a JavaScript built-in.
    fn visited(&mut self, callback: &Argument<'a>) -> ValueUsage {
        let code = self.code;
        match plain(callback).map(Expression::get_inner_expression) {
            Some(Expression::ArrowFunctionExpression(it)) => self.visitor(&it.params, it.r#async),
            Some(Expression::FunctionExpression(it)) => {
                let is_open = code.inside(it.node_id.get()).any(|node| match code.kind(node) {
                    AstKind::ThisExpression(_) => true,
                    AstKind::IdentifierReference(name) => name.name == "arguments",
                    _ => false,
                });
                if is_open {
                    return ValueUsage::Escape;
                }
                self.visitor(&it.params, it.r#async || it.generator)
            }
            Some(name @ Expression::Identifier(_)) => {
                let function = identifier(code, name).and_then(|symbol| code.named.get(&symbol));
                function.map_or(ValueUsage::Escape, |function| {
                    let all = parameters(code, *function).concat();
                    self.parameters(*function, &all)
                })
            }
            // `JSON.stringify(value, null, 2)`, or with an array of member names.
            Some(Expression::NullLiteral(_) | Expression::ArrayExpression(_)) => ValueUsage::Read,
            _ => ValueUsage::Escape,
        }
    }

    fn visitor(&mut self, parameters: &FormalParameters<'a>, is_later: bool) -> ValueUsage {
        if parameters.rest.is_some() {
            return ValueUsage::Escape;
        }
        let usage = self.worst(parameters.items.iter(), |reads, it| reads.pattern(&it.pattern));
        if is_later { later(usage) } else { usage }
    }

    /// Returns the use of some parameters of a named function.
    fn parameters(&mut self, function: FunctionId, symbols: &[SymbolId]) -> ValueUsage {
        if !self.code.arguments_of(function).is_empty() {
            return ValueUsage::Escape;
        }
        let usage = self.worst(symbols, |reads, it| reads.symbol(*it));
        if self.code.functions[function].is_async { later(usage) } else { usage }
    }

    fn argument(&mut self, call_node: NodeId, node: NodeId, call: &CallExpression<'a>) -> ValueUsage {
        let code = self.code;
        let index = call.arguments.iter().position(|argument| argument.span() == code.span(node));
        let Some(index) = index else { return ValueUsage::Escape };
        let to_resource = member(&call.callee).and_then(|(object, _)| identifier(code, object));
        if to_resource
            .is_some_and(|symbol| matches!(self.names.thing(symbol), Some(SymbolMeaning::External(_))))
        {
            return ValueUsage::Read;
        }
        if let Some(function) = code.callee(call) {
            let symbols = receivers(code, function, &call.arguments, index);
            return self.parameters(function, &symbols).max(self.value(call_node));
        }
        let mapped = mapper(code, call).map_or(ValueUsage::Read, |mapper| self.visited(mapper));
        match BuiltinFunction::called(code, call) {
            Some(BuiltinFunction::Pure) => return mapped,
            Some(BuiltinFunction::Copying) => return mapped.max(self.value(call_node)),
            Some(BuiltinFunction::Keeping) => return self.kept().max(self.value(call_node)),
            None => {}
        }
        match member(&call.callee) {
            Some((_, method)) if !code.members.defines(method) => self.handed(call_node, call, method, index),
            _ => ValueUsage::Escape,
        }
    }

    /// Returns the use of an argument that is passed to a method of JavaScript.
    fn handed(
        &mut self,
        call_node: NodeId,
        call: &CallExpression<'a>,
        method: &str,
        index: usize,
    ) -> ValueUsage {
        if let Some(callback) = callback(call, method) {
            let is_initial = matches!(method, "reduce" | "reduceRight") && index == 1;
            return if is_initial {
                self.visited(callback).max(self.value(call_node))
            } else {
                ValueUsage::Escape
            };
        }
        if ANSWERING.contains(&method) {
            ValueUsage::Read
        } else if SHARING.contains(&method) {
            self.value(call_node)
        } else if COUNTING.contains(&method) {
            ValueUsage::Write
        } else if CHANGING.contains(&method) || method.starts_with("set") {
            ValueUsage::Write.max(self.value(call_node))
        } else {
            ValueUsage::Escape
        }
    }

    /// Returns the use of a value that is stored in a member of an object.
    fn kept(&self) -> ValueUsage {
        if self.code.members.has_setter { ValueUsage::Escape } else { ValueUsage::Write }
    }

    fn assigned(&mut self, node: NodeId, assignment: &AssignmentExpression<'a>) -> ValueUsage {
        let operator = assignment.operator;
        // Operators like `+=` convert the value to a number or text.
        if !operator.is_assign() && !operator.is_logical() {
            return ValueUsage::Read;
        }
        let kept = match &assignment.left {
            AssignmentTarget::AssignmentTargetIdentifier(name) => {
                let reference = name.reference_id.get();
                let symbol =
                    reference.and_then(|it| self.code.semantic.scoping().get_reference(it).symbol_id());
                symbol.map_or(ValueUsage::Escape, |symbol| self.symbol(symbol))
            }
            _ => self.kept(),
        };
        kept.max(self.value(node))
    }

    fn pattern(&mut self, pattern: &BindingPattern<'_>) -> ValueUsage {
        self.worst(&bound(pattern), |reads, symbol| reads.symbol(*symbol))
    }

    /// Returns the use of a variable's value by all references to the variable. Assignments to the variable
    /// do not count. If the variable is state, assigning it makes the handler a writer anyway. The address of
    /// a resource is a text.
    fn symbol(&mut self, symbol: SymbolId) -> ValueUsage {
        let is_known =
            matches!(self.names.thing(symbol), Some(SymbolMeaning::Cell(_) | SymbolMeaning::External(_)));
        if is_known || !self.seen.insert(symbol) {
            return ValueUsage::Read;
        }
        let uses = self.code.uses(symbol).filter(|it| it.is_read()).map(|it| it.node_id());
        let uses: Vec<NodeId> = uses.filter(|node| !self.is_update(*node)).collect();
        self.worst(&uses, |reads, node| reads.value(*node))
    }

    fn is_update(&self, node: NodeId) -> bool {
        matches!(self.code.kind(self.code.parent(node)), AstKind::UpdateExpression(_))
    }

    /// Returns the use of a returned value: none for a handler, that of the callers for a function. For a
    /// callback it depends on the method that receives the callback.
    fn returned(&mut self, node: NodeId) -> ValueUsage {
        let code = self.code;
        let function = code.function_of(node);
        let routine = &code.functions[function];
        match (routine.role, routine.called) {
            (FunctionRole::Plain, CallForm::ByName(symbol)) => {
                if !self.seen.insert(symbol) {
                    return ValueUsage::Read;
                }
                let mentions = code.mentions(function);
                self.worst(&mentions, |reads, name| match call_by(code, *name) {
                    Some(call) => reads.value(call),
                    None => ValueUsage::Escape,
                })
            }
            (FunctionRole::Plain, CallForm::AtOnce) => {
                self.value(code.parent(code.past_parentheses(routine.node)))
            }
            (FunctionRole::Plain, CallForm::Unknown) => self.taken(routine.node),
            (FunctionRole::Plain, CallForm::Never) => ValueUsage::Escape,
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
    fn taken(&mut self, function: NodeId) -> ValueUsage {
        let code = self.code;
        let node = code.parent(code.past_parentheses(function));
        let AstKind::CallExpression(call) = code.kind(node) else { return ValueUsage::Escape };
        if BuiltinFunction::called(code, call) == Some(BuiltinFunction::Copying) {
            return self.value(node);
        }
        let Some((_, method)) = member(&call.callee) else { return ValueUsage::Escape };
        if code.members.defines(method) {
            return ValueUsage::Escape;
        }
        match method {
            "map" | "flatMap" => self.value(node),
            // The next call of the callback receives the result.
            "reduce" | "reduceRight" => {
                let again =
                    callback(call, method).map_or(ValueUsage::Read, |callback| self.visited(callback));
                again.max(self.value(node))
            }
            // The result is converted to a text, boolean or number, or discarded.
            _ if method.starts_with("replace") || VISITING.contains(&method) => ValueUsage::Read,
            _ => ValueUsage::Escape,
        }
    }

    /// Returns the use of a thrown value. `respond` only reads it, and so does an uncaught `throw` in a
    /// handler. Otherwise it may be caught anywhere.
    fn thrown(&self, node: NodeId) -> ValueUsage {
        let code = self.code;
        if code.responds(node) {
            return ValueUsage::Read;
        }
        let function = code.function_of(node);
        let mut around = code.ancestors(node).take_while(|outer| code.function_of(*outer) == function);
        let is_tried = around.any(|outer| matches!(code.kind(outer), AstKind::TryStatement(_)));
        let ends = matches!(code.functions[function].role, FunctionRole::Handler(_)) && !is_tried;
        if ends { ValueUsage::Read } else { ValueUsage::Escape }
    }
}

/// Turns a change by code that may run later into an escape, since it can happen at any time.
fn later(usage: ValueUsage) -> ValueUsage {
    if usage == ValueUsage::Read { ValueUsage::Read } else { ValueUsage::Escape }
}
