//! Writes schemas, keys, literals and comments in TypeScript.

use std::collections::HashSet;
use std::fmt::Write;

use serde_json::Value;

use crate::schema::{DiscriminatedUnion, ObjectSchema, OpenApiSchema};

/// The maximum depth of nested types, beyond which TypeScript gives up as well.
const MAX_DEPTH: usize = 60;

/// Writes types.
#[derive(Clone, Copy)]
pub(super) struct TypeWriter<'a> {
    /// The namespace of the named schemas, or empty inside of it.
    pub(super) prefix: &'a str,
    pub(super) indent: usize,
}

impl TypeWriter<'_> {
    /// Returns a type. It may need parentheses as part of another.
    pub(super) fn schema_type(self, schema: &OpenApiSchema) -> String {
        match schema {
            _ if self.indent > MAX_DEPTH => "unknown".to_owned(),
            OpenApiSchema::Unknown => "unknown".to_owned(),
            OpenApiSchema::Never => "never".to_owned(),
            OpenApiSchema::Null => "null".to_owned(),
            OpenApiSchema::Boolean => "boolean".to_owned(),
            OpenApiSchema::Integer(_) | OpenApiSchema::Number => "number".to_owned(),
            OpenApiSchema::Text(_) => "string".to_owned(),
            OpenApiSchema::Literals(values) => union_type(values.iter().map(Value::to_string)),
            OpenApiSchema::List(items) => format!("{}[]", self.operand_type(items)),
            OpenApiSchema::Tuple(first, rest) => {
                let mut items: Vec<String> = first.iter().map(|item| self.schema_type(item)).collect();
                items.extend(
                    rest.as_deref().map(|api_schema| format!("...{}[]", self.operand_type(api_schema))),
                );
                format!("[{}]", items.join(", "))
            }
            OpenApiSchema::Object(object) => self.object_type(object),
            OpenApiSchema::Named(name) if self.prefix.is_empty() => name.clone(),
            OpenApiSchema::Named(name) => format!("{}.{name}", self.prefix),
            OpenApiSchema::Any(branches)
            | OpenApiSchema::Discriminated(DiscriminatedUnion { branches, .. }) => {
                union_type(branches.iter().map(|branch| self.operand_type(branch)))
            }
            OpenApiSchema::All(parts) => {
                join_distinct(parts.iter().map(|part| self.operand_type(part)), " & ")
            }
        }
    }

    /// Returns a type that can be used as part of any other.
    fn operand_type(self, schema: &OpenApiSchema) -> String {
        let text = self.schema_type(schema);
        let is_simple = match schema {
            OpenApiSchema::Any(_) | OpenApiSchema::Discriminated(_) | OpenApiSchema::All(_) => false,
            OpenApiSchema::Literals(values) => values.len() == 1,
            OpenApiSchema::Object(object) => object.additional.is_none() || object.members.is_empty(),
            _ => true,
        };
        if is_simple { text } else { format!("({text})") }
    }

    /// Returns an object type, with one member a line.
    pub(super) fn object_type(self, object: &ObjectSchema) -> String {
        let others = object.additional.as_deref();
        let inner = Self { indent: self.indent + 1, ..self };
        let index = |others| format!("{{ [name: string]: {} }}", inner.schema_type(others));
        if object.members.is_empty() {
            return index(others.unwrap_or(&OpenApiSchema::Unknown));
        }
        let indent = "  ".repeat(self.indent);
        let mut text = "{\n".to_owned();
        let mut seen = HashSet::new();
        for member in object.members.iter().filter(|member| seen.insert(&*member.name)) {
            text.push_str(&doc_comment(&format!("{indent}  "), &member.description, false));
            let mark = if member.is_required { "" } else { "?" };
            let _ = writeln!(
                text,
                "{indent}  {}{mark}: {};",
                member_key(&member.name),
                inner.schema_type(&member.schema)
            );
        }
        match others {
            // An index signature must be compatible with all members.
            Some(OpenApiSchema::Unknown) => {
                _ = write!(text, "{indent}  [name: string]: unknown;\n{indent}}}")
            }
            Some(others) => _ = write!(text, "{indent}}} & {}", index(others)),
            None => _ = write!(text, "{indent}}}"),
        }
        text
    }
}

/// Returns the union of these types, each once.
pub(super) fn union_type(types: impl Iterator<Item = String>) -> String {
    join_distinct(types, " | ")
}

fn join_distinct(types: impl Iterator<Item = String>, with: &str) -> String {
    let mut seen = HashSet::new();
    let types: Vec<String> = types.filter(|text| seen.insert(text.clone())).collect();
    if types.is_empty() { "never".to_owned() } else { types.join(with) }
}

/// Returns a member's name, quoted if necessary.
pub(super) fn member_key(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$';
    let starts_plain = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    if starts_plain && name.bytes().all(is_plain) { name.to_owned() } else { string_literal(name) }
}

/// Returns a quoted text.
pub(super) fn string_literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns the comment for a declaration, or nothing if there is no text.
pub(super) fn doc_comment(indent: &str, text: &str, is_deprecated: bool) -> String {
    let text = text.replace("*/", "*\u{2060}/");
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.chain(is_deprecated.then_some("@deprecated")).collect();
    match lines.as_slice() {
        [] => String::new(),
        [line] => format!("{indent}/** {} */\n", line.trim_start()),
        lines => {
            let lines = lines.iter().map(|line| format!("{indent} * {line}\n")).collect::<String>();
            format!("{indent}/**\n{lines}{indent} */\n")
        }
    }
}
