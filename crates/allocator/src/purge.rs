//! Giving back memory that is free.
//!
//! By itself mimalloc gives back what has been free for a second, all of it, on the thread that happens to notice: some
//! milliseconds for what one long request left. Here a thread of its own does it.

use std::io;
use std::thread;
use std::time::Duration;

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};

/// mimalloc's `mi_option_purge_delay`, in milliseconds (`mi_option_e` in `mimalloc.h`; the bindings have no name for it).
const PURGE_DELAY: mi_option_t = 15;
/// What it is set to: a delay that no thread sees the end of, since free memory is given back before.
const NEVER_BY_ITSELF: Duration = Duration::from_hours(24);
/// How often the thread looks.
const EVERY: Duration = Duration::from_secs(1);

/// Has free memory given back to the system once a second by a thread for that, and by no other from now on.
///
/// # Errors
/// When the system has no thread.
pub fn purge_in_background() -> io::Result<()> {
    thread::Builder::new().name("purge".to_owned()).spawn(|| {
        set_delay(NEVER_BY_ITSELF);
        loop {
            thread::sleep(EVERY);
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

/// Gives back what is free now.
#[expect(unsafe_code, reason = "mimalloc is in C")]
fn purge() {
    // SAFETY: any thread may call it at any time; it collects what is free, and no block in use.
    unsafe { mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::hint::black_box;

    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[global_allocator]
    static ALLOCATOR: crate::Allocator = crate::Allocator;

    /// The bytes of this process in the system's memory (proc_pid_statm(5)).
    fn resident() -> usize {
        let text = fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    #[expect(unsafe_code, reason = "mimalloc is in C")]
    fn gives_back_what_is_free() {
        // SAFETY: any option may be read at any time.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1000, "mimalloc's default: another option has this number");
        set_delay(NEVER_BY_ITSELF);
        assert_eq!(delay(), 24 * 3600 * 1000);
        let blocks: Vec<Vec<u8>> = (0..64).map(|_| black_box(vec![1; 1 << 20])).collect();
        let full = resident();
        drop(blocks);
        purge();
        assert!(full - resident() > 48 << 20, "{} bytes of {full} were given back", full - resident());
    }
}
