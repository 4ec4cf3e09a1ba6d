//! `ctxhost_engine.h` against its Rust mirror: the compiler is asked, field by field.
//!
//! For every field a C program is generated that asserts its type and prints its place; the numbers
//! and the list of names are compared as well. So a change of one side alone does not pass.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ctxhost_engine_api::border::C_HEADER;
use ctxhost_engine_api::border::layout_check::{StructLayout, numbers, structs, texts};
use ctxhost_tests::native::{Language, flags, run};
use ctxhost_tests::root;

fn header() -> String {
    without_comments(C_HEADER)
}

fn header_path() -> PathBuf {
    root().join("engine-api/include/ctxhost_engine.h")
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut code = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").expect("every comment ends").1;
    }
    code + rest
}

/// The structs of the header that describe a call: name, fields in order.
fn header_structs() -> Vec<(String, Vec<String>)> {
    let code = header();
    let mut found = Vec::new();
    for part in code.split("typedef struct ").skip(1) {
        let Some((name, rest)) = part.split_once(" {") else { continue };
        let Some((body, _)) = rest.split_once("\n}") else { continue };
        if name.contains('\n') || name.contains(';') {
            continue;
        }
        let fields = body.split(';').map(str::trim).filter(|field| !field.is_empty());
        found.push((name.to_owned(), fields.map(field_name).collect()));
    }
    found
}

/// The name in `uint64_t (*t_len)(…)` or `const ctxhost_str *needs`.
fn field_name(field: &str) -> String {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if let Some((_, pointer)) = field.split_once("(*") {
        return word(pointer);
    }
    let at = field.rfind([' ', '*']).expect("a type and a name");
    word(&field[at + 1..])
}

/// Structs that the header has for itself.
const NOT_MIRRORED: [&str; 2] = ["ctxhost_meta_block", "ctxhost_buffer"];

#[test]
fn both_sides_name_the_same_structs_and_fields_in_the_same_order() {
    let mut theirs = header_structs();
    theirs.retain(|(name, _)| !NOT_MIRRORED.contains(&name.as_str()));
    let ours: Vec<(String, Vec<String>)> = structs()
        .iter()
        .map(|s| (s.c_name.to_owned(), s.fields.iter().map(|f| f.name.to_owned()).collect()))
        .collect();
    // The API stands before the engine in the header, since C reads from top to bottom.
    let by_name = |list: Vec<(String, Vec<String>)>| list.into_iter().collect::<BTreeMap<_, _>>();
    assert_eq!(by_name(theirs), by_name(ours));
}

#[test]
fn both_sides_have_the_same_sizes_places_and_types() {
    for language in [Language::C, Language::Cpp] {
        let printed = compiled(&layout_program(language), language);
        let expected = structs().iter().fold(String::new(), |mut text, s| {
            let _ = writeln!(text, "{} {}", s.c_name, s.bytes);
            for field in s.fields {
                let _ = writeln!(text, "{}.{} {}", s.c_name, field.name, field.offset);
            }
            text
        });
        assert_eq!(printed, expected, "{language:?}");
    }
}

/// A program that asserts the type of every field and prints its place.
fn layout_program(language: Language) -> String {
    let all = structs();
    let mut program = "#include <stdio.h>\n#include <stddef.h>\n".to_owned();
    if language == Language::Cpp {
        program.push_str("#include <type_traits>\n");
    }
    program.push_str("#include \"ctxhost_engine.h\"\nint main(void) {\n");
    for s in &all {
        let _ = writeln!(program, "printf(\"{0} %zu\\n\", sizeof({0}));", s.c_name);
        for field in s.fields {
            let (name, of) = (field.name, s.c_name);
            // The compiler writes long types in several lines.
            let rust_type = field.rust_type.split_whitespace().collect::<Vec<_>>().join(" ");
            let c_type = c_type(&rust_type, &all);
            let same = match language {
                Language::C => format!(
                    "_Static_assert(__builtin_types_compatible_p(__typeof__((({of} *)0)->{name}), __typeof__({c_type})), \"{of}.{name}\");"
                ),
                Language::Cpp => format!(
                    "static_assert(std::is_same<decltype({of}::{name}), {c_type}>::value, \"{of}.{name}\");"
                ),
            };
            let _ = writeln!(program, "{same}");
            let _ = writeln!(program, "printf(\"{of}.{name} %zu\\n\", offsetof({of}, {name}));");
        }
    }
    program.push_str("return 0;\n}\n");
    program
}

/// A Rust type of the mirror as C writes it.
fn c_type(rust: &str, all: &[StructLayout]) -> String {
    let rust = rust.trim();
    let inside = |open: &str| rust.strip_prefix(open).and_then(|rest| rest.strip_suffix('>'));
    if let Some(function) = inside("Option<").filter(|function| function.contains("fn(")) {
        return c_type(function, all);
    }
    if let Some((head, rest)) = rust.split_once("fn(") {
        assert!(head.contains("extern \"C"), "{rust} is no C function");
        let (parameters, answer) = rest.rsplit_once(')').unwrap();
        let answer = answer.trim().strip_prefix("->").map_or("void".into(), |a| c_type(a, all));
        let parameters: Vec<String> =
            split_parameters(parameters).iter().map(|p| c_type(p, all)).collect();
        return format!("{answer} (*)({})", parameters.join(", "));
    }
    // Most calls of an engine have one of these two types.
    for (shape, view) in [("TranscriptCall<", "const ctxhost_transcript *, "), ("PlainCall<", "")] {
        if let Some(request) = inside(shape) {
            let request = c_type(request, all);
            return format!(
                "ctxhost_status (*)(void *, {view}const {request} *, ctxhost_answer *)"
            );
        }
    }
    if let Some(to) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(to, all));
    }
    if let Some(to) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(to, all));
    }
    match rust {
        "usize" => "size_t".into(),
        "u64" | "u32" | "u16" | "u8" => format!("uint{}_t", &rust[1..]),
        "i64" => "int64_t".into(),
        "f64" => "double".into(),
        "f32" => "float".into(),
        "c_char" => "char".into(),
        "c_void" => "void".into(),
        "CStatus" => "ctxhost_status".into(),
        "TextSink" => "ctxhost_sink".into(),
        "HistorySink" => "ctxhost_history_sink".into(),
        "EmbeddingsSink" => "ctxhost_embeddings_sink".into(),
        "CHost" => "ctxhost_host".into(),
        "CAnswer" => "ctxhost_answer".into(),
        "CTranscript" => "ctxhost_transcript".into(),
        // The host's functions take what may be NULL and is never written to as `Option<&_>`.
        "Option<&CTranscript>" => "const ctxhost_transcript *".into(),
        "Option<&CHost>" => "ctxhost_host *".into(),
        "Option<&CAnswer>" => "ctxhost_answer *".into(),
        _ => match (inside("Option<&mut "), inside("Option<")) {
            (Some(to), _) => format!("{} *", c_type(to, all)),
            (None, Some(function)) => c_type(function, all),
            (None, None) => {
                let found = all.iter().find(|s| s.rust_name == rust);
                found.unwrap_or_else(|| panic!("{rust:?} is no type of the header")).c_name.into()
            }
        },
    }
}

/// Splits at commas outside of angle brackets.
fn split_parameters(parameters: &str) -> Vec<&str> {
    let parts = parameters.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

#[test]
fn both_sides_have_the_same_numbers() {
    let mut program =
        "#include <stdio.h>\n#include \"ctxhost_engine.h\"\nint main(void) {\n".to_owned();
    for (name, _) in numbers() {
        program += &format!("printf(\"{name} %llu\\n\", (unsigned long long){name});\n");
    }
    program += "return 0;\n}\n";
    let expected: String =
        numbers().iter().map(|(name, number)| format!("{name} {number}\n")).collect();
    assert_eq!(compiled(&program, Language::C), expected);

    // And the header has no number that Rust does not know.
    let known: Vec<&str> = numbers().into_iter().map(|(name, _)| name).collect();
    let defined = header();
    let families =
        ["_E_", "_ROLE_", "_KIND_", "_FLAG_", "_TRIGGER_", "_CONTEXT_", "_END_", "_LOG_"];
    let defined = defined.lines().filter_map(|line| line.strip_prefix("#define CTXHOST"));
    for name in defined.filter(|name| families.iter().any(|family| name.starts_with(family))) {
        let name = format!("CTXHOST{}", name.split(' ').next().unwrap());
        assert!(known.contains(&name.as_str()), "{name} is in the header alone");
    }
}

#[test]
fn both_sides_have_the_same_version_and_symbol() {
    let code = header();
    for (name, text) in texts() {
        let defined = code.contains(&format!("#define {name} \"{text}\""));
        let declared = name == text && code.contains(&format!("*{name}(void);"));
        assert!(defined || declared, "{name} is not {text:?} in the header");
    }
}

/// Alone, as somebody includes it first: no warning in any standard that people use.
#[test]
fn the_header_compiles_alone_without_a_warning() {
    let compilers = [
        ("cc", "c11"),
        ("cc", "c17"),
        ("c++", "c++17"),
        ("c++", "c++20"),
        ("gcc", "c11"),
        ("g++", "c++17"),
        ("clang", "c11"),
        ("clang++", "c++17"),
    ];
    let mut tried = Vec::new();
    for (compiler, standard) in compilers {
        let must = ["cc", "c++"].contains(&compiler);
        if !must && Command::new(compiler).arg("--version").output().is_err() {
            continue;
        }
        let language = if standard.starts_with("c++") { "c++-header" } else { "c-header" };
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-pedantic", "-Werror"]);
        command.args(["-fsyntax-only", "-x", language]).arg(format!("-std={standard}"));
        run(command.arg(header_path()));
        tried.push(format!("{compiler} -std={standard}"));
    }
    assert!(tried.len() >= 4, "{tried:?}");
}

/// Compiles a program and answers what it prints.
fn compiled(program: &str, language: Language) -> String {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join(if language == Language::C { "it.c" } else { "it.cpp" });
    fs::write(&source, program).unwrap();
    let binary = folder.path().join("it");
    let mut command = Command::new(language.compiler());
    command.args(flags(language)).arg("-o").arg(&binary).arg(&source);
    run(&mut command);
    run(&mut Command::new(&binary))
}
