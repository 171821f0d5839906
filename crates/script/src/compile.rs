//! Compilation of an S text to a program or to diagnostics.

use std::collections::BTreeMap;

use oxc_allocator::Allocator;
use oxc_semantic::NodeId;

use crate::analyse::{self, ScriptAnalysis, cells, query, recipe};
use crate::diagnostic::{self, ScriptDiagnostic};
use crate::emit::{self, EmittedCode};
use crate::line::LineStarts;
use crate::program::{
    CaptureKind, CapturedVariable, CellScope, CommitPoint, NumberedSite, ResourceHandler, ResourcePath,
    ScriptCell, ScriptProgram, ScriptResource, ScriptService,
};
use crate::{graph, parse, room};

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
pub fn compile(
    source: &str,
    name: &str,
    options: &CompileOptions,
) -> Result<ScriptProgram, Vec<ScriptDiagnostic>> {
    room::with_room(source, |source| in_room(source, name, *options))
        .unwrap_or_else(|| Err(vec![ScriptDiagnostic::too_large()]))
}

fn in_room(
    source: &str,
    name: &str,
    options: CompileOptions,
) -> Result<ScriptProgram, Vec<ScriptDiagnostic>> {
    let allocator = Allocator::default();
    let parsed = parse::parse(&allocator, source);
    let mut found = parsed.diagnostics.clone();
    let Some(tree) = &parsed.tree else { return Err(found) };
    let analysis = ScriptAnalysis::of(&parsed, tree, options.strict_paths, &mut found);
    diagnostic::sort(&mut found);
    if analyse::failed(&found) {
        return Err(found);
    }
    let EmittedCode { code, map } = emit::emit(&analysis);
    let lines = LineStarts::new(source);
    let sites = emit::sites(&analysis);
    let numbered = sites.iter().enumerate().map(|(index, (node, _))| (*node, index + 1)).collect();
    let sites = sites.into_iter().map(|(_, (at, text))| NumberedSite { position: lines.position(at), text });
    let services = (0..analysis.names.services.len())
        .map(|service| self::service(&analysis, &numbered, &lines, service));
    Ok(ScriptProgram {
        name: name.to_owned(),
        code,
        map,
        imports: emit::imports(&analysis),
        services: services.collect(),
        warnings: found,
        graphs: graph::graphs(&analysis, |offset| lines.position(offset)),
        sites: sites.collect(),
    })
}

fn service(
    analysis: &ScriptAnalysis<'_, '_>,
    sites: &BTreeMap<NodeId, usize>,
    lines: &LineStarts<'_>,
    index: usize,
) -> ScriptService {
    let it = &analysis.names.services[index];
    let (groups, group_of) = cells::groups(&analysis.names, index, &analysis.handlers);
    let construct = |id: usize| lines.position(analysis.code.construct(id).span.start);
    ScriptService {
        name: it.name.clone(),
        position: construct(it.construct),
        cells: it.cells.iter().map(|index| cell(analysis, lines, *index, &group_of)).collect(),
        groups,
        resources: it.resources.iter().map(|index| resource(analysis, lines, *index)).collect(),
        handlers: it
            .handlers
            .iter()
            .map(|index| handler(analysis, sites, lines, *index, &group_of))
            .collect(),
    }
}

fn cell(
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

fn resource(analysis: &ScriptAnalysis<'_, '_>, lines: &LineStarts<'_>, index: usize) -> ScriptResource {
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
        captures: it.captured.values.keys().map(|symbol| capture(*symbol)).collect(),
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

fn handler(
    analysis: &ScriptAnalysis<'_, '_>,
    sites: &BTreeMap<NodeId, usize>,
    lines: &LineStarts<'_>,
    index: usize,
    group_of: &[usize],
) -> ResourceHandler {
    let names = &analysis.names;
    let (it, handling) = (&names.handlers[index], &analysis.handlers[index]);
    let cells: Vec<usize> = handling.classified.cells.iter().map(|cell| names.cells[*cell].number).collect();
    let commit = handling.early.map(|statement| lines.position(analysis.code.place(statement).end));
    ResourceHandler {
        method: it.method,
        resource: names.resources[it.resource].number,
        class: handling.classified.class,
        group: cells.first().map(|cell| group_of[*cell]),
        cells,
        commit: commit.map_or(CommitPoint::End, CommitPoint::Early),
        reads: query::reads(&analysis.code, names, it.function),
        header_reads: query::header_reads(&analysis.code, names, it.function),
        calls: analysis.calls.waits_in(&analysis.code, it.function),
        recipe: recipe::recipe(analysis, sites, index),
        position: lines.position(analysis.code.construct(it.construct).span.start),
    }
}
