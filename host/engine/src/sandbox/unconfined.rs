//! Systems without restrictions: a separate process has all rights of the user.

use super::info::{Confinement, ConfinementLimits};

/// Reports that this system has no restrictions.
#[must_use]
pub fn confine(_limits: &ConfinementLimits) -> Confinement {
    let system = std::env::consts::OS;
    Confinement {
        applied: vec!["a process of its own".into()],
        missing: vec![format!(
            "no sandbox on {system}: the engine has all rights of the user, and no limit of memory, threads or \
             processor time"
        )],
    }
}
