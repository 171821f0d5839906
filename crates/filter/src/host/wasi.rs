//! WASI preview 1, limited to the functions that language runtimes need to start: time, random numbers,
//! standard outputs. There are no files, arguments, environment variables or sockets. Both of the module
//! names in use are provided.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime};

use sandbox::{Caller, GuestResult, Linker, Trapped};

use super::memory::memory_slice;
use super::{FilterHost, GuestModule, HostResult, system};
use crate::abi::HostStatus;

/// Error numbers of WASI.
const SUCCESS: u32 = 0;
const BADF: u32 = 8;
const FAULT: u32 = 21;
const INVAL: u32 = 28;
const NOSYS: u32 = 52;
const NOTSUP: u32 = 58;

/// The maximum number of random bytes per call.
const MAX_RANDOM: u32 = 64 << 10;
/// The maximum number of pieces of one write, and of subscriptions of one wait.
const MAX_PIECES: u32 = 1024;
/// The maximum number of bytes and of lines of one write. The rest is left to the next write.
const MAX_WRITE: u32 = 64 << 10;
const MAX_LINES: usize = 64;
/// The length at which an unfinished line is logged.
const LONGEST_LINE: usize = 8 << 10;

/// The error of a module that has called `proc_exit`.
#[derive(Debug, thiserror::Error)]
#[error("it exited with code {0}")]
struct ProcExit(u32);

/// Links implemented functions.
macro_rules! link {
    ($linker:ident, $module:ident: $($name:literal ($($parameter:ident: $type:ty),*) => $function:path;)*) => {$(
        $linker.func_wrap($module, $name, |caller: Caller<'_, FilterHost>, $($parameter: $type),*| -> u32 {
            let mut guest = GuestModule::new(caller);
            let done = $function(&mut guest, $($parameter),*);
            errno(done)
        })?;
    )*};
}

/// Links functions that always return the same number.
macro_rules! refuse {
    ($linker:ident, $module:ident: $($name:literal ($($type:ty),*) => $errno:expr;)*) => {$(
        refuse!(@one $linker, $module, $name, $errno, $($type),*);
    )*};
    (@one $linker:ident, $module:ident, $name:literal, $errno:expr, $($type:ty),*) => {
        $linker.func_wrap($module, $name, |_: Caller<'_, FilterHost>, $(_: $type),*| -> u32 { $errno })?;
    };
}

/// Adds WASI to a linker.
pub(super) fn add_wasi(linker: &mut Linker<FilterHost>) -> GuestResult<()> {
    for module in ["wasi_snapshot_preview1", "wasi_unstable"] {
        link! { linker, module:
            "args_get" (a: u32, b: u32) => return_success;
            "args_sizes_get" (count: u32, bytes: u32) => return_zero_sizes;
            "environ_get" (a: u32, b: u32) => return_success;
            "environ_sizes_get" (count: u32, bytes: u32) => return_zero_sizes;
            "clock_res_get" (clock: u32, to: u32) => clock_res_get;
            "clock_time_get" (clock: u32, precision: u64, to: u32) => clock_time_get;
            "fd_fdstat_get" (fd: u32, to: u32) => fd_fdstat_get;
            "fd_write" (fd: u32, pieces: u32, count: u32, to: u32) => fd_write;
            "poll_oneoff" (subscriptions: u32, events: u32, count: u32, to: u32) => poll_oneoff;
            "random_get" (to: u32, length: u32) => random_get;
        }
        refuse! { linker, module:
            "sched_yield" () => SUCCESS;
            "fd_close" (u32) => SUCCESS;
            "fd_fdstat_set_flags" (u32, u32) => NOSYS;
            "fd_fdstat_set_rights" (u32, u64, u64) => NOSYS;
            // There are no preopened directories: libraries probe from 3 on until they receive this error.
            "fd_prestat_get" (u32, u32) => BADF;
            "fd_prestat_dir_name" (u32, u32, u32) => BADF;
            "fd_read" (u32, u32, u32, u32) => BADF;
            "fd_pread" (u32, u32, u32, u64, u32) => BADF;
            "fd_pwrite" (u32, u32, u32, u64, u32) => BADF;
            "fd_readdir" (u32, u32, u32, u64, u32) => BADF;
            "fd_seek" (u32, u64, u32, u32) => BADF;
            "fd_tell" (u32, u32) => BADF;
            "fd_sync" (u32) => BADF;
            "fd_datasync" (u32) => BADF;
            "fd_advise" (u32, u64, u64, u32) => BADF;
            "fd_allocate" (u32, u64, u64) => BADF;
            "fd_filestat_get" (u32, u32) => BADF;
            "fd_filestat_set_size" (u32, u64) => BADF;
            "fd_filestat_set_times" (u32, u64, u64, u32) => BADF;
            "fd_renumber" (u32, u32) => BADF;
            "path_create_directory" (u32, u32, u32) => NOTSUP;
            "path_filestat_get" (u32, u32, u32, u32, u32) => NOTSUP;
            "path_filestat_set_times" (u32, u32, u32, u32, u64, u64, u32) => NOTSUP;
            "path_link" (u32, u32, u32, u32, u32, u32, u32) => NOTSUP;
            "path_open" (u32, u32, u32, u32, u32, u64, u64, u32, u32) => NOTSUP;
            "path_readlink" (u32, u32, u32, u32, u32, u32) => NOTSUP;
            "path_remove_directory" (u32, u32, u32) => NOTSUP;
            "path_rename" (u32, u32, u32, u32, u32, u32) => NOTSUP;
            "path_symlink" (u32, u32, u32, u32, u32) => NOTSUP;
            "path_unlink_file" (u32, u32, u32) => NOTSUP;
            "proc_raise" (u32) => NOTSUP;
            "sock_accept" (u32, u32, u32) => NOTSUP;
            "sock_recv" (u32, u32, u32, u32, u32, u32) => NOTSUP;
            "sock_send" (u32, u32, u32, u32, u32) => NOTSUP;
            "sock_shutdown" (u32, u32) => NOTSUP;
        }
        linker.func_wrap(module, "proc_exit", |_: Caller<'_, FilterHost>, code: u32| -> GuestResult<()> {
            Err(Trapped::new(ProcExit(code)))
        })?;
    }
    Ok(())
}

/// Maps a status to an error number of WASI.
fn errno(done: HostResult) -> u32 {
    match done {
        Ok(()) => SUCCESS,
        Err(HostStatus::NotFound) => BADF,
        Err(HostStatus::InvalidMemoryAccess) => FAULT,
        Err(_) => INVAL,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a host function like the others")]
fn return_success(_: &mut GuestModule<'_>, _: u32, _: u32) -> HostResult {
    Ok(())
}

fn return_zero_sizes(guest: &mut GuestModule<'_>, count: u32, bytes: u32) -> HostResult {
    guest.write_u32(count, 0)?;
    guest.write_u32(bytes, 0)
}

fn clock_res_get(guest: &mut GuestModule<'_>, _: u32, to: u32) -> HostResult {
    guest.write_u64(to, 1)
}

fn clock_time_get(guest: &mut GuestModule<'_>, clock: u32, _: u64, to: u32) -> HostResult {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let time = match clock {
        0 => system::unix_nanoseconds(SystemTime::now()),
        1..=3 => u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1),
        _ => return Err(HostStatus::BadArgument),
    };
    guest.write_u64(to, time)
}

/// Describes the standard streams as character devices.
fn fd_fdstat_get(guest: &mut GuestModule<'_>, fd: u32, to: u32) -> HostResult {
    if fd > 2 {
        return Err(HostStatus::NotFound);
    }
    let mut stat = [0; 24];
    stat[0] = 2;
    guest.write_bytes(to, &stat)
}

/// Logs lines written to the standard outputs.
fn fd_write(guest: &mut GuestModule<'_>, fd: u32, pieces: u32, count: u32, to: u32) -> HostResult {
    let level = match fd {
        1 => 2,
        2 => 4,
        _ => return Err(HostStatus::NotFound),
    };
    if count > MAX_PIECES {
        return Err(HostStatus::BadArgument);
    }
    let (mut written, mut lines): (u32, usize) = (0, MAX_LINES);
    let (memory, host) = guest.split_memory()?;
    let list = memory_slice(memory, (pieces, count * 8))?;
    for piece in list.chunks_exact(8) {
        let (address, length) = piece.split_at(4);
        let text = memory_slice(memory, (read_u32(address), read_u32(length).min(MAX_WRITE - written)))?;
        let taken = write_lines(host, level, text, &mut lines);
        written += taken as u32;
        if taken < text.len() {
            break;
        }
    }
    guest.write_u32(to, written)
}

fn read_u32(four: &[u8]) -> u32 {
    four.try_into().map_or(0, u32::from_le_bytes)
}

/// Logs a text until no more lines are left. Returns the number of bytes taken.
fn write_lines(host: &mut FilterHost, level: u32, text: &[u8], lines: &mut usize) -> usize {
    let index = usize::from(level == 4);
    let mut taken = 0;
    for part in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = host.output_lines.get_mut(index).filter(|_| *lines > 0) else { break };
        taken += part.len();
        let room = LONGEST_LINE.saturating_sub(line.len());
        line.extend_from_slice(part.get(..room).unwrap_or(part));
        if part.ends_with(b"\n") || line.len() >= LONGEST_LINE {
            let line = std::mem::take(line);
            let text = String::from_utf8_lossy(&line);
            system::write_log(host, level, text.trim_end());
            *lines -= 1;
        }
    }
    taken
}

/// Reports all subscriptions as ready immediately: nothing waits here.
fn poll_oneoff(
    guest: &mut GuestModule<'_>,
    subscriptions: u32,
    events: u32,
    count: u32,
    to: u32,
) -> HostResult {
    if count == 0 || count > MAX_PIECES {
        return Err(HostStatus::BadArgument);
    }
    let list = guest.memory_bytes((subscriptions, count * 48))?;
    let mut happened = Vec::with_capacity(count as usize * 32);
    for subscription in list.chunks_exact(48) {
        let (userdata, rest) = subscription.split_at(8);
        happened.extend_from_slice(userdata);
        happened.extend_from_slice(&[0, 0]);
        happened.extend(rest.first());
        happened.extend_from_slice(&[0; 21]);
    }
    guest.write_bytes(events, &happened)?;
    guest.write_u32(to, count)
}

fn random_get(guest: &mut GuestModule<'_>, to: u32, length: u32) -> HostResult {
    if length > MAX_RANDOM {
        return Err(HostStatus::BadArgument);
    }
    let mut bytes = vec![0; length as usize];
    getrandom::fill(&mut bytes).map_err(|_| HostStatus::InternalFailure)?;
    guest.write_bytes(to, &bytes)
}
