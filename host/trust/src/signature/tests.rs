//! Verification of signatures that minisign makes.

use std::io::Cursor;

use minisign::KeyPair;

use super::*;

const IMAGE: &[u8] = b"the very bytes";

fn sign(pair: &KeyPair, file: &Path, bytes: &[u8]) {
    let signature = minisign::sign(None, &pair.sk, Cursor::new(bytes), None, None).unwrap();
    std::fs::write(TrustedKeys::signature_path(file), signature.into_string()).unwrap();
}

fn pair() -> KeyPair {
    KeyPair::generate_unencrypted_keypair().unwrap()
}

fn keys(pairs: &[&KeyPair]) -> TrustedKeys {
    TrustedKeys::parse(&pairs.iter().map(|pair| pair.pk.to_base64()).collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_signature_is_of_one_key_and_of_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libx.so");
    let (ours, theirs) = (pair(), pair());
    let known = keys(&[&theirs, &ours]);
    assert_eq!(known.check(&file, IMAGE).unwrap(), Signature::Missing);
    sign(&ours, &file, IMAGE);
    assert!(folder.path().join("libx.so.minisig").exists());
    let Signature::Trusted(signer) = known.check(&file, IMAGE).unwrap() else { panic!("not ours") };
    let printed = ours.pk.to_box().unwrap().to_string();
    assert!(printed.contains(&signer), "{signer} is not as minisign prints it: {printed}");
    assert_eq!(keys(&[&theirs]).check(&file, IMAGE).unwrap(), Signature::UnknownKey(signer));
    let error = known.check(&file, b"other bytes").unwrap_err();
    assert!(matches!(error, SignatureError::OtherBytes { .. }), "{error}");
}

#[test]
fn an_invalid_signature_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libx.so");
    for text in ["", "no signature", "untrusted comment: x\n!!!!\ntrusted comment: y\n!!!!\n"] {
        std::fs::write(TrustedKeys::signature_path(&file), text).unwrap();
        let error = keys(&[&pair()]).check(&file, IMAGE).unwrap_err();
        assert!(matches!(error, SignatureError::NoSignature { .. }), "{text:?}: {error}");
    }
}

#[test]
fn a_trusted_comment_that_was_changed_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libx.so");
    let ours = pair();
    sign(&ours, &file, IMAGE);
    let text = std::fs::read_to_string(TrustedKeys::signature_path(&file)).unwrap();
    let changed = text.replace("trusted comment: ", "trusted comment: 1");
    std::fs::write(
        TrustedKeys::signature_path(&file),
        changed.replacen("untrusted comment: 1", "untrusted comment: ", 1),
    )
    .unwrap();
    assert!(keys(&[&ours]).check(&file, IMAGE).is_err());
}

#[test]
fn an_invalid_key_is_named() {
    let error = TrustedKeys::parse(&["RWQ".to_owned()]).unwrap_err().to_string();
    assert!(error.starts_with("\"RWQ\" is not a minisign public key"), "{error}");
}

/// A signature that `minisign -l` made: of the kind "Ed", over the file itself. From the tests of minisign.
#[test]
fn a_legacy_signature_is_verified_on_the_bytes_of_the_file() {
    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    const LEGACY: &str = "untrusted comment: signature from minisign secret key\n\
         RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaVWuNrm73YiIiJbq71Wi+dP9eKL8OC351vwIasSSbXxwA=\n\
         trusted comment: timestamp:1555779966\tfile:test\n\
         QtKMXWyYcwdpZAlPF7tE2ENJkRd1ujvKjlj1m9RtHTBnZPa5WKU5uWRs5GoP5M/VqE81QFuMKI5k/SfNQUaOAA==\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libx.so");
    std::fs::write(TrustedKeys::signature_path(&file), LEGACY).unwrap();
    let known = TrustedKeys::parse(&[KEY.to_owned()]).unwrap();
    assert_eq!(known.check(&file, b"test").unwrap(), Signature::Trusted("E7620F1842B4E81F".into()));
    for other in [&b"tes"[..], b"Test", b""] {
        let error = known.check(&file, other).unwrap_err();
        assert!(matches!(error, SignatureError::OtherBytes { .. }), "{error}");
    }
}
