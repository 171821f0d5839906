//! The listings of the paper, end to end: the emitted code is valid JavaScript, and the source map leads back
//! to the file.
#![allow(missing_docs)]

use diagnostics::LineStarts;
use oxc_allocator::Allocator;
use oxc_parser::Parser;
use oxc_span::SourceType;
use script::{CommitPoint, CompileOptions, ConcurrencyClass, ScriptProgram, compile};

const LISTINGS: [(&str, &str); 6] = [
    ("1", include_str!("listings/1.sjs")),
    ("2", include_str!("listings/2.sjs")),
    ("3", include_str!("listings/3.sjs")),
    ("4", include_str!("listings/4.sjs")),
    ("6", include_str!("listings/6.sjs")),
    ("7", include_str!("listings/7.sjs")),
];

fn compile_listing(name: &str) -> (ScriptProgram, &'static str) {
    let (_, source) = LISTINGS.iter().find(|(listing, _)| *listing == name).expect("a listing");
    (compile(source, &format!("{name}.sjs"), &CompileOptions::default()).expect("a program"), source)
}

/// Returns the emitted code, with the properties of each handler.
fn render_listing(name: &str) -> String {
    let (program, _) = compile_listing(name);
    let mut out = program.code;
    for service in &program.services {
        for handler in &service.handlers {
            let resource = &service.resources[handler.resource];
            let cells: Vec<&str> =
                handler.cells.iter().map(|cell| service.cells[*cell].key.as_str()).collect();
            out += &format!(
                "\n// {} {}: {:?} {cells:?}, commits {:?}, reads {:?}",
                resource.key,
                handler.method.as_str(),
                handler.class,
                handler.commit,
                handler.reads
            );
        }
    }
    out
}

#[test]
fn listing_1_is_a_stateful_service() {
    insta::assert_snapshot!(render_listing("1"));
}

#[test]
fn listing_2_passes_a_response_through() {
    insta::assert_snapshot!(render_listing("2"));
}

#[test]
fn listing_3_declares_a_resource_for_each_request() {
    insta::assert_snapshot!(render_listing("3"));
}

#[test]
fn listing_4_calls_two_services_concurrently() {
    insta::assert_snapshot!(render_listing("4"));
}

#[test]
fn listing_5_is_the_graph_of_listing_4() {
    insta::assert_snapshot!(compile_listing("4").0.graphs[0].to_text());
    insta::assert_snapshot!("picture", compile_listing("4").0.graphs[0].to_svg());
}

#[test]
fn listing_6_crawls() {
    insta::assert_snapshot!(render_listing("6"));
}

#[test]
fn listing_7_maps_and_reduces() {
    insta::assert_snapshot!(render_listing("7"));
}

#[test]
fn emits_valid_javascript() {
    for (name, _) in LISTINGS {
        let (program, _) = compile_listing(name);
        let allocator = Allocator::default();
        let parsed = Parser::new(&allocator, &program.code, SourceType::script()).parse();
        assert!(!parsed.diagnostics.has_errors(), "{name}\n{}", program.code);
    }
}

#[test]
fn source_map_covers_all_copied_words() {
    for (name, source) in LISTINGS {
        let (program, _) = compile_listing(name);
        let (lines, emitted) = (LineStarts::new(source), LineStarts::new(&program.code));
        let mut led = 0;
        for (index, _) in source.match_indices("query.") {
            let original = lines.position(index);
            let position = program
                .map
                .emitted_position(original)
                .unwrap_or_else(|| panic!("{name}: nothing at {original}"));
            assert!(
                emitted.line_text(position.line)[position.column as usize - 1..].starts_with("query."),
                "{name}"
            );
            assert_eq!(
                program.map.original_position(position.line, position.column),
                Some(original),
                "{name}"
            );
            led += 1;
        }
        assert!(led > 0 || ["3", "1"].contains(&name), "{name}");
    }
}

#[test]
fn source_map_maps_calls_to_the_source() {
    let (program, source) = compile_listing("3");
    let (line, text) =
        program.code.lines().enumerate().find(|(_, line)| line.contains("$r.call")).expect("a call");
    let column = text.find("$r.call").expect("a call") + 1;
    let original = program.map.original_position(line as u32 + 1, column as u32).expect("a place");
    let written = LineStarts::new(source).line_text(original.line);
    assert!(written[original.column as usize - 1..].starts_with("g.get(query.q)"), "{written} {original}");
}

#[test]
fn source_map_has_the_v3_format() {
    let (program, source) = compile_listing("1");
    let map: serde_json::Value =
        serde_json::from_str(&program.map.to_v3_json("1.sjs", source)).expect("JSON");
    assert_eq!(map["version"], 3);
    assert_eq!(map["sourcesContent"][0], source);
    let lines = map["mappings"].as_str().expect("text").split(';').count();
    assert!(lines <= program.code.lines().count() && lines > 2, "{lines}");
}

#[test]
fn listings_3_and_7_commit_before_they_wait() {
    for name in ["3", "7"] {
        let handler = &compile_listing(name).0.services[0].handlers[0];
        assert_eq!(handler.class, ConcurrencyClass::Writer);
        assert!(matches!(handler.commit, CommitPoint::Early(_)), "{name}");
    }
}

#[test]
fn only_responses_that_code_cannot_see_are_unread() {
    let emitted = |answer: &str| {
        let source = format!(
            "service s {{ res '/' on GET {{ res g = 'http://a/'; res h = 'http://b/'; var o = {{}}; respond {answer} }} }}"
        );
        compile(&source, "s.sjs", &CompileOptions::default()).expect(answer).code
    };
    for (answer, unread, read) in [
        ("{ a: g.get(), b: [1, (h.get())] }", 2, 0),
        ("{ a: { b: g.get() }, ...h.get() }", 1, 1),
        ("[g.get(), h.get().x]", 1, 1),
        ("{ a: g.get() || h.get() }", 0, 2),
        ("{ a: g.get(), ...o }", 0, 1),
        ("{ a: g.get(), [o]: 1 }", 0, 1),
        ("{ a: g.get(), toJSON() { return this.a.x } }", 0, 1),
        ("{ a: g.get(), get b() { return this.a } }", 0, 1),
        ("{ __proto__: g.get() }", 0, 1),
        ("{ 302: { Location: g.get() } }", 0, 1),
        ("[...g.get()]", 0, 1),
        ("g.get()", 0, 0),
    ] {
        let code = emitted(answer);
        let count = |word: &str| code.matches(word).count();
        assert_eq!((count("$r.unread("), count("$r.call(")), (unread, read), "{answer}: {code}");
    }
}
