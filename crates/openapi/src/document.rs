//! A whole document: reading, checking its version, and placing its paths below its service's URL.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use diagnostics::Diagnostic;
use serde_json::Value;

use crate::operation::{self, OpenApiOperation};
use crate::reader::DocumentReader;
use crate::schema::OpenApiSchema;
use crate::schema_reader::{self, ReadSchemas};
use crate::{swagger, yaml};

/// The maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A service's description of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenApiDocument {
    /// The title, or empty if there is none.
    pub title: String,
    /// The operations, in the order of the document.
    pub operations: Vec<OpenApiOperation>,
    /// The named schemas. Each name occurs once and is a valid identifier in every language.
    pub schemas: Vec<(String, OpenApiSchema)>,
    /// The descriptions of the named schemas, by name, if they have any.
    pub descriptions: HashMap<String, String>,
    /// The problems in the document, located by JSON Pointers into its shape as OpenAPI 3.
    pub warnings: Vec<Diagnostic>,
    /// The path of the first server, which precedes every path.
    base: String,
    /// The prefix that was added to every path; see [`OpenApiDocument::relative_to`].
    prefix: String,
}

/// The reason a file is not an OpenAPI document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file can't be read.
    #[error("it can't be read: {0}")]
    File(#[from] io::Error),
    /// The text is neither JSON nor YAML.
    #[error("line {line}, column {column}: this is neither JSON nor YAML: {reason}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The parser's message.
        reason: String,
    },
    /// The text is something else.
    #[error("this is not an OpenAPI document: it has to contain `openapi: 3.1.0` or `swagger: \"2.0\"`")]
    NotOpenApi,
    /// The version is not supported.
    #[error("this is OpenAPI {0}; 2.0 (Swagger) and 3 are supported")]
    Version(String),
}

impl OpenApiDocument {
    /// Reads a file.
    ///
    /// # Errors
    /// Fails if the file can't be read, is larger than 16 MiB, or is not an OpenAPI document.
    #[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "at most `LARGEST` + 1 bytes"))]
    pub fn open(path: &Path) -> Result<Self, DocumentError> {
        let mut text = String::new();
        let size = File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
        if size as u64 > MAX_FILE_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 16 MiB").into());
        }
        Self::parse(&text)
    }

    /// Parses a text.
    ///
    /// # Errors
    /// Fails if the text is not an OpenAPI document.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        let value = yaml::parse_tree(text).map_err(|error| {
            let yaml::YamlSyntaxError { line, column, reason } = error;
            DocumentError::Syntax { line, column, reason }
        })?;
        let root = match (read_version(&value, "openapi"), read_version(&value, "swagger")) {
            (Some(version), _) if version.starts_with("3.") => value,
            (None, Some(version)) if version.starts_with('2') => swagger::upgrade(value),
            (Some(version), _) | (None, Some(version)) => return Err(DocumentError::Version(version)),
            (None, None) => return Err(DocumentError::NotOpenApi),
        };
        let mut reader = DocumentReader::new(&root);
        let operations = operation::read_operations(&mut reader);
        let ReadSchemas { schemas, descriptions, warnings: findings } =
            schema_reader::read_named_schemas(reader);
        let title = root.pointer("/info/title").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (base, prefix) = (base_path(&root), String::new());
        Ok(Self { title, operations, schemas, descriptions, warnings: findings, base, prefix })
    }

    /// Returns the document with paths relative to a service's URL, whose path is `served`. The document's
    /// own base path is added to them unless the URL ends with it.
    #[must_use]
    pub fn relative_to(mut self, served: &str) -> Self {
        let base = std::mem::take(&mut self.base);
        if !served.trim_end_matches('/').ends_with(&base) {
            for operation in &mut self.operations {
                operation.path.insert_str(0, &base);
            }
            self.prefix = base;
        }
        self
    }

    /// Returns an operation's path as the document itself contains it.
    #[must_use]
    pub fn document_path<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(&*self.prefix).unwrap_or(path)
    }

    /// Returns the schema with this name.
    #[must_use]
    pub fn schema(&self, name: &str) -> Option<&OpenApiSchema> {
        self.schemas.iter().find(|(known, _)| known == name).map(|(_, schema)| schema)
    }
}

/// The version, which YAML may have parsed as a number.
fn read_version(root: &Value, key: &str) -> Option<String> {
    match root.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The path of the first server, with the default values of its variables.
fn base_path(root: &Value) -> String {
    let Some(server) = root.pointer("/servers/0") else { return String::new() };
    let mut url = server.get("url").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
        let value = variable.get("default").and_then(Value::as_str).unwrap_or_default();
        url = url.replace(&format!("{{{name}}}"), value);
    }
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("", |start| rest.get(start..).unwrap_or_default()),
        None => &*url,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    if path.starts_with('/') { path.to_owned() } else { String::new() }
}
