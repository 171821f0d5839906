//! What `cargo metadata` says, as far as the checks need it.

use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// What the binary is made of: Rust for Linux, and the C sources that come as dependencies for Wasm.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "wasm32-wasip1"];

/// The whole graph.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    workspace_members: Vec<String>,
}

/// A package, ours or another's.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) license: Option<String>,
    /// Where it comes from; none for our own.
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a manifest.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Dependency {
    /// The package's own name, whatever it is called where it is used.
    pub(crate) name: String,
    #[serde(default, deserialize_with = "kind")]
    pub(crate) kind: Kind,
}

/// Which section of a manifest a dependency stands in.
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
    /// Asks cargo.
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
        serde_json::from_slice(&output.stdout).context("cargo metadata is not what it was")
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
    fn the_sections_of_a_manifest_are_told_apart() {
        let read = |text| serde_json::from_str::<Dependency>(text).unwrap().kind;
        assert_eq!(read(r#"{"name":"a","kind":null}"#), Kind::Normal);
        assert_eq!(read(r#"{"name":"a","kind":"dev"}"#), Kind::Dev);
        assert_eq!(read(r#"{"name":"a","kind":"build"}"#), Kind::Build);
    }
}
