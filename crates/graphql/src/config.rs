//! What an operator writes under a route's `graphql:`.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use services::{Bytes, Duration};

/// A route that answers GraphQL: over services, or by a supergraph that was composed elsewhere.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphqlConfig {
    /// The services that the schema is made of, by name: each has `openapi` or `graphql`.
    #[serde(default)]
    pub services: Vec<String>,
    /// A file that extends types of one service by what others know, and renames, hides and describes: a path relative to
    /// the config.
    #[serde(default)]
    pub links: Option<PathBuf>,
    /// A supergraph (Apollo Federation v2) in place of `services`: a path relative to the config. Its subgraphs are the
    /// services of the same names, each with `graphql`.
    #[serde(default)]
    pub supergraph: Option<PathBuf>,
    /// Whether `Mutation` is part of the schema: the operations of REST services that are no `GET`, and what GraphQL
    /// services have there.
    #[serde(default)]
    pub mutations: bool,
    /// Who may ask for the schema itself.
    #[serde(default)]
    pub introspection: Introspection,
    /// Whether browsers that open the route's address get GraphiQL.
    #[serde(default = "yes")]
    pub graphiql: bool,
    /// Whether clients may leave a document with the gateway and name it by its hash from then on (Apollo's automatic
    /// persisted queries).
    #[serde(default = "yes")]
    pub persisted: bool,
    /// Documents of your own, which clients name by hash or file: `./documents/*.graphql`.
    #[serde(default)]
    pub documents: Option<DocumentsConfig>,
    /// What equal requests that come at the same time share.
    #[serde(default)]
    pub coalesce: CoalesceConfig,
    /// The caps of each request.
    #[serde(default)]
    pub limits: GraphqlLimits,
}

/// Who may ask for the schema itself (`__schema`, `__type`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Introspection {
    /// Everybody who may use the route.
    #[default]
    On,
    /// Nobody.
    Off,
    /// These callers, by their names in the config.
    #[serde(untagged)]
    Callers(IntrospectionCallers),
}

/// Callers who may ask for the schema.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IntrospectionCallers {
    /// Their names under `callers`.
    #[schemars(length(min = 1))]
    pub callers: Vec<String>,
}

/// Documents of the operator's.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DocumentsConfig {
    /// Just the files; other documents are answered too.
    Files(String),
    /// The files and what else is answered.
    More(DocumentsOptions),
}

/// Documents of the operator's, and what else is answered.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentsOptions {
    /// The files, relative to the config, `*` for any name. A document is known by its hash, and by its file's name without
    /// the ending.
    pub files: String,
    /// Whether no other document is answered.
    #[serde(default)]
    pub only: bool,
}

/// What equal requests that come at the same time share. Equal are those with the same method, URL, body and with the same
/// headers sent, credentials included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CoalesceConfig {
    /// Upstream calls: one is made while the first is under way, and its answer is read once.
    pub calls: bool,
    /// Whole queries: one is run while the first is under way.
    pub operations: bool,
}

/// The caps of each request to a GraphQL route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GraphqlLimits {
    /// How deep fields may stand within each other, fragments resolved.
    #[schemars(range(min = 1))]
    pub depth: u32,
    /// Fields and fragments of one operation, fragments resolved.
    #[schemars(range(min = 1))]
    pub selections: u32,
    /// Fields with an alias, fragments resolved.
    pub aliases: u32,
    /// Tokens of a document.
    #[schemars(range(min = 1))]
    pub tokens: u32,
    /// Fields of `Query` or `Mutation` in one operation.
    #[schemars(range(min = 1))]
    pub root_fields: u32,
    /// Fields in one operation, fragments resolved; one below a list counts ten times, at each list anew.
    pub cost: u32,
    /// Upstream calls, equal ones counted once.
    pub calls: u32,
    /// Upstream calls under way at once; further ones wait.
    #[schemars(range(min = 1))]
    pub parallel: u32,
    /// Bytes from the services.
    pub received: Bytes,
    /// Time from the request's beginning to the beginning of its answer.
    pub deadline: Duration,
    /// Bytes of the request's body, or of its query.
    pub body: Bytes,
    /// Bytes of the answer.
    pub response_body: Bytes,
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
            parallel: 16,
            received: Bytes::mib(64),
            deadline: Duration::from_secs(10),
            body: Bytes::mib(1),
            response_body: Bytes::mib(16),
        }
    }
}

impl GraphqlConfig {
    /// The pattern of the files with documents, if there are any.
    #[must_use]
    pub fn documents(&self) -> Option<&str> {
        match self.documents.as_ref()? {
            DocumentsConfig::Files(files) | DocumentsConfig::More(DocumentsOptions { files, .. }) => {
                Some(files)
            }
        }
    }

    /// Whether none but those is answered.
    #[must_use]
    pub fn documents_only(&self) -> bool {
        matches!(self.documents, Some(DocumentsConfig::More(DocumentsOptions { only: true, .. })))
    }

    /// The files that the schema is made of, beside those of services.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.links, &self.supergraph].into_iter().flatten().map(PathBuf::as_path)
    }
}

fn yes() -> bool {
    true
}
