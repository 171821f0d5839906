//! Rules 12 and 13: whether a handler responds on each of its paths, and never twice.

use diagnostics::Diagnostic;
use oxc_ast::AstKind;
use oxc_semantic::NodeId;

use super::ScriptAnalysis;
use super::code::{CodeText, body_statements, child_statements};
use crate::diagnostic::DiagnosticCode;
use crate::method::HandlerMethod;
use crate::syntax::ConstructKind;

pub(crate) fn check(analysis: &ScriptAnalysis<'_, '_>, found: &mut Vec<Diagnostic>) {
    let code = &analysis.code;
    for handler in &analysis.names.handlers {
        let node = code.functions[handler.function].node;
        let mut paths = ControlPaths { code, diagnostics: found };
        let end = paths.list_end(&body_statements(code, node));
        let answers_elsewhere = code
            .subtree_nodes(node)
            .any(|it| is_respond(code, it) && code.enclosing_function(it) != handler.function);
        if !matches!(handler.method, HandlerMethod::Get | HandlerMethod::Head)
            || answers_elsewhere
            || !end.can_lack_response()
        {
            continue;
        }
        let construct = code.construct(handler.construct);
        let ConstructKind::On { method_span, .. } = &construct.kind else { continue };
        let none = !code.subtree_nodes(node).any(|it| is_respond(code, it));
        let label = if none { "this never responds" } else { "a path through it ends without `respond`" };
        found.push(
            Diagnostic::in_text(
                DiagnosticCode::RespondMissing,
                construct.span.start..method_span.end,
                format!("a {} handler may end without a response", handler.method.as_str()),
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
    without_response: bool,
    /// Whether it may continue after a response.
    with_response: bool,
    /// Whether it may leave the handler without a response.
    exits_handler: bool,
}

impl CodeEnds {
    const WITHOUT_RESPONSE: Self =
        Self { without_response: true, with_response: false, exits_handler: false };
    const WITH_RESPONSE: Self = Self { without_response: false, with_response: true, exits_handler: false };
    const DIVERGES: Self = Self { without_response: false, with_response: false, exits_handler: false };

    fn can_lack_response(self) -> bool {
        self.without_response || self.exits_handler
    }

    fn combine_branches(self, other: Self) -> Self {
        Self {
            without_response: self.without_response || other.without_response,
            with_response: self.with_response || other.with_response,
            exits_handler: self.exits_handler || other.exits_handler,
        }
    }

    /// Combines the ends of two consecutive pieces of code.
    fn combine_sequence(self, next: Self) -> Self {
        let goes_on = next.without_response || next.with_response;
        Self {
            without_response: self.without_response && next.without_response,
            with_response: (self.with_response && goes_on) || (self.without_response && next.with_response),
            exits_handler: self.exits_handler || (self.without_response && next.exits_handler),
        }
    }
}

struct ControlPaths<'f, 'p, 'a> {
    code: &'f CodeText<'p, 'a>,
    diagnostics: &'f mut Vec<Diagnostic>,
}

impl ControlPaths<'_, '_, '_> {
    fn list_end(&mut self, statements: &[NodeId]) -> CodeEnds {
        let mut end = CodeEnds::WITHOUT_RESPONSE;
        let mut first = None;
        for statement in statements {
            if is_respond(self.code, *statement) {
                let sure = end.with_response && !end.without_response;
                if let Some(first) = first.filter(|_| sure) {
                    self.report_double_response(first, *statement);
                }
                first = first.or(Some(*statement));
            }
            end = end.combine_sequence(self.statement_end(*statement));
        }
        end
    }

    fn statement_end(&mut self, node: NodeId) -> CodeEnds {
        let code = self.code;
        match code.kind(node) {
            AstKind::ThrowStatement(_) if is_respond(code, node) => CodeEnds::WITH_RESPONSE,
            AstKind::ThrowStatement(_) => CodeEnds::DIVERGES,
            AstKind::ReturnStatement(_) => CodeEnds { exits_handler: true, ..CodeEnds::DIVERGES },
            AstKind::BlockStatement(_) => self.list_end(&child_statements(code, node)),
            AstKind::IfStatement(_) => {
                let branches = child_statements(code, node);
                let ends: Vec<CodeEnds> = branches.iter().map(|branch| self.statement_end(*branch)).collect();
                match ends.as_slice() {
                    [both, other] => both.combine_branches(*other),
                    [one] => one.combine_branches(CodeEnds::WITHOUT_RESPONSE),
                    _ => CodeEnds::WITHOUT_RESPONSE,
                }
            }
            AstKind::LabeledStatement(_) => self.list_end(&child_statements(code, node)),
            AstKind::TryStatement(it) => {
                let (block, handler) = (it.block.node_id.get(), it.handler.as_ref());
                let tried = self.statement_end(block);
                let caught = handler.map(|handler| self.statement_end(handler.body.node_id.get()));
                let end = tried.combine_branches(caught.unwrap_or(CodeEnds::DIVERGES));
                match &it.finalizer {
                    Some(last) => end.combine_sequence(self.statement_end(last.node_id.get())),
                    None => end,
                }
            }
            AstKind::SwitchStatement(it) => {
                // A case may fall through to the next, or leave by `break`. Without a `default`, possibly no
                // case is taken.
                let ends: Vec<CodeEnds> = it
                    .cases
                    .iter()
                    .map(|case| self.list_end(&child_statements(code, case.node_id.get())))
                    .collect();
                let has_default = it.cases.iter().any(|case| case.test.is_none());
                let breaks = code
                    .subtree_nodes(node)
                    .any(|inner| matches!(code.kind(inner), AstKind::BreakStatement(_)));
                let all = ends.iter().copied().fold(
                    if has_default { CodeEnds::DIVERGES } else { CodeEnds::WITHOUT_RESPONSE },
                    CodeEnds::combine_branches,
                );
                if breaks {
                    all.combine_branches(CodeEnds {
                        without_response: all.without_response,
                        ..CodeEnds::DIVERGES
                    })
                } else {
                    all
                }
            }
            kind if kind.is_iteration_statement() => {
                let body = child_statements(code, node).last().map(|body| self.statement_end(*body));
                body.unwrap_or(CodeEnds::WITHOUT_RESPONSE).combine_branches(CodeEnds::WITHOUT_RESPONSE)
            }
            AstKind::BreakStatement(_) | AstKind::ContinueStatement(_) => CodeEnds::WITHOUT_RESPONSE,
            _ => CodeEnds::WITHOUT_RESPONSE,
        }
    }

    fn report_double_response(&mut self, first: NodeId, second: NodeId) {
        let place =
            |node: NodeId| self.code.construct_at(node).map(|id| self.code.construct(id).span.clone());
        let (Some(first), Some(second)) = (place(first), place(second)) else { return };
        self.diagnostics.push(
            Diagnostic::in_text(
                DiagnosticCode::RespondTwice,
                second,
                "a request is answered twice",
                "only the first response is sent",
                "remove one of the two, or put them on different paths of an `if`",
            )
            .with_label(first, "answered here already"),
        );
    }
}
