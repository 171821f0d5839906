//! The generator of docs/config.md, which documents every field of `orfa.yaml` from the schema.
//!
//! It is a test rather than a part of the gateway. With [`WRITE`] set, as by `cargo xtask generate`, it
//! writes the page; otherwise it fails if the page is out of date. Every section has an example, every field
//! occurs in one, and every example is a valid config.

mod examples;
mod page;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{GatewayConfig, read_text, schema, yaml};
use examples::EXAMPLES;
use page::{definition, render_page};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
const GENERATE_VARIABLE: &str = "ORFA_GENERATE";

#[test]
fn config_page_matches_the_schema() {
    let wanted = render_page(&schema::schema_for::<GatewayConfig>(), EXAMPLES);
    if std::env::var_os(GENERATE_VARIABLE).is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    let differs = written.lines().zip(wanted.lines()).find(|(written, wanted)| written != wanted);
    assert!(written == wanted, "docs/config.md is out of date: run `cargo xtask generate`\n{differs:#?}");
}

#[test]
fn every_example_is_a_valid_config() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in examples::FILES {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    create_certificates(&folder.path().join("tls"));
    for (section, example) in EXAMPLES {
        let config = read_text(&with_required_fields(example), &folder.path().join("orfa.yaml"));
        assert_eq!(config.map(drop), Ok(()), "the example of `{section}`");
    }
}

/// Creates the certificates that the examples name.
fn create_certificates(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(["gateway".to_owned()]).unwrap();
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("authority.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("gateway.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("gateway.key"), made.signing_key.serialize_pem()).unwrap();
}

#[test]
fn every_field_occurs_in_an_example() {
    let schema = schema::schema_for::<GatewayConfig>();
    let mut used = BTreeSet::new();
    for (_, example) in EXAMPLES {
        let document = yaml::read(&with_required_fields(example), Path::new("orfa.yaml")).unwrap();
        collect_fields(&schema, &schema, &document.value, &mut used);
    }
    let fields = |schema: &Value| -> Vec<String> {
        schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect()
    };
    let definitions = schema["$defs"].as_object().unwrap().iter();
    let all = definitions
        .flat_map(|(name, schema)| fields(schema).into_iter().map(move |field| (name.clone(), field)));
    let all: BTreeSet<_> =
        all.chain(fields(&schema).into_iter().map(|field| (String::new(), field))).collect();
    let missing: Vec<_> = all.difference(&used).collect();
    assert!(missing.is_empty(), "write an example of these in config/reference/examples.rs: {missing:?}");
}

/// Completes an example with the required fields.
fn with_required_fields(example: &str) -> String {
    let has_routes = example.lines().any(|line| line.starts_with("routes:"));
    if has_routes { example.to_owned() } else { format!("{example}routes: []\n") }
}

/// Collects the fields that a value uses, with their definitions.
fn collect_fields(root: &Value, schema: &Value, value: &Value, used: &mut BTreeSet<(String, String)>) {
    let (name, schema) = definition(root, schema);
    for branch in ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)?.as_array()).flatten() {
        collect_fields(root, branch, value, used);
    }
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                if let Some(property) = schema.pointer(&format!("/properties/{key}")) {
                    used.insert((name.to_owned(), key.clone()));
                    collect_fields(root, property, value, used);
                } else if let Some(each) = schema.get("additionalProperties") {
                    collect_fields(root, each, value, used);
                }
            }
        }
        Value::Array(items) => {
            let each = schema.get("items").into_iter();
            each.for_each(|each| items.iter().for_each(|item| collect_fields(root, each, item, used)));
        }
        _ => {}
    }
}
