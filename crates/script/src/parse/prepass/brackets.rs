//! Diagnostics for unbalanced brackets and unterminated tokens.

use std::ops::Range;

use diagnostics::{Diagnostic, LineStarts};

use crate::diagnostic::DiagnosticCode;
use crate::parse::lex::{FrameId, FrameKind, LexicalError, TokenId, TokenList, UnterminatedKind};

/// Returns diagnostics for the lexical errors. Of mismatched brackets only the first is reported, since it
/// causes the others.
pub(super) fn lexical_diagnostics(lexed: &TokenList<'_>) -> Vec<Diagnostic> {
    let mut diagnostics: Vec<Diagnostic> =
        lexed.errors.iter().filter_map(|error| unterminated_error(*error)).collect();
    if diagnostics.is_empty() {
        diagnostics
            .extend(lexed.errors.iter().find_map(|lexical_error| bracket_error(lexed, *lexical_error)));
    }
    diagnostics
}

fn unterminated_error(error: LexicalError) -> Option<Diagnostic> {
    let LexicalError::Unterminated { kind: what, start, end } = error else { return None };
    let (name, help) = match what {
        UnterminatedKind::String => {
            ("string", "close it with the quote that it began with, on the same line")
        }
        UnterminatedKind::Template => ("template", "close it with a backtick"),
        UnterminatedKind::Regex => {
            ("regular expression", "close it with `/` on the same line; `\\/` is a slash in it")
        }
        UnterminatedKind::Comment => ("comment", "close it with `*/`"),
    };
    let message = format!("this {name} never ends");
    Some(Diagnostic::in_text(
        DiagnosticCode::Unterminated,
        start..end,
        message,
        format!("the {name} begins here"),
        help,
    ))
}

fn bracket_error(lexed: &TokenList<'_>, error: LexicalError) -> Option<Diagnostic> {
    match error {
        LexicalError::Unterminated { .. } => None,
        LexicalError::Mismatched { close, open: Some(open) } => Some(mismatched_error(lexed, close, open)),
        LexicalError::Mismatched { close, open: None } => Some(superfluous_error(lexed, close)),
        LexicalError::Unclosed { open } => unclosed_error(lexed, open),
    }
}

fn token_span(lexed: &TokenList<'_>, id: TokenId) -> Range<usize> {
    lexed.tokens.get(id).map_or(0..0, |token| token.start..token.end)
}

fn closing_bracket(open: &str) -> &'static str {
    match open {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}

fn mismatched_error(lexed: &TokenList<'_>, close: TokenId, open: TokenId) -> Diagnostic {
    let (text, opened) = (first_char(lexed.token_text(close)), lexed.token_text(open));
    let message = format!("mismatched `{text}`");
    let label = format!("`{}` is expected before this", closing_bracket(opened));
    let help = format!("close the `{opened}` with `{}`, or remove the `{text}`", closing_bracket(opened));
    Diagnostic::in_text(DiagnosticCode::Bracket, token_span(lexed, close), message, label, help)
        .with_label(token_span(lexed, open), format!("this `{opened}` is still open"))
}

/// Returns the closing bracket's own character: the `}` of a template's tail.
fn first_char(text: &str) -> &str {
    text.chars().next().map_or("", |c| &text[..c.len_utf8()])
}

fn superfluous_error(lexed: &TokenList<'_>, close: TokenId) -> Diagnostic {
    let text = first_char(lexed.token_text(close));
    let message = format!("unexpected `{text}`: nothing is open here");
    let help = "remove it, or look for a block above that was closed too early";
    let start = token_span(lexed, close).start;
    let error = Diagnostic::in_text(
        DiagnosticCode::Bracket,
        start..start + text.len(),
        message,
        "this closes nothing",
        help,
    );
    match find_early_close(lexed) {
        Some(id) => error.with_label(token_span(lexed, id), "this one is probably superfluous"),
        None => error,
    }
}

fn unclosed_error(lexed: &TokenList<'_>, innermost: FrameId) -> Option<Diagnostic> {
    let end = lexed.source.len();
    let open = lexed.frames[innermost].open?;
    let opened = lexed.token_text(open);
    if closing_bracket(opened) != "}" {
        let message = format!("unexpected end of file, a {} is missing", closing_bracket(opened));
        let help = format!("close the `{opened}` with `{}`", closing_bracket(opened));
        let error =
            Diagnostic::in_text(DiagnosticCode::Bracket, end..end, message, "the file ends here", help);
        return Some(error.with_label(token_span(lexed, open), format!("this `{opened}` is still open")));
    }
    let suspect = find_unclosed_brace(lexed).unwrap_or(open);
    let help = "close the block where it is to end; the indentation shows which one it probably is";
    let message = "unexpected end of file, a } is missing";
    let error =
        Diagnostic::in_text(DiagnosticCode::MissingBrace, end..end, message, "the file ends here", help);
    Some(error.with_label(token_span(lexed, suspect), "this block is probably the one left open"))
}

/// Returns the probable brace without a closing one, as judged by the layout.
fn find_unclosed_brace(lexed: &TokenList<'_>) -> Option<TokenId> {
    find_misaligned_brace(lexed, |opening, closing| closing < opening)
        .or_else(|| handler_with_resource(lexed))
}

/// Returns a closing brace that is indented further than the line of its opening brace.
fn find_early_close(lexed: &TokenList<'_>) -> Option<TokenId> {
    let close = |open: TokenId| lexed.closing_token(open);
    find_misaligned_brace(lexed, |opening, closing| closing > opening).map(close)
}

/// Returns the first and innermost opening brace whose closing one begins a line with a wrong indentation.
fn find_misaligned_brace(lexed: &TokenList<'_>, wrong: impl Fn(usize, usize) -> bool) -> Option<TokenId> {
    let lines = LineStarts::new(lexed.source);
    let indent = |id: TokenId| {
        let text = lines.line_text(lines.position(token_span(lexed, id).start).line);
        text.chars().take_while(|c| c.is_whitespace()).count()
    };
    let column = |id: TokenId| lines.position(token_span(lexed, id).start).column as usize - 1;
    let mut braces: Vec<(TokenId, TokenId)> =
        lexed.frames.iter().filter_map(|frame| Some((frame.close?, frame.open?))).collect();
    braces.sort_unstable();
    let begins_line = |id: TokenId| indent(id) == column(id);
    let found = braces.into_iter().find(|&(close, open)| {
        lexed.is_token(close, "}") && begins_line(close) && wrong(indent(open), indent(close))
    });
    found.map(|(_, open)| open)
}

/// Returns the brace of a handler whose body contains a resource with a literal path. That resource was
/// probably meant to follow the handler.
fn handler_with_resource(lexed: &TokenList<'_>) -> Option<TokenId> {
    let mut resources = (0..lexed.tokens.len()).filter(|&id| {
        let token = lexed.tokens[id];
        let literal =
            lexed.tokens.get(id + 1).is_some_and(|next| next.kind == crate::parse::lex::TokenKind::String);
        token.starts_statement
            && lexed.is_name(id, "res")
            && literal
            && (lexed.is_name(id + 2, "on") || lexed.is_token(id + 2, "{"))
    });
    resources.find_map(|id| {
        let frame = lexed.frames[lexed.tokens[id].frame];
        if frame.kind == FrameKind::Handler { frame.open } else { None }
    })
}
