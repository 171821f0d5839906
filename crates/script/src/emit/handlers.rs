//! Emission of services, resources, handlers and state. All handlers of a service are emitted at the same
//! level. Handlers of nested resources are lifted out of their parents and receive their captured variables
//! as a parameter.

use std::collections::BTreeMap;
use std::ops::Range;

use oxc_ast::AstKind;
use oxc_semantic::NodeId;
use oxc_span::GetSpan;

use super::CodeEmitter;
use super::edits::ReplacementPiece;
use crate::analyse::capture::{self, CapturedVariables};
use crate::analyse::cells::capturing_statement;
use crate::analyse::code::{FunctionId, FunctionRole, body_statements};
use crate::analyse::names::SymbolMeaning;
use crate::program::CellScope;
use crate::syntax::{ConstructId, ConstructKind, SyntaxConstruct};

impl CodeEmitter<'_, '_, '_> {
    pub(super) fn emit_services(&mut self) {
        let it = self.analysis;
        for service in &it.names.services {
            let construct = it.code.construct(service.construct);
            let Some(body) = construct.body.clone() else { continue };
            let name = serde_json::Value::from(service.name.as_str());
            self.edits
                .replace_text(construct.span.start..body.start + 1, format!("$s.service({name}, () => {{"));
            self.edits.replace_text(body.end - 1..body.end, "});");
        }
        for (id, construct) in it.code.parsed.syntax.constructs.iter().enumerate() {
            if let ConstructKind::Res { inline, .. } = construct.kind {
                self.emit_resource(id, construct.span.clone(), inline);
            }
        }
    }

    /// Emits a resource. A top-level resource stays in place. A nested resource is declared in place, and its
    /// handlers are lifted.
    fn emit_resource(&mut self, id: ConstructId, span: Range<usize>, inline: bool) {
        let Some(body) = self.analysis.code.construct(id).body.clone() else { return };
        let statement = self.analysis.code.statements[id];
        let is_nested = self.analysis.code.enclosing_handler(statement).is_some();
        let lifted = if is_nested { Vec::new() } else { self.lifted_handlers(id) };
        if !inline {
            self.emit_block_handlers(id);
        }
        if is_nested {
            let pieces = self.resource_declaration(id);
            return self.edits.replace(span, pieces);
        }
        if inline {
            let mut pieces = self.inline_handler(id);
            pieces.extend(lifted);
            return self.edits.replace(span, pieces);
        }
        let (open, close) = self.block_scope(id);
        self.edits.replace_text(span.start..body.start + 1, open);
        let last = self
            .closing_semicolon(id, &body)
            .into_iter()
            .chain(lifted)
            .chain([ReplacementPiece::from_text(close)]);
        self.edits.replace(body.end - 1..body.end, last.collect());
    }

    /// Returns the code around a block that declares names of its own, since two blocks may declare the same
    /// name. It is a function, because a JavaScript block does not limit the scope of a `var`.
    fn block_scope(&self, resource: ConstructId) -> (&'static str, &'static str) {
        let code = &self.analysis.code;
        let declares = |statement: NodeId| match code.construct_at(statement) {
            Some(id) => matches!(code.construct(id).kind, ConstructKind::External { .. }),
            None => matches!(
                code.kind(statement),
                AstKind::VariableDeclaration(_) | AstKind::Function(_) | AstKind::Class(_)
            ),
        };
        let function = code.construct_function(resource).map(|function| code.functions[function].node);
        match function.is_some_and(|function| body_statements(code, function).into_iter().any(declares)) {
            true => (";(() => {", "})();"),
            false => ("", ""),
        }
    }

    /// Returns the semicolon that replaces the removed closing brace of a block as the end of the block's
    /// last statement.
    fn closing_semicolon(&self, resource: ConstructId, body: &Range<usize>) -> Option<ReplacementPiece> {
        let parsed = &self.analysis.code.parsed;
        let text = parsed.source.get(body.start + 1..body.end - 1)?.trim_end();
        let end = body.start + 1 + text.len();
        let ends = |construct: &SyntaxConstruct| {
            matches!(construct.kind, ConstructKind::On { .. } | ConstructKind::Res { .. })
                && construct.span.end == end
        };
        let is_ended = text.is_empty() || parsed.syntax.nested_constructs(resource).any(|(_, it)| ends(it));
        (!is_ended).then(|| ReplacementPiece::from_text(";"))
    }

    /// Emits the handlers of a block in place.
    fn emit_block_handlers(&mut self, resource: ConstructId) {
        let syntax = &self.analysis.code.parsed.syntax;
        for (id, construct) in
            syntax.nested_constructs(resource).filter(|(_, it)| it.parent == Some(resource))
        {
            if matches!(construct.kind, ConstructKind::On { .. }) {
                let pieces = self.handler_registration(id);
                self.edits.replace(construct.span.clone(), pieces);
            }
        }
    }

    fn inline_handler(&self, resource: ConstructId) -> Vec<ReplacementPiece> {
        let mut within = self.analysis.code.parsed.syntax.nested_constructs(resource);
        let is_its = |construct: &SyntaxConstruct| {
            construct.parent == Some(resource) && matches!(construct.kind, ConstructKind::On { .. })
        };
        within.find(|(_, it)| is_its(it)).map(|(on, _)| self.handler_registration(on)).unwrap_or_default()
    }

    /// Returns the handlers of all resources nested in `outer`, at any depth.
    fn lifted_handlers(&self, outer: ConstructId) -> Vec<ReplacementPiece> {
        let syntax = &self.analysis.code.parsed.syntax;
        let mut pieces = Vec::new();
        for (id, construct) in
            syntax.nested_constructs(outer).filter(|(id, _)| self.enclosing_resource(*id) == Some(outer))
        {
            let ConstructKind::Res { inline, .. } = construct.kind else { continue };
            pieces.push(ReplacementPiece::from_text(" "));
            match construct.body.clone() {
                Some(_) if inline => {
                    pieces.extend(self.inline_handler(id));
                    pieces.extend(self.lifted_handlers(id));
                }
                Some(body) => {
                    let (open, close) = self.block_scope(id);
                    pieces.push(ReplacementPiece::from_text(open));
                    pieces.extend(self.block_pieces(id, body.start + 1..body.end - 1));
                    pieces.extend(self.closing_semicolon(id, &body));
                    pieces.extend(self.lifted_handlers(id));
                    pieces.push(ReplacementPiece::from_text(close));
                }
                None => {}
            }
        }
        pieces
    }

    /// Returns the text of a nested block without the declarations that are copied into its handlers, because
    /// captured variables are not in scope there.
    fn block_pieces(&self, resource: ConstructId, body: Range<usize>) -> Vec<ReplacementPiece> {
        let code = &self.analysis.code;
        let Some(function) = code.construct_function(resource) else {
            return vec![ReplacementPiece::Source(body)];
        };
        let capturing = &self.analysis.names.capturing_declarations;
        let is_left_out = |statement: &NodeId| match code.kind(*statement) {
            AstKind::VariableDeclaration(it) => {
                it.declarations.iter().all(|it| capturing.contains(&it.node_id.get()))
            }
            _ => capturing.contains(statement),
        };
        let copied = body_statements(code, code.functions[function].node).into_iter().filter(is_left_out);
        let (mut pieces, mut at) = (Vec::new(), body.start);
        for place in copied.map(|statement| code.node_range(statement)) {
            pieces.extend([ReplacementPiece::Source(at..place.start), ReplacementPiece::from_text(";")]);
            at = place.end;
        }
        pieces.push(ReplacementPiece::Source(at..body.end));
        pieces
    }

    /// Returns the innermost resource that encloses a construct.
    fn enclosing_resource(&self, id: ConstructId) -> Option<ConstructId> {
        let mut around = self.analysis.code.parsed.syntax.enclosing_constructs(id);
        around.find(|(_, it)| matches!(it.kind, ConstructKind::Res { .. })).map(|(id, _)| id)
    }

    /// Returns the call that registers a handler: `$s.handler(5, async function (query, response, $r,
    /// {total}) {..});`
    fn handler_registration(&self, on: ConstructId) -> Vec<ReplacementPiece> {
        let it = self.analysis;
        let construct = it.code.construct(on);
        let (Some(index), Some(body)) = (it.names.handler_at(on), construct.body.clone()) else {
            return Vec::new();
        };
        let handler = &it.names.handlers[index];
        let node = it.code.functions[handler.function].node;
        let captured = self.handler_captures(on, node);
        let is_async = it.calls.has_waits_in(&it.code, handler.function);
        let word = if is_async { "async function" } else { "function" };
        let taken = self.capture_pattern(&captured).map(|names| format!(", {names}")).unwrap_or_default();
        let mut pieces = vec![
            ReplacementPiece::MappedOffset(construct.span.start),
            ReplacementPiece::from_text(format!(
                "$s.handler({}, {word} (query, response, $r{taken}) {{",
                handler.number
            )),
        ];
        if self.references_cells(node, &captured) {
            pieces.push(ReplacementPiece::from_text(" const $c = $r.cells;"));
        }
        let (copies, close) = self.captured_copies(&captured);
        pieces.extend(copies);
        pieces.push(ReplacementPiece::Source(body.start + 1..body.end - 1));
        pieces.push(ReplacementPiece::from_text(format!("{close}}});")));
        pieces
    }

    /// Returns the variables and declarations that a handler of a nested resource captures.
    fn handler_captures(&self, on: ConstructId, handler: NodeId) -> CapturedVariables {
        let code = &self.analysis.code;
        let mut captured = CapturedVariables::default();
        let resource = code.construct(on).parent.and_then(|resource| code.construct_function(resource));
        if let Some(resource) = resource {
            capture::collect_captures(
                code,
                &self.analysis.names,
                handler,
                code.functions[resource].node,
                &mut captured,
            );
        }
        captured
    }

    /// Returns the destructuring pattern of captured values, such as `{total, id}`, or `None` if there are
    /// none.
    fn capture_pattern(&self, captured: &CapturedVariables) -> Option<String> {
        let names: Vec<&str> =
            captured.values.keys().map(|symbol| self.analysis.code.name(*symbol)).collect();
        (!names.is_empty()).then(|| format!("{{{}}}", names.join(", ")))
    }

    /// Whether a handler's text, or a declaration copied into it, refers to state.
    fn references_cells(&self, handler: NodeId, captured: &CapturedVariables) -> bool {
        let code = &self.analysis.code;
        let own = code.function_at_node(handler);
        let mut nodes = std::iter::once(handler)
            .chain(captured.copies.keys().copied())
            .flat_map(|it| code.subtree_nodes(it));
        nodes.any(|node| {
            let symbol = code.symbol(node).filter(|symbol| self.analysis.names.cell(*symbol).is_some());
            let Some(symbol) = symbol.filter(|_| code.reference(node).is_some()) else { return false };
            let node_id = capturing_statement(code, node, code.declaration(symbol)).unwrap_or(node);
            let mut around = code.enclosing_functions(code.enclosing_function(node_id));
            let is_own = around.find(|id| code.functions[*id].role != FunctionRole::Plain) == own;
            let is_copied = || captured.copies.keys().any(|copy| code.is_inside(node_id, *copy));
            is_own || (code.emitting_handler(node_id).is_some() && is_copied())
        })
    }

    /// Returns copies of captured functions and classes, and the closing braces of their blocks. The
    /// declarations of each enclosing function get a block of their own, outermost first, so that shadowed
    /// names stay shadowed.
    fn captured_copies(&self, captured: &CapturedVariables) -> (Vec<ReplacementPiece>, String) {
        let code = &self.analysis.code;
        let mut scopes: BTreeMap<FunctionId, Vec<ReplacementPiece>> = BTreeMap::new();
        for declaration in captured.copies.keys() {
            let is_variable = matches!(code.kind(*declaration), AstKind::VariableDeclarator(_));
            scopes.entry(code.enclosing_function(*declaration)).or_default().extend([
                ReplacementPiece::from_text(if is_variable { " const " } else { " " }),
                ReplacementPiece::Source(code.node_range(*declaration)),
                ReplacementPiece::from_text(";"),
            ]);
        }
        let close = "}".repeat(scopes.len());
        let open =
            |copies: Vec<ReplacementPiece>| copies.into_iter().chain([ReplacementPiece::from_text(" {")]);
        (scopes.into_values().flat_map(open).collect(), close)
    }

    /// Returns the code that declares a nested resource at runtime.
    fn resource_declaration(&self, id: ConstructId) -> Vec<ReplacementPiece> {
        let it = self.analysis;
        let ConstructKind::Res { path, .. } = &it.code.construct(id).kind else { return Vec::new() };
        let Some(index) = it.names.resource_at(id) else { return Vec::new() };
        let resource = &it.names.resources[index];
        if resource.parent.is_none() {
            return vec![ReplacementPiece::from_text(";")];
        }
        let statement = it.code.statements[id];
        let site = self.sites.get(&statement).copied().unwrap_or(0);
        let mut taken = Vec::new();
        for symbol in resource.captures.values.keys() {
            let name = it.code.name(*symbol);
            let is_live = capturing_statement(&it.code, statement, it.code.declaration(*symbol)).is_none();
            let cell = it.names.cell(*symbol).filter(|_| is_live);
            taken.push(
                cell.map_or(name.to_owned(), |cell| format!("{name}: $c.{}", it.names.cells[cell].view)),
            );
        }
        vec![
            ReplacementPiece::from_text(format!("await $r.declare({site}, {}, ", resource.number)),
            ReplacementPiece::Source(path.clone()),
            ReplacementPiece::from_text(format!(", {{{}}});", taken.join(", "))),
        ]
    }

    /// Emits declarations of state, and every use of it.
    pub(super) fn emit_cells(&mut self) {
        let it = self.analysis;
        for (id, construct) in it.code.parsed.syntax.constructs.iter().enumerate() {
            if let ConstructKind::State { .. } = construct.kind {
                let pieces = self.cell_initialisers(id);
                let end = it.code.node_range(it.code.statements[id]).end.max(construct.span.end);
                self.edits.replace(construct.span.start..end, pieces);
            }
        }
        for cell in &it.names.cells {
            for reference in it.code.symbol_references(cell.symbol) {
                self.emit_cell_use(reference.node_id(), cell.symbol, &cell.view, &cell.name);
            }
        }
    }

    /// Returns initialisers: `$s.initial(0, () => ('World'));` for shared state, `$r.initial(0, () => (0));`
    /// for the state of a handler.
    fn cell_initialisers(&self, construct: ConstructId) -> Vec<ReplacementPiece> {
        let it = self.analysis;
        let mut pieces = Vec::new();
        for (index, cell) in it.names.cells.iter().enumerate().filter(|(_, cell)| cell.construct == construct)
        {
            let Some(initial) = cell.initial else { continue };
            let head = match cell.scope {
                CellScope::Handler(handler) => {
                    let slot =
                        it.handlers[handler].classification.cells.iter().position(|slot| *slot == index);
                    format!("$r.initial({}, () => (", slot.unwrap_or(0))
                }
                CellScope::Service => format!("$s.initial({}, () => (", cell.number),
                CellScope::Resource(_) => {
                    let mut captured = CapturedVariables::default();
                    let resource =
                        it.code.construct(construct).parent.and_then(|id| it.code.construct_function(id));
                    if let Some(resource) = resource {
                        let resource = it.code.functions[resource].node;
                        capture::collect_captures(&it.code, &it.names, initial, resource, &mut captured);
                    }
                    let names = self.capture_pattern(&captured).unwrap_or_default();
                    if captured.copies.is_empty() {
                        format!("$s.initial({}, ({names}) => (", cell.number)
                    } else {
                        let (copies, close) = self.captured_copies(&captured);
                        pieces.push(ReplacementPiece::from_text(format!(
                            "$s.initial({}, ({names}) => {{",
                            cell.number
                        )));
                        pieces.extend(copies);
                        pieces.push(ReplacementPiece::from_text(" return ("));
                        pieces.push(ReplacementPiece::Source(it.code.node_range(initial)));
                        pieces.push(ReplacementPiece::from_text(format!(");{close}}});")));
                        continue;
                    }
                }
            };
            pieces.push(ReplacementPiece::from_text(head));
            pieces.push(ReplacementPiece::Source(it.code.node_range(initial)));
            pieces.push(ReplacementPiece::from_text("));"));
        }
        pieces
    }

    fn emit_cell_use(&mut self, node: NodeId, symbol: oxc_syntax::symbol::SymbolId, view: &str, name: &str) {
        let code = &self.analysis.code;
        if capturing_statement(code, node, code.declaration(symbol)).is_some() {
            return;
        }
        let in_handler = code.emitting_handler(node).is_some();
        let seen = if in_handler { format!("$c.{view}") } else { format!("$r.cells.{view}") };
        let words = if self.is_shorthand(node) { format!("{name}: {seen}") } else { seen };
        self.edits.replace_text(code.node_range(node), words);
    }

    /// Whether a name is a shorthand property: `{x}`.
    pub(super) fn is_shorthand(&self, node: NodeId) -> bool {
        let code = &self.analysis.code;
        match code.kind(code.parent(node)) {
            AstKind::ObjectProperty(property) => property.shorthand,
            AstKind::AssignmentTargetPropertyIdentifier(property) => {
                property.binding.span() == code.span(node)
            }
            _ => false,
        }
    }

    pub(super) fn emit_externals(&mut self) {
        let it = self.analysis;
        for (id, construct) in it.code.parsed.syntax.constructs.iter().enumerate() {
            let ConstructKind::External { names } = &construct.kind else { continue };
            if self.lifts.assigned_declarations.contains(&it.code.statements[id]) {
                continue;
            }
            let mut pieces = vec![ReplacementPiece::from_text("const ")];
            for (index, name) in names.iter().enumerate() {
                let Some(SymbolMeaning::External(external)) =
                    name.symbol.and_then(|symbol| it.names.symbol_meaning(symbol))
                else {
                    continue;
                };
                pieces.push(ReplacementPiece::from_text(if index == 0 { "" } else { ", " }));
                pieces.push(ReplacementPiece::Source(name.span.clone()));
                pieces.push(ReplacementPiece::from_text(" = "));
                pieces.extend(self.template_pieces(external));
            }
            pieces.push(ReplacementPiece::from_text(";"));
            let end = it.code.node_range(it.code.statements[id]).end.max(construct.span.end);
            self.edits.replace(construct.span.start..end, pieces);
        }
    }

    /// Whether a function is a handler.
    pub(super) fn is_handler(&self, function: usize) -> bool {
        matches!(self.analysis.code.functions[function].role, FunctionRole::Handler(_))
    }
}
