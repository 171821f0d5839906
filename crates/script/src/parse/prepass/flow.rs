//! `respond`, `par` and `pfor`.

use super::{ConstructFinder, StatementPosition};
use crate::diagnostic::DiagnosticCode;
use crate::parse::lex::{FollowingSyntax, TokenId};
use crate::syntax::{ConstructKind, ConstructName};

impl ConstructFinder<'_> {
    pub(super) fn find_respond(&mut self, id: TokenId) {
        let Some(token) = self.token(id) else { return };
        if token.following != FollowingSyntax::Operand {
            self.check_lone_respond(id);
            return;
        }
        if !self.is_in_handler(token.frame) {
            let help = "write it in a handler, `on GET { respond 'Hello' }`; elsewhere a function returns its result";
            self.report_error(
                DiagnosticCode::RespondPlace,
                self.span(id),
                "`respond` is only allowed in a handler",
                "not allowed here",
                help,
            );
        }
        let end = self.statement_end(id);
        let value = self.token_range(id + 1, end);
        let construct = self.add_construct(ConstructKind::Respond { value }, self.token_range(id, end), None);
        self.replace_range(self.span(id), "throw", Some((construct, 0)));
    }

    /// Reports a `respond` alone on a line. It is valid JavaScript, but pointless where the word is not used
    /// as a name.
    fn check_lone_respond(&mut self, id: TokenId) {
        let alone = self.lexed.is_token(id + 1, ";")
            || self.lexed.is_token(id + 1, "}")
            || !self.is_on_same_line(id + 1);
        if !alone || !self.is_construct_word(id) {
            return;
        }
        let help = "write the value after it, on this line: `respond result`; `respond null` answers 204, without a body";
        let message = "`respond` needs a value on the same line";
        self.report_error(DiagnosticCode::RespondValue, self.span(id), message, "no value follows", help);
    }

    /// Whether an ambiguous word cannot be meant as a name: it is in a service, and the file does not use it
    /// as a name.
    fn is_construct_word(&self, id: TokenId) -> bool {
        let in_service = self.token(id).is_some_and(|token| self.is_in_service(token.frame));
        in_service && !self.lexed.uses_as_name(self.lexed.token_text(id))
    }

    pub(super) fn find_par(&mut self, id: TokenId) {
        let next = id + 1;
        let braces = self.lexed.is_token(next, "{");
        let ours = if self.is_on_same_line(next) {
            braces || self.operand_begins(next)
        } else {
            braces && self.is_construct_word(id)
        };
        if !ours {
            return;
        }
        self.check_flow_place(id, DiagnosticCode::ParPlace, "`par`");
        if !braces {
            let help = "write the statements in braces: `par { .. }`";
            let message = "`par` needs a block: one statement has nothing to be parallel to";
            self.report_error(
                DiagnosticCode::ParBody,
                self.span(next),
                message,
                "`{` is missing before this",
                help,
            );
            self.replace_range(self.span(id), "", None);
            return;
        }
        let construct = self.add_construct(
            ConstructKind::Par,
            self.token_range(id, self.lexed.closing_token(next)),
            Some(next),
        );
        let head = self.span(id).start..self.span(next).start;
        self.replace_range(head, "", Some((construct, 0)));
    }

    fn check_flow_place(&mut self, id: TokenId, code: DiagnosticCode, word: &str) {
        let Some(token) = self.token(id) else { return };
        let StatementPosition { in_function, .. } = self.statement_position(token.frame);
        if in_function || self.is_in_handler(token.frame) {
            return;
        }
        let message = format!("{word} is only allowed in a handler or a function");
        let help = "move it into the handler whose calls are to overlap";
        self.report_error(code, self.span(id), message, "not allowed here", help);
    }

    /// Encodes `pfor(var NAME in E) S`.
    pub(super) fn find_pfor(&mut self, id: TokenId) {
        let open = id + 1;
        if !self.is_on_same_line(open) || !self.lexed.is_token(open, "(") {
            return;
        }
        let close = self.lexed.closing_token(open);
        let declared = ["var", "let", "const"].contains(&self.lexed.token_text(open + 1));
        let name = if declared { open + 2 } else { open + 1 };
        let of = self.lexed.is_name(name + 1, "of");
        let body_follows = self.is_on_same_line(close + 1)
            && (self.operand_begins(close + 1) || self.lexed.is_token(close + 1, "{"));
        let ours =
            declared || (self.lexed.is_token(name + 1, "in") && body_follows) || (of && close > name + 2);
        if !ours {
            return;
        }
        self.check_flow_place(id, DiagnosticCode::PforPlace, "`pfor`");
        self.check_pfor_head(open, declared, name, close);
        let text = self.lexed.token_text(name).to_owned();
        let name = ConstructName { text, span: self.span(name), symbol: None };
        let end = self.statement_end(close + 1);
        let construct = self.add_construct(ConstructKind::Pfor { name }, self.token_range(id, end), None);
        self.syntax.constructs[construct].body = Some(self.token_range(close + 1, end));
        if let Some(frame) = self
            .token(close + 1)
            .and_then(|token| token.bracket)
            .filter(|_| self.lexed.is_token(close + 1, "{"))
        {
            self.bodies[frame] = Some(construct);
        }
        self.replace_range(self.span(id), "for", Some((construct, 0)));
        if declared {
            self.replace_range(self.span(open + 1), "const", None);
        } else {
            let start = self.span(open + 1).start;
            self.replace_range(start..start, "const ", None);
        }
    }

    fn check_pfor_head(&mut self, open: TokenId, declared: bool, name: TokenId, close: TokenId) {
        let word = self.lexed.token_text(open + 1);
        let label;
        let (span, message, shown, help) = if self.lexed.is_name(name + 1, "of") {
            let help =
                "write `pfor(var i in list)` and `list[i]`: `i` is an index of a list or a key of an object";
            (self.span(name + 1), "`pfor` goes over keys, with `in`", "`of` goes over values", help)
        } else if !self.lexed.is_token(name + 1, "in") {
            let help = "write `pfor(var i in list) { .. }`; a loop that counts is a `for`";
            (
                self.token_range(open, close),
                "`pfor` has the form `pfor(var NAME in E)`",
                "this has another",
                help,
            )
        } else if !declared {
            let help = "write `pfor(var i in list)`: each iteration has its own";
            (self.span(name), "`pfor` declares its variable", "`var` is missing before this", help)
        } else if word != "var" {
            label = format!("this is `{word}`");
            let help = "write `var`: the variable is still new and constant in each iteration";
            (self.span(open + 1), "the variable of `pfor` is declared with `var`", label.as_str(), help)
        } else {
            return;
        };
        self.report_error(DiagnosticCode::PforHead, span, message, shown, help);
    }
}
