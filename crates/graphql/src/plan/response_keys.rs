//! The response keys under which a client's fields are planned, so that none of them is mistaken for another
//! field.
//!
//! Steps fetch more than the client selected: the fields of keys, `@requires` and links under their own
//! names, and `__typename`. A client may use these names as aliases of other fields, and a GraphQL document
//! may use one key for different fields of different objects. The planner therefore gets each field under a
//! key that is unique for its name and arguments. If there is no conflict, this is the client's key. `shape`
//! maps these keys back to the client's keys.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use graphql_tools::static_graphql::query::{
    Definition, Document, Field, OperationDefinition, Selection, SelectionSet, Value,
};
use graphql_tools::static_graphql::schema::{
    Definition as SchemaDefinition, Directive, Document as SchemaDocument, TypeDefinition, Value as AstValue,
};

/// The prefix of all names that the gateway gives to its own fields.
const GATEWAY_PREFIX: &str = "orfa_";
/// The arguments of `@join__type` and `@join__field` that are field sets.
const FIELD_SETS: [&str; 3] = ["key", "requires", "provides"];

/// The names that steps may request in addition to the client's selection.
#[derive(Debug, Default)]
pub(crate) struct ReservedNames(HashSet<Box<str>>);

/// The planned keys of a document's fields.
#[derive(Debug)]
pub(crate) struct ResponseKeys<'d> {
    reserved: &'d ReservedNames,
    /// The fields with each client key, each with its number.
    fields: HashMap<&'d str, HashMap<FieldSignature<'d>, usize>>,
}

/// The identity of a field: its name, and its arguments as text.
type FieldSignature<'d> = (&'d str, String);

impl ReservedNames {
    /// The names in the field sets of a supergraph.
    pub(crate) fn from_supergraph(supergraph: &SchemaDocument) -> Self {
        let mut names = HashSet::new();
        let mut add = |directives: &[Directive]| {
            let arguments = directives.iter().flat_map(|directive| &directive.arguments);
            for (_, value) in arguments.filter(|(name, _)| FIELD_SETS.contains(&name.as_str())) {
                let AstValue::String(text) = value else { continue };
                let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                names.extend(words.filter(|word| !word.is_empty()).map(Box::from));
            }
        };
        for definition in &supergraph.definitions {
            let SchemaDefinition::TypeDefinition(definition) = definition else { continue };
            let (directives, fields) = match definition {
                TypeDefinition::Object(object) => (&object.directives, &object.fields),
                TypeDefinition::Interface(interface) => (&interface.directives, &interface.fields),
                _ => continue,
            };
            add(directives);
            fields.iter().for_each(|field| add(&field.directives));
        }
        Self(names)
    }

    /// Whether a step may use this key for a field other than the one with this name and no arguments.
    fn is_reserved(&self, key: &str) -> bool {
        key.starts_with('_') || key.starts_with(GATEWAY_PREFIX) || self.0.contains(key)
    }
}

impl<'d> ResponseKeys<'d> {
    /// Computes the keys of all fields of a document.
    pub(crate) fn from_document(document: &'d Document, reserved: &'d ReservedNames) -> Self {
        let mut keys = Self { reserved, fields: HashMap::new() };
        for definition in &document.definitions {
            keys.add_selections(match definition {
                Definition::Fragment(fragment) => &fragment.selection_set,
                Definition::Operation(OperationDefinition::Query(query)) => &query.selection_set,
                Definition::Operation(OperationDefinition::Mutation(mutation)) => &mutation.selection_set,
                Definition::Operation(OperationDefinition::SelectionSet(selections)) => selections,
                Definition::Operation(OperationDefinition::Subscription(_)) => continue,
            });
        }
        keys
    }

    fn add_selections(&mut self, selections: &'d SelectionSet) {
        for item in &selections.items {
            match item {
                Selection::Field(field) => {
                    let key = response_key(field);
                    let known =
                        self.fields.entry(key).or_insert_with(|| match self.reserved.is_reserved(key) {
                            true => HashMap::from([((key, String::new()), 0)]),
                            false => HashMap::new(),
                        });
                    let next = known.len();
                    known.entry(field_signature(field)).or_insert(next);
                    self.add_selections(&field.selection_set);
                }
                Selection::InlineFragment(fragment) => self.add_selections(&fragment.selection_set),
                Selection::FragmentSpread(_) => {}
            }
        }
    }

    /// The key under which a field of the document is planned.
    pub(crate) fn planned_key<'f>(&self, field: &'f Field) -> Cow<'f, str> {
        let key = response_key(field);
        let number = self.fields.get(key).and_then(|known| known.get(&field_signature(field)));
        match number {
            None | Some(0) => Cow::Borrowed(key),
            Some(number) => Cow::Owned(format!("{GATEWAY_PREFIX}{number}_{key}")),
        }
    }

    /// Renames the fields in the planner's copy of the document. `__typename` keeps its name, as steps
    /// request it too.
    pub(crate) fn rename_fields(&self, document: &mut Document) {
        for definition in &mut document.definitions {
            self.rename_selections(match definition {
                Definition::Fragment(fragment) => &mut fragment.selection_set,
                Definition::Operation(OperationDefinition::Query(query)) => &mut query.selection_set,
                Definition::Operation(OperationDefinition::Mutation(mutation)) => &mut mutation.selection_set,
                Definition::Operation(OperationDefinition::SelectionSet(selections)) => selections,
                Definition::Operation(OperationDefinition::Subscription(_)) => continue,
            });
        }
    }

    fn rename_selections(&self, selections: &mut SelectionSet) {
        for item in &mut selections.items {
            match item {
                Selection::Field(field) if field.name == "__typename" => {
                    (field.alias, field.directives) = (None, Vec::new());
                }
                Selection::Field(field) => {
                    let key = self.planned_key(field).into_owned();
                    field.alias = (key != field.name).then_some(key);
                    self.rename_selections(&mut field.selection_set);
                }
                Selection::InlineFragment(fragment) => self.rename_selections(&mut fragment.selection_set),
                Selection::FragmentSpread(_) => {}
            }
        }
    }
}

/// The client's key for a planned key.
pub(crate) fn client_key(planned: &str) -> &str {
    let key = planned
        .strip_prefix(GATEWAY_PREFIX)
        .map(|rest| rest.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    key.and_then(|key| key.strip_prefix('_')).unwrap_or(planned)
}

fn response_key(field: &Field) -> &str {
    field.alias.as_deref().unwrap_or(&field.name)
}

fn field_signature(field: &Field) -> FieldSignature<'_> {
    let mut text = String::new();
    write_members(&field.arguments, &mut text);
    (&field.name, text)
}

/// Writes arguments, or the fields of an input object, in a canonical order.
fn write_members(members: &[(String, Value)], out: &mut String) {
    let mut members: Vec<&(String, Value)> = members.iter().collect();
    members.sort_by_key(|(name, _)| name);
    for (name, value) in members {
        out.push_str(name);
        out.push(':');
        write_value(value, out);
        out.push(' ');
    }
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::List(items) => {
            out.push('[');
            for item in items {
                write_value(item, out);
                out.push(' ');
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            write_members(members, out);
            out.push('}');
        }
        // Rust's debug format quotes and escapes the string.
        Value::String(text) => {
            let _ = write!(out, "{text:?}");
        }
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}
