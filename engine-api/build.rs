//! Passes the compiler version and the target to the metadata block.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    println!("cargo::rustc-env=CTXHOST_RUSTC_VERSION={}", version.unwrap_or_default());
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=CTXHOST_TARGET={target}");
}
