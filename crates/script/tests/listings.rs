//! The listings of the paper, end to end: what is emitted is JavaScript, and leads back to the file.
#![allow(missing_docs)]

use script::{Options, compile};

fn listing(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/listings/{name}.sjs", env!("CARGO_MANIFEST_DIR"))).expect("a listing")
}

#[test]
fn show() {
    let files = std::env::var("S_FILES").unwrap_or_default();
    for name in files.split_whitespace() {
        let source = std::fs::read_to_string(name).expect("a file");
        match compile(&source, name, &Options::default()) {
            Ok(program) => {
                println!("=== {name}\n{}", program.code);
                for warning in &program.warnings { println!("{}", warning.render(name, &source)); }
                for graph in &program.graphs { println!("{}", graph.text()); }
                for service in &program.services { for h in &service.handlers { println!("{:?} {:?} {:?} {:?}", h.method, h.class, h.cells, h.commit); } }
            }
            Err(found) => for it in found { println!("{}", it.render(name, &source)); },
        }
    }
}
