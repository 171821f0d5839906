//! The admin listener: Prometheus metrics, on a port of its own that only the operator can reach.
//!
//! It answers `GET /metrics` and nothing that changes state. (Health and more metrics come with the
//! operator's part of the gateway.)

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::listen::Listener;

/// The media type of the OpenMetrics text format, version 1.0.0.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the operator sees of a gateway.
pub struct Admin {
    listener: TcpListener,
    registry: Arc<Registry>,
}

/// Reads the cache of compiled programs when it is asked.
#[derive(Debug)]
struct ProgramCache(Cache);

/// A handle that can be printed, as the registry wants it.
struct Cache(Arc<query::Runtime>);

impl Admin {
    pub(crate) fn new(listener: Listener, runtime: Option<Arc<query::Runtime>>) -> io::Result<Self> {
        let mut registry = Registry::with_prefix("orfa");
        if let Some(runtime) = runtime {
            registry.register_collector(Box::new(ProgramCache(Cache(runtime))));
        }
        let listener = listener.into_tokio()?;
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "admin listening");
        }
        Ok(Self { listener, registry: Arc::new(registry) })
    }

    /// Answers until it is dropped.
    pub async fn serve(self) {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else { continue };
            let registry = self.registry.clone();
            let service = service_fn(move |request| {
                let answer = answer(&registry, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    }
}

fn answer(registry: &Registry, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let mut text = String::new();
    let found = request.method() == Method::GET && request.uri().path() == "/metrics";
    let status = match (found, encode(&mut text, registry)) {
        (false, _) => StatusCode::NOT_FOUND,
        (true, Ok(())) => StatusCode::OK,
        (true, Err(_)) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = if status == StatusCode::OK { text } else { String::new() };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(OPEN_METRICS));
    response
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.cache().fmt(formatter)
    }
}

impl Collector for ProgramCache {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stats = self.0.0.cache();
        let mut gauge = |name: &str, help: &str, value: usize| {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)
        };
        gauge("program_cache_bytes", "Bytes of compiled programs that are kept", stats.bytes)?;
        gauge("program_cache_items", "Compiled programs that are kept", stats.items)?;
        let mut counter = |name: &str, help: &str, value: u64| {
            let counter = ConstCounter::new(value);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)
        };
        counter("program_cache_hits", "Requests whose program was compiled already", stats.hits)?;
        counter("program_cache_misses", "Requests whose program had to be compiled", stats.misses)?;
        counter("program_cache_evictions", "Compiled programs that were pushed out", stats.evictions)
    }
}
