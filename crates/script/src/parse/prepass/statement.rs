//! The ends of statements and expressions, as determined from tokens.

use super::ConstructFinder;
use crate::parse::lex::{FollowingSyntax, FrameKind, TokenId, TokenKind};

impl ConstructFinder<'_> {
    /// Returns the last token of the expression that begins here, or `None` if there is none. The expression
    /// ends before a comma, a semicolon, a closing bracket or the next statement, and where `on`, another
    /// operand or a brace follows an operand.
    pub(super) fn expression_end(&self, first: TokenId) -> Option<TokenId> {
        let frame = self.token(first)?.frame;
        let mut last = None;
        let mut id = first;
        while let Some(token) = self.token(id) {
            let operand_before = id > first
                && self.token(id - 1).is_some_and(|before| before.following == FollowingSyntax::Operator);
            let closes = token.frame != frame;
            let separates = self.lexed.is_token(id, ",") || self.lexed.is_token(id, ";");
            let of_async = id > first && self.lexed.is_name(id - 1, "async");
            let ours = operand_before && (self.is_block(id) || (self.operand_begins(id) && !of_async));
            if closes || separates || ours || (token.starts_statement && id > first) || self.is_closing(id) {
                return last;
            }
            id = self.lexed.closing_token(id);
            last = Some(id);
            id += 1;
        }
        last
    }

    /// Whether a brace opens statements of S, rather than the body of a class in an expression.
    pub(super) fn is_block(&self, id: TokenId) -> bool {
        let kind = self.token(id).and_then(|token| token.bracket).map(|frame| self.lexed.frames[frame].kind);
        self.lexed.is_token(id, "{")
            && matches!(kind, Some(FrameKind::Block | FrameKind::Handler | FrameKind::Service))
    }

    fn is_closing(&self, id: TokenId) -> bool {
        let Some(frame) = self.token(id).and_then(|token| token.bracket) else { return false };
        self.lexed.frames[frame].close == Some(id)
    }

    /// Returns the last token of the statement that begins here, without its semicolon.
    pub(super) fn statement_end(&self, first: TokenId) -> TokenId {
        let (mut id, mut last) = (first, first);
        // The keywords that can continue the open statements, outermost first.
        let mut expected: Vec<&[&str]> = Vec::new();
        while let Some(token) = self.token(id) {
            let next = if self.lexed.is_token(id, ";") { id + 1 } else { id };
            let goes_on = self.consume_expected(&mut expected, next);
            let begins_next = id > first && token.starts_statement && !self.lexed.is_statement_head(id - 1);
            if self.is_closing(id) || ((begins_next || next > id) && !goes_on) {
                break;
            }
            match self.lexed.token_text(id) {
                "if" => expected.push(&["else"]),
                "do" => expected.push(&["while"]),
                "try" => expected.extend([&["finally"] as &[&str], &["catch", "finally"]]),
                _ => {}
            }
            last = self.lexed.closing_token(id);
            id = last + 1;
        }
        last
    }

    /// Whether a keyword continues one of these statements. Those nested in it have then ended.
    fn consume_expected(&self, expected: &mut Vec<&[&str]>, id: TokenId) -> bool {
        let keyword = self
            .token(id)
            .filter(|token| token.kind == TokenKind::Keyword)
            .map(|_| self.lexed.token_text(id));
        let waits = |words: &&[&str]| keyword.is_some_and(|keyword| words.contains(&keyword));
        let Some(place) = expected.iter().rposition(waits) else { return false };
        expected.truncate(place);
        true
    }

    /// Skips an invalid range: it is not searched for constructs, and is encoded as an empty statement.
    pub(super) fn skip_range(&mut self, first: TokenId, last: TokenId) {
        self.replace_range(self.token_range(first, last), ";", None);
        self.resume_at = last + 1;
    }
}
