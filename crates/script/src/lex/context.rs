//! The grammar state of the lexer: the syntax that can follow each token. `brackets` determines the purpose
//! of brackets.
//!
//! This is not a parser: it never rejects a text, and only has to be right about valid JavaScript and S. For
//! invalid texts it only affects the error messages.

use super::{After, Fault, Frame, FrameId, FrameKind, Kind, Lexed, Place, Token, TokenId, Unterminated};

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
struct Open {
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
    function: Option<Place>,
    /// The `class` keywords whose bodies have not been read yet. A class can be nested in the head of
    /// another.
    classes: Vec<Place>,
}

pub(super) struct Context<'s> {
    lexed: Lexed<'s>,
    open: Vec<Open>,
    respond_is_ours: bool,
}

impl<'s> Context<'s> {
    pub(super) fn new(source: &'s str, respond_is_ours: bool) -> Self {
        let program = Frame { kind: FrameKind::Program, parent: None, open: None, close: None };
        let lexed = Lexed { source, tokens: Vec::new(), frames: vec![program], faults: Vec::new() };
        Self { lexed, open: vec![Open::default()], respond_is_ours }
    }

    pub(super) fn unterminated(&mut self, what: Unterminated, start: usize, end: usize) {
        self.lexed.faults.push(Fault::Unterminated { what, start, end });
    }

    /// Finishes at the end of the text.
    pub(super) fn finish(mut self) -> Lexed<'s> {
        if let [_, .., open] = self.open.as_slice() {
            self.lexed.faults.push(Fault::Unclosed { open: open.frame });
        }
        self.lexed
    }

    /// Finishes at an error after which the rest cannot be read.
    pub(super) fn stop(self) -> Lexed<'s> {
        self.lexed
    }

    pub(super) fn in_hole(&self) -> bool {
        self.kind() == FrameKind::Hole
    }

    pub(super) fn regex_may_follow(&self, newline: bool) -> bool {
        let Some(previous) = self.lexed.tokens.last() else { return true };
        previous.after != After::Operator || (!newline && self.respond_goes_on())
    }

    fn top(&mut self) -> &mut Open {
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    fn kind(&self) -> FrameKind {
        self.open.last().map_or(FrameKind::Program, |open| self.lexed.frames[open.frame].kind)
    }

    fn last(&self) -> Option<TokenId> {
        self.lexed.tokens.len().checked_sub(1)
    }

    /// Whether the previous token is this punctuator or reserved word.
    fn follows(&self, text: &str) -> bool {
        self.last().is_some_and(|last| self.lexed.is(last, text))
    }

    fn follows_name(&self, name: &str) -> bool {
        self.last().is_some_and(|last| self.lexed.is_name(last, name))
    }

    fn after(&self) -> After {
        self.lexed.tokens.last().map_or(After::Statement, |token| token.after)
    }

    /// Adds the next token. Returns false for a mismatched bracket, because the rest of the text cannot be
    /// read then.
    pub(super) fn push(&mut self, kind: Kind, start: usize, end: usize, newline: bool) -> bool {
        let text = &self.lexed.source[start..end];
        self.end_field(kind, text, newline);
        let kind = self.name_or_keyword(kind, text);
        let starts = self.starts_statement(kind, text, newline);
        if starts {
            self.top().ternaries = 0;
        } else {
            self.mark_respond(kind, text, newline);
        }
        let frame = self.open.last().map_or(0, |open| open.frame);
        let token = Token { kind, start, end, newline, starts, after: After::Operand, frame, bracket: None };
        match (kind, text) {
            (Kind::TemplateHead, _) => self.open(token, FrameKind::Hole),
            (Kind::Punctuator, "(") => {
                let kind = self.parenthesis();
                self.open(token, kind);
            }
            (Kind::Punctuator, "[") => self.open(token, FrameKind::Square),
            (Kind::Punctuator, "{") => {
                let kind = self.brace(starts);
                self.open(token, kind);
            }
            (Kind::TemplateTail, _) | (Kind::Punctuator, ")" | "]" | "}") => return self.close(token, text),
            _ => self.plain(token, text, newline),
        }
        true
    }

    fn name_or_keyword(&self, kind: Kind, text: &str) -> Kind {
        let reserved = kind == Kind::Name && (OPERATORS.contains(&text) || OPERANDS.contains(&text));
        let any_name = self.follows(".") || self.follows("?.") || self.at_key();
        if reserved && !any_name { Kind::Keyword } else { kind }
    }

    fn at_key(&self) -> bool {
        self.open.last().is_some_and(|open| open.at_key)
    }

    /// Handles the end of a class field: like a statement, its value ends at a line break.
    fn end_field(&mut self, kind: Kind, text: &str, newline: bool) {
        let ended = newline && self.after() == After::Operator && !continues(kind, text);
        if matches!(self.kind(), FrameKind::Class(_)) && (ended || self.after() == After::End) {
            self.top().at_key = true;
        }
    }

    fn starts_statement(&self, kind: Kind, text: &str, newline: bool) -> bool {
        if !self.kind().holds_statements() || (kind == Kind::Punctuator && text == "}") {
            return false;
        }
        match self.after() {
            After::Statement => true,
            After::Operand => self.lexed.tokens.last().is_some_and(|last| self.opened(last)),
            After::Restricted => newline,
            After::Operator => newline && !continues(kind, text),
            After::End => newline && !(kind == Kind::Punctuator && [",", ")", "]", ";", ":"].contains(&text)),
        }
    }

    /// Whether a token opened the innermost bracket.
    fn opened(&self, token: &Token) -> bool {
        token.bracket.is_some() && token.bracket == self.open.last().map(|open| open.frame)
    }

    /// Whether the previous token is the `respond` of S, so that an ambiguous token after it begins an
    /// operand.
    fn respond_goes_on(&self) -> bool {
        let Some(last) = self.last() else { return false };
        self.respond_is_ours
            && self.lexed.is_name(last, "respond")
            && self.lexed.tokens[last].starts
            && self.open.iter().any(|open| self.lexed.frames[open.frame].kind == FrameKind::Service)
    }

    /// Marks the previous `respond` as followed by an operand, if it is the word of S.
    fn mark_respond(&mut self, kind: Kind, text: &str, newline: bool) {
        let Some(last) = self.last() else { return };
        if newline || !self.lexed.is_name(last, "respond") || !self.lexed.tokens[last].starts {
            return;
        }
        let ours = match kind {
            Kind::Name | Kind::Private | Kind::Number | Kind::String => true,
            Kind::Keyword => !["in", "instanceof"].contains(&text),
            Kind::Regex => true,
            Kind::Template | Kind::TemplateHead => self.respond_goes_on(),
            Kind::TemplateMiddle | Kind::TemplateTail => false,
            Kind::Punctuator => {
                ["{", "!", "~"].contains(&text)
                    || (["(", "[", "+", "-"].contains(&text) && self.respond_goes_on())
            }
        };
        if ours {
            self.lexed.tokens[last].after = After::Operand;
        }
    }

    fn plain(&mut self, mut token: Token, text: &str, newline: bool) {
        self.note_loop_variable(text);
        token.after = match token.kind {
            Kind::Keyword => self.keyword(&token, text),
            Kind::Name if text == "let" && !self.follows(".") && !self.at_key() => After::Operand,
            Kind::Name
                if text == "of" && self.kind() == FrameKind::Head && self.after() == After::Operator =>
            {
                After::Operand
            }
            // The end of an import or jump, which no token can continue.
            Kind::String if self.follows("import") || self.follows_name("from") => After::End,
            Kind::Name if !newline && (self.follows("break") || self.follows("continue")) => After::End,
            Kind::TemplateMiddle => After::Operand,
            Kind::Punctuator => self.punctuator(text, newline),
            _ => After::Operator,
        };
        self.lexed.tokens.push(token);
    }

    fn keyword(&mut self, token: &Token, text: &str) -> After {
        match text {
            "function" => self.top().function = Some(self.place(token.starts)),
            "do" => self.top().dos += 1,
            "while" => {
                let ends_do = self.top().dos > 0 && !self.heads_statement();
                self.top().dos -= u32::from(ends_do);
                self.top().ends_do = ends_do;
            }
            "class" => {
                let place = self.place(token.starts);
                self.top().classes.push(place);
            }
            _ => {}
        }
        match text {
            "do" | "else" | "try" | "finally" => After::Statement,
            "return" | "yield" => After::Restricted,
            "break" | "continue" | "debugger" => After::End,
            _ if OPERANDS.contains(&text) => After::Operator,
            _ => After::Operand,
        }
    }

    /// Whether the next token begins a statement within the previous one: after `if (..)`, `else` or a label.
    fn heads_statement(&self) -> bool {
        self.last().is_some_and(|last| self.lexed.heads_statement(last))
    }

    /// Whether `function` or `class` begins a declaration: at the beginning of a statement, after `async`
    /// there, and in exports.
    fn place(&self, starts: bool) -> Place {
        let exported = |id: TokenId| self.lexed.is(id, "export") || self.lexed.is(id, "default");
        let declares = self.last().is_some_and(|last| {
            let before = last.checked_sub(1);
            let is_async = self.lexed.is_name(last, "async")
                && (self.lexed.tokens[last].starts || before.is_some_and(exported));
            exported(last) || is_async
        });
        if starts || declares { Place::Declaration } else { Place::Expression }
    }

    fn punctuator(&mut self, text: &str, newline: bool) -> After {
        let kind = self.kind();
        let in_class = matches!(kind, FrameKind::Class(_));
        match text {
            ";" if kind.holds_statements() => return After::Statement,
            ";" => self.top().at_key = in_class,
            "," if kind == FrameKind::Object => self.top().at_key = true,
            "=" | "..." => self.top().at_key = false,
            "?" => self.top().ternaries += 1,
            ":" if kind == FrameKind::Object => self.top().at_key = false,
            ":" if self.top().ternaries > 0 => self.top().ternaries -= 1,
            ":" if kind.holds_statements() => return After::Statement,
            "++" | "--" if !newline && self.after() == After::Operator => return After::Operator,
            _ => {}
        }
        After::Operand
    }

    /// Turns the parentheses of `pfor (var` into a head, like those of `for (`.
    fn note_loop_variable(&mut self, text: &str) {
        let Some(last) = self.last().filter(|_| ["var", "let", "const"].contains(&text)) else { return };
        let Some(pfor) = last.checked_sub(1) else { return };
        if self.lexed.is(last, "(") && self.lexed.is_name(pfor, "pfor") && self.lexed.tokens[pfor].starts {
            let frame = self.top().frame;
            self.lexed.frames[frame].kind = FrameKind::Head;
        }
    }
}

/// Whether a token on a new line continues the previous expression.
fn continues(kind: Kind, text: &str) -> bool {
    match kind {
        Kind::Punctuator => !["{", "}", "++", "--", "!", "~", "@", "#"].contains(&text),
        Kind::Template | Kind::TemplateHead | Kind::TemplateMiddle | Kind::TemplateTail => true,
        Kind::Keyword | Kind::Name => ["in", "instanceof"].contains(&text),
        Kind::Private | Kind::Number | Kind::String | Kind::Regex => false,
    }
}
