//! Rule 19: the iterations of a `pfor` run in any order, so they must be independent.

use std::collections::BTreeSet;

use diagnostics::Diagnostic;
use oxc_ast::AstKind;
use oxc_ast::ast::Expression;
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::symbol::SymbolId;

use super::ScriptAnalysis;
use super::code::{CodeText, identifier_symbol};
use super::effects::{EffectAnalyzer, EffectLocation, jump_target};
use crate::diagnostic::DiagnosticCode;
use crate::syntax::{ConstructId, ConstructKind};

/// Whether the author requests sequential iterations with `/* S: sequential */` before the loop.
pub(crate) fn is_sequential(code: &CodeText<'_, '_>, construct: ConstructId) -> bool {
    let before = code.source_text(0..code.construct(construct).span.start).trim_end();
    let comment = before.strip_suffix("*/").and_then(|before| before.rsplit_once("/*"));
    comment.is_some_and(|(_, text)| text.split_whitespace().eq(["S:", "sequential"]))
}

/// Returns the repeated statement.
pub(crate) fn loop_body(code: &CodeText<'_, '_>, construct: ConstructId) -> Option<NodeId> {
    let statement = code.statements[construct];
    let AstKind::ForInStatement(each) = code.kind(statement) else { return None };
    super::code::find_node_by_span(code, statement, each.body.span())
}

pub(crate) fn check(
    analysis: &ScriptAnalysis<'_, '_>,
    observer: &EffectAnalyzer<'_, '_, '_>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let code = &analysis.code;
    let constructs = code.parsed.syntax.constructs.iter().enumerate();
    let loops = constructs.clone().filter(|(_, it)| matches!(it.kind, ConstructKind::Pfor { .. }));
    let bodies: Vec<NodeId> = loops.filter_map(|(id, _)| loop_body(code, id)).collect();
    for (id, construct) in constructs {
        let ConstructKind::Pfor { name } = &construct.kind else { continue };
        let Some(body) = loop_body(code, id) else { continue };
        if is_sequential(code, id) {
            continue;
        }
        let checked =
            PforIteration { analysis, body, bodies: &bodies, index: name.symbol, head: construct.span.start };
        checked.check_jumps(diagnostics);
        checked.check_responds(diagnostics);
        checked.check_changes(observer, diagnostics);
    }
}

struct PforIteration<'t, 'p, 'a> {
    analysis: &'t ScriptAnalysis<'p, 'a>,
    body: NodeId,
    index: Option<SymbolId>,
    /// The bodies of all loops.
    bodies: &'t [NodeId],
    /// The start of the loop in the S text.
    head: usize,
}

const SEQUENTIAL_HELP: &str =
    "write `/* S: sequential */` before the loop to run the iterations sequentially";

impl PforIteration<'_, '_, '_> {
    fn code(&self) -> &CodeText<'_, '_> {
        &self.analysis.code
    }

    fn check_jumps(&self, diagnostics: &mut Vec<Diagnostic>) {
        let code = self.code();
        for node in code.subtree_nodes(self.body) {
            if code.enclosing_function(node) != code.enclosing_function(self.body) {
                continue;
            }
            let (word, leaves) = match code.kind(node) {
                AstKind::ReturnStatement(_) => ("return", true),
                AstKind::BreakStatement(_) => {
                    ("break", jump_target(code, node).is_none_or(|it| !code.is_inside(it, self.body)))
                }
                AstKind::ContinueStatement(_) => ("continue", self.continues_outside(node)),
                _ => continue,
            };
            if !leaves {
                continue;
            }
            let message = format!("`{word}` leaves a `pfor` while other iterations are running");
            let help = format!("store the result, and check it after the loop; or {SEQUENTIAL_HELP}");
            let error = Diagnostic::in_text(
                DiagnosticCode::PforLeaves,
                code.node_range(node),
                message,
                "this would leave the loop",
                help,
            );
            diagnostics.push(error.with_label(self.head..self.head + 4, "of this loop"));
        }
    }

    /// Whether a `continue` refers to an outer loop. In the loop itself it only ends an iteration.
    fn continues_outside(&self, node: NodeId) -> bool {
        let code = self.code();
        let Some(target) = jump_target(code, node) else { return true };
        let node_id = code.parent(self.body);
        let is_label =
            matches!(code.kind(target), AstKind::LabeledStatement(_)) && code.parent(node_id) == target;
        !(code.is_inside(target, self.body) || target == node_id || is_label)
    }

    fn check_responds(&self, diagnostics: &mut Vec<Diagnostic>) {
        let code = self.code();
        for node in code.subtree_nodes(self.body) {
            let Some(id) = code.construct_at(node) else { continue };
            // The handlers of a nested resource respond to their own requests.
            if !matches!(code.construct(id).kind, ConstructKind::Respond { .. })
                || code.enclosing_handler(node) != code.enclosing_handler(self.body)
            {
                continue;
            }
            let help = format!("respond after the loop, when all iterations are done; or {SEQUENTIAL_HELP}");
            let message = "`respond` in a `pfor`: any iteration could respond first";
            let error = Diagnostic::in_text(
                DiagnosticCode::PforDependence,
                code.construct(id).span.clone(),
                message,
                "every iteration responds",
                help,
            );
            diagnostics.push(error.with_label(self.head..self.head + 4, "of this loop"));
        }
    }

    fn check_changes(&self, observer: &EffectAnalyzer<'_, '_, '_>, diagnostics: &mut Vec<Diagnostic>) {
        let code = self.code();
        let (mut told, mut looked_at) = (BTreeSet::new(), BTreeSet::new());
        for change in self.analysis.flow.changes_in(code, self.body) {
            if self.is_declared_in(change.symbol, self.body) || told.contains(&change.symbol) {
                continue;
            }
            let at_index = !change.is_assignment && change.index.is_some() && change.index == self.index;
            let is_cell = self.analysis.names.cell(change.symbol).is_some();
            if at_index && !is_cell {
                if !looked_at.insert(change.symbol) {
                    continue;
                }
                if let Some(other) = self.find_other_use(observer, change.symbol) {
                    told.insert(change.symbol);
                    diagnostics.push(self.dependence_error(
                        change.symbol,
                        other,
                        "an iteration reads a value that another one sets",
                    ));
                }
                continue;
            }
            told.insert(change.symbol);
            diagnostics.push(self.dependence_error(change.symbol, change.node, "each iteration changes it"));
        }
        // Functions of the file that change variables of the handler or of the file.
        for node in code
            .subtree_nodes(self.body)
            .filter(|it| matches!(code.kind(*it), AstKind::IdentifierReference(_)))
        {
            let function = code.symbol(node).filter(|symbol| code.functions_by_symbol.contains_key(symbol));
            if function.is_none() || function.is_some_and(|symbol| self.is_iteration_local(symbol)) {
                continue;
            }
            for location in observer.effects(node, &[]).writes {
                let (EffectLocation::Variable(symbol) | EffectLocation::Content(symbol)) = location else {
                    continue;
                };
                if !self.is_iteration_local(symbol) && told.insert(symbol) {
                    diagnostics.push(self.dependence_error(
                        symbol,
                        node,
                        "this function changes it in each iteration",
                    ));
                }
            }
        }
        for node_id in
            code.subtree_nodes(self.body).filter(|it| matches!(code.kind(*it), AstKind::BindingIdentifier(_)))
        {
            let Some(symbol) = code.symbol(node_id) else { continue };
            let outside = self.find_outside_use(symbol);
            if let Some(outside) = outside.filter(|_| told.insert(symbol)) {
                let error = self.dependence_error(symbol, node_id, "each iteration has its own");
                diagnostics.push(error.with_label(code.node_range(outside), "used outside of the loop"));
            }
        }
    }

    /// Whether each iteration has its own instance of a variable: it is declared in the body and used nowhere
    /// else, except in the bodies of other loops that declare it themselves.
    fn is_iteration_local(&self, symbol: SymbolId) -> bool {
        self.is_declared_in(symbol, self.body) && self.find_outside_use(symbol).is_none()
    }

    fn is_declared_in(&self, symbol: SymbolId, body: NodeId) -> bool {
        let declarations = self.code().semantic.scoping().symbol_declarations(symbol);
        declarations.into_iter().any(|node| self.code().is_inside(node, body))
    }

    /// Returns a use outside of the loop that would observe an assignment of an iteration.
    fn find_outside_use(&self, symbol: SymbolId) -> Option<NodeId> {
        let code = self.code();
        let has_own = |node: NodeId| {
            let mut bodies = self.bodies.iter().filter(|body| code.is_inside(node, **body));
            bodies.any(|body| !code.is_inside(self.body, *body) && self.is_declared_in(symbol, *body))
        };
        let mut uses = code.symbol_references(symbol).map(|reference| reference.node_id());
        uses.find(|node| !code.is_inside(*node, self.body) && !has_own(*node))
    }

    /// Returns a use of the object assigned by `x[i] = ..` that is not `x[i]`.
    fn find_other_use(&self, observer: &EffectAnalyzer<'_, '_, '_>, symbol: SymbolId) -> Option<NodeId> {
        let code = self.code();
        let holder = observer.representative(symbol);
        let names = code
            .subtree_nodes(self.body)
            .filter(|node| code.symbol(*node).is_some_and(|it| observer.representative(it) == holder));
        let mut outer =
            names.filter(|node| code.symbol(*node).is_some_and(|it| !self.is_iteration_local(it)));
        outer.find(|node| {
            let AstKind::ComputedMemberExpression(member) = code.kind(code.parent(*node)) else {
                return true;
            };
            let is_object = member.object.span() == code.span(*node);
            let index = matches!(member.expression, Expression::Identifier(_))
                .then(|| identifier_symbol(code, &member.expression))
                .flatten();
            !is_object || index != self.index
        })
    }

    fn dependence_error(&self, symbol: SymbolId, node: NodeId, label: &str) -> Diagnostic {
        let code = self.code();
        let name = code.name(symbol);
        if Some(symbol) == self.index {
            let message = format!("`{name}` is a constant in each iteration of `pfor`");
            let help = "copy it into a variable of the body, and change that";
            return Diagnostic::in_text(
                DiagnosticCode::PforDependence,
                code.node_range(node),
                message,
                "this changes it",
                help,
            );
        }
        let is_cell = self.analysis.names.cell(symbol).is_some();
        let message = if is_cell {
            format!("the iterations of a `pfor` share the state `{name}`")
        } else {
            format!("the iterations of a `pfor` depend on each other through `{name}`")
        };
        let help = format!(
            "let each iteration set an element of its own, as in `results[i] = ..`, and combine them after the loop; or {SEQUENTIAL_HELP}"
        );
        let error =
            Diagnostic::in_text(DiagnosticCode::PforDependence, code.node_range(node), message, label, help);
        let error = error.with_label(self.head..self.head + 4, "in this loop");
        if self.is_declared_in(symbol, self.body) {
            error
        } else {
            error.with_label(code.declaration_range(symbol), "declared outside of it")
        }
    }
}
