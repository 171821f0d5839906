//! Tests of the transport with real sockets.

mod exchange_properties;
mod http1;
mod http2;
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
        Self::with_folder(config, Path::new("")).unwrap()
    }

    fn with_folder(config: ServiceConfig, folder: &Path) -> Result<Self, Vec<diagnostics::Diagnostic>> {
        ServiceSet::load(&BTreeMap::from([("shop".to_owned(), config)]), folder).map(Self)
    }

    async fn send(
        &self,
        request: http::Request<StreamedServiceBody>,
    ) -> Result<http::Response<StreamedServiceBody>, CallError> {
        let shop = self.0.get("shop").unwrap().clone();
        self.0.forward(&RequestCall::unlimited(), &shop, request, None).await
    }

    async fn start_get(&self, path: &str) -> Result<http::Response<StreamedServiceBody>, CallError> {
        self.send(http::Request::get(path).body(empty()).unwrap()).await
    }

    /// Returns the complete body of a response.
    async fn get(&self, path: &str) -> Result<Bytes, CallError> {
        Ok(read_body(self.start_get(path).await?).await)
    }

    async fn get_error_code(&self, path: &str) -> &'static str {
        self.start_get(path).await.err().map_or("nothing failed", |error| error.code())
    }
}

async fn read_body(response: http::Response<StreamedServiceBody>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

fn config_with_protocol(url: String, protocol: ServiceProtocol) -> ServiceConfig {
    ServiceConfig { protocol, ..ServiceConfig::with_url(url) }
}

fn config_with_tls(url: String, tls: ServiceTlsConfig) -> ServiceConfig {
    ServiceConfig { url: OneOrMany::One(url), tls: Some(tls), ..ServiceConfig::with_url("") }
}
