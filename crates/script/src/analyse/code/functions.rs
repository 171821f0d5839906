//! The functions of a text: the role of each, its callers, and the functions that contain a node.

use oxc_ast::AstKind;
use oxc_ast::ast::{CallExpression, Function};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::reference::Reference;
use oxc_syntax::symbol::SymbolId;

use super::{CodeText, FunctionId, identifier_symbol};
use crate::syntax::{ConstructId, ConstructKind};

/// A function, or another node with code of its own.
#[derive(Debug)]
pub(crate) struct CodeFunction {
    pub(crate) node: NodeId,
    pub(crate) parent: FunctionId,
    pub(crate) role: FunctionRole,
    /// Whether the author declared it `async`.
    pub(crate) is_async: bool,
    /// The way in which callers refer to it.
    pub(crate) call_form: CallForm,
}

/// The construct that a function represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionRole {
    File,
    Service(ConstructId),
    Resource(ConstructId),
    Handler(ConstructId),
    Plain,
}

/// The way in which a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallForm {
    /// By its name. The name is never assigned to.
    ByName(SymbolId),
    /// By the enclosing code, in place.
    InPlace,
    /// By unknown callers: it is a callback, a method, or stored in a variable.
    Unknown,
    /// By callers that cannot wait for it: a generator, getter, setter, constructor, or a field of a class.
    CannotWait,
}

impl<'a> CodeText<'_, 'a> {
    pub(super) fn find_functions(&mut self) {
        let file = CodeFunction {
            node: NodeId::ROOT,
            parent: 0,
            role: FunctionRole::File,
            is_async: true,
            call_form: CallForm::InPlace,
        };
        self.functions.push(file);
        for index in 1..self.ends.len() {
            let node = NodeId::from_usize(index);
            let parent_node = self.parent(node);
            let parent = self.innermost_function(parent_node);
            self.innermost_functions[index] = parent;
            if has_own_code(self.kind(node)) {
                let routine = self.build_function(node, parent);
                self.functions.push(routine);
            }
        }
        for id in 1..self.functions.len() {
            if let CallForm::ByName(symbol) = self.functions[id].call_form {
                self.functions_by_symbol.insert(symbol, id);
            }
        }
    }

    /// Returns the function of a node, if it is one, otherwise the function that contains it.
    fn innermost_function(&self, node: NodeId) -> FunctionId {
        let opened = has_own_code(self.kind(node)).then(|| self.function_at_node(node)).flatten();
        opened.unwrap_or_else(|| self.innermost_functions[node.index()])
    }

    fn build_function(&self, node: NodeId, parent: FunctionId) -> CodeFunction {
        let role = self.function_role(node);
        let (is_async, is_generator) = match self.kind(node) {
            AstKind::Function(function) => (function.r#async, function.generator),
            AstKind::ArrowFunctionExpression(arrow) => (arrow.r#async, false),
            _ => (false, true),
        };
        let called = match role {
            FunctionRole::Plain if is_generator => CallForm::CannotWait,
            FunctionRole::Plain => self.function_call_form(node),
            _ => CallForm::InPlace,
        };
        CodeFunction {
            node,
            parent,
            role,
            is_async: is_async && role == FunctionRole::Plain,
            call_form: called,
        }
    }

    fn function_role(&self, node: NodeId) -> FunctionRole {
        let mut statement = self.parent(node);
        while matches!(self.kind(statement), AstKind::UnaryExpression(_) | AstKind::ArrayExpression(_)) {
            statement = self.parent(statement);
        }
        let Some(id) = self.construct_at(statement) else { return FunctionRole::Plain };
        match self.construct(id).kind {
            ConstructKind::Service { .. } => FunctionRole::Service(id),
            // The path may contain functions.
            ConstructKind::Res { .. } if self.is_in_resource_path(node, id) => FunctionRole::Plain,
            ConstructKind::Res { .. } => FunctionRole::Resource(id),
            ConstructKind::On { .. } => FunctionRole::Handler(id),
            _ => FunctionRole::Plain,
        }
    }

    fn is_in_resource_path(&self, node: NodeId, resource: ConstructId) -> bool {
        let ConstructKind::Res { path, .. } = &self.construct(resource).kind else { return false };
        self.source_range(self.span(node)).start < path.end
    }

    fn function_call_form(&self, node: NodeId) -> CallForm {
        let kind = self.kind(node);
        if let AstKind::Function(Function { id: Some(id), .. }) = kind
            && kind.is_declaration()
        {
            return id.symbol_id.get().map_or(CallForm::Unknown, |symbol| self.named_call_form(symbol));
        }
        let outer = self.skip_parentheses(node);
        match self.kind(self.parent(outer)) {
            AstKind::VariableDeclarator(declarator) => {
                let symbol = declarator.id.get_binding_identifier().and_then(|id| id.symbol_id.get());
                symbol.map_or(CallForm::Unknown, |symbol| self.named_call_form(symbol))
            }
            AstKind::CallExpression(call) if call.callee.span() == self.span(outer) => CallForm::InPlace,
            AstKind::MethodDefinition(method)
                if method.kind != oxc_ast::ast::MethodDefinitionKind::Method =>
            {
                CallForm::CannotWait
            }
            AstKind::ObjectProperty(property) if property.kind != oxc_ast::ast::PropertyKind::Init => {
                CallForm::CannotWait
            }
            _ => CallForm::Unknown,
        }
    }

    /// Returns how a named function is called. The callers of a function that can be replaced are unknown.
    fn named_call_form(&self, symbol: SymbolId) -> CallForm {
        let scoping = self.semantic.scoping();
        let is_replaced =
            scoping.symbol_is_mutated(symbol) || !scoping.symbol_redeclarations(symbol).is_empty();
        if is_replaced { CallForm::Unknown } else { CallForm::ByName(symbol) }
    }

    /// Returns the innermost function that contains a node.
    pub(crate) fn enclosing_function(&self, node: NodeId) -> FunctionId {
        self.innermost_functions[node.index()]
    }

    /// Returns the function with this node.
    pub(crate) fn function_at_node(&self, node: NodeId) -> Option<FunctionId> {
        self.functions.binary_search_by_key(&node, |function| function.node).ok()
    }

    /// Returns the function that a node belongs to from a caller's view: callbacks belong to the function
    /// that passes them.
    pub(crate) fn owning_function(&self, node: NodeId) -> FunctionId {
        self.function_owner(self.enclosing_function(node))
    }

    /// Returns the function that a function belongs to from a caller's view.
    pub(crate) fn function_owner(&self, mut function: FunctionId) -> FunctionId {
        while self.functions[function].role == FunctionRole::Plain
            && !matches!(self.functions[function].call_form, CallForm::ByName(_))
        {
            function = self.functions[function].parent;
        }
        function
    }

    /// Returns a function and the functions around it, innermost first.
    pub(crate) fn enclosing_functions(&self, function: FunctionId) -> impl Iterator<Item = FunctionId> + '_ {
        std::iter::successors(Some(function), |id| (*id != 0).then(|| self.functions[*id].parent))
    }

    /// Returns the uses of `arguments` in a function, including those in nested arrow functions.
    pub(crate) fn arguments_references(&self, function: FunctionId) -> Vec<NodeId> {
        let is_arrow = |id: &FunctionId| {
            matches!(self.kind(self.functions[*id].node), AstKind::ArrowFunctionExpression(_))
        };
        let is_its = |node: &NodeId| {
            let mut around = self.enclosing_functions(self.enclosing_function(*node));
            matches!(self.kind(*node), AstKind::IdentifierReference(name) if name.name == "arguments")
                && around.find(|id| !is_arrow(id)) == Some(function)
        };
        self.subtree_nodes(self.functions[function].node).filter(is_its).collect()
    }

    /// Returns the handler that contains a node.
    pub(crate) fn enclosing_handler(&self, node: NodeId) -> Option<ConstructId> {
        self.enclosing_functions(self.enclosing_function(node)).find_map(|id| match self.functions[id].role {
            FunctionRole::Handler(construct) => Some(construct),
            _ => None,
        })
    }

    /// Returns the handler whose emitted code contains a node. There is none for code in a resource's block,
    /// even if a handler declares the resource.
    pub(crate) fn emitting_handler(&self, node: NodeId) -> Option<ConstructId> {
        let mut roles =
            self.enclosing_functions(self.enclosing_function(node)).map(|id| self.functions[id].role);
        match roles.find(|role| *role != FunctionRole::Plain)? {
            FunctionRole::Handler(construct) => Some(construct),
            _ => None,
        }
    }

    /// Returns the uses of a function's name: of its variable, and of a function expression's own name within
    /// it.
    pub(crate) fn name_references(&self, function: FunctionId) -> Vec<NodeId> {
        let routine = &self.functions[function];
        let variable = match routine.call_form {
            CallForm::ByName(symbol) => Some(symbol),
            _ => None,
        };
        let own = match self.kind(routine.node) {
            AstKind::Function(it) => it.id.as_ref().and_then(|id| id.symbol_id.get()),
            _ => None,
        };
        let symbols = variable.into_iter().chain(own.filter(|own| Some(*own) != variable));
        symbols.flat_map(|symbol| self.symbol_references(symbol)).map(Reference::node_id).collect()
    }

    /// Returns the service that contains a node.
    pub(crate) fn enclosing_service(&self, node: NodeId) -> Option<ConstructId> {
        self.enclosing_functions(self.enclosing_function(node)).find_map(|id| match self.functions[id].role {
            FunctionRole::Service(construct) => Some(construct),
            _ => None,
        })
    }

    /// Returns the function that represents a service, a resource or a handler.
    pub(crate) fn construct_function(&self, construct: ConstructId) -> Option<FunctionId> {
        let statement = self.statements[construct];
        let is_its = |id: &FunctionId| match self.functions[*id].role {
            FunctionRole::Service(it) | FunctionRole::Resource(it) | FunctionRole::Handler(it) => {
                it == construct
            }
            _ => false,
        };
        self.subtree_nodes(statement).filter_map(|node| self.function_at_node(node)).find(is_its)
    }

    /// Returns the function that a call calls by its name.
    pub(crate) fn callee(&self, call: &CallExpression<'a>) -> Option<FunctionId> {
        self.functions_by_symbol.get(&identifier_symbol(self, &call.callee)?).copied()
    }
}

/// Whether a node has code of its own.
fn has_own_code(kind: AstKind<'_>) -> bool {
    matches!(
        kind,
        AstKind::Function(_)
            | AstKind::ArrowFunctionExpression(_)
            | AstKind::StaticBlock(_)
            | AstKind::PropertyDefinition(_)
            | AstKind::AccessorProperty(_)
    )
}
