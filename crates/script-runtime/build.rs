//! Embeds all files of the worker into the crate. The list is generated from the folder, so that it is always
//! complete.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../worker");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files: Vec<_> = fs::read_dir(&folder)?.collect::<io::Result<Vec<_>>>()?;
    files.retain(|file| {
        let name = file.file_name();
        Path::new(&name).extension().is_some_and(|kind| kind == "js") || name == "package.json"
    });
    files.sort_by_key(fs::DirEntry::file_name);
    let mut list = String::from(
        "/// The names and contents of the worker's files.\npub(super) const FILES: &[(&str, &str)] = &[\n",
    );
    for file in files {
        println!("cargo:rerun-if-changed={}", file.path().display());
        let _ = writeln!(list, "({:?}, include_str!({:?})),", file.file_name(), file.path()); // To a string.
    }
    list.push_str("];\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&out).join("files.rs"), list)
}
