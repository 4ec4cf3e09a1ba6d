//! Seccomp: an allowlist of system calls, in [`allowlist`] and [`conditions`]. All others fail with an error
//! and send no signal.
//!
//! Not a list of forbidden calls: kernels get new calls every year, and some do what an older, forbidden
//! one did.

mod allowlist;
mod conditions;

use std::collections::BTreeMap;

use libc::*;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads, sock_filter,
};

use self::allowlist::{ALLOWED, NEWEST, UNKNOWN, WRITING};
use self::conditions::{CONDITIONAL, OPENS, opened_for_writing};

/// The first number of x32, a second set of the same calls on x86-64.
const X32: u32 = 0x4000_0000;

/// Installs the filter for this process, also with the calls that write files if it `writes`.
pub(super) fn install_filter(writes: bool) -> Result<(), String> {
    let program = program(writes).map_err(|error| error.to_string())?;
    apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

/// The filter program: unknown calls first, then the allowlist.
fn program(writes: bool) -> Result<BpfProgram, BackendError> {
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
    if writes {
        for (_, number) in WRITING.iter().flat_map(|group| group.calls) {
            allowed.insert(*number, Vec::new());
        }
        for (number, flags_at) in OPENS {
            allowed.entry(*number).or_default().extend(opened_for_writing(*flags_at)?);
        }
    }
    let refused = SeccompAction::Errno(EPERM.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    let list = SeccompFilter::new(allowed, refused, SeccompAction::Allow, arch)?;
    program.extend(BpfProgram::try_from(list)?);
    Ok(program)
}

/// Returns ENOSYS for [`UNKNOWN`] and for numbers newer than the list, as a kernel of the list's age
/// would; the C library then falls back to an older call. Other calls fall through to what follows.
fn unknown() -> BpfProgram {
    let unknown = SECCOMP_RET_ERRNO | ENOSYS.unsigned_abs();
    let beyond = number(NEWEST) + 1;
    let mut steps = vec![
        // The number is the first field of `seccomp_data`.
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        // x32 numbers are left to the allowlist, which contains none.
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
