//! Drops all capabilities, so that the sandbox cannot regain any.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_no_new_privs,
};

/// Drops all capabilities of this thread, which has to be the only one.
pub(super) fn drop_all() -> Result<(), String> {
    let failed = |what: &'static str| move |error: Errno| format!("{what}: {error}");
    // First: from here on no executed file grants privileges.
    set_no_new_privs(true).map_err(failed("no_new_privs"))?;
    let bounding = empty_bounding_set();
    // Takes the special meaning from uid 0. Fails for an ordinary user, who does not need it.
    let _ = set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    );
    match clear_ambient_capability_set() {
        // A kernel without ambient capabilities.
        Err(Errno::INVAL) | Ok(()) => {}
        Err(error) => return Err(failed("the ambient set")(error)),
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(failed("the sets of the process"))?;
    // The bounding set has no effect without permitted capabilities and new privileges, so it does not
    // matter that an ordinary user may not empty it.
    match bounding {
        Err(Errno::PERM) | Ok(()) => Ok(()),
        Err(error) => Err(failed("the bounding set")(error)),
    }
}

/// Verifies that no capability is left.
pub(super) fn check_none() -> Result<(), String> {
    let left = capabilities(None).map_err(|error| error.to_string())?;
    let is_empty =
        left.effective.is_empty() && left.permitted.is_empty() && left.inheritable.is_empty();
    is_empty.then_some(()).ok_or_else(|| format!("capabilities left: {left:?}"))
}

/// Empties the bounding set.
fn empty_bounding_set() -> Result<(), Errno> {
    // By number, since newer kernels have capabilities that rustix does not name.
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // Past the last one.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
