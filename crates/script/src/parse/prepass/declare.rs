//! `state` and external resources.

use super::{ConstructFinder, StatementPosition};
use crate::diagnostic::DiagnosticCode;
use crate::parse::lex::{TokenId, TokenKind};
use crate::syntax::{ConstructKind, ConstructName};

impl ConstructFinder<'_> {
    pub(super) fn find_state(&mut self, id: TokenId) {
        let next = id + 1;
        let ours =
            self.is_on_same_line(next) && (self.operand_begins(next) || self.lexed.is_token(next, "{"));
        if !ours {
            return;
        }
        self.check_state_place(id);
        if !self.is_declarable_name(next) {
            let help =
                "write `state count = 0`; a list or an object is one state: `state both = { a: 1, b: 2 }`";
            self.report_error(
                DiagnosticCode::StateName,
                self.span(next),
                "a state needs a name",
                "expected a name here",
                help,
            );
            let closed = self.lexed.closing_token(next);
            self.skip_range(id, self.statement_end(if closed > next { closed + 1 } else { id }));
            return;
        }
        if self.is_statement_body(id) {
            self.replace_range(self.span(id), "", None);
            return;
        }
        let names = self.declared_names(next);
        let span = self.token_range(id, self.statement_end(id));
        let construct = self.add_construct(ConstructKind::State { names }, span, None);
        self.replace_range(self.span(id), "let", Some((construct, 0)));
    }

    fn check_state_place(&mut self, id: TokenId) {
        let Some(token) = self.token(id) else { return };
        let StatementPosition { enclosing: around, in_function, .. } = self.statement_position(token.frame);
        let (message, help) = if around.is_none() && self.is_body_missing {
            return;
        } else if around.is_none() {
            (
                "state must be declared in a service, a resource or a handler",
                "move it into the service whose handlers share it; a constant of the file is a `const`",
            )
        } else if in_function {
            (
                "state can't be declared in a function",
                "declare it in the handler, and pass the function its arguments",
            )
        } else if self.is_statement_body(id) {
            ("state can't be declared on a condition", "declare it before, and set it here")
        } else {
            return;
        };
        self.report_error(DiagnosticCode::StatePlace, self.span(id), message, "not allowed here", help);
    }

    /// Whether a statement is the body of `if (a)`, `else` or a label, where declarations are not allowed.
    fn is_statement_body(&self, id: TokenId) -> bool {
        id > 0 && self.lexed.is_statement_head(id - 1)
    }

    pub(super) fn add_external(&mut self, id: TokenId) {
        if self.is_statement_body(id) {
            let message = "an external resource can't be declared on a condition";
            let help =
                "declare it before, and call it here; put the statements in braces where there are several";
            self.report_error(DiagnosticCode::ResPlace, self.span(id), message, "this one is", help);
            self.replace_range(self.span(id), "", None);
            return;
        }
        if let Some(behind) = self.external_handler_start(id) {
            let message = "an external resource has no handler here";
            let help = "a resource of this service is `res '/path' on GET { .. }`, without a name; an external one ends \
                        after its URL";
            self.report_error(
                DiagnosticCode::ResBody,
                self.span(behind),
                message,
                "its service has the handlers",
                help,
            );
            self.skip_range(id, self.statement_end(id));
            return;
        }
        let names = self.declared_names(id + 1);
        let span = self.token_range(id, self.statement_end(id));
        let construct = self.add_construct(ConstructKind::External { names }, span, None);
        self.replace_range(self.span(id), "const", Some((construct, 0)));
    }

    /// Returns the `on` or brace after `res g = E`.
    fn external_handler_start(&self, id: TokenId) -> Option<TokenId> {
        let behind = self.expression_end(id + 1)? + 1;
        let handler = self.lexed.is_name(behind, "on") || self.is_block(behind);
        (handler && self.is_on_same_line(behind)).then_some(behind)
    }

    /// Returns the names in `a = 1, b`.
    fn declared_names(&self, first: TokenId) -> Vec<ConstructName> {
        let mut names = Vec::new();
        let mut id = first;
        while self.token(id).is_some_and(|token| token.kind == TokenKind::Name) {
            names.push(ConstructName {
                text: self.lexed.token_text(id).into(),
                span: self.span(id),
                symbol: None,
            });
            let last = self.expression_end(id).unwrap_or(id);
            if !self.lexed.is_token(last + 1, ",") {
                break;
            }
            id = last + 2;
        }
        names
    }
}
