//! The services' OpenAPI documents, read when a config is activated, for queries and their types.
//!
//! A file that isn't an OpenAPI document is a mistake of the config. A document with questionable parts is
//! not, since proxying and queries work without them: the log counts them, and `orfa check` lists them.

use std::sync::Arc;

use diagnostics::Diagnostic;
use http::Uri;
use json::pointer::append_step;
use openapi::OpenApiDocument;
use query::RouteDocuments;
use services::ServiceConfig;

use crate::config::GatewayConfig;

/// Reads the documents that a config names, with paths as programs write them.
///
/// # Errors
/// A mistake for each file that is not an OpenAPI document.
pub fn read_documents(config: &GatewayConfig) -> Result<RouteDocuments, Vec<Diagnostic>> {
    let (mut documents, mut mistakes) = (RouteDocuments::new(), Vec::new());
    for (name, service) in &config.services {
        let Some(file) = &service.openapi else { continue };
        match OpenApiDocument::open(&config.source.folder().join(file)) {
            Ok(document) => {
                let document = document.relative_to(&base_path(service));
                documents.insert(name.clone(), Arc::new(document));
            }
            Err(error) => {
                let pointer = append_step(&append_step("/services", name), "openapi");
                let hint = "name the service's OpenAPI document, JSON or YAML, relative to the config; or leave it out";
                mistakes.push(config.source.mistake(
                    &pointer,
                    format!("{file}: {error}"),
                    Some(hint.to_owned()),
                ));
            }
        }
    }
    if mistakes.is_empty() { Ok(documents) } else { Err(mistakes) }
}

/// Logs the number of findings in each document.
pub(crate) fn log_findings(documents: &RouteDocuments) {
    for (service, document) in documents.iter().filter(|(_, document)| !document.warnings.is_empty()) {
        let odd = document.warnings.len();
        tracing::warn!(service, odd, "the OpenAPI document has questionable parts; `orfa check` lists them");
    }
}

/// The path of a service's URL.
fn base_path(service: &ServiceConfig) -> String {
    let url = service.url.as_slice().first().and_then(|url| url.parse::<Uri>().ok());
    url.map(|url| url.path().to_owned()).unwrap_or_default()
}
