//! The reviewed system calls that an engine may make, in groups with one reason each.
//!
//! Calls that are not listed are refused. Add a call only when a legitimate use fails without it, give the
//! reason, and update the table in `docs/engines/sandbox.md`; a test compares the two.

use libc::*;

/// The newest reviewed number (Linux 6.18).
pub(super) const NEWEST: c_long = 470;

/// Calls that are allowed for one reason, with any arguments.
pub(super) struct SyscallGroup {
    /// Why an engine may make them; see the legend in `docs/engines/sandbox.md`.
    #[cfg_attr(not(test), allow(dead_code, reason = "compared with the documentation"))]
    pub(super) reason: &'static str,
    /// Names with the prefix `SYS_`, and numbers on this platform.
    pub(super) calls: &'static [(&'static str, c_long)],
}

macro_rules! calls {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name)),*] };
}
pub(super) use calls;

// The crate `libc` lacks these on some platforms. Numbers from 424 on are equal on all platforms.
#[allow(non_upper_case_globals)]
const SYS_map_shadow_stack: c_long = 453;
#[allow(non_upper_case_globals)]
const SYS_futex_wake: c_long = 454;
#[allow(non_upper_case_globals)]
const SYS_futex_wait: c_long = 455;
#[allow(non_upper_case_globals)]
const SYS_futex_requeue: c_long = 456;
#[allow(non_upper_case_globals)]
const SYS_mseal: c_long = 462;

/// Calls that are allowed with any arguments.
pub(super) const ALLOWED: &[SyscallGroup] = &[
    SyscallGroup {
        reason: "open descriptors",
        calls: calls![
            SYS_read,
            SYS_pread64,
            SYS_readv,
            SYS_preadv,
            SYS_preadv2,
            SYS_write,
            SYS_writev,
            SYS_lseek,
            SYS_close,
            SYS_close_range,
            SYS_dup,
            SYS_dup3,
            SYS_fstat,
            SYS_fstatfs,
            SYS_getdents64,
            SYS_fadvise64,
            SYS_readahead,
            SYS_ppoll,
            SYS_pselect6,
            SYS_epoll_create1,
            SYS_epoll_ctl,
            SYS_epoll_pwait,
            SYS_epoll_pwait2,
            SYS_eventfd2,
            SYS_signalfd4,
            SYS_timerfd_create,
            SYS_timerfd_settime,
            SYS_timerfd_gettime,
            SYS_pipe2,
        ],
    },
    SyscallGroup {
        reason: "own sockets",
        calls: calls![
            SYS_sendto,
            SYS_recvfrom,
            SYS_sendmsg,
            SYS_recvmsg,
            SYS_shutdown,
            SYS_getsockname,
            SYS_getpeername,
            SYS_getsockopt,
        ],
    },
    SyscallGroup {
        reason: "path lookup",
        calls: calls![
            SYS_newfstatat,
            SYS_statx,
            SYS_faccessat,
            SYS_faccessat2,
            SYS_readlinkat,
            SYS_getcwd,
        ],
    },
    SyscallGroup {
        reason: "own memory",
        calls: calls![
            SYS_mmap,
            SYS_munmap,
            SYS_mprotect,
            SYS_mremap,
            SYS_madvise,
            SYS_msync,
            SYS_mincore,
            SYS_mlock,
            SYS_munlock,
            SYS_brk,
            SYS_mseal,
            SYS_pkey_alloc,
            SYS_pkey_free,
            SYS_pkey_mprotect,
            SYS_map_shadow_stack,
        ],
    },
    SyscallGroup {
        reason: "own threads",
        calls: calls![
            SYS_futex,
            SYS_futex_waitv,
            SYS_futex_wake,
            SYS_futex_wait,
            SYS_futex_requeue,
            SYS_set_robust_list,
            SYS_set_tid_address,
            SYS_rseq,
            SYS_membarrier,
            SYS_sched_yield,
            SYS_sched_getaffinity,
            SYS_sched_getparam,
            SYS_sched_getscheduler,
            SYS_sched_get_priority_max,
            SYS_sched_get_priority_min,
            SYS_getcpu,
            SYS_gettid,
            SYS_exit,
            SYS_exit_group,
            SYS_restart_syscall,
        ],
    },
    SyscallGroup {
        reason: "own signals",
        calls: calls![
            SYS_rt_sigaction,
            SYS_rt_sigprocmask,
            SYS_rt_sigreturn,
            SYS_rt_sigpending,
            SYS_rt_sigsuspend,
            SYS_rt_sigtimedwait,
            SYS_sigaltstack,
        ],
    },
    SyscallGroup {
        reason: "time and randomness",
        calls: calls![
            SYS_clock_gettime,
            SYS_clock_getres,
            SYS_clock_nanosleep,
            SYS_nanosleep,
            SYS_gettimeofday,
            SYS_times,
            SYS_getitimer,
            SYS_setitimer,
            SYS_getrandom,
        ],
    },
    SyscallGroup {
        reason: "own identity and usage",
        calls: calls![
            SYS_getpid,
            SYS_getppid,
            SYS_getuid,
            SYS_geteuid,
            SYS_getgid,
            SYS_getegid,
            SYS_getresuid,
            SYS_getresgid,
            SYS_getgroups,
            SYS_getpgid,
            SYS_getsid,
            SYS_getrusage,
            SYS_capget,
            SYS_uname,
            SYS_sysinfo,
        ],
    },
    #[cfg(target_arch = "x86_64")]
    SyscallGroup {
        reason: "legacy form",
        calls: calls![
            SYS_stat,
            SYS_lstat,
            SYS_access,
            SYS_readlink,
            SYS_poll,
            SYS_select,
            SYS_dup2,
            SYS_pipe,
            SYS_getdents,
            SYS_epoll_create,
            SYS_epoll_wait,
            SYS_eventfd,
            SYS_signalfd,
            SYS_pause,
            SYS_time,
            SYS_getpgrp,
            SYS_getrlimit,
        ],
    },
];

/// Calls that are allowed beside [`ALLOWED`] in a process with a writable folder: landlock checks their paths.
/// Calls that landlock does not check, such as `chmod`, are in neither.
pub(super) const WRITING: &[SyscallGroup] = &[
    SyscallGroup {
        reason: "writes files",
        calls: calls![
            SYS_pwrite64,
            SYS_pwritev,
            SYS_pwritev2,
            SYS_ftruncate,
            SYS_fallocate,
            SYS_fsync,
            SYS_fdatasync,
            SYS_flock,
            SYS_mkdirat,
            SYS_unlinkat,
            SYS_renameat,
            SYS_renameat2,
        ],
    },
    #[cfg(target_arch = "x86_64")]
    SyscallGroup {
        reason: "writes files",
        calls: calls![SYS_mkdir, SYS_rmdir, SYS_unlink, SYS_rename],
    },
];

/// Calls that fail with ENOSYS: the C library then falls back to an older call, but not after EPERM.
pub(super) const UNKNOWN: SyscallGroup = SyscallGroup {
    reason: "arguments in memory, invisible to a filter",
    calls: calls![SYS_clone3, SYS_openat2],
};
