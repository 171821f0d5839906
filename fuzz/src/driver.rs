//! libFuzzer, run from within a test.
//!
//! `make fuzz` starts a test binary for one target, with libFuzzer's arguments in a variable. libFuzzer calls
//! the oracle until its time is over, and ends the process. A panic that leaves the oracle is a finding. A
//! panic that the code under test catches is not, so the hook that `libfuzzer-sys` would install is not used.

#![expect(
    unsafe_code,
    reason = "libFuzzer is C++: it is called with C strings, and calls back with a pointer and a length"
)]

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

// Links libFuzzer.
use libfuzzer_sys as _;

use crate::{FuzzTarget, expand_words};

/// The variable with libFuzzer's arguments, separated by spaces.
const ARGUMENTS: &str = "FUZZ_ARGUMENTS";

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        arguments: *mut *mut *mut c_char,
        target: unsafe extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// The last panic. The hook that records it is installed on the first input, replacing the one of
/// `libfuzzer-sys`.
static PANIC: Mutex<String> = Mutex::new(String::new());
static HOOK: Once = Once::new();

/// The function that libFuzzer's callback runs, on the thread that started libFuzzer.
type FuzzOracle<'a> = &'a dyn Fn(&[u8]);

thread_local! {
    static ORACLE: Cell<Option<FuzzOracle<'static>>> = const { Cell::new(None) };
}

/// Whether this process was started for fuzzing.
pub(crate) fn is_fuzzing() -> bool {
    std::env::var_os(ARGUMENTS).is_some()
}

/// Fuzzes until libFuzzer ends.
pub(crate) fn run_libfuzzer(target: &FuzzTarget, words: &[&str], oracle: &dyn Fn(&[u8])) {
    let whole = |bytes: &[u8]| {
        oracle(bytes);
        if !words.is_empty() {
            oracle(&expand_words(bytes, words));
        }
    };
    let whole: FuzzOracle<'_> = &whole;
    // SAFETY: only the lifetime is changed, and `ORACLE` is cleared before this function returns.
    let lasting = unsafe { std::mem::transmute::<FuzzOracle<'_>, FuzzOracle<'static>>(whole) };
    ORACLE.set(Some(lasting));
    let given = std::env::var(ARGUMENTS).unwrap_or_default();
    // Generators need more than the few bytes that libFuzzer starts with.
    let length = if words.is_empty() { "-len_control=0" } else { "-len_control=100" };
    let arguments = [target.name, length].into_iter().chain(given.split_whitespace());
    let arguments = arguments.map(|argument| CString::new(argument).expect("a text without zeros"));
    let mut arguments: Vec<*mut c_char> = arguments.map(CString::into_raw).collect();
    let mut count = c_int::try_from(arguments.len()).expect("few arguments");
    arguments.push(std::ptr::null_mut());
    let mut pointer = arguments.as_mut_ptr();
    start_alarm_timer();
    // SAFETY: the arguments are C strings that are never freed, followed by a null pointer.
    let code = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut pointer, run_oracle) };
    ORACLE.set(None);
    assert_eq!(code, 0, "libFuzzer did not run");
}

unsafe extern "C" fn run_oracle(data: *const u8, length: usize) -> c_int {
    let bytes: &[u8] = match length {
        0 => &[],
        // SAFETY: libFuzzer passes a valid pointer and length, and does not modify the bytes until this
        // returns.
        _ => unsafe { std::slice::from_raw_parts(data, length) },
    };
    let Some(oracle) = ORACLE.get() else { std::process::abort() };
    HOOK.call_once(|| std::panic::set_hook(Box::new(record_panic)));
    if catch_unwind(AssertUnwindSafe(|| oracle(bytes))).is_err() {
        let text = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: writes a valid buffer to standard error. The print macros would write to the test's
        // captured output.
        let _ = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        std::process::abort();
    }
    0
}

/// Records a panic. Only the last one is printed, and only if it leaves the oracle: code under test may catch
/// many.
fn record_panic(panic: &PanicHookInfo<'_>) {
    let trace = Backtrace::force_capture();
    *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = format!("\n{panic}\n{trace}\n");
}

/// Sends this thread the signal with which libFuzzer detects slow inputs. libFuzzer's own timer signals the
/// main thread, which does not run tests and ignores it.
fn start_alarm_timer() {
    // SAFETY: only returns an id.
    let thread = unsafe { libc::pthread_self() };
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            // SAFETY: the thread lives as long as the process, since libFuzzer never returns to it, and the
            // signal has a handler once the first input has run.
            let _ = unsafe { libc::pthread_kill(thread, libc::SIGALRM) };
        }
    });
}
