//! Seccomp: calls of the kernel that no engine needs and that reach out of its process. They fail with
//! "not permitted"; an engine that tries them gets an error and no signal.
//!
//! This is a list of what is forbidden, not of what is allowed: engines bring libraries of their own,
//! and the C library picks other calls with each version.

use std::collections::BTreeMap;

use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
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

/// Other processes, and the kernel itself. `io_uring` does by itself what is forbidden here.
const REACH: [c_long; 31] = [
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
    // Their arguments lie in memory, where no filter can look. Told that there are no such calls, the C
    // library takes the older ones.
    let unknown = [SYS_clone3, SYS_openat2].map(|call| (call, Vec::new())).into();
    apply_filter_all_threads(&program(denied, EPERM)?)?;
    apply_filter_all_threads(&program(unknown, ENOSYS)?)
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
    let condition = SeccompCondition::new(at, length, compare, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}
