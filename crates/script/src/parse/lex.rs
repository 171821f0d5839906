//! The lexer of S, with enough of the grammar to find the beginnings of statements.
//!
//! JavaScript's tokens depend on its grammar: a `/` can be a division or open a regular expression, and a `{`
//! can open a block or an object. So the lexer tracks the open brackets with their purpose (`frame`), and for
//! each token the syntax that can follow it (`after`). These also determine where a statement begins, the
//! only place where the words of S are more than names. `scan` reads characters, `context` tracks the
//! grammar.

use context::LexContext;

mod context;
mod scan;
#[cfg(test)]
mod tests;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A name that is not a reserved word, or a reserved word in a position where any name is valid (`a.if`).
    Name,
    /// A reserved word.
    Keyword,
    /// `#name`.
    Private,
    Number,
    String,
    Regex,
    /// A template without holes.
    Template,
    /// A template up to its first hole: `` `a${ ``.
    TemplateHead,
    /// The part of a template from one hole to the next: `}b${`.
    TemplateMiddle,
    /// The part of a template from the last hole on: `` }c` ``.
    TemplateTail,
    Punctuator,
}

/// The syntax that can follow a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowingSyntax {
    /// A statement: this token ended a statement or its head.
    Statement,
    /// An operand: this token is an operator or an opening bracket.
    Operand,
    /// An operator: this token ended an operand.
    Operator,
    /// An operand on the same line, otherwise a statement: `return`.
    Restricted,
    /// The end of the expression: this token closed the body of an arrow function.
    End,
}

/// The purpose of a bracket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Program,
    /// Statements in braces, including the body of a `switch`.
    Block,
    /// `service NAME {`.
    Service,
    /// `on METHOD {`.
    Handler,
    Function(FunctionPosition),
    Class(FunctionPosition),
    StaticBlock,
    /// An object literal or pattern, or the braces of `import` and `export`.
    Object,
    /// The head of a statement: `if (`, `for (`.
    Head,
    /// The end of `do`: `while (`.
    DoHead,
    SwitchHead,
    CatchHead,
    Parameters(FunctionPosition),
    /// Any other parentheses.
    Group,
    Square,
    Hole,
}

/// The position of a function or class, which determines the syntax that can follow its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionPosition {
    Declaration,
    Expression,
    Arrow,
    Member,
}

/// An index into `TokenList::tokens`.
pub(crate) type TokenId = usize;
/// An index into `TokenList::frames`.
pub(crate) type FrameId = usize;

/// A token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LexToken {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// A line break precedes it.
    pub(crate) newline: bool,
    /// Whether a statement begins here.
    pub(crate) starts_statement: bool,
    pub(crate) following: FollowingSyntax,
    /// The enclosing frame. For a bracket it is the frame around the bracket.
    pub(crate) frame: FrameId,
    /// The frame that a bracket opens or closes.
    pub(crate) bracket: Option<FrameId>,
}

/// The text between two brackets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BracketFrame {
    pub(crate) kind: FrameKind,
    pub(crate) parent: Option<FrameId>,
    /// The opening bracket.
    pub(crate) open: Option<TokenId>,
    /// The closing bracket.
    pub(crate) close: Option<TokenId>,
}

/// The kind of an unterminated token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnterminatedKind {
    String,
    Template,
    Regex,
    Comment,
}

/// A lexical error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LexicalError {
    /// An unterminated token, from its beginning to the point at which the lexer gave up.
    Unterminated { kind: UnterminatedKind, start: usize, end: usize },
    /// A closing bracket that does not match the open one, or without an open one. Lexing stops there.
    Mismatched { close: TokenId, open: Option<TokenId> },
    /// The text ends inside brackets.
    Unclosed { open: FrameId },
}

/// The tokens of a text.
#[derive(Debug)]
pub(crate) struct TokenList<'s> {
    pub(crate) source: &'s str,
    pub(crate) tokens: Vec<LexToken>,
    pub(crate) frames: Vec<BracketFrame>,
    pub(crate) errors: Vec<LexicalError>,
}

/// Reads a text.
///
/// `respond [1]` is also valid JavaScript: an element of a variable called `respond`. Within a service it is
/// treated as S, unless the file uses the word as a name elsewhere. That is only known at the end, so such a
/// file is read twice.
pub(crate) fn lex(source: &str) -> TokenList<'_> {
    let lexed = read_tokens(source, true);
    if lexed.uses_as_name("respond") { read_tokens(source, false) } else { lexed }
}

fn read_tokens(source: &str, respond_is_ours: bool) -> TokenList<'_> {
    let mut context = LexContext::new(source, respond_is_ours);
    let mut at = 0;
    loop {
        let gap = scan::skip_gap(source, at);
        if let Some(start) = gap.open_comment {
            context.report_unterminated(UnterminatedKind::Comment, start, source.len());
        }
        if gap.start == source.len() {
            return context.finish();
        }
        let regex = context.regex_may_follow(gap.newline);
        let token = scan::scan_token(source, gap.start, regex, context.is_in_hole());
        if let Some(kind) = token.unterminated {
            context.report_unterminated(kind, gap.start, token.end);
        }
        if !context.push(token.kind, gap.start, token.end, gap.newline) {
            return context.stop();
        }
        at = token.end;
    }
}

impl<'s> TokenList<'s> {
    /// Returns a token's text.
    pub(crate) fn token_text(&self, id: TokenId) -> &'s str {
        self.tokens.get(id).map_or("", |token| &self.source[token.start..token.end])
    }

    /// Whether a token is this name, without escapes.
    pub(crate) fn is_name(&self, id: TokenId, name: &str) -> bool {
        self.tokens.get(id).is_some_and(|token| token.kind == TokenKind::Name) && self.token_text(id) == name
    }

    /// Whether a token is this punctuator or reserved word.
    pub(crate) fn is_token(&self, id: TokenId, text: &str) -> bool {
        let kinds = [TokenKind::Punctuator, TokenKind::Keyword];
        self.tokens.get(id).is_some_and(|token| kinds.contains(&token.kind)) && self.token_text(id) == text
    }

    /// Returns the token that closes the bracket `id`, or `id` itself if it is not an opening bracket.
    pub(crate) fn closing_token(&self, id: TokenId) -> TokenId {
        let frame = self.tokens.get(id).and_then(|token| token.bracket);
        let bracket_frame = frame.map(|frame| self.frames[frame]).filter(|frame| frame.open == Some(id));
        bracket_frame.and_then(|frame| frame.close).unwrap_or(id)
    }

    /// Returns a frame and its ancestors, innermost first.
    pub(crate) fn enclosing_frames(&self, frame: FrameId) -> impl Iterator<Item = (FrameId, BracketFrame)> {
        let with = |id: FrameId| Some((id, *self.frames.get(id)?));
        std::iter::successors(with(frame), move |(_, frame)| with(frame.parent?))
    }

    /// Whether a token ends the head of a statement that contains the next one: `if (..)`, `else`, a label.
    pub(crate) fn is_statement_head(&self, id: TokenId) -> bool {
        let Some(token) = self.tokens.get(id).filter(|token| token.following == FollowingSyntax::Statement)
        else {
            return false;
        };
        let closed = token.bracket.map(|frame| self.frames[frame].kind);
        closed == Some(FrameKind::Head)
            || self.is_token(id, ":")
            || (token.kind == TokenKind::Keyword && ["else", "do"].contains(&self.token_text(id)))
    }

    /// Whether the file uses a word of S as a name: anywhere other than at the beginning of a statement, or
    /// there as the target of an assignment.
    pub(crate) fn uses_as_name(&self, word: &str) -> bool {
        let uses = |id: TokenId| {
            let member = id > 0 && (self.is_token(id - 1, ".") || self.is_token(id - 1, "?."));
            let followed = |texts: &[&str]| texts.iter().any(|text| self.is_token(id + 1, text));
            let key = match self.frames[self.tokens[id].frame].kind {
                FrameKind::Object => followed(&[":", "("]),
                FrameKind::Class(_) => followed(&["(", "=", ";"]),
                _ => false,
            };
            !member && !key && (!self.tokens[id].starts_statement || self.is_token(id + 1, "="))
        };
        (0..self.tokens.len()).any(|id| self.is_name(id, word) && uses(id))
    }
}
