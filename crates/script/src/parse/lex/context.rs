//! The grammar state of the lexer: the syntax that can follow each token. `brackets` determines the purpose
//! of brackets.
//!
//! This is not a parser: it never rejects a text, and only has to be right about valid JavaScript and S. For
//! invalid texts it only affects the error messages.

use super::{
    BracketFrame, FollowingSyntax, FrameId, FrameKind, FunctionPosition, LexToken, LexicalError, TokenId,
    TokenKind, TokenList, UnterminatedKind,
};

mod brackets;

/// Reserved words in modules, except those that are operands (`this`).
const OPERATORS: [&str; 30] = [
    "await",
    "case",
    "catch",
    "class",
    "const",
    "default",
    "delete",
    "enum",
    "export",
    "extends",
    "for",
    "function",
    "if",
    "import",
    "in",
    "instanceof",
    "new",
    "switch",
    "throw",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "try",
    "do",
    "else",
    "finally",
    "return",
    "yield",
];
const OPERANDS: [&str; 8] = ["this", "super", "null", "true", "false", "break", "continue", "debugger"];

/// The state of an open bracket.
#[derive(Default)]
struct OpenBracket {
    frame: FrameId,
    /// The number of `?` without their `:` yet, in the current statement.
    ternaries: u32,
    /// Whether the next token is the name of a member rather than its value, in objects and classes.
    at_key: bool,
    /// The number of `do` without their `while` yet.
    dos: u32,
    /// Whether the last `while` belongs to a `do`.
    ends_do: bool,
    /// The `function` keyword whose parameters have not been read yet.
    function: Option<FunctionPosition>,
    /// The `class` keywords whose bodies have not been read yet. A class can be nested in the head of
    /// another.
    classes: Vec<FunctionPosition>,
}

pub(super) struct LexContext<'s> {
    lexed: TokenList<'s>,
    open: Vec<OpenBracket>,
    respond_is_keyword: bool,
}

impl<'s> LexContext<'s> {
    pub(super) fn new(source: &'s str, respond_is_keyword: bool) -> Self {
        let program = BracketFrame { kind: FrameKind::Program, parent: None, open: None, close: None };
        let lexed = TokenList { source, tokens: Vec::new(), frames: vec![program], errors: Vec::new() };
        Self { lexed, open: vec![OpenBracket::default()], respond_is_keyword }
    }

    pub(super) fn report_unterminated(
        &mut self,
        unterminated_kind: UnterminatedKind,
        start: usize,
        end: usize,
    ) {
        self.lexed.errors.push(LexicalError::Unterminated { kind: unterminated_kind, start, end });
    }

    /// Finishes at the end of the text.
    pub(super) fn finish(mut self) -> TokenList<'s> {
        if let [_, .., open] = self.open.as_slice() {
            self.lexed.errors.push(LexicalError::Unclosed { open: open.frame });
        }
        self.lexed
    }

    /// Finishes at an error after which the rest cannot be read.
    pub(super) fn stop(self) -> TokenList<'s> {
        self.lexed
    }

    pub(super) fn is_in_hole(&self) -> bool {
        self.innermost_kind() == FrameKind::Hole
    }

    pub(super) fn regex_may_follow(&self, newline: bool) -> bool {
        let Some(previous) = self.lexed.tokens.last() else { return true };
        previous.following != FollowingSyntax::Operator || (!newline && self.is_after_respond())
    }

    fn innermost_mut(&mut self) -> &mut OpenBracket {
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    fn innermost_kind(&self) -> FrameKind {
        self.open.last().map_or(FrameKind::Program, |open| self.lexed.frames[open.frame].kind)
    }

    fn last_token(&self) -> Option<TokenId> {
        self.lexed.tokens.len().checked_sub(1)
    }

    /// Whether the previous token is this punctuator or reserved word.
    fn is_after_token(&self, text: &str) -> bool {
        self.last_token().is_some_and(|last| self.lexed.is_token(last, text))
    }

    fn is_after_name(&self, name: &str) -> bool {
        self.last_token().is_some_and(|last| self.lexed.is_name(last, name))
    }

    fn following_syntax(&self) -> FollowingSyntax {
        self.lexed.tokens.last().map_or(FollowingSyntax::Statement, |token| token.following)
    }

    /// Adds the next token. Returns false for a mismatched bracket, because the rest of the text cannot be
    /// read then.
    pub(super) fn push(&mut self, kind: TokenKind, start: usize, end: usize, newline: bool) -> bool {
        let text = &self.lexed.source[start..end];
        self.end_field(kind, text, newline);
        let kind = self.name_or_keyword(kind, text);
        let starts = self.starts_statement(kind, text, newline);
        if starts {
            self.innermost_mut().ternaries = 0;
        } else {
            self.mark_respond(kind, text, newline);
        }
        let frame = self.open.last().map_or(0, |open| open.frame);
        let token = LexToken {
            kind,
            start,
            end,
            newline,
            starts_statement: starts,
            following: FollowingSyntax::Operand,
            frame,
            bracket: None,
        };
        match (kind, text) {
            (TokenKind::TemplateHead, _) => self.open_bracket(token, FrameKind::Hole),
            (TokenKind::Punctuator, "(") => {
                let kind = self.parenthesis_kind();
                self.open_bracket(token, kind);
            }
            (TokenKind::Punctuator, "[") => self.open_bracket(token, FrameKind::Square),
            (TokenKind::Punctuator, "{") => {
                let kind = self.brace_kind(starts);
                self.open_bracket(token, kind);
            }
            (TokenKind::TemplateTail, _) | (TokenKind::Punctuator, ")" | "]" | "}") => {
                return self.close_bracket(token, text);
            }
            _ => self.push_plain_token(token, text, newline),
        }
        true
    }

    fn name_or_keyword(&self, kind: TokenKind, text: &str) -> TokenKind {
        let reserved = kind == TokenKind::Name && (OPERATORS.contains(&text) || OPERANDS.contains(&text));
        let any_name = self.is_after_token(".") || self.is_after_token("?.") || self.is_at_key();
        if reserved && !any_name { TokenKind::Keyword } else { kind }
    }

    fn is_at_key(&self) -> bool {
        self.open.last().is_some_and(|open| open.at_key)
    }

    /// Handles the end of a class field: like a statement, its value ends at a line break.
    fn end_field(&mut self, kind: TokenKind, text: &str, newline: bool) {
        let ended = newline
            && self.following_syntax() == FollowingSyntax::Operator
            && !continues_expression(kind, text);
        if matches!(self.innermost_kind(), FrameKind::Class(_))
            && (ended || self.following_syntax() == FollowingSyntax::End)
        {
            self.innermost_mut().at_key = true;
        }
    }

    fn starts_statement(&self, kind: TokenKind, text: &str, newline: bool) -> bool {
        if !self.innermost_kind().contains_statements() || (kind == TokenKind::Punctuator && text == "}") {
            return false;
        }
        match self.following_syntax() {
            FollowingSyntax::Statement => true,
            FollowingSyntax::Operand => {
                self.lexed.tokens.last().is_some_and(|last| self.is_innermost_opener(last))
            }
            FollowingSyntax::Restricted => newline,
            FollowingSyntax::Operator => newline && !continues_expression(kind, text),
            FollowingSyntax::End => {
                newline && !(kind == TokenKind::Punctuator && [",", ")", "]", ";", ":"].contains(&text))
            }
        }
    }

    /// Whether a token opened the innermost bracket.
    fn is_innermost_opener(&self, token: &LexToken) -> bool {
        token.bracket.is_some() && token.bracket == self.open.last().map(|open| open.frame)
    }

    /// Whether the previous token is the `respond` of S, so that an ambiguous token after it begins an
    /// operand.
    fn is_after_respond(&self) -> bool {
        let Some(last) = self.last_token() else { return false };
        self.respond_is_keyword
            && self.lexed.is_name(last, "respond")
            && self.lexed.tokens[last].starts_statement
            && self.open.iter().any(|open| self.lexed.frames[open.frame].kind == FrameKind::Service)
    }

    /// Marks the previous `respond` as followed by an operand, if it is the word of S.
    fn mark_respond(&mut self, kind: TokenKind, text: &str, newline: bool) {
        let Some(last) = self.last_token() else { return };
        if newline || !self.lexed.is_name(last, "respond") || !self.lexed.tokens[last].starts_statement {
            return;
        }
        let ours = match kind {
            TokenKind::Name | TokenKind::Private | TokenKind::Number | TokenKind::String => true,
            TokenKind::Keyword => !["in", "instanceof"].contains(&text),
            TokenKind::Regex => true,
            TokenKind::Template | TokenKind::TemplateHead => self.is_after_respond(),
            TokenKind::TemplateMiddle | TokenKind::TemplateTail => false,
            TokenKind::Punctuator => {
                ["{", "!", "~"].contains(&text)
                    || (["(", "[", "+", "-"].contains(&text) && self.is_after_respond())
            }
        };
        if ours {
            self.lexed.tokens[last].following = FollowingSyntax::Operand;
        }
    }

    fn push_plain_token(&mut self, mut token: LexToken, text: &str, newline: bool) {
        self.note_loop_variable(text);
        token.following = match token.kind {
            TokenKind::Keyword => self.syntax_after_keyword(&token, text),
            TokenKind::Name if text == "let" && !self.is_after_token(".") && !self.is_at_key() => {
                FollowingSyntax::Operand
            }
            TokenKind::Name
                if text == "of"
                    && self.innermost_kind() == FrameKind::Head
                    && self.following_syntax() == FollowingSyntax::Operator =>
            {
                FollowingSyntax::Operand
            }
            // The end of an import or jump, which no token can continue.
            TokenKind::String if self.is_after_token("import") || self.is_after_name("from") => {
                FollowingSyntax::End
            }
            TokenKind::Name
                if !newline && (self.is_after_token("break") || self.is_after_token("continue")) =>
            {
                FollowingSyntax::End
            }
            TokenKind::TemplateMiddle => FollowingSyntax::Operand,
            TokenKind::Punctuator => self.syntax_after_punctuator(text, newline),
            _ => FollowingSyntax::Operator,
        };
        self.lexed.tokens.push(token);
    }

    fn syntax_after_keyword(&mut self, token: &LexToken, text: &str) -> FollowingSyntax {
        match text {
            "function" => {
                self.innermost_mut().function = Some(self.function_position(token.starts_statement))
            }
            "do" => self.innermost_mut().dos += 1,
            "while" => {
                let ends_do = self.innermost_mut().dos > 0 && !self.is_statement_head();
                self.innermost_mut().dos -= u32::from(ends_do);
                self.innermost_mut().ends_do = ends_do;
            }
            "class" => {
                let position = self.function_position(token.starts_statement);
                self.innermost_mut().classes.push(position);
            }
            _ => {}
        }
        match text {
            "do" | "else" | "try" | "finally" => FollowingSyntax::Statement,
            "return" | "yield" => FollowingSyntax::Restricted,
            "break" | "continue" | "debugger" => FollowingSyntax::End,
            _ if OPERANDS.contains(&text) => FollowingSyntax::Operator,
            _ => FollowingSyntax::Operand,
        }
    }

    /// Whether the next token begins a statement within the previous one: after `if (..)`, `else` or a label.
    fn is_statement_head(&self) -> bool {
        self.last_token().is_some_and(|last| self.lexed.is_statement_head(last))
    }

    /// Whether `function` or `class` begins a declaration: at the beginning of a statement, after `async`
    /// there, and in exports.
    fn function_position(&self, starts: bool) -> FunctionPosition {
        let exported = |id: TokenId| self.lexed.is_token(id, "export") || self.lexed.is_token(id, "default");
        let declares = self.last_token().is_some_and(|last| {
            let before = last.checked_sub(1);
            let is_async = self.lexed.is_name(last, "async")
                && (self.lexed.tokens[last].starts_statement || before.is_some_and(exported));
            exported(last) || is_async
        });
        if starts || declares { FunctionPosition::Declaration } else { FunctionPosition::Expression }
    }

    fn syntax_after_punctuator(&mut self, text: &str, newline: bool) -> FollowingSyntax {
        let kind = self.innermost_kind();
        let in_class = matches!(kind, FrameKind::Class(_));
        match text {
            ";" if kind.contains_statements() => return FollowingSyntax::Statement,
            ";" => self.innermost_mut().at_key = in_class,
            "," if kind == FrameKind::Object => self.innermost_mut().at_key = true,
            "=" | "..." => self.innermost_mut().at_key = false,
            "?" => self.innermost_mut().ternaries += 1,
            ":" if kind == FrameKind::Object => self.innermost_mut().at_key = false,
            ":" if self.innermost_mut().ternaries > 0 => self.innermost_mut().ternaries -= 1,
            ":" if kind.contains_statements() => return FollowingSyntax::Statement,
            "++" | "--" if !newline && self.following_syntax() == FollowingSyntax::Operator => {
                return FollowingSyntax::Operator;
            }
            _ => {}
        }
        FollowingSyntax::Operand
    }

    /// Turns the parentheses of `pfor (var` into a head, like those of `for (`.
    fn note_loop_variable(&mut self, text: &str) {
        let Some(last) = self.last_token().filter(|_| ["var", "let", "const"].contains(&text)) else {
            return;
        };
        let Some(pfor) = last.checked_sub(1) else { return };
        if self.lexed.is_token(last, "(")
            && self.lexed.is_name(pfor, "pfor")
            && self.lexed.tokens[pfor].starts_statement
        {
            let frame = self.innermost_mut().frame;
            self.lexed.frames[frame].kind = FrameKind::Head;
        }
    }
}

/// Whether a token on a new line continues the previous expression.
fn continues_expression(kind: TokenKind, text: &str) -> bool {
    match kind {
        TokenKind::Punctuator => !["{", "}", "++", "--", "!", "~", "@", "#"].contains(&text),
        TokenKind::Template
        | TokenKind::TemplateHead
        | TokenKind::TemplateMiddle
        | TokenKind::TemplateTail => true,
        TokenKind::Keyword | TokenKind::Name => ["in", "instanceof"].contains(&text),
        TokenKind::Private | TokenKind::Number | TokenKind::String | TokenKind::Regex => false,
    }
}
