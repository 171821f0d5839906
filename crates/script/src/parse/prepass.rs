//! The pre-pass: finds the constructs of S and encodes them as JavaScript of the same shape, which oxc can
//! parse.
//!
//! The words of S are contextual. Each construct begins with a sequence that is not valid at the beginning of
//! a JavaScript statement, mostly two names, or a name and a string, on one line. So a file that uses the
//! words as names passes unchanged, and no name has to be reserved. The encoding is chosen so that oxc's
//! scopes are those of S. A handler is a function, so `var`, `return` and shadowing work, and a `break` out
//! of it is an error. `state` is `let`, and the variable of `pfor` is `const`. `syntax` lists the encodings.
//! Later passes recognise constructs by their positions and not by their encoding.
//!
//! An invalid construct is reported and encoded as the probable intent, so that one run can report many
//! mistakes. Each family of constructs has its own module; `brackets` reports unbalanced brackets and
//! unterminated tokens.

use std::collections::HashSet;
use std::ops::Range;

use crate::diagnostic::DiagnosticCode;
use crate::parse::lex::{FrameId, FrameKind, LexToken, TokenId, TokenKind, TokenList};
use crate::syntax::{ConstructId, ConstructKind, SyntaxConstruct, SyntaxConstructs};
use diagnostics::Diagnostic;
use map::{AppliedEdits, TextReplacement};

pub(crate) use map::OffsetMap;

mod brackets;
mod declare;
mod flow;
mod map;
mod resource;
mod statement;

/// The result of the pre-pass.
pub(crate) struct EncodedText {
    /// The JavaScript.
    pub(crate) text: String,
    pub(crate) map: OffsetMap,
    pub(crate) syntax: SyntaxConstructs,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Whether a bracket or token is unterminated. The text cannot be parsed then.
    pub(crate) is_broken: bool,
}

/// Encodes a text.
pub(crate) fn encode(source: &str) -> EncodedText {
    let lexed = crate::parse::lex::lex(source);
    let mut finder = ConstructFinder::new(&lexed);
    let broken = !lexed.errors.is_empty();
    if broken {
        finder.diagnostics = brackets::lexical_diagnostics(&lexed);
    } else {
        finder.find_constructs();
    }
    finder.finish(broken)
}

/// The walk over the tokens that collects the constructs of S.
struct ConstructFinder<'l> {
    lexed: &'l TokenList<'l>,
    syntax: SyntaxConstructs,
    edits: Vec<TextReplacement>,
    diagnostics: Vec<Diagnostic>,
    /// The construct whose body each frame is.
    bodies: Vec<Option<ConstructId>>,
    /// The heads of inline handlers, which are processed together with their resource.
    inline_heads: HashSet<TokenId>,
    /// The first token that is searched for constructs; earlier ones are skipped.
    resume_at: TokenId,
    /// Whether the body of a service was not found. Constructs outside of services may then belong to it.
    is_body_missing: bool,
}

/// The position of a statement.
struct StatementPosition {
    /// The innermost enclosing service, resource or handler.
    enclosing: Option<ConstructId>,
    /// Whether a JavaScript function or class is in between.
    in_function: bool,
    /// Whether the statement is directly in that body, not in a nested block.
    is_direct: bool,
}

impl<'l> ConstructFinder<'l> {
    fn new(lexed: &'l TokenList<'l>) -> Self {
        Self {
            lexed,
            syntax: SyntaxConstructs::default(),
            edits: Vec::new(),
            diagnostics: Vec::new(),
            bodies: vec![None; lexed.frames.len()],
            inline_heads: HashSet::new(),
            resume_at: 0,
            is_body_missing: false,
        }
    }

    fn find_constructs(&mut self) {
        for id in 0..self.lexed.tokens.len() {
            let token = self.lexed.tokens[id];
            if token.kind != TokenKind::Name || !token.starts_statement || id < self.resume_at {
                continue;
            }
            match self.lexed.token_text(id) {
                "service" => self.find_service(id),
                "res" => self.find_resource(id),
                "on" => self.find_handler(id),
                "state" => self.find_state(id),
                "respond" => self.find_respond(id),
                "par" => self.find_par(id),
                "pfor" => self.find_pfor(id),
                _ => {}
            }
        }
    }

    fn finish(mut self, broken: bool) -> EncodedText {
        let AppliedEdits { text, map, statement_starts: begins } =
            map::apply_edits(self.lexed.source, self.edits);
        for (id, at) in begins {
            self.syntax.constructs[id].encoded_start = u32::try_from(at).unwrap_or(u32::MAX);
        }
        self.syntax.set_parents();
        EncodedText { text, map, syntax: self.syntax, diagnostics: self.diagnostics, is_broken: broken }
    }

    fn token(&self, id: TokenId) -> Option<LexToken> {
        self.lexed.tokens.get(id).copied()
    }

    fn span(&self, id: TokenId) -> Range<usize> {
        let end = self.lexed.source.len();
        self.token(id).map_or(end..end, |token| token.start..token.end)
    }

    /// Returns the range from the first byte of one token to the last of another.
    fn token_range(&self, first: TokenId, last: TokenId) -> Range<usize> {
        self.span(first).start..self.span(last).end
    }

    /// Whether a token is on the same line as the previous one.
    fn is_on_same_line(&self, id: TokenId) -> bool {
        self.token(id).is_some_and(|token| !token.newline)
    }

    /// Whether a token is a name on the same line as the previous token, which a construct can declare.
    fn is_declarable_name(&self, id: TokenId) -> bool {
        self.is_on_same_line(id) && self.token(id).is_some_and(|token| token.kind == TokenKind::Name)
    }

    /// Returns the innermost service, resource or handler that encloses a frame's statements.
    fn statement_position(&self, frame: FrameId) -> StatementPosition {
        let (mut in_function, mut directly) = (false, true);
        for (id, frame) in self.lexed.enclosing_frames(frame) {
            let body = self.bodies.get(id).copied().flatten();
            if let Some(construct) = body.filter(|body| self.syntax.constructs[*body].kind.has_scope()) {
                return StatementPosition { enclosing: Some(construct), in_function, is_direct: directly };
            }
            in_function |=
                matches!(frame.kind, FrameKind::Function(_) | FrameKind::Class(_) | FrameKind::StaticBlock);
            directly = false;
        }
        StatementPosition {
            enclosing: None,
            in_function,
            is_direct: self.lexed.frames[frame].parent.is_none(),
        }
    }

    /// Whether a frame is in a handler, regardless of functions and blocks in between.
    fn is_in_handler(&self, frame: FrameId) -> bool {
        self.lexed.enclosing_frames(frame).any(|(id, _)| {
            let body = self.bodies.get(id).copied().flatten();
            body.is_some_and(|body| matches!(self.syntax.constructs[body].kind, ConstructKind::On { .. }))
        })
    }

    /// Whether a frame is in a service.
    fn is_in_service(&self, frame: FrameId) -> bool {
        self.lexed.enclosing_frames(frame).any(|(_, frame)| frame.kind == FrameKind::Service)
    }

    fn add_construct(
        &mut self,
        kind: ConstructKind,
        span: Range<usize>,
        body: Option<TokenId>,
    ) -> ConstructId {
        let id = self.syntax.constructs.len();
        if let Some(frame) = body.and_then(|open| self.token(open)).and_then(|token| token.bracket) {
            self.bodies[frame] = Some(id);
        }
        let body = body.map(|open| self.token_range(open, self.lexed.closing_token(open)));
        self.syntax.constructs.push(SyntaxConstruct {
            kind,
            parent: None,
            span,
            body,
            encoded_start: 0,
            scope: None,
        });
        id
    }

    /// Replaces a range by `text`. `begins` is a construct whose statement begins at an offset in `text`.
    fn replace_range(&mut self, range: Range<usize>, text: &str, begins: Option<(ConstructId, usize)>) {
        self.edits.push(TextReplacement { range, text: text.into(), statement_start: begins });
    }

    fn insert_after(&mut self, id: TokenId, text: &str) {
        let end = self.span(id).end;
        self.replace_range(end..end, text, None);
    }

    fn report_error(
        &mut self,
        code: DiagnosticCode,
        span: Range<usize>,
        message: impl Into<String>,
        label: &str,
        help: &str,
    ) {
        self.diagnostics.push(Diagnostic::in_text(code, span, message, label, help));
    }
}
