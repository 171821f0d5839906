//! The listings of the paper, end to end: what is emitted is JavaScript, and leads back to the file.
#![allow(missing_docs)]

use script::{Options, compile};

fn listing(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/listings/{name}.sjs", env!("CARGO_MANIFEST_DIR"))).expect("a listing")
}

#[test]
fn show() {
    for name in ["1", "2", "3", "4", "6", "7"] {
        match compile(&listing(name), &format!("{name}.sjs"), &Options::default()) {
            Ok(program) => {
                println!("=== {name}\n{}", program.code);
                for warning in &program.warnings { println!("{}", warning.render(name, &listing(name))); }
                println!("{:?}", program.services);
            }
            Err(found) => for it in found { println!("{}", it.render(name, &listing(name))); },
        }
    }
}
