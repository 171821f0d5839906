//! Emission: the JavaScript that a worker runs, as edits of the S text. `edits` and `output` are how; the files beside
//! are what: `handlers` for services, resources and state, `waits` for calls and what becomes asynchronous, `parallel`
//! and `lifts` for `par` and `pfor`.

use oxc_ast::AstKind;
use oxc_ast::ast::{ImportDeclarationSpecifier, ModuleExportName};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use std::collections::BTreeMap;

use crate::analyse::Analysis;
use crate::analyse::calls::Wait;
use crate::analyse::parallel::Plan;
use crate::map::SourceMap;
use crate::syntax::ConstructKind;
use edits::{Edits, Piece};

pub(crate) mod edits;
mod handlers;
mod lifts;
mod output;
mod parallel;
mod waits;

/// What is emitted.
pub(crate) struct Emitted {
    pub(crate) code: String,
    pub(crate) map: SourceMap,
}

/// A numbered place: the offset in S, and what stands there.
pub(crate) type Place = (usize, String);

struct Emitter<'e, 'p, 'a> {
    it: &'e Analysis<'p, 'a>,
    edits: Edits,
    /// The number of the site that a node is, from 1.
    sites: BTreeMap<NodeId, usize>,
    /// Calls that units of a `par` make for later ones, numbered.
    hoisted: BTreeMap<NodeId, usize>,
    /// What blocks of `par` declare for their units.
    lifts: lifts::Lifts,
}

/// Emits a text that breaks no rule.
pub(crate) fn emit(analysis: &Analysis<'_, '_>) -> Emitted {
    let sites = sites(analysis).into_iter().enumerate().map(|(index, (node, _))| (node, index + 1));
    let hoisted =
        analysis.plans.iter().flat_map(Plan::taken_out).enumerate().map(|(index, call)| (call, index + 1));
    let mut emitter = Emitter {
        it: analysis,
        edits: Edits::default(),
        sites: sites.collect(),
        hoisted: hoisted.collect(),
        lifts: lifts::Lifts::of(analysis),
    };
    // Before all that may replace the same statement: of two edits of one range, the later stands within the earlier.
    emitter.commits();
    emitter.modules();
    emitter.services();
    emitter.cells();
    emitter.lift();
    emitter.externals();
    emitter.waits();
    emitter.responds();
    emitter.parallel();
    let source = analysis.code.parsed.source;
    let whole = [
        Piece::words("(async ($s) => {\"use strict\"; "),
        Piece::Source(0..source.len()),
        Piece::words("\n})"),
    ];
    let mut output = emitter.edits.write(source, &whole);
    let map = output.map(source);
    Emitted { code: output.code, map }
}

/// The numbered places, in the order of the text: number n is the nth.
pub(crate) fn sites(analysis: &Analysis<'_, '_>) -> Vec<(NodeId, Place)> {
    let code = &analysis.code;
    let mut sites = BTreeMap::new();
    for (node, wait) in &analysis.calls.waits {
        if let Wait::Resource { external, method, .. } = wait {
            let text =
                format!("{}.{}", analysis.names.externals[*external].name, method.word().to_lowercase());
            sites.insert(*node, (code.place(*node).start, text));
        }
    }
    for (id, construct) in code.parsed.syntax.constructs.iter().enumerate() {
        let text = match &construct.kind {
            ConstructKind::Respond { .. } => "respond".into(),
            ConstructKind::State { names } => {
                format!("state {}", names.first().map_or("", |name| &name.text))
            }
            ConstructKind::Res { path, .. } => format!("res {}", code.text(path.clone())),
            _ => continue,
        };
        sites.insert(code.statements[id], (construct.span.start, text));
    }
    sites.into_iter().collect()
}

/// The modules that are imported, in the order of the text.
pub(crate) fn imports(analysis: &Analysis<'_, '_>) -> Vec<String> {
    let nodes = analysis.code.semantic.nodes().iter();
    let module = |kind: AstKind<'_>| match kind {
        AstKind::ImportDeclaration(import) => Some(import.source.value.to_string()),
        _ => None,
    };
    nodes.filter_map(|node| module(node.kind())).collect()
}

impl Emitter<'_, '_, '_> {
    /// Imports become what the worker resolves; a first line for the shell is left out.
    fn modules(&mut self) {
        let code = &self.it.code;
        for node in code.semantic.nodes().iter() {
            let range = code.source(node.kind().span());
            match node.kind() {
                AstKind::Hashbang(_) => self.edits.words(range, ""),
                AstKind::ImportDeclaration(import) => {
                    let module = code.text(code.source(import.source.span)).to_owned();
                    let names =
                        import.specifiers.as_ref().map(|it| it.iter().map(binding).collect::<Vec<_>>());
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
                    self.edits.words(range, words);
                }
                AstKind::ImportExpression(_) => self.edits.words(range.start..range.start + 6, "$s.import"),
                _ => {}
            }
        }
    }
}

/// What an import binds, as a part of a pattern; `* name` for all of it.
fn binding(specifier: &ImportDeclarationSpecifier<'_>) -> String {
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
