//! The output of `cargo metadata`, limited to the fields that the checks need.

use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// The target platforms of the binary: Linux for Rust, and Wasm for the C sources that are dependencies.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "wasm32-wasip1"];

/// The dependency graph.
#[derive(Debug, Deserialize)]
pub(crate) struct DependencyGraph {
    pub(crate) packages: Vec<GraphPackage>,
    workspace_members: Vec<String>,
}

/// A package of this workspace or an external one.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct GraphPackage {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) license: Option<String>,
    /// The source of the package; `None` for members of the workspace.
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<ManifestDependency>,
}

/// A dependency in a manifest.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ManifestDependency {
    /// The package's own name, even if the dependency is renamed.
    pub(crate) name: String,
    #[serde(default, deserialize_with = "kind")]
    pub(crate) kind: DependencyKind,
}

/// The manifest section of a dependency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DependencyKind {
    #[default]
    Normal,
    Build,
    Dev,
}

fn kind<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<DependencyKind, D::Error> {
    Ok(match Option::<String>::deserialize(deserializer)?.as_deref() {
        Some("build") => DependencyKind::Build,
        Some("dev") => DependencyKind::Dev,
        _ => DependencyKind::Normal,
    })
}

impl DependencyGraph {
    /// Runs `cargo metadata`.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["metadata", "--format-version", "1", "--locked"])
            .current_dir(crate::files::repository_root());
        cargo.args(PLATFORMS.iter().flat_map(|platform| ["--filter-platform", platform]));
        let output = cargo.output().context("cargo can't be run")?;
        ensure!(
            output.status.success(),
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        serde_json::from_slice(&output.stdout)
            .context("the output of cargo metadata has an unexpected format")
    }

    /// The packages of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &GraphPackage> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_sections_of_a_manifest() {
        let read = |text| serde_json::from_str::<ManifestDependency>(text).unwrap().kind;
        assert_eq!(read(r#"{"name":"a","kind":null}"#), DependencyKind::Normal);
        assert_eq!(read(r#"{"name":"a","kind":"dev"}"#), DependencyKind::Dev);
        assert_eq!(read(r#"{"name":"a","kind":"build"}"#), DependencyKind::Build);
    }
}
