//! Traces and the access log: spans in a third-party collector, and the matching log lines.

mod receiver;

use serde_json::Value;
use testkit::http;

use crate::support::{TestGateway, TestQuery};
use receiver::{ReceivedSpan, TraceReceiver};

/// The trace and the span of the client.
const PARENT: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");

async fn start_gateway(receiver: &TraceReceiver) -> TestGateway {
    let routes = format!(
        "
  - {{ path: /query, query: {{ services: [up, dead] }} }}
  - {{ path: /up/*, proxy: up }}
drain: {{ delay: 0s }}
traces: {{ otlp: '{}', sample: 1, service_name: shop, headers: {{ x-tenant: seven }} }}
",
        receiver.url
    );
    TestGateway::start(&routes).await
}

fn traceparent() -> String {
    format!("00-{}-{}-01", PARENT.0, PARENT.1)
}

/// Returns the trace id and the span id of a `traceparent`.
fn trace_and_span_ids(traceparent: &Value) -> (String, String) {
    let text = traceparent.as_str().expect("a traceparent");
    let parts: Vec<&str> = text.split('-').collect();
    assert_eq!((parts[0], parts[3]), ("00", "01"), "{text}");
    (parts[1].to_owned(), parts[2].to_owned())
}

#[track_caller]
fn span_named<'a>(spans: &'a [ReceivedSpan], name: &str) -> &'a ReceivedSpan {
    let mut found = spans.iter().filter(|span| span.name == name);
    let received_span = found.next().unwrap_or_else(|| panic!("no {name} in {spans:#?}"));
    assert!(found.next().is_none(), "two of {name} in {spans:#?}");
    received_span
}

#[tokio::test]
async fn a_query_continues_the_clients_trace_to_the_services() {
    let receiver = TraceReceiver::start().await;
    let mut gateway = start_gateway(&receiver).await;
    let program = "export default async (_, { up, dead }) => {
        const first = await up.get('/echo', { secret: 'hush' });
        await dead.get('/json').catch(() => 0);
        return first.headers;
    }";
    let query =
        TestQuery::javascript(program).header("traceparent", &traceparent()).header("tracestate", "a=1");
    let value: Value = serde_json::from_str(&gateway.expect_text(query).await).expect("JSON");
    assert_eq!(value["tracestate"], "a=1");
    let (trace, span) = trace_and_span_ids(&value["traceparent"]);
    assert_eq!(trace, PARENT.0);
    assert!(gateway.gateway.terminate().await.success());

    let spans = receiver.spans(8).await;
    assert!(spans.iter().all(|span| span.trace_id == PARENT.0), "{spans:#?}");
    let request = span_named(&spans, "POST /query");
    assert_eq!((&*request.parent_id, &*request.kind), (PARENT.1, "SPAN_KIND_SERVER"));
    assert_eq!(request.attribute("http.response.status_code"), "Int(200)");
    assert_eq!(request.attribute("http.route"), "Str(/query)");
    for phase in ["read", "compile", "queue", "run", "response"] {
        let phase = span_named(&spans, phase);
        assert_eq!((&phase.parent_id, &*phase.kind), (&request.id, "SPAN_KIND_INTERNAL"));
    }
    let call = span_named(&spans, "GET up");
    assert_eq!((&call.id, &call.parent_id), (&span, &request.id), "the service received the id of this span");
    assert_eq!((&*call.kind, call.attribute("peer.service")), ("SPAN_KIND_CLIENT", "Str(up)"));
    assert_eq!(call.attribute("http.response.status_code"), "Int(200)");
    assert_eq!(call.attribute("url.path"), "Str(/echo)");
    let failed = span_named(&spans, "GET dead");
    assert_eq!((failed.attribute("error.type"), &*failed.status), ("Str(not-sent)", "STATUS_CODE_ERROR"));
    let text = receiver.printed_text();
    assert!(text.contains("service.name: Str(shop)") && !text.contains("hush"), "{text}");
}

#[tokio::test]
async fn a_proxied_request_is_traced_and_logged_with_its_trace() {
    let receiver = TraceReceiver::start().await;
    let mut gateway = start_gateway(&receiver).await;
    let url = format!("{}/up/echo?secret=hush", gateway.gateway.url);
    let headers = [("traceparent", "00-malformed-01"), ("tracestate", "a=1")];
    let answer = http::request("GET", &url, &headers, "").await.expect("an answer");
    let (trace, span) = trace_and_span_ids(&answer.json()["headers"]["traceparent"]);
    assert_eq!(answer.json()["headers"]["tracestate"], Value::Null, "it belongs to an invalid trace");
    let line =
        gateway.gateway.wait_for_log(|line| line.contains(r#""path":"/up/echo""#)).await.expect("a line");
    let line: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        (&line["trace_id"], &line["service"], &line["upstream_status"]),
        (&trace.clone().into(), &"up".into(), &200.into())
    );
    assert!(line["upstream_ms"].is_number() && !line.to_string().contains("hush"), "{line}");
    assert!(gateway.gateway.terminate().await.success());
    let spans = receiver.spans(3).await;
    let request = span_named(&spans, "GET /up/*");
    assert_eq!((&request.trace_id, &*request.parent_id), (&trace, ""));
    assert_eq!(
        (&span_named(&spans, "GET up").id, &span_named(&spans, "GET up").parent_id),
        (&span, &request.id)
    );
}
