//! Simulated GraphQL services on JSON data, with the features that plans need.
//!
//! `data` contains the values of root fields (`Query`, `Mutation`) and the objects of each type, by service.
//! A field whose value is an object with a member `__error` fails. The field `sum` of an entity is computed
//! from `price` and `weight` in the representation, to test `@requires`.

use graphql_tools::static_graphql::query::{
    Definition, Document, OperationDefinition, Selection, SelectionSet, Value as AstValue,
};
use serde_json::{Map, Value, json};

pub(super) struct TestResolver<'a> {
    pub(super) data: &'a Value,
    pub(super) variables: &'a Value,
    /// The interfaces and unions of each type.
    pub(super) kinds: &'a Value,
    pub(super) document: Document,
    pub(super) errors: Vec<Value>,
}

impl TestResolver<'_> {
    /// Executes the document.
    pub(super) fn execute(mut self) -> Value {
        let document = self.document.clone();
        let (root, selections) = document
            .definitions
            .iter()
            .find_map(|definition| match definition {
                Definition::Operation(OperationDefinition::SelectionSet(set)) => Some(("Query", set)),
                Definition::Operation(OperationDefinition::Query(query)) => {
                    Some(("Query", &query.selection_set))
                }
                Definition::Operation(OperationDefinition::Mutation(mutation)) => {
                    Some(("Mutation", &mutation.selection_set))
                }
                _ => None,
            })
            .expect("an operation");
        let mut object = self.data[root].clone();
        object["__typename"] = root.into();
        let data = self.resolve_object(&object, selections, &mut Vec::new());
        let mut response = json!({ "data": data });
        if !self.errors.is_empty() {
            response["errors"] = self.errors.into();
        }
        response
    }

    fn resolve_object(&mut self, object: &Value, selections: &SelectionSet, path: &mut Vec<Value>) -> Value {
        let mut out = Map::new();
        self.resolve_selection(object, selections, path, &mut out);
        out.into()
    }

    fn resolve_selection(
        &mut self,
        object: &Value,
        set: &SelectionSet,
        path: &mut Vec<Value>,
        out: &mut Map<String, Value>,
    ) {
        let ty = object["__typename"].as_str().unwrap_or_default().to_owned();
        for item in &set.items {
            let (condition, inner) = match item {
                Selection::Field(field) => {
                    let key = field.alias.as_ref().unwrap_or(&field.name);
                    path.push(key.as_str().into());
                    let value = if field.name == "_entities" {
                        let Some((_, AstValue::Variable(name))) = field.arguments.first() else {
                            panic!("a variable")
                        };
                        let values: Vec<Value> = self.variables[name].as_array().expect("a list").clone();
                        values.iter().map(|known| self.resolve_entity(known)).collect()
                    } else {
                        object[&field.name].clone()
                    };
                    let value = self.complete_value(&value, &field.selection_set, path);
                    path.pop();
                    match (out.get_mut(key), value) {
                        (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
                        (_, value) => {
                            out.insert(key.clone(), value);
                        }
                    }
                    continue;
                }
                Selection::InlineFragment(fragment) => (
                    fragment.type_condition.as_ref().map(|name| name.as_ref().clone()),
                    fragment.selection_set.clone(),
                ),
                Selection::FragmentSpread(spread) => {
                    let fragment = self.document.definitions.iter().find_map(|definition| match definition {
                        Definition::Fragment(fragment) if fragment.name == spread.fragment_name => {
                            Some(fragment)
                        }
                        _ => None,
                    });
                    let fragment = fragment.expect("a fragment");
                    (Some(fragment.type_condition.as_ref().clone()), fragment.selection_set.clone())
                }
            };
            let is_meant = condition.is_none_or(|name| {
                name == ty || self.kinds[&ty].as_array().is_some_and(|kinds| kinds.contains(&name.into()))
            });
            if is_meant {
                self.resolve_selection(object, &inner, path, out);
            }
        }
    }

    fn complete_value(&mut self, value: &Value, set: &SelectionSet, path: &mut Vec<Value>) -> Value {
        match value {
            Value::Array(items) => {
                let mut list = Vec::new();
                for (place, item) in items.iter().enumerate() {
                    path.push(place.into());
                    list.push(self.complete_value(item, set, path));
                    path.pop();
                }
                list.into()
            }
            Value::Object(object) => match object.get("__error") {
                Some(message) => {
                    self.errors.push(json!({ "message": message, "path": path }));
                    Value::Null
                }
                None if set.items.is_empty() => value.clone(),
                None => {
                    let object = self.merge_known_fields(value);
                    self.resolve_object(&object, set, path)
                }
            },
            leaf => leaf.clone(),
        }
    }

    /// Extends an object that has only its type and key with all known fields.
    fn merge_known_fields(&self, object: &Value) -> Value {
        let value = self.find_record(object).cloned().unwrap_or_else(|| json!({}));
        let mut whole = value.as_object().cloned().unwrap_or_default();
        whole.extend(object.as_object().cloned().unwrap_or_default());
        whole.into()
    }

    fn find_record(&self, object: &Value) -> Option<&Value> {
        let members = object.as_object()?;
        self.data[object["__typename"].as_str()?].as_array()?.iter().find(|known| {
            let said: Vec<_> =
                members.iter().filter(|(name, _)| known.get(name.as_str()).is_some()).collect();
            !said.is_empty() && said.iter().all(|(name, value)| known[name.as_str()] == **value)
        })
    }

    fn resolve_entity(&self, representation: &Value) -> Value {
        let mut key = representation.clone();
        for name in ["price", "weight", "box"] {
            key.as_object_mut().expect("an object").remove(name);
        }
        let Some(known) = self.find_record(&key) else { return Value::Null };
        let mut entity = known.clone();
        entity["__typename"] = representation["__typename"].clone();
        let number = |value: &Value| value.as_i64().unwrap_or_default();
        let parts = [&representation["price"], &representation["weight"], &representation["box"]["size"]];
        if parts.iter().any(|part| !part.is_null()) {
            entity["sum"] = parts.into_iter().map(number).sum::<i64>().into();
        }
        entity
    }
}
