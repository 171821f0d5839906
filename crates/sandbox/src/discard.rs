//! Returns the memory of guests to the system before the guests are dropped.

use wasmtime::{Memory, Store};

/// The bytes that are discarded without yielding: some tenths of a millisecond.
const DISCARD_CHUNK: usize = 2 << 20;

/// Discards a memory from `begin` on, except for the first part, and yields before each part. No guest may
/// run in the memory any more.
pub async fn discard_memory<T>(store: &mut Store<T>, memory: Memory, begin: usize) {
    for from in (begin + DISCARD_CHUNK..memory.data_size(&*store)).step_by(DISCARD_CHUNK) {
        tokio::task::yield_now().await;
        let bytes = memory.data_mut(&mut *store).get_mut(from..).unwrap_or_default();
        let end = bytes.len().min(DISCARD_CHUNK);
        discard_pages(&mut bytes[..end]);
    }
}

/// Discards the whole pages in these bytes. They then contain zeros, or the snapshot's data. Dropping a guest
/// discards all of its memory at once, which takes milliseconds for a large one.
fn discard_pages(bytes: &mut [u8]) {
    let page = rustix::param::page_size();
    let skipped = bytes.as_ptr().align_offset(page);
    let Some(bytes) = bytes.get_mut(skipped..) else { return };
    let pages = bytes.len() / page * page;
    if pages == 0 {
        return;
    }
    // SAFETY: the range consists of whole pages within `bytes`, which is borrowed exclusively, so nothing
    // else accesses them during the call. Afterwards they are still initialised bytes, with other values. If
    // the system refuses, nothing has changed.
    #[expect(unsafe_code, reason = "measured, dropping 16 MiB at once takes 2 to 3 ms of a serving thread")]
    let _ =
        unsafe { rustix::mm::madvise(bytes.as_mut_ptr().cast(), pages, rustix::mm::Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use wasmtime::MemoryType;

    use super::*;
    use crate::{GuestClass, Sandbox};

    #[test]
    fn discards_memory_in_parts_and_yields_between_them() {
        let sandbox = Sandbox::unpooled(GuestClass::Filter).unwrap();
        let mut store = Store::new(sandbox.engine(), ());
        let memory = Memory::new(&mut store, MemoryType::new(256, None)).unwrap();
        memory.data_mut(&mut store).fill(7);
        let turns = {
            let mut giving_back = pin!(discard_memory(&mut store, memory, DISCARD_CHUNK));
            let mut context = Context::from_waker(Waker::noop());
            (0..).find(|_| giving_back.as_mut().poll(&mut context).is_ready())
        };
        assert_eq!(turns, Some((16 << 20) / DISCARD_CHUNK - 2));
        let (kept, given) = memory.data(&store).split_at(2 * DISCARD_CHUNK);
        assert!(kept.iter().all(|byte| *byte == 7) && given.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn discards_whole_pages_only() {
        let page = rustix::param::page_size();
        let mut bytes = vec![7; 6 * page];
        let begin = bytes.as_ptr().align_offset(page);
        let taken = &mut bytes[begin..begin + 5 * page];
        discard_pages(&mut taken[10..4 * page + 10]);
        assert!(taken[..page].iter().all(|byte| *byte == 7));
        assert!(taken[page..4 * page].iter().all(|byte| *byte == 0));
        assert!(taken[4 * page..].iter().all(|byte| *byte == 7));
        discard_pages(&mut []);
    }
}
