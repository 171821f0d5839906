//! Name resolution beyond JavaScript: state, resources, handlers and their parameters.

use std::collections::{BTreeSet, HashMap};

use oxc_ast::AstKind;
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::symbol::SymbolId;

use super::capture::{self, CapturedVariables};
use super::code::{CodeText, FunctionId, FunctionRole, find_node_by_span};
use super::template::UrlPattern;
use crate::method::HandlerMethod;
use crate::program::CellScope;
use crate::syntax::{ConstructId, ConstructKind, ConstructName};

/// The meaning of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolMeaning {
    /// An index into `ScriptSymbols::cells`.
    Cell(usize),
    /// An index into `ScriptSymbols::externals`.
    External(usize),
    Query,
    Response,
}

/// All declarations of S. Indices refer to the whole text. The `number` of an item is its index in its
/// service.
#[derive(Debug, Default)]
pub(crate) struct ScriptSymbols {
    pub(crate) symbol_meanings: HashMap<SymbolId, SymbolMeaning>,
    pub(crate) services: Vec<ServiceSymbol>,
    pub(crate) cells: Vec<CellSymbol>,
    pub(crate) resources: Vec<ResourceSymbol>,
    /// The resource that each `res` declares.
    declarations: HashMap<ConstructId, usize>,
    /// The handlers, in source order.
    pub(crate) handlers: Vec<HandlerSymbol>,
    /// Functions and classes in blocks of nested resources that use variables of an enclosing handler.
    pub(crate) capturing_declarations: BTreeSet<NodeId>,
    pub(crate) externals: Vec<ExternalSymbol>,
}

#[derive(Debug)]
pub(crate) struct ServiceSymbol {
    pub(crate) construct: ConstructId,
    pub(crate) name: String,
    pub(crate) cells: Vec<usize>,
    pub(crate) resources: Vec<usize>,
    pub(crate) handlers: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct CellSymbol {
    pub(crate) construct: ConstructId,
    pub(crate) symbol: SymbolId,
    pub(crate) name: String,
    /// The name in the views of handlers, unique in the service.
    pub(crate) view: String,
    pub(crate) key: String,
    pub(crate) service: usize,
    /// The scope, with indices of the whole text.
    pub(crate) scope: CellScope,
    pub(crate) initial: Option<NodeId>,
    pub(crate) number: usize,
    /// The range of its name in the S text.
    pub(crate) place: std::ops::Range<usize>,
}

#[derive(Debug)]
pub(crate) struct ResourceSymbol {
    /// Its declarations. Several with the same path are one resource.
    pub(crate) constructs: Vec<ConstructId>,
    pub(crate) key: String,
    pub(crate) service: usize,
    pub(crate) literal: Option<String>,
    /// The handler that declares it at runtime.
    pub(crate) parent: Option<usize>,
    pub(crate) captures: CapturedVariables,
    pub(crate) number: usize,
}

#[derive(Debug)]
pub(crate) struct HandlerSymbol {
    pub(crate) construct: ConstructId,
    pub(crate) function: FunctionId,
    pub(crate) method: HandlerMethod,
    pub(crate) resource: usize,
    pub(crate) number: usize,
}

#[derive(Debug)]
pub(crate) struct ExternalSymbol {
    pub(crate) name: String,
    pub(crate) template: UrlPattern,
}

impl ScriptSymbols {
    pub(crate) fn from_code(code: &CodeText<'_, '_>) -> Self {
        let mut names = Self::default();
        names.find_services(code);
        names.find_symbols(code);
        names.capturing_declarations = capture::find_capturing_declarations(code, &names);
        names.find_resources(code);
        names.find_handlers(code);
        names.finish_cells(code);
        names
    }

    pub(crate) fn symbol_meaning(&self, symbol: SymbolId) -> Option<SymbolMeaning> {
        self.symbol_meanings.get(&symbol).copied()
    }

    pub(crate) fn cell(&self, symbol: SymbolId) -> Option<usize> {
        match self.symbol_meaning(symbol)? {
            SymbolMeaning::Cell(cell) => Some(cell),
            _ => None,
        }
    }

    pub(crate) fn external(&self, symbol: SymbolId) -> Option<usize> {
        match self.symbol_meaning(symbol)? {
            SymbolMeaning::External(external) => Some(external),
            _ => None,
        }
    }

    /// Returns the handler of a construct.
    pub(crate) fn handler_at(&self, construct: ConstructId) -> Option<usize> {
        self.handlers.binary_search_by_key(&construct, |handler| handler.construct).ok()
    }

    pub(crate) fn resource_at(&self, construct: ConstructId) -> Option<usize> {
        self.declarations.get(&construct).copied()
    }

    fn find_services(&mut self, code: &CodeText<'_, '_>) {
        for (construct, it) in code.parsed.syntax.constructs.iter().enumerate() {
            if let ConstructKind::Service { name } = &it.kind {
                let name = name.text.clone();
                let (cells, resources, handlers) = Default::default();
                self.services.push(ServiceSymbol { construct, name, cells, resources, handlers });
            }
        }
    }

    fn service_at(&self, construct: ConstructId) -> Option<usize> {
        self.services.binary_search_by_key(&construct, |service| service.construct).ok()
    }

    fn find_symbols(&mut self, code: &CodeText<'_, '_>) {
        for (construct, it) in code.parsed.syntax.constructs.iter().enumerate() {
            match &it.kind {
                ConstructKind::State { names } => {
                    let service = code.enclosing_service(code.statements[construct]);
                    let Some(service) = service.and_then(|it| self.service_at(it)) else { continue };
                    names.iter().for_each(|name| self.add_cell(code, construct, service, name));
                }
                ConstructKind::External { names } => {
                    names.iter().for_each(|name| self.add_external(code, name));
                }
                _ => {}
            }
        }
        for function in &code.functions {
            if matches!(function.role, FunctionRole::Handler(_)) {
                self.add_handler_parameters(code, function.node);
            }
        }
    }

    fn add_handler_parameters(&mut self, code: &CodeText<'_, '_>, node: NodeId) {
        let AstKind::Function(function) = code.kind(node) else { return };
        let things = [SymbolMeaning::Query, SymbolMeaning::Response];
        for (parameter, thing) in function.params.items.iter().zip(things) {
            let symbol = parameter.pattern.get_binding_identifier().and_then(|id| id.symbol_id.get());
            self.symbol_meanings.extend(symbol.map(|symbol| (symbol, thing)));
        }
    }

    fn add_cell(
        &mut self,
        code: &CodeText<'_, '_>,
        construct: ConstructId,
        service: usize,
        name: &ConstructName,
    ) {
        let Some(symbol) = name.symbol else { return };
        let AstKind::VariableDeclarator(declarator) = code.kind(code.declaration(symbol)) else { return };
        let initial = declarator.init.as_ref();
        let initial = initial.and_then(|init| find_node_by_span(code, code.declaration(symbol), init.span()));
        self.symbol_meanings.insert(symbol, SymbolMeaning::Cell(self.cells.len()));
        self.cells.push(CellSymbol {
            construct,
            symbol,
            name: name.text.clone(),
            view: String::new(),
            key: String::new(),
            service,
            scope: CellScope::Service,
            initial,
            number: 0,
            place: name.span.clone(),
        });
    }

    fn add_external(&mut self, code: &CodeText<'_, '_>, name: &ConstructName) {
        let Some(symbol) = name.symbol else { return };
        let AstKind::VariableDeclarator(declarator) = code.kind(code.declaration(symbol)) else { return };
        let Some(init) = &declarator.init else { return };
        let template = UrlPattern::from_expression(code, init);
        self.symbol_meanings.insert(symbol, SymbolMeaning::External(self.externals.len()));
        self.externals.push(ExternalSymbol { name: name.text.clone(), template });
    }

    fn find_resources(&mut self, code: &CodeText<'_, '_>) {
        let mut by_path: HashMap<(usize, String), usize> = HashMap::new();
        for (construct, it) in code.parsed.syntax.constructs.iter().enumerate() {
            let ConstructKind::Res { literal, .. } = &it.kind else { continue };
            let statement = code.statements[construct];
            let Some(service) = code.enclosing_service(statement).and_then(|it| self.service_at(it)) else {
                continue;
            };
            let captured = capture::resource_captures(code, self, construct);
            let is_nested = code.enclosing_handler(statement).is_some();
            let is_static = literal.is_some() && (!is_nested || captured.is_empty());
            let known = literal.as_ref().filter(|_| is_static).map(|path| (service, path.clone()));
            if let Some(resource) = known.as_ref().and_then(|known| by_path.get(known)) {
                self.resources[*resource].constructs.push(construct);
                self.declarations.insert(construct, *resource);
                continue;
            }
            by_path.extend(known.map(|known| (known, self.resources.len())));
            self.declarations.insert(construct, self.resources.len());
            // The construct of the parent. `find_handlers` replaces it by the index of the handler.
            let parent = code.enclosing_handler(statement).filter(|_| !is_static);
            let number = self.services[service].resources.len();
            self.services[service].resources.push(self.resources.len());
            let (constructs, literal) = (vec![construct], literal.clone());
            let key = String::new();
            self.resources.push(ResourceSymbol {
                constructs,
                key,
                service,
                literal,
                parent,
                captures: captured,
                number,
            });
        }
    }

    fn find_handlers(&mut self, code: &CodeText<'_, '_>) {
        for (construct, it) in code.parsed.syntax.constructs.iter().enumerate() {
            let ConstructKind::On { method, .. } = &it.kind else { continue };
            let resource = it.parent.and_then(|parent| self.resource_at(parent));
            let (Some(resource), Some(function)) = (resource, code.construct_function(construct)) else {
                continue;
            };
            let service = self.resources[resource].service;
            let number = self.services[service].handlers.len();
            self.services[service].handlers.push(self.handlers.len());
            self.handlers.push(HandlerSymbol { construct, function, method: *method, resource, number });
        }
        let mut keys = vec![UniqueNames::default(); self.services.len()];
        for index in 0..self.resources.len() {
            self.resources[index].parent =
                self.resources[index].parent.and_then(|parent| self.handler_at(parent));
            let key = self.resource_key(code, index);
            self.resources[index].key = keys[self.resources[index].service].unique_name(key, '#');
        }
    }

    /// Returns the key of a resource: `/data`, or `/start POST > /red/` for one that a handler declares.
    fn resource_key(&self, code: &CodeText<'_, '_>, index: usize) -> String {
        let resource = &self.resources[index];
        let path = resource.literal.clone().unwrap_or_else(|| {
            let statement = code.statements[resource.constructs[0]];
            let strings = code.subtree_nodes(statement).map(|node| code.kind(node));
            let first =
                strings.take_while(|kind| !matches!(kind, AstKind::Function(_))).find_map(
                    |kind| match kind {
                        AstKind::StringLiteral(text) => Some(text.value.to_string()),
                        AstKind::TemplateElement(text) => Some(text.value.raw.to_string()),
                        _ => None,
                    },
                );
            first.unwrap_or_default()
        });
        let Some(parent) = resource.parent else { return path };
        format!("{} > {path}", self.handler_key(parent))
    }

    fn handler_key(&self, handler: usize) -> String {
        let handler = &self.handlers[handler];
        format!("{} {}", self.resources[handler.resource].key, handler.method.as_str())
    }

    fn finish_cells(&mut self, code: &CodeText<'_, '_>) {
        let (mut views, mut keys) = (
            vec![UniqueNames::default(); self.services.len()],
            vec![UniqueNames::default(); self.services.len()],
        );
        for index in 0..self.cells.len() {
            let around = code.construct(self.cells[index].construct).parent;
            let statement = code.statements[self.cells[index].construct];
            let scope = match (code.emitting_handler(statement), around) {
                (Some(handler), _) => self.handler_at(handler).map(CellScope::Handler),
                (_, Some(around)) => self.resource_at(around).map(CellScope::Resource),
                _ => None,
            };
            let (service, name) = (self.cells[index].service, self.cells[index].name.clone());
            let scope = scope.unwrap_or(CellScope::Service);
            let key = match scope {
                CellScope::Service => name.clone(),
                CellScope::Resource(resource) => format!("{} {name}", self.resources[resource].key),
                CellScope::Handler(handler) => format!("{} {name}", self.handler_key(handler)),
            };
            let number = self.services[service].cells.len();
            self.services[service].cells.push(index);
            let cell = &mut self.cells[index];
            cell.view = views[service].unique_name(name, '$');
            cell.key = keys[service].unique_name(key, '#');
            (cell.scope, cell.number) = (scope, number);
        }
    }
}

/// A generator of unique names: `id`, and `id$2` for the next of that name.
#[derive(Clone, Debug, Default)]
struct UniqueNames {
    /// The number of times that each name has been requested.
    request_counts: HashMap<String, usize>,
}

impl UniqueNames {
    fn unique_name(&mut self, name: String, sign: char) -> String {
        let mut nth = self.request_counts.get(&name).copied().unwrap_or(0);
        let unique = loop {
            nth += 1;
            let next = if nth == 1 { name.clone() } else { format!("{name}{sign}{nth}") };
            if !self.request_counts.contains_key(&next) {
                break next;
            }
        };
        self.request_counts.insert(unique.clone(), 1);
        self.request_counts.insert(name, nth);
        unique
    }
}
