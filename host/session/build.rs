//! Compresses the demo sessions embedded in the program, which would take a megabyte uncompressed.

use std::path::Path;
use std::{env, fs, io};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

fn main() -> io::Result<()> {
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    for name in ["coding.jsonl", "mixed.jsonl"] {
        let path = Path::new("demo").join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let compressed = compress_to_vec(fs::read(&path)?.as_slice(), CompressionLevel::Fastest);
        fs::write(Path::new(&out).join(name).with_extension("jsonl.zst"), compressed)?;
    }
    Ok(())
}
