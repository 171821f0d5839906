//! Finds C sources that come from crates.io. The packages are locked in Cargo.lock and fetched by cargo, but
//! never compiled as Rust, since they are dependencies of a target that the gateway isn't built for.
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::toolchain::ToolchainResult;

/// The target whose dependencies contain the C sources (see `Cargo.toml`). Naming it keeps cargo from
/// fetching packages that only other platforms need.
const TARGET: &str = "wasm32-wasip1";

/// Returns the folder of a locked package, fetching it if necessary.
pub fn crate_source(name: &str) -> ToolchainResult<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]);
    let output = command.arg("--manifest-path").arg(manifest).output();
    let output = output.map_err(|error| format!("cargo can't be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata did not write JSON: {error}"))?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let package = packages.iter().find(|package| package["name"] == name);
    let path = package
        .and_then(|package| package["manifest_path"].as_str())
        .and_then(|path| Path::new(path).parent());
    path.map(Path::to_owned)
        .ok_or(format!("package {name} is not in Cargo.lock: see environments/Cargo.toml"))
}
