//! Streaming of long responses.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use handler::{HandlerRequest, HandlerResponse};
use http_body::Body as _;
use http_body_util::BodyExt;
use services::coop::TURN_BYTES;
use services::{
    ReceivedAccounts, ReceivedLimit, ReceivedPermit, RequestBudget, RequestCall, StreamedServiceBody,
};

use super::fixture::AggregateFixture;
use crate::value::stream::STREAM_BUFFER_BYTES;

const THREE_PARTS: &str = r#"{"parts": {"small": {"get": "profile/small"}, "long": {"get": "catalog/long"}, "other": {"get": "order/other", "optional": true}}}"#;

/// The account of a single request, without a limit: the number of bytes that count.
#[derive(Clone, Debug, Default)]
struct RequestAccount(Arc<AtomicU64>);

#[derive(Debug)]
struct RequestAccountPermit(RequestAccount);

impl ReceivedAccounts for RequestAccount {
    fn open_account(&self, _: IpAddr) -> Box<dyn ReceivedPermit> {
        Box::new(RequestAccountPermit(self.clone()))
    }
}

impl ReceivedPermit for RequestAccountPermit {
    fn try_hold(&self, total: u64) -> Result<(), ReceivedLimit> {
        self.0.0.store(total, Relaxed);
        Ok(())
    }

    fn release(&self) {
        self.0.0.store(0, Relaxed);
    }
}

impl Drop for RequestAccountPermit {
    fn drop(&mut self) {
        self.release();
    }
}

/// Returns the beginning of a long array.
fn long_beginning() -> Bytes {
    format!("[\"{}\"", "x".repeat(STREAM_BUFFER_BYTES)).into()
}

async fn next_data(body: &mut StreamedServiceBody) -> Result<Bytes, services::body::BodyError> {
    Ok(body.frame().await.expect("more of it")?.into_data().expect("data"))
}

#[tokio::test]
async fn streams_before_the_upstream_response_is_complete() {
    let fixture =
        AggregateFixture::new(THREE_PARTS, &[("profile/small", 200, "1"), ("order/other", 500, "")]);
    let mut sender = fixture.open_response_channel("catalog/long");
    sender.send_data(long_beginning()).await.unwrap();
    let HandlerResponse { response, json_tree, .. } = fixture.start_request("/here").await;
    assert!(json_tree.is_none());
    assert_eq!(response.headers()["orfa-parts"], r#"other;status=500;code="part-status""#);
    let mut body = response.into_body();
    let mut text = Vec::new();
    while text.len() < STREAM_BUFFER_BYTES {
        text.extend_from_slice(&next_data(&mut body).await.unwrap());
    }
    sender.send_data(Bytes::from_static(b",2")).await.unwrap();
    text.extend_from_slice(&next_data(&mut body).await.unwrap());
    sender.send_data(Bytes::from_static(b"]")).await.unwrap();
    drop(sender);
    text.extend_from_slice(&body.collect().await.unwrap().to_bytes());
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with(r#"{"small":1,"long":["x"#), "{}", &text[..40]);
    assert!(
        text.contains(r#"x",2],"other":null,"errors":[{"part":"other""#),
        "{}",
        &text[text.len() - 200..]
    );
}

#[tokio::test]
async fn the_beginning_of_a_streamed_response_counts_until_it_is_delivered() {
    let (fixture, account) = (
        AggregateFixture::new(r#"{"parts": {"long": {"get": "catalog/long"}}, "response": "long"}"#, &[]),
        RequestAccount::default(),
    );
    let mut sender = fixture.open_response_channel("catalog/long");
    sender.send_data(long_beginning()).await.unwrap();
    let budget = RequestBudget::new(Duration::from_secs(3600), 10, 1 << 30, 1);
    let budget = budget.with_accounts(Arc::new(account.clone()), [192, 0, 2, 1].into());
    let call = RequestCall { budget: Arc::new(budget), ..RequestCall::unlimited() };
    let request = http::Request::get("/here").body(services::body::empty()).unwrap();
    let response = fixture.aggregate.handle(HandlerRequest::new(request, call)).await;
    let mut body = response.unwrap_or_else(|problem| panic!("{problem}")).response.into_body();
    assert!(account.0.load(Relaxed) > STREAM_BUFFER_BYTES as u64);
    assert_eq!(next_data(&mut body).await.unwrap(), long_beginning());
    assert_eq!(account.0.load(Relaxed), 0);
    drop(sender);
}

#[tokio::test]
async fn yields_while_checking_a_streamed_response() {
    const PIECE: usize = 1 << 20;
    let fixture =
        AggregateFixture::new(r#"{"parts": {"long": {"get": "catalog/long"}}, "response": "long"}"#, &[]);
    let mut sender = fixture.open_response_channel("catalog/long");
    sender.send_data(long_beginning()).await.unwrap();
    let mut body = fixture.start_request("/here").await.response.into_body();
    for _ in 0..4 {
        sender.send_data(Bytes::from(vec![b' '; PIECE])).await.unwrap();
    }
    sender.send_data(Bytes::from_static(b"]")).await.unwrap();
    drop(sender);
    let (mut length, mut waits) = (0, 0);
    loop {
        let frame = poll_fn(|context| {
            let polled = Pin::new(&mut body).poll_frame(context);
            waits += usize::from(polled.is_pending());
            polled
        });
        let Some(frame) = frame.await else { break };
        length += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(length, long_beginning().len() + 4 * PIECE + 1);
    // All data has arrived, so only the ends of turns cause waits.
    assert!(waits >= 4 * PIECE / TURN_BYTES, "{waits} turns");
}

#[tokio::test]
async fn yields_while_checking_the_beginning_of_a_streamed_response() {
    const TURNS: usize = 32;
    let fixture =
        AggregateFixture::new(r#"{"parts": {"long": {"get": "catalog/long"}}, "response": "long"}"#, &[]);
    let mut sender = fixture.open_response_channel("catalog/long");
    let frame = format!("[\"{}\"]", "x".repeat(TURNS * TURN_BYTES));
    sender.send_data(Bytes::from(frame)).await.unwrap();
    drop(sender);
    let mut begin = Box::pin(fixture.start_request("/here"));
    let mut waits = 0;
    poll_fn(|context| {
        let polled = begin.as_mut().poll(context);
        waits += usize::from(polled.is_pending());
        polled.map(drop)
    })
    .await;
    // All data has arrived, so only the ends of turns cause waits.
    assert!(waits >= TURNS, "{waits} turns");
}

#[tokio::test]
async fn aborts_a_streamed_response_with_invalid_json() {
    for end in ["]]", "", "<html>"] {
        let fixture =
            AggregateFixture::new(r#"{"parts": {"long": {"get": "catalog/long"}}, "response": "long"}"#, &[]);
        let mut sender = fixture.open_response_channel("catalog/long");
        sender.send_data(long_beginning()).await.unwrap();
        let body = fixture.start_request("/here").await.response.into_body();
        if !end.is_empty() {
            sender.send_data(Bytes::from_static(end.as_bytes())).await.unwrap();
        }
        drop(sender);
        assert!(body.collect().await.is_err(), "{end}");
    }
}

#[tokio::test]
async fn short_invalid_json_is_an_error_with_a_status() {
    let fixture = AggregateFixture::new(
        r#"{"parts": {"long": {"get": "catalog/long"}}, "response": "long"}"#,
        &[("catalog/long", 200, "[1,")],
    );
    assert_eq!(fixture.get_problem("/here").await.0, "part-not-json");
}
