//! Rules 1, 4 and 5: the state that each handler accesses, read or write access, and the groups of cells that
//! are written together.

use std::collections::{BTreeMap, BTreeSet};

use diagnostics::Diagnostic;
use oxc_ast::AstKind;
use oxc_semantic::NodeId;

use super::code::{CodeText, FunctionId, FunctionRole};
use super::names::ScriptSymbols;
use super::reads::{UsageAnalysis, ValueUsage};
use super::{HandlerMode, ScriptAnalysis};
use crate::diagnostic::DiagnosticCode;
use crate::method::HandlerMethod;
use crate::program::{AccessGroup, CellScope, ConcurrencyClass};

/// An access to state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateAccess {
    pub(crate) cell: usize,
    /// The accessing node as its handler sees it: for captured state, the declaration of the capturing
    /// resource.
    pub(crate) node: NodeId,
    pub(crate) usage: ValueUsage,
}

impl StateAccess {
    /// Whether the access can only read the state.
    pub(crate) fn is_read(&self) -> bool {
        self.usage == ValueUsage::Read
    }
}

/// All accesses to state, by function.
#[derive(Debug, Default)]
pub(crate) struct StateAccesses {
    /// The accesses of each function. Callbacks count as part of the function that passes them.
    accesses: BTreeMap<FunctionId, Vec<StateAccess>>,
    /// The functions that each function refers to, with the referring nodes.
    uses: BTreeMap<FunctionId, Vec<(FunctionId, NodeId)>>,
}

impl StateAccesses {
    pub(crate) fn from_code(code: &CodeText<'_, '_>, names: &ScriptSymbols) -> Self {
        let mut touched = Self::default();
        for (cell, it) in names.cells.iter().enumerate() {
            for reference in code.symbol_references(it.symbol) {
                let at = reference.node_id();
                let node = capturing_statement(code, at, code.declaration(it.symbol)).unwrap_or(at);
                // A captured variable is a copy.
                let usage = if node == at {
                    UsageAnalysis::new(code, names).reference_usage(at)
                } else {
                    ValueUsage::Read
                };
                touched.accesses.entry(code.owning_function(node)).or_default().push(StateAccess {
                    cell,
                    node,
                    usage,
                });
            }
            if let (CellScope::Handler(handler), Some(_)) = (it.scope, it.initial) {
                let node = code.statements[it.construct];
                let home = names.handlers[handler].function;
                touched.accesses.entry(home).or_default().push(StateAccess {
                    cell,
                    node,
                    usage: ValueUsage::Write,
                });
            }
        }
        for node in code.semantic.nodes().iter() {
            if !matches!(node.kind(), AstKind::IdentifierReference(_)) {
                continue;
            }
            let function = code.symbol(node.id()).and_then(|symbol| code.functions_by_symbol.get(&symbol));
            if let Some(function) = function {
                touched.uses.entry(code.owning_function(node.id())).or_default().push((*function, node.id()));
            }
        }
        touched
    }

    /// Returns a function's own accesses.
    pub(crate) fn accesses_in(&self, function: FunctionId) -> &[StateAccess] {
        self.accesses.get(&function).map_or(&[], Vec::as_slice)
    }

    /// Returns the functions that a function refers to, with the referring nodes.
    pub(crate) fn referenced_functions(&self, function: FunctionId) -> &[(FunctionId, NodeId)] {
        self.uses.get(&function).map_or(&[], Vec::as_slice)
    }

    /// Returns a function and all functions that it may run.
    pub(crate) fn reachable_functions(&self, function: FunctionId) -> BTreeSet<FunctionId> {
        let (mut all, mut next) = (BTreeSet::from([function]), vec![function]);
        while let Some(function) = next.pop() {
            next.extend(
                self.referenced_functions(function)
                    .iter()
                    .map(|(used, _)| *used)
                    .filter(|used| all.insert(*used)),
            );
        }
        all
    }

    /// Returns all accesses of a function and of the functions that it may run.
    pub(crate) fn reachable_accesses(&self, function: FunctionId) -> Vec<StateAccess> {
        self.reachable_functions(function).into_iter().flat_map(|it| self.accesses_in(it)).copied().collect()
    }
}

/// Returns the statement of the outermost resource that captures a variable between its declaration and its
/// use, if there is one.
pub(crate) fn capturing_statement(
    code: &CodeText<'_, '_>,
    at: NodeId,
    declaration: NodeId,
) -> Option<NodeId> {
    // The declarations of a service are shared by all its resources.
    if matches!(
        code.functions[code.owning_function(declaration)].role,
        FunctionRole::Service(_) | FunctionRole::File
    ) {
        return None;
    }
    let around = code.enclosing_functions(code.enclosing_function(at));
    let resources = around.filter_map(|id| match code.functions[id].role {
        FunctionRole::Resource(construct) if !code.is_inside(declaration, code.functions[id].node) => {
            Some(construct)
        }
        _ => None,
    });
    resources.last().map(|construct| code.statements[construct])
}

/// The concurrency class of a handler, and its cells.
pub(crate) struct ClassifiedHandler {
    pub(crate) class: ConcurrencyClass,
    /// The cells, in the order of the handler's slots.
    pub(crate) cells: Vec<usize>,
}

pub(crate) fn classify_handler(
    names: &ScriptSymbols,
    touched: &StateAccesses,
    handler: usize,
) -> ClassifiedHandler {
    let handler = &names.handlers[handler];
    let accesses = touched.reachable_accesses(handler.function);
    let cells: BTreeSet<usize> = accesses.iter().map(|access| access.cell).collect();
    let safe = matches!(handler.method, HandlerMethod::Get | HandlerMethod::Head);
    let class = if cells.is_empty() {
        ConcurrencyClass::Stateless
    } else if safe || accesses.iter().all(StateAccess::is_read) {
        ConcurrencyClass::Reader
    } else {
        ConcurrencyClass::Writer
    };
    ClassifiedHandler { class, cells: cells.into_iter().collect() }
}

/// Returns the groups of a service's cells, with the cells' numbers in the service, and the group of each
/// cell.
pub(crate) fn group_cells(
    names: &ScriptSymbols,
    service: usize,
    handlers: &[HandlerMode],
) -> (Vec<AccessGroup>, Vec<usize>) {
    let cells = &names.services[service].cells;
    let mut heads: Vec<usize> = (0..cells.len()).collect();
    let number = |cell: usize| names.cells[cell].number;
    for handler in &names.services[service].handlers {
        let touched: Vec<usize> =
            handlers[*handler].classification.cells.iter().map(|cell| number(*cell)).collect();
        for pair in touched.windows(2) {
            let (a, b) = (find_group_head(&heads, pair[0]), find_group_head(&heads, pair[1]));
            heads[a.max(b)] = a.min(b);
        }
    }
    let mut groups: Vec<AccessGroup> = Vec::new();
    let mut of = vec![0; cells.len()];
    let mut known: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, cell) in cells.iter().enumerate() {
        let group = *known.entry(find_group_head(&heads, index)).or_insert_with(|| {
            groups.push(AccessGroup::default());
            groups.len() - 1
        });
        groups[group].cells.push(index);
        groups[group].shared |= names.cells[*cell].scope == CellScope::Service;
        of[index] = group;
    }
    (groups, of)
}

fn find_group_head(heads: &[usize], mut cell: usize) -> usize {
    while heads[cell] != cell {
        cell = heads[cell];
    }
    cell
}

/// Checks rule 1: state of a service that is used under several paths.
pub(crate) fn check_paths(
    analysis: &ScriptAnalysis<'_, '_>,
    strict: bool,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let ScriptAnalysis { code, names, handlers, .. } = analysis;
    for (cell, it) in names.cells.iter().enumerate().filter(|(_, it)| it.scope == CellScope::Service) {
        let users =
            names.handlers.iter().zip(handlers).filter(|(_, it)| it.classification.cells.contains(&cell));
        let resources: BTreeSet<usize> = users.map(|(handler, _)| handler.resource).collect();
        if resources.len() < 2 {
            continue;
        }
        let mut diagnostic = Diagnostic::in_text(
            DiagnosticCode::StatePaths,
            it.place.clone(),
            format!("the state `{}` is shared between different paths", it.name),
            "all handlers that change it wait for each other",
            "declare it in the one resource that it belongs to, and let the others call that resource; or keep it, \
             if they have to agree on it",
        );
        for resource in resources {
            let path = code.construct(names.resources[resource].constructs[0]);
            let head = path.body.as_ref().map_or(path.span.end, |body| body.start);
            diagnostic =
                diagnostic.with_label(path.span.start..head.min(path.span.end), "used under this path");
        }
        diagnostics.push(if strict { diagnostic } else { diagnostic.as_warning() });
    }
}
