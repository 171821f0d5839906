//! Endpoints that do as they are told, at addresses that need no network: so that time can be paused.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration as Time;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use tokio::sync::watch;

use super::*;
use crate::body::{Body, empty, full};
use crate::transport::{Endpoint, Transport, TransportError};
use crate::{EndpointStats, Resolve, ServiceStats};

/// What an endpoint does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// It answers with this status.
    Answer(u16),
    /// It answers 200, after so many milliseconds.
    Wait(u64),
    /// It begins a body of 200 and never ends it.
    Stall,
    /// There is no connection.
    Refuse,
    /// The connection breaks after the request.
    Break,
    /// Nothing ever comes.
    Hang,
}

/// Endpoints, names, and what came to them.
#[derive(Default)]
pub(super) struct Fleet {
    does: Mutex<HashMap<SocketAddr, Does>>,
    names: Mutex<HashMap<String, Vec<SocketAddr>>>,
    pub(super) look_ups: watch::Sender<usize>,
    /// Where each request went that was sent, with its method, path and body.
    sent: Mutex<Vec<(u16, String)>>,
}

impl Fleet {
    /// The endpoints at these ports do this.
    pub(super) fn does(&self, ports: &[u16], what: Does) {
        self.does.lock().unwrap().extend(ports.iter().map(|port| (at(*port), what)));
    }

    /// The name stands for these ports from now on; nothing, and it can't be looked up.
    pub(super) fn name(&self, name: &str, ports: &[u16]) {
        self.names.lock().unwrap().insert(name.to_owned(), ports.iter().map(|port| at(*port)).collect());
    }

    /// The requests that were sent to a port since this was last asked: `GET /path body`.
    pub(super) fn sent(&self, port: u16) -> Vec<String> {
        let mut sent = self.sent.lock().unwrap();
        let (here, elsewhere) = sent.drain(..).partition(|(to, _)| *to == port);
        *sent = elsewhere;
        here.into_iter().map(|(_, what)| what).collect()
    }

    /// How many requests were sent in all since this was last asked.
    pub(super) fn sent_anywhere(&self) -> usize {
        self.sent.lock().unwrap().drain(..).count()
    }

    /// Services at these targets, of which one is called `shop`.
    pub(super) fn shop(
        self: &Arc<Self>,
        urls: &[&str],
        change: impl FnOnce(&mut ServiceConfig),
    ) -> (Services, Arc<Service>) {
        let services = Services::new(&config(urls, change)).unwrap();
        let services = services.with_transport(self.clone()).with_resolver(self.clone());
        let shop = services.get("shop").unwrap().clone();
        (services, shop)
    }
}

/// A config with one service, `shop`.
pub(super) fn config(
    urls: &[&str],
    change: impl FnOnce(&mut ServiceConfig),
) -> BTreeMap<String, ServiceConfig> {
    let mut config = ServiceConfig::at("");
    config.url = OneOrMany::Many(urls.iter().map(|url| (*url).to_owned()).collect());
    change(&mut config);
    BTreeMap::from([("shop".to_owned(), config)])
}

/// Three targets.
pub(super) const THREE: [&str; 3] = ["http://10.0.0.1:1", "http://10.0.0.1:2", "http://10.0.0.1:3"];

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// The status of an answer, or the code of the problem.
pub(super) async fn ask(services: &Services, shop: &Arc<Service>, method: &str) -> String {
    let call = Call::unlimited();
    match services.send(&call, shop, request(method, "/")).await {
        Ok(answer) => answer.status.as_u16().to_string(),
        Err(error) => error.code().to_owned(),
    }
}

pub(super) fn stats(services: &Services) -> ServiceStats {
    services.stats().remove(0)
}

/// The stats of the endpoint at a port.
pub(super) fn endpoint(services: &Services, port: u16) -> EndpointStats {
    let mut endpoints = stats(services).endpoints.into_iter();
    endpoints.find(|endpoint| endpoint.address == Some(at(port))).expect("an endpoint")
}

impl Transport for Fleet {
    fn send(
        &self,
        endpoint: &Endpoint,
        message: http::Request<Body>,
    ) -> BoxFuture<'static, Result<http::Response<Body>, TransportError>> {
        let address = endpoint.address.expect("an address");
        let does = self.does.lock().unwrap().get(&address).copied().unwrap_or(Does::Answer(200));
        if does == Does::Refuse {
            return async { Err(TransportError::Unreachable("refused".into())) }.boxed();
        }
        let what = format!("{} {}", message.method(), message.uri().path());
        self.sent.lock().unwrap().push((address.port(), what));
        async move {
            let body = message.into_body().collect().await.map_err(TransportError::Broken)?.to_bytes();
            let answer = |status: u16, body: Body| {
                Ok(http::Response::builder().status(status).body(body).expect("a response"))
            };
            match does {
                Does::Answer(status) => answer(status, full(body)),
                Does::Wait(millis) => {
                    tokio::time::sleep(Time::from_millis(millis)).await;
                    answer(200, empty())
                }
                Does::Stall => answer(200, http_body_util::StreamBody::new(stalled()).boxed_unsync()),
                Does::Break => Err(TransportError::Broken("broken".into())),
                Does::Refuse | Does::Hang => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// Half a body.
fn stalled() -> impl futures_util::Stream<Item = Result<http_body::Frame<bytes::Bytes>, crate::body::Error>> {
    use futures_util::{StreamExt, stream};
    stream::iter([Ok(http_body::Frame::data("half".into()))]).chain(stream::pending())
}

impl Resolve for Fleet {
    fn resolve(&self, host: &str, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let found = self.names.lock().unwrap().get(host).cloned().unwrap_or_default();
        self.look_ups.send_modify(|count| *count += 1);
        let found = if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) };
        async move { found }.boxed()
    }
}
