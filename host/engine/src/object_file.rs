//! Checks that a file is a whole shared library of this machine.

use std::path::Path;

use object::{Architecture, Object as _, ObjectSection as _, ObjectSegment as _};

use crate::library::LoadError;

/// Refuses files that are not a library for this platform, or shorter than their headers require.
pub(super) fn check_object(path: &Path, image: &[u8]) -> Result<(), LoadError> {
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
