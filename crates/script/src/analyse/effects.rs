//! The effects of code: the variables, their contents, the resources and the response that it reads and
//! writes. Two pieces of code without a common location, or that only read the common ones, can be reordered
//! (rules 18, 19).

use std::collections::{BTreeMap, BTreeSet};

use oxc_ast::AstKind;
use oxc_ast::ast::{CallExpression, Expression};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::symbol::SymbolId;

use super::ScriptAnalysis;
use super::builtins::{BuiltinFunction, PURE_FUNCTIONS, is_known_method};
use super::calls::WaitOperation;
use super::code::{CodeText, FunctionId, argument_expression, identifier_symbol};
use super::flow::{member_access, root_variables};
use super::names::SymbolMeaning;
use crate::method::HandlerMethod;

/// A location that code can depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EffectLocation {
    /// A variable.
    Variable(SymbolId),
    /// The contents of a variable, and of all variables that may share them.
    Content(SymbolId),
    /// The data behind a resource: GET reads it, POST changes it.
    Resource(SymbolId),
    /// The result of a call that is stored for a later unit.
    Result(NodeId),
    /// The response.
    Response,
}

/// The effects of a piece of code.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodeEffects {
    pub(crate) reads: BTreeSet<EffectLocation>,
    pub(crate) writes: BTreeSet<EffectLocation>,
    /// The number of waits.
    pub(crate) io: usize,
    /// Whether it has to run after all code before it.
    pub(crate) barrier: bool,
    /// Whether it must also complete before all later code: it may leave the block, or declare a resource
    /// that later calls may reach.
    pub(crate) full_barrier: bool,
}

impl CodeEffects {
    /// Returns the location that forces `later` to wait for this code, if there is one.
    pub(crate) fn conflict(&self, effects: &Self) -> Option<EffectLocation> {
        let mut both =
            self.writes.iter().filter(|it| effects.reads.contains(it) || effects.writes.contains(it));
        both.next().or_else(|| self.reads.iter().find(|it| effects.writes.contains(it))).copied()
    }

    /// Adds the effects of other code. Returns whether that changed anything.
    fn merge_effects(&mut self, other: &Self) -> bool {
        let size = |it: &Self| (it.reads.len(), it.writes.len(), it.barrier, it.full_barrier);
        let before = size(self);
        self.reads.extend(&other.reads);
        self.writes.extend(&other.writes);
        self.barrier |= other.barrier;
        self.full_barrier |= other.full_barrier;
        size(self) != before
    }
}

/// Determines the effects of code.
pub(crate) struct EffectAnalyzer<'o, 'p, 'a> {
    analysis: &'o ScriptAnalysis<'p, 'a>,
    /// The union-find parents of variables that may be aliases.
    alias_parents: BTreeMap<SymbolId, SymbolId>,
    /// The effects of functions on variables outside of them, including those of their callees.
    functions: BTreeMap<FunctionId, CodeEffects>,
}

impl<'o, 'p, 'a> EffectAnalyzer<'o, 'p, 'a> {
    pub(crate) fn new(it: &'o ScriptAnalysis<'p, 'a>) -> Self {
        let mut observer = Self { analysis: it, alias_parents: BTreeMap::new(), functions: BTreeMap::new() };
        for (a, b) in it.flow.alias_pairs() {
            let (a, b) = (observer.representative(a), observer.representative(b));
            if a != b {
                observer.alias_parents.insert(a.max(b), a.min(b));
            }
        }
        observer.functions = observer.function_effects();
        observer
    }

    /// Returns the effects of a node, excluding the nodes in `without`, whose results it reads.
    pub(crate) fn effects(&self, node: NodeId, without: &[NodeId]) -> CodeEffects {
        let without = self.code().outermost_nodes(without);
        let mut effects = self.own_effects(node, &without);
        let names = self.code().subtree_excluding(node, &without);
        for name in names.filter(|it| matches!(self.code().kind(*it), AstKind::IdentifierReference(_))) {
            let function =
                self.code().symbol(name).and_then(|symbol| self.code().functions_by_symbol.get(&symbol));
            if let Some(it) = function.and_then(|function| self.functions.get(function)) {
                // A function with side effects must keep its place.
                effects.barrier |= !it.writes.is_empty();
                effects.merge_effects(it);
            }
        }
        effects.reads.extend(without.into_iter().map(EffectLocation::Result));
        effects
    }

    /// Returns the representative of all variables that may share a part of this variable's value.
    pub(crate) fn representative(&self, mut symbol: SymbolId) -> SymbolId {
        while let Some(next) = self.alias_parents.get(&symbol) {
            symbol = *next;
        }
        symbol
    }

    fn code(&self) -> &'o CodeText<'p, 'a> {
        &self.analysis.code
    }

    /// Returns each function's effects on locations outside of it, including those of its callees, up to a
    /// fixed point.
    fn function_effects(&self) -> BTreeMap<FunctionId, CodeEffects> {
        let mut all: BTreeMap<FunctionId, CodeEffects> = self
            .code()
            .functions_by_symbol
            .values()
            .map(|function| (*function, self.external_effects(*function)))
            .collect();
        let mut callers: BTreeMap<FunctionId, Vec<FunctionId>> = BTreeMap::new();
        for caller in all.keys() {
            for (used, _) in self.analysis.state_accesses.referenced_functions(*caller) {
                callers.entry(*used).or_default().push(*caller);
            }
        }
        let mut next: Vec<FunctionId> = all.keys().copied().collect();
        while let Some(function) = next.pop() {
            let Some(effects) = all.get(&function).cloned() else { continue };
            for caller in callers.get(&function).into_iter().flatten() {
                let changed = all.get_mut(caller).is_some_and(|it| it.merge_effects(&effects));
                next.extend(changed.then_some(*caller));
            }
        }
        all
    }

    fn external_effects(&self, function: FunctionId) -> CodeEffects {
        let node = self.code().functions[function].node;
        let mut effects = self.own_effects(node, &[]);
        let is_outside = |location: &EffectLocation| match location {
            EffectLocation::Variable(symbol) | EffectLocation::Resource(symbol) => {
                !self.code().is_inside(self.code().declaration(*symbol), node)
            }
            EffectLocation::Content(symbol) => {
                let inside = |it: SymbolId| self.code().is_inside(self.code().declaration(it), node);
                !self.analysis.sharing.alias_class(*symbol).into_iter().all(inside)
            }
            _ => true,
        };
        effects.reads.retain(|it| is_outside(it));
        effects.writes.retain(|it| is_outside(it));
        // Jumps and responses are effects within the function itself.
        (effects.full_barrier, effects.barrier) = (false, false);
        effects
    }

    /// Returns the effects of a node without those of the functions that it calls. `without` is in source
    /// order.
    fn own_effects(&self, node: NodeId, without: &[NodeId]) -> CodeEffects {
        let code = self.code();
        let mut effects = CodeEffects::default();
        let is_out = |it: NodeId| {
            let before = without.partition_point(|out| *out <= it);
            before.checked_sub(1).is_some_and(|last| code.is_inside(it, without[last]))
        };
        for inner in code.subtree_excluding(node, without) {
            self.visit_node(inner, node, &mut effects);
        }
        for change in self.analysis.flow.changes_in(code, node).filter(|it| !is_out(it.node)) {
            let location = if change.is_assignment {
                EffectLocation::Variable(change.symbol)
            } else {
                EffectLocation::Content(self.analysis.sharing.representative(change.symbol))
            };
            effects.writes.insert(location);
        }
        let waits = self.analysis.calls.waits.range(node..).take_while(|(it, _)| code.is_inside(**it, node));
        for (inner, wait) in waits.filter(|(it, _)| !is_out(**it)) {
            effects.io += usize::from(code.enclosing_function(*inner) == code.enclosing_function(node));
            match wait {
                WaitOperation::Resource { symbol, method, .. } => {
                    let location = EffectLocation::Resource(*symbol);
                    let safe =
                        matches!(method, HandlerMethod::Get | HandlerMethod::Head | HandlerMethod::Options);
                    if safe {
                        effects.reads.insert(location)
                    } else {
                        effects.writes.insert(location)
                    };
                }
                WaitOperation::Declare(_) => effects.full_barrier = true,
                WaitOperation::Await => effects.barrier = true,
                WaitOperation::Function(_) => {}
            }
        }
        effects
    }

    fn visit_node(&self, inner: NodeId, node: NodeId, effects: &mut CodeEffects) {
        let code = self.code();
        match code.kind(inner) {
            AstKind::IdentifierReference(_) => {
                let reads = code.reference(inner).is_some_and(|reference| reference.is_read());
                let Some(symbol) = code.symbol(inner).filter(|_| reads) else { return };
                // A function declaration is initialised from the beginning and never changes.
                let is_function = matches!(code.kind(code.declaration(symbol)), AstKind::Function(_));
                if is_function && code.functions_by_symbol.contains_key(&symbol) {
                    return;
                }
                if self.analysis.names.external(symbol).is_none() || code.declaration(symbol) != inner {
                    effects.reads.insert(EffectLocation::Variable(symbol));
                    effects
                        .reads
                        .insert(EffectLocation::Content(self.analysis.sharing.representative(symbol)));
                }
            }
            AstKind::BindingIdentifier(_) => {
                let symbol = code.symbol(inner);
                effects.writes.extend(symbol.map(EffectLocation::Variable));
            }
            AstKind::ThrowStatement(_) if code.is_respond(inner) => {
                effects.barrier = true;
                effects.writes.insert(EffectLocation::Response);
            }
            AstKind::ThrowStatement(_) => {
                effects.full_barrier |= code.enclosing_function(inner) == code.enclosing_function(node);
            }
            AstKind::ReturnStatement(_) | AstKind::BreakStatement(_) | AstKind::ContinueStatement(_) => {
                effects.full_barrier |= code.enclosing_function(inner) == code.enclosing_function(node)
                    && jumps_out_of(code, inner, node);
            }
            AstKind::CallExpression(call) => self.add_call_effects(call, effects),
            AstKind::NewExpression(new) => {
                let made = code.source_text(code.source_range(new.callee.span()));
                if !BuiltinFunction::is_constructor(made) {
                    self.add_unknown_call(new.arguments.iter().filter_map(argument_expression), effects);
                }
            }
            AstKind::TaggedTemplateExpression(_) | AstKind::YieldExpression(_) => effects.barrier = true,
            // `using` disposes its variables at the end of the block.
            AstKind::VariableDeclaration(declaration) if inner == node => {
                effects.full_barrier |= declaration.kind.is_using();
            }
            _ => {}
        }
    }

    /// Adds the effects of a call. An unknown function may change its arguments.
    fn add_call_effects(&self, call: &CallExpression<'a>, effects: &mut CodeEffects) {
        let code = self.code();
        if code.callee(call).is_some() || call.callee.get_inner_expression().is_function() {
            return;
        }
        let arguments = call.arguments.iter().filter_map(argument_expression);
        if let Some((object, method)) = member_access(&call.callee) {
            let symbol = identifier_symbol(code, object);
            if symbol.is_some_and(|symbol| self.analysis.names.external(symbol).is_some())
                || is_known_method(method)
            {
                return;
            }
            let callee = code.source_text(code.source_range(call.callee.span()));
            if PURE_FUNCTIONS.contains(&callee)
                || callee.starts_with("Math.")
                || callee.starts_with("Object.")
            {
                return;
            }
            return self.add_unknown_call(arguments.chain([object]), effects);
        }
        let name = code.source_text(code.source_range(call.callee.span()));
        // `eval` can have any effect.
        effects.full_barrier |= name == "eval";
        if !PURE_FUNCTIONS.contains(&name) {
            self.add_unknown_call(arguments, effects);
        }
    }

    fn add_unknown_call<'e>(&self, given: impl Iterator<Item = &'e Expression<'a>>, effects: &mut CodeEffects)
    where
        'a: 'e,
    {
        let code = self.code();
        for expression in given {
            for root in root_variables(code, expression) {
                // The request's parameters are text and contain no functions.
                if matches!(self.analysis.names.symbol_meaning(root.symbol), Some(SymbolMeaning::Query)) {
                    continue;
                }
                effects.barrier = true;
                effects
                    .writes
                    .insert(EffectLocation::Content(self.analysis.sharing.representative(root.symbol)));
            }
        }
    }
}

/// Whether a `return`, `break` or `continue` within a node continues outside of it.
pub(crate) fn jumps_out_of(code: &CodeText<'_, '_>, jump: NodeId, node: NodeId) -> bool {
    jump_target(code, jump).is_none_or(|target| !code.is_inside(target, node))
}

/// Returns the statement that a `break` or `continue` refers to, or `None` for `return`.
pub(crate) fn jump_target(code: &CodeText<'_, '_>, jump: NodeId) -> Option<NodeId> {
    let (label, is_break) = match code.kind(jump) {
        AstKind::BreakStatement(it) => (it.label.as_ref(), true),
        AstKind::ContinueStatement(it) => (it.label.as_ref(), false),
        _ => return None,
    };
    code.ancestors(jump).find(|it| match (label, code.kind(*it)) {
        (Some(label), AstKind::LabeledStatement(labelled)) => labelled.label.name == label.name,
        (Some(_), _) => false,
        (None, AstKind::SwitchStatement(_)) => is_break,
        (None, kind) => kind.is_iteration_statement(),
    })
}
