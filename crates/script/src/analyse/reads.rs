//! Whether what is done with a value can only read it. Says yes where that is sure: a handler that only reads state
//! runs beside others, so a doubt makes it a writer.

use std::collections::HashSet;

use oxc_ast::AstKind;
use oxc_ast::ast::{BindingPattern, CallExpression, Expression, ForStatementLeft};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::operator::UnaryOperator;
use oxc_syntax::symbol::SymbolId;

use super::calls::call_by;
use super::code::{Called, Code, Role, identifier, plain};
use super::flow::{CHANGING, VISITING, bound, is_target, member, parameters};
use super::names::{Names, Thing};

/// Methods that change nothing and whose result has no part of what they are called on.
const ANSWERING: &[&str] = &[
    "includes",
    "indexOf",
    "lastIndexOf",
    "join",
    "has",
    "some",
    "every",
    "findIndex",
    "findLastIndex",
    "forEach",
    "keys",
    "toString",
    "startsWith",
    "endsWith",
    "charAt",
    "charCodeAt",
    "substring",
    "substr",
    "split",
    "trim",
    "toUpperCase",
    "toLowerCase",
    "padStart",
    "padEnd",
    "repeat",
    "replace",
    "replaceAll",
    "match",
    "search",
    "toFixed",
    "localeCompare",
    "hasOwnProperty",
    "test",
];

/// Methods that change nothing, but their result may share something.
const SHARING: &[&str] = &[
    "at",
    "find",
    "findLast",
    "get",
    "map",
    "filter",
    "slice",
    "concat",
    "flat",
    "flatMap",
    "reduce",
    "reduceRight",
    "values",
    "entries",
    "toSorted",
    "toReversed",
    "toSpliced",
    "with",
    "valueOf",
];

/// Functions of JavaScript that change nothing, and whose result has no part of their arguments.
pub(crate) const PURE: &[&str] = &[
    "JSON.stringify",
    "JSON.parse",
    "String",
    "Number",
    "Boolean",
    "parseInt",
    "parseFloat",
    "isNaN",
    "isFinite",
    "Object.keys",
    "Array.isArray",
    "encodeURIComponent",
    "encodeURI",
    "decodeURIComponent",
    "decodeURI",
    "structuredClone",
    "Number.isInteger",
    "Number.isFinite",
    "Number.isNaN",
    "Number.parseInt",
    "Number.parseFloat",
    "console.log",
    "console.info",
    "console.warn",
    "console.error",
    "console.debug",
    "Date.now",
    "Math.random",
];

/// The same, but their result may share something.
const COPYING: &[&str] = &["Object.values", "Object.entries", "Array.from", "Object.fromEntries"];

/// Looks at uses of values.
pub(crate) struct Reads<'c, 'p, 'a> {
    code: &'c Code<'p, 'a>,
    names: &'c Names,
    /// Variables that were looked at.
    seen: HashSet<SymbolId>,
}

impl<'c, 'p, 'a> Reads<'c, 'p, 'a> {
    pub(crate) fn new(code: &'c Code<'p, 'a>, names: &'c Names) -> Self {
        Self { code, names, seen: HashSet::new() }
    }

    /// Whether this use of a variable can only read what it holds.
    pub(crate) fn only_reads(mut self, node: NodeId) -> bool {
        let is_write = self.code.reference(node).is_some_and(|reference| reference.is_write());
        !is_write && self.value(node)
    }

    /// Whether the value of an expression is only read.
    fn value(&mut self, node: NodeId) -> bool {
        let (code, parent, span) = (self.code, self.code.parent(node), self.code.span(node));
        match code.kind(parent) {
            AstKind::ParenthesizedExpression(_)
            | AstKind::ChainExpression(_)
            | AstKind::LogicalExpression(_)
            | AstKind::SpreadElement(_)
            | AstKind::AwaitExpression(_)
            | AstKind::ArrayExpression(_)
            | AstKind::ObjectExpression(_)
            | AstKind::ObjectProperty(_)
            | AstKind::SequenceExpression(_) => self.value(parent),
            AstKind::ConditionalExpression(either) => either.test.span() == span || self.value(parent),
            AstKind::StaticMemberExpression(access) => access.object.span() != span || self.part(parent),
            AstKind::ComputedMemberExpression(access) => access.object.span() != span || self.part(parent),
            AstKind::UnaryExpression(unary) => unary.operator != UnaryOperator::Delete,
            AstKind::BinaryExpression(_)
            | AstKind::TemplateLiteral(_)
            | AstKind::IfStatement(_)
            | AstKind::WhileStatement(_)
            | AstKind::DoWhileStatement(_)
            | AstKind::ForStatement(_)
            | AstKind::ForInStatement(_)
            | AstKind::SwitchStatement(_)
            | AstKind::SwitchCase(_)
            | AstKind::ThrowStatement(_) => true,
            AstKind::ReturnStatement(_) => self.returned(parent, false),
            AstKind::ExpressionStatement(_) => true,
            // Without braces.
            AstKind::ArrowFunctionExpression(_) => self.returned(node, true),
            AstKind::VariableDeclarator(declarator) => self.pattern(&declarator.id),
            AstKind::ForOfStatement(of) => match &of.left {
                ForStatementLeft::VariableDeclaration(declaration) => {
                    declaration.declarations.iter().all(|it| self.pattern(&it.id))
                }
                _ => false,
            },
            AstKind::AssignmentExpression(assignment) => {
                let name = assignment.left.get_identifier_name().is_some();
                let target =
                    code.inside(parent).find(|it| code.span(*it) == assignment.left.span() && *it != parent);
                let symbol = target.filter(|_| name).and_then(|target| code.symbol(target));
                let is_kept =
                    !assignment.operator.is_assign() || symbol.is_some_and(|symbol| self.symbol(symbol));
                is_kept && self.value(parent)
            }
            AstKind::CallExpression(call) => self.argument(parent, node, call),
            _ => false,
        }
    }

    /// `value.part`, and what is done with it.
    fn part(&mut self, node: NodeId) -> bool {
        if is_target(self.code, node) {
            return false;
        }
        // A number, whatever it is of.
        if matches!(self.code.kind(node), AstKind::StaticMemberExpression(it) if it.property.name == "length")
        {
            return true;
        }
        let parent = self.code.parent(node);
        let AstKind::CallExpression(call) = self.code.kind(parent) else { return self.value(node) };
        if call.callee.span() != self.code.span(node) {
            return self.value(node);
        }
        let Some((_, method)) = member(&call.callee) else { return false };
        let known = ANSWERING.contains(&method) || SHARING.contains(&method);
        let callbacks = !VISITING.contains(&method) || self.callback(call);
        known && callbacks && (ANSWERING.contains(&method) || self.value(parent))
    }

    /// What a callback does with the parts that it is given.
    fn callback(&mut self, call: &CallExpression<'a>) -> bool {
        let parameters = match call.arguments.first().and_then(plain).map(Expression::get_inner_expression) {
            Some(Expression::ArrowFunctionExpression(arrow)) => &arrow.params,
            Some(Expression::FunctionExpression(function)) => &function.params,
            Some(_) => return false,
            None => return true,
        };
        parameters.rest.is_none() && parameters.items.iter().all(|parameter| self.pattern(&parameter.pattern))
    }

    fn argument(&mut self, call_node: NodeId, node: NodeId, call: &CallExpression<'a>) -> bool {
        let code = self.code;
        if call.callee.span() == code.span(node) {
            return false;
        }
        let to_resource = member(&call.callee).and_then(|(object, _)| identifier(code, object));
        if to_resource.is_some_and(|symbol| matches!(self.names.thing(symbol), Some(Thing::External(_)))) {
            return true;
        }
        if let Some(function) = code.callee(call) {
            let index = call.arguments.iter().position(|argument| argument.span() == code.span(node));
            let Some(index) = index else { return false };
            let parameters = parameters(code, function);
            if !code.arguments_of(function).is_empty() {
                return false;
            }
            let only_reads =
                parameters.get(index).is_some_and(|symbols| symbols.iter().all(|it| self.symbol(*it)));
            return only_reads && self.value(call_node);
        }
        let callee = code.text(code.source(call.callee.span()));
        let is_global = !call.callee.get_inner_expression().is_function();
        let pure = PURE.contains(&callee) || callee.starts_with("Math.");
        is_global && (pure || COPYING.contains(&callee) && self.value(call_node))
    }

    fn pattern(&mut self, pattern: &BindingPattern<'_>) -> bool {
        bound(pattern).into_iter().all(|symbol| self.symbol(symbol))
    }

    /// Whether all that is done with a variable only reads what it holds. Setting the variable is no matter. If it is
    /// state, who sets it is a writer for that, and of what it is set to as well.
    fn symbol(&mut self, symbol: SymbolId) -> bool {
        if self.names.cell(symbol).is_some() || !self.seen.insert(symbol) {
            return true;
        }
        let uses: Vec<(NodeId, bool)> =
            self.code.uses(symbol).map(|it| (it.node_id(), it.is_read())).collect();
        uses.into_iter().all(|(node, is_read)| !is_read || self.value(node) || self.is_update(node))
    }

    fn is_update(&self, node: NodeId) -> bool {
        matches!(self.code.kind(self.code.parent(node)), AstKind::UpdateExpression(_))
    }

    /// What a handler returns is nobody's; what a function returns is its callers'. What becomes of a callback's result
    /// is up to the method that it was given to.
    fn returned(&mut self, node: NodeId, by_callback: bool) -> bool {
        let code = self.code;
        let routine = &code.functions[code.function_of(node)];
        match (routine.role, routine.called) {
            (Role::Handler(_), _) => true,
            (_, Called::ByName(symbol)) => {
                let mentions = code.mentions(code.function_of(node));
                let calls: Vec<Option<NodeId>> =
                    mentions.into_iter().map(|name| call_by(code, name)).collect();
                !self.seen.insert(symbol)
                    || calls.into_iter().all(|call| call.is_some_and(|call| self.value(call)))
            }
            _ => by_callback,
        }
    }
}

/// Whether a method changes nothing, and its result has no part of what it is called on.
pub(crate) fn is_answering(method: &str) -> bool {
    ANSWERING.contains(&method)
}

/// Whether it is known what a method does.
pub(crate) fn is_known(method: &str) -> bool {
    ANSWERING.contains(&method)
        || SHARING.contains(&method)
        || CHANGING.contains(&method)
        || VISITING.contains(&method)
}
