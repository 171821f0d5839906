//! Extracts the selected fields from a JSON text. These schemas have no interfaces or unions, so that a
//! fragment always applies.
//!
//! The selection is resolved once (`SelectedShape`); each row is then read once, and only its selected
//! members are kept.

use std::collections::HashMap;
use std::fmt;

use graphql_tools::static_graphql::query::{
    self, Definition, Directive, Document, Field, OperationDefinition, Selection, SelectionSet,
};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Result, Value};

use super::ObjectTypes;

/// Resolves the selections of a request.
pub(super) struct Selector<'a> {
    types: &'a ObjectTypes,
    fragments: HashMap<&'a str, &'a SelectionSet>,
    variables: Map<String, Value>,
}

/// The fields of a response object by their keys, in the order of the selection. Fields with the same key are
/// merged.
type ResponseFields<'a> = Vec<(&'a str, Vec<&'a Field>)>;

/// The selected part of a value.
enum SelectedShape<'a> {
    /// The whole value.
    Leaf,
    /// Members of an object, or of each object in a list.
    Object(Vec<SelectedMember<'a>>),
}

/// A member of a response object.
struct SelectedMember<'a> {
    /// The key, quoted, with the colon.
    key: String,
    what: SelectedKind<'a>,
}

enum SelectedKind<'a> {
    Typename(&'a str),
    /// The row's member of this name.
    Member(&'a str, SelectedShape<'a>),
}

impl<'a> Selector<'a> {
    pub(super) fn new(
        types: &'a ObjectTypes,
        document: &'a Document,
        operation: &OperationDefinition,
        mut variables: Map<String, Value>,
    ) -> Self {
        for variable in operation.variable_definitions() {
            if let (Some(default), false) = (&variable.default_value, variables.contains_key(&variable.name))
            {
                variables.extend(json(default, &Map::new()).map(|value| (variable.name.clone(), value)));
            }
        }
        let fragments = document.definitions.iter().filter_map(|definition| match definition {
            Definition::Fragment(fragment) => Some((fragment.name.as_str(), &fragment.selection_set)),
            Definition::Operation(_) => None,
        });
        Self { types, fragments: fragments.collect(), variables }
    }

    /// Returns the arguments of a field, without those whose variable is absent.
    pub(super) fn arguments(&self, field: &Field) -> Map<String, Value> {
        let given = field.arguments.iter();
        given.filter_map(|(name, value)| Some((name.clone(), json(value, &self.variables)?))).collect()
    }

    /// Returns the fields of all these selections.
    pub(super) fn fields(&self, sets: &[&'a SelectionSet]) -> ResponseFields<'a> {
        let mut fields = ResponseFields::new();
        sets.iter().for_each(|set| self.collect(set, &mut fields));
        fields
    }

    fn collect(&self, set: &'a SelectionSet, fields: &mut ResponseFields<'a>) {
        for selection in &set.items {
            match selection {
                Selection::Field(field) if self.applies(&field.directives) => {
                    let key = field.alias.as_deref().unwrap_or(&field.name);
                    match fields.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, same)) => same.push(field),
                        None => fields.push((key, vec![field])),
                    }
                }
                Selection::InlineFragment(fragment) if self.applies(&fragment.directives) => {
                    self.collect(&fragment.selection_set, fields);
                }
                Selection::FragmentSpread(spread) if self.applies(&spread.directives) => {
                    if let Some(set) = self.fragments.get(spread.fragment_name.as_str()) {
                        self.collect(set, fields);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether `@skip` and `@include` keep the selection.
    fn applies(&self, directives: &[Directive]) -> bool {
        directives.iter().all(|directive| {
            let condition = directive.arguments.first().and_then(|(_, value)| json(value, &self.variables));
            condition.is_none_or(|condition| match directive.name.as_str() {
                "skip" => condition != true,
                "include" => condition == true,
                _ => true,
            })
        })
    }

    /// Writes the part of the value that `fields` select. They have one key, and are of the type `object`.
    pub(super) fn write(
        &self,
        object: &str,
        fields: &[&'a Field],
        value: &RawValue,
        out: &mut String,
    ) -> Result<()> {
        self.shape(object, fields).write(value, out)
    }

    fn shape(&self, object: &str, fields: &[&'a Field]) -> SelectedShape<'a> {
        let field = fields.first().and_then(|field| self.types.get(object)?.get(&field.name));
        let Some((name, _)) = field.and_then(|of| self.types.get_key_value(of.inner_type())) else {
            return SelectedShape::Leaf;
        };
        let sets: Vec<_> = fields.iter().map(|field| &field.selection_set).collect();
        let part = |(key, fields): (&str, Vec<&'a Field>)| {
            let kind = match fields.first().map_or("", |field| &field.name) {
                "__typename" => SelectedKind::Typename(name),
                field => SelectedKind::Member(field, self.shape(name, &fields)),
            };
            SelectedMember { key: quoted(key), what: kind }
        };
        SelectedShape::Object(self.fields(&sets).into_iter().map(part).collect())
    }
}

impl SelectedShape<'_> {
    fn write(&self, value: &RawValue, out: &mut String) -> Result<()> {
        match self {
            Self::Leaf => {
                out.push_str(value.get());
                Ok(())
            }
            Self::Object(parts) => {
                Objects { parts, out }.deserialize(&mut serde_json::Deserializer::from_str(value.get()))
            }
        }
    }
}

/// A visitor that writes an object, a list of objects, or `null` while it is read.
struct Objects<'s, 'a> {
    parts: &'s [SelectedMember<'a>],
    out: &'s mut String,
}

impl<'de> DeserializeSeed<'de> for Objects<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Objects<'_, '_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object, a list of objects, or null")
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        self.out.push_str("null");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<(), A::Error> {
        let Self { parts, out } = self;
        out.push('[');
        let first = out.len();
        loop {
            let before = out.len();
            out.push_str(if before > first { "," } else { "" });
            if items.next_element_seed(Objects { parts, out: &mut *out })?.is_none() {
                out.truncate(before);
                break;
            }
        }
        out.push(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> std::result::Result<(), A::Error> {
        let Self { parts, out } = self;
        let mut values: Vec<Option<&RawValue>> = vec![None; parts.len()];
        while let Some(name) = members.next_key::<&str>()? {
            let is_asked = |part: &SelectedMember<'_>| matches!(part.what, SelectedKind::Member(known, _) if known == name);
            let Some(first) = parts.iter().position(is_asked) else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = members.next_value()?;
            for (part, known) in parts.iter().zip(&mut values).skip(first) {
                if is_asked(part) {
                    *known = Some(value);
                }
            }
        }
        out.push('{');
        for (place, (part, value)) in parts.iter().zip(values).enumerate() {
            out.push_str(if place > 0 { "," } else { "" });
            out.push_str(&part.key);
            match &part.what {
                SelectedKind::Typename(name) => out.push_str(&format!("\"{name}\"")),
                SelectedKind::Member(_, shape) => {
                    shape.write(value.unwrap_or(RawValue::NULL), out).map_err(A::Error::custom)?;
                }
            }
        }
        out.push('}');
        Ok(())
    }
}

/// Returns the name of a member in quotes, followed by a colon.
pub(super) fn quoted(key: &str) -> String {
    format!("\"{key}\":")
}

/// Converts a value to JSON; `None` for an absent variable.
fn json(value: &query::Value, variables: &Map<String, Value>) -> Option<Value> {
    Some(match value {
        query::Value::Variable(name) => variables.get(name)?.clone(),
        query::Value::Int(number) => number.as_i64().into(),
        query::Value::Float(number) => (*number).into(),
        query::Value::String(text) | query::Value::Enum(text) => text.as_str().into(),
        query::Value::Boolean(value) => (*value).into(),
        query::Value::Null => Value::Null,
        query::Value::List(items) => items.iter().filter_map(|item| json(item, variables)).collect(),
        query::Value::Object(members) => {
            let member =
                |(name, value): &(String, query::Value)| Some((name.clone(), json(value, variables)?));
            members.iter().filter_map(member).collect()
        }
    })
}
