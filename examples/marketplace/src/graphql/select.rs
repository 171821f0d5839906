//! The part of a JSON text that a selection asks for. There are no interfaces and unions in these schemas, so that a
//! fragment always applies.

use std::collections::HashMap;

use graphql_tools::static_graphql::query::{
    self, Definition, Directive, Document, Field, OperationDefinition, Selection, SelectionSet,
};
use serde_json::value::RawValue;
use serde_json::{Map, Result, Value};

use super::Types;

/// What a request's selections mean.
pub(super) struct Selector<'a> {
    types: &'a Types,
    fragments: HashMap<&'a str, &'a SelectionSet>,
    variables: Map<String, Value>,
}

/// The fields of an answer's object by their keys, in the order in which they are asked for. Those of one key are asked for
/// as one.
type Fields<'a> = Vec<(&'a str, Vec<&'a Field>)>;

impl<'a> Selector<'a> {
    pub(super) fn new(
        types: &'a Types,
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

    /// What a field's arguments are; those of variables that are not there are left out.
    pub(super) fn arguments(&self, field: &Field) -> Map<String, Value> {
        let given = field.arguments.iter();
        given.filter_map(|(name, value)| Some((name.clone(), json(value, &self.variables)?))).collect()
    }

    /// The fields that all these selections ask for.
    pub(super) fn fields(&self, sets: &[&'a SelectionSet]) -> Fields<'a> {
        let mut fields = Fields::new();
        sets.iter().for_each(|set| self.collect(set, &mut fields));
        fields
    }

    fn collect(&self, set: &'a SelectionSet, fields: &mut Fields<'a>) {
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

    /// Whether `@skip` and `@include` let it be.
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

    /// Writes what `fields`, which are one field of `object`, ask for of its value.
    pub(super) fn write(
        &self,
        object: &str,
        fields: &[&'a Field],
        value: &RawValue,
        out: &mut String,
    ) -> Result<()> {
        let field = fields.first().and_then(|field| self.types.get(object)?.get(&field.name));
        let Some((name, _)) = field.and_then(|of| self.types.get_key_value(of.inner_type())) else {
            out.push_str(value.get());
            return Ok(());
        };
        let sets: Vec<_> = fields.iter().map(|field| &field.selection_set).collect();
        self.objects(name, &self.fields(&sets), value.get(), out)
    }

    /// An object of this type, or a list of them. Only the members that are asked for are looked into.
    fn objects(&self, name: &str, fields: &Fields<'a>, text: &str, out: &mut String) -> Result<()> {
        if text.starts_with('[') {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            out.push('[');
            for (place, item) in items.into_iter().enumerate() {
                out.push_str(if place > 0 { "," } else { "" });
                self.objects(name, fields, item.get(), out)?;
            }
            out.push(']');
            return Ok(());
        }
        let Some(row): Option<HashMap<&str, &RawValue>> = serde_json::from_str(text)? else {
            out.push_str("null");
            return Ok(());
        };
        out.push('{');
        for (place, (key, fields)) in fields.iter().enumerate() {
            out.push_str(if place > 0 { "," } else { "" });
            out.push_str(&quoted(key));
            match fields.first().map_or("", |field| &field.name) {
                "__typename" => out.push_str(&format!("\"{name}\"")),
                field => self.write(name, fields, row.get(field).copied().unwrap_or(RawValue::NULL), out)?,
            }
        }
        out.push('}');
        Ok(())
    }
}

/// The name of a member, with what follows it.
pub(super) fn quoted(key: &str) -> String {
    format!("\"{key}\":")
}

/// A value as JSON; none for a variable that is not there.
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
