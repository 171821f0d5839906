//! The output of `cargo metadata`, limited to the fields that the checks need.

use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// The target platforms of the binary: Linux for Rust, and Wasm for the C sources that are dependencies.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "wasm32-wasip1"];

/// The dependency graph.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    workspace_members: Vec<String>,
}

/// A package of this workspace or an external one.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) license: Option<String>,
    /// The source of the package; `None` for members of the workspace.
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency in a manifest.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Dependency {
    /// The package's own name, even if the dependency is renamed.
    pub(crate) name: String,
    #[serde(default, deserialize_with = "kind")]
    pub(crate) kind: Kind,
}

/// The manifest section of a dependency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Normal,
    Build,
    Dev,
}

fn kind<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
    Ok(match Option::<String>::deserialize(deserializer)?.as_deref() {
        Some("build") => Kind::Build,
        Some("dev") => Kind::Dev,
        _ => Kind::Normal,
    })
}

impl Metadata {
    /// Runs `cargo metadata`.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["metadata", "--format-version", "1", "--locked"]).current_dir(crate::files::root());
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
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_sections_of_a_manifest() {
        let read = |text| serde_json::from_str::<Dependency>(text).unwrap().kind;
        assert_eq!(read(r#"{"name":"a","kind":null}"#), Kind::Normal);
        assert_eq!(read(r#"{"name":"a","kind":"dev"}"#), Kind::Dev);
        assert_eq!(read(r#"{"name":"a","kind":"build"}"#), Kind::Build);
    }
}
