//! The ORFA header fields of a request, found in one pass over the headers. Most requests have at most one of
//! them, and separate lookups took longer than all further work on them.

use http::{HeaderMap, HeaderValue};
use services::headers::SingletonField;

use crate::problem::QueryError;

/// The maximum length of a field's text in bytes, many times that of the longest field that clients need. A
/// longer one takes milliseconds to parse, since each of its parameters is an entry in a map.
const MOST: usize = 4096;

/// A field that may occur once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SingleField<'a> {
    /// The name in messages.
    pub(crate) name: &'static str,
    singleton: SingletonField<'a>,
}

/// The fields of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFields<'a> {
    pub(crate) cache: SingleField<'a>,
    pub(crate) debug: SingleField<'a>,
    pub(crate) input: SingleField<'a>,
    pub(crate) limit: SingleField<'a>,
    pub(crate) trust: SingleField<'a>,
    /// Whether there is a `Prefer` (RFC 7240), which may occur several times.
    pub(crate) has_preferences: bool,
}

impl<'a> RequestFields<'a> {
    pub(crate) fn from_headers(headers: &'a HeaderMap) -> Self {
        let mut fields = Self {
            cache: SingleField::absent("ORFA-Cache"),
            debug: SingleField::absent("ORFA-Debug"),
            input: SingleField::absent("ORFA-Input"),
            limit: SingleField::absent("ORFA-Limit"),
            trust: SingleField::absent("ORFA-Trust"),
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
            field.singleton.add(value);
        }
        fields
    }
}

impl<'a> SingleField<'a> {
    fn absent(name: &'static str) -> Self {
        Self { name, singleton: SingletonField::default() }
    }

    /// Returns the field's text, if the field is present.
    ///
    /// # Errors
    /// If the field occurs more than once, is too long, or is not text.
    pub(crate) fn text(self) -> Result<Option<&'a str>, QueryError> {
        let value = self.singleton.value().map_err(|_| self.header_error("it occurs more than once"))?;
        if value.is_some_and(|value| value.len() > MOST) {
            return Err(self.header_error(&format!("it is longer than {MOST} bytes")));
        }
        let text = value.map(HeaderValue::to_str).transpose();
        text.map_err(|_| self.header_error("it is not ASCII text"))
    }

    /// Returns the error for an invalid value.
    pub(crate) fn header_error(self, detail: &str) -> QueryError {
        QueryError::Header { header: self.name, detail: detail.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_repeated_fields() {
        let mut headers = HeaderMap::new();
        assert_eq!(RequestFields::from_headers(&headers).cache.text().unwrap(), None);
        headers.insert("orfa-cache", HeaderValue::from_static("code"));
        headers.insert("orfa-limit", HeaderValue::from_bytes(b"\xe9").unwrap());
        for said in ["wait=1", "calls"] {
            headers.append("prefer", HeaderValue::from_static(said));
        }
        let fields = RequestFields::from_headers(&headers);
        assert_eq!(fields.cache.text().unwrap(), Some("code"));
        assert_eq!(
            fields.limit.text().unwrap_err().to_string(),
            "the header ORFA-Limit: it is not ASCII text"
        );
        assert!(fields.has_preferences);
        for _ in 0..2 {
            headers.append("orfa-cache", HeaderValue::from_static("code"));
            let error = RequestFields::from_headers(&headers).cache.text().unwrap_err();
            assert_eq!(error.to_string(), "the header ORFA-Cache: it occurs more than once");
        }
    }

    #[test]
    fn rejects_long_fields() {
        let mut headers = HeaderMap::new();
        let mut text = |length: usize| {
            headers.insert("orfa-limit", "a".repeat(length).parse().unwrap());
            let text = RequestFields::from_headers(&headers).limit.text();
            text.map(|text| text.map(str::len)).map_err(|error| error.to_string())
        };
        assert_eq!(text(MOST), Ok(Some(MOST)));
        assert_eq!(text(MOST + 1), Err("the header ORFA-Limit: it is longer than 4096 bytes".to_owned()));
    }
}
