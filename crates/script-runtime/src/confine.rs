//! What a worker's process may not: reach other files than its own, other processes, and the network.
//!
//! The gateway starts its own binary, which confines itself and then becomes the engine, so that nothing of the script
//! runs unconfined. Landlock leaves the worker's code, the script's folder and the system's libraries to read, and the
//! script's home to write; and no signals to other processes. A filter on system calls (`confine/calls.rs`) leaves it the
//! sockets that it was given: it can make no others but pairs, and connect none. So it reaches neither the network, nor the
//! gateway's Unix sockets, nor another worker's. Both need no rights, and a kernel of 6.12 or newer for all of it.
//! Landlock opens and can't close again what is below: where the state lies in a folder that is to be read, all that is
//! there beside it is opened piece by piece, and what comes later only to later workers.
//! What the system has not, the worker says in the log, and runs all the same: scripts are the operator's own
//! code, and this is for faults.

#[cfg(target_os = "linux")]
mod calls;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What engines read beside their own folder: libraries, time zones, how much of a machine there is. Of `/etc` no more,
/// where configs and secrets are; of processes only themselves, since the gateway's environment may hold secrets; of
/// devices no disks and no shared memory.
const SYSTEM: [&str; 28] = [
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/crypto-policies",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/version",
];

/// The most that a file may hold which a worker writes.
const LARGEST_FILE: u64 = 256 << 20;

/// What a worker is started with.
struct Arguments {
    code: PathBuf,
    home: PathBuf,
    folder: PathBuf,
    state: PathBuf,
    /// The sockets that it keeps, in their order.
    sockets: [u32; 2],
    engine: PathBuf,
}

impl Arguments {
    fn take(arguments: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        let mut path = || arguments.next().map(PathBuf::from);
        let (code, home, folder, state) = (path()?, path()?, path()?, path()?);
        let mut number = || arguments.next()?.to_str()?.parse().ok();
        let mut sockets: [u32; 2] = [number()?, number()?];
        sockets.sort_unstable();
        Some(Self { code, home, folder, state, sockets, engine: arguments.next()?.into() })
    }
}

/// Confines this process, and becomes the worker: the arguments are those behind a [`crate::Launcher`]'s. To be called
/// before there is a second thread. Returns only if it could not, and says why.
pub fn confined(arguments: impl IntoIterator<Item = OsString>) -> io::Error {
    let mut rest = arguments.into_iter();
    let Some(arguments) = Arguments::take(&mut rest) else {
        let missing = "a worker's code, home, folder, state, sockets and engine are missing";
        return io::Error::new(io::ErrorKind::InvalidInput, missing);
    };
    let missing = [bounds(&arguments), files(&arguments), calls()];
    for missing in missing.into_iter().flatten() {
        // A line of the worker's, which the gateway logs.
        let _ = writeln!(io::stderr(), "this worker is not confined: {missing}");
    }
    Command::new(arguments.engine).args(rest).exec()
}

/// What of a folder may be read: all of it, or what is beside the folder of the state where that lies in it.
#[cfg(target_os = "linux")]
fn readable(folder: &Path, state: &Path) -> Vec<PathBuf> {
    beside(folder, state).unwrap_or_else(|| vec![folder.to_owned()])
}

/// What is in a folder beside that of the state; `None` where the state lies elsewhere.
pub(crate) fn beside(folder: &Path, state: &Path) -> Option<Vec<PathBuf>> {
    let (mut at, state) = (std::fs::canonicalize(folder).ok()?, std::fs::canonicalize(state).ok()?);
    let below = state.strip_prefix(&at).ok()?.to_owned();
    let mut beside = Vec::new();
    for part in &below {
        let entries = std::fs::read_dir(&at).into_iter().flatten().flatten();
        // A link opens nothing by itself, and must not open the state.
        let is_own = |entry: &std::fs::DirEntry| {
            entry.file_name() != part && entry.file_type().is_ok_and(|kind| !kind.is_symlink())
        };
        beside.extend(entries.filter(is_own).map(|entry| entry.path()));
        at.push(part);
    }
    Some(beside)
}

/// Bounds what it writes, and leaves it no file that was open in the gateway, whoever opened it; what is missing for it.
#[cfg(target_os = "linux")]
fn bounds(arguments: &Arguments) -> Option<String> {
    use rustix::process::{Resource, Rlimit, setrlimit};

    let largest = Rlimit { current: Some(LARGEST_FILE), maximum: Some(LARGEST_FILE) };
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let set = setrlimit(Resource::Fsize, largest).and_then(|()| setrlimit(Resource::Core, none));
    let [first, second] = arguments.sockets;
    let ranges = [(3, first), (first.saturating_add(1), second), (second.saturating_add(1), u32::MAX)];
    let closed = ranges.iter().filter(|(from, to)| from < to).all(|(from, to)| close_on_exec(*from, to - 1));
    match set {
        Ok(()) if closed => None,
        Ok(()) => Some("the kernel can't close what is open".to_owned()),
        Err(error) => Some(format!("limits: {error}")),
    }
}

/// Whether these are closed when the process becomes another program.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "neither rustix nor the standard library have it")]
fn close_on_exec(first: u32, last: u32) -> bool {
    // SAFETY: it takes numbers alone, and closes nothing now.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) == 0 }
}

/// Confines it to its files, and to itself; what is missing for it.
#[cfg(target_os = "linux")]
fn files(arguments: &Arguments) -> Option<String> {
    use landlock::{
        ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
        path_beneath_rules,
    };

    let Arguments { code, home, folder, state, engine, .. } = arguments;
    let abi = ABI::V6;
    // The engine may be a link to where its own files are.
    let engine = std::fs::canonicalize(engine).ok();
    let beside = engine.as_deref().and_then(Path::parent);
    let read = SYSTEM.iter().map(Path::new).chain([&**folder]).chain(beside);
    let read: Vec<PathBuf> = read.flat_map(|open| readable(open, state)).chain([code.clone()]).collect();
    let confine = || -> Result<_, RulesetError> {
        Ruleset::default()
            .handle_access(AccessFs::from_all(abi))?
            .scope(Scope::from_all(abi))?
            .create()?
            .add_rules(path_beneath_rules(read, AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules([folder], AccessFs::ReadDir))?
            .add_rules(path_beneath_rules(["/dev/null"], AccessFs::from_file(abi)))?
            .add_rules(path_beneath_rules([home], AccessFs::from_all(abi)))?
            .restrict_self()
    };
    match confine() {
        Ok(status) if status.ruleset == RulesetStatus::FullyEnforced => None,
        Ok(status) if status.ruleset == RulesetStatus::NotEnforced => {
            Some("the kernel has no Landlock".to_owned())
        }
        Ok(_) => Some(
            "the kernel's Landlock is older than 6.12: it can send signals to other processes".to_owned(),
        ),
        Err(error) => Some(format!("Landlock: {error}")),
    }
}

/// Confines it to the system calls that engines need; what is missing for it.
#[cfg(target_os = "linux")]
fn calls() -> Option<String> {
    calls::apply().err().map(|error| format!("no filter on system calls: {error}"))
}

#[cfg(not(target_os = "linux"))]
fn bounds(_: &Arguments) -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
fn files(_: &Arguments) -> Option<String> {
    Some("this system has no Landlock".to_owned())
}

#[cfg(not(target_os = "linux"))]
fn calls() -> Option<String> {
    Some("this system has no filter on system calls".to_owned())
}
