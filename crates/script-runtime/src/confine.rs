//! What a worker's process may not: reach other files than its own, and the network.
//!
//! The gateway starts its own binary, which confines itself and then becomes the engine, so that nothing of the script
//! runs unconfined. Landlock leaves the script's folder and the system's libraries to read, and the workers' folder to
//! write; a filter on system calls leaves Unix sockets alone. Both need no rights, and a kernel of 5.13 or newer.
//! Landlock opens and can't close again what is below: where the state lies in a folder that is to be read, all that is
//! there beside it is opened piece by piece, and what comes later only to later workers.
//! Where the system has neither, the worker says so in the log and runs all the same: scripts are the operator's own
//! code, and this is for faults.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What engines read beside their own folder: libraries, time zones, how much of a machine there is. Of `/etc` no more,
/// where configs and secrets are; of processes only themselves, since the gateway's environment may hold secrets.
const SYSTEM: [&str; 23] = [
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
    "/sys",
    "/dev",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/version",
];

/// Confines this process, and becomes the worker: the arguments are those behind a [`crate::Launcher`]'s. To be called
/// before there is a second thread. Returns only if it could not, and says why.
pub fn confined(arguments: impl IntoIterator<Item = OsString>) -> io::Error {
    let mut arguments = arguments.into_iter();
    let (Some(home), Some(folder), Some(state), Some(engine)) =
        (arguments.next(), arguments.next(), arguments.next(), arguments.next())
    else {
        let missing = "a worker's home, folder, state and engine are missing";
        return io::Error::new(io::ErrorKind::InvalidInput, missing);
    };
    let (home, folder, state, engine) =
        (Path::new(&home), Path::new(&folder), Path::new(&state), PathBuf::from(engine));
    for missing in [files(home, folder, state, &engine), network()].into_iter().flatten() {
        // A line of the worker's, which the gateway logs.
        let _ = writeln!(io::stderr(), "this worker is not confined: {missing}");
    }
    Command::new(engine).args(arguments).exec()
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

/// Confines it to its files; what is missing for it.
#[cfg(target_os = "linux")]
fn files(home: &Path, folder: &Path, state: &Path, engine: &Path) -> Option<String> {
    use landlock::{
        ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
        path_beneath_rules,
    };

    let abi = ABI::V5;
    // The engine may be a link to where its own files are.
    let engine = std::fs::canonicalize(engine).ok();
    let beside = engine.as_deref().and_then(Path::parent);
    let read = SYSTEM.iter().map(Path::new).chain([folder]).chain(beside);
    let read: Vec<PathBuf> = read.flat_map(|open| readable(open, state)).collect();
    let confine = || -> Result<_, RulesetError> {
        Ruleset::default()
            .handle_access(AccessFs::from_all(abi))?
            .create()?
            .add_rules(path_beneath_rules(read, AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules([folder], AccessFs::ReadDir))?
            .add_rules(path_beneath_rules(["/dev/null"], AccessFs::from_file(abi)))?
            .add_rules(path_beneath_rules([home], AccessFs::from_all(abi)))?
            .restrict_self()
    };
    match confine() {
        Ok(status) if status.ruleset != RulesetStatus::NotEnforced => None,
        Ok(_) => Some("the kernel has no Landlock".to_owned()),
        Err(error) => Some(format!("Landlock: {error}")),
    }
}

/// Confines it to Unix sockets; what is missing for it.
#[cfg(target_os = "linux")]
fn network() -> Option<String> {
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };

    let filter = || -> Result<BpfProgram, Box<dyn std::error::Error>> {
        let family = u64::try_from(libc::AF_UNIX)?;
        let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)?;
        // What would open sockets by another way.
        let rules = [
            (libc::SYS_socket, vec![SeccompRule::new(vec![other])?]),
            (libc::SYS_io_uring_setup, Vec::new()),
        ];
        let refused = SeccompAction::Errno(u32::try_from(libc::EACCES)?);
        let arch = std::env::consts::ARCH.try_into()?;
        let filter = SeccompFilter::new(rules.into_iter().collect(), SeccompAction::Allow, refused, arch)?;
        Ok(filter.try_into()?)
    };
    let applied = filter().and_then(|filter| Ok(seccompiler::apply_filter(&filter)?));
    applied.err().map(|error| format!("no network filter: {error}"))
}

#[cfg(not(target_os = "linux"))]
fn files(_: &Path, _: &Path, _: &Path, _: &Path) -> Option<String> {
    Some("this system has no Landlock".to_owned())
}

#[cfg(not(target_os = "linux"))]
fn network() -> Option<String> {
    Some("this system has no filter on system calls".to_owned())
}
