//! The system calls that a worker may not make.
//!
//! Engines need many calls, and new ones with each release, so this is a list of calls that no engine needs:
//! access to the network, to other processes, to further privileges, and to rarely used parts of the kernel.
//! Starting a process is blocked as well, since a child process would outlive its worker and escape its
//! limits. The system call numbers of other architectures (32 bits, x32) are refused altogether.

use std::collections::BTreeMap;
use std::error::Error;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, sock_filter,
};

/// Calls that are refused with any arguments.
const DENIED_CALLS: &[libc::c_long] = &[
    // Sockets other than the inherited ones and the worker's own pairs.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_tkill,
    // System V and POSIX message queues: their numbers can be guessed, so all calls are refused, not only
    // those that open one.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Privileges, namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_by_handle_at,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Parts of the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_personality,
];

/// Refused calls that exist on one architecture only.
#[cfg(target_arch = "x86_64")]
const NEVER_HERE: &[libc::c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: &[libc::c_long] = &[];

/// Calls whose first argument is a process id; allowed for this process only. 0 means this process.
const OWN_PROCESS_CALLS: &[libc::c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_rt_tgsigqueueinfo,
];

/// Calls whose second argument is a process id if the first has the given value; allowed for this process
/// only.
const OWN_PROCESS_SECOND: &[(libc::c_long, u64)] = &[(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)];

/// The lowest system call number of x32 (`__X32_SYSCALL_BIT`).
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

type SeccompResult<T> = std::result::Result<T, Box<dyn Error>>;
type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Applies the filters to this process and everything that it executes or forks.
pub(super) fn apply() -> SeccompResult<()> {
    for filter in build_filters(std::process::id().into())? {
        apply_filter(&filter)?;
    }
    Ok(())
}

fn build_filters(own: u64) -> SeccompResult<Vec<BpfProgram>> {
    // The C library first tries `clone3`, whose arguments a filter cannot read, and then falls back to
    // `clone`.
    let unseen = SeccompRules::from([(libc::SYS_clone3, Vec::new())]);
    let mut all =
        vec![compile_filter(denied_rules(own)?, libc::EACCES)?, compile_filter(unseen, libc::ENOSYS)?];
    #[cfg(target_arch = "x86_64")]
    all.push(x32_filter());
    Ok(all)
}

fn compile_filter(rules: SeccompRules, error: libc::c_int) -> SeccompResult<BpfProgram> {
    let refused = SeccompAction::Errno(u32::try_from(error)?);
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refused, std::env::consts::ARCH.try_into()?)?;
    Ok(filter.try_into()?)
}

fn denied_rules(own: u64) -> SeccompResult<SeccompRules> {
    use SeccompCmpOp::{MaskedEq, Ne};

    let mut rules: SeccompRules =
        DENIED_CALLS.iter().chain(NEVER_HERE).map(|call| (*call, Vec::new())).collect();
    let is = |index, operator, value| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value).map_err(Box::<dyn Error>::from)
    };
    for call in OWN_PROCESS_CALLS {
        // Signals to process 0 go to the whole process group.
        let is_signal = matches!(*call, libc::SYS_kill | libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo);
        let mut others = vec![is(0, Ne, own)?];
        if !is_signal {
            others.push(is(0, Ne, 0)?);
        }
        rules.insert(*call, vec![SeccompRule::new(others)?]);
    }
    for (call, process) in OWN_PROCESS_SECOND {
        let another_kind = SeccompRule::new(vec![is(0, Ne, *process)?])?;
        let another = SeccompRule::new(vec![is(1, Ne, own)?, is(1, Ne, 0)?])?;
        rules.insert(*call, vec![another_kind, another]);
    }
    let pairs = [
        SeccompRule::new(vec![is(0, Ne, u64::try_from(libc::AF_UNIX)?)?])?,
        // Datagram sockets can send to an address.
        SeccompRule::new(vec![is(1, MaskedEq(2), 2)?])?,
    ];
    rules.insert(libc::SYS_socketpair, pairs.into());
    // Threads are allowed, processes are not.
    let thread = u64::try_from(libc::CLONE_THREAD)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is(0, MaskedEq(thread), 0)?])?]);
    Ok(rules)
}

/// Refuses all calls of x32 as unimplemented. They have the same architecture value as 64-bit calls and
/// differ only in their numbers.
#[cfg(target_arch = "x86_64")]
fn x32_filter() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let operation = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let none = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::ENOSYS).unwrap_or(0);
    vec![
        operation(LOAD_WORD, 0, 0, 0),
        operation(IF_AT_LEAST, 0, 1, X32),
        operation(RETURN, 0, 0, none),
        operation(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
