//! The token of a gateway that is there for one command: nobody else on the machine has it.

use secrecy::{ExposeSecret as _, SecretString};

use crate::failure::Failure;

/// Random bytes of a token: nobody guesses them.
const BYTES: usize = 16;

/// The person's own token where a path can hold it, so that an address in a file stays good; else a new one.
///
/// # Errors
///
/// Where the system has no random numbers.
pub(super) fn of(own: Option<&SecretString>) -> Result<SecretString, Failure> {
    match own.filter(|own| fits_a_path(own.expose_secret())) {
        Some(own) => Ok(own.clone()),
        None => fresh(),
    }
}

fn fits_a_path(token: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    token.len() >= BYTES && token.bytes().all(fits)
}

fn fresh() -> Result<SecretString, Failure> {
    let mut bytes = [0; BYTES];
    let random = rustls::crypto::ring::default_provider().secure_random;
    if random.fill(&mut bytes).is_err() {
        return Err(Failure::internal("the system has no random numbers for a token"));
    }
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    Ok(digits.collect::<String>().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_persons_own_or_nobodys() {
        let of = |own: Option<&str>| {
            of(own.map(SecretString::from).as_ref()).unwrap().expose_secret().to_owned()
        };
        assert_eq!(of(Some("0123456789-abcdef_")), "0123456789-abcdef_");
        for unusable in [None, Some("short"), Some("with a space and length")] {
            let (one, other) = (of(unusable), of(unusable));
            assert_eq!((one.len(), one == other), (32, false), "{one}");
            assert!(fits_a_path(&one));
        }
    }
}
