//! The gateway's measurements, read from `Server-Timing`.
//!
//! Every response has `compile;dur=0.1, cpu;dur=0.3, total;dur=9.8`; with `Prefer: calls` there is also
//! `call;desc="profile GET /buyers 200";dur=3.1;start=0.2` for each upstream call. The header's grammar is a
//! subset of structured fields (RFC 9651), so their parser reads it.

use std::time::Duration;

use http::HeaderMap;
use sfv::{BareItem, Item, List, ListEntry, Parser};

use crate::output::draw::{CallBar, CallBarOutcome};

/// The measurements of a gateway, in its order, and its upstream calls.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CallTiming {
    pub(super) measurements: Vec<(String, Duration)>,
    pub(super) calls: Vec<CallBar>,
}

impl CallTiming {
    /// Parses the header. Unknown entries are skipped, since nothing depends on them.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let mut timing = Self::default();
        for value in headers.get_all("server-timing") {
            let list = Parser::new(value.as_bytes()).parse::<List>().unwrap_or_default();
            list.iter().for_each(|entry| timing.read_entry(entry));
        }
        timing
    }

    /// The total time, or zero if it is unknown.
    pub(super) fn total(&self) -> Duration {
        let total = self.measurements.iter().find(|(name, _)| name == "total");
        total.map_or(Duration::ZERO, |(_, time)| *time)
    }

    fn read_entry(&mut self, entry: &ListEntry) {
        let ListEntry::Item(item) = entry else { return };
        let Some(name) = item.bare_item.as_token() else { return };
        if name.as_str() == "call" {
            self.calls.extend(parse_call(item));
        } else if let Some(time) = duration_param(item, "dur") {
            self.measurements.push((name.as_str().to_owned(), time));
        }
    }
}

/// `desc` ends with the outcome: a status, or words after the path, which has no spaces.
fn parse_call(item: &Item) -> Option<CallBar> {
    let text = item.params.get("desc").and_then(BareItem::as_string)?.as_str();
    let mut words = text.splitn(4, ' ');
    let (service, method, path) = (words.next()?, words.next()?, words.next()?);
    let start = duration_param(item, "start").unwrap_or_default();
    Some(CallBar {
        name: format!("{service} {method} {path}"),
        outcome: CallBarOutcome::parse(words.next().unwrap_or("no answer")),
        start,
        end: duration_param(item, "dur").map(|took| start + took),
    })
}

fn duration_param(item: &Item, name: &str) -> Option<Duration> {
    let milliseconds = match item.params.get(name)? {
        BareItem::Decimal(number) => f64::from(*number),
        BareItem::Integer(number) => i64::from(*number) as f64,
        _ => return None,
    };
    Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_timing(value: &str) -> CallTiming {
        CallTiming::from_headers(&HeaderMap::from_iter([(
            http::HeaderName::from_static("server-timing"),
            value.parse().expect("a header"),
        )]))
    }

    #[test]
    fn reads_timings_and_calls() {
        let timing = parse_timing(
            r#"compile;dur=0, cpu;dur=0.3, call;desc="a GET /x?y=1 200";dur=3.1;start=0.2, call;desc="b PUT /z no answer";start=2, total;dur=9.8"#,
        );
        let names: Vec<&str> = timing.measurements.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["compile", "cpu", "total"]);
        assert_eq!(timing.total(), Duration::from_micros(9800));
        let [first, second] = timing.calls.as_slice() else { panic!("two calls: {timing:?}") };
        assert_eq!((first.name.as_str(), &first.outcome), ("a GET /x?y=1", &CallBarOutcome::Status(200)));
        assert_eq!(first.end, Some(Duration::from_micros(3300)));
        assert_eq!(second.outcome, CallBarOutcome::NoStatus("no answer".into()));
        assert_eq!(second.end, None);
    }

    #[test]
    fn skips_unknown_entries() {
        for value in ["", "total", "call", r#"call;desc="x""#, "total;dur=-5", "}{", "total;dur=abc"] {
            assert_eq!(parse_timing(value), CallTiming::default(), "{value}");
        }
    }
}
