//! Leaves in the release build what `scripts/dist` needs to move its code, where `ORFA_RELOCATIONS` asks for
//! it, as the Makefile does. A linker that strips refuses, and the file is a quarter larger: so not in every
//! build.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=ORFA_RELOCATIONS");
    if env::var_os("ORFA_RELOCATIONS").is_some() {
        println!("cargo:rustc-link-arg-bin=orfa=-Wl,--emit-relocs");
    }
}
