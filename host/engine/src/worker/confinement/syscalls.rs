//! Seccomp: calls of the kernel that no engine needs and that reach out of its process. They fail with
//! "not permitted"; an engine that tries them gets an error and no signal.
//!
//! This is a list of what is forbidden, not of what is allowed: engines bring libraries of their own,
//! and the C library picks other calls with each version.

use std::collections::BTreeMap;

use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads, sock_filter,
};

/// The network, but for pairs of sockets inside the process.
const NETWORK: [c_long; 6] =
    [SYS_socket, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4];

/// Other programs.
const PROGRAMS: [c_long; 2] = [SYS_execve, SYS_execveat];

/// Whatever alters the disk beside opening a file for it.
const DISK: [c_long; 25] = [
    SYS_mkdirat,
    SYS_mknodat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_truncate,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_swapon,
    SYS_swapoff,
];

/// Other processes, and the kernel itself. `io_uring` does by itself what is forbidden here. A worker that
/// left its group would not die with it.
const REACH: [c_long; 40] = [
    SYS_setpgid,
    SYS_setsid,
    SYS_setrlimit,
    SYS_setpriority,
    SYS_ioprio_set,
    SYS_migrate_pages,
    SYS_move_pages,
    SYS_process_madvise,
    SYS_process_mrelease,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_tkill,
    SYS_kcmp,
    SYS_setns,
    SYS_unshare,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_shmget,
    SYS_shmat,
    SYS_msgget,
    SYS_semget,
    SYS_mq_open,
    SYS_personality,
];

/// How the threads of any process are scheduled; 0 is the thread that calls.
const SCHEDULING: [c_long; 4] =
    [SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr, SYS_sched_setaffinity];

/// Whoever owns a descriptor is sent signals about it. What the crate `libc` does not name has the
/// numbers of the kernel's `asm-generic/fcntl.h` and `sockios.h`.
const F_SETSIG: u32 = 10;
const F_SETOWN_EX: u32 = 15;
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;

/// Calls that only the oldest of our platforms still has.
#[cfg(target_arch = "x86_64")]
const OLD: [c_long; 16] = [
    SYS_fork,
    SYS_vfork,
    SYS_creat,
    SYS_mkdir,
    SYS_rmdir,
    SYS_mknod,
    SYS_unlink,
    SYS_rename,
    SYS_link,
    SYS_symlink,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: [c_long; 0] = [];

/// Installs the filter for this process.
pub(super) fn forbid() -> Result<(), String> {
    install().map_err(|error| error.to_string())
}

fn install() -> Result<(), seccompiler::Error> {
    let mut denied = BTreeMap::new();
    for call in NETWORK.into_iter().chain(PROGRAMS).chain(DISK).chain(REACH).chain(OLD) {
        denied.insert(call, Vec::new());
    }
    denied.insert(SYS_clone, vec![no_thread()?]);
    denied.insert(SYS_openat, opened_for_writing(2)?);
    #[cfg(target_arch = "x86_64")]
    denied.insert(SYS_open, opened_for_writing(1)?);
    for call in [SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo] {
        denied.insert(call, vec![another_process()?]);
    }
    for call in SCHEDULING {
        denied.insert(call, vec![rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?]);
    }
    denied.insert(SYS_prlimit64, limits_of_others_and_new_ones()?);
    denied.insert(SYS_prctl, one_of(0, &[PR_SET_PDEATHSIG.unsigned_abs()])?);
    denied.insert(SYS_fcntl, one_of(1, &[F_SETOWN.unsigned_abs(), F_SETSIG, F_SETOWN_EX])?);
    denied.insert(SYS_ioctl, one_of(1, &[FIOSETOWN, SIOCSPGRP])?);
    denied.insert(SYS_socketpair, pairs_that_could_reach_out()?);
    // Their arguments lie in memory, where no filter can look. Told that there are no such calls, the C
    // library takes the older ones.
    let unknown = [SYS_clone3, SYS_openat2].map(|call| (call, Vec::new())).into();
    apply_filter_all_threads(&program(denied, EPERM)?)?;
    apply_filter_all_threads(&program(unknown, ENOSYS)?)?;
    #[cfg(target_arch = "x86_64")]
    apply_filter_all_threads(&numbers_of_another_abi())?;
    Ok(())
}

/// The same calls have a second set of numbers here, those of x32, which lists of calls do not name.
#[cfg(target_arch = "x86_64")]
fn numbers_of_another_abi() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    let step = |code: u32, jt, jf, k| {
        let [low, high, ..] = code.to_le_bytes();
        sock_filter { code: u16::from_le_bytes([low, high]), jt, jf, k }
    };
    vec![
        // The number of the call is the first that a filter is shown.
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32),
        step(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM.unsigned_abs()),
        step(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW),
    ]
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: c_int,
) -> Result<BpfProgram, seccompiler::Error> {
    let answer = SeccompAction::Errno(errno.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, answer, arch)?.try_into()?)
}

/// A new process, where a thread is meant to share this one.
fn no_thread() -> Result<SeccompRule, seccompiler::Error> {
    rule(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(CLONE_THREAD as u64), 0)
}

/// `open` with flags at this argument that write or create.
fn opened_for_writing(at: u8) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let with = |mask: c_int, flags: c_int| {
        let mask = SeccompCmpOp::MaskedEq(u64::from(mask.unsigned_abs()));
        rule(at, SeccompCmpArgLen::Dword, mask, u64::from(flags.unsigned_abs()))
    };
    Ok(vec![
        with(O_ACCMODE, O_WRONLY)?,
        with(O_ACCMODE, O_RDWR)?,
        with(O_CREAT, O_CREAT)?,
        with(O_TRUNC, O_TRUNC)?,
    ])
}

/// An argument that is one of these.
fn one_of(at: u8, values: &[u32]) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let is = |value: &u32| rule(at, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(*value));
    values.iter().map(is).collect()
}

/// `prlimit64` reads the limits of this process and does nothing else.
fn limits_of_others_and_new_ones() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let is_not = |pid: u32| condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, pid.into());
    let of_others = SeccompRule::new(vec![is_not(0)?, is_not(std::process::id())?])?;
    let new = rule(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    Ok(vec![of_others, new])
}

/// An end of a pair may say things to sockets of other processes, by their path, unless it is a stream
/// or what is much like one.
fn pairs_that_could_reach_out() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    // What stands above the kind are flags.
    const KIND: u64 = 0xf;
    let kind = |kind: c_int| {
        let kind = u64::from(kind.unsigned_abs());
        rule(1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(KIND), kind)
    };
    let local = u64::from(AF_UNIX.unsigned_abs());
    Ok(vec![
        kind(SOCK_DGRAM)?,
        // Another name of the same.
        kind(SOCK_RAW)?,
        rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, local)?,
    ])
}

/// A signal to anybody else.
fn another_process() -> Result<SeccompRule, seccompiler::Error> {
    rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(std::process::id()))
}

fn rule(
    at: u8,
    length: SeccompCmpArgLen,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(vec![condition(at, length, compare, value)?])?)
}

fn condition(
    at: u8,
    length: SeccompCmpArgLen,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::Error> {
    Ok(SeccompCondition::new(at, length, compare, value)?)
}
