//! A document as a whole: read, checked to be one, and put below its service's URL.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use crate::operation::Operation;
use crate::reader::{Reader, Schemas};
use crate::schema::Schema;
use crate::{operation, swagger, yaml};

/// The largest file that is read.
const LARGEST: u64 = 16 << 20;

/// What a service says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// Its title; empty where it has none.
    pub title: String,
    /// What it offers, in the order of the document.
    pub operations: Vec<Operation>,
    /// The named schemas: each name stands here once, and is a word in any language.
    pub schemas: Vec<(String, Schema)>,
    /// What the named schemas mean, by name, where something is said of them.
    pub descriptions: HashMap<String, String>,
    /// What it says oddly.
    pub findings: Vec<Finding>,
    /// The path of its first server: what stands before every path.
    base: String,
    /// What was put before every path; see [`Document::below`].
    prefix: String,
}

/// Something odd in a document: it was read as [`Schema::Unknown`], or left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where, as a JSON Pointer into the document in the shape of OpenAPI 3.
    pub pointer: String,
    /// What is odd, and what became of it.
    pub message: String,
}

/// Why a file is no OpenAPI document.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It can't be read at all.
    #[error("it can't be read: {0}")]
    File(#[from] io::Error),
    /// It is neither JSON nor YAML.
    #[error("line {line}, column {column}: this is neither JSON nor YAML: {reason}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What the parser says.
        reason: String,
    },
    /// It is something else.
    #[error("this is no OpenAPI document: `openapi: 3.1.0` or `swagger: \"2.0\"` has to stand in it")]
    NotOpenApi,
    /// It is of a version that nobody here knows.
    #[error("this is OpenAPI {0}; 2.0 (Swagger) and 3 are known")]
    Version(String),
}

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// When it can't be read, is larger than 16 MiB, or is no OpenAPI document.
    pub fn open(path: &Path) -> Result<Self, Unreadable> {
        let mut text = String::new();
        let size = File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
        if size as u64 > LARGEST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 16 MiB").into());
        }
        Self::read(&text)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// When it is no OpenAPI document.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        let value = yaml::read(text).map_err(|wrong| {
            let yaml::Wrong { line, column, reason } = wrong;
            Unreadable::Syntax { line, column, reason }
        })?;
        let root = match (version(&value, "openapi"), version(&value, "swagger")) {
            (Some(version), _) if version.starts_with("3.") => value,
            (None, Some(version)) if version.starts_with('2') => swagger::upgrade(value),
            (Some(version), _) | (None, Some(version)) => return Err(Unreadable::Version(version)),
            (None, None) => return Err(Unreadable::NotOpenApi),
        };
        let mut reader = Reader::new(&root);
        let operations = operation::all(&mut reader);
        let Schemas { schemas, descriptions, findings } = reader.finish();
        let title = root.pointer("/info/title").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (base, prefix) = (base(&root), String::new());
        Ok(Self { title, operations, schemas, descriptions, findings, base, prefix })
    }

    /// The document with paths as they are called below a service's URL, of which `served` is the path: its own base
    /// goes before them, unless the URL ends in it.
    #[must_use]
    pub fn below(mut self, served: &str) -> Self {
        let base = std::mem::take(&mut self.base);
        if !served.trim_end_matches('/').ends_with(&base) {
            for operation in &mut self.operations {
                operation.path.insert_str(0, &base);
            }
            self.prefix = base;
        }
        self
    }

    /// A path of one of the operations, as the document itself has it.
    #[must_use]
    pub fn written<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(&*self.prefix).unwrap_or(path)
    }

    /// The schema of this name.
    #[must_use]
    pub fn schema(&self, name: &str) -> Option<&Schema> {
        self.schemas.iter().find(|(known, _)| known == name).map(|(_, schema)| schema)
    }
}

/// The version, which YAML may have read as a number.
fn version(root: &Value, key: &str) -> Option<String> {
    match root.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The path of the first server, its variables as they are by default.
fn base(root: &Value) -> String {
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
