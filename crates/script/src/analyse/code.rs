//! The tree as the analyses walk it: by parents, by extents, and by the functions that code stands in.
//!
//! Numbers of nodes grow in the order of the text, so what stands within a node is a range of numbers.

use std::collections::HashMap;
use std::ops::Range;

use oxc_ast::AstKind;
use oxc_ast::ast::{Argument, CallExpression, Expression, Function};
use oxc_semantic::{NodeId, Semantic};
use oxc_span::{GetSpan, Span};
use oxc_syntax::reference::Reference;
use oxc_syntax::symbol::SymbolId;

use crate::parse::{Parsed, Tree};
use crate::syntax::{Construct, ConstructId, ConstructKind};

/// An index into `Code::functions`; 0 is the file.
pub(crate) type FunctionId = usize;

/// A text with its tree.
pub(crate) struct Code<'p, 'a> {
    pub(crate) parsed: &'p Parsed<'a>,
    pub(crate) semantic: &'p Semantic<'a>,
    pub(crate) functions: Vec<Routine>,
    /// The function that a symbol always is.
    pub(crate) named: HashMap<SymbolId, FunctionId>,
    /// The node of each construct's statement.
    pub(crate) statements: Vec<NodeId>,
    constructs: HashMap<NodeId, ConstructId>,
    /// Behind the last node within each.
    ends: Vec<usize>,
    /// The innermost function that each node stands in; a function's own node stands outside of it.
    within: Vec<FunctionId>,
}

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

impl<'p, 'a> Code<'p, 'a> {
    pub(crate) fn new(parsed: &'p Parsed<'a>, tree: &'p Tree<'a>) -> Self {
        let semantic = &tree.semantic;
        let count = semantic.nodes().len();
        let mut code = Self {
            parsed,
            semantic,
            functions: Vec::new(),
            named: HashMap::new(),
            statements: vec![NodeId::ROOT; parsed.syntax.constructs.len()],
            constructs: HashMap::new(),
            ends: (1..=count).collect(),
            within: vec![0; count],
        };
        code.measure();
        code.find_constructs();
        code.find_functions();
        code
    }

    fn measure(&mut self) {
        for index in (1..self.ends.len()).rev() {
            let parent = self.parent(NodeId::from_usize(index)).index();
            self.ends[parent] = self.ends[parent].max(self.ends[index]);
        }
    }

    fn find_constructs(&mut self) {
        for node in self.semantic.nodes().iter() {
            if !node.kind().is_statement() && !matches!(node.kind(), AstKind::VariableDeclaration(_)) {
                continue;
            }
            let Some((id, construct)) = self.parsed.syntax.at(node.kind().span().start) else { continue };
            // The first is the outermost: a `pfor` without braces begins with its own statement, not the body's.
            if self.statements[id] == NodeId::ROOT && stands_for(node.kind(), construct) {
                self.statements[id] = node.id();
                self.constructs.insert(node.id(), id);
            }
        }
    }

    fn find_functions(&mut self) {
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

    pub(crate) fn kind(&self, node: NodeId) -> AstKind<'a> {
        self.semantic.nodes().kind(node)
    }

    pub(crate) fn span(&self, node: NodeId) -> Span {
        self.kind(node).span()
    }

    pub(crate) fn parent(&self, node: NodeId) -> NodeId {
        self.semantic.nodes().parent_id(node)
    }

    /// A node's parents, from the inside.
    pub(crate) fn ancestors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.semantic.nodes().ancestor_ids(node)
    }

    /// All nodes within one, with it.
    pub(crate) fn inside(&self, node: NodeId) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (node.index()..self.ends[node.index()]).map(NodeId::from_usize)
    }

    /// All nodes within one, without these and what stands in them. They are in the order of the text, and none stands
    /// in another.
    pub(crate) fn inside_without<'w>(
        &'w self,
        node: NodeId,
        without: &'w [NodeId],
    ) -> impl Iterator<Item = NodeId> + 'w {
        let (mut out, mut at, end) = (without.iter(), node.index(), self.ends[node.index()]);
        let mut next = out.next();
        std::iter::from_fn(move || {
            while next.is_some_and(|next| next.index() <= at) {
                at = next.map_or(at, |next| at.max(self.ends[next.index()]));
                next = out.next();
            }
            at += 1;
            (at <= end).then(|| NodeId::from_usize(at - 1))
        })
    }

    /// Those of some nodes that stand in no other, in the order of the text.
    pub(crate) fn outermost(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let mut sorted = nodes.to_vec();
        sorted.sort_unstable();
        let mut end = 0;
        sorted.retain(|node| {
            let is_outermost = node.index() >= end;
            end = end.max(self.ends[node.index()]);
            is_outermost
        });
        sorted
    }

    /// Whether a node is `outer` or stands in it.
    pub(crate) fn is_inside(&self, node: NodeId, outer: NodeId) -> bool {
        (outer.index()..self.ends[outer.index()]).contains(&node.index())
    }

    /// The order in which calls are made: what stands in a call comes before it.
    pub(crate) fn order(&self, node: NodeId) -> (usize, std::cmp::Reverse<usize>) {
        (self.ends[node.index()], std::cmp::Reverse(node.index()))
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

    /// The service that a node stands in.
    pub(crate) fn service_of(&self, node: NodeId) -> Option<ConstructId> {
        self.functions_around(self.function_of(node)).find_map(|id| match self.functions[id].role {
            Role::Service(construct) => Some(construct),
            _ => None,
        })
    }

    pub(crate) fn construct(&self, id: ConstructId) -> &'p Construct {
        &self.parsed.syntax.constructs[id]
    }

    /// The construct that a statement stands for.
    pub(crate) fn construct_at(&self, node: NodeId) -> Option<ConstructId> {
        self.constructs.get(&node).copied()
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

    /// A place of the tree in the S text.
    pub(crate) fn source(&self, span: Span) -> Range<usize> {
        let start = self.parsed.map.to_source(span.start as usize);
        let end =
            if span.end > span.start { self.parsed.map.to_source(span.end as usize - 1) + 1 } else { start };
        // The last character may be of several bytes.
        let end = (end..self.parsed.source.len())
            .find(|at| self.parsed.source.is_char_boundary(*at))
            .unwrap_or(self.parsed.source.len());
        start..end.max(start)
    }

    /// A node in the S text.
    pub(crate) fn place(&self, node: NodeId) -> Range<usize> {
        self.source(self.span(node))
    }

    /// What stands at a place of the S text.
    pub(crate) fn text(&self, range: Range<usize>) -> &'a str {
        self.parsed.source.get(range).unwrap_or("")
    }

    /// A node's text in the S file.
    pub(crate) fn text_of(&self, node: NodeId) -> &'a str {
        self.text(self.place(node))
    }

    /// Where in S the comma of a gap between two parts of a list stands.
    pub(crate) fn comma(&self, gap: Range<u32>) -> Option<usize> {
        let is_comma = |at: &u32| self.parsed.encoded.as_bytes().get(*at as usize) == Some(&b',');
        let mut commas = gap.filter(is_comma).filter(|at| !self.semantic.is_inside_comment(*at));
        commas.next().map(|at| self.parsed.map.to_source(at as usize))
    }

    /// The outermost of the parentheses around an expression, or itself.
    pub(crate) fn past_parentheses(&self, mut node: NodeId) -> NodeId {
        while matches!(self.kind(self.parent(node)), AstKind::ParenthesizedExpression(_)) {
            node = self.parent(node);
        }
        node
    }

    pub(crate) fn name(&self, symbol: SymbolId) -> &'p str {
        self.semantic.scoping().symbol_name(symbol)
    }

    /// The symbol that an identifier is.
    pub(crate) fn symbol(&self, node: NodeId) -> Option<SymbolId> {
        match self.kind(node) {
            AstKind::IdentifierReference(name) => {
                self.semantic.scoping().get_reference(name.reference_id.get()?).symbol_id()
            }
            AstKind::BindingIdentifier(name) => name.symbol_id.get(),
            _ => None,
        }
    }

    /// The reference that an identifier is.
    pub(crate) fn reference(&self, node: NodeId) -> Option<&Reference> {
        let AstKind::IdentifierReference(name) = self.kind(node) else { return None };
        Some(self.semantic.scoping().get_reference(name.reference_id.get()?))
    }

    /// Where a symbol is used.
    pub(crate) fn uses(&self, symbol: SymbolId) -> impl Iterator<Item = &Reference> + '_ {
        self.semantic.symbol_references(symbol)
    }

    /// The name that declares a symbol, in S.
    pub(crate) fn declared(&self, symbol: SymbolId) -> Range<usize> {
        self.source(self.semantic.scoping().symbol_span(symbol))
    }

    /// The node that declares a symbol.
    pub(crate) fn declaration(&self, symbol: SymbolId) -> NodeId {
        self.semantic.scoping().symbol_declaration(symbol)
    }

    /// The function whose call this is, by its name.
    pub(crate) fn callee(&self, call: &CallExpression<'a>) -> Option<FunctionId> {
        self.named.get(&identifier(self, &call.callee)?).copied()
    }
}

/// The symbol that an expression names.
pub(crate) fn identifier(code: &Code<'_, '_>, expression: &Expression<'_>) -> Option<SymbolId> {
    let Expression::Identifier(name) = expression.get_inner_expression() else { return None };
    code.semantic.scoping().get_reference(name.reference_id.get()?).symbol_id()
}

/// The expression of an argument, without `...`.
pub(crate) fn plain<'b, 'a>(argument: &'b Argument<'a>) -> Option<&'b Expression<'a>> {
    argument.as_expression()
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

fn stands_for(kind: AstKind<'_>, construct: &Construct) -> bool {
    match construct.kind {
        ConstructKind::Service { .. } | ConstructKind::Res { .. } | ConstructKind::On { .. } => {
            matches!(kind, AstKind::ExpressionStatement(_))
        }
        ConstructKind::State { .. } | ConstructKind::External { .. } => {
            matches!(kind, AstKind::VariableDeclaration(_))
        }
        ConstructKind::Respond { .. } => matches!(kind, AstKind::ThrowStatement(_)),
        ConstructKind::Par => matches!(kind, AstKind::BlockStatement(_)),
        ConstructKind::Pfor { .. } => matches!(kind, AstKind::ForInStatement(_)),
    }
}
