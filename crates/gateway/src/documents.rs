//! The services' OpenAPI documents: read when a config is put to work, for queries and their types.
//!
//! A file that is no such document is a mistake of the config. A document that is odd in places is not: proxying and
//! queries do without it, so the log says that there is something, and `orfa check` what.

use std::sync::Arc;

use http::Uri;
use json::pointer::below;
use openapi::Document;
use query::Documents;
use services::ServiceConfig;

use crate::config::{Config, Mistake};

/// Reads the documents that a config names, with paths as programs write them.
///
/// # Errors
/// A mistake for each file that is none.
pub fn read(config: &Config) -> Result<Documents, Vec<Mistake>> {
    let (mut documents, mut mistakes) = (Documents::new(), Vec::new());
    for (name, service) in &config.services {
        let Some(file) = &service.openapi else { continue };
        match Document::open(&config.source.folder().join(file)) {
            Ok(document) => {
                let document = document.below(&served(service));
                documents.insert(name.clone(), Arc::new(document));
            }
            Err(error) => {
                let pointer = below(&below("/services", name), "openapi");
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

/// Tells the log which documents are odd.
pub(crate) fn warn(documents: &Documents) {
    for (service, document) in documents.iter().filter(|(_, document)| !document.findings.is_empty()) {
        let odd = document.findings.len();
        tracing::warn!(service, odd, "the OpenAPI document is odd in places; `orfa check` tells which");
    }
}

/// The path of a service's URL.
fn served(service: &ServiceConfig) -> String {
    let url = service.url.as_slice().first().and_then(|url| url.parse::<Uri>().ok());
    url.map(|url| url.path().to_owned()).unwrap_or_default()
}
