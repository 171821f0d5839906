//! Timings of a query in the gateway's `Server-Timing` header: `cpu;dur=0.31`, and after `Prefer: calls` also
//! `call;desc="profile GET /buyers 200";dur=3.1;start=0.2` for each upstream call.

use http::HeaderMap;
use sfv::{BareItem, Item, List, ListEntry, Parser};

/// The timings of a query in milliseconds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct QueryTimings {
    /// CPU time of the program.
    pub(crate) cpu: f64,
    /// The compile time, if the program was compiled.
    pub(crate) compile: Option<f64>,
    /// The total time.
    pub(crate) total: f64,
    /// Upstream calls.
    pub(crate) calls: Vec<TimedCall>,
}

/// An upstream call.
#[derive(Debug, PartialEq)]
pub(crate) struct TimedCall {
    pub(crate) name: String,
    pub(crate) start: f64,
    pub(crate) duration: f64,
}

impl QueryTimings {
    /// Parses the header. Unknown entries are ignored.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let value = headers.get("server-timing").map_or(&[][..], |value| value.as_bytes());
        let list = Parser::new(value).parse::<List>().unwrap_or_default();
        let mut timing = Self::default();
        for entry in &list {
            if let ListEntry::Item(item) = entry {
                timing.read_entry(item);
            }
        }
        timing
    }

    fn read_entry(&mut self, item: &Item) {
        let took = numeric_parameter(item, "dur");
        match item.bare_item.as_token().map(|name| name.as_str()) {
            Some("cpu") => self.cpu = took,
            Some("compile") => self.compile = Some(took),
            Some("total") => self.total = took,
            Some("call") => {
                let name = item.params.get("desc").and_then(BareItem::as_string);
                let name = name.map_or_else(String::new, |name| name.as_str().to_owned());
                self.calls.push(TimedCall { name, start: numeric_parameter(item, "start"), duration: took });
            }
            _ => {}
        }
    }
}

fn numeric_parameter(item: &Item, name: &str) -> f64 {
    match item.params.get(name) {
        Some(BareItem::Decimal(number)) => f64::from(*number),
        #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
        Some(BareItem::Integer(number)) => i64::from(*number) as f64,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_timings_and_calls() {
        let value = r#"compile;dur=1.5, cpu;dur=0.31, calls;desc=1, call;desc="a GET /x 200";dur=3;start=0.2, total;dur=9.8"#;
        let headers = [(http::HeaderName::from_static("server-timing"), value.parse().expect("a header"))];
        let timing = QueryTimings::from_headers(&HeaderMap::from_iter(headers));
        let call = TimedCall { name: "a GET /x 200".into(), start: 0.2, duration: 3.0 };
        assert_eq!(timing, QueryTimings { cpu: 0.31, compile: Some(1.5), total: 9.8, calls: vec![call] });
    }
}
