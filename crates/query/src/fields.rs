//! The header fields of a request that are the query way's own, found in one pass: most requests have one of them or
//! none, and to look for each of them took longer than all that is done with them.

use http::{HeaderMap, HeaderValue};
use services::headers::Only;

use crate::problem::QueryError;

/// A field that may stand there once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    /// As problems call it.
    pub(crate) name: &'static str,
    only: Only<'a>,
}

/// All of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) cache: Field<'a>,
    pub(crate) debug: Field<'a>,
    pub(crate) input: Field<'a>,
    pub(crate) limit: Field<'a>,
    pub(crate) trust: Field<'a>,
    /// Whether there is a `Prefer` (RFC 7240), which may stand there several times.
    pub(crate) has_preferences: bool,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        let mut fields = Self {
            cache: Field::none("ORFA-Cache"),
            debug: Field::none("ORFA-Debug"),
            input: Field::none("ORFA-Input"),
            limit: Field::none("ORFA-Limit"),
            trust: Field::none("ORFA-Trust"),
            has_preferences: false,
        };
        for (name, value) in headers {
            let field = match name.as_str() {
                "orfa-cache" => &mut fields.cache,
                "orfa-debug" => &mut fields.debug,
                "orfa-input" => &mut fields.input,
                "orfa-limit" => &mut fields.limit,
                "orfa-trust" => &mut fields.trust,
                "prefer" => {
                    fields.has_preferences = true;
                    continue;
                }
                _ => continue,
            };
            field.only.add(value);
        }
        fields
    }
}

impl<'a> Field<'a> {
    fn none(name: &'static str) -> Self {
        Self { name, only: Only::default() }
    }

    /// What it says, if it is there.
    ///
    /// # Errors
    /// When it is there more than once, or no text.
    pub(crate) fn text(self) -> Result<Option<&'a str>, QueryError> {
        let value = self.only.value().map_err(|_| self.wrong("it stands there more than once"))?;
        let text = value.map(HeaderValue::to_str).transpose();
        text.map_err(|_| self.wrong("it is not ASCII text"))
    }

    /// It says what it can't.
    pub(crate) fn wrong(self, detail: &str) -> QueryError {
        QueryError::Header { header: self.name, detail: detail.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_may_stand_there_once_stands_there_once() {
        let mut headers = HeaderMap::new();
        assert_eq!(Fields::of(&headers).cache.text().unwrap(), None);
        headers.insert("orfa-cache", HeaderValue::from_static("code"));
        headers.insert("orfa-limit", HeaderValue::from_bytes(b"\xe9").unwrap());
        for said in ["wait=1", "calls"] {
            headers.append("prefer", HeaderValue::from_static(said));
        }
        let fields = Fields::of(&headers);
        assert_eq!(fields.cache.text().unwrap(), Some("code"));
        assert_eq!(
            fields.limit.text().unwrap_err().to_string(),
            "the header ORFA-Limit: it is not ASCII text"
        );
        assert!(fields.has_preferences);
        for _ in 0..2 {
            headers.append("orfa-cache", HeaderValue::from_static("code"));
            let error = Fields::of(&headers).cache.text().unwrap_err();
            assert_eq!(error.to_string(), "the header ORFA-Cache: it stands there more than once");
        }
    }
}
