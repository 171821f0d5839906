//! `cargo xtask names`: measures of type names and cycles among modules.
//!
//! Names are the field's words, unique enough to search for. CONTRIBUTING.md describes how to use the table.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use crate::CheckFindings;
use crate::files;
use crate::layering::cycles::{self, ModuleCycle};
use crate::vocabulary::{
    self, RaisedAt, SourceFile, WorkspaceMeasure, compile_pattern, line_at, percent, to_float, worst_first,
};

/// Pronouns, bare participles and other words that name no thing.
#[rustfmt::skip]
const PRONOUNS: &[&str] = &[
    "Asked", "Told", "Said", "Seen", "Known", "Kept", "Held", "Taken", "Begun", "Done", "Ended", "Gone",
    "Wrong", "Came", "Waits", "Wanted", "Written", "Filled", "Found", "Named", "Made", "Not", "Who", "What",
    "Which", "Whom", "How", "Comes", "Life", "Way", "Ground", "Glance", "Spot", "Only", "Rest", "Back",
    "Again", "Given", "Judged", "Opened", "Sealed", "Landed", "Answered", "Declared", "Deployed",
    "Compiled", "Charged", "Undecided", "Unread", "Unsettled", "Untold", "Lives", "Lot", "Seat", "Stage",
    "Fate", "Fail", "Fault", "Reach", "Reads", "Need", "Needs", "Lacks", "Ahead", "Within", "Between",
    "Inside", "Outside", "Near", "Far", "Elsewhere", "Finished", "Listed", "Persisted", "Lingering",
    "Patient", "Awaited", "Watched", "Marked", "Meant", "Open", "Late", "Later", "Began", "Served",
    "Switched", "Wish", "Moved", "Guessed", "Reading", "Writing", "Walk", "Walks", "Visits", "Finding",
    "Tried",
];
/// Names of the standard library and of `bytes` that no type may shadow.
const SHADOWED: &[&str] =
    &["From", "Into", "Duration", "Bytes", "Not", "Result", "Option", "String", "Instant"];
/// Type names that are private to this project, with the field's word.
const DENIED_TYPES: &[(&str, &str)] = &[
    ("Ask", "QueryRequest"),
    ("Flights", "InFlightRequests"),
    ("Judge", "ProgramResolver"),
    ("Landing", "InFlightGuard"),
    ("Lane", "EngineShard"),
    ("Lanes", "EngineShards"),
    ("Law", "CodelController"),
    ("Life", "Pipeline"),
    ("Place", "RunPermit or SourceLocation"),
    ("Seat", "WarmInstance"),
    ("Standing", "EndpointHealth"),
    ("TooLong", "RunQueueFull"),
    ("Way", "Handler"),
    ("Who", "Principal"),
];
/// File names that are private to this project, with the field's word.
const DENIED_FILES: &[(&str, &str)] = &[
    ("beside.rs", "the noun for its contents"),
    ("conform.rs", "validate_request.rs"),
    ("entered.rs", "dispatch.rs"),
    ("heard.rs", "worker_events.rs"),
    ("life.rs", "pipeline.rs"),
    ("lost.rs", "worker_loss.rs"),
    ("told.rs", "errors.rs"),
    ("way.rs", "handler.rs"),
];

static TYPE_DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
    compile_pattern(r"(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union)\s+([A-Z]\w*)")
});
static NAME_WORD: LazyLock<Regex> = LazyLock::new(|| compile_pattern("[A-Z][a-z0-9]*"));

/// The `path:line` of each definition of a type name.
type TypeDefinitions = BTreeMap<String, Vec<String>>;

/// Measures this repository, prints the table and returns the missed targets.
pub(crate) fn run() -> anyhow::Result<CheckFindings> {
    let files = files::tracked_files()?;
    Ok(vocabulary::report(&measures(&vocabulary::sources(&files))))
}

fn measures(sources: &[SourceFile]) -> Vec<WorkspaceMeasure> {
    let code: Vec<(&str, String)> = sources.iter().map(|source| (source.path, source.code())).collect();
    let types = type_definitions(&code);
    let total: usize = types.values().map(Vec::len).sum();
    let share = |name, target, is_counted: &dyn Fn(&str, usize) -> bool| {
        let (count, locations) = select_types(&types, is_counted);
        WorkspaceMeasure { name, value: percent(count, total), target, locations }
    };
    let (shadowing, shadowing_locations) = select_types(&types, &|name, _| SHADOWED.contains(&name));
    let denied = denied_names(&types, sources);
    let mut measures = vec![
        share("one_word_types_%", 45.0, &|name, _| NAME_WORD.find_iter(name).count() == 1),
        share("types_with_2_namesakes_%", 15.0, &|_, definitions| definitions >= 3),
        share("pronoun_types_%", 1.0, &|name, _| PRONOUNS.contains(&name)),
        WorkspaceMeasure {
            name: "shadowing_types",
            value: to_float(shadowing),
            target: 0.0,
            locations: shadowing_locations,
        },
        WorkspaceMeasure {
            name: "denied_names",
            value: to_float(denied.len()),
            target: 0.0,
            locations: denied,
        },
    ];
    measures.extend(cycle_measures(&cycles::cycles(&code)));
    measures
}

fn type_definitions(code: &[(&str, String)]) -> TypeDefinitions {
    let mut types = TypeDefinitions::new();
    for (path, code) in code {
        for name in TYPE_DEFINITION.captures_iter(code).filter_map(|captures| captures.get(1)) {
            types.entry(name.as_str().to_owned()).or_default().push(line_at(path, code, name.start()));
        }
    }
    types
}

/// Counts the definitions of some names, given as name and number of definitions. The locations have one
/// entry for each name, those with most definitions first.
fn select_types(types: &TypeDefinitions, is_counted: &dyn Fn(&str, usize) -> bool) -> (usize, Vec<RaisedAt>) {
    let mut count = 0;
    let mut locations = Vec::new();
    for (name, lines) in types.iter().filter(|(name, lines)| is_counted(name, lines.len())) {
        count += lines.len();
        let text = match lines.len() {
            1 => format!("type `{name}`"),
            number => format!("type `{name}`, one of {number}"),
        };
        locations.extend(lines.first().map(|at| (lines.len(), RaisedAt { at: at.clone(), text })));
    }
    (count, worst_first(locations))
}

fn denied_names(types: &TypeDefinitions, sources: &[SourceFile]) -> Vec<RaisedAt> {
    let mut locations = Vec::new();
    for (name, instead) in DENIED_TYPES {
        let lines = types.get(*name).into_iter().flatten();
        let text = format!("type `{name}`: use {instead}, for example");
        locations.extend(lines.map(|at| RaisedAt { at: at.clone(), text: text.clone() }));
    }
    for SourceFile { path, .. } in sources {
        let file = path.rsplit('/').next();
        let denied = DENIED_FILES.iter().find(|(name, _)| file == Some(*name));
        locations.extend(denied.map(|(name, instead)| RaisedAt {
            at: format!("{path}:1"),
            text: format!("file `{name}`: use {instead}, for example"),
        }));
    }
    locations
}

fn cycle_measures(cycles: &[ModuleCycle]) -> [WorkspaceMeasure; 2] {
    let largest = cycles.iter().max_by_key(|cycle| cycle.modules.len());
    let summary = |cycle: &ModuleCycle| {
        let RaisedAt { at, text } = cycle.uses.first()?;
        let ModuleCycle { crate_folder, modules, .. } = cycle;
        let text = format!("{crate_folder}: {}. The rarest use: {text}", modules.join(", "));
        Some((modules.len(), RaisedAt { at: at.clone(), text }))
    };
    [
        WorkspaceMeasure {
            name: "module_cycles",
            value: to_float(cycles.len()),
            target: 5.0,
            locations: worst_first(cycles.iter().filter_map(summary).collect()),
        },
        WorkspaceMeasure {
            name: "largest_module_cycle",
            value: to_float(largest.map_or(0, |cycle| cycle.modules.len())),
            target: 6.0,
            locations: largest.map(|cycle| cycle.uses.clone()).unwrap_or_default(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(text: &str) -> TypeDefinitions {
        type_definitions(&[("crates/a/src/a.rs", SourceFile { path: "a.rs", text }.code())])
    }

    fn value(sources: &[SourceFile], name: &str) -> f64 {
        measures(sources).into_iter().find(|measure| measure.name == name).unwrap().value
    }

    #[test]
    fn finds_type_definitions() {
        let text =
            "struct A;\npub enum B {}\n  pub(in crate::x) trait C {}\n// struct D;\nlet a = \"struct E;\";\n";
        let types = types(text);
        assert_eq!(types.keys().collect::<Vec<_>>(), ["A", "B", "C"]);
        assert_eq!(types["C"], ["crates/a/src/a.rs:3"]);
    }

    #[test]
    fn aliases_and_lower_case_are_no_definitions() {
        assert!(types("type A = B;\nstruct a;\nimpl C for D {}\n").is_empty());
    }

    #[test]
    fn counts_words_namesakes_and_pronouns() {
        let text = "struct Plan;\nstruct Plan;\nstruct Plan;\nstruct QueryPlan;\n";
        let sources = [SourceFile { path: "crates/a/src/a.rs", text }];
        assert!((value(&sources, "one_word_types_%") - 75.0).abs() < 1e-9);
        assert!((value(&sources, "types_with_2_namesakes_%") - 75.0).abs() < 1e-9);
        let sources = [SourceFile { path: "crates/a/src/a.rs", text: "struct Not;\nstruct HTTP2Frame;\n" }];
        assert!((value(&sources, "pronoun_types_%") - 50.0).abs() < 1e-9);
        assert!((value(&sources, "shadowing_types") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn denies_names_of_types_and_files() {
        let sources = [SourceFile { path: "crates/a/src/told.rs", text: "struct Lane;\nstruct Shard;\n" }];
        assert!((value(&sources, "denied_names") - 2.0).abs() < 1e-9);
    }

    #[test]
    fn lists_the_most_frequent_names_first() {
        let (count, locations) = select_types(&types("struct A;\nstruct B;\nstruct B;\n"), &|_, _| true);
        assert_eq!(count, 3);
        let at: Vec<&str> = locations.iter().map(|location| location.at.as_str()).collect();
        assert_eq!(at, ["crates/a/src/a.rs:2", "crates/a/src/a.rs:1"]);
    }
}
