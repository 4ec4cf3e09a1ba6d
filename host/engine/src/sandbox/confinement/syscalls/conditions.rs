//! System calls that an engine may make with certain arguments only.

use libc::*;
use seccompiler::{
    BackendError as Error, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule,
};

use super::allowlist::calls;

/// Rules, one of which has to match.
type RuleList = Result<Vec<SeccompRule>, Error>;

/// Calls with a condition on their arguments.
pub(super) struct ConditionalSyscalls {
    /// The condition, as in `docs/engines/sandbox.md`.
    #[cfg_attr(not(test), allow(dead_code, reason = "compared with the documentation"))]
    pub(super) when: &'static str,
    /// Names and numbers, as in `SyscallGroup`.
    pub(super) calls: &'static [(&'static str, c_long)],
    /// The condition, as filter rules.
    pub(super) rules: fn() -> RuleList,
}

// Constants of the kernel's headers that the crate `libc` lacks.
const CLONE_DETACHED: c_int = 0x0040_0000;
const TMPFILE: c_int = 0o20_000_000;
const PR_SET_VMA: u32 = 0x5356_4d41;
#[cfg(target_arch = "x86_64")]
const ARCH_GET_FS: u32 = 0x1003;
#[cfg(target_arch = "x86_64")]
const ARCH_GET_GS: u32 = 0x1004;
#[cfg(target_arch = "x86_64")]
const ARCH_GET_XCOMP_SUPP: u32 = 0x1021;
#[cfg(target_arch = "x86_64")]
const ARCH_GET_XCOMP_PERM: u32 = 0x1022;
#[cfg(target_arch = "x86_64")]
const ARCH_REQ_XCOMP_PERM: u32 = 0x1023;
#[cfg(target_arch = "x86_64")]
const ARCH_SHSTK_STATUS: u32 = 0x5005;

/// All conditional calls.
pub(super) const CONDITIONAL: &[ConditionalSyscalls] = &[
    ConditionalSyscalls {
        when: "thread flags only",
        calls: calls![SYS_clone],
        rules: flags_of_a_thread,
    },
    ConditionalSyscalls {
        when: "read-only flags",
        calls: calls![SYS_openat],
        rules: || opened_for_reading(2),
    },
    #[cfg(target_arch = "x86_64")]
    ConditionalSyscalls {
        when: "read-only flags",
        calls: calls![SYS_open],
        rules: || opened_for_reading(1),
    },
    ConditionalSyscalls {
        when: "to this process",
        calls: calls![SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo],
        rules: || is_one_of(0, &[std::process::id()]),
    },
    ConditionalSyscalls {
        when: "calling thread",
        calls: calls![SYS_sched_setaffinity],
        rules: || is_one_of(0, &[0]),
    },
    ConditionalSyscalls {
        when: "reads own limits",
        calls: calls![SYS_prlimit64],
        rules: own_limits_read,
    },
    ConditionalSyscalls {
        when: "thread and memory names",
        calls: calls![SYS_prctl],
        rules: || {
            let names = [PR_SET_NAME.unsigned_abs(), PR_GET_NAME.unsigned_abs(), PR_SET_VMA];
            is_one_of(0, &names)
        },
    },
    ConditionalSyscalls {
        when: "duplicates, flags and locks; no owner or signal",
        calls: calls![SYS_fcntl],
        rules: commands_of_descriptors,
    },
    ConditionalSyscalls {
        when: "non-blocking, close-on-exec, bytes available, terminal size",
        calls: calls![SYS_ioctl],
        rules: || {
            let requests = [FIONBIO, FIOCLEX, FIONCLEX, FIONREAD, TCGETS, TIOCGWINSZ];
            let equal = |request: &Ioctl| equal(1, u32::try_from(*request).unwrap_or(0));
            requests.iter().map(equal).collect()
        },
    },
    ConditionalSyscalls {
        when: "local stream or seqpacket; datagrams could be addressed by path",
        calls: calls![SYS_socketpair],
        rules: pairs_that_stay_inside,
    },
    ConditionalSyscalls {
        when: "timeouts",
        calls: calls![SYS_setsockopt],
        rules: timeouts_of_sockets,
    },
    #[cfg(target_arch = "x86_64")]
    ConditionalSyscalls {
        when: "reads registers, enables AMX",
        calls: calls![SYS_arch_prctl],
        rules: || {
            let extended = [ARCH_GET_XCOMP_SUPP, ARCH_GET_XCOMP_PERM, ARCH_REQ_XCOMP_PERM];
            let mut rules = is_one_of(0, &extended)?;
            rules.extend(is_one_of(0, &[ARCH_GET_FS, ARCH_GET_GS, ARCH_SHSTK_STATUS])?);
            Ok(rules)
        },
    },
];

/// `clone` with the flags of a thread, which creates neither a process nor a namespace.
fn flags_of_a_thread() -> RuleList {
    let shared = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
    let optional = CLONE_SYSVSEM
        | CLONE_SETTLS
        | CLONE_PARENT_SETTID
        | CLONE_CHILD_SETTID
        | CLONE_CHILD_CLEARTID
        // musl sets it; no current kernel reads it.
        | CLONE_DETACHED;
    let checked = !u64::from(optional.unsigned_abs());
    let shared = u64::from(shared.unsigned_abs());
    Ok(vec![SeccompRule::new(vec![condition(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(checked),
        shared,
    )?])?])
}

/// `open` with flags, at this argument, that neither write nor create. `O_PATH` is refused because landlock
/// does not check it.
fn opened_for_reading(at: u8) -> RuleList {
    let forbidden = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | O_PATH | TMPFILE;
    masked(at, forbidden.unsigned_abs(), 0).map(|rule| vec![rule])
}

/// The calls with [`opened_for_writing`], and the position of their flags.
#[cfg(target_arch = "x86_64")]
pub(super) const OPENS: &[(c_long, u8)] = &[(SYS_openat, 2), (SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OPENS: &[(c_long, u8)] = &[(SYS_openat, 2)];

/// `open` for writing, which landlock checks. Not for reading with `O_TRUNC`, which old versions of it do not
/// check.
pub(super) fn opened_for_writing(at: u8) -> RuleList {
    let checked = O_ACCMODE | O_PATH | TMPFILE;
    [O_WRONLY, O_RDWR]
        .iter()
        .map(|access| masked(at, checked.unsigned_abs(), access.unsigned_abs().into()))
        .collect()
}

/// `prlimit64` that only reads the limits of this process.
fn own_limits_read() -> RuleList {
    let read = |pid: u32| {
        let new_limits = condition(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
        let of = condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, pid.into())?;
        SeccompRule::new(vec![of, new_limits])
    };
    Ok(vec![read(0)?, read(std::process::id())?])
}

/// Locks are included because databases take them; on a file open for reading they only delay writers.
fn commands_of_descriptors() -> RuleList {
    let commands = [
        F_DUPFD,
        F_DUPFD_CLOEXEC,
        F_GETFD,
        F_SETFD,
        F_GETFL,
        F_SETFL,
        F_GETLK,
        F_SETLK,
        F_SETLKW,
        F_OFD_GETLK,
        F_OFD_SETLK,
        F_OFD_SETLKW,
    ];
    is_one_of(1, &commands.map(c_int::unsigned_abs))
}

/// Only connected kinds: a datagram socket of a pair can send to sockets of other processes by path.
fn pairs_that_stay_inside() -> RuleList {
    // The bits above are flags.
    const KIND: u64 = 0xf;
    let pair = |kind: c_int| {
        let local = u64::from(AF_UNIX.unsigned_abs());
        let local = condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, local)?;
        let kind = u64::from(kind.unsigned_abs());
        let kind = condition(1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(KIND), kind)?;
        SeccompRule::new(vec![local, kind])
    };
    Ok(vec![pair(SOCK_STREAM)?, pair(SOCK_SEQPACKET)?])
}

/// Timeouts, but no socket filters, which are programs for the kernel, and no larger buffers, which are memory
/// that no limit of the process counts.
fn timeouts_of_sockets() -> RuleList {
    let option = |name: &c_int| {
        let level = u64::from(SOL_SOCKET.unsigned_abs());
        let level = condition(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, level)?;
        let name = u64::from(name.unsigned_abs());
        let name = condition(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, name)?;
        SeccompRule::new(vec![level, name])
    };
    [SO_RCVTIMEO, SO_SNDTIMEO].iter().map(option).collect()
}

fn is_one_of(at: u8, values: &[u32]) -> RuleList {
    values.iter().map(|value| equal(at, *value)).collect()
}

fn equal(at: u8, value: u32) -> Result<SeccompRule, Error> {
    SeccompRule::new(vec![condition(at, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value.into())?])
}

fn masked(at: u8, mask: u32, value: u64) -> Result<SeccompRule, Error> {
    let mask = SeccompCmpOp::MaskedEq(mask.into());
    SeccompRule::new(vec![condition(at, SeccompCmpArgLen::Dword, mask, value)?])
}

fn condition(
    at: u8,
    length: SeccompCmpArgLen,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, Error> {
    SeccompCondition::new(at, length, compare, value)
}
