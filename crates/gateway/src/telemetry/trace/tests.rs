//! Tests of sampling, of the exported spans, and of an unreachable collector.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, Method, StatusCode, Version};
use prost::Message;
use services::call::UpstreamCallOutcome;
use services::trace::{RequestTrace, SpanContext, TRACEPARENT};
use services::{UpstreamCallRecord, trace};

use super::otlp::{CLIENT, ExportTraceServiceRequest, INTERNAL, OtlpSpan, OtlpValue, SERVER};
use super::spans::MAX_PATH;
use super::{FinishedRequest, RequestTracer, SpanCounts, TracesConfig, start_trace};

/// An address where nothing listens.
const UNREACHABLE_COLLECTOR: &str = "http://127.0.0.1:1";

fn config(sample: f64) -> TracesConfig {
    let headers = Default::default();
    TracesConfig { otlp: UNREACHABLE_COLLECTOR.into(), sample, service_name: "orfa".into(), headers }
}

fn tracer(sample: f64) -> Option<Arc<RequestTracer>> {
    RequestTracer::new(&config(sample), Arc::default()).map(Arc::new)
}

fn traceparent(sampled: bool) -> HeaderMap {
    let context = SpanContext { trace_id: 7, span_id: 8, sampled };
    HeaderMap::from_iter([(TRACEPARENT, context.to_string().parse().unwrap())])
}

/// Returns the trace context that services receive, and whether the request is recorded.
fn trace_decision(
    tracer: Option<&Arc<RequestTracer>>,
    headers: &HeaderMap,
    is_trusted: bool,
) -> (Option<SpanContext>, bool) {
    let trace = start_trace(tracer, headers, is_trusted);
    let mut told = HeaderMap::new();
    trace.trace.inject_headers(&mut told, 0);
    (SpanContext::from_headers(&told), trace.trace.is_recorded())
}

#[tokio::test]
async fn untrusted_clients_do_not_decide_about_sampling() {
    let (never, always) = (tracer(0.0), tracer(1.0));
    for wish in [true, false] {
        let (context, is_recorded) = trace_decision(never.as_ref(), &traceparent(wish), false);
        assert_eq!(
            (context, is_recorded),
            (Some(SpanContext { trace_id: 7, span_id: 8, sampled: false }), false)
        );
        let (span_context, is_recorded) = trace_decision(always.as_ref(), &traceparent(wish), false);
        let told = span_context.expect("a context");
        assert_eq!((told.trace_id, told.sampled, is_recorded), (7, true, true));
        assert_ne!(told.span_id, 8, "the call is a span of its own");
    }
    assert_eq!(trace_decision(never.as_ref(), &HeaderMap::new(), false), (None, false));
    assert!(trace_decision(always.as_ref(), &HeaderMap::new(), false).1);
}

#[tokio::test]
async fn trusted_proxies_decide_about_sampling() {
    let (never, always) = (tracer(0.0), tracer(1.0));
    assert!(trace_decision(never.as_ref(), &traceparent(true), true).1);
    assert!(!trace_decision(always.as_ref(), &traceparent(false), true).1);
    assert!(trace_decision(always.as_ref(), &HeaderMap::new(), true).1, "no proxy has decided yet");
}

#[test]
fn forwards_trace_context_unchanged_without_a_collector() {
    for sampled in [true, false] {
        let told = trace_decision(None, &traceparent(sampled), false);
        assert_eq!(told, (Some(SpanContext { trace_id: 7, span_id: 8, sampled }), false));
    }
    assert_eq!(trace_decision(None, &HeaderMap::new(), false), (None, false));
}

fn upstream_call(path: &str, outcome: UpstreamCallOutcome, again: &[Duration]) -> UpstreamCallRecord {
    let again = again.to_vec();
    let span = (Duration::from_millis(1), Some(Duration::from_millis(2)));
    let (service, method, path) = ("up".into(), Method::GET, path.to_owned());
    UpstreamCallRecord { service, method, path, address: None, outcome, retry_times: again, span }
}

fn default_spans() -> Vec<OtlpSpan> {
    request_spans("/query", "/b")
}

/// Returns the spans of a request for `path`, whose second call is for `called`.
fn request_spans(path: &str, called: &str) -> Vec<OtlpSpan> {
    let ours = SpanContext { trace_id: 7, span_id: 9, sampled: true };
    let trace = RequestTrace::new_recorded(ours, None);
    drop(trace.start_phase("run"));
    let began = Instant::now();
    let again = [Duration::from_micros(1200), Duration::from_micros(1500)];
    let records = [
        upstream_call("/a?secret=hush", UpstreamCallOutcome::Status(200), &[]),
        upstream_call(called, UpstreamCallOutcome::NoAnswer, &again),
    ];
    let request = FinishedRequest {
        trace: &trace,
        context: ours,
        parent: Some(8),
        started_at: (began, SystemTime::UNIX_EPOCH + Duration::from_secs(1)),
        response_started_at: Some(began + Duration::from_millis(3)),
        duration: Duration::from_millis(5),
        method: &Method::from_bytes(b"BREW").unwrap(),
        path,
        version: Version::HTTP_2,
        client: "127.0.0.1".to_owned(),
        route: Some(("/query", "query")),
        status: Some(StatusCode::BAD_GATEWAY),
        code: Some("upstream-broken"),
        upstream_calls: (&records, began),
    };
    request.spans()
}

fn attribute(span: &OtlpSpan, key: &str) -> Option<String> {
    let value = span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    Some(match value {
        OtlpValue::String(text) => text,
        OtlpValue::Int(number) => number.to_string(),
    })
}

#[test]
fn a_request_span_contains_its_phases_and_calls() {
    let spans = default_spans();
    let kinds: Vec<_> = spans.iter().map(|span| (&*span.name, span.kind)).collect();
    let calls = [("GET up", CLIENT), ("GET up", CLIENT)];
    assert_eq!(
        kinds[..5],
        [&[("HTTP /query", SERVER), ("run", INTERNAL), ("response", INTERNAL)], &calls[..]].concat()
    );
    assert_eq!(spans[0].parent_span_id, 8u64.to_be_bytes());
    assert!(spans[1..5].iter().all(|span| span.parent_span_id == 9u64.to_be_bytes()));
    assert!(spans.iter().all(|span| span.trace_id == 7u128.to_be_bytes()));
    assert_eq!(spans[0].start_time_unix_nano, 1_000_000_000);
    assert_eq!(spans[0].end_time_unix_nano, 1_005_000_000);
    assert_eq!((spans[2].start_time_unix_nano, spans[2].end_time_unix_nano), (1_003_000_000, 1_005_000_000));
    assert_eq!(spans[3].end_time_unix_nano - spans[3].start_time_unix_nano, 1_000_000);
    for (span, key, value) in [
        (0, "http.request.method", "_OTHER"),
        (0, "http.route", "/query"),
        (0, "http.response.status_code", "502"),
        (0, "error.type", "upstream-broken"),
        (0, "network.protocol.version", "2"),
        (3, "url.path", "/a"),
        (3, "http.response.status_code", "200"),
        (4, "error.type", "no-answer"),
        (4, "http.request.resend_count", "2"),
    ] {
        assert_eq!(attribute(&spans[span], key).as_deref(), Some(value), "{key} of span {span}");
    }
    assert!(!format!("{spans:?}").contains("hush"), "a query string has left");
    let bytes = ExportTraceServiceRequest::default().encode_to_vec();
    assert_eq!(ExportTraceServiceRequest::decode(&*bytes), Ok(ExportTraceServiceRequest::default()));
}

#[test]
fn truncates_long_paths_in_spans() {
    let long = "/ü".repeat(MAX_PATH);
    let spans = request_spans(&long, &long);
    for span in [0, 4] {
        let path = attribute(&spans[span], "url.path").expect("a path");
        assert!(long.starts_with(&path) && (MAX_PATH - 1..=MAX_PATH).contains(&path.len()), "{}", path.len());
    }
    let just = "a".repeat(MAX_PATH);
    assert_eq!(attribute(&request_spans(&just, "/")[0], "url.path"), Some(just));
}

#[test]
fn a_retried_call_has_a_span_for_each_attempt() {
    let spans = default_spans();
    let attempts: Vec<_> = spans.iter().filter(|span| span.name == "attempt").collect();
    assert_eq!(attempts.len(), 3, "a call that was sent once has none");
    assert!(attempts.iter().all(|span| span.parent_span_id == spans[4].span_id));
    let times = attempts.iter().map(|span| (span.start_time_unix_nano, span.end_time_unix_nano));
    let micros = [(1000, 1200), (1200, 1500), (1500, 2000)].map(|(from, to)| (from * 1000, to * 1000));
    assert!(times.map(|(from, to)| (from - 1_000_000_000, to - 1_000_000_000)).eq(micros));
    let resent = attempts.iter().map(|span| attribute(span, "http.request.resend_count"));
    assert!(resent.eq([None, Some("1".to_owned()), Some("2".to_owned())]));
    let failed = attempts.iter().map(|span| span.status.is_some());
    assert!(failed.eq([true, true, false]), "the call's own span has the result of the last one");
    let ids: std::collections::HashSet<_> = spans.iter().map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), spans.len(), "two spans have one id");
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_collector_only_costs_spans_which_are_counted() {
    let tally = Arc::<SpanCounts>::default();
    let tracer = RequestTracer::new(&config(1.0), Arc::clone(&tally)).unwrap();
    let spans = default_spans();
    let rounds = (1 << 15) / spans.len();
    // Nothing takes them meanwhile: the queue fills, and the excess is dropped at once.
    (0..rounds).for_each(|_| tracer.exporter.push(spans.clone()));
    let dropped = tally.dropped.load(Relaxed);
    assert_eq!(dropped, (rounds * spans.len() - (1 << 14)) as u64);
    drop(tracer);
    while tally.failed.load(Relaxed) < 1 << 14 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(tally.exported.load(Relaxed), 0);
}

#[test]
fn validates_the_config() {
    let right = config(0.5);
    assert!(right.mistakes().is_empty());
    for otlp in ["collector:4318", "ftp://collector", "http://me:secret@collector", "http://", "http://c?x=1"]
    {
        let traces_config = TracesConfig { otlp: otlp.into(), ..right.clone() };
        assert_eq!(traces_config.mistakes().len(), 1, "{otlp}");
    }
    let headers = [("bad name".to_owned(), "x".to_owned()), ("good".to_owned(), "bad\n".to_owned())];
    let wrong = TracesConfig { sample: 1.5, headers: headers.into(), ..right };
    let fields: Vec<_> = wrong.mistakes().into_iter().map(|error| error.field).collect();
    assert_eq!(fields, ["/sample", "/headers/bad name", "/headers/good"]);
}

#[test]
fn clones_of_a_trace_share_its_phases() {
    let trace =
        trace::RequestTrace::new_recorded(SpanContext { trace_id: 1, span_id: 2, sampled: true }, None);
    drop(trace.clone().start_phase("run"));
    assert_eq!(trace.completed_phases().len(), 1, "clones are of the same trace");
}
