//! `ORFA-Trust`: names the key that signed a program, with the signature.

use sfv::{BareItem, Item, Parser};

use super::fields::SingleField;
use crate::problem::QueryError;
use crate::program::ProgramSignature;

/// Parses `ORFA-Trust`.
///
/// # Errors
/// If the header is malformed.
pub(super) fn parse_signature(field: SingleField<'_>) -> Result<Option<ProgramSignature>, QueryError> {
    let wrong = |detail: &str| field.header_error(detail);
    let Some(text) = field.text()? else { return Ok(None) };
    let item: Result<Item, _> = Parser::new(text).parse();
    let item = item.map_err(|_| wrong("it is not an item of RFC 9651, as `:...:;keyid=\"name\"`"))?;
    let bytes = item.bare_item.as_byte_sequence().and_then(|bytes| bytes.try_into().ok());
    let bytes = bytes.ok_or_else(|| wrong("the signature has to be 64 bytes in base64 between colons"))?;
    let key = match item.params.get("keyid") {
        Some(BareItem::String(key)) => key.as_str().to_owned(),
        Some(BareItem::Token(key)) => key.as_str().to_owned(),
        _ => return Err(wrong("`keyid` has to name the key")),
    };
    Ok(Some(ProgramSignature { key, bytes }))
}
