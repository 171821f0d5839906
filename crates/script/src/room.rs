//! Room to read a text in.
//!
//! oxc calls itself once for each level of nesting, and a text may be nothing but levels. A level takes at least one
//! byte, so that this much stack for each byte can't overflow. It is only reserved: pages that a text doesn't reach are
//! never there.

const STACK_PER_BYTE: usize = if cfg!(debug_assertions) { 16 << 10 } else { 8 << 10 };
const STACK_AT_LEAST: usize = 1 << 20;

/// The longest text, in bytes: about 25,000 lines.
pub(crate) const LONGEST: usize = 1 << 20;

/// Does the work on a thread of its own with stack enough for the text; not at all if there is no room for it.
pub(crate) fn with_room<T: Send>(source: &str, work: impl FnOnce(&str) -> T + Send) -> Option<T> {
    if source.len() > LONGEST {
        return None;
    }
    let stack = STACK_AT_LEAST + source.len() * STACK_PER_BYTE;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("script".into()).stack_size(stack);
        let thread = thread.spawn_scoped(scope, || work(source)).ok()?;
        match thread.join() {
            Ok(done) => Some(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
