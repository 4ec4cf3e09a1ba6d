//! One suite for every engine, linked or loaded: the contract of the engine API.

use std::path::Path;

use ctxhost_engine::{bundled, inspect};
use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::testing::{ContractOptions, contract};
use ctxhost_tests::native::native_library;
use ctxhost_tests::{bundled_library, keep_ends_library, root};

mod golden;

fn check(door: EngineFactory) {
    let report = contract(door, &ContractOptions::default());
    assert!(report.passed(), "{report}");
}

fn loaded(path: &Path) -> EngineFactory {
    let copies = tempfile::tempdir().unwrap();
    inspect(path).unwrap().load(copies.path()).unwrap()
}

#[test]
fn legacy_linked() {
    check(bundled("legacy").unwrap());
}

#[test]
fn window_linked() {
    check(bundled("window").unwrap());
}

#[test]
fn mask_linked() {
    check(bundled("mask").unwrap());
}

#[test]
fn boundary_linked() {
    check(bundled("boundary").unwrap());
}

#[test]
fn head_tail_linked() {
    check(bundled("head-tail").unwrap());
}

#[test]
fn legacy_loaded() {
    check(loaded(&bundled_library("legacy")));
}

#[test]
fn window_loaded() {
    check(loaded(&bundled_library("window")));
}

#[test]
fn mask_loaded() {
    check(loaded(&bundled_library("mask")));
}

#[test]
fn boundary_loaded() {
    check(loaded(&bundled_library("boundary")));
}

#[test]
fn dag_linked() {
    check(bundled("dag").unwrap());
}

#[test]
fn dag_loaded() {
    check(loaded(&bundled_library("dag")));
}

#[test]
fn recall_linked() {
    check(bundled("recall").unwrap());
}

#[test]
fn recall_loaded() {
    check(loaded(&bundled_library("recall")));
}

#[test]
fn head_tail_loaded() {
    check(loaded(&bundled_library("head-tail")));
}

#[test]
fn the_example_loaded() {
    check(loaded(&keep_ends_library()));
}

#[test]
fn the_example_in_c_loaded() {
    check(loaded(&native_library("examples/c-window/window.c", &[])));
}

#[test]
fn the_example_in_cpp_loaded() {
    check(loaded(&native_library("examples/cpp-elide/elide.cpp", &[])));
}

/// The one in the guide, as somebody copies it.
#[test]
fn the_guides_engine_in_c_loaded() {
    let guide = std::fs::read_to_string(root().join("docs/engines/c.md")).unwrap();
    let (_, code) = guide.split_once("```c\n").expect("the guide shows an engine");
    let (code, _) = code.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("guide_newest.c");
    std::fs::write(&source, code).unwrap();
    check(loaded(&native_library(source.to_str().unwrap(), &[])));
}
