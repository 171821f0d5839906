//! Applies the erasures to the text, and inserts the semicolons that are needed to keep statements apart.
//!
//! JavaScript ends a statement at a line break only if the next token can't continue it. A type between the
//! two may be the reason why it couldn't: `a as T` followed by `(b)` on the next line are two statements, but
//! `a` followed by `(b)` is one call. Such a place is a `SeamKind`. It gets a semicolon, in place of the
//! first erased character, if the token that now follows would continue the statement.

use oxc_ast::ast::Expression;
use oxc_parser::{Kind, Token};
use oxc_span::{GetSpan, Span};

#[derive(Default)]
pub(super) struct ErasedSpans {
    spans: Vec<Span>,
    insertions: Vec<(u32, char)>,
    seams: Vec<(u32, SeamKind)>,
}

/// The kind of text that was erased at a seam. Determines which tokens must not follow.
#[derive(Clone, Copy)]
pub(super) enum SeamKind {
    /// A statement, or the first modifier of one.
    Statement,
    /// A class member, or the first modifier of one.
    Member,
    /// The type at the end of an expression.
    Expression,
    /// The type of a field whose name would become a modifier before another name: `get: T`.
    FieldNamedAsModifier,
}

impl ErasedSpans {
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(super) fn erase(&mut self, start: u32, end: u32) {
        self.spans.push(Span::new(start, end));
    }

    pub(super) fn insert_char(&mut self, at: u32, c: char) {
        self.insertions.push((at, c));
    }

    pub(super) fn add_seam(&mut self, at: u32, seam: SeamKind) {
        self.seams.push((at, seam));
    }

    pub(super) fn render(mut self, source: &str, tokens: &[Token]) -> String {
        self.spans.sort_unstable_by_key(|span| (span.start, span.end));
        self.close_seams(tokens);
        self.insertions.sort_unstable();
        let mut erased = SpanCursor::new(&self.spans);
        let mut written = self.insertions.iter().peekable();
        let mut text = String::with_capacity(source.len());
        for (at, c) in source.char_indices() {
            let at = at as u32;
            while written.next_if(|(place, _)| *place < at).is_some() {}
            text.push(match written.peek() {
                Some((place, new)) if *place == at => *new,
                _ if erased.covers(at) && !is_line_break(c) => ' ',
                _ => c,
            });
        }
        text
    }

    fn close_seams(&mut self, tokens: &[Token]) {
        let mut erased = SpanCursor::new(&self.spans);
        let left: Vec<&Token> = tokens.iter().filter(|t| !erased.covers(t.start())).collect();
        let mut closed = None;
        for &(at, seam) in &self.seams {
            let next = left.partition_point(|token| token.start() < at);
            if closed == Some(next) {
                continue;
            }
            let before = next.checked_sub(1).and_then(|i| left.get(i)).map(|t| t.kind());
            let after = left.get(next).map_or(Kind::Eof, |t| t.kind());
            if seam.can_join(before) && seam.would_join(after) {
                self.insertions.push((at, ';'));
                closed = Some(next);
            }
        }
    }
}

impl SeamKind {
    /// Whether the code before the seam is still open.
    fn can_join(self, before: Option<Kind>) -> bool {
        match self {
            Self::Statement | Self::Member => !matches!(before, None | Some(Kind::Semicolon | Kind::LCurly)),
            Self::Expression | Self::FieldNamedAsModifier => true,
        }
    }

    /// Whether the token would continue the code before the seam.
    fn would_join(self, after: Kind) -> bool {
        use Kind::{
            Eof, Eq, In, Instanceof, LBrack, LParen, Minus, NoSubstitutionTemplate, Plus, RCurly, RegExp,
            Semicolon, Slash, SlashEq, Star, TemplateHead,
        };
        let opens = matches!(after, LParen | LBrack | NoSubstitutionTemplate | TemplateHead);
        match self {
            Self::Statement => opens || matches!(after, Plus | Minus | Slash | SlashEq | RegExp),
            Self::Member => matches!(after, LBrack | LParen | Star | In | Instanceof),
            Self::Expression => opens,
            Self::FieldNamedAsModifier => !matches!(after, Semicolon | RCurly | Eq | Eof),
        }
    }
}

/// A cursor over sorted spans, for increasing offsets.
struct SpanCursor<'s> {
    spans: std::slice::Iter<'s, Span>,
    end: u32,
}

impl<'s> SpanCursor<'s> {
    fn new(spans: &'s [Span]) -> Self {
        Self { spans: spans.iter(), end: 0 }
    }

    fn covers(&mut self, at: u32) -> bool {
        while let Some(span) = self.spans.as_slice().first().filter(|span| span.start <= at) {
            self.end = self.end.max(span.end);
            self.spans.next();
        }
        at < self.end
    }
}

/// The tokens of a program, searchable by position.
#[derive(Clone, Copy)]
pub(super) struct TokenPositions<'s>(pub(super) &'s [Token]);

impl<'s> TokenPositions<'s> {
    /// Returns the first token that starts at the byte or after it.
    pub(super) fn first_from(self, at: u32) -> Option<&'s Token> {
        self.0.get(self.index_at(at))
    }

    /// Returns the last token that starts before the byte.
    pub(super) fn last_before(self, at: u32) -> Option<&'s Token> {
        self.0.get(self.index_at(at).checked_sub(1)?)
    }

    /// Returns the tokens that start in this range.
    pub(super) fn between(self, start: u32, end: u32) -> &'s [Token] {
        self.0.get(self.index_at(start)..self.index_at(end)).unwrap_or_default()
    }

    /// Returns the start of the first token after an expression.
    pub(super) fn next_start(self, expression: &Expression<'_>) -> u32 {
        let end = expression.span().end;
        self.first_from(end).map_or(end, |token| token.start())
    }

    fn index_at(self, at: u32) -> usize {
        self.0.partition_point(|token| token.start() < at)
    }
}

/// Whether the character is a line terminator in JavaScript.
pub(super) fn is_line_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}
