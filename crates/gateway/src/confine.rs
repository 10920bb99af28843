//! The gateway's own limits: capabilities, files (landlock) and system calls (seccomp).
//!
//! They hold for the gateway, which processes the command's packets, and not for the command. A
//! system call outside the list fails with `EPERM`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// The list of name servers, the table of names, the processes of control clients, and the
/// terminal: the folders of the files, and the last one, are read while the gateway serves.
const READ: [&str; 4] = ["/etc/resolv.conf", "/etc/hosts", "/proc/self", "/dev/tty"];

/// The folder or device to be read for an entry of [`READ`].
fn read_place(path: &str) -> PathBuf {
    match path {
        "/proc/self" => "/proc".into(),
        "/dev/tty" => path.into(),
        _ => {
            // It may be a link. Another file may take its place later.
            let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
            target.parent().unwrap_or(&target).to_owned()
        }
    }
}

/// System calls with any arguments.
const CALLS: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getpeername,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_listen,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_tgkill,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_unlinkat,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getpgrp,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// Families of new sockets.
const FAMILIES: [libc::c_int; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Requests of `ioctl`: non-blocking, bytes to be read, the terminal's foreground group.
const IOCTLS: [libc::Ioctl; 3] = [libc::FIONBIO, libc::FIONREAD, libc::TIOCGPGRP];

/// Gives up every capability, for this thread and those that it starts. No program that they start
/// gains one.
pub(crate) fn give_up_rights() -> Result<()> {
    rustix::thread::set_no_new_privs(true).context("prctl")?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).context("capabilities")
}

/// Limits the files of this thread and of those that it starts: some are read, and the control
/// socket may be in one of the folders of `control`. Returns a sentence on the outcome.
pub(crate) fn files(control: &[PathBuf]) -> Result<String> {
    let abi = ABI::V6;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()
        .context("landlock")?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let reads = READ.iter().map(|path| (read_place(path), read));
    let socket = AccessFs::MakeSock | AccessFs::RemoveFile;
    let sockets = control.iter().map(|path| (path.clone(), socket));
    for (path, access) in reads.chain(sockets) {
        // There may be no terminal.
        if let Ok(fd) = PathFd::new(&path) {
            let access = if path.is_dir() { access } else { access & AccessFs::from_file(abi) };
            ruleset = ruleset.add_rule(PathBeneath::new(fd, access)).context("landlock")?;
        }
    }
    let status = ruleset.restrict_self().context("landlock")?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => "landlock: all limits on files and signals hold",
        RulesetStatus::PartiallyEnforced => {
            "landlock: this kernel offers only a part of the limits on files and signals"
        }
        RulesetStatus::NotEnforced => "landlock: this kernel has none, so files are not limited",
    }
    .to_owned())
}

/// Limits the system calls of all threads of this process. Returns a sentence on the outcome.
pub(crate) fn calls() -> Result<String> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok("seccomp: no filter for this processor, so calls are not limited".to_owned());
    };
    let filter = SeccompFilter::new(
        rules()?,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        SeccompAction::Allow,
        arch,
    );
    let program = BpfProgram::try_from(filter.context("seccomp")?).context("seccomp")?;
    seccompiler::apply_filter_all_threads(&program).context("seccomp")?;
    Ok(format!("seccomp: {} system calls are left", rules()?.len()))
}

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let one_of = |argument: u8, values: &[u64]| -> Result<Vec<SeccompRule>> {
        let rule = |&value: &u64| {
            let (length, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
            let condition = SeccompCondition::new(argument, length, equal, value)?;
            SeccompRule::new(vec![condition])
        };
        values.iter().map(rule).collect::<Result<_, _>>().context("seccomp")
    };
    let mut rules: BTreeMap<_, _> = CALLS.iter().map(|&call| (call, Vec::new())).collect();
    let families = FAMILIES.map(|family| u64::from(family.unsigned_abs()));
    rules.insert(libc::SYS_socket, one_of(0, &families)?);
    rules.insert(libc::SYS_ioctl, one_of(1, &IOCTLS.map(u64::from))?);
    Ok(rules)
}
