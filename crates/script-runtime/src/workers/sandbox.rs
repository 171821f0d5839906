//! The sandbox of worker processes: no access to foreign files, to other processes, or to the network.
//!
//! The gateway starts its own binary, which sandboxes itself and then executes the engine, so that no code of
//! the script runs outside the sandbox. Landlock allows reading the worker's code, the script's folder and
//! the system's libraries, and writing to the script's home; it blocks signals to other processes. A seccomp
//! filter (`sandbox/seccomp.rs`) restricts the worker to the sockets that it inherits: it can create
//! no others except socket pairs, and connect none. So it reaches neither the network, nor the gateway's Unix
//! sockets, nor those of other workers. Both mechanisms work without privileges; full coverage needs a kernel
//! of 6.12 or newer.
//!
//! Landlock rules cannot exclude a part of an allowed folder. If the state is inside a readable folder, every
//! other entry of that folder is allowed individually, and entries that are added later are visible only to
//! later workers.
//!
//! If the system lacks a mechanism, the worker logs this and runs anyway: scripts are the operator's own
//! code, and the sandbox guards against faults.

#[cfg(target_os = "linux")]
mod seccomp;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The paths that engines read besides their own folder: libraries, time zones, the size of the machine.
/// No other files of `/etc`, since it contains configs and secrets; only the process itself in `/proc`, since
/// the gateway's environment may contain secrets; no disks or shared memory in `/dev`.
const SYSTEM_PATHS: [&str; 28] = [
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

/// The maximum size in bytes of a file that a worker writes.
const MAX_FILE_SIZE: u64 = 256 << 20;

/// The arguments of a worker's start.
struct ConfineArguments {
    code: PathBuf,
    home: PathBuf,
    folder: PathBuf,
    state: PathBuf,
    /// The sockets that it keeps, in ascending order.
    sockets: [u32; 2],
    engine: PathBuf,
}

impl ConfineArguments {
    fn parse(arguments: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        let mut path = || arguments.next().map(PathBuf::from);
        let (code, home, folder, state) = (path()?, path()?, path()?, path()?);
        let mut number = || arguments.next()?.to_str()?.parse().ok();
        let mut sockets: [u32; 2] = [number()?, number()?];
        sockets.sort_unstable();
        Some(Self { code, home, folder, state, sockets, engine: arguments.next()?.into() })
    }
}

/// Sandboxes this process and executes the worker: the arguments are those that follow a
/// [`crate::WorkerLauncher`]'s. Must be called before a second thread exists. Returns only on failure, with
/// the error.
pub fn exec_sandboxed(arguments: impl IntoIterator<Item = OsString>) -> io::Error {
    let mut rest = arguments.into_iter();
    let Some(arguments) = ConfineArguments::parse(&mut rest) else {
        let missing = "a worker's code, home, folder, state, sockets and engine are missing";
        return io::Error::new(io::ErrorKind::InvalidInput, missing);
    };
    // A serving thread has started this process.
    offload::restore_slice();
    let missing = [bounds(&arguments), files(&arguments), calls()];
    for missing in missing.into_iter().flatten() {
        // A line of the worker's output, which the gateway logs.
        let _ = writeln!(io::stderr(), "this worker is not confined: {missing}");
    }
    Command::new(arguments.engine).args(rest).exec()
}

/// Returns the readable paths of a folder: the folder itself, or its entries without the state if it contains
/// the state.
#[cfg(target_os = "linux")]
fn readable_paths(folder: &Path, state: &Path) -> Vec<PathBuf> {
    siblings_of_state(folder, state).unwrap_or_else(|| vec![folder.to_owned()])
}

/// Returns the entries of a folder other than the state, on each level down to it; `None` if the state is not
/// inside.
pub(crate) fn siblings_of_state(folder: &Path, state: &Path) -> Option<Vec<PathBuf>> {
    let (mut at, state) = (std::fs::canonicalize(folder).ok()?, std::fs::canonicalize(state).ok()?);
    let below = state.strip_prefix(&at).ok()?.to_owned();
    let mut beside = Vec::new();
    for part in &below {
        let entries = std::fs::read_dir(&at).into_iter().flatten().flatten();
        // Links are skipped: a rule for one applies to its target, which could be the state.
        let is_own = |entry: &std::fs::DirEntry| {
            entry.file_name() != part && entry.file_type().is_ok_and(|kind| !kind.is_symlink())
        };
        beside.extend(entries.filter(is_own).map(|entry| entry.path()));
        at.push(part);
    }
    Some(beside)
}

/// Limits the size of written files, and closes all inherited files of the gateway on exec; returns an error
/// message if this is not fully possible.
#[cfg(target_os = "linux")]
fn bounds(arguments: &ConfineArguments) -> Option<String> {
    use rustix::process::{Resource, Rlimit, setrlimit};

    let largest = Rlimit { current: Some(MAX_FILE_SIZE), maximum: Some(MAX_FILE_SIZE) };
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let set = setrlimit(Resource::Fsize, largest).and_then(|()| setrlimit(Resource::Core, none));
    let [first, second] = arguments.sockets;
    let ranges = [(3, first), (first.saturating_add(1), second), (second.saturating_add(1), u32::MAX)];
    let closed = ranges.iter().filter(|(from, to)| from < to).all(|(from, to)| close_on_exec(*from, to - 1));
    match set {
        Ok(()) if closed => None,
        Ok(()) => Some("the kernel can't close inherited files".to_owned()),
        Err(error) => Some(format!("limits: {error}")),
    }
}

/// Marks these file descriptors as close-on-exec; returns whether this succeeded.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "neither rustix nor the standard library have it")]
fn close_on_exec(first: u32, last: u32) -> bool {
    // SAFETY: the call takes only numbers, and with this flag it does not close anything yet.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) == 0 }
}

/// Restricts the process to its files and blocks signals to others; returns an error message if this is not
/// fully possible.
#[cfg(target_os = "linux")]
fn files(arguments: &ConfineArguments) -> Option<String> {
    use landlock::{
        ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
        path_beneath_rules,
    };

    let ConfineArguments { code, home, folder, state, engine, .. } = arguments;
    let abi = ABI::V6;
    // The engine may be a link to the folder of its other files.
    let engine = std::fs::canonicalize(engine).ok();
    let beside = engine.as_deref().and_then(Path::parent);
    let read = SYSTEM_PATHS.iter().map(Path::new).chain([&**folder]).chain(beside);
    let read: Vec<PathBuf> =
        read.flat_map(|open| readable_paths(open, state)).chain([code.clone()]).collect();
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

/// Restricts the process to the system calls that engines need; returns an error message if this is not
/// possible.
#[cfg(target_os = "linux")]
fn calls() -> Option<String> {
    seccomp::apply().err().map(|error| format!("no filter on system calls: {error}"))
}

#[cfg(not(target_os = "linux"))]
fn bounds(_: &ConfineArguments) -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
fn files(_: &ConfineArguments) -> Option<String> {
    Some("this system has no Landlock".to_owned())
}

#[cfg(not(target_os = "linux"))]
fn calls() -> Option<String> {
    Some("this system has no filter on system calls".to_owned())
}
