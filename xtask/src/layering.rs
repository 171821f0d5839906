//! `cargo xtask layering`: the dependencies that each crate of the workspace may have, on other crates of the
//! workspace and on external packages, and the top-level modules of each crate (`modules.rs`, `cycles.rs`).
//!
//! Manifests are read through `cargo metadata`, with build and dev dependencies. The crates that open
//! connections are found in the sources, because features of a shared dependency can't be assigned
//! to a single crate.

pub(crate) mod cycles;
mod modules;

use crate::CheckFindings;
use crate::files::{self, TrackedFile};
use crate::metadata::{DependencyGraph, DependencyKind, GraphPackage, ManifestDependency};

/// The levels of the architecture, lowest first. A crate depends on lower levels only, never on its own.
const LEVELS: &[&[&str]] = &[
    &[
        "allocator",
        "admission",
        "query-abi",
        "diagnostics",
        "json",
        "dedup",
        "openapi",
        "services",
        "script",
        "store",
        "offload",
    ],
    &["sandbox", "environments", "handler"],
    &["query", "filter", "script-runtime", "aggregate", "graphql"],
    &["gateway"],
    &["orfa"],
];

/// Allowed dependencies within a level, each with its manifest sections.
const SAME_LEVEL_DEPENDENCIES: &[(&str, &str, &[DependencyKind])] = &[
    // Its build script takes snapshots and compiles them with the same engine that runs them.
    ("environments", "sandbox", &[DependencyKind::Build, DependencyKind::Dev]),
    // A call carries the quota key that is charged for its work.
    ("services", "offload", &[DependencyKind::Normal]),
    // It encodes the tree of `json`. A second parser for texts would be a second source of bugs.
    ("dedup", "json", &[DependencyKind::Normal]),
    // One type for the problems in all files that people write.
    ("openapi", "diagnostics", &[DependencyKind::Normal]),
    ("services", "diagnostics", &[DependencyKind::Normal]),
    ("script", "diagnostics", &[DependencyKind::Normal]),
];

/// Crates outside of the levels, with the workspace crates that they may use. `testkit` drives the gateway
/// through its binary and ports, so it depends on no other crate; the same holds for the services of an
/// example. `e2e` decodes deduplicated texts, and builds modules with every host function.
const OUTSIDE_LEVELS: &[(&str, CrateUses)] = &[
    ("testkit", CrateUses::Only(&[])),
    ("marketplace", CrateUses::Only(&[])),
    ("conformance", CrateUses::Only(&[])),
    ("e2e", CrateUses::Only(&["testkit", "marketplace", "dedup", "query-abi"])),
    ("hostile", CrateUses::Only(&["testkit", "benches"])),
    ("fuzz", CrateUses::Only(&[])),
    ("guard", CrateUses::Only(&["benches"])),
    ("xtask", CrateUses::Only(&["query-abi"])),
    ("benches", CrateUses::All),
];

/// Crates that tests and benches may use.
const TEST_CRATES: &[&str] = &["testkit", "marketplace", "fuzz"];

/// External packages that only some crates may depend on: prefixes of package names, allowed crates, the
/// reason.
const RESTRICTED_PACKAGES: &[(&[&str], &[&str], &str)] = &[
    (&["wasmtime", "cranelift"], &["sandbox"], "only `sandbox` knows the engine"),
    (
        &["reqwest", "ureq", "hyper-rustls", "hyper-tls", "isahc", "awc", "surf", "curl", "tonic"],
        &["services"],
        "only `services` calls services",
    ),
    (&["rusqlite", "sqlx", "tokio-postgres"], &["store", "marketplace"], "only `store` has a database"),
];

/// Text that only some source files may contain: the text, the allowed paths, the reason.
const RESTRICTED_TEXT: &[(&[&str], &[&str], &str)] = &[
    (
        &[
            "hyper::client",
            "hyper_util::client",
            "TcpStream::connect",
            "UnixStream::connect",
            "TcpSocket",
            "UdpSocket",
            "lookup_host",
        ],
        // `orfa call` is a client itself, and tests call the gateway. A listening socket is created from the
        // same type. A new binary takes over sockets from the old one through a Unix socket, which is no
        // network connection.
        &[
            "crates/services/src/",
            "crates/cli/src/commands/call/",
            "crates/testkit/src/",
            "crates/gateway/src/server/listeners.rs",
            "crates/cli/src/commands/serve/takeover/handover_client.rs",
        ],
        "only `services` opens connections",
    ),
    (
        &["application/problem+json"],
        // `orfa call` parses responses of `gateway`.
        &[
            "crates/gateway/src/http_semantics/problem_details.rs",
            "crates/cli/src/commands/call/",
            "crates/testkit/src/",
        ],
        "errors become HTTP in one place",
    ),
];

enum CrateUses {
    All,
    Only(&'static [&'static str]),
}

/// Checks this repository.
pub(crate) fn run() -> anyhow::Result<CheckFindings> {
    let metadata = DependencyGraph::read()?;
    let members: Vec<&GraphPackage> = metadata.members().collect();
    let mut findings = check_manifests(&members);
    let files = files::tracked_files()?;
    findings.extend(files.iter().filter_map(restricted_text_finding));
    findings.extend(modules::check(&files));
    Ok(findings)
}

/// Findings in the manifests of the workspace.
fn check_manifests(members: &[&GraphPackage]) -> CheckFindings {
    let is_ours = |name: &str| members.iter().any(|member| member.name == name);
    let mut findings = CheckFindings::new();
    for member in members {
        if level_of(&member.name).is_none() && !is_outside_levels(&member.name) {
            findings.push(format!("`{}` has no level: give it one in xtask/src/layering.rs", member.name));
            continue;
        }
        for dependency in &member.dependencies {
            let ours = is_ours(&dependency.name);
            findings.extend(if ours { internal_finding(&member.name, dependency) } else { None });
            findings.extend(external_finding(&member.name, dependency));
        }
        if member.name == "query-abi" && !member.dependencies.is_empty() {
            findings.push("`query-abi` has dependencies: host and guests share it, so it has none".into());
        }
    }
    findings
}

/// Checks a dependency between two crates of the workspace.
fn internal_finding(from: &str, dependency: &ManifestDependency) -> Option<String> {
    let ManifestDependency { name: to, kind } = dependency;
    let allowed = match (allowed_uses(from), level_of(from), level_of(to)) {
        (Some(CrateUses::All), ..) => true,
        (Some(CrateUses::Only(names)), ..) => names.contains(&to.as_str()),
        (None, Some(from), Some(to)) if to < from => true,
        _ if TEST_CRATES.contains(&to.as_str()) => *kind == DependencyKind::Dev,
        _ => {
            SAME_LEVEL_DEPENDENCIES.iter().any(|(a, b, kinds)| (*a, *b) == (from, to) && kinds.contains(kind))
        }
    };
    (!allowed)
        .then(|| format!("`{from}` depends on `{to}` ({kind:?}): a crate may depend on lower levels only, see ARCHITECTURE.md"))
}

/// Checks a dependency on an external package.
fn external_finding(from: &str, dependency: &ManifestDependency) -> Option<String> {
    let guarded = |(names, ..): &&(&[&str], _, _)| names.iter().any(|name| dependency.name.starts_with(name));
    let (_, allowed, reason) = RESTRICTED_PACKAGES.iter().find(guarded)?;
    (!allowed.contains(&from)).then(|| format!("`{from}` depends on `{}`: {reason}", dependency.name))
}

/// Finds privileged text in a source file.
fn restricted_text_finding(file: &TrackedFile) -> Option<String> {
    if !file.path.starts_with("crates/") || file.extension() != "rs" {
        return None;
    }
    let elsewhere = |places: &[&str]| !places.iter().any(|place| file.path.starts_with(place));
    let mut rules = RESTRICTED_TEXT.iter().filter(|(_, places, _)| elsewhere(places));
    rules.find_map(|(words, _, reason)| {
        let word = words.iter().find(|word| file.text_without_tests().contains(*word))?;
        Some(format!("{} uses `{word}`: {reason}", file.path))
    })
}

fn level_of(name: &str) -> Option<usize> {
    LEVELS.iter().position(|level| level.contains(&name))
}

fn allowed_uses(name: &str) -> Option<&'static CrateUses> {
    OUTSIDE_LEVELS.iter().find(|(beside, _)| *beside == name).map(|(_, uses)| uses)
}

fn is_outside_levels(name: &str) -> bool {
    allowed_uses(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(dependencies: &[(&str, &str, DependencyKind)]) -> CheckFindings {
        let mut members: Vec<GraphPackage> = Vec::new();
        for (from, to, kind) in dependencies {
            let dependency = ManifestDependency { name: (*to).into(), kind: *kind };
            members.push(GraphPackage {
                name: (*from).into(),
                dependencies: vec![dependency],
                ..GraphPackage::default()
            });
            if level_of(to).is_some() || is_outside_levels(to) {
                members.push(GraphPackage { name: (*to).into(), ..GraphPackage::default() });
            }
        }
        check_manifests(&members.iter().collect::<Vec<_>>())
    }

    #[test]
    fn accepts_dependencies_on_lower_levels() {
        assert_eq!(
            findings_of(&[
                ("query", "sandbox", DependencyKind::Normal),
                ("gateway", "query", DependencyKind::Normal)
            ]),
            [""; 0]
        );
        assert_eq!(findings_of(&[("environments", "sandbox", DependencyKind::Build)]), [""; 0]);
        assert_eq!(findings_of(&[("services", "testkit", DependencyKind::Dev)]), [""; 0]);
        assert_eq!(findings_of(&[("benches", "testkit", DependencyKind::Normal)]), [""; 0]);
    }

    #[test]
    fn finds_dependencies_on_higher_and_equal_levels() {
        assert_eq!(findings_of(&[("json", "query", DependencyKind::Normal)]).len(), 1);
        assert_eq!(findings_of(&[("json", "services", DependencyKind::Dev)]).len(), 1);
        assert_eq!(findings_of(&[("environments", "sandbox", DependencyKind::Normal)]).len(), 1);
        assert_eq!(findings_of(&[("services", "testkit", DependencyKind::Normal)]).len(), 1);
        assert_eq!(findings_of(&[("testkit", "gateway", DependencyKind::Normal)]).len(), 1);
        assert_eq!(findings_of(&[("query-abi", "serde", DependencyKind::Dev)]).len(), 1);
        assert_eq!(findings_of(&[("newcomer", "serde", DependencyKind::Normal)]).len(), 1);
    }

    #[test]
    fn guarded_packages_are_found() {
        assert_eq!(findings_of(&[("query", "wasmtime", DependencyKind::Normal)]).len(), 1);
        assert_eq!(findings_of(&[("query", "wasmtime-environ", DependencyKind::Build)]).len(), 1);
        assert_eq!(findings_of(&[("gateway", "reqwest", DependencyKind::Dev)]).len(), 1);
        assert_eq!(findings_of(&[("query", "rusqlite", DependencyKind::Normal)]).len(), 1);
        assert_eq!(findings_of(&[("store", "rusqlite", DependencyKind::Normal)]), [""; 0]);
        assert_eq!(findings_of(&[("sandbox", "wasmtime", DependencyKind::Normal)]), [""; 0]);
    }

    #[test]
    fn privileged_words_are_found_outside_of_tests() {
        let file = |path: &str, text: &str| TrackedFile { path: path.into(), text: text.into() };
        let opens = "fn f() { TcpStream::connect(a) }";
        assert!(restricted_text_finding(&file("crates/query/src/host.rs", opens)).is_some());
        assert!(restricted_text_finding(&file("crates/services/src/transport.rs", opens)).is_none());
        assert!(restricted_text_finding(&file("crates/query/src/tests/host.rs", opens)).is_none());
        let writes = "const TYPE: &str = \"application/problem+json\";";
        assert!(restricted_text_finding(&file("crates/services/src/error.rs", writes)).is_some());
        let tested = format!("fn f() {{}}\n\n#[cfg(test)]\nmod tests {{\n{opens}\n}}\n");
        assert!(restricted_text_finding(&file("crates/query/src/host.rs", &tested)).is_none());
    }
}
