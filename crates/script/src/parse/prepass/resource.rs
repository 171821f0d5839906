//! `service`, `res` and `on`.

use diagnostics::Diagnostic;

use super::{ConstructFinder, StatementPosition};
use crate::diagnostic::DiagnosticCode;
use crate::method::HandlerMethod;
use crate::parse::lex::{TokenId, TokenKind};
use crate::syntax::{ConstructKind, ConstructName};

/// The code after a resource's path.
enum PathSuffix {
    Block(TokenId),
    /// `on METHOD`.
    Handler {
        /// The `on`, or the method if `on` is missing.
        start: TokenId,
        /// The method.
        word: TokenId,
    },
    Absent,
}

impl ConstructFinder<'_> {
    pub(super) fn find_service(&mut self, id: TokenId) {
        let next = id + 1;
        let begins =
            self.is_on_same_line(next) && (self.lexed.is_token(next, "{") || self.operand_begins(next));
        if !begins {
            return;
        }
        let named = self.is_declarable_name(next) && !self.lexed.is_token(next, "{");
        let open = if self.lexed.is_token(next, "{") { next } else { next + 1 };
        if !named {
            let help = "name it, as in `service shop {`; its route in the config has this name";
            self.report_error(
                DiagnosticCode::ServiceName,
                self.span(next),
                "a service needs a name",
                "a name is missing here",
                help,
            );
        }
        if !self.lexed.is_token(open, "{") {
            let found = self.describe_token(open);
            let help = "write the resources in braces: `service shop { .. }`";
            let message = format!("expected `{{` after the service's name, found {found}");
            self.report_error(
                DiagnosticCode::ServiceBody,
                self.span(open),
                message,
                "`{` is missing before this",
                help,
            );
            self.skip_range(id, self.statement_end(id));
            self.is_body_missing = true;
            return;
        }
        self.check_service_place(id);
        let close = self.lexed.closing_token(open);
        let text = if named { self.lexed.token_text(next) } else { "" };
        let name = ConstructName { text: text.into(), span: self.span(next), symbol: None };
        let construct =
            self.add_construct(ConstructKind::Service { name }, self.token_range(id, close), Some(open));
        let head = self.span(id).start..self.span(open).start;
        self.replace_range(head, "void function() ", Some((construct, 0)));
        self.insert_after(close, ";");
    }

    fn check_service_place(&mut self, id: TokenId) {
        let Some(token) = self.token(id).filter(|token| self.lexed.frames[token.frame].parent.is_some())
        else {
            return;
        };
        let position = self.statement_position(token.frame);
        let help = "move it out, to the file's top level; services reach each other by HTTP";
        let message = "a service must be at the top level of a file";
        let mut error = Diagnostic::in_text(
            DiagnosticCode::ServicePlace,
            self.span(id),
            message,
            "not allowed here",
            help,
        );
        if let Some(around) = position.enclosing {
            let construct = &self.syntax.constructs[around];
            let head =
                construct.span.start..construct.body.as_ref().map_or(construct.span.end, |body| body.start);
            error = error.with_label(head, "it is nested in this");
        }
        self.diagnostics.push(error);
    }

    /// Whether an operand begins here that cannot continue an expression which ends in a name.
    pub(super) fn operand_begins(&self, id: TokenId) -> bool {
        let Some(token) = self.token(id) else { return false };
        match token.kind {
            TokenKind::Name
            | TokenKind::Private
            | TokenKind::Number
            | TokenKind::String
            | TokenKind::Regex => true,
            TokenKind::Keyword => !["in", "instanceof"].contains(&self.lexed.token_text(id)),
            _ => false,
        }
    }

    pub(super) fn find_resource(&mut self, id: TokenId) {
        let next = id + 1;
        if !self.is_on_same_line(next) {
            return;
        }
        if self.is_declarable_name(next) && self.lexed.is_token(next + 1, "=") {
            return self.add_external(id);
        }
        let sure = self.operand_begins(next) || self.lexed.is_token(next, "{");
        let no_path = self.lexed.is_token(next, "{")
            || (self.lexed.is_name(next, "on") && self.lexed.is_token(next + 2, "{"));
        let end = if no_path { None } else { self.expression_end(next) };
        let behind = self.path_suffix(end.map_or(next, |end| end + 1));
        // `res(a)`, ``res`a` `` and `res[a]` are JavaScript, unless a handler follows on the same line.
        let could_be = ["(", "[", "+", "-"].contains(&self.lexed.token_text(next))
            || self
                .token(next)
                .is_some_and(|token| matches!(token.kind, TokenKind::Template | TokenKind::TemplateHead));
        let follows =
            !matches!(behind, PathSuffix::Absent) && end.is_some_and(|end| self.is_on_same_line(end + 1));
        if sure || (could_be && follows) {
            self.add_resource(id, end, behind);
        }
    }

    fn path_suffix(&self, id: TokenId) -> PathSuffix {
        let braces = self.lexed.is_token(id + 1, "{");
        let method = self.is_on_same_line(id + 1) && self.operand_begins(id + 1);
        if self.is_block(id) {
            PathSuffix::Block(id)
        } else if self.lexed.is_name(id, "on") && (method || braces) {
            PathSuffix::Handler { start: id, word: id + 1 }
        } else if self.is_declarable_name(id)
            && braces
            && HandlerMethod::from_handler_name(&self.lexed.token_text(id).to_uppercase()).is_some()
        {
            PathSuffix::Handler { start: id, word: id }
        } else {
            PathSuffix::Absent
        }
    }

    fn add_resource(&mut self, id: TokenId, end: Option<TokenId>, behind: PathSuffix) {
        self.check_resource_place(id);
        self.check_path(id, end);
        let path =
            end.map_or_else(|| self.span(id).end..self.span(id).end, |end| self.token_range(id + 1, end));
        let head = if end.is_some() { "void [" } else { "void [0" };
        match behind {
            PathSuffix::Block(open) => {
                let close = self.lexed.closing_token(open);
                let kind = ConstructKind::Res { path, literal: None, inline: false };
                let construct = self.add_construct(kind, self.token_range(id, close), Some(open));
                self.replace_range(self.span(id), head, Some((construct, 0)));
                let start = self.span(open).start;
                self.replace_range(start..start, ", function() ", None);
                self.insert_after(close, "];");
            }
            PathSuffix::Handler { start: from, word } => {
                self.inline_heads.insert(from);
                if from == word {
                    self.report_missing_on(word);
                }
                let Some((method, open)) = self.handler_head(word) else {
                    self.skip_range(id, self.statement_end(id));
                    return;
                };
                let close = self.lexed.closing_token(open);
                let kind = ConstructKind::Res { path, literal: None, inline: true };
                let resource = self.add_construct(kind, self.token_range(id, close), None);
                self.syntax.constructs[resource].body = Some(self.token_range(open, close));
                self.replace_range(self.span(id), head, Some((resource, 0)));
                self.add_handler(from, (word, method), open, (", function() {", ";}];"));
            }
            PathSuffix::Absent => {
                let help = "write `on GET { .. }` after the path, or several handlers in braces; an external resource \
                            is `res name = 'http://..'`";
                let message = "a resource needs a handler";
                let end = end.unwrap_or(id);
                self.report_error(
                    DiagnosticCode::ResBody,
                    self.token_range(id, end),
                    message,
                    "this has neither `on` nor a block",
                    help,
                );
                self.skip_range(id, self.statement_end(id));
            }
        }
    }

    /// Reports a missing `on`: `res '/a' GET {`.
    fn report_missing_on(&mut self, word: TokenId) {
        let text = self.lexed.token_text(word);
        let message = format!("expected `on` before `{text}`");
        let help = format!("write `on {} {{`", text.to_uppercase());
        self.report_error(
            DiagnosticCode::ResBody,
            self.span(word),
            message,
            "`on` is missing before this",
            &help,
        );
    }

    fn check_resource_place(&mut self, id: TokenId) {
        let Some(token) = self.token(id) else { return };
        let StatementPosition { enclosing: around, in_function, .. } = self.statement_position(token.frame);
        let kind = around.map(|around| &self.syntax.constructs[around].kind);
        let (message, help) = match kind {
            None if self.is_body_missing => return,
            None => (
                "a resource must be declared in a service",
                "put it into a service: `service shop { res '/a' on GET { .. } }`",
            ),
            Some(ConstructKind::Res { .. }) => (
                "a resource can't be nested directly in another resource",
                "move it out, and write its whole path; shared state can be declared in the service",
            ),
            Some(_) if in_function => (
                "a resource can't be declared in a function",
                "declare it in the handler itself; for several, use a `for` loop instead of a callback",
            ),
            Some(_) => return,
        };
        self.report_error(DiagnosticCode::ResPlace, self.span(id), message, "not allowed here", help);
    }

    fn check_path(&mut self, id: TokenId, end: Option<TokenId>) {
        let Some(end) = end else {
            let help = "write the path first: `res '/data' on GET { .. }`";
            self.report_error(
                DiagnosticCode::ResPath,
                self.span(id),
                "a resource needs a path",
                "no path follows",
                help,
            );
            return;
        };
        if self.lexed.is_token(id + 1, "(") {
            let help =
                "write the path without parentheses, as in `res '/red/' + id on GET {`, or compute it before";
            let message = "a path in parentheses reads like a call of `res`";
            self.report_error(
                DiagnosticCode::ResParentheses,
                self.token_range(id + 1, end),
                message,
                "this is read as a path",
                help,
            );
        }
    }

    pub(super) fn find_handler(&mut self, id: TokenId) {
        let begins =
            self.is_on_same_line(id + 1) && (self.operand_begins(id + 1) || self.lexed.is_token(id + 1, "{"));
        if !begins || self.inline_heads.contains(&id) {
            return;
        }
        match self.handler_head(id + 1) {
            Some((method, open)) => {
                self.check_handler_place(id);
                self.add_handler(id, (id + 1, method), open, ("", ";"));
            }
            None => self.skip_range(id, self.statement_end(id)),
        }
    }

    /// Adds a handler, with the JavaScript to insert before and after it.
    fn add_handler(
        &mut self,
        from: TokenId,
        (word, method): (TokenId, Option<HandlerMethod>),
        open: TokenId,
        (before, after): (&str, &str),
    ) {
        let kind =
            ConstructKind::On { method: method.unwrap_or(HandlerMethod::Get), method_span: self.span(word) };
        let close = self.lexed.closing_token(open);
        let handler = self.add_construct(kind, self.token_range(from, close), Some(open));
        let head = self.span(from).start..self.span(open).start;
        let text = format!("{before}void async function(query, response) ");
        self.replace_range(head, &text, Some((handler, before.len())));
        self.insert_after(close, after);
    }

    /// Returns the method, if it is valid, and the brace of `on METHOD {`.
    fn handler_head(&mut self, word: TokenId) -> Option<(Option<HandlerMethod>, TokenId)> {
        let open = if self.lexed.is_token(word, "{") { word } else { word + 1 };
        let method = HandlerMethod::from_handler_name(self.lexed.token_text(word));
        if method.is_none() {
            self.report_unknown_method(word);
        }
        if self.lexed.is_token(open, "{") {
            return Some((method, open));
        }
        let message = format!("expected `{{` after the method, found {}", self.describe_token(open));
        let help = if self.lexed.is_token(open, ",") {
            "write a handler for each method; code that they share can be a function"
        } else {
            "write the handler in braces: `on GET { respond 'Hello' }`"
        };
        self.report_error(
            DiagnosticCode::OnBody,
            self.span(open),
            message,
            "`{` is missing before this",
            help,
        );
        None
    }

    fn report_unknown_method(&mut self, word: TokenId) {
        let text = self.lexed.token_text(word);
        let all = HandlerMethod::HANDLER_METHODS.map(HandlerMethod::as_str).join(", ");
        let (message, help) = match HandlerMethod::from_handler_name(&text.to_uppercase()) {
            _ if text == "{" => {
                ("`on` needs a method".into(), format!("write one of {all} before the brace"))
            }
            Some(method) => (
                format!("`{text}` is not an HTTP method"),
                format!("write it in capitals: `on {}`", method.as_str()),
            ),
            None if text == "OPTIONS" => (
                "`OPTIONS` has no handler of its own".into(),
                "leave it out: the gateway answers it itself".into(),
            ),
            None => (format!("`{text}` is not an HTTP method"), format!("write one of {all}")),
        };
        self.report_error(
            DiagnosticCode::OnMethod,
            self.span(word),
            message,
            "expected a method here",
            &help,
        );
    }

    fn check_handler_place(&mut self, id: TokenId) {
        let Some(token) = self.token(id) else { return };
        let StatementPosition { enclosing: around, in_function, is_direct: directly } =
            self.statement_position(token.frame);
        let in_resource = around.is_some_and(|around| {
            matches!(self.syntax.constructs[around].kind, ConstructKind::Res { inline: false, .. })
        });
        if in_resource && directly && !in_function {
            return;
        }
        let after_inline = self.syntax.constructs.iter().any(|construct| {
            let ends_here = id > 0 && construct.span.end == self.span(id - 1).end;
            ends_here && matches!(construct.kind, ConstructKind::Res { inline: true, .. })
        });
        let help = if after_inline {
            "put the handlers of one path into braces: `res '/a' { on GET { .. } on PUT { .. } }`"
        } else if in_resource {
            "write it directly in the resource's braces; decide in the handler what to do"
        } else {
            "write the path before it: `res '/data' on GET { .. }`"
        };
        self.report_error(
            DiagnosticCode::OnPlace,
            self.span(id),
            "`on` is only allowed in a resource",
            "this one is not in a resource",
            help,
        );
    }

    /// Returns a token's text for a message.
    pub(super) fn describe_token(&self, id: TokenId) -> String {
        match self.token(id) {
            Some(_) => format!("`{}`", self.lexed.token_text(id)),
            None => "the end of the file".into(),
        }
    }
}
