//! Checks that a file is a whole shared library of this machine.

use std::path::Path;

use object::{Architecture, Object as _, ObjectSection as _, ObjectSegment as _};

use crate::library::LoadError;

/// Refuses files that are not a library for this platform, or shorter than their headers require.
pub(super) fn check_object(path: &Path, image: &[u8]) -> Result<(), LoadError> {
    if let Some(what) = foreign_kind(image) {
        let needed = format!("{FORMAT} for {}", std::env::consts::ARCH);
        return Err(LoadError::ForeignFile { path: path.into(), what, needed });
    }
    let file = object::File::parse(image).map_err(|error| {
        let reason = if image.is_empty() { "it is empty".into() } else { error.to_string() };
        LoadError::NotALibrary { path: path.into(), reason }
    })?;
    if file.kind() != object::ObjectKind::Dynamic {
        let reason = format!("it is {:?}", file.kind()).to_lowercase();
        return Err(LoadError::NotALibrary { path: path.into(), reason });
    }
    let (theirs, ours) = (machine_name(file.architecture()), std::env::consts::ARCH);
    if theirs != ours {
        let (path, needed) = (path.into(), ours.to_owned());
        return Err(LoadError::WrongBuild { path, what: theirs, needed });
    }
    let segments = file.segments().map(|segment| segment.file_range());
    let sections = file.sections().filter_map(|section| section.file_range());
    let ends = segments.chain(sections).map(|(start, length)| start.saturating_add(length));
    let needed = ends.max().unwrap_or(0);
    let bytes = image.len() as u64;
    if needed > bytes {
        return Err(LoadError::Truncated { path: path.into(), bytes, needed });
    }
    Ok(())
}

/// The format of libraries here.
const FORMAT: &str = if cfg!(target_os = "macos") {
    "Mach-O"
} else if cfg!(windows) {
    "PE"
} else {
    "ELF"
};

/// The formats of libraries, each with what it is called and how its files begin.
const FORMATS: [(&str, &str, &[&[u8]]); 3] = [
    ("ELF", "an ELF library", &[b"\x7fELF"]),
    ("PE", "a Windows library", &[b"MZ"]),
    // For one machine in either order of bytes, or for several machines.
    (
        "Mach-O",
        "a macOS library",
        &[
            b"\xfe\xed\xfa\xce",
            b"\xfe\xed\xfa\xcf",
            b"\xce\xfa\xed\xfe",
            b"\xcf\xfa\xed\xfe",
            b"\xca\xfe\xba\xbe",
            b"\xca\xfe\xba\xbf",
        ],
    ),
];

/// What a file is if it does not begin like a library of this system; `None` for one that does, or an empty one.
fn foreign_kind(image: &[u8]) -> Option<&'static str> {
    let begins =
        |(_, _, marks): &&(&str, &str, &[&[u8]])| marks.iter().any(|mark| image.starts_with(mark));
    match FORMATS.iter().find(begins) {
        Some((format, ..)) if *format == FORMAT => None,
        Some((_, what, _)) => Some(what),
        None => (!image.is_empty()).then_some("not a shared library"),
    }
}

/// The name of a machine, as in [`std::env::consts::ARCH`].
fn machine_name(architecture: Architecture) -> String {
    match architecture {
        Architecture::I386 => "x86".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(any(target_os = "macos", windows)))]
    #[test]
    fn files_of_other_systems_are_named() {
        let machine = std::env::consts::ARCH;
        let refused =
            |image: &[u8]| check_object(Path::new("engine.so"), image).unwrap_err().to_string();
        for (image, what) in [
            (&b"\xcf\xfa\xed\xfe\x07\0\0\x01"[..], "a macOS library"),
            (b"\xca\xfe\xba\xbe\0\0\0\x02", "a macOS library"),
            (b"MZ\x90\0", "a Windows library"),
            (b"fn main() {}", "not a shared library"),
        ] {
            let expected = format!("engine.so is {what}; this host needs ELF for {machine}");
            assert_eq!(refused(image), expected);
        }
        assert_eq!(refused(b""), "engine.so is not a shared library (it is empty)");
        assert!(refused(b"\x7fELF").starts_with("engine.so is not a shared library ("));
    }

    #[test]
    fn a_library_for_another_machine_is_named() {
        let own = std::env::current_exe().unwrap();
        let mut image = std::fs::read(own).unwrap();
        let ours = object::File::parse(&*image).unwrap().architecture();
        assert_eq!(machine_name(ours), std::env::consts::ARCH);
        // `e_machine` of an ELF header.
        let (number, name) =
            if cfg!(target_arch = "aarch64") { (62, "x86_64") } else { (183, "aarch64") };
        image.get_mut(18..20).unwrap().copy_from_slice(&[number, 0]);
        let refused = check_object(Path::new("engine.so"), &image).unwrap_err().to_string();
        let expected =
            format!("engine.so was built for {name}, this host needs {}", std::env::consts::ARCH);
        assert_eq!(refused, expected);
    }
}
