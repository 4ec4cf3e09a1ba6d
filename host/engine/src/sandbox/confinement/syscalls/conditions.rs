//! Calls that an engine may make with some arguments and not with others.

use libc::*;
use seccompiler::{
    BackendError as Error, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule,
};

use super::allowlist::calls;

/// Rules of which one has to hold.
type RuleList = Result<Vec<SeccompRule>, Error>;

/// Calls with one rule for their arguments.
pub(super) struct ConditionalSyscalls {
    /// The rule, for people.
    #[cfg_attr(not(test), allow(dead_code, reason = "the table for people is held against it"))]
    pub(super) when: &'static str,
    /// Names and numbers, as in `Group`.
    pub(super) calls: &'static [(&'static str, c_long)],
    /// The rule, for the kernel.
    pub(super) rules: fn() -> RuleList,
}

/// What the crate `libc` does not name has the numbers of the kernel's headers.
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

/// All of them.
pub(super) const CONDITIONAL: &[ConditionalSyscalls] = &[
    ConditionalSyscalls {
        when: "the flags of a thread of this process",
        calls: calls![SYS_clone],
        rules: flags_of_a_thread,
    },
    ConditionalSyscalls {
        when: "for reading a file whose content may be read",
        calls: calls![SYS_openat],
        rules: || opened_for_reading(2),
    },
    #[cfg(target_arch = "x86_64")]
    ConditionalSyscalls {
        when: "for reading a file whose content may be read",
        calls: calls![SYS_open],
        rules: || opened_for_reading(1),
    },
    ConditionalSyscalls {
        when: "to this process",
        calls: calls![SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo],
        rules: || is_one_of(0, &[std::process::id()]),
    },
    ConditionalSyscalls {
        when: "of the thread that calls",
        calls: calls![SYS_sched_setaffinity],
        rules: || is_one_of(0, &[0]),
    },
    ConditionalSyscalls {
        when: "reading the limits of this process",
        calls: calls![SYS_prlimit64],
        rules: own_limits_read,
    },
    ConditionalSyscalls {
        when: "names of threads and of memory",
        calls: calls![SYS_prctl],
        rules: || {
            let names = [PR_SET_NAME.unsigned_abs(), PR_GET_NAME.unsigned_abs(), PR_SET_VMA];
            is_one_of(0, &names)
        },
    },
    ConditionalSyscalls {
        when: "copies, flags and locks of a descriptor, not its owner or signal",
        calls: calls![SYS_fcntl],
        rules: commands_of_descriptors,
    },
    ConditionalSyscalls {
        when: "blocking or not, closed at exec, bytes that wait, size of a terminal",
        calls: calls![SYS_ioctl],
        rules: || {
            let requests = [FIONBIO, FIOCLEX, FIONCLEX, FIONREAD, TCGETS, TIOCGWINSZ];
            let equal = |request: &Ioctl| equal(1, u32::try_from(*request).unwrap_or(0));
            requests.iter().map(equal).collect()
        },
    },
    ConditionalSyscalls {
        when: "local, a stream or sequence of packets; others could be sent to by path",
        calls: calls![SYS_socketpair],
        rules: pairs_that_stay_inside,
    },
    ConditionalSyscalls {
        when: "time limits and buffers of a socket",
        calls: calls![SYS_setsockopt],
        rules: limits_of_sockets,
    },
    #[cfg(target_arch = "x86_64")]
    ConditionalSyscalls {
        when: "reading registers, and wide ones for matrices",
        calls: calls![SYS_arch_prctl],
        rules: || {
            let extended = [ARCH_GET_XCOMP_SUPP, ARCH_GET_XCOMP_PERM, ARCH_REQ_XCOMP_PERM];
            let mut rules = is_one_of(0, &extended)?;
            rules.extend(is_one_of(0, &[ARCH_GET_FS, ARCH_GET_GS, ARCH_SHSTK_STATUS])?);
            Ok(rules)
        },
    },
];

/// `clone` shares everything with this process: neither a new process nor a new namespace is made.
fn flags_of_a_thread() -> RuleList {
    let shared = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
    let at_will = CLONE_SYSVSEM
        | CLONE_SETTLS
        | CLONE_PARENT_SETTID
        | CLONE_CHILD_SETTID
        | CLONE_CHILD_CLEARTID
        // The C library musl sets it, and no kernel reads it any more.
        | CLONE_DETACHED;
    let judged = !u64::from(at_will.unsigned_abs());
    let shared = u64::from(shared.unsigned_abs());
    Ok(vec![SeccompRule::new(vec![condition(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(judged),
        shared,
    )?])?])
}

/// `open` with flags at this argument that neither write nor create. A descriptor of a path alone
/// (`O_PATH`) shows what landlock would not let it open.
fn opened_for_reading(at: u8) -> RuleList {
    let forbidden = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | O_PATH | TMPFILE;
    masked(at, forbidden.unsigned_abs(), 0).map(|rule| vec![rule])
}

/// `prlimit64` reads the limits of this process and does nothing else.
fn own_limits_read() -> RuleList {
    let read = |pid: u32| {
        let new_limits = condition(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
        let of = condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, pid.into())?;
        SeccompRule::new(vec![of, new_limits])
    };
    Ok(vec![read(0)?, read(std::process::id())?])
}

/// Locks of a file that is read keep nobody but a writer waiting; databases take them.
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

/// An end of a pair may say things to sockets of other processes, by their path, unless it is a stream
/// or what is much like one.
fn pairs_that_stay_inside() -> RuleList {
    // What stands above the kind are flags.
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

/// No filters on sockets, which are programs for the kernel.
fn limits_of_sockets() -> RuleList {
    let option = |name: &c_int| {
        let level = u64::from(SOL_SOCKET.unsigned_abs());
        let level = condition(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, level)?;
        let name = u64::from(name.unsigned_abs());
        let name = condition(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, name)?;
        SeccompRule::new(vec![level, name])
    };
    [SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVBUF, SO_SNDBUF].iter().map(option).collect()
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
