//! Tests of composition: the cases of the oracle (`tests/fixtures/oracle/`), and cases that other
//! implementations get wrong.

mod composition;
mod plans;
mod split;
mod summary;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use diagnostics::Diagnostic;

use super::{ServiceSchema, compose};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/oracle/cases");
/// The header of a Federation v2 service without one of its own.
const FEDERATION_V2_HEADER: &str = "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.7\", import: [\"@key\", \"@requires\",
  \"@provides\", \"@external\", \"@shareable\", \"@override\", \"@inaccessible\", \"@interfaceObject\", \"@tag\"])\n";

/// Splits a text at lines that begin with `begin`. Returns the rest of each such line, and the text after it.
pub(crate) fn sections<'t>(text: &'t str, begin: &str) -> Vec<(&'t str, &'t str)> {
    text.split(begin).skip(1).filter_map(|section| section.split_once('\n')).collect()
}

/// Composes services. Each follows a line `# service: NAME`, with ` (v2)` for a Federation v2 service.
pub(crate) fn compose_case(case: &str) -> Result<String, Vec<Diagnostic>> {
    let services: Vec<(Arc<str>, String)> = sections(case, "# service: ")
        .into_iter()
        .map(|(name, sdl)| match name.strip_suffix(" (v2)") {
            Some(name) => (Arc::from(name), format!("{FEDERATION_V2_HEADER}{sdl}")),
            None => (Arc::from(name), sdl.to_owned()),
        })
        .collect();
    let parts: Vec<ServiceSchema<'_>> =
        services.iter().map(|(name, sdl)| ServiceSchema { name, sdl }).collect();
    compose(&parts).map(|supergraph| supergraph.sdl)
}

/// The cases in a folder of the oracle: the name, input and expected result of each.
pub(crate) fn read_cases(folder: &str) -> Vec<[String; 3]> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut all = Vec::new();
    for file in files.filter(|file| file.extension().is_some_and(|end| end == "graphql")) {
        let cases = std::fs::read_to_string(&file).unwrap();
        let expected = std::fs::read_to_string(file.with_extension("expected")).unwrap();
        let (cases, expected) = (sections(&cases, "# case: "), sections(&expected, "# case: "));
        let names =
            |sections: &[(&str, &str)]| sections.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
        let remake = "after adding a case, generate the expected results by `node remake.mjs`";
        assert_eq!(names(&cases), names(&expected), "{remake}");
        let pairs = cases.into_iter().zip(expected);
        all.extend(
            pairs
                .map(|((name, case), (_, expected))| [name, case.trim(), expected.trim()].map(str::to_owned)),
        );
    }
    all
}

/// Asserts that `see` reports no failure for any of the oracle's cases.
fn check_cases(see: impl Fn(&str, &str) -> Option<String>) {
    let mut wrong = String::new();
    for [name, case, expected] in read_cases(CASES) {
        if let Some(said) = see(&case, &expected) {
            let _ = writeln!(wrong, "== {name}\n{said}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn composes_and_rejects_the_same_cases_as_the_oracle() {
    check_cases(composition_difference);
}

#[test]
fn every_field_of_a_composed_schema_can_be_planned() {
    check_cases(|case, _| {
        let planner = plans::new_planner(&compose_case(case).ok()?);
        let without_plan = plans::field_queries(&planner).into_iter().filter_map(|query| {
            let error = plans::plan_query(&planner, &query).err()?;
            Some(format!("{query}\n{error}\n"))
        });
        let all: String = without_plan.collect();
        (!all.is_empty()).then_some(all)
    });
}

fn composition_difference(case: &str, expected: &str) -> Option<String> {
    let ours = match compose_case(case) {
        Ok(sdl) => summary::summarize(&sdl),
        Err(errors) => {
            let is_same =
                errors.iter().any(|error| expected.split(' ').any(|code| code == error.code.unwrap()));
            let says: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return (!is_same).then(|| format!("{}\ngot {says:#?}", expected.lines().next().unwrap_or("")));
        }
    };
    if expected.starts_with("refused") {
        return Some(format!("accepted, but {expected}"));
    }
    let expected = summary::summarize(expected);
    let (ours, expected): (BTreeSet<&str>, BTreeSet<&str>) =
        (ours.lines().collect(), expected.lines().collect());
    let missing = expected.difference(&ours).map(|line| format!("  - {line}\n"));
    let more = ours.difference(&expected).map(|line| format!("  + {line}\n"));
    let difference: String = missing.chain(more).collect();
    (!difference.is_empty()).then_some(difference)
}
