//! Values in documents: literals and variables, as JSON texts in a service's own names.

use bytes::Bytes;
use hive_router_query_planner::ast::value::Value as PlannedValue;
use json::{JsonNode, ValueKind};
use std::collections::HashMap;
use std::sync::Arc;

use super::types::{ClientTypeKind, ClientTypeRef, ClientTypes, ScalarKind};
use crate::subgraph::SubgraphBindings;

/// The arguments of a call: quoted names, and values.
#[derive(Debug, Default)]
pub(crate) struct CallArgumentTexts(pub(crate) Vec<(Bytes, ValueTemplate)>);

/// A value that may contain variables.
#[derive(Debug)]
pub(crate) enum ValueTemplate {
    Text(Bytes),
    /// A variable. If it is absent, `otherwise` applies, or the value is omitted.
    Variable {
        name: Box<str>,
        ty: ClientTypeRef,
        fallback: Option<Bytes>,
    },
    List(Vec<ValueTemplate>),
    Object(Vec<(Bytes, ValueTemplate)>),
}

/// Converts a text to a JSON string.
pub(crate) fn quote_json(text: &str) -> Bytes {
    serde_json::Value::from(text).to_string().into()
}

/// A writer of a document's values with a service's own names.
pub(crate) struct ValueSpeller<'a> {
    pub(crate) types: &'a ClientTypes,
    pub(crate) bindings: Option<&'a SubgraphBindings>,
}

impl ValueSpeller<'_> {
    /// Converts a validated value to a template.
    pub(crate) fn build_template(
        &self,
        value: &PlannedValue,
        ty: &ClientTypeRef,
        otherwise: Option<Bytes>,
    ) -> ValueTemplate {
        let constant = |text: String| ValueTemplate::Text(text.into());
        match value {
            PlannedValue::Variable(name) => {
                ValueTemplate::Variable { name: name.as_str().into(), ty: ty.clone(), fallback: otherwise }
            }
            PlannedValue::Null => constant("null".to_owned()),
            PlannedValue::List(items) => {
                let inner = match ty.nullable() {
                    ClientTypeRef::List(inner) => inner,
                    other => other,
                };
                Self::fold_list(items.iter().map(|item| self.build_template(item, inner, None)).collect())
            }
            single if matches!(ty.nullable(), ClientTypeRef::List(_)) => match ty.nullable() {
                ClientTypeRef::List(inner) => Self::fold_list(vec![self.build_template(single, inner, None)]),
                _ => constant("null".to_owned()),
            },
            PlannedValue::Object(fields) => {
                let member = |(name, value): (&String, &PlannedValue)| match self
                    .types
                    .kind_of(ty.named_type())
                {
                    ClientTypeKind::Input { fields, .. } => {
                        let field = fields.iter().find(|field| *field.name == **name)?;
                        let otherwise =
                            field.default.as_ref().map(|value| self.literal_json(value, &field.ty));
                        Some((self.member_name(ty, name), self.build_template(value, &field.ty, otherwise)))
                    }
                    _ => Some((quote_json(name), self.build_template(value, ty, None))),
                };
                let mut members: Vec<(Bytes, ValueTemplate)> = fields.iter().filter_map(member).collect();
                if let ClientTypeKind::Input { fields: declared, .. } = self.types.kind_of(ty.named_type()) {
                    for field in declared.iter().filter(|field| !fields.contains_key(&*field.name)) {
                        let Some(default) = &field.default else { continue };
                        let text = self.literal_json(default, &field.ty);
                        members.push((self.member_name(ty, &field.name), ValueTemplate::Text(text)));
                    }
                }
                Self::fold_object(members)
            }
            PlannedValue::Enum(name) => ValueTemplate::Text(self.value_name(ty, name)),
            PlannedValue::Int(number) if self.is_id(ty) => {
                ValueTemplate::Text(quote_json(&number.to_string()))
            }
            PlannedValue::Int(number) => constant(number.to_string()),
            PlannedValue::Float(number) => constant(serde_json::Value::from(*number).to_string()),
            PlannedValue::String(text) => ValueTemplate::Text(quote_json(text)),
            PlannedValue::Boolean(value) => constant(value.to_string()),
        }
    }

    /// Converts a literal of a schema to JSON.
    pub(crate) fn literal_json(
        &self,
        value: &graphql_tools::static_graphql::schema::Value,
        ty: &ClientTypeRef,
    ) -> Bytes {
        match self.build_template(&PlannedValue::from(value), ty, None) {
            ValueTemplate::Text(text) => text,
            _ => Bytes::from_static(b"null"),
        }
    }

    fn is_id(&self, ty: &ClientTypeRef) -> bool {
        matches!(self.types.kind_of(ty.named_type()), ClientTypeKind::Scalar(ScalarKind::Id))
    }

    /// Writes a coerced value with the service's own names.
    pub(crate) fn respell(&self, node: JsonNode<'_>, ty: &ClientTypeRef, out: &mut Vec<u8>) {
        match (node.kind(), ty.nullable()) {
            (ValueKind::Array, ClientTypeRef::List(inner)) => {
                out.push(b'[');
                for (place, item) in node.items().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    self.respell(item, inner, out);
                }
                out.push(b']');
            }
            (ValueKind::String, ClientTypeRef::Named(id))
                if matches!(self.types.kind_of(*id), ClientTypeKind::Enum(_)) =>
            {
                let name = node.string().unwrap_or_default();
                out.extend_from_slice(&self.value_name(ty, &String::from_utf8_lossy(&name)));
            }
            (ValueKind::Object, ClientTypeRef::Named(id)) => match self.types.kind_of(*id) {
                ClientTypeKind::Input { fields, .. } => {
                    out.push(b'{');
                    let mut is_first = true;
                    for (name, value) in node.members() {
                        let Some(field) = fields.iter().find(|field| name.equals(field.name.as_bytes()))
                        else {
                            continue;
                        };
                        if !std::mem::take(&mut is_first) {
                            out.push(b',');
                        }
                        out.extend_from_slice(&self.member_name(ty, &field.name));
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

    fn member_name(&self, ty: &ClientTypeRef, field: &str) -> Bytes {
        let binding = self.type_binding(ty);
        quote_json(binding.and_then(|binding| binding.fields.get(field)).map_or(field, |member| member))
    }

    fn value_name(&self, ty: &ClientTypeRef, name: &str) -> Bytes {
        let binding = self.type_binding(ty);
        quote_json(binding.and_then(|binding| binding.values.get(name)).map_or(name, |text| text))
    }

    fn type_binding(&self, ty: &ClientTypeRef) -> Option<&crate::subgraph::TypeBinding> {
        self.bindings?.types.get(&**self.types.name(ty.named_type()))
    }

    /// Folds a list without variables to a text.
    fn fold_list(items: Vec<ValueTemplate>) -> ValueTemplate {
        let mut text = vec![b'['];
        for (place, item) in items.iter().enumerate() {
            let ValueTemplate::Text(item) = item else { return ValueTemplate::List(items) };
            if place > 0 {
                text.push(b',');
            }
            text.extend_from_slice(item);
        }
        text.push(b']');
        ValueTemplate::Text(text.into())
    }

    /// Folds an object without variables to a text.
    fn fold_object(members: Vec<(Bytes, ValueTemplate)>) -> ValueTemplate {
        let mut text = vec![b'{'];
        for (place, (name, value)) in members.iter().enumerate() {
            let ValueTemplate::Text(value) = value else { return ValueTemplate::Object(members) };
            if place > 0 {
                text.push(b',');
            }
            text.extend_from_slice(name);
            text.push(b':');
            text.extend_from_slice(value);
        }
        text.push(b'}');
        ValueTemplate::Text(text.into())
    }
}

/// The names of an enum's values, by the service's texts; `None` if they are equal.
pub(crate) fn enum_spelling(
    bindings: &SubgraphBindings,
    name: &str,
) -> Option<Arc<HashMap<Box<str>, Box<str>>>> {
    let values = &bindings.types.get(name)?.values;
    let said = || values.iter().map(|(name, text)| (text.clone(), name.clone())).collect();
    (!values.is_empty()).then(|| Arc::new(said()))
}
