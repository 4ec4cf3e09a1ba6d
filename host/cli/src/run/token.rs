//! The token of a gateway that serves one command.

use secrecy::{ExposeSecret as _, SecretString};

use crate::error::CliError;

/// Random bytes in a token.
const TOKEN_BYTES: usize = 16;

/// The user's own token if it is safe in a path, so that an address in a config file stays valid;
/// else a new one.
///
/// # Errors
///
/// If the system has no random numbers.
pub(super) fn gateway_token(own: Option<&SecretString>) -> Result<SecretString, CliError> {
    match own.filter(|own| fits_a_path(own.expose_secret())) {
        Some(own) => Ok(own.clone()),
        None => random_token(),
    }
}

fn fits_a_path(token: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    token.len() >= TOKEN_BYTES && token.bytes().all(fits)
}

fn random_token() -> Result<SecretString, CliError> {
    let mut bytes = [0; TOKEN_BYTES];
    let random = rustls::crypto::ring::default_provider().secure_random;
    if random.fill(&mut bytes).is_err() {
        return Err(CliError::internal(
            "cannot create a token: the system provides no random numbers",
        ));
    }
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    Ok(digits.collect::<String>().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_users_own_or_random() {
        let of = |own: Option<&str>| {
            gateway_token(own.map(SecretString::from).as_ref()).unwrap().expose_secret().to_owned()
        };
        assert_eq!(of(Some("0123456789-abcdef_")), "0123456789-abcdef_");
        for unusable in [None, Some("short"), Some("with a space and length")] {
            let (one, other) = (of(unusable), of(unusable));
            assert_eq!((one.len(), one == other), (32, false), "{one}");
            assert!(fits_a_path(&one));
        }
    }
}
