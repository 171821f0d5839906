//! Brackets: the purpose of each opening bracket, and the syntax that can follow its closing bracket.

use super::super::{
    BracketFrame, FollowingSyntax, FrameKind, FunctionPosition, LexToken, LexicalError, TokenId, TokenKind,
};
use super::{LexContext, OpenBracket};

impl LexContext<'_> {
    pub(super) fn open_bracket(&mut self, mut token: LexToken, kind: FrameKind) {
        let frame = self.lexed.frames.len();
        let id = self.lexed.tokens.len();
        self.lexed.frames.push(BracketFrame { kind, parent: Some(token.frame), open: Some(id), close: None });
        token.bracket = Some(frame);
        self.lexed.tokens.push(token);
        let at_key = matches!(kind, FrameKind::Object | FrameKind::Class(_));
        self.open.push(OpenBracket { frame, at_key, ..OpenBracket::default() });
    }

    pub(super) fn close_bracket(&mut self, mut token: LexToken, text: &str) -> bool {
        let id = self.lexed.tokens.len();
        let opened = self.lexed.frames[token.frame].open;
        if !opened.is_some_and(|open| brackets_match(self.lexed.token_text(open), text)) {
            self.lexed.errors.push(LexicalError::Mismatched { close: id, open: opened });
            self.lexed.tokens.push(token);
            return false;
        }
        let frame = token.frame;
        let kind = self.lexed.frames[frame].kind;
        self.lexed.frames[frame].close = Some(id);
        token.bracket = Some(frame);
        token.frame = self.lexed.frames[frame].parent.unwrap_or(0);
        let exports = opened
            .and_then(|open| open.checked_sub(1))
            .is_some_and(|before| self.lexed.is_token(before, "export"));
        token.following = if exports { FollowingSyntax::End } else { syntax_after_close(kind) };
        self.open.pop();
        self.lexed.tokens.push(token);
        true
    }

    /// Returns the purpose of a `(`.
    pub(super) fn parenthesis_kind(&mut self) -> FrameKind {
        if let Some(position) = self.innermost_mut().function.take() {
            return FrameKind::Parameters(position);
        }
        let Some(last) = self.last_token() else { return FrameKind::Group };
        if self.is_at_key() {
            return FrameKind::Parameters(FunctionPosition::Member);
        }
        if self.lexed.tokens[last].kind != TokenKind::Keyword {
            return FrameKind::Group;
        }
        match self.lexed.token_text(last) {
            "while" if self.innermost_mut().ends_do => FrameKind::DoHead,
            "if" | "while" | "for" | "with" => FrameKind::Head,
            "await" if last > 0 && self.lexed.is_token(last - 1, "for") => FrameKind::Head,
            "switch" => FrameKind::SwitchHead,
            "catch" => FrameKind::CatchHead,
            _ => FrameKind::Group,
        }
    }

    /// Returns the purpose of a `{`.
    pub(super) fn brace_kind(&mut self, starts: bool) -> FrameKind {
        let closed =
            self.lexed.tokens.last().and_then(|last| last.bracket).map(|frame| self.lexed.frames[frame]);
        let closed = closed.filter(|frame| frame.close == self.last_token()).map(|frame| frame.kind);
        let operand_ended = self.following_syntax() == FollowingSyntax::Operator;
        match closed {
            Some(FrameKind::Parameters(place)) => return FrameKind::Function(place),
            Some(FrameKind::SwitchHead | FrameKind::CatchHead) => return FrameKind::Block,
            _ => {}
        }
        if (operand_ended || self.is_after_token("class"))
            && let Some(position) = self.innermost_mut().classes.pop()
        {
            return FrameKind::Class(position);
        }
        let static_block =
            self.last_token().is_some_and(|last| self.lexed.is_name(last, "static")) && self.is_at_key();
        if static_block {
            return FrameKind::StaticBlock;
        }
        if self.is_after_token("=>") {
            return FrameKind::Function(FunctionPosition::Arrow);
        }
        // A brace after an operand is not valid JavaScript, but valid S.
        if operand_ended {
            return self.construct_block_kind();
        }
        if starts || self.is_after_token("catch") { FrameKind::Block } else { FrameKind::Object }
    }

    fn construct_block_kind(&self) -> FrameKind {
        let on_its_line = |last: &TokenId| !self.lexed.tokens[*last].newline;
        let word = self.last_token().filter(on_its_line).and_then(|last| last.checked_sub(1));
        match word {
            Some(word) if self.lexed.is_name(word, "on") => FrameKind::Handler,
            Some(word) if self.lexed.is_name(word, "service") && self.lexed.tokens[word].starts_statement => {
                FrameKind::Service
            }
            _ => FrameKind::Block,
        }
    }
}

impl FrameKind {
    /// Whether the frame contains statements.
    pub(crate) fn contains_statements(self) -> bool {
        use FrameKind::{Block, Function, Handler, Program, Service, StaticBlock};
        matches!(self, Program | Block | Service | Handler | StaticBlock | Function(_))
    }
}

fn brackets_match(open: &str, close: &str) -> bool {
    match close.chars().next() {
        Some(')') => open == "(",
        Some(']') => open == "[",
        Some('}') if close == "}" => open == "{",
        Some('}') => open.ends_with("${"),
        _ => false,
    }
}

fn syntax_after_close(kind: FrameKind) -> FollowingSyntax {
    match kind {
        FrameKind::Head
        | FrameKind::DoHead
        | FrameKind::Block
        | FrameKind::Service
        | FrameKind::Handler
        | FrameKind::StaticBlock
        | FrameKind::Program
        | FrameKind::Function(FunctionPosition::Declaration | FunctionPosition::Member)
        | FrameKind::Class(
            FunctionPosition::Declaration | FunctionPosition::Member | FunctionPosition::Arrow,
        ) => FollowingSyntax::Statement,
        FrameKind::Function(FunctionPosition::Arrow) => FollowingSyntax::End,
        FrameKind::SwitchHead | FrameKind::CatchHead | FrameKind::Parameters(_) => FollowingSyntax::Operand,
        FrameKind::Function(FunctionPosition::Expression)
        | FrameKind::Class(FunctionPosition::Expression)
        | FrameKind::Object
        | FrameKind::Group
        | FrameKind::Square
        | FrameKind::Hole => FollowingSyntax::Operator,
    }
}
