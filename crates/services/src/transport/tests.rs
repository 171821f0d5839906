//! Tests of the transport with real sockets.

mod http1;
mod http2;
mod law;
mod names;
mod pool;
mod target;
mod tls;

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use http_body_util::BodyExt;

use crate::body::{StreamedServiceBody, empty};
use crate::config::{OneOrMany, ServiceConfig, ServiceProtocol, ServiceTlsConfig};
use crate::{CallError, RequestCall, ServiceSet, ToProblem};

/// A client for the service `shop`.
struct ShopClient(ServiceSet);

impl ShopClient {
    fn new(config: ServiceConfig) -> Self {
        Self::reading(config, Path::new("")).unwrap()
    }

    fn reading(config: ServiceConfig, folder: &Path) -> Result<Self, Vec<crate::ConfigProblem>> {
        ServiceSet::read(&BTreeMap::from([("shop".to_owned(), config)]), folder).map(Self)
    }

    async fn send(
        &self,
        request: http::Request<StreamedServiceBody>,
    ) -> Result<http::Response<StreamedServiceBody>, CallError> {
        let shop = self.0.get("shop").unwrap().clone();
        self.0.forward(&RequestCall::unlimited(), &shop, request).await
    }

    async fn begin(&self, path: &str) -> Result<http::Response<StreamedServiceBody>, CallError> {
        self.send(http::Request::get(path).body(empty()).unwrap()).await
    }

    /// Returns the complete body of a response.
    async fn get(&self, path: &str) -> Result<Bytes, CallError> {
        Ok(all(self.begin(path).await?).await)
    }

    async fn fails(&self, path: &str) -> &'static str {
        self.begin(path).await.err().map_or("nothing failed", |error| error.code())
    }
}

async fn all(response: http::Response<StreamedServiceBody>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

fn at(url: String, protocol: ServiceProtocol) -> ServiceConfig {
    ServiceConfig { protocol, ..ServiceConfig::at(url) }
}

fn trusting(url: String, tls: ServiceTlsConfig) -> ServiceConfig {
    ServiceConfig { url: OneOrMany::One(url), tls: Some(tls), ..ServiceConfig::at("") }
}
