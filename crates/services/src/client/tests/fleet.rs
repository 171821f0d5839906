//! Simulated endpoints without a network, so that tests can run with paused time.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use tokio::sync::watch;

use super::*;
use crate::body::{StreamedServiceBody, empty, full};
use crate::transport::{RequestEndpoint, ServiceTransport, TransportError};
use crate::{EndpointStats, NameResolver, ServiceStats};

/// The behaviour of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointBehaviour {
    /// Responds with this status.
    Answer(u16),
    /// Responds with 200 after this number of milliseconds.
    Wait(u64),
    /// Responds with 200 and 100,000 bytes after this number of milliseconds.
    WaitLarge(u64),
    /// Responds with 200 and a body that never ends.
    Stall,
    /// Refuses the connection.
    Refuse,
    /// Breaks the connection after the request.
    Break,
    /// Never responds.
    Hang,
    /// Responds with 200 at once, and with the request's body while it arrives.
    Echo,
    /// Responds with 200 and half a body, and then breaks the connection.
    Cut,
    /// Breaks the connection if the request is not complete after this number of milliseconds.
    GiveUp(u64),
    /// Responds with this status if the request is broken, or not complete after this number of milliseconds.
    Reject(u64, u16),
    /// Like `Reject`, but waits for two seconds before it reads each part of the request.
    RejectSlowly(u64, u16),
}

/// Simulated endpoints and names, with a record of the requests.
#[derive(Default)]
pub(super) struct SimulatedFleet {
    behaviours: Mutex<HashMap<SocketAddr, EndpointBehaviour>>,
    names: Mutex<HashMap<String, Vec<SocketAddr>>>,
    pub(super) lookup_count: watch::Sender<usize>,
    /// The port, method, path and body of each request that was sent.
    sent_requests: Mutex<Vec<(u16, String)>>,
}

impl SimulatedFleet {
    /// Sets the behaviour of the endpoints at these ports.
    pub(super) fn set_behaviour(&self, ports: &[u16], behaviour: EndpointBehaviour) {
        self.behaviours.lock().unwrap().extend(ports.iter().map(|port| (endpoint_address(*port), behaviour)));
    }

    /// Sets the addresses of a name, by port. Without ports, the lookup fails.
    pub(super) fn set_addresses(&self, name: &str, ports: &[u16]) {
        self.names
            .lock()
            .unwrap()
            .insert(name.to_owned(), ports.iter().map(|port| endpoint_address(*port)).collect());
    }

    /// Takes the requests sent to a port since the last call: `GET /path body`.
    pub(super) fn take_sent(&self, port: u16) -> Vec<String> {
        let mut sent = self.sent_requests.lock().unwrap();
        let (here, elsewhere) = sent.drain(..).partition(|(to, _)| *to == port);
        *sent = elsewhere;
        here.into_iter().map(|(_, what)| what).collect()
    }

    /// Takes all requests since the last call and returns their number.
    pub(super) fn take_sent_count(&self) -> usize {
        self.sent_requests.lock().unwrap().drain(..).count()
    }

    /// Creates services with these targets for the service `shop`.
    pub(super) fn shop(
        self: &Arc<Self>,
        urls: &[&str],
        change: impl FnOnce(&mut ServiceConfig),
    ) -> (ServiceSet, Arc<UpstreamService>) {
        let services = ServiceSet::new(&config(urls, change)).unwrap();
        let services = services.with_transport(self.clone()).with_resolver(self.clone());
        let shop = services.get("shop").unwrap().clone();
        (services, shop)
    }
}

/// Returns a config with one service, `shop`.
pub(super) fn config(
    urls: &[&str],
    change: impl FnOnce(&mut ServiceConfig),
) -> BTreeMap<String, ServiceConfig> {
    let mut config = ServiceConfig::with_url("");
    config.url = OneOrMany::Many(urls.iter().map(|url| (*url).to_owned()).collect());
    change(&mut config);
    BTreeMap::from([("shop".to_owned(), config)])
}

/// Three targets.
pub(super) const THREE_TARGETS: [&str; 3] = ["http://10.0.0.1:1", "http://10.0.0.1:2", "http://10.0.0.1:3"];

fn endpoint_address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// Returns the status of a response, or the code of the error.
pub(super) async fn send_request(services: &ServiceSet, shop: &Arc<UpstreamService>, method: &str) -> String {
    let call = RequestCall::unlimited();
    match services.send(&call, shop, request(method, "/")).await {
        Ok(answer) => answer.status.as_u16().to_string(),
        Err(error) => error.code().to_owned(),
    }
}

pub(super) fn stats(services: &ServiceSet) -> ServiceStats {
    services.stats().remove(0)
}

/// Returns the statistics of the endpoint at a port.
pub(super) fn endpoint(services: &ServiceSet, port: u16) -> EndpointStats {
    let mut endpoints = stats(services).endpoints.into_iter();
    endpoints.find(|endpoint| endpoint.address == Some(endpoint_address(port))).expect("an endpoint")
}

impl ServiceTransport for SimulatedFleet {
    fn send(
        &self,
        endpoint: &RequestEndpoint,
        message: http::Request<StreamedServiceBody>,
    ) -> BoxFuture<'static, Result<http::Response<StreamedServiceBody>, TransportError>> {
        let address = endpoint.address.expect("an address");
        let does =
            self.behaviours.lock().unwrap().get(&address).copied().unwrap_or(EndpointBehaviour::Answer(200));
        if does == EndpointBehaviour::Refuse {
            return async { Err(TransportError::Unreachable("refused".into())) }.boxed();
        }
        let what = format!("{} {}", message.method(), message.uri().path());
        self.sent_requests.lock().unwrap().push((address.port(), what));
        async move {
            let answer = |status: u16, body: StreamedServiceBody| {
                Ok(http::Response::builder().status(status).body(body).expect("a response"))
            };
            let body = match does {
                EndpointBehaviour::Echo => message.into_body(),
                EndpointBehaviour::GiveUp(millis) => {
                    let reading =
                        tokio::time::timeout(Duration::from_millis(millis), read_body(message.into_body()));
                    full(reading.await.map_err(|late| TransportError::Broken(late.into()))??)
                }
                EndpointBehaviour::Reject(millis, status) => {
                    let reading =
                        tokio::time::timeout(Duration::from_millis(millis), read_body(message.into_body()));
                    let Ok(Ok(body)) = reading.await else { return answer(status, empty()) };
                    full(body)
                }
                EndpointBehaviour::RejectSlowly(millis, status) => {
                    let reading = read_slowly(message.into_body());
                    let Ok(()) = tokio::time::timeout(Duration::from_millis(millis), reading).await else {
                        return answer(status, empty());
                    };
                    empty()
                }
                _ => full(read_body(message.into_body()).await?),
            };
            match does {
                EndpointBehaviour::Answer(status) => answer(status, body),
                EndpointBehaviour::Echo
                | EndpointBehaviour::GiveUp(_)
                | EndpointBehaviour::Reject(..)
                | EndpointBehaviour::RejectSlowly(..) => answer(200, body),
                EndpointBehaviour::Cut => {
                    answer(200, http_body_util::StreamBody::new(truncated_body()).boxed_unsync())
                }
                EndpointBehaviour::Wait(millis) => {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    answer(200, empty())
                }
                EndpointBehaviour::WaitLarge(millis) => {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    answer(200, full(vec![b'x'; 100_000]))
                }
                EndpointBehaviour::Stall => {
                    answer(200, http_body_util::StreamBody::new(stalled_body()).boxed_unsync())
                }
                EndpointBehaviour::Break => Err(TransportError::Broken("broken".into())),
                EndpointBehaviour::Refuse | EndpointBehaviour::Hang => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// Reads the whole body of a request.
async fn read_body(body: StreamedServiceBody) -> Result<bytes::Bytes, TransportError> {
    Ok(body.collect().await.map_err(TransportError::Broken)?.to_bytes())
}

/// Reads the whole body of a request, and waits for two seconds before each part.
async fn read_slowly(mut body: StreamedServiceBody) {
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        if body.frame().await.is_none() {
            return;
        }
    }
}

/// Returns half a body that never continues.
fn stalled_body()
-> impl futures_util::Stream<Item = Result<http_body::Frame<bytes::Bytes>, crate::body::BodyError>> {
    use futures_util::{StreamExt, stream};
    stream::iter([Ok(http_body::Frame::data("half".into()))]).chain(stream::pending())
}

/// Returns half a body that breaks.
fn truncated_body()
-> impl futures_util::Stream<Item = Result<http_body::Frame<bytes::Bytes>, crate::body::BodyError>> {
    futures_util::stream::iter([Ok(http_body::Frame::data("half".into())), Err("cut".into())])
}

impl NameResolver for SimulatedFleet {
    fn resolve(&self, host: &str, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let found = self.names.lock().unwrap().get(host).cloned().unwrap_or_default();
        self.lookup_count.send_modify(|count| *count += 1);
        let found = if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) };
        async move { found }.boxed()
    }
}
