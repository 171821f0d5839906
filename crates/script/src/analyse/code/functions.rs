//! The functions of a text: what each stands for, who calls it, and which one a node belongs to.

use oxc_ast::AstKind;
use oxc_ast::ast::{CallExpression, Function};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::reference::Reference;
use oxc_syntax::symbol::SymbolId;

use super::{Code, FunctionId, identifier};
use crate::syntax::{ConstructId, ConstructKind};

/// A function, or what else has code of its own.
#[derive(Debug)]
pub(crate) struct Routine {
    pub(crate) node: NodeId,
    pub(crate) parent: FunctionId,
    pub(crate) role: Role,
    /// Marked so by the author.
    pub(crate) is_async: bool,
    /// How its callers are known.
    pub(crate) called: Called,
}

/// What a function stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    File,
    Service(ConstructId),
    Resource(ConstructId),
    Handler(ConstructId),
    Plain,
}

/// Who calls a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// Code that names it; it is never assigned to.
    ByName(SymbolId),
    /// What stands around it, where it stands.
    AtOnce,
    /// Somebody: it is a callback, a method, or kept in a variable.
    Unknown,
    /// Nobody can wait for it: a generator, getter, setter, constructor, or a class's field.
    Never,
}

impl<'a> Code<'_, 'a> {
    pub(super) fn find_functions(&mut self) {
        let file = Routine {
            node: NodeId::ROOT,
            parent: 0,
            role: Role::File,
            is_async: true,
            called: Called::AtOnce,
        };
        self.functions.push(file);
        for index in 1..self.ends.len() {
            let node = NodeId::from_usize(index);
            let parent_node = self.parent(node);
            let parent = self.entered(parent_node);
            self.within[index] = parent;
            if is_routine(self.kind(node)) {
                let routine = self.routine(node, parent);
                self.functions.push(routine);
            }
        }
        for id in 1..self.functions.len() {
            if let Called::ByName(symbol) = self.functions[id].called {
                self.named.insert(symbol, id);
            }
        }
    }

    /// The function that a node opens, or else the one that it stands in.
    fn entered(&self, node: NodeId) -> FunctionId {
        let opened = is_routine(self.kind(node)).then(|| self.function_at(node)).flatten();
        opened.unwrap_or_else(|| self.within[node.index()])
    }

    fn routine(&self, node: NodeId, parent: FunctionId) -> Routine {
        let role = self.role(node);
        let (is_async, is_generator) = match self.kind(node) {
            AstKind::Function(function) => (function.r#async, function.generator),
            AstKind::ArrowFunctionExpression(arrow) => (arrow.r#async, false),
            _ => (false, true),
        };
        let called = match role {
            Role::Plain if is_generator => Called::Never,
            Role::Plain => self.called(node),
            _ => Called::AtOnce,
        };
        Routine { node, parent, role, is_async: is_async && role == Role::Plain, called }
    }

    fn role(&self, node: NodeId) -> Role {
        let mut statement = self.parent(node);
        while matches!(self.kind(statement), AstKind::UnaryExpression(_) | AstKind::ArrayExpression(_)) {
            statement = self.parent(statement);
        }
        let Some(id) = self.construct_at(statement) else { return Role::Plain };
        match self.construct(id).kind {
            ConstructKind::Service { .. } => Role::Service(id),
            // The path may have a function of its own in it.
            ConstructKind::Res { .. } if self.is_in_path(node, id) => Role::Plain,
            ConstructKind::Res { .. } => Role::Resource(id),
            ConstructKind::On { .. } => Role::Handler(id),
            _ => Role::Plain,
        }
    }

    fn is_in_path(&self, node: NodeId, resource: ConstructId) -> bool {
        let ConstructKind::Res { path, .. } = &self.construct(resource).kind else { return false };
        self.source(self.span(node)).start < path.end
    }

    fn called(&self, node: NodeId) -> Called {
        let kind = self.kind(node);
        if let AstKind::Function(Function { id: Some(id), .. }) = kind
            && kind.is_declaration()
        {
            return id.symbol_id.get().map_or(Called::Unknown, |symbol| self.by_name(symbol));
        }
        let outer = self.past_parentheses(node);
        match self.kind(self.parent(outer)) {
            AstKind::VariableDeclarator(declarator) => {
                let symbol = declarator.id.get_binding_identifier().and_then(|id| id.symbol_id.get());
                symbol.map_or(Called::Unknown, |symbol| self.by_name(symbol))
            }
            AstKind::CallExpression(call) if call.callee.span() == self.span(outer) => Called::AtOnce,
            AstKind::MethodDefinition(method)
                if method.kind != oxc_ast::ast::MethodDefinitionKind::Method =>
            {
                Called::Never
            }
            AstKind::ObjectProperty(property) if property.kind != oxc_ast::ast::PropertyKind::Init => {
                Called::Never
            }
            _ => Called::Unknown,
        }
    }

    /// A function that can be replaced is not known by its name.
    fn by_name(&self, symbol: SymbolId) -> Called {
        let scoping = self.semantic.scoping();
        let is_replaced =
            scoping.symbol_is_mutated(symbol) || !scoping.symbol_redeclarations(symbol).is_empty();
        if is_replaced { Called::Unknown } else { Called::ByName(symbol) }
    }

    /// The innermost function that a node stands in.
    pub(crate) fn function_of(&self, node: NodeId) -> FunctionId {
        self.within[node.index()]
    }

    /// The function whose node this is.
    pub(crate) fn function_at(&self, node: NodeId) -> Option<FunctionId> {
        self.functions.binary_search_by_key(&node, |function| function.node).ok()
    }

    /// The function that a node's code is run by as seen from callers: callbacks belong to those who pass them.
    pub(crate) fn home(&self, node: NodeId) -> FunctionId {
        self.home_of(self.function_of(node))
    }

    /// The same for a function.
    pub(crate) fn home_of(&self, mut function: FunctionId) -> FunctionId {
        while self.functions[function].role == Role::Plain
            && !matches!(self.functions[function].called, Called::ByName(_))
        {
            function = self.functions[function].parent;
        }
        function
    }

    /// The functions around one, from itself.
    pub(crate) fn functions_around(&self, function: FunctionId) -> impl Iterator<Item = FunctionId> + '_ {
        std::iter::successors(Some(function), |id| (*id != 0).then(|| self.functions[*id].parent))
    }

    /// Where a function names its `arguments`, in functions with `=>` too.
    pub(crate) fn arguments_of(&self, function: FunctionId) -> Vec<NodeId> {
        let is_arrow = |id: &FunctionId| {
            matches!(self.kind(self.functions[*id].node), AstKind::ArrowFunctionExpression(_))
        };
        let is_its = |node: &NodeId| {
            let mut around = self.functions_around(self.function_of(*node));
            matches!(self.kind(*node), AstKind::IdentifierReference(name) if name.name == "arguments")
                && around.find(|id| !is_arrow(id)) == Some(function)
        };
        self.inside(self.functions[function].node).filter(is_its).collect()
    }

    /// The handler that a node stands in.
    pub(crate) fn handler_of(&self, node: NodeId) -> Option<ConstructId> {
        self.functions_around(self.function_of(node)).find_map(|id| match self.functions[id].role {
            Role::Handler(construct) => Some(construct),
            _ => None,
        })
    }

    /// The handler that a node is emitted in. There is none for code in a resource's block, even if a handler declares the
    /// resource.
    pub(crate) fn own_handler_of(&self, node: NodeId) -> Option<ConstructId> {
        let mut roles = self.functions_around(self.function_of(node)).map(|id| self.functions[id].role);
        match roles.find(|role| *role != Role::Plain)? {
            Role::Handler(construct) => Some(construct),
            _ => None,
        }
    }

    /// Uses of a function's name: of its variable, and of a function expression's own name within it.
    pub(crate) fn mentions(&self, function: FunctionId) -> Vec<NodeId> {
        let routine = &self.functions[function];
        let variable = match routine.called {
            Called::ByName(symbol) => Some(symbol),
            _ => None,
        };
        let own = match self.kind(routine.node) {
            AstKind::Function(it) => it.id.as_ref().and_then(|id| id.symbol_id.get()),
            _ => None,
        };
        let symbols = variable.into_iter().chain(own.filter(|own| Some(*own) != variable));
        symbols.flat_map(|symbol| self.uses(symbol)).map(Reference::node_id).collect()
    }

    /// The service that a node stands in.
    pub(crate) fn service_of(&self, node: NodeId) -> Option<ConstructId> {
        self.functions_around(self.function_of(node)).find_map(|id| match self.functions[id].role {
            Role::Service(construct) => Some(construct),
            _ => None,
        })
    }

    /// The function that stands for a service, a resource or a handler.
    pub(crate) fn function_for(&self, construct: ConstructId) -> Option<FunctionId> {
        let statement = self.statements[construct];
        let is_its = |id: &FunctionId| match self.functions[*id].role {
            Role::Service(it) | Role::Resource(it) | Role::Handler(it) => it == construct,
            _ => false,
        };
        self.inside(statement).filter_map(|node| self.function_at(node)).find(is_its)
    }

    /// The function whose call this is, by its name.
    pub(crate) fn callee(&self, call: &CallExpression<'a>) -> Option<FunctionId> {
        self.named.get(&identifier(self, &call.callee)?).copied()
    }
}

/// Whether a node has code of its own.
fn is_routine(kind: AstKind<'_>) -> bool {
    matches!(
        kind,
        AstKind::Function(_)
            | AstKind::ArrowFunctionExpression(_)
            | AstKind::StaticBlock(_)
            | AstKind::PropertyDefinition(_)
            | AstKind::AccessorProperty(_)
    )
}
