//! Engines in C and C++, built by the compilers of this machine, with every warning an error.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{root, target_folder};

/// The flags that a file of one language is compiled with.
pub fn flags(language: Language) -> Vec<String> {
    let standard = match language {
        Language::C => "-std=c11",
        Language::Cpp => "-std=c++17",
    };
    let include = root().join("engine-api/include");
    [standard, "-Wall", "-Wextra", "-Werror", "-I"]
        .map(str::to_owned)
        .into_iter()
        .chain([include.display().to_string()])
        .collect()
}

/// A language and its compiler: `CC` or `cc`, `CXX` or `c++`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C11.
    C,
    /// C++17.
    Cpp,
}

impl Language {
    /// The language of a source file, by its name.
    pub fn of(source: &Path) -> Language {
        if source.extension().is_some_and(|extension| extension == "cpp") {
            Language::Cpp
        } else {
            Language::C
        }
    }

    /// Its compiler.
    pub fn compiler(self) -> String {
        let (variable, usual) = match self {
            Language::C => ("CC", "cc"),
            Language::Cpp => ("CXX", "c++"),
        };
        std::env::var(variable).unwrap_or_else(|_| usual.into())
    }
}

/// The library of an engine, by the path of its source in the workspace and the macros it is
/// compiled with. It takes a moment, so it is built each time.
pub fn native_library(source: &str, macros: &[&str]) -> PathBuf {
    let path = root().join(source);
    let language = Language::of(&path);
    let folder = target_folder().join("native");
    std::fs::create_dir_all(&folder).expect("the target folder can be written to");
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("lib{stem}{}.so", macros.concat());
    // Other tests build the same at the same time: each its own file, and the name at the end.
    let fresh = tempfile::Builder::new().prefix(&name).tempfile_in(&folder).expect("a new file");
    let mut command = Command::new(language.compiler());
    command.args(flags(language)).args(["-O1", "-fPIC", "-shared", "-fvisibility=hidden"]);
    command.args(["-pthread", "-Wno-unused-function"]);
    command.args(macros.iter().map(|name| format!("-D{name}")));
    run(command.arg("-o").arg(fresh.path()).arg(&path));
    let library = folder.join(name);
    fresh.persist(&library).expect("the library takes its name");
    library
}

/// Runs a compiler or what it made, and answers what that printed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}
