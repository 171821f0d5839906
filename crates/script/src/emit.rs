//! Code emission: generates the JavaScript that workers run, as edits of the S text. `edits` and `output` are
//! the mechanism. `handlers` emits services, resources and state, `waits` emits calls and asynchronous
//! functions, and `parallel` and `lifts` emit `par` and `pfor`.

use oxc_ast::AstKind;
use oxc_ast::ast::{ImportDeclarationSpecifier, ModuleExportName};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use std::collections::BTreeMap;

use crate::analyse::ScriptAnalysis;
use crate::analyse::calls::WaitOperation;
use crate::analyse::parallel::ParPlan;
use crate::program::source_map::SourceMap;
use crate::syntax::ConstructKind;
use edits::{ReplacementPiece, TextEdits};

pub(crate) mod edits;
mod handlers;
mod lifts;
mod output;
mod parallel;
mod waits;

/// The emitted code with its source map.
pub(crate) struct EmittedCode {
    pub(crate) code: String,
    pub(crate) map: SourceMap,
}

/// A numbered site: the offset in the S text, and a short description.
pub(crate) type EmittedSite = (usize, String);

struct CodeEmitter<'e, 'p, 'a> {
    analysis: &'e ScriptAnalysis<'p, 'a>,
    edits: TextEdits,
    /// Site numbers by node, from 1.
    sites: BTreeMap<NodeId, usize>,
    /// The numbers of calls that units of a `par` make on behalf of later units.
    hoisted_numbers: BTreeMap<NodeId, usize>,
    /// Variables that `par` blocks declare for their units.
    lifts: lifts::LiftedVariables,
}

/// Emits a text without errors.
pub(crate) fn emit(analysis: &ScriptAnalysis<'_, '_>) -> EmittedCode {
    let sites = numbered_sites(analysis).into_iter().enumerate().map(|(index, (node, _))| (node, index + 1));
    let hoisted = analysis
        .plans
        .iter()
        .flat_map(ParPlan::hoisted_calls)
        .enumerate()
        .map(|(index, call)| (call, index + 1));
    let mut emitter = CodeEmitter {
        analysis,
        edits: TextEdits::default(),
        sites: sites.collect(),
        hoisted_numbers: hoisted.collect(),
        lifts: lifts::LiftedVariables::from_analysis(analysis),
    };
    // Must precede all edits that may replace the same statement: of two edits of one range, the later is
    // nested in the earlier.
    emitter.emit_commits();
    emitter.emit_modules();
    emitter.emit_services();
    emitter.emit_cells();
    emitter.emit_assignments();
    emitter.emit_externals();
    emitter.emit_waits();
    emitter.emit_responds();
    emitter.emit_parallel();
    let source = analysis.code.parsed.source;
    let pieces = [
        ReplacementPiece::from_text("(async ($s) => {\"use strict\"; "),
        ReplacementPiece::Source(0..source.len()),
        ReplacementPiece::from_text("\n})"),
    ];
    let mut output = emitter.edits.write(source, &pieces);
    let map = output.take_source_map(source);
    EmittedCode { code: output.code, map }
}

/// Returns the numbered sites in source order. Site number n is the nth.
pub(crate) fn numbered_sites(analysis: &ScriptAnalysis<'_, '_>) -> Vec<(NodeId, EmittedSite)> {
    let code = &analysis.code;
    let mut sites = BTreeMap::new();
    for (node, wait) in &analysis.calls.waits {
        if let WaitOperation::Resource { external, method, .. } = wait {
            let text =
                format!("{}.{}", analysis.names.externals[*external].name, method.as_str().to_lowercase());
            sites.insert(*node, (code.node_range(*node).start, text));
        }
    }
    for (id, construct) in code.parsed.syntax.constructs.iter().enumerate() {
        let text = match &construct.kind {
            ConstructKind::Respond { .. } => "respond".into(),
            ConstructKind::State { names } => {
                format!("state {}", names.first().map_or("", |name| &name.text))
            }
            ConstructKind::Res { path, .. } => format!("res {}", code.source_text(path.clone())),
            _ => continue,
        };
        sites.insert(code.statements[id], (construct.span.start, text));
    }
    sites.into_iter().collect()
}

/// Returns the imported modules in source order.
pub(crate) fn imported_modules(analysis: &ScriptAnalysis<'_, '_>) -> Vec<String> {
    let nodes = analysis.code.semantic.nodes().iter();
    let module = |kind: AstKind<'_>| match kind {
        AstKind::ImportDeclaration(import) => Some(import.source.value.to_string()),
        _ => None,
    };
    nodes.filter_map(|node| module(node.kind())).collect()
}

impl CodeEmitter<'_, '_, '_> {
    /// Replaces imports by calls that the worker resolves, and removes a hashbang line.
    fn emit_modules(&mut self) {
        let code = &self.analysis.code;
        for node in code.semantic.nodes().iter() {
            let range = code.source_range(node.kind().span());
            match node.kind() {
                AstKind::Hashbang(_) => self.edits.replace_text(range, ""),
                AstKind::ImportDeclaration(import) => {
                    let module = code.source_text(code.source_range(import.source.span)).to_owned();
                    let names = import
                        .specifiers
                        .as_ref()
                        .map(|it| it.iter().map(import_binding).collect::<Vec<_>>());
                    let words = match names.unwrap_or_default() {
                        names if names.is_empty() => format!("await $s.import({module});"),
                        names => match names.iter().position(|name| name.starts_with("* ")) {
                            None => format!("const {{{}}} = await $s.import({module});", names.join(", ")),
                            Some(all) => {
                                let space = names[all].trim_start_matches("* ").to_owned();
                                let rest: Vec<&String> =
                                    names.iter().filter(|name| !name.starts_with("* ")).collect();
                                let rest = rest.iter().map(|name| format!(" const {{{name}}} = {space};"));
                                format!(
                                    "const {space} = await $s.import({module});{}",
                                    rest.collect::<String>()
                                )
                            }
                        },
                    };
                    self.edits.replace_text(range, words);
                }
                AstKind::ImportExpression(_) => {
                    self.edits.replace_text(range.start..range.start + 6, "$s.import")
                }
                _ => {}
            }
        }
    }
}

/// Returns the binding of an import specifier as part of a destructuring pattern, or `* name` for a namespace
/// import.
fn import_binding(specifier: &ImportDeclarationSpecifier<'_>) -> String {
    match specifier {
        ImportDeclarationSpecifier::ImportSpecifier(it) => {
            let imported = match &it.imported {
                ModuleExportName::IdentifierName(name) => name.name.to_string(),
                ModuleExportName::IdentifierReference(name) => name.name.to_string(),
                ModuleExportName::StringLiteral(name) => {
                    serde_json::Value::from(name.value.as_str()).to_string()
                }
            };
            if imported == it.local.name.as_str() {
                imported
            } else {
                format!("{imported}: {}", it.local.name)
            }
        }
        ImportDeclarationSpecifier::ImportDefaultSpecifier(it) => format!("default: {}", it.local.name),
        ImportDeclarationSpecifier::ImportNamespaceSpecifier(it) => format!("* {}", it.local.name),
    }
}
