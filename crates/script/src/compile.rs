//! Compilation of an S text to a program or to diagnostics.

use std::collections::BTreeMap;

use diagnostics::{Diagnostic, LineStarts};
use oxc_allocator::Allocator;
use oxc_semantic::NodeId;

use crate::analyse::{self, ScriptAnalysis, cells, inline_plan, query};
use crate::diagnostic::{self};
use crate::emit::{self, EmittedCode};
use crate::parse::{self, parser_thread};
use crate::program::{
    CaptureKind, CapturedVariable, CellScope, CommitPoint, NumberedSite, ResourceHandler, ResourcePath,
    ScriptCell, ScriptProgram, ScriptResource, ScriptService,
};

mod graph;

/// Compiler options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// Treat state of a service that is used under several paths as an error instead of a warning.
    pub strict_paths: bool,
}

/// Compiles a text. `name` is the file name to use in messages.
///
/// # Errors
///
/// Returns all diagnostics, warnings included, if there is at least one error.
pub fn compile(source: &str, name: &str, options: &CompileOptions) -> Result<ScriptProgram, Vec<Diagnostic>> {
    parser_thread::with_parser_thread(source, |source| compile_on_thread(source, name, *options))
        .unwrap_or_else(|| Err(vec![parser_thread::too_large_diagnostic()]))
}

fn compile_on_thread(
    source: &str,
    name: &str,
    options: CompileOptions,
) -> Result<ScriptProgram, Vec<Diagnostic>> {
    let allocator = Allocator::default();
    let parsed = parse::parse(&allocator, source);
    let mut diagnostics = parsed.diagnostics.clone();
    let Some(tree) = &parsed.tree else { return Err(diagnostics) };
    let analysis = ScriptAnalysis::from_parsed(&parsed, tree, options.strict_paths, &mut diagnostics);
    diagnostic::sort_diagnostics(&mut diagnostics);
    if analyse::has_errors(&diagnostics) {
        return Err(diagnostics);
    }
    let EmittedCode { code, map } = emit::emit(&analysis);
    let lines = LineStarts::new(source);
    let sites = emit::numbered_sites(&analysis);
    let numbered = sites.iter().enumerate().map(|(index, (node, _))| (*node, index + 1)).collect();
    let sites = sites.into_iter().map(|(_, (at, text))| NumberedSite { position: lines.position(at), text });
    let services = (0..analysis.names.services.len())
        .map(|service| self::build_service(&analysis, &numbered, &lines, service));
    Ok(ScriptProgram {
        name: name.to_owned(),
        code,
        map,
        imports: emit::imported_modules(&analysis),
        services: services.collect(),
        warnings: diagnostics,
        graphs: graph::par_graphs(&analysis, |offset| lines.position(offset)),
        sites: sites.collect(),
    })
}

fn build_service(
    analysis: &ScriptAnalysis<'_, '_>,
    sites: &BTreeMap<NodeId, usize>,
    lines: &LineStarts<'_>,
    index: usize,
) -> ScriptService {
    let it = &analysis.names.services[index];
    let (groups, group_of) = cells::group_cells(&analysis.names, index, &analysis.handlers);
    let construct = |id: usize| lines.position(analysis.code.construct(id).span.start);
    ScriptService {
        name: it.name.clone(),
        position: construct(it.construct),
        cells: it.cells.iter().map(|index| build_cell(analysis, lines, *index, &group_of)).collect(),
        groups,
        resources: it.resources.iter().map(|index| build_resource(analysis, lines, *index)).collect(),
        handlers: it
            .handlers
            .iter()
            .map(|index| build_handler(analysis, sites, lines, *index, &group_of))
            .collect(),
    }
}

fn build_cell(
    analysis: &ScriptAnalysis<'_, '_>,
    lines: &LineStarts<'_>,
    index: usize,
    group_of: &[usize],
) -> ScriptCell {
    let names = &analysis.names;
    let it = &names.cells[index];
    let scope = match it.scope {
        CellScope::Service => CellScope::Service,
        CellScope::Resource(resource) => CellScope::Resource(names.resources[resource].number),
        CellScope::Handler(handler) => CellScope::Handler(names.handlers[handler].number),
    };
    ScriptCell {
        name: it.name.clone(),
        view: it.view.clone(),
        key: it.key.clone(),
        scope,
        group: group_of[it.number],
        eager: it.initial.is_some() && !matches!(it.scope, CellScope::Handler(_)),
        position: lines.position(it.place.start),
    }
}

fn build_resource(analysis: &ScriptAnalysis<'_, '_>, lines: &LineStarts<'_>, index: usize) -> ScriptResource {
    let names = &analysis.names;
    let it = &names.resources[index];
    let capture = |symbol| {
        let kind = if names.external(symbol).is_some() { CaptureKind::Resource } else { CaptureKind::Value };
        CapturedVariable { name: analysis.code.name(symbol).to_owned(), kind }
    };
    let own = |scope: CellScope| scope == CellScope::Resource(index);
    ScriptResource {
        key: it.key.clone(),
        path: it.literal.clone().map_or(ResourcePath::Computed, ResourcePath::Literal),
        parent: it.parent.map(|parent| names.handlers[parent].number),
        captures: it.captures.values.keys().map(|symbol| capture(*symbol)).collect(),
        methods: names
            .handlers
            .iter()
            .filter(|it| it.resource == index)
            .map(|it| (it.method, it.number))
            .collect(),
        cells: names.cells.iter().filter(|cell| own(cell.scope)).map(|cell| cell.number).collect(),
        position: lines.position(analysis.code.construct(it.constructs[0]).span.start),
    }
}

fn build_handler(
    analysis: &ScriptAnalysis<'_, '_>,
    sites: &BTreeMap<NodeId, usize>,
    lines: &LineStarts<'_>,
    index: usize,
    group_of: &[usize],
) -> ResourceHandler {
    let names = &analysis.names;
    let (it, handling) = (&names.handlers[index], &analysis.handlers[index]);
    let cells: Vec<usize> =
        handling.classification.cells.iter().map(|cell| names.cells[*cell].number).collect();
    let commit =
        handling.early_commit.map(|statement| lines.position(analysis.code.node_range(statement).end));
    ResourceHandler {
        method: it.method,
        resource: names.resources[it.resource].number,
        class: handling.classification.class,
        group: cells.first().map(|cell| group_of[*cell]),
        cells,
        commit: commit.map_or(CommitPoint::End, CommitPoint::Early),
        reads: query::request_reads(&analysis.code, names, it.function),
        header_reads: query::header_reads(&analysis.code, names, it.function),
        calls: analysis.calls.has_waits_in(&analysis.code, it.function),
        recipe: inline_plan::build_inline_plan(analysis, sites, index),
        position: lines.position(analysis.code.construct(it.construct).span.start),
    }
}
