//! The programs of `benches/programs/`, built as their authors would build them, and the tokens under which
//! they are cached.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use http::HeaderMap;
use sfv::{FieldType, Item, Key, Parser, Token};

/// The `ORFA-Cache` header of the next request, from that of a response.
///
/// # Errors
/// Fails if the response has no token.
pub fn cache_token(headers: &HeaderMap, mode: &'static str) -> Result<String> {
    let told = headers.get("orfa-cache").context("the response has no ORFA-Cache")?;
    let item: Item =
        Parser::new(told.as_bytes()).parse().context("ORFA-Cache is not a structured field item")?;
    let token = item.params.get("token").context("ORFA-Cache has no token")?;
    let mut next = Item::new(Token::try_from(mode.to_owned())?);
    next.params.insert(Key::try_from("token".to_owned())?, token.clone());
    Ok(next.serialize())
}

/// The path of a program in `benches/programs/`.
#[must_use]
pub fn program_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Builds a C program of `benches/programs/` as its author would.
///
/// # Errors
/// Fails as `orfa query build` does.
pub fn build_program(orfa: &Path, name: &str, folder: &Path) -> Result<PathBuf> {
    build_program_file(orfa, &program_path(name), folder)
}

/// Like `build`, for any source file.
///
/// # Errors
/// Fails as `orfa query build` does.
pub fn build_program_file(orfa: &Path, source: &Path, folder: &Path) -> Result<PathBuf> {
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

    fn token_of(value: &'static str) -> Result<String> {
        let value = http::HeaderValue::from_static(value);
        cache_token(&HeaderMap::from_iter([(http::HeaderName::from_static("orfa-cache"), value)]), "code")
    }

    #[test]
    fn next_request_carries_only_the_token_of_the_response() {
        assert_eq!(token_of("code;token=:YWJj:;did=compiled").expect("a token"), "code;token=:YWJj:");
        assert!(token_of("code;did=found").is_err());
        assert!(cache_token(&HeaderMap::new(), "code").is_err());
    }
}
