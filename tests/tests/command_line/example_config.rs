//! The example config opens every bundled engine with its table.

/// The file, below the root of the workspace.
const EXAMPLE: &str = "examples/ctxhost.toml";

#[test]
fn config_check_opens_every_engine_with_its_table() {
    let arguments = ["--config", EXAMPLE, "config", "check"];
    let output = ctxhost_tests::ctxhost().args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}
