//! The programs of `benches/programs/`, built as their authors would, and the tokens that they are asked for by.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use http::HeaderMap;
use sfv::{FieldType, Item, Key, Parser, Token};

/// What the next request says in `ORFA-Cache`, by what the answer says there.
///
/// # Errors
/// If that has no token.
pub fn token(headers: &HeaderMap, mode: &'static str) -> Result<String> {
    let told = headers.get("orfa-cache").context("the answer has no ORFA-Cache")?;
    let told: Item = Parser::new(told.as_bytes()).parse().context("ORFA-Cache is no item")?;
    let token = told.params.get("token").context("ORFA-Cache has no token")?;
    let mut next = Item::new(Token::try_from(mode.to_owned())?);
    next.params.insert(Key::try_from("token".to_owned())?, token.clone());
    Ok(next.serialize())
}

/// A program of `benches/programs/`.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Builds a C program of `benches/programs/` as its author would.
///
/// # Errors
/// Those of `orfa query build`.
pub fn build(orfa: &Path, name: &str, folder: &Path) -> Result<PathBuf> {
    build_file(orfa, &program(name), folder)
}

/// The same for any file.
///
/// # Errors
/// Those of `orfa query build`.
pub fn build_file(orfa: &Path, source: &Path, folder: &Path) -> Result<PathBuf> {
    let out = folder.join(source.with_extension("wasm").file_name().context("a program has a name")?);
    let built = Command::new(orfa).args(["query", "build"]).arg(source).arg("-o").arg(&out).output()?;
    if !built.status.success() {
        bail!("`orfa query build` failed:\n{}", String::from_utf8_lossy(&built.stderr));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(value: &'static str) -> Result<String> {
        let value = http::HeaderValue::from_static(value);
        token(&HeaderMap::from_iter([(http::HeaderName::from_static("orfa-cache"), value)]), "code")
    }

    #[test]
    fn the_next_request_has_the_token_and_nothing_else_of_the_answer() {
        assert_eq!(told("code;token=:YWJj:;did=compiled").expect("a token"), "code;token=:YWJj:");
        assert!(told("code;did=found").is_err());
        assert!(token(&HeaderMap::new(), "code").is_err());
    }
}
