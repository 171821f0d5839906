//! Values in documents: literals and variables, as JSON texts in a service's own names.

use bytes::Bytes;
use hive_router_query_planner::ast::value::Value as Planned;
use json::{JsonNode, ValueKind as Json};
use std::collections::HashMap;
use std::sync::Arc;

use super::types::{Kind, Scalar, Ty, Types};
use crate::Bindings;

/// The arguments of a call: quoted names, and values.
#[derive(Debug, Default)]
pub(crate) struct Arguments(pub(crate) Vec<(Bytes, Template)>);

/// A value that may contain variables.
#[derive(Debug)]
pub(crate) enum Template {
    Text(Bytes),
    /// A variable. If it is absent, `otherwise` applies, or the value is omitted.
    Variable {
        name: Box<str>,
        ty: Ty,
        otherwise: Option<Bytes>,
    },
    List(Vec<Template>),
    Object(Vec<(Bytes, Template)>),
}

/// Converts a text to a JSON string.
pub(crate) fn quoted(text: &str) -> Bytes {
    serde_json::Value::from(text).to_string().into()
}

/// A writer of a document's values with a service's own names.
pub(crate) struct Speller<'a> {
    pub(crate) types: &'a Types,
    pub(crate) bindings: Option<&'a Bindings>,
}

impl Speller<'_> {
    /// Converts a validated value to a template.
    pub(crate) fn template(&self, value: &Planned, ty: &Ty, otherwise: Option<Bytes>) -> Template {
        let constant = |text: String| Template::Text(text.into());
        match value {
            Planned::Variable(name) => {
                Template::Variable { name: name.as_str().into(), ty: ty.clone(), otherwise }
            }
            Planned::Null => constant("null".to_owned()),
            Planned::List(items) => {
                let inner = match ty.nullable() {
                    Ty::List(inner) => inner,
                    other => other,
                };
                Self::folded_list(items.iter().map(|item| self.template(item, inner, None)).collect())
            }
            single if matches!(ty.nullable(), Ty::List(_)) => match ty.nullable() {
                Ty::List(inner) => Self::folded_list(vec![self.template(single, inner, None)]),
                _ => constant("null".to_owned()),
            },
            Planned::Object(fields) => {
                let member = |(name, value): (&String, &Planned)| match self.types.kind_of(ty.named()) {
                    Kind::Input { fields, .. } => {
                        let field = fields.iter().find(|field| *field.name == **name)?;
                        let otherwise = field.default.as_ref().map(|value| self.literal(value, &field.ty));
                        Some((self.member(ty, name), self.template(value, &field.ty, otherwise)))
                    }
                    _ => Some((quoted(name), self.template(value, ty, None))),
                };
                let mut members: Vec<(Bytes, Template)> = fields.iter().filter_map(member).collect();
                if let Kind::Input { fields: declared, .. } = self.types.kind_of(ty.named()) {
                    for field in declared.iter().filter(|field| !fields.contains_key(&*field.name)) {
                        let Some(default) = &field.default else { continue };
                        let text = self.literal(default, &field.ty);
                        members.push((self.member(ty, &field.name), Template::Text(text)));
                    }
                }
                Self::folded_object(members)
            }
            Planned::Enum(name) => Template::Text(self.value_name(ty, name)),
            Planned::Int(number) if self.is_id(ty) => Template::Text(quoted(&number.to_string())),
            Planned::Int(number) => constant(number.to_string()),
            Planned::Float(number) => constant(serde_json::Value::from(*number).to_string()),
            Planned::String(text) => Template::Text(quoted(text)),
            Planned::Boolean(value) => constant(value.to_string()),
        }
    }

    /// Converts a literal of a schema to JSON.
    pub(crate) fn literal(&self, value: &graphql_tools::static_graphql::schema::Value, ty: &Ty) -> Bytes {
        match self.template(&Planned::from(value), ty, None) {
            Template::Text(text) => text,
            _ => Bytes::from_static(b"null"),
        }
    }

    fn is_id(&self, ty: &Ty) -> bool {
        matches!(self.types.kind_of(ty.named()), Kind::Scalar(Scalar::Id))
    }

    /// Writes a coerced value with the service's own names.
    pub(crate) fn respell(&self, node: JsonNode<'_>, ty: &Ty, out: &mut Vec<u8>) {
        match (node.kind(), ty.nullable()) {
            (Json::Array, Ty::List(inner)) => {
                out.push(b'[');
                for (place, item) in node.items().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    self.respell(item, inner, out);
                }
                out.push(b']');
            }
            (Json::String, Ty::Named(id)) if matches!(self.types.kind_of(*id), Kind::Enum(_)) => {
                let name = node.string().unwrap_or_default();
                out.extend_from_slice(&self.value_name(ty, &String::from_utf8_lossy(&name)));
            }
            (Json::Object, Ty::Named(id)) => match self.types.kind_of(*id) {
                Kind::Input { fields, .. } => {
                    out.push(b'{');
                    let mut is_first = true;
                    for (name, value) in node.members() {
                        let Some(field) = fields.iter().find(|field| name.is(field.name.as_bytes())) else {
                            continue;
                        };
                        if !std::mem::take(&mut is_first) {
                            out.push(b',');
                        }
                        out.extend_from_slice(&self.member(ty, &field.name));
                        out.push(b':');
                        self.respell(value, &field.ty, out);
                    }
                    out.push(b'}');
                }
                _ => out.extend_from_slice(node.text()),
            },
            _ => out.extend_from_slice(node.text()),
        }
    }

    fn member(&self, ty: &Ty, field: &str) -> Bytes {
        let binding = self.binding(ty);
        quoted(binding.and_then(|binding| binding.fields.get(field)).map_or(field, |member| member))
    }

    fn value_name(&self, ty: &Ty, name: &str) -> Bytes {
        let binding = self.binding(ty);
        quoted(binding.and_then(|binding| binding.values.get(name)).map_or(name, |text| text))
    }

    fn binding(&self, ty: &Ty) -> Option<&crate::TypeBinding> {
        self.bindings?.types.get(&**self.types.name(ty.named()))
    }

    /// Folds a list without variables to a text.
    fn folded_list(items: Vec<Template>) -> Template {
        let mut text = vec![b'['];
        for (place, item) in items.iter().enumerate() {
            let Template::Text(item) = item else { return Template::List(items) };
            if place > 0 {
                text.push(b',');
            }
            text.extend_from_slice(item);
        }
        text.push(b']');
        Template::Text(text.into())
    }

    /// Folds an object without variables to a text.
    fn folded_object(members: Vec<(Bytes, Template)>) -> Template {
        let mut text = vec![b'{'];
        for (place, (name, value)) in members.iter().enumerate() {
            let Template::Text(value) = value else { return Template::Object(members) };
            if place > 0 {
                text.push(b',');
            }
            text.extend_from_slice(name);
            text.push(b':');
            text.extend_from_slice(value);
        }
        text.push(b'}');
        Template::Text(text.into())
    }
}

/// The names of an enum's values, by the service's texts; `None` if they are equal.
pub(crate) fn spelling(bindings: &Bindings, name: &str) -> Option<Arc<HashMap<Box<str>, Box<str>>>> {
    let values = &bindings.types.get(name)?.values;
    let said = || values.iter().map(|(name, text)| (text.clone(), name.clone())).collect();
    (!values.is_empty()).then(|| Arc::new(said()))
}
