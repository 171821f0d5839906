//! The traversal of a document: follows `$ref`, names the schemas that are referred to, and records problems.
//!
//! The target of a `$ref` is read once, under a name, and never copied to the place of the reference. So
//! neither cycles nor long chains of references need special care, and reading can't make a document grow.

use std::collections::{HashMap, VecDeque};

use diagnostics::Diagnostic;
use serde_json::{Map, Value};

use crate::names::{self, UsedNames};
use crate::schema::OpenApiSchema;

/// The location of the schemas with names of their own.
pub(crate) const SCHEMAS: &str = "/components/schemas";

/// The longest chain of references that is followed.
const MAX_HOPS: usize = 16;

/// A document that is being read.
pub(crate) struct DocumentReader<'a> {
    root: &'a Value,
    names: UsedNames,
    /// The name of the schema at a pointer.
    names_by_pointer: HashMap<String, String>,
    /// The named schemas that are still to be read.
    pending_schemas: VecDeque<(String, String)>,
    warnings: Vec<Diagnostic>,
}

impl<'a> DocumentReader<'a> {
    pub(crate) fn new(root: &'a Value) -> Self {
        let mut reader = Self {
            root,
            names: UsedNames::default(),
            names_by_pointer: HashMap::new(),
            pending_schemas: VecDeque::new(),
            warnings: Vec::new(),
        };
        let schemas = root.pointer(SCHEMAS).and_then(Value::as_object);
        for name in schemas.into_iter().flat_map(Map::keys) {
            let given = reader.names.unique_name(name);
            reader.enqueue_schema(member_pointer(SCHEMAS, name), given);
        }
        reader
    }

    pub(crate) fn root(&self) -> &'a Value {
        self.root
    }

    /// Records a problem, and how it was resolved: the part was read as [`OpenApiSchema::Unknown`], or left
    /// out. The pointer is into the document in the shape of OpenAPI 3.
    pub(crate) fn add_warning(&mut self, pointer: &str, message: impl Into<String>) {
        self.warnings.push(Diagnostic::new(pointer, message, "").as_warning());
    }

    /// Records a problem with a schema, and returns the schema that is used instead.
    pub(crate) fn unknown_schema(&mut self, pointer: &str, message: &str) -> OpenApiSchema {
        self.add_warning(pointer, format!("{message}: read as unknown"));
        OpenApiSchema::Unknown
    }

    /// Returns the schema that a `$ref` refers to, by name.
    pub(crate) fn referenced_schema(&mut self, reference: &Value, pointer: &str) -> OpenApiSchema {
        let Some(target) = reference.as_str().and_then(local_pointer) else {
            return self
                .unknown_schema(pointer, "the reference leads out of the document, and nothing is fetched");
        };
        if let Some(name) = self.names_by_pointer.get(&target) {
            return OpenApiSchema::Named(name.clone());
        }
        if self.root.pointer(&target).is_none() {
            return self.unknown_schema(pointer, &format!("there is nothing at `#{target}`"));
        }
        let name = self.names.unique_name(&names::name_from_pointer(&target));
        self.enqueue_schema(target, name.clone());
        OpenApiSchema::Named(name)
    }

    /// Returns the name of the schema that a reference into the document refers to.
    pub(crate) fn referenced_name(&mut self, reference: &str) -> Option<String> {
        self.root.pointer(&local_pointer(reference)?)?;
        match self.referenced_schema(&Value::from(reference), "") {
            OpenApiSchema::Named(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the object at a pointer, or the one that its `$ref` refers to, with its own pointer.
    pub(crate) fn resolve_reference(
        &mut self,
        value: &'a Value,
        pointer: &str,
    ) -> Option<(&'a Map<String, Value>, String)> {
        let (mut value, mut at) = (value, pointer.to_owned());
        for _ in 0..MAX_HOPS {
            let Some(object) = value.as_object() else {
                self.add_warning(&at, "an object is expected here: left out");
                return None;
            };
            let Some(reference) = object.get("$ref") else { return Some((object, at)) };
            let target = reference.as_str().and_then(local_pointer);
            let Some((target, found)) =
                target.and_then(|target| Some((target.clone(), self.root.pointer(&target)?)))
            else {
                self.add_warning(
                    &at,
                    format!("the reference {reference} leads nowhere in the document: left out"),
                );
                return None;
            };
            (value, at) = (found, target);
        }
        self.add_warning(pointer, "too many references in a row: left out");
        None
    }

    /// Returns the pointer and the name of the next schema that is still to be read.
    pub(crate) fn next_pending_schema(&mut self) -> Option<(String, String)> {
        self.pending_schemas.pop_front()
    }

    /// Returns the problems found.
    pub(crate) fn into_warnings(self) -> Vec<Diagnostic> {
        self.warnings
    }

    fn enqueue_schema(&mut self, pointer: String, name: String) {
        self.names_by_pointer.insert(pointer.clone(), name.clone());
        self.pending_schemas.push_back((pointer, name));
    }
}

/// Returns the pointer of a member.
pub(crate) fn member_pointer(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Returns the pointer in a reference into the same document, which is written as a URI fragment.
pub(crate) fn local_pointer(reference: &str) -> Option<String> {
    let fragment = reference.strip_prefix('#')?;
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let escaped =
            escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok().filter(|pointer| pointer.is_empty() || pointer.starts_with('/'))
}
