//! Check of dependencies: all come from the public registry, under an accepted licence.
//!
//! An expression with `OR` needs one accepted side, an expression with `AND` both.

use spdx::{Expression, ParseMode};

use crate::CheckFindings;
use crate::metadata::{DependencyGraph, GraphPackage};

/// Licences that require no more than passing on their text.
const ACCEPTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Licences accepted for one package only: its name, the licence, the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "webpki-roots",
    "CDLA-Permissive-2.0",
    "Mozilla's root certificates: data, free to use and pass on with the licence's text",
)];

/// The registry that packages come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks this repository.
pub(crate) fn run() -> anyhow::Result<CheckFindings> {
    let packages = DependencyGraph::read()?.packages;
    let mut findings: CheckFindings = packages.iter().filter_map(package_finding).collect();
    findings.extend(unused_exceptions(&packages));
    Ok(findings)
}

fn package_finding(package: &GraphPackage) -> Option<String> {
    let GraphPackage { name, license, source, .. } = package;
    if let Some(source) = source.as_deref().filter(|source| *source != REGISTRY) {
        return Some(format!("`{name}` comes from {source}, not from crates.io"));
    }
    let Some(licence) = license else { return Some(format!("`{name}` names no licence")) };
    match Expression::parse_mode(licence, ParseMode::LAX) {
        Err(error) => {
            Some(format!("`{name}`: `{licence}` is not a valid licence expression: {}", error.reason))
        }
        Ok(expression) if is_accepted(name, &expression) => None,
        Ok(_) => Some(format!("`{name}` is under `{licence}`, which xtask/src/licences.rs does not accept")),
    }
}

fn is_accepted(package: &str, expression: &Expression) -> bool {
    expression.evaluate(|needed| {
        let needed = needed.to_string();
        let excepted = |(name, licence, _): &(&str, &str, &str)| *name == package && *licence == needed;
        ACCEPTED.contains(&needed.as_str()) || EXCEPTIONS.iter().any(excepted)
    })
}

/// Reports exceptions for packages that are no longer used.
fn unused_exceptions(packages: &[GraphPackage]) -> impl Iterator<Item = String> {
    let used = |name: &str| packages.iter().any(|package| package.name == name);
    let idle = EXCEPTIONS.iter().filter(move |(name, ..)| !used(name));
    idle.map(|(name, ..)| format!("the licence exception for `{name}` is no longer used"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding_for(name: &str, licence: Option<&str>) -> Option<String> {
        let license = licence.map(str::to_owned);
        let source = Some(REGISTRY.to_owned());
        package_finding(&GraphPackage { name: name.into(), license, source, ..GraphPackage::default() })
    }

    #[test]
    fn accepted_licences_pass() {
        for licence in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"]
        {
            assert_eq!(finding_for("a", Some(licence)), None, "{licence}");
        }
        assert_eq!(finding_for("a", Some("Apache-2.0 WITH LLVM-exception")), None);
    }

    #[test]
    fn other_licences_are_found() {
        for licence in
            ["GPL-3.0-only", "MIT AND GPL-3.0-only", "MPL-2.0", "CDLA-Permissive-2.0", "no licence"]
        {
            assert!(finding_for("a", Some(licence)).is_some(), "{licence}");
        }
        assert!(finding_for("a", None).is_some());
    }

    #[test]
    fn exceptions_apply_to_one_package_and_must_be_in_use() {
        assert_eq!(finding_for("webpki-roots", Some("CDLA-Permissive-2.0")), None);
        assert_eq!(unused_exceptions(&[]).count(), EXCEPTIONS.len());
    }

    #[test]
    fn finds_packages_from_other_sources() {
        let source = Some("git+https://example.org/a".to_owned());
        let package =
            GraphPackage { name: "a".into(), license: Some("MIT".into()), source, ..GraphPackage::default() };
        assert!(package_finding(&package).is_some());
    }
}
