//! Plays a case on a host and judges it.
//!
//! A case can't be played twice, because modules keep their state. So the results are collected once, and
//! compared first with the behaviour expected of every host, then with the known differences of this host.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;

use crate::case::ConformanceCase;
use crate::client::{self, RequestResult};
use crate::host::ListeningHost;
use crate::host_kind::HostKind;
use crate::log;
use crate::rows::{ExpectedAnswer, ExpectedRequest, ExpectedResults, RowExchange};
use crate::service::ReceivedRequest;

/// The result of a case.
#[derive(Debug)]
pub(crate) enum CaseVerdict {
    /// The behaviour expected of every host.
    AsExpected,
    /// A known difference of this host, with its reason.
    KnownDifference(String),
    /// Any other behaviour, with the problems.
    Failed(Vec<String>),
}

/// Plays a case on a host that accepted its configuration.
pub(crate) async fn play_case(
    host: HostKind,
    running: &ListeningHost,
    case: &Arc<ConformanceCase>,
) -> CaseVerdict {
    let known = case.known_difference(host);
    let expected = known.as_ref().map_or(case.expected(), |(expected, _)| expected);
    let to = running.address(case);
    let exchanges = expected_exchanges(expected);
    let mut got = Vec::new();
    for exchange in &exchanges {
        got.push(client::send(case, to, exchange).await);
    }
    let problems = compare(case, running, expected, &exchanges, &got).await;
    let Some((_, why)) = known else {
        return if problems.is_empty() { CaseVerdict::AsExpected } else { CaseVerdict::Failed(problems) };
    };
    if !problems.is_empty() {
        return CaseVerdict::Failed(problems);
    }
    // A known difference must occur: otherwise the table is out of date.
    let common = case.expected();
    let same = case.row.starts
        && compare(case, running, common, &self::expected_exchanges(common), &got).await.is_empty();
    match same {
        true => CaseVerdict::Failed(vec!["the table lists a difference that does not occur".into()]),
        false => CaseVerdict::KnownDifference(why.to_owned()),
    }
}

/// Judges a start that must be refused, by the host's output.
pub(crate) fn judge_refusal(host: HostKind, refused: Option<String>, case: &ConformanceCase) -> CaseVerdict {
    match refused {
        None => CaseVerdict::Failed(vec!["the host accepted a configuration that it must refuse".into()]),
        Some(_) if !case.row.starts => CaseVerdict::AsExpected,
        Some(_) => {
            let why = case.row.difference(host, case.module).map(|difference| difference.why.clone());
            CaseVerdict::KnownDifference(why.unwrap_or_default())
        }
    }
}

fn expected_exchanges(expected: &ExpectedResults) -> Vec<RowExchange> {
    expected.exchange.clone().unwrap_or_else(|| vec![RowExchange::default()])
}

/// Returns the differences from the expectations.
async fn compare(
    case: &ConformanceCase,
    running: &ListeningHost,
    expected: &ExpectedResults,
    exchanges: &[RowExchange],
    got: &[RequestResult],
) -> Vec<String> {
    let mut problems = Vec::new();
    for (exchange, got) in exchanges.iter().zip(got) {
        problems.extend(compare_answer(case, &exchange.answer, got));
    }
    let wanted: Vec<String> =
        expected.log.iter().flatten().map(|line| case.fill_placeholders(line)).collect();
    if let Err(missing) = case.log.wait_for_lines(&wanted).await {
        problems.push(format!("not logged, or not in this order: {missing}"));
        problems.extend(case.log.text().into_iter().map(|line| format!("  {line}")));
    }
    for line in expected.never.iter().flatten().map(|line| case.fill_placeholders(line)) {
        if case.log.contains(&line) {
            problems.push(format!("logged, and must not be: {line}"));
        }
    }
    let requests = case.service.received_requests();
    for request in expected.seen.iter().flatten() {
        if !requests.iter().any(|received_request| matches_request(case, request, received_request)) {
            problems.push(format!("the service saw no such request: {request:?}; but {requests:?}"));
        }
    }
    for path in expected.unseen.iter().flatten() {
        if requests.iter().any(|came| came.path == *path) {
            problems.push(format!("the service saw a request for {path}"));
        }
    }
    for (name, value) in expected.metrics.iter().flatten() {
        if let Err(shown) = running.wait_for_metric(&case.fill_placeholders(name), *value).await {
            problems.push(format!("metric {name} is not {value}: {shown}"));
        }
    }
    problems
}

fn compare_answer(case: &ConformanceCase, expect: &ExpectedAnswer, got: &RequestResult) -> Vec<String> {
    let RequestResult::Answer { status, headers, body, trailers } = got else {
        let as_expected = match got {
            RequestResult::Incomplete { .. } => expect.broken,
            _ => expect.hangs,
        };
        return if as_expected { vec![] } else { vec![format!("{got:?}")] };
    };
    let mut problems = Vec::new();
    if expect.broken || expect.hangs {
        problems.push(format!("an answer came: {status} {body:?}"));
    }
    if expect.status != *status {
        problems.push(format!("status {status}, not {}; {body:?}", expect.status));
    }
    problems.extend(compare_headers(case, "header", &expect.headers, headers));
    if let Some(expected) = &expect.body
        && !log::matches_wildcard(&case.fill_placeholders(expected), body)
    {
        problems.push(format!("body {body:?}, not {expected:?}"));
    }
    let wanted = expect.trailers.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
    problems.extend(compare_headers(case, "trailer", &wanted.collect(), trailers));
    problems
}

/// Returns the differences of headers. Several values of a name are joined with commas.
fn compare_headers(
    case: &ConformanceCase,
    what: &str,
    wanted: &BTreeMap<String, Option<String>>,
    there: &HeaderMap,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, wanted) in wanted {
        let values: Vec<_> =
            there.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let value = (!values.is_empty()).then(|| values.join(","));
        let as_wanted = match (wanted, &value) {
            (Some(wanted), Some(value)) => log::matches_wildcard(&case.fill_placeholders(wanted), value),
            (None, None) => true,
            _ => false,
        };
        if !as_wanted {
            problems.push(format!("{what} {name} is {value:?}, not {wanted:?}"));
        }
    }
    problems
}

fn matches_request(
    case: &ConformanceCase,
    request: &ExpectedRequest,
    received_request: &ReceivedRequest,
) -> bool {
    let trailers = request.trailers.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    log::matches_wildcard(&case.fill_placeholders(&request.path), &received_request.path)
        && request.method.as_ref().is_none_or(|method| *method == received_request.method)
        && compare_headers(case, "header", &request.headers, &received_request.headers).is_empty()
        && request
            .body
            .as_ref()
            .is_none_or(|body| log::matches_wildcard(&case.fill_placeholders(body), &received_request.body))
        && compare_headers(case, "trailer", &trailers, &received_request.trailers).is_empty()
}
