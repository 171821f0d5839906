//! Removes the types from a TypeScript program by overwriting them with spaces.
//!
//! A program is sent as it was written, and errors have to refer to lines and columns of the author's source.
//! A compiler's output would need a source map for that. Here, nothing moves: each character that the parser
//! marks as part of a type becomes a space, line breaks stay, and the result is the JavaScript that remains,
//! with every token in its place. Constructs that need new code in JavaScript (`enum`, parameter properties
//! and others) are rejected with a hint.
//!
//! `erase` walks the tree and collects the ranges to remove; `text` overwrites them and keeps statements
//! apart that rely on an implied semicolon; `shape` verifies that the result is the same program. `levels`
//! bounds the nesting of a program, `arena` the size of its tree.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use offload::CpuClock;
use oxc_diagnostics::OxcDiagnostic;
use oxc_parser::{Parser, config::TokensParserConfig};
use oxc_span::SourceType;

use arena::SyntaxArena;
use erase::TypeEraser;
use shape::TreeShape;

mod arena;
mod erase;
mod levels;
mod shape;
mod text;

#[cfg(test)]
mod tests;

/// The stack per level of nesting. The parser recurses once per level, and a hostile program may consist of
/// levels only; with this size the stack can't overflow (`levels.rs`). It is only reserved: pages that are
/// not touched use no memory.
const STACK_PER_LEVEL: usize = if cfg!(debug_assertions) { 8 << 10 } else { 4 << 10 };
const MIN_STACK: usize = 1 << 20;

/// A syntax error and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (line {line}, column {column})")]
pub(crate) struct SyntaxError {
    /// The message.
    pub message: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters (Unicode scalar values), from 1.
    pub column: u32,
    /// A hint on how to correct it.
    pub hint: Option<String>,
}

impl SyntaxError {
    fn at_offset(source: &str, offset: u32, message: impl Into<String>, hint: Option<String>) -> Self {
        let (line, column) = line_and_column(source, offset);
        Self { message: message.into(), line, column, hint }
    }

    fn from_parser(source: &str, error: &OxcDiagnostic) -> Self {
        let hint = error.help.as_ref().map(ToString::to_string);
        Self::at_offset(source, first_label(error), error.message.to_string(), hint)
    }
}

/// Converts a TypeScript module to JavaScript, with each token at its original line and column. Also returns
/// the CPU time, which is spent on a separate thread that the caller's clock does not measure.
pub(crate) fn strip_timed(source: &str) -> (Result<String, SyntaxError>, Duration) {
    let nanos = AtomicU64::new(0);
    let stripped = strip_on_thread(source, &nanos).unwrap_or_else(|| {
        let hint = Some("Nest it less deeply, or send it as JavaScript.".to_owned());
        Err(SyntaxError::at_offset(source, 0, "This program is too deeply nested to remove its types", hint))
    });
    (stripped, Duration::from_nanos(nanos.load(Relaxed)))
}

#[cfg(test)]
pub(crate) fn strip(source: &str) -> Result<String, SyntaxError> {
    strip_timed(source).0
}

/// Returns `None` if a bound was hit: too many levels, no memory for the stack or the tree, or a tree larger
/// than its arena.
fn strip_on_thread(source: &str, nanos: &AtomicU64) -> Option<Result<String, SyntaxError>> {
    let levels = Some(levels::max_levels(source)).filter(|levels| *levels <= levels::MAX_LEVELS)?;
    let stack = levels.checked_mul(STACK_PER_LEVEL)?.checked_add(MIN_STACK)?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("typescript".into()).stack_size(stack);
        let timed = || {
            let _timed = TimedGuard { clock: CpuClock::now(), nanos };
            strip_types(source)
        };
        thread.spawn_scoped(scope, timed).ok()?.join().ok().flatten()
    })
}

/// Stores the CPU time of its thread on drop, after a panic as well.
struct TimedGuard<'a> {
    clock: CpuClock,
    nanos: &'a AtomicU64,
}

impl Drop for TimedGuard<'_> {
    fn drop(&mut self) {
        self.nanos.store(u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

fn strip_types(source: &str) -> Option<Result<String, SyntaxError>> {
    let allocator = SyntaxArena::for_source(source)?;
    let parsed = Parser::new(&allocator, source, SourceType::ts().with_module(true))
        .with_config(TokensParserConfig)
        .parse();
    if let Some(error) = parsed.diagnostics.errors().next() {
        return Some(Err(find_jsx_error(source)?.unwrap_or_else(|| SyntaxError::from_parser(source, error))));
    }
    let (erased, shape) = match TypeEraser::erase_types(source, &parsed.tokens, &parsed.program) {
        Ok(walked) => walked,
        Err(refused) => return Some(Err(refused)),
    };
    if erased.is_empty() {
        return Some(Ok(source.to_owned()));
    }
    let stripped = erased.render(source, &parsed.tokens);
    Some(verify_same_program(source, &stripped, &shape)?.map_or(Ok(stripped), Err))
}

/// Returns an error if JSX is the only reason why the program does not parse.
fn find_jsx_error(source: &str) -> Option<Option<SyntaxError>> {
    let allocator = SyntaxArena::for_source(source)?;
    let parsed = Parser::new(&allocator, source, SourceType::tsx().with_module(true)).parse();
    if parsed.diagnostics.has_errors() {
        return Some(None);
    }
    Some(erase::first_jsx(&parsed.program).map(|offset| {
        let hint = Some("Call a function that returns the value, or build a string.".to_owned());
        SyntaxError::at_offset(source, offset, "JSX is not supported in a query program", hint)
    }))
}

/// Verifies the result, as a safeguard for all edge cases of the grammar: it must parse to the tree of the
/// original.
fn verify_same_program(source: &str, stripped: &str, before: &TreeShape) -> Option<Option<SyntaxError>> {
    let allocator = SyntaxArena::for_source(source)?;
    let parsed = Parser::new(&allocator, stripped, SourceType::mjs()).parse();
    let place = match parsed.diagnostics.errors().next() {
        Some(error) => Some(line_and_column(stripped, first_label(error))),
        None => {
            let difference = before.first_difference(&TreeShape::from_program(&parsed.program));
            difference.map(|offset| line_and_column(source, offset))
        }
    };
    Some(place.map(|(line, column)| {
        SyntaxError {
            message: "The type here can't be removed without changing what the program does".to_owned(),
            line,
            column,
            hint: Some(
                "Put parentheses around the expression, keep the type on one line, or write `x as T` \
             instead of `<T>x`."
                    .to_owned(),
            ),
        }
    }))
}

fn first_label(error: &OxcDiagnostic) -> u32 {
    error.labels.first().map_or(0, |label| label.span().start)
}

/// Returns the line and column of a byte, counted as editors do: `\n`, `\r\n` and `\r` end a line.
fn line_and_column(source: &str, offset: u32) -> (u32, u32) {
    let (mut line, mut column, mut last) = (1, 1, ' ');
    for (_, c) in source.char_indices().take_while(|&(at, _)| at < offset as usize) {
        match c {
            '\n' if last == '\r' => {}
            '\n' | '\r' => (line, column) = (line + 1, 1),
            _ => column += 1,
        }
        last = c;
    }
    (line, column)
}
