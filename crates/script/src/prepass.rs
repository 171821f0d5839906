//! S to JavaScript that oxc can read: finds what is S, and writes it as JavaScript of the same shape.
//!
//! The words of S are contextual. Each construct is something that JavaScript can't have at a statement's beginning,
//! mostly two names, or a name and a string, on one line; so that a file that uses the words as names passes
//! unchanged, and no name has to be reserved. The encoding is chosen so that oxc's scopes are those of S: a handler is a
//! function, hence `var`, `return` and shadowing are right, and `break` out of it is an error; `state` is `let`; the
//! variable of `pfor` is `const`. `syntax` lists the forms. What was found is known by its place, not by its form.
//!
//! A construct that is wrong is told and encoded as what was probably meant, so that one run tells of many mistakes.
//! `find` has a file for each family of constructs; `brackets` tells of texts that have no structure.

use std::collections::HashSet;
use std::ops::Range;

use crate::diagnostic::{Code, Diagnostic};
use crate::lex::{FrameId, FrameKind, Kind, Lexed, Token, TokenId};
use crate::syntax::{Construct, ConstructId, ConstructKind, Syntax};
use map::{Applied, Edit};

pub(crate) use map::OffsetMap;

mod brackets;
mod declare;
mod flow;
mod map;
mod resource;
mod statement;

/// What the pre-pass makes of a text.
pub(crate) struct Encoded {
    /// JavaScript.
    pub(crate) text: String,
    pub(crate) map: OffsetMap,
    pub(crate) syntax: Syntax,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Brackets or strings don't end: there is no sense in reading the rest.
    pub(crate) broken: bool,
}

/// Encodes a text.
pub(crate) fn encode(source: &str) -> Encoded {
    let lexed = crate::lex::lex(source);
    let mut finder = Finder::new(&lexed);
    let broken = !lexed.faults.is_empty();
    if broken {
        finder.diagnostics = brackets::explain(&lexed);
    } else {
        finder.find();
    }
    finder.finish(broken)
}

/// Walks over the tokens and notes what is S.
struct Finder<'l> {
    lexed: &'l Lexed<'l>,
    syntax: Syntax,
    edits: Vec<Edit>,
    diagnostics: Vec<Diagnostic>,
    /// Which construct's body a frame is.
    bodies: Vec<Option<ConstructId>>,
    /// Heads of inline handlers, which were dealt with together with their resource.
    taken: HashSet<TokenId>,
    /// Nothing is looked for before this token.
    skipped: TokenId,
    /// A service's body was not found: what stands outside of one may belong to it.
    lost: bool,
}

/// Where a statement stands.
struct Place {
    /// The service, resource or handler around it.
    around: Option<ConstructId>,
    /// A function or class of JavaScript lies between.
    in_function: bool,
    /// It stands in that one's body itself, not in a block there.
    directly: bool,
}

impl<'l> Finder<'l> {
    fn new(lexed: &'l Lexed<'l>) -> Self {
        Self {
            lexed,
            syntax: Syntax::default(),
            edits: Vec::new(),
            diagnostics: Vec::new(),
            bodies: vec![None; lexed.frames.len()],
            taken: HashSet::new(),
            skipped: 0,
            lost: false,
        }
    }

    fn find(&mut self) {
        for id in 0..self.lexed.tokens.len() {
            let token = self.lexed.tokens[id];
            if token.kind != Kind::Name || !token.starts || id < self.skipped {
                continue;
            }
            match self.lexed.text(id) {
                "service" => self.service(id),
                "res" => self.res(id),
                "on" => self.on(id),
                "state" => self.state(id),
                "respond" => self.respond(id),
                "par" => self.par(id),
                "pfor" => self.pfor(id),
                _ => {}
            }
        }
    }

    fn finish(mut self, broken: bool) -> Encoded {
        let Applied { text, map, begins } = map::apply(self.lexed.source, self.edits);
        for (id, at) in begins {
            self.syntax.constructs[id].encoded = u32::try_from(at).unwrap_or(u32::MAX);
        }
        self.syntax.nest();
        Encoded { text, map, syntax: self.syntax, diagnostics: self.diagnostics, broken }
    }

    fn token(&self, id: TokenId) -> Option<Token> {
        self.lexed.tokens.get(id).copied()
    }

    fn span(&self, id: TokenId) -> Range<usize> {
        let end = self.lexed.source.len();
        self.token(id).map_or(end..end, |token| token.start..token.end)
    }

    /// From the first byte of one token to the last of another.
    fn between(&self, first: TokenId, last: TokenId) -> Range<usize> {
        self.span(first).start..self.span(last).end
    }

    /// Whether a token stands on the line of the one before it.
    fn same_line(&self, id: TokenId) -> bool {
        self.token(id).is_some_and(|token| !token.newline)
    }

    /// Whether a token is a name, of this line, that a construct may declare.
    fn names(&self, id: TokenId) -> bool {
        self.same_line(id) && self.token(id).is_some_and(|token| token.kind == Kind::Name)
    }

    /// The services, resource or handler around a frame's statements.
    fn place(&self, frame: FrameId) -> Place {
        let (mut in_function, mut directly) = (false, true);
        for (id, frame) in self.lexed.around(frame) {
            let body = self.bodies.get(id).copied().flatten();
            if let Some(construct) = body.filter(|body| self.syntax.constructs[*body].kind.has_scope()) {
                return Place { around: Some(construct), in_function, directly };
            }
            in_function |=
                matches!(frame.kind, FrameKind::Function(_) | FrameKind::Class(_) | FrameKind::StaticBlock);
            directly = false;
        }
        Place { around: None, in_function, directly: self.lexed.frames[frame].parent.is_none() }
    }

    /// The nearest handler around a frame, beyond functions and blocks.
    fn in_handler(&self, frame: FrameId) -> bool {
        self.lexed.around(frame).any(|(id, _)| {
            let body = self.bodies.get(id).copied().flatten();
            body.is_some_and(|body| matches!(self.syntax.constructs[body].kind, ConstructKind::On { .. }))
        })
    }

    /// Whether a frame lies in a service.
    fn in_service(&self, frame: FrameId) -> bool {
        self.lexed.around(frame).any(|(_, frame)| frame.kind == FrameKind::Service)
    }

    fn add(&mut self, kind: ConstructKind, span: Range<usize>, body: Option<TokenId>) -> ConstructId {
        let id = self.syntax.constructs.len();
        if let Some(frame) = body.and_then(|open| self.token(open)).and_then(|token| token.bracket) {
            self.bodies[frame] = Some(id);
        }
        let body = body.map(|open| self.between(open, self.lexed.closing(open)));
        self.syntax.constructs.push(Construct { kind, parent: None, span, body, encoded: 0, scope: None });
        id
    }

    /// Puts text in the place of other text; a construct's statement begins so far into it.
    fn replace(&mut self, range: Range<usize>, text: &str, begins: Option<(ConstructId, usize)>) {
        self.edits.push(Edit { range, text: text.into(), begins });
    }

    fn insert_after(&mut self, id: TokenId, text: &str) {
        let end = self.span(id).end;
        self.replace(end..end, text, None);
    }

    fn error(&mut self, code: Code, span: Range<usize>, message: impl Into<String>, label: &str, help: &str) {
        self.diagnostics.push(Diagnostic::error(code, span, message, label, help));
    }
}
