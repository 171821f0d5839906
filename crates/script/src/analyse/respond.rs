//! Rules 12 and 13: whether a handler responds on each of its paths, and never twice.

use oxc_ast::AstKind;
use oxc_semantic::NodeId;

use super::ScriptAnalysis;
use super::code::{CodeText, children, statements};
use crate::diagnostic::{DiagnosticCode, ScriptDiagnostic};
use crate::method::HandlerMethod;
use crate::syntax::ConstructKind;

pub(crate) fn check(analysis: &ScriptAnalysis<'_, '_>, found: &mut Vec<ScriptDiagnostic>) {
    let code = &analysis.code;
    for handler in &analysis.names.handlers {
        let node = code.functions[handler.function].node;
        let mut paths = ControlPaths { code, found };
        let end = paths.list(&statements(code, node));
        let answers_elsewhere =
            code.inside(node).any(|it| is_respond(code, it) && code.function_of(it) != handler.function);
        if !matches!(handler.method, HandlerMethod::Get | HandlerMethod::Head)
            || answers_elsewhere
            || !end.can_be_silent()
        {
            continue;
        }
        let construct = code.construct(handler.construct);
        let ConstructKind::On { method_span, .. } = &construct.kind else { continue };
        let none = !code.inside(node).any(|it| is_respond(code, it));
        let label = if none { "this never responds" } else { "a path through it ends without `respond`" };
        found.push(
            ScriptDiagnostic::error(
                DiagnosticCode::RespondMissing,
                construct.span.start..method_span.end,
                format!("a {} handler may end without a response", handler.method.word()),
                label,
                "add a `respond` at its end; without one the response is 204 without a body",
            )
            .as_warning(),
        );
    }
}

fn is_respond(code: &CodeText<'_, '_>, node: NodeId) -> bool {
    code.construct_at(node).is_some_and(|id| matches!(code.construct(id).kind, ConstructKind::Respond { .. }))
}

/// The possible ends of a piece of code.
#[derive(Clone, Copy, Debug, Default)]
struct CodeEnds {
    /// Whether it may continue without a response on this path.
    silent: bool,
    /// Whether it may continue after a response.
    answered: bool,
    /// Whether it may leave the handler without a response.
    leaves: bool,
}

impl CodeEnds {
    const SILENT: Self = Self { silent: true, answered: false, leaves: false };
    const ANSWERED: Self = Self { silent: false, answered: true, leaves: false };
    const NOWHERE: Self = Self { silent: false, answered: false, leaves: false };

    fn can_be_silent(self) -> bool {
        self.silent || self.leaves
    }

    fn or(self, other: Self) -> Self {
        Self {
            silent: self.silent || other.silent,
            answered: self.answered || other.answered,
            leaves: self.leaves || other.leaves,
        }
    }

    /// Combines the ends of two consecutive pieces of code.
    fn then(self, next: Self) -> Self {
        let goes_on = next.silent || next.answered;
        Self {
            silent: self.silent && next.silent,
            answered: (self.answered && goes_on) || (self.silent && next.answered),
            leaves: self.leaves || (self.silent && next.leaves),
        }
    }
}

struct ControlPaths<'f, 'p, 'a> {
    code: &'f CodeText<'p, 'a>,
    found: &'f mut Vec<ScriptDiagnostic>,
}

impl ControlPaths<'_, '_, '_> {
    fn list(&mut self, statements: &[NodeId]) -> CodeEnds {
        let mut end = CodeEnds::SILENT;
        let mut first = None;
        for statement in statements {
            if is_respond(self.code, *statement) {
                let sure = end.answered && !end.silent;
                if let Some(first) = first.filter(|_| sure) {
                    self.twice(first, *statement);
                }
                first = first.or(Some(*statement));
            }
            end = end.then(self.statement(*statement));
        }
        end
    }

    fn statement(&mut self, node: NodeId) -> CodeEnds {
        let code = self.code;
        match code.kind(node) {
            AstKind::ThrowStatement(_) if is_respond(code, node) => CodeEnds::ANSWERED,
            AstKind::ThrowStatement(_) => CodeEnds::NOWHERE,
            AstKind::ReturnStatement(_) => CodeEnds { leaves: true, ..CodeEnds::NOWHERE },
            AstKind::BlockStatement(_) => self.list(&children(code, node)),
            AstKind::IfStatement(_) => {
                let branches = children(code, node);
                let ends: Vec<CodeEnds> = branches.iter().map(|branch| self.statement(*branch)).collect();
                match ends.as_slice() {
                    [both, other] => both.or(*other),
                    [one] => one.or(CodeEnds::SILENT),
                    _ => CodeEnds::SILENT,
                }
            }
            AstKind::LabeledStatement(_) => self.list(&children(code, node)),
            AstKind::TryStatement(it) => {
                let (block, handler) = (it.block.node_id.get(), it.handler.as_ref());
                let tried = self.statement(block);
                let caught = handler.map(|handler| self.statement(handler.body.node_id.get()));
                let end = tried.or(caught.unwrap_or(CodeEnds::NOWHERE));
                match &it.finalizer {
                    Some(last) => end.then(self.statement(last.node_id.get())),
                    None => end,
                }
            }
            AstKind::SwitchStatement(it) => {
                // A case may fall through to the next, or leave by `break`. Without a `default`, possibly no
                // case is taken.
                let ends: Vec<CodeEnds> =
                    it.cases.iter().map(|case| self.list(&children(code, case.node_id.get()))).collect();
                let has_default = it.cases.iter().any(|case| case.test.is_none());
                let breaks =
                    code.inside(node).any(|inner| matches!(code.kind(inner), AstKind::BreakStatement(_)));
                let all = ends
                    .iter()
                    .copied()
                    .fold(if has_default { CodeEnds::NOWHERE } else { CodeEnds::SILENT }, CodeEnds::or);
                if breaks { all.or(CodeEnds { silent: all.silent, ..CodeEnds::NOWHERE }) } else { all }
            }
            kind if kind.is_iteration_statement() => {
                let body = children(code, node).last().map(|body| self.statement(*body));
                body.unwrap_or(CodeEnds::SILENT).or(CodeEnds::SILENT)
            }
            AstKind::BreakStatement(_) | AstKind::ContinueStatement(_) => CodeEnds::SILENT,
            _ => CodeEnds::SILENT,
        }
    }

    fn twice(&mut self, first: NodeId, second: NodeId) {
        let place =
            |node: NodeId| self.code.construct_at(node).map(|id| self.code.construct(id).span.clone());
        let (Some(first), Some(second)) = (place(first), place(second)) else { return };
        self.found.push(
            ScriptDiagnostic::error(
                DiagnosticCode::RespondTwice,
                second,
                "a request is answered twice",
                "only the first response is sent",
                "remove one of the two, or put them on different paths of an `if`",
            )
            .and(first, "answered here already"),
        );
    }
}
