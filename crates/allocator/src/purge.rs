//! The return of free memory to the system.
//!
//! By default mimalloc returns all memory that has been free for a second at once, on the thread that happens
//! to notice: this takes some milliseconds after one long request. Here a dedicated thread does it.

use std::io;
use std::thread;
use std::time::Duration;

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};

/// mimalloc's `mi_option_purge_delay`, in milliseconds (`mi_option_e` in `mimalloc.h`; the bindings have no
/// name for it).
const PURGE_DELAY: mi_option_t = 15;
/// The value of the option: a delay that never elapses, since free memory is returned before.
const DISABLED_DELAY: Duration = Duration::from_hours(24);
/// The interval between two purges.
const PURGE_INTERVAL: Duration = Duration::from_secs(1);

/// Starts a thread that returns free memory to the system once a second, and stops all others from doing so.
///
/// # Errors
/// Fails if the system can't create a thread.
pub fn purge_in_background() -> io::Result<()> {
    thread::Builder::new().name("purge".to_owned()).spawn(|| {
        set_delay(DISABLED_DELAY);
        loop {
            thread::sleep(PURGE_INTERVAL);
            purge();
        }
    })?;
    Ok(())
}

#[expect(unsafe_code, reason = "mimalloc is in C")]
fn set_delay(delay: Duration) {
    // SAFETY: any option may be set to any number by any thread at any time.
    unsafe { mi_option_set(PURGE_DELAY, delay.as_millis() as _) }
}

/// Returns the memory that is free now.
#[expect(unsafe_code, reason = "mimalloc is in C")]
fn purge() {
    // SAFETY: any thread may call it at any time; it collects free memory and no block in use.
    unsafe { mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::hint::black_box;

    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[global_allocator]
    static ALLOCATOR: crate::GlobalAllocator = crate::GlobalAllocator;

    /// Returns the resident memory of this process in bytes (proc_pid_statm(5)).
    fn resident_bytes() -> usize {
        let text = fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    #[expect(unsafe_code, reason = "mimalloc is in C")]
    fn gives_back_what_is_free() {
        // SAFETY: any option may be read at any time.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1000, "mimalloc's default: another option has this number");
        set_delay(DISABLED_DELAY);
        assert_eq!(delay(), 24 * 3600 * 1000);
        let blocks: Vec<Vec<u8>> = (0..64).map(|_| black_box(vec![1; 1 << 20])).collect();
        let full = resident_bytes();
        drop(blocks);
        purge();
        assert!(
            full - resident_bytes() > 48 << 20,
            "{} bytes of {full} were given back",
            full - resident_bytes()
        );
    }
}
