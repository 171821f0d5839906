//! Types for query programs: the file `orfa.d.ts` with the services as they are.
//!
//! It is the SDK's own `orfa.d.ts` with the one declaration replaced that says nothing of the services. Each service has
//! a namespace with its named schemas, and in `Services` a method for each operation, told apart by the path.

mod write;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use crate::document::Document;
use crate::names::Names;
use crate::operation::{Content, OCTETS, Operation, Parameter, Place};
use crate::schema::{Schema, Told};
use write::{Writer, comment, key, literal};

/// The types that are the same for all.
const COMMON: &str = include_str!("../../../sdk/javascript/orfa.d.ts");
/// What stands there for services of which nothing is known.
const UNKNOWN_SERVICES: &str = "export type Services = Readonly<Record<string, Service>>;\n";
/// What documents it.
const THEIR_COMMENT: &str = "/**\n * The services of the route by name.";

/// A service, and what of it is open.
#[derive(Clone, Debug)]
pub struct Open<'a> {
    /// What programs call it.
    pub name: &'a str,
    /// What it says of itself.
    pub document: Option<&'a Document>,
    /// Those of its operations that may be called.
    pub operations: Vec<&'a Operation>,
}

/// The file `orfa.d.ts` for these services.
#[must_use]
pub fn types(services: &[Open<'_>]) -> String {
    let (before, after) = COMMON.split_once(UNKNOWN_SERVICES).unwrap_or((COMMON, ""));
    let before = before.rsplit_once(THEIR_COMMENT).map_or(before, |(before, _)| before);
    let mut names = Names::default();
    let (mut namespaces, mut members) = (String::new(), String::new());
    for open in services {
        match open.document.filter(|_| !open.operations.is_empty()) {
            None => _ = writeln!(members, "  readonly {}: Service;", key(open.name)),
            Some(document) => {
                let service = Service { document, namespace: names.give(open.name) };
                namespaces.push_str(&service.namespace(open));
                let _ = write!(members, "  readonly {}: {{\n{}", key(open.name), service.methods(open));
                members.push_str("    fetch(path: string, init?: FetchInit): Promise<Response>;\n  };\n");
            }
        }
    }
    let comment = "/** The services by name, as their OpenAPI documents describe them. Made by ORFA: write nothing here. */";
    format!("{before}{namespaces}{comment}\nexport interface Services {{\n{members}}}\n{after}")
}

/// A service while its types are written.
struct Service<'a> {
    document: &'a Document,
    namespace: String,
}

impl Service<'_> {
    /// The schemas that the open operations lead to, and no others.
    fn namespace(&self, open: &Open<'_>) -> String {
        let used = self.used(open);
        if used.is_empty() {
            return String::new();
        }
        let (title, namespace) = (comment("", &self.document.title, false), &self.namespace);
        let mut text = format!("{title}export namespace {namespace} {{\n");
        let writer = Writer { prefix: "", indent: 1 };
        for (name, schema) in self.document.schemas.iter().filter(|(name, _)| used.contains(&**name)) {
            text.push_str(&match schema {
                Schema::Object(object) if object.others.is_none() && !object.members.is_empty() => {
                    format!("  interface {name} {}\n", writer.object(object))
                }
                other => format!("  type {name} = {};\n", writer.schema(other)),
            });
        }
        text.push_str("}\n\n");
        text
    }

    /// The names of the schemas that the open operations lead to.
    fn used<'o>(&'o self, open: &'o Open<'_>) -> HashSet<&'o str> {
        let mut waiting: Vec<&str> = Vec::new();
        for operation in &open.operations {
            let content = operation.answers.iter().chain(operation.body.iter().map(|(body, _)| body));
            content.for_each(|content| {
                if let Content::Json(schema) = content {
                    names(schema, &mut waiting);
                }
            });
            operation.parameters.iter().for_each(|parameter| names(&parameter.schema, &mut waiting));
        }
        let schemas: HashMap<&str, &Schema> =
            self.document.schemas.iter().map(|(name, schema)| (&**name, schema)).collect();
        let mut used = HashSet::new();
        while let Some(name) = waiting.pop() {
            if used.insert(name) {
                schemas.get(name).into_iter().for_each(|schema| names(schema, &mut waiting));
            }
        }
        used
    }

    fn methods(&self, open: &Open<'_>) -> String {
        let mut text = String::new();
        for operation in &open.operations {
            let summary = comment("    ", &operation.summary, operation.is_deprecated);
            let path = literal(&operation.path);
            let method = operation.method.to_ascii_lowercase();
            let (arguments, answer) = (self.arguments(operation), self.answer(operation));
            let _ = writeln!(text, "{summary}    {method}(path: {path}{arguments}): Promise<{answer}>;");
        }
        text
    }

    /// What stands after the path: a body where the method takes one, and parameters.
    fn arguments(&self, operation: &Operation) -> String {
        let takes_body = matches!(operation.method, "POST" | "PUT" | "PATCH");
        let (params, is_required) = self.params(operation);
        let mut text = String::new();
        if takes_body {
            let (body, body_is_required) = match &operation.body {
                None => ("undefined".to_owned(), false),
                Some((content, is_required)) => (self.body(content), *is_required),
            };
            // What comes before a parameter that has to be there can't be left out.
            text.push_str(&match (body_is_required, is_required) {
                (true, _) => format!(", body: {body}"),
                (false, true) => format!(", body: {body} | undefined"),
                (false, false) => format!(", body?: {body}"),
            });
        }
        if let Some(params) = params {
            let mark = if is_required { "" } else { "?" };
            let _ = write!(text, ", params{mark}: {params}");
        }
        text
    }

    fn body(&self, content: &Content) -> String {
        match content {
            Content::Empty => "undefined".to_owned(),
            Content::Json(schema) => self.writer().schema(schema),
            Content::Form => "URLSearchParams".to_owned(),
            Content::Other(media) if media == OCTETS => "ArrayBuffer | ArrayBufferView".to_owned(),
            Content::Text | Content::Other(_) => "unknown".to_owned(),
        }
    }

    fn answer(&self, operation: &Operation) -> String {
        if operation.method == "HEAD" {
            return "Headers".to_owned();
        }
        let kinds = operation.answers.iter().map(|answer| match answer {
            Content::Empty => "null".to_owned(),
            Content::Json(schema) => self.writer().schema(schema),
            Content::Text => "string".to_owned(),
            Content::Form | Content::Other(_) => "Uint8Array".to_owned(),
        });
        write::union(kinds)
    }

    /// The parameters that a call may carry, and whether it has to carry any.
    fn params(&self, operation: &Operation) -> (Option<String>, bool) {
        let carried = |parameter: &&Parameter| matches!(parameter.place, Place::Path | Place::Query);
        let mut members: Vec<String> = Vec::new();
        let (mut is_required, mut is_open) = (false, false);
        let mut seen = HashSet::new();
        // The path's go first: of two of one name it gets the value.
        let of = |place| operation.parameters.iter().filter(carried).filter(move |it| it.place == place);
        for parameter in of(Place::Path).chain(of(Place::Query)) {
            if !seen.insert(&*parameter.name) {
                continue;
            }
            is_required |= parameter.is_required;
            if parameter.place == Place::Query && self.is_object(&parameter.schema) {
                is_open = true;
                continue;
            }
            let mark = if parameter.is_required { "" } else { "?" };
            members.push(format!("{}{mark}: {}", key(&parameter.name), self.param(parameter)));
        }
        if is_open {
            // Objects are spelt in many ways: `filter[name]=x`.
            members.push("[name: string]: Param | null | undefined".to_owned());
        }
        ((!members.is_empty()).then(|| format!("{{ {} }}", members.join("; "))), is_required)
    }

    fn param(&self, parameter: &Parameter) -> String {
        let schema = self.resolved(&parameter.schema);
        match (parameter.place, schema) {
            (Place::Path, Schema::Literals(_) | Schema::Any(_) | Schema::Told(_)) | (Place::Query, _) => {}
            _ => return "string | number".to_owned(),
        }
        match schema {
            Schema::List(items) if parameter.is_repeated => self.value(items),
            Schema::List(items) => format!("string | ReadonlyArray<{}>", self.value(items)),
            _ => self.value(&parameter.schema),
        }
    }

    /// The type of a value in a URL.
    fn value(&self, schema: &Schema) -> String {
        match self.resolved(schema) {
            Schema::Boolean => "boolean".to_owned(),
            Schema::Integer(_) | Schema::Number => "number".to_owned(),
            Schema::Text(Some(format)) if format.starts_with("date") => "string | Date".to_owned(),
            Schema::Text(_) => "string".to_owned(),
            Schema::Literals(_) => self.writer().schema(schema),
            Schema::Null => "null".to_owned(),
            Schema::Any(branches) | Schema::Told(Told { branches, .. }) => {
                write::union(branches.iter().map(|branch| self.value(branch)))
            }
            _ => "Param".to_owned(),
        }
    }

    fn is_object(&self, schema: &Schema) -> bool {
        matches!(self.resolved(schema), Schema::Object(_) | Schema::All(_))
    }

    /// What a name stands for. Circles were broken when the document was read.
    fn resolved<'s>(&'s self, schema: &'s Schema) -> &'s Schema {
        let mut schema = schema;
        while let Schema::Named(name) = schema {
            schema = self.document.schema(name).unwrap_or(&Schema::Unknown);
        }
        schema
    }

    fn writer(&self) -> Writer<'_> {
        Writer { prefix: &self.namespace, indent: 2 }
    }
}

/// The names that a schema leads to.
fn names<'s>(schema: &'s Schema, found: &mut Vec<&'s str>) {
    match schema {
        Schema::Named(name) => found.push(name),
        Schema::List(items) => names(items, found),
        Schema::Tuple(first, rest) => {
            first.iter().chain(rest.as_deref()).for_each(|item| names(item, found));
        }
        Schema::Object(object) => {
            let members = object.members.iter().map(|member| &member.schema);
            members.chain(object.others.as_deref()).for_each(|schema| names(schema, found));
        }
        Schema::Any(parts) | Schema::All(parts) | Schema::Told(Told { branches: parts, .. }) => {
            parts.iter().for_each(|part| names(part, found));
        }
        _ => {}
    }
}
