//! Seccomp: calls of the kernel that an engine may make. All others fail and send no signal: an engine that
//! tries them gets an error.
//!
//! This is a list of what is allowed: kernels get new calls every year, and some do what an older one was
//! refused for. [`allowlist`] and [`conditions`] hold the list.

mod allowlist;
mod conditions;

use std::collections::BTreeMap;

use libc::*;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads, sock_filter,
};

use self::allowlist::{ALLOWED, NEWEST, UNKNOWN};
use self::conditions::CONDITIONAL;

/// The numbers of x32 begin here: x86-64 has a second set of the same calls.
const X32: u32 = 0x4000_0000;

/// Installs the filter for this process.
pub(super) fn install_filter() -> Result<(), String> {
    let program = program().map_err(|error| error.to_string())?;
    apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

/// The filter: what is refused as unknown first, then the reviewed list.
fn program() -> Result<BpfProgram, BackendError> {
    let mut program = unknown();
    let mut allowed = BTreeMap::new();
    for (_, number) in ALLOWED.iter().flat_map(|group| group.calls) {
        allowed.insert(*number, Vec::new());
    }
    for conditional in CONDITIONAL {
        for (_, number) in conditional.calls {
            allowed.insert(*number, (conditional.rules)()?);
        }
    }
    let refused = SeccompAction::Errno(EPERM.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    let list = SeccompFilter::new(allowed, refused, SeccompAction::Allow, arch)?;
    program.extend(BpfProgram::try_from(list)?);
    Ok(program)
}

/// Answers that there is no such call to [`UNKNOWN`], and to every number that is newer than the list: as
/// on a kernel of the list's age, the C library then takes an older call. Falls through to what follows.
fn unknown() -> BpfProgram {
    let unknown = SECCOMP_RET_ERRNO | ENOSYS.unsigned_abs();
    let beyond = number(NEWEST) + 1;
    let mut steps = vec![
        // The number of the call is the first that a filter is shown.
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        // Those of x32 are left to the list, which has none of them.
        step(BPF_JMP | BPF_JGE | BPF_K, 2, 0, X32),
        step(BPF_JMP | BPF_JGE | BPF_K, 0, 1, beyond),
        step(BPF_RET | BPF_K, 0, 0, unknown),
    ];
    for (_, call) in UNKNOWN.calls {
        steps.push(step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, number(*call)));
        steps.push(step(BPF_RET | BPF_K, 0, 0, unknown));
    }
    steps
}

fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    let [low, high, ..] = code.to_le_bytes();
    sock_filter { code: u16::from_le_bytes([low, high]), jt, jf, k }
}

#[cfg(test)]
mod tests;
