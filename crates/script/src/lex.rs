//! S text as tokens, with as much of the grammar as tells where a statement may begin.
//!
//! JavaScript's tokens depend on its grammar: whether a `/` divides or opens a regular expression, and whether a `{`
//! opens a block or an object. So the lexer keeps the open brackets and what each is for (`frame`), and of each token
//! what may stand after it (`after`). The same says where a statement begins, which is the only place where the words
//! of S are more than names. `scan` knows characters, `context` knows the grammar.

use context::Context;

mod context;
mod scan;
#[cfg(test)]
mod tests;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name that is no reserved word, or a reserved word where any name may stand (`a.if`).
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
    /// From one hole to the next: `}b${`.
    TemplateMiddle,
    /// From the last hole on: `` }c` ``.
    TemplateTail,
    Punctuator,
}

/// What may stand after a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// A statement: this token ended one, or a head of one.
    Statement,
    /// An operand: this is an operator, or opens something.
    Operand,
    /// An operator: this ended an operand.
    Operator,
    /// An operand on the same line, else a statement: `return`.
    Restricted,
    /// What ends the expression: this closed the body of an arrow function.
    End,
}

/// What a bracket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Program,
    /// Statements in braces, the body of a `switch` among them.
    Block,
    /// `service NAME {`.
    Service,
    /// `on METHOD {`.
    Handler,
    Function(Place),
    Class(Place),
    StaticBlock,
    /// An object literal or pattern, or the braces of `import` and `export`.
    Object,
    /// The head of a statement: `if (`, `for (`.
    Head,
    /// The end of `do`: `while (`.
    DoHead,
    SwitchHead,
    CatchHead,
    Parameters(Place),
    /// Any other parentheses.
    Group,
    Square,
    Hole,
}

/// Where a function or class stands, which says what follows its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Declaration,
    Expression,
    Arrow,
    Member,
}

/// An index of a token in `Lexed::tokens`.
pub(crate) type TokenId = usize;
/// An index of a frame in `Lexed::frames`.
pub(crate) type FrameId = usize;

/// A token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// A line break stands before it.
    pub(crate) newline: bool,
    /// A statement begins here.
    pub(crate) starts: bool,
    pub(crate) after: After,
    /// The frame that it stands in; a bracket's is the one around it.
    pub(crate) frame: FrameId,
    /// The frame that a bracket opens or closes.
    pub(crate) bracket: Option<FrameId>,
}

/// What lies between two brackets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) parent: Option<FrameId>,
    /// Its opening bracket.
    pub(crate) open: Option<TokenId>,
    /// Its closing one.
    pub(crate) close: Option<TokenId>,
}

/// What never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unterminated {
    String,
    Template,
    Regex,
    Comment,
}

/// What is wrong with a text as tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Something that never ends, from its beginning to where it was given up.
    Unterminated { what: Unterminated, start: usize, end: usize },
    /// A closing bracket that does not fit the open one, or where none is open. Nothing after it is read.
    Mismatched { close: TokenId, open: Option<TokenId> },
    /// The text ends within brackets.
    Unclosed { open: FrameId },
}

/// A text as tokens.
#[derive(Debug)]
pub(crate) struct Lexed<'s> {
    pub(crate) source: &'s str,
    pub(crate) tokens: Vec<Token>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) faults: Vec<Fault>,
}

/// Reads a text.
///
/// `respond [1]` could be JavaScript: an element of something called `respond`. It is taken for S within a service,
/// unless the file uses the word as a name elsewhere. That is known in the end only, so that such a file is read again.
pub(crate) fn lex(source: &str) -> Lexed<'_> {
    let lexed = read(source, true);
    if lexed.uses_as_name("respond") { read(source, false) } else { lexed }
}

fn read(source: &str, respond_is_ours: bool) -> Lexed<'_> {
    let mut context = Context::new(source, respond_is_ours);
    let mut at = 0;
    loop {
        let gap = scan::gap(source, at);
        if let Some(start) = gap.open_comment {
            context.unterminated(Unterminated::Comment, start, source.len());
        }
        if gap.start == source.len() {
            return context.finish();
        }
        let regex = context.regex_may_follow(gap.newline);
        let token = scan::token(source, gap.start, regex, context.in_hole());
        if let Some(what) = token.unterminated {
            context.unterminated(what, gap.start, token.end);
        }
        if !context.push(token.kind, gap.start, token.end, gap.newline) {
            return context.stop();
        }
        at = token.end;
    }
}

impl<'s> Lexed<'s> {
    /// A token's text.
    pub(crate) fn text(&self, id: TokenId) -> &'s str {
        self.tokens.get(id).map_or("", |token| &self.source[token.start..token.end])
    }

    /// Whether a token is this name, as it is written.
    pub(crate) fn is_name(&self, id: TokenId, name: &str) -> bool {
        self.tokens.get(id).is_some_and(|token| token.kind == Kind::Name) && self.text(id) == name
    }

    /// Whether a token is this punctuator or reserved word.
    pub(crate) fn is(&self, id: TokenId, text: &str) -> bool {
        let kinds = [Kind::Punctuator, Kind::Keyword];
        self.tokens.get(id).is_some_and(|token| kinds.contains(&token.kind)) && self.text(id) == text
    }

    /// The token that closes what this one opens; itself if it opens nothing.
    pub(crate) fn closing(&self, id: TokenId) -> TokenId {
        let frame = self.tokens.get(id).and_then(|token| token.bracket);
        let opened = frame.map(|frame| self.frames[frame]).filter(|frame| frame.open == Some(id));
        opened.and_then(|frame| frame.close).unwrap_or(id)
    }

    /// A frame and those around it, from the inside.
    pub(crate) fn around(&self, frame: FrameId) -> impl Iterator<Item = (FrameId, Frame)> {
        let with = |id: FrameId| Some((id, *self.frames.get(id)?));
        std::iter::successors(with(frame), move |(_, frame)| with(frame.parent?))
    }

    /// Whether a token ends what stands before a statement that belongs to it: `if (..)`, `else`, a label.
    pub(crate) fn heads_statement(&self, id: TokenId) -> bool {
        let Some(token) = self.tokens.get(id).filter(|token| token.after == After::Statement) else {
            return false;
        };
        let closed = token.bracket.map(|frame| self.frames[frame].kind);
        closed == Some(FrameKind::Head)
            || self.is(id, ":")
            || (token.kind == Kind::Keyword && ["else", "do"].contains(&self.text(id)))
    }

    /// Whether the file uses a word of S as a name of its own: anywhere but at a statement's beginning, or there to
    /// set it.
    pub(crate) fn uses_as_name(&self, word: &str) -> bool {
        let uses = |id: TokenId| {
            let member = id > 0 && (self.is(id - 1, ".") || self.is(id - 1, "?."));
            let followed = |texts: &[&str]| texts.iter().any(|text| self.is(id + 1, text));
            let key = match self.frames[self.tokens[id].frame].kind {
                FrameKind::Object => followed(&[":", "("]),
                FrameKind::Class(_) => followed(&["(", "=", ";"]),
                _ => false,
            };
            !member && !key && (!self.tokens[id].starts || self.is(id + 1, "="))
        };
        (0..self.tokens.len()).any(|id| self.is_name(id, word) && uses(id))
    }
}
