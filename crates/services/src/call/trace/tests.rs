//! Parsing of trace headers, and their propagation to services.

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::{RequestTrace, SpanContext, TRACEPARENT, TRACESTATE};

const TRACEPARENT_VALUE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn headers(fields: &[(http::HeaderName, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(name, HeaderValue::from_static(value));
    }
    headers
}

fn injected_headers(trace: &RequestTrace, call: usize) -> HeaderMap {
    let mut headers = headers(&[(TRACEPARENT, "forged"), (TRACESTATE, "forged=1")]);
    trace.inject_headers(&mut headers, call);
    headers
}

#[test]
fn rejects_a_malformed_traceparent() {
    for bad in [
        "",
        "00",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
        "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
        "+0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ] {
        assert_eq!(SpanContext::parse(bad.as_bytes()), None, "{bad}");
    }
    assert_eq!(
        SpanContext::from_headers(&headers(&[
            (TRACEPARENT, TRACEPARENT_VALUE),
            (TRACEPARENT, TRACEPARENT_VALUE)
        ])),
        None,
        "repeated"
    );
}

#[test]
fn reads_the_known_fields_of_future_versions() {
    let context = SpanContext::parse(TRACEPARENT_VALUE.as_bytes()).unwrap();
    for later in
        ["cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-brings", TRACEPARENT_VALUE]
    {
        assert_eq!(SpanContext::parse(later.as_bytes()), Some(context));
    }
    assert_eq!((context.span_id, context.sampled), (0x00f0_67aa_0ba9_02b7, true));
    let quiet = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-fe";
    assert!(!SpanContext::parse(quiet.as_bytes()).unwrap().sampled);
}

#[test]
fn propagates_an_unrecorded_trace_unchanged() {
    let client =
        headers(&[(TRACEPARENT, TRACEPARENT_VALUE), (TRACESTATE, "a=1, b@c=2"), (TRACESTATE, ",d=3")]);
    let trace = RequestTrace::new_propagated(SpanContext::from_headers(&client).unwrap(), &client);
    let service = injected_headers(&trace, 7);
    assert_eq!(
        (&service[TRACEPARENT], &service[TRACESTATE]),
        (&TRACEPARENT_VALUE.parse().unwrap(), &"a=1,b@c=2,d=3".parse().unwrap())
    );
    drop(trace.start_phase("run"));
    assert!(trace.completed_phases().is_empty() && !trace.is_recorded());
    let untold = injected_headers(&RequestTrace::default(), 0);
    assert_eq!(untold[TRACEPARENT], "forged", "without a trace the headers are left alone");
}

#[test]
fn each_call_of_a_recorded_trace_is_a_separate_span() {
    let ours = SpanContext { trace_id: 7, span_id: 8, sampled: true };
    let trace = RequestTrace::new_recorded(ours, None);
    let contexts: Vec<SpanContext> = (0..100)
        .map(|call| SpanContext::from_headers(&injected_headers(&trace, call)).expect("a context"))
        .collect();
    for (call, context) in contexts.iter().enumerate() {
        assert_eq!((context.trace_id, context.sampled), (7, true));
        assert_eq!(*context, ours.child(call));
        assert_ne!(context.span_id, ours.span_id);
        assert!(contexts[..call].iter().all(|other| other.span_id != context.span_id), "call {call}");
    }
    drop(trace.start_phase("run"));
    assert_eq!(trace.completed_phases()[0].name, "run");
}

#[test]
fn drops_a_malformed_tracestate_completely() {
    let long: &'static str = Box::leak(format!("a={}", "x".repeat(2000)).into_boxed_str());
    for bad in ["novalue", "A=1", "a=1,=2", "a=1,b", "a=b=c", "a=", long, "a=\tb"] {
        let client = headers(&[(TRACEPARENT, TRACEPARENT_VALUE), (TRACESTATE, bad)]);
        let trace = RequestTrace::new_propagated(SpanContext::from_headers(&client).unwrap(), &client);
        assert_eq!(injected_headers(&trace, 0).get(TRACESTATE), None, "{bad}");
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = SpanContext::parse(&bytes);
    }

    #[test]
    fn contexts_round_trip(trace_id in 1u128.., span_id in 1u64.., sampled: bool) {
        let context = SpanContext { trace_id, span_id, sampled };
        prop_assert_eq!(SpanContext::parse(context.to_string().as_bytes()), Some(context));
    }
}
