//! A program that is run in place of a worker, and tries raw system calls.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;

/// The first argument that selects this program.
pub(crate) const NAME: &str = "probe";

/// Prints the result of each call on a line: its name, and the error number or 0.
#[expect(
    unsafe_code,
    clippy::print_stdout,
    reason = "the program tries raw system calls and prints the results"
)]
pub(crate) fn run_probe(what: Option<OsString>) {
    if what.is_some_and(|what| what == "32") {
        return of_32_bits();
    }
    let parent = i64::from(std::os::unix::process::parent_id());
    let own = i64::from(std::process::id());
    const X32: i64 = 0x4000_0000;
    let calls: &[(&str, [i64; 5])] = &[
        ("x32 getpid", [X32 | libc::SYS_getpid, 0, 0, 0, 0]),
        ("x32 socket", [X32 | libc::SYS_socket, 2, 1, 0, 0]),
        ("x32 ptrace", [X32 | 521, 16, parent, 0, 0]),
        ("socket inet", [libc::SYS_socket, 2, 1, 0, 0]),
        ("socket unix", [libc::SYS_socket, 1, 1, 0, 0]),
        ("pair of datagrams", [libc::SYS_socketpair, 1, 2, 0, 0]),
        ("connect", [libc::SYS_connect, 0, 0, 0, 0]),
        ("bind", [libc::SYS_bind, 0, 0, 0, 0]),
        ("io_uring", [libc::SYS_io_uring_setup, 1, 0, 0, 0]),
        ("ptrace", [libc::SYS_ptrace, 16, parent, 0, 0]),
        ("process_vm_readv", [libc::SYS_process_vm_readv, parent, 0, 0, 0]),
        ("pidfd_getfd", [libc::SYS_pidfd_getfd, 0, 0, 0, 0]),
        ("kcmp", [libc::SYS_kcmp, own, parent, 0, 0]),
        ("kill", [libc::SYS_kill, parent, 0, 0, 0]),
        ("kill group", [libc::SYS_kill, 0, 0, 0, 0]),
        ("tgkill", [libc::SYS_tgkill, parent, parent, 0, 0]),
        ("prlimit", [libc::SYS_prlimit64, parent, 0, 0, 0]),
        ("setpriority", [libc::SYS_setpriority, 0, parent, 19, 0]),
        ("setpriority of all", [libc::SYS_setpriority, 2, 0, 19, 0]),
        ("sched_setaffinity", [libc::SYS_sched_setaffinity, parent, 0, 0, 0]),
        ("unshare", [libc::SYS_unshare, 0x1000_0000, 0, 0, 0]),
        ("mount", [libc::SYS_mount, 0, 0, 0, 0]),
        ("bpf", [libc::SYS_bpf, 0, 0, 0, 0]),
        ("userfaultfd", [libc::SYS_userfaultfd, 0, 0, 0, 0]),
        ("open_by_handle_at", [libc::SYS_open_by_handle_at, 0, 0, 0, 0]),
        ("fork", [libc::SYS_clone, 17, 0, 0, 0]),
        ("new namespace", [libc::SYS_clone, 0x1000_0000 | 17, 0, 0, 0]),
        ("clone3", [libc::SYS_clone3, 0, 0, 0, 0]),
        ("own signal", [libc::SYS_kill, own, 0, 0, 0]),
        ("own limits", [libc::SYS_prlimit64, 0, 0, 0, 0]),
    ];
    for (name, [number, a, b, c, d]) in calls {
        // SAFETY: a call that is not refused has invalid arguments or no effect on this process.
        let result = unsafe { libc::syscall(*number, *a, *b, *c, *d) };
        let error = if result < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 };
        println!("{name}={error}");
    }
    std::thread::spawn(|| println!("thread=0")).join().expect("threads are allowed");
}

/// Calls `getpid` like a 32-bit program. The call must not return.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, clippy::print_stdout, reason = "as above")]
fn of_32_bits() {
    let mut result: i64 = 20;
    // SAFETY: the call only returns a number.
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
    };
    println!("{result}");
}

#[cfg(not(target_arch = "x86_64"))]
fn of_32_bits() {}

pub(crate) fn system_calls_that_no_engine_needs_are_refused(launch: &str) {
    let output = crate::run_as_worker(launch, "64");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !told.contains("not confined"), "{told}");
    for line in text.lines() {
        let (name, error) = line.split_once('=').expect("a line of the probe");
        let expected = match name {
            "clone3" => libc::ENOSYS,
            name if name.starts_with("x32") => libc::ENOSYS,
            "own signal" | "own limits" | "thread" => 0,
            _ => libc::EACCES,
        };
        assert_eq!(error, expected.to_string(), "{name}");
    }
    assert!(text.lines().count() > 30, "{told}");
    #[cfg(target_arch = "x86_64")]
    {
        let output = crate::run_as_worker(launch, "32");
        assert!(output.status.signal().is_some() && output.stdout.is_empty(), "{output:?}");
    }
}
