//! The configuration under a route's `graphql:`.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use services::{BytesConfig, CallLimits, DurationConfig};

/// A route that answers GraphQL requests, over services or with a supergraph that was composed elsewhere.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphqlConfig {
    /// The names of the services that make up the schema. Each must have `openapi` or `graphql`.
    #[serde(default)]
    pub services: Vec<String>,
    /// A file that links types of one service to data of others, and that renames, hides and describes types
    /// and fields. The path is relative to the config.
    #[serde(default)]
    pub links: Option<PathBuf>,
    /// A supergraph (Apollo Federation v2) that replaces `services`. The path is relative to the config. Its
    /// subgraphs are the services of the same names, each of which must have `graphql`.
    #[serde(default)]
    pub supergraph: Option<PathBuf>,
    /// Whether the schema has `Mutation`: the operations of REST services other than `GET`, and the mutations
    /// of GraphQL services.
    #[serde(default)]
    pub mutations: bool,
    /// The callers that may use introspection.
    #[serde(default)]
    pub introspection: IntrospectionAccess,
    /// Whether browsers that open the route's address get GraphiQL.
    #[serde(default = "yes")]
    pub graphiql: bool,
    /// Whether clients may register a document with the gateway and refer to it by its hash afterwards
    /// (Apollo's automatic persisted queries).
    #[serde(default = "yes")]
    pub apq: bool,
    /// Your own documents, which clients refer to by hash or file name: `./documents/*.graphql`.
    #[serde(default)]
    pub documents: Option<DocumentsConfig>,
    /// Coalescing of equal concurrent requests.
    #[serde(default)]
    pub coalesce: CoalesceConfig,
    /// The limits of each request.
    #[serde(default)]
    pub limits: GraphqlLimits,
}

/// The callers that may query the schema itself (`__schema`, `__type`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IntrospectionAccess {
    /// Every caller that may use the route.
    #[default]
    On,
    /// No caller.
    Off,
    /// These callers, by their names in the config.
    #[serde(untagged)]
    Callers(IntrospectionCallers),
}

/// Callers that may use introspection.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IntrospectionCallers {
    /// The names of the callers under `callers`.
    #[schemars(length(min = 1))]
    pub callers: Vec<String>,
}

/// The operator's documents.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DocumentsConfig {
    /// The files. Other documents are accepted too.
    Files(String),
    /// The files, and whether other documents are accepted.
    More(DocumentsOptions),
}

/// The operator's documents, and whether others are accepted.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentsOptions {
    /// The files, relative to the config; `*` matches any name. Clients refer to a document by its hash or by
    /// its file name without the extension.
    pub files: String,
    /// Whether all other documents are rejected.
    #[serde(default)]
    pub only: bool,
}

/// Coalescing of equal concurrent requests. Requests are equal if they have the same method, URL, body and
/// forwarded headers, credentials included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CoalesceConfig {
    /// Whether equal upstream calls share one call while it is in flight. Its response is parsed once.
    pub calls: bool,
    /// Whether equal queries share one execution while it is in flight.
    pub operations: bool,
}

/// The limits of each request to a GraphQL route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GraphqlLimits {
    /// The maximum depth of nested fields, with fragments resolved.
    #[schemars(range(min = 1))]
    pub depth: u32,
    /// The maximum number of fields and fragments in an operation, with fragments resolved.
    #[schemars(range(min = 1))]
    pub selections: u32,
    /// The maximum number of fields with an alias, with fragments resolved.
    pub aliases: u32,
    /// The maximum number of tokens in a document.
    #[schemars(range(min = 1))]
    pub tokens: u32,
    /// The maximum number of `Query` or `Mutation` fields in an operation.
    #[schemars(range(min = 1))]
    pub root_fields: u32,
    /// The maximum cost: the number of fields in an operation, with fragments resolved. Each list multiplies
    /// the cost of the fields below it by ten.
    pub cost: u32,
    /// The maximum number of upstream calls. Equal calls count once.
    pub calls: u32,
    /// The maximum number of upstream calls in flight. Further calls wait.
    #[schemars(range(min = 1))]
    pub concurrency: u32,
    /// The maximum number of bytes received from the services.
    pub upstream_bytes: BytesConfig,
    /// The maximum time from the beginning of the request to the beginning of its response.
    pub timeout: DurationConfig,
    /// The maximum size of the request's body, or of its query.
    pub request_body: BytesConfig,
    /// The maximum size of the response.
    pub response_body: BytesConfig,
}

impl GraphqlLimits {
    /// Returns the limits of the upstream calls of a request.
    pub(crate) fn call_limits(&self) -> CallLimits {
        CallLimits {
            timeout: self.timeout.0,
            calls: self.calls,
            upstream_bytes: self.upstream_bytes.0,
            concurrency: self.concurrency as usize,
        }
    }
}

impl Default for GraphqlLimits {
    fn default() -> Self {
        Self {
            depth: 30,
            selections: 3000,
            aliases: 100,
            tokens: 5000,
            root_fields: 50,
            cost: 100_000,
            calls: 500,
            concurrency: 16,
            upstream_bytes: BytesConfig::mib(64),
            timeout: DurationConfig::from_secs(10),
            request_body: BytesConfig::mib(1),
            response_body: BytesConfig::mib(16),
        }
    }
}

impl GraphqlConfig {
    /// The pattern of the document files, if the config has one.
    #[must_use]
    pub fn documents(&self) -> Option<&str> {
        match self.documents.as_ref()? {
            DocumentsConfig::Files(files) | DocumentsConfig::More(DocumentsOptions { files, .. }) => {
                Some(files)
            }
        }
    }

    /// Whether documents outside these files are rejected.
    #[must_use]
    pub fn documents_only(&self) -> bool {
        matches!(self.documents, Some(DocumentsConfig::More(DocumentsOptions { only: true, .. })))
    }

    /// The files that define the schema, in addition to those of the services.
    pub fn schema_files(&self) -> impl Iterator<Item = &Path> {
        [&self.links, &self.supergraph].into_iter().flatten().map(PathBuf::as_path)
    }
}

fn yes() -> bool {
    true
}
