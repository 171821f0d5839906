//! Tests that counts are correct, that their number is bounded and that the text is well formed.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};

use super::{CountedRequest, GatewayMetrics, MetricsPage};

fn completed_request<'a>(method: &'a Method, status: Option<StatusCode>) -> CountedRequest<'a> {
    let took = Duration::from_millis(3);
    CountedRequest { method, status, duration: took, bytes_received: 5, bytes_sent: 7, cpu: None }
}

fn render_metrics(metrics: &Arc<GatewayMetrics>) -> String {
    let metrics = Arc::clone(metrics);
    MetricsPage::render(move |page| metrics.write(page)).unwrap()
}

#[test]
fn counts_requests_by_route_and_known_method() {
    let metrics = Arc::new(GatewayMetrics::default());
    let route = metrics.route("/catalog/*", "proxy");
    for method in ["GET", "GET", "BREW", "WHEN"] {
        route.begin_request();
        route.end_request(&completed_request(
            &Method::from_bytes(method.as_bytes()).unwrap(),
            Some(StatusCode::OK),
        ));
    }
    route.begin_request();
    route.begin_request();
    route.end_request(&completed_request(&Method::GET, None));
    let text = render_metrics(&metrics);
    for line in [
        r#"orfa_requests_total{route="/catalog/*",handler="proxy",method="GET",status="2xx"} 2"#,
        r#"orfa_requests_total{route="/catalog/*",handler="proxy",method="other",status="2xx"} 2"#,
        r#"orfa_requests_total{route="/catalog/*",handler="proxy",method="GET",status="client-closed-request"} 1"#,
        r#"orfa_requests_in_flight{route="/catalog/*",handler="proxy"} 1"#,
        r#"orfa_request_body_bytes_total{route="/catalog/*",handler="proxy"} 25"#,
        r#"orfa_response_body_bytes_total{route="/catalog/*",handler="proxy"} 35"#,
        r#"orfa_request_duration_seconds_bucket{le="0.005",route="/catalog/*",handler="proxy"} 5"#,
        r#"orfa_request_duration_seconds_count{route="/catalog/*",handler="proxy"} 5"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn keeps_a_routes_counts_while_a_config_has_it() {
    let metrics = GatewayMetrics::default();
    let before = metrics.route("/a", "proxy");
    before.begin_request();
    let after = metrics.route("/a", "proxy");
    assert!(Arc::ptr_eq(&before, &after), "a reload takes the counts over");
    assert!(!Arc::ptr_eq(&before, &metrics.route("/a", "query")), "another handler makes it another route");
    drop((before, after));
    assert_eq!(metrics.routes().len(), 1, "only the metrics of unmatched requests are left");
}

#[test]
fn escapes_special_characters_in_paths() {
    let metrics = Arc::new(GatewayMetrics::default());
    let route = metrics.route("/a\"b\\c\nd", "proxy");
    route.begin_request();
    let text = render_metrics(&metrics);
    assert!(text.contains(r#"route="/a\"b\\c\nd""#), "{text}");
}

#[test]
fn a_connection_is_open_until_it_is_dropped() {
    let metrics = Arc::new(GatewayMetrics::default());
    let connections =
        (metrics.open_connection(false), metrics.open_connection(false), metrics.open_connection(true));
    drop(connections.0);
    let text = render_metrics(&metrics);
    assert!(text.contains("orfa_connections_total{protocol=\"http/1.1\"} 2\n"), "{text}");
    assert!(text.contains("orfa_connections_open{protocol=\"http/1.1\"} 1\n"), "{text}");
}
