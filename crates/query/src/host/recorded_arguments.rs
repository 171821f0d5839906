//! Reads the arguments of host functions in the form that recordings have.

use offload::SHORT_TEXT;
use serde_json::{Value, json};
use services::headers::MAX_CALL_HEAD;

use super::calls::{MAX_HEADERS, head_len, max_waited_handles};
use super::guest::MemoryView;
use crate::problem::QueryError;
use crate::record::{HostCallMode, note_bytes};

/// The maximum length of a text in a recording: the maximum size of a call's head.
const MAX_NOTED_BYTES: u32 = MAX_CALL_HEAD as u32;

/// Reads arguments for a recording. Arguments out of bounds are recorded as empty, since the host function
/// itself reports the error.
impl MemoryView<'_> {
    /// Returns bytes, as text if they are UTF-8.
    pub(crate) fn note_argument(&mut self, address: u32, len: u32) -> Result<Value, QueryError> {
        self.guest.tape.check_fits(len)?;
        let bytes = self.slice(address, len).unwrap_or_default();
        Ok(note_bytes(bytes.to_vec().into()))
    }

    /// Returns a text, cut to the maximum length in recordings.
    pub(crate) fn note_text(&mut self, address: u32, len: u32) -> Result<Value, QueryError> {
        self.note_argument(address, len.min(MAX_NOTED_BYTES))
    }

    /// Returns an array of numbers.
    pub(crate) fn note_numbers(&mut self, address: u32, count: u32) -> Result<Value, QueryError> {
        let count = if u64::from(count) > max_waited_handles(self.guest) { 0 } else { count };
        let len = count.saturating_mul(4);
        self.guest.tape.check_fits(count.saturating_mul(size_of::<Value>() as u32))?;
        let words = self.slice(address, len).unwrap_or_default().as_chunks::<4>().0;
        Ok(words.iter().map(|word| i32::from_le_bytes(*word)).collect())
    }

    /// Returns the body of an `orfa_request`, if it is too long to be recorded inline.
    pub(crate) fn long_body(&self, address: u32) -> Option<(u32, u32)> {
        if !matches!(self.guest.tape, HostCallMode::Recording(_)) {
            return None;
        }
        let [.., body, len] = self.read_words::<8>(address).ok()?;
        (len as usize > SHORT_TEXT && self.slice(body, len).is_ok()).then_some((body, len))
    }

    /// Returns an `orfa_request`, or null if its head is out of bounds or too large. Leaves out a body that
    /// is too long to be recorded inline.
    pub(crate) fn note_request(&mut self, address: u32) -> Result<Value, QueryError> {
        let Ok(words) = self.read_words(address) else { return Ok(Value::Null) };
        if !head_len(self, words).is_ok_and(|len| len <= MAX_CALL_HEAD) {
            return Ok(Value::Null);
        }
        let [method, method_len, url, url_len, headers, count, body, body_len] = words;
        let (method, url) = (self.note_text(method, method_len)?, self.note_text(url, url_len)?);
        let headers = self.note_headers(headers, count)?;
        let body = match self.long_body(address) {
            Some((_, len)) => self.guest.tape.check_fits(len).map(|()| Value::Null)?,
            None => self.note_argument(body, body_len)?,
        };
        Ok(json!({ "method": method, "url": url, "headers": headers, "body": body }))
    }

    fn note_headers(&mut self, address: u32, count: u32) -> Result<Vec<(Value, Value)>, QueryError> {
        let mut headers = Vec::new();
        for index in 0..count.min(MAX_HEADERS) {
            let at = address.saturating_add(index * query_abi::HEADER_BYTES);
            let Ok([name, name_len, value, value_len]) = self.read_words(at) else { break };
            headers.push((self.note_text(name, name_len)?, self.note_text(value, value_len)?));
        }
        Ok(headers)
    }
}
