//! A parser thread with sufficient stack.
//!
//! oxc recurses once for each level of nesting, and every byte of a text can open a level. A level takes at
//! least one byte, so this much stack for each byte cannot overflow. The stack is only reserved: the kernel
//! provides pages when they are used.

use diagnostics::Diagnostic;

use crate::diagnostic::DiagnosticCode;

const STACK_PER_BYTE: usize = if cfg!(debug_assertions) { 16 << 10 } else { 8 << 10 };
const MIN_STACK_BYTES: usize = 1 << 20;

/// The maximum length of a text, in bytes: about 25,000 lines.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// Runs `work` on a new thread with sufficient stack for the text. Returns `None` if the text is too long or
/// the thread cannot be created.
pub(crate) fn with_parser_thread<T: Send>(source: &str, work: impl FnOnce(&str) -> T + Send) -> Option<T> {
    if source.len() > MAX_TEXT_BYTES {
        return None;
    }
    let stack = MIN_STACK_BYTES + source.len() * STACK_PER_BYTE;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("script".into()).stack_size(stack);
        let thread = thread.spawn_scoped(scope, || work(source)).ok()?;
        match thread.join() {
            Ok(done) => Some(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Returns the error for a text that exceeds the maximum length.
pub(crate) fn too_large_diagnostic() -> Diagnostic {
    let message = format!("a file has at most {} KiB", MAX_TEXT_BYTES >> 10);
    let help = "divide it: services reach each other by HTTP, and plain functions can be imported";
    Diagnostic::in_text(DiagnosticCode::TooLarge, 0..0, message, "this one is too large to be compiled", help)
}
