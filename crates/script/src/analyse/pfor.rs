//! Rule 19: the iterations of a `pfor` run in any order, so they must be independent.

use std::collections::BTreeSet;

use oxc_ast::AstKind;
use oxc_ast::ast::Expression;
use oxc_semantic::NodeId;
use oxc_span::GetSpan;
use oxc_syntax::symbol::SymbolId;

use super::ScriptAnalysis;
use super::code::{CodeText, identifier};
use super::effects::{EffectAnalyzer, EffectLocation, target};
use crate::diagnostic::{DiagnosticCode, ScriptDiagnostic};
use crate::syntax::{ConstructId, ConstructKind};

/// Whether the author requests sequential iterations with `/* S: sequential */` before the loop.
pub(crate) fn is_sequential(code: &CodeText<'_, '_>, construct: ConstructId) -> bool {
    let before = code.text(0..code.construct(construct).span.start).trim_end();
    let comment = before.strip_suffix("*/").and_then(|before| before.rsplit_once("/*"));
    comment.is_some_and(|(_, text)| text.split_whitespace().eq(["S:", "sequential"]))
}

/// Returns the repeated statement.
pub(crate) fn body(code: &CodeText<'_, '_>, construct: ConstructId) -> Option<NodeId> {
    let statement = code.statements[construct];
    let AstKind::ForInStatement(each) = code.kind(statement) else { return None };
    super::code::node_of(code, statement, each.body.span())
}

pub(crate) fn check(
    analysis: &ScriptAnalysis<'_, '_>,
    observer: &EffectAnalyzer<'_, '_, '_>,
    found: &mut Vec<ScriptDiagnostic>,
) {
    let code = &analysis.code;
    let constructs = code.parsed.syntax.constructs.iter().enumerate();
    let loops = constructs.clone().filter(|(_, it)| matches!(it.kind, ConstructKind::Pfor { .. }));
    let bodies: Vec<NodeId> = loops.filter_map(|(id, _)| body(code, id)).collect();
    for (id, construct) in constructs {
        let ConstructKind::Pfor { name } = &construct.kind else { continue };
        let Some(body) = body(code, id) else { continue };
        if is_sequential(code, id) {
            continue;
        }
        let checked =
            PforIteration { analysis, body, bodies: &bodies, index: name.symbol, head: construct.span.start };
        checked.jumps(found);
        checked.answers(found);
        checked.changes(observer, found);
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

const SEQUENTIAL: &str = "write `/* S: sequential */` before the loop to run the iterations sequentially";

impl PforIteration<'_, '_, '_> {
    fn code(&self) -> &CodeText<'_, '_> {
        &self.analysis.code
    }

    fn jumps(&self, found: &mut Vec<ScriptDiagnostic>) {
        let code = self.code();
        for node in code.inside(self.body) {
            if code.function_of(node) != code.function_of(self.body) {
                continue;
            }
            let (word, leaves) = match code.kind(node) {
                AstKind::ReturnStatement(_) => ("return", true),
                AstKind::BreakStatement(_) => {
                    ("break", target(code, node).is_none_or(|it| !code.is_inside(it, self.body)))
                }
                AstKind::ContinueStatement(_) => ("continue", self.continues_outside(node)),
                _ => continue,
            };
            if !leaves {
                continue;
            }
            let message = format!("`{word}` leaves a `pfor` while other iterations are running");
            let help = format!("store the result, and check it after the loop; or {SEQUENTIAL}");
            let error = ScriptDiagnostic::error(
                DiagnosticCode::PforLeaves,
                code.place(node),
                message,
                "this would leave the loop",
                help,
            );
            found.push(error.and(self.head..self.head + 4, "of this loop"));
        }
    }

    /// Whether a `continue` refers to an outer loop. In the loop itself it only ends an iteration.
    fn continues_outside(&self, node: NodeId) -> bool {
        let code = self.code();
        let Some(target) = target(code, node) else { return true };
        let own = code.parent(self.body);
        let is_label =
            matches!(code.kind(target), AstKind::LabeledStatement(_)) && code.parent(own) == target;
        !(code.is_inside(target, self.body) || target == own || is_label)
    }

    fn answers(&self, found: &mut Vec<ScriptDiagnostic>) {
        let code = self.code();
        for node in code.inside(self.body) {
            let Some(id) = code.construct_at(node) else { continue };
            // The handlers of a nested resource respond to their own requests.
            if !matches!(code.construct(id).kind, ConstructKind::Respond { .. })
                || code.handler_of(node) != code.handler_of(self.body)
            {
                continue;
            }
            let help = format!("respond after the loop, when all iterations are done; or {SEQUENTIAL}");
            let message = "`respond` in a `pfor`: any iteration could respond first";
            let error = ScriptDiagnostic::error(
                DiagnosticCode::PforDependence,
                code.construct(id).span.clone(),
                message,
                "every iteration responds",
                help,
            );
            found.push(error.and(self.head..self.head + 4, "of this loop"));
        }
    }

    fn changes(&self, observer: &EffectAnalyzer<'_, '_, '_>, found: &mut Vec<ScriptDiagnostic>) {
        let code = self.code();
        let (mut told, mut looked_at) = (BTreeSet::new(), BTreeSet::new());
        for change in self.analysis.flow.changes_in(code, self.body) {
            if self.declares(change.symbol, self.body) || told.contains(&change.symbol) {
                continue;
            }
            let at_index = !change.is_assignment && change.index.is_some() && change.index == self.index;
            let is_cell = self.analysis.names.cell(change.symbol).is_some();
            if at_index && !is_cell {
                if !looked_at.insert(change.symbol) {
                    continue;
                }
                if let Some(other) = self.other_use(observer, change.symbol) {
                    told.insert(change.symbol);
                    found.push(self.dependence(
                        change.symbol,
                        other,
                        "an iteration reads a value that another one sets",
                    ));
                }
                continue;
            }
            told.insert(change.symbol);
            found.push(self.dependence(change.symbol, change.node, "each iteration changes it"));
        }
        // Functions of the file that change variables of the handler or of the file.
        for node in
            code.inside(self.body).filter(|it| matches!(code.kind(*it), AstKind::IdentifierReference(_)))
        {
            let function = code.symbol(node).filter(|symbol| code.named.contains_key(symbol));
            if function.is_none() || function.is_some_and(|symbol| self.is_own(symbol)) {
                continue;
            }
            for location in observer.effects(node, &[]).writes {
                let (EffectLocation::Variable(symbol) | EffectLocation::Content(symbol)) = location else {
                    continue;
                };
                if !self.is_own(symbol) && told.insert(symbol) {
                    found.push(self.dependence(symbol, node, "this function changes it in each iteration"));
                }
            }
        }
        for declared in
            code.inside(self.body).filter(|it| matches!(code.kind(*it), AstKind::BindingIdentifier(_)))
        {
            let Some(symbol) = code.symbol(declared) else { continue };
            let outside = self.used_elsewhere(symbol);
            if let Some(outside) = outside.filter(|_| told.insert(symbol)) {
                let error = self.dependence(symbol, declared, "each iteration has its own");
                found.push(error.and(code.place(outside), "used outside of the loop"));
            }
        }
    }

    /// Whether each iteration has its own instance of a variable: it is declared in the body and used nowhere
    /// else, except in the bodies of other loops that declare it themselves.
    fn is_own(&self, symbol: SymbolId) -> bool {
        self.declares(symbol, self.body) && self.used_elsewhere(symbol).is_none()
    }

    fn declares(&self, symbol: SymbolId, body: NodeId) -> bool {
        let declarations = self.code().semantic.scoping().symbol_declarations(symbol);
        declarations.into_iter().any(|node| self.code().is_inside(node, body))
    }

    /// Returns a use outside of the loop that would observe an assignment of an iteration.
    fn used_elsewhere(&self, symbol: SymbolId) -> Option<NodeId> {
        let code = self.code();
        let has_own = |node: NodeId| {
            let mut bodies = self.bodies.iter().filter(|body| code.is_inside(node, **body));
            bodies.any(|body| !code.is_inside(self.body, *body) && self.declares(symbol, *body))
        };
        let mut uses = code.uses(symbol).map(|reference| reference.node_id());
        uses.find(|node| !code.is_inside(*node, self.body) && !has_own(*node))
    }

    /// Returns a use of the object assigned by `x[i] = ..` that is not `x[i]`.
    fn other_use(&self, observer: &EffectAnalyzer<'_, '_, '_>, symbol: SymbolId) -> Option<NodeId> {
        let code = self.code();
        let holder = observer.holder(symbol);
        let names = code
            .inside(self.body)
            .filter(|node| code.symbol(*node).is_some_and(|it| observer.holder(it) == holder));
        let mut outer = names.filter(|node| code.symbol(*node).is_some_and(|it| !self.is_own(it)));
        outer.find(|node| {
            let AstKind::ComputedMemberExpression(member) = code.kind(code.parent(*node)) else {
                return true;
            };
            let is_object = member.object.span() == code.span(*node);
            let index = matches!(member.expression, Expression::Identifier(_))
                .then(|| identifier(code, &member.expression))
                .flatten();
            !is_object || index != self.index
        })
    }

    fn dependence(&self, symbol: SymbolId, node: NodeId, label: &str) -> ScriptDiagnostic {
        let code = self.code();
        let name = code.name(symbol);
        if Some(symbol) == self.index {
            let message = format!("`{name}` is a constant in each iteration of `pfor`");
            let help = "copy it into a variable of the body, and change that";
            return ScriptDiagnostic::error(
                DiagnosticCode::PforDependence,
                code.place(node),
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
            "let each iteration set an element of its own, as in `results[i] = ..`, and combine them after the loop; or {SEQUENTIAL}"
        );
        let error =
            ScriptDiagnostic::error(DiagnosticCode::PforDependence, code.place(node), message, label, help);
        let error = error.and(self.head..self.head + 4, "in this loop");
        if self.declares(symbol, self.body) {
            error
        } else {
            error.and(code.declared(symbol), "declared outside of it")
        }
    }
}
