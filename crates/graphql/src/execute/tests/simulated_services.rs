//! Simulated subgraphs with the data of a table, restricted to the fields that the supergraph assigns to
//! them: `tests/fixtures/oracle/runs/`.
//!
//! Each behaves like a real one: a document must be valid by its own schema, entities are found by its own
//! keys, external fields are available only where they are provided, and required fields must be sent.

use std::collections::HashMap;
use std::sync::Mutex;

use graphql_tools::static_graphql::query::{
    self, Definition, Document, OperationDefinition, Selection, SelectionSet, Value as AstValue,
};
use graphql_tools::validation::rules::default_rules_validation_plan;
use graphql_tools::validation::validate::validate;
use serde_json::{Map, Value, json};

use super::subgraph::{TestSubgraph, TestSubgraphField};

/// All data, and the services with their parts of it.
pub(super) struct SimulatedServices {
    pub(super) data: Value,
    pub(super) services: HashMap<String, TestSubgraph>,
    /// The current sum of all additions.
    pub(super) additions: Mutex<i64>,
    /// The invalid requests to services.
    pub(super) violations: Mutex<Vec<String>>,
}

/// An object as a service has it.
struct SimulatedObject<'p> {
    ty: &'p str,
    record: Value,
    /// The representation that was sent.
    representation: Option<Value>,
    /// The selections of external fields that are provided at this position.
    provided: Vec<&'p SelectionSet>,
}

/// A document that a service executes.
struct ExecutedDocument<'p> {
    services: &'p SimulatedServices,
    service: &'p TestSubgraph,
    document: &'p Document,
    variables: &'p Value,
    path: Vec<Value>,
    errors: Vec<Value>,
}

impl SimulatedServices {
    /// Returns a service's response.
    pub(super) fn execute(&self, service: &str, text: &str, variables: &Value) -> Value {
        let service = &self.services[service];
        let document = graphql_tools::parser::parse_query(text).expect("a document").into_static();
        for error in validate(&service.schema, &document, &default_rules_validation_plan()) {
            self.record_violation(format!("{}: {} in {text}", service.name, error.message));
        }
        let operation = document.definitions.iter().find_map(|definition| match definition {
            Definition::Operation(operation) => Some(operation),
            Definition::Fragment(_) => None,
        });
        let (ty, selections) = match operation.expect("an operation") {
            OperationDefinition::Mutation(mutation) => ("Mutation", &mutation.selection_set),
            OperationDefinition::Query(query) => ("Query", &query.selection_set),
            OperationDefinition::SelectionSet(selections) => ("Query", selections),
            OperationDefinition::Subscription(_) => panic!("a subscription"),
        };
        let root =
            SimulatedObject { ty, record: self.data[ty].clone(), representation: None, provided: Vec::new() };
        let (document, path, errors) = (&document, Vec::new(), Vec::new());
        let mut executed_document =
            ExecutedDocument { services: self, service, document, variables, path, errors };
        let data = executed_document.resolve_object(&root, &[selections]);
        let errors = std::mem::take(&mut executed_document.errors);
        if errors.is_empty() { json!({ "data": data }) } else { json!({ "data": data, "errors": errors }) }
    }

    fn record_violation(&self, what: String) {
        self.violations.lock().unwrap().push(what);
    }

    /// Resolves a reference to its object; other values are returned as they are.
    fn dereference(&self, value: &Value) -> Value {
        let Some(ty) = value.get("@").and_then(Value::as_str) else { return value.clone() };
        let mut members = value.as_object().expect("an object").clone();
        members.remove("@");
        self.find_record(ty, |record| members.iter().all(|(name, value)| record[name] == *value))
    }

    fn find_record(&self, ty: &str, is_meant: impl Fn(&Value) -> bool) -> Value {
        let value = self.data[ty].as_array().into_iter().flatten().find(|record| is_meant(record));
        let Some(found) = value else { return Value::Null };
        let mut found = found.clone();
        found["__typename"] = ty.into();
        found
    }

    /// Whether a representation contains all fields of a selection with the correct values.
    fn matches_record(
        &self,
        service: &TestSubgraph,
        selections: &SelectionSet,
        sent: &Value,
        record: &Value,
    ) -> bool {
        let record = self.dereference(record);
        if let (Value::Array(sent), Value::Array(records)) = (sent, &record) {
            return sent.len() == records.len()
                && sent
                    .iter()
                    .zip(records)
                    .all(|(sent, record)| self.matches_record(service, selections, sent, record));
        }
        if sent.is_null() || record.is_null() {
            return sent.is_null() && record.is_null();
        }
        selections.items.iter().all(|item| match item {
            Selection::Field(field) if field.selection_set.items.is_empty() => {
                sent.get(&field.name) == Some(&record[&field.name])
            }
            Selection::Field(field) => sent.get(&field.name).is_some_and(|sent| {
                self.matches_record(service, &field.selection_set, sent, &record[&field.name])
            }),
            Selection::InlineFragment(fragment) => {
                let condition = fragment.type_condition.as_ref().map(query::TypeCondition::as_ref);
                let ty = record["__typename"].as_str().unwrap_or_default();
                condition.is_some_and(|condition| !service.is_subtype(ty, condition))
                    || self.matches_record(service, &fragment.selection_set, sent, &record)
            }
            Selection::FragmentSpread(_) => false,
        })
    }
}

impl<'p> ExecutedDocument<'p> {
    fn resolve_object(&mut self, object: &SimulatedObject<'p>, selections: &[&'p SelectionSet]) -> Value {
        let mut fields: Vec<(&str, &query::Field, Vec<&SelectionSet>)> = Vec::new();
        for selections in selections {
            self.collect_fields(object.ty, selections, &mut fields);
        }
        let mut out = Map::new();
        for (key, field, selections) in fields {
            self.path.push(key.into());
            let value = self.resolve_field(object, field, &selections);
            self.path.pop();
            out.insert(key.to_owned(), value);
        }
        out.into()
    }

    fn collect_fields(
        &self,
        ty: &str,
        selections: &'p SelectionSet,
        out: &mut Vec<(&'p str, &'p query::Field, Vec<&'p SelectionSet>)>,
    ) {
        for item in &selections.items {
            let (condition, directives, inner) = match item {
                Selection::Field(field) => {
                    if !self.is_included(&field.directives) {
                        continue;
                    }
                    let key = field.alias.as_deref().unwrap_or(&field.name);
                    match out.iter_mut().find(|(known, ..)| *known == key) {
                        Some((_, _, selections)) => selections.push(&field.selection_set),
                        None => out.push((key, field, vec![&field.selection_set])),
                    }
                    continue;
                }
                Selection::InlineFragment(fragment) => {
                    let condition = fragment.type_condition.as_ref().map(query::TypeCondition::as_ref);
                    (condition, &fragment.directives, &fragment.selection_set)
                }
                Selection::FragmentSpread(spread) => {
                    let fragment = self.document.definitions.iter().find_map(|definition| match definition {
                        Definition::Fragment(fragment) if fragment.name == spread.fragment_name => {
                            Some(fragment)
                        }
                        _ => None,
                    });
                    let fragment = fragment.expect("a fragment");
                    (Some(fragment.type_condition.as_ref()), &spread.directives, &fragment.selection_set)
                }
            };
            if self.is_included(directives)
                && condition.is_none_or(|condition| self.service.is_subtype(ty, condition))
            {
                self.collect_fields(ty, inner, out);
            }
        }
    }

    fn is_included(&self, directives: &[query::Directive]) -> bool {
        directives.iter().all(|directive| {
            let condition = directive.arguments.first().map(|(_, value)| self.argument_value(value));
            (condition == Some(true.into())) == (directive.name == "include")
        })
    }

    fn resolve_field(
        &mut self,
        object: &SimulatedObject<'p>,
        field: &'p query::Field,
        selections: &[&'p SelectionSet],
    ) -> Value {
        if field.name == "__typename" {
            return object.ty.into();
        }
        let arguments: Map<String, Value> =
            field.arguments.iter().map(|(name, value)| (name.clone(), self.argument_value(value))).collect();
        if field.name == "_entities" {
            let representations = arguments["representations"].as_array().cloned().unwrap_or_default();
            let entity = |(number, sent): (usize, Value)| {
                self.path.push(number.into());
                let entity = self
                    .find_entity(sent)
                    .map_or(Value::Null, |entity| self.resolve_object(&entity, selections));
                self.path.pop();
                entity
            };
            return representations.into_iter().enumerate().map(entity).collect();
        }
        let service = self.service;
        let Some(subgraph_field) = service.find_field(object.ty, &field.name) else {
            return self.reject(format!("{} has no `{}`", object.ty, field.name));
        };
        let provided = provided_selections(service, object, &field.name);
        if subgraph_field.is_external && provided.is_empty() {
            return self.reject(format!("`{}.{}` is external", object.ty, field.name));
        }
        if let Some(requires) = &subgraph_field.requires {
            let sent = object.representation.as_ref().unwrap_or(&Value::Null);
            if sent.is_null() || !self.services.matches_record(service, requires, sent, &object.record) {
                return self.reject(format!("`{}.{}` requires more than {sent}", object.ty, field.name));
            }
        }
        let given = self.resolve_directive_value(&object.record[&field.name], arguments);
        let provided = provided.into_iter().chain(&subgraph_field.provides).collect::<Vec<_>>();
        self.complete_value(given, subgraph_field, &provided, selections)
    }

    fn reject(&mut self, why: String) -> Value {
        self.services.record_violation(format!("{}: {why}, at {:?}", self.service.name, self.path));
        Value::Null
    }

    fn resolve_directive_value(&self, given: &Value, arguments: Map<String, Value>) -> Value {
        if let Some(ty) = given.get("$find").and_then(Value::as_str) {
            return self
                .services
                .find_record(ty, |record| arguments.iter().all(|(name, value)| record[name] == *value));
        }
        if let Some(name) = given.get("$add").and_then(Value::as_str) {
            let mut sum = self.services.additions.lock().unwrap();
            *sum += arguments[name].as_i64().expect("a number");
            return (*sum).into();
        }
        if given.get("$echo").is_some() {
            return sort_members(&Value::Object(arguments)).to_string().into();
        }
        given.clone()
    }

    fn complete_value(
        &mut self,
        value: Value,
        field: &'p TestSubgraphField,
        provided: &[&'p SelectionSet],
        selections: &[&'p SelectionSet],
    ) -> Value {
        if let Value::Array(items) = value {
            let item = |(number, item): (usize, Value)| {
                self.path.push(number.into());
                let item = self.complete_value(item, field, provided, selections);
                self.path.pop();
                item
            };
            return items.into_iter().enumerate().map(item).collect();
        }
        if let Some(why) = value.get("$error") {
            self.errors.push(json!({ "message": why, "path": self.path }));
            return Value::Null;
        }
        if selections.iter().all(|selections| selections.items.is_empty()) || value.is_null() {
            return value;
        }
        let record = self.services.dereference(&value);
        let ty = record["__typename"].as_str().unwrap_or(&field.type_name);
        let Some(ty) = self.service.object_type(ty) else { return Value::Null };
        let object = SimulatedObject { ty, record, representation: None, provided: provided.to_vec() };
        self.resolve_object(&object, selections)
    }

    /// Finds the entity of a representation by one of the service's keys.
    fn find_entity(&mut self, sent: Value) -> Option<SimulatedObject<'p>> {
        let ty = sent["__typename"].as_str().unwrap_or_default();
        let (played, service) = (self.services, self.service);
        let keys: Vec<&SelectionSet> = service.keys(ty).filter(|key| has_key(&sent, key)).collect();
        if keys.is_empty() {
            self.reject(format!("no key in {sent}"));
            return None;
        }
        let record = service.possible_objects(ty).into_iter().find_map(|ty| {
            let is_meant =
                |record: &Value| keys.iter().any(|key| played.matches_record(service, key, &sent, record));
            Some(played.find_record(ty, is_meant)).filter(|record| !record.is_null())
        })?;
        let ty = service.object_type(record["__typename"].as_str()?)?;
        Some(SimulatedObject { ty, record, representation: Some(sent), provided: Vec::new() })
    }

    fn argument_value(&self, value: &AstValue) -> Value {
        match value {
            AstValue::Variable(name) => self.variables.get(name).cloned().unwrap_or_default(),
            AstValue::Int(number) => number.as_i64().into(),
            AstValue::Float(number) => (*number).into(),
            AstValue::String(text) | AstValue::Enum(text) => text.as_str().into(),
            AstValue::Boolean(it) => (*it).into(),
            AstValue::Null => Value::Null,
            AstValue::List(items) => items.iter().map(|item| self.argument_value(item)).collect(),
            AstValue::Object(members) => members
                .iter()
                .map(|(name, value)| (name.clone(), self.argument_value(value)))
                .collect::<Map<_, _>>()
                .into(),
        }
    }
}

/// Returns the provided selections of a field; not empty if the field itself is provided.
fn provided_selections<'p>(
    service: &TestSubgraph,
    object: &SimulatedObject<'p>,
    name: &str,
) -> Vec<&'p SelectionSet> {
    fn collect_provided<'p>(
        service: &TestSubgraph,
        ty: &str,
        name: &str,
        all: &'p SelectionSet,
        out: &mut Vec<&'p SelectionSet>,
    ) {
        for item in &all.items {
            match item {
                Selection::Field(field) if field.name == name => out.push(&field.selection_set),
                Selection::InlineFragment(fragment)
                    if fragment
                        .type_condition
                        .as_ref()
                        .is_none_or(|it| service.is_subtype(ty, it.as_ref())) =>
                {
                    collect_provided(service, ty, name, &fragment.selection_set, out);
                }
                _ => {}
            }
        }
    }
    let mut out = Vec::new();
    object.provided.iter().for_each(|all| collect_provided(service, object.ty, name, all, &mut out));
    out
}

/// Whether all fields of a key are present.
fn has_key(sent: &Value, key: &SelectionSet) -> bool {
    key.items.iter().all(|item| {
        let Selection::Field(field) = item else { return false };
        sent.get(&field.name).is_some_and(|value| value.is_array() || has_key(value, &field.selection_set))
    })
}

/// Returns the value with the members of objects sorted by name.
fn sort_members(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: std::collections::BTreeMap<_, _> =
                members.iter().map(|(name, value)| (name.clone(), sort_members(value))).collect();
            members.into_iter().collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(sort_members).collect(),
        other => other.clone(),
    }
}
