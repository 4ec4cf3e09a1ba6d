//! Builds an engine with cargo or make and finds the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::output::read_output;
use super::project::BuildTool;
use super::{DevError, EngineProject};

/// The output folder of a Makefile.
const MAKE_FOLDER: &str = "build";

/// The build profile of a crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuildProfile {
    /// Optimised, as hosts load it, so that measured times are meaningful.
    #[default]
    Release,
    /// Unoptimised: builds faster, runs slower.
    Debug,
}

/// The library of a build.
#[derive(Clone, Debug)]
pub struct BuildOutput {
    /// The file, which the next build overwrites.
    pub library: PathBuf,
    /// The duration of the build.
    pub duration: Duration,
}

impl EngineProject {
    /// Builds the engine. Messages of the build tool go to standard error.
    ///
    /// # Errors
    ///
    /// [`DevError`], if the tool is missing, the build fails, or it does not create a library.
    pub fn build(&self, profile: BuildProfile) -> Result<BuildOutput, DevError> {
        let began = Instant::now();
        let library = match self.build_tool() {
            BuildTool::Cargo => build_with_cargo(self.folder(), profile)?,
            BuildTool::Make => build_with_make(self.folder())?,
        };
        Ok(BuildOutput { library, duration: began.elapsed() })
    }
}

fn build_with_cargo(folder: &Path, profile: BuildProfile) -> Result<PathBuf, DevError> {
    // Set if cargo runs this program, to use the same toolchain.
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(&program);
    // This format writes artifacts as JSON to standard output and diagnostics as text to standard error.
    command.args(["build", "--lib", "--message-format=json-render-diagnostics"]);
    command.args((profile == BuildProfile::Release).then_some("--release"));
    let messages = run(command, &program, folder)?;
    let manifest = folder.join("Cargo.toml");
    let mut libraries = messages.lines().filter_map(|line| library_of(line, &manifest));
    libraries.next_back().ok_or_else(|| DevError::NoLibrary {
        hint: "the crate needs crate-type = [\"cdylib\"] in the [lib] of its Cargo.toml".into(),
    })
}

fn build_with_make(folder: &Path) -> Result<PathBuf, DevError> {
    let program = std::env::var("MAKE").unwrap_or_else(|_| "make".into());
    let mut command = Command::new(&program);
    command.arg("--silent");
    run(command, &program, folder)?;
    let entries = std::fs::read_dir(folder.join(MAKE_FOLDER)).into_iter().flatten().flatten();
    let libraries = entries.map(|entry| entry.path()).filter(|path| is_library(path));
    // Earlier names of the library may still be in the folder.
    let newest = |path: &PathBuf| path.metadata().and_then(|facts| facts.modified()).ok();
    libraries.max_by_key(newest).ok_or_else(|| DevError::NoLibrary {
        hint: format!("make must write the library to {MAKE_FOLDER}/"),
    })
}

/// Runs a tool and returns its standard output.
fn run(mut command: Command, program: &str, folder: &Path) -> Result<String, DevError> {
    command.current_dir(folder);
    let (status, output) = read_output(&mut command, program)?;
    if status.success() {
        Ok(String::from_utf8_lossy(&output).into_owned())
    } else {
        Err(DevError::BuildFailed { program: name_of(program), hint: api_hint(folder) })
    }
}

/// What to do if cargo does not find the engine API: a manifest that names a version needs it on crates.io.
fn api_hint(folder: &Path) -> &'static str {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let mut lines = manifest.lines().filter(|line| line.starts_with("ctxhost-engine-api"));
    let needs_registry = lines.any(|line| !line.contains("path") && !line.contains("git"));
    if needs_registry {
        "; if it does not find ctxhost-engine-api, which is not on crates.io yet, create the engine with \
         `ctxhost new ID --engine-api FOLDER`, where FOLDER is engine-api of a clone of ctxhost"
    } else {
        ""
    }
}

fn name_of(program: &str) -> String {
    Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The used fields of a message of cargo.
#[derive(Deserialize)]
struct CargoArtifact {
    reason: String,
    manifest_path: PathBuf,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// The library in a message about an artifact of a manifest.
fn library_of(message: &str, manifest: &Path) -> Option<PathBuf> {
    let artifact: CargoArtifact = serde_json::from_str(message).ok()?;
    // Dependencies and proc macros create libraries as well.
    let is_ours = artifact.reason == "compiler-artifact" && artifact.manifest_path == manifest;
    artifact.filenames.into_iter().find(|path| is_ours && is_library(path))
}

fn is_library(path: &Path) -> bool {
    path.extension().is_some_and(|found| found == "so" || found == "dylib")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_names_the_source_of_the_engine_api() {
        let folder = tempfile::tempdir().unwrap();
        let hint = |line: &str| {
            std::fs::write(folder.path().join("Cargo.toml"), line).unwrap();
            api_hint(folder.path())
        };
        assert!(hint("ctxhost-engine-api = { version = \"1.1\" }").contains("--engine-api FOLDER"));
        assert_eq!(hint("ctxhost-engine-api = { path = \"/x/engine-api\" }"), "");
        assert_eq!(api_hint(&folder.path().join("none")), "");
    }

    #[test]
    fn the_library_is_that_of_the_crate_itself() {
        let manifest = Path::new("/engine/Cargo.toml");
        let line = |reason: &str, manifest: &str, file: &str| {
            format!(
                r#"{{"reason":{reason:?},"manifest_path":{manifest:?},"filenames":["x.rlib",{file:?}],"fresh":true}}"#
            )
        };
        let ours = line("compiler-artifact", "/engine/Cargo.toml", "/t/libengine.so");
        assert_eq!(library_of(&ours, manifest), Some("/t/libengine.so".into()));
        for other in [
            line("compiler-artifact", "/derive/Cargo.toml", "/t/libderive.so"),
            line("compiler-artifact", "/engine/Cargo.toml", "/t/libengine.rlib"),
            line("build-script-executed", "/engine/Cargo.toml", "/t/libengine.so"),
            r#"{"reason":"build-finished","success":true}"#.into(),
            "not JSON".into(),
        ] {
            assert_eq!(library_of(&other, manifest), None, "{other}");
        }
    }
}
