//! Conversion of a model to a subgraph: the schema text of all types reachable from operations and links, and
//! the bindings.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;
use std::sync::Arc;

use indexmap::IndexSet;

use super::model::{
    BUILT_IN_SCALARS, MUTATION, ModelField, ModelFieldSource, ModelFields, ModelProtocol, ModelType,
    ModelTypeRef, ModelTypeShape, QUERY, ServiceModel,
};
use crate::subgraph::{
    EntityBinding, OperationKind, ScalarInput, Subgraph, SubgraphBindings, SubgraphProtocol, TypeBinding,
    TypeRule,
};

/// The header of a subgraph's schema.
const SCHEMA_HEADER: &str = "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.3\", \
                    import: [\"@key\", \"@shareable\", \"@inaccessible\"])\n";

/// Returns the subgraph of a model, or `None` if it has no operations.
pub(super) fn write_subgraph(models: &[ServiceModel], number: usize) -> Option<Subgraph> {
    let model = &models[number];
    let mut writer = SchemaWriter {
        models,
        number,
        reached: HashSet::new(),
        pending: VecDeque::new(),
        written_names: HashSet::new(),
        text: String::new(),
    };
    let is_federated = matches!(model.protocol, ModelProtocol::Federated { .. });
    let text = if is_federated { writer.write_additions() } else { writer.write_schema()? };
    let bindings = Arc::new(writer.build_bindings());
    let name = Arc::clone(&model.service);
    Some(match &model.protocol {
        ModelProtocol::Rest => Subgraph { name, sdl: text, kind: SubgraphProtocol::Rest(bindings) },
        ModelProtocol::Graphql { path } => {
            let path = Arc::clone(path);
            Subgraph { name, sdl: text, kind: SubgraphProtocol::Remote { path, bindings, is_federated } }
        }
        ModelProtocol::Federated { path, sdl } => {
            let path = Arc::clone(path);
            Subgraph {
                name,
                sdl: format!("{sdl}\n{text}"),
                kind: SubgraphProtocol::Remote { path, bindings, is_federated },
            }
        }
    })
}

struct SchemaWriter<'a> {
    models: &'a [ServiceModel],
    number: usize,
    /// The types reached so far, by model and key.
    reached: HashSet<(usize, &'a str)>,
    pending: VecDeque<(usize, &'a str)>,
    /// The names of the types written so far.
    written_names: HashSet<&'a str>,
    text: String,
}

impl<'a> SchemaWriter<'a> {
    fn model(&self) -> &'a ServiceModel {
        &self.models[self.number]
    }

    /// Writes all types reachable from the operations, and the types of other services that get fields from
    /// this one.
    fn write_schema(&mut self) -> Option<String> {
        let model = self.model();
        let has_fields = |root: &&str| {
            model.fields(root).is_some_and(|fields| fields.values().any(|it| self.is_visible(it)))
        };
        let roots: Vec<&'static str> = [QUERY, MUTATION].into_iter().filter(has_fields).collect();
        if roots.is_empty() && model.stubs.is_empty() {
            return None;
        }
        self.text.push_str(SCHEMA_HEADER);
        for root in roots {
            self.enqueue_type(self.number, root);
        }
        self.write_pending();
        self.write_stubs("type");
        self.write_pending();
        Some(std::mem::take(&mut self.text))
    }

    /// Writes the additions of links to a federated subgraph's own schema.
    fn write_additions(&mut self) -> String {
        let model = self.model();
        for (key, it) in &model.types {
            let links = it.shape.fields().into_iter().flatten().map(|(_, field)| field);
            let is_new = |field: &&ModelField| {
                matches!(field.source, ModelFieldSource::Link(_)) && self.is_visible(field)
            };
            let links: Vec<&ModelField> = links.filter(is_new).collect();
            if it.keys.is_empty() && links.is_empty() {
                continue;
            }
            let _ =
                write!(self.text, "\nextend type {}{}", it.name, self.key_directives(self.number, key, it));
            self.text.push_str(if links.is_empty() { "\n" } else { " {\n" });
            links.iter().for_each(|field| self.write_field(self.number, field, false));
            self.text.push_str(if links.is_empty() { "" } else { "}\n" });
        }
        self.write_stubs("extend type");
        self.write_pending();
        std::mem::take(&mut self.text)
    }

    /// Writes the reached types and the types that they refer to. Scalars are shared by all services, and the
    /// types of a federated subgraph are in its own text.
    fn write_pending(&mut self) {
        let model = self.model();
        let is_federated = matches!(model.protocol, ModelProtocol::Federated { .. });
        while let Some((number, key)) = self.pending.pop_front() {
            let Some(it) = self.models[number].types.get(key) else { continue };
            if !(is_federated && model.types.contains_key(key)) && self.written_names.insert(&it.name) {
                self.write_type(number, key, it);
            }
        }
    }

    fn write_stubs(&mut self, word: &str) {
        let models = self.models;
        for stub in &self.model().stubs {
            let owner = &models[stub.model];
            let Some(of) = owner.fields(&stub.type_key) else { continue };
            let _ = write!(self.text, "\n{word} {}", owner.type_name(&stub.type_key));
            let _ = writeln!(self.text, " @key(fields: \"{}\") {{", field_names(of, &stub.needed_fields));
            for field in stub.needed_fields.iter().filter_map(|key| of.get(key)) {
                self.write_field(stub.model, field, field.is_hidden);
            }
            let shown: Vec<&ModelField> = stub.fields.iter().filter(|field| self.is_visible(field)).collect();
            shown.into_iter().for_each(|field| self.write_field(self.number, field, false));
            self.text.push_str("}\n");
        }
    }

    fn enqueue_type(&mut self, number: usize, key: &'a str) {
        if !BUILT_IN_SCALARS.contains(&key) && self.reached.insert((number, key)) {
            self.pending.push_back((number, key));
        }
    }

    /// Whether the field is in the schema: neither the field nor its type is hidden.
    fn is_visible(&self, field: &ModelField) -> bool {
        !field.is_hidden && !self.model().is_hidden(field.type_ref.key())
    }

    /// The directive of a hidden type. Such a type is in the schema only as the type of a field that other
    /// services need.
    fn inaccessible_directive(&self, number: usize, it: &ModelType) -> &'static str {
        // A scalar is shared by all services, so another service may show it.
        let shows = |other: &ModelType| other.name == it.name && !other.is_hidden;
        let is_shared = matches!(it.shape, ModelTypeShape::Scalar)
            && self.models.iter().any(|model| model.types.values().any(shows));
        if it.is_hidden && number == self.number && !is_shared { " @inaccessible" } else { "" }
    }

    fn write_type(&mut self, number: usize, key: &'a str, it: &'a ModelType) {
        self.text.push('\n');
        self.write_description("", &it.description);
        let (name, mark, model) = (&it.name, self.inaccessible_directive(number, it), &self.models[number]);
        let _ = match &it.shape {
            ModelTypeShape::Scalar => writeln!(self.text, "scalar {name}{mark}"),
            ModelTypeShape::Enum(values) => {
                let _ = writeln!(self.text, "enum {name}{mark} {{");
                for value in values {
                    self.write_description("  ", &value.description);
                    let _ = writeln!(
                        self.text,
                        "  {}{}",
                        value.name,
                        deprecated_directive(value.deprecated.as_deref())
                    );
                }
                writeln!(self.text, "}}")
            }
            ModelTypeShape::Union { types, .. } => {
                let mut shown = visible_types(model, types);
                shown.retain(|key| model.types.contains_key(*key));
                let _ = writeln!(self.text, "union {name}{mark} = {}", type_names(model, &shown).join(" | "));
                shown.into_iter().for_each(|key| self.enqueue_type(number, key));
                Ok(())
            }
            ModelTypeShape::Object { fields, implements } => {
                let shown = visible_types(model, implements);
                let head = format!(
                    "{name}{}{}{mark}",
                    implements_clause(model, &shown),
                    self.key_directives(number, key, it)
                );
                self.write_block(number, "type", &head, fields, it);
                shown.into_iter().for_each(|key| self.enqueue_type(number, key));
                Ok(())
            }
            ModelTypeShape::Interface { fields, implements } => {
                let head =
                    format!("{name}{}{mark}", implements_clause(model, &visible_types(model, implements)));
                self.write_block(number, "interface", &head, fields, it);
                let is_of_it = |it: &ModelType| it.shape.implements().iter().any(|known| **known == *key);
                let theirs = model.types.iter().filter(|(_, it)| !it.is_hidden && is_of_it(it));
                theirs.for_each(|(other, _)| self.enqueue_type(number, other));
                Ok(())
            }
            ModelTypeShape::Input(fields) => {
                self.write_block(number, "input", &format!("{name}{mark}"), fields, it);
                Ok(())
            }
        };
    }

    /// The keys by which other services refer to the type. Keys that only links of other services need are
    /// not resolvable.
    fn key_directives(&self, number: usize, key: &str, it: &ModelType) -> String {
        let fields = self.models[number].fields(key);
        let own = self.models[number]
            .keyed_calls
            .iter()
            .filter(|calls| *calls.type_key == *key)
            .map(|keyed_calls| &keyed_calls.needed_fields);
        let mut keys = String::new();
        for needs in own.clone() {
            let names = fields.map(|fields| field_names(fields, needs)).unwrap_or_default();
            let _ = write!(keys, " @key(fields: \"{names}\")");
        }
        for needs in it.keys.iter().filter(|needs| !own.clone().any(|own| own == *needs)) {
            let names = fields.map(|fields| field_names(fields, needs)).unwrap_or_default();
            let _ = write!(keys, " @key(fields: \"{names}\", resolvable: false)");
        }
        keys
    }

    fn write_block(
        &mut self,
        number: usize,
        word: &str,
        head: &str,
        fields: &'a ModelFields,
        it: &ModelType,
    ) {
        let _ = writeln!(self.text, "{word} {head} {{");
        for (key, field) in fields {
            let is_shown = self.is_visible(field);
            if is_shown || it.keys.iter().any(|needs| needs.contains(key)) {
                self.write_field(number, field, !is_shown);
            }
        }
        self.text.push_str("}\n");
    }

    fn write_field(&mut self, number: usize, field: &'a ModelField, is_hidden: bool) {
        self.write_description("  ", &field.description);
        let _ = write!(self.text, "  {}", field.name);
        let arguments: Vec<&'a ModelField> =
            field.arguments.values().filter(|it| self.is_visible(it)).collect();
        for (place, argument) in arguments.iter().enumerate() {
            self.text.push_str(if place == 0 { "(" } else { ", " });
            let _ =
                write!(self.text, "{}: {}", argument.name, self.format_type_ref(number, &argument.type_ref));
            self.write_default(argument);
            self.enqueue_type(number, argument.type_ref.key());
        }
        self.text.push_str(if arguments.is_empty() { ": " } else { "): " });
        let of = self.format_type_ref(number, &field.type_ref);
        self.text.push_str(&of);
        self.write_default(field);
        self.text.push_str(&deprecated_directive(field.deprecated.as_deref()));
        self.text.push_str(if is_hidden { " @inaccessible\n" } else { "\n" });
        self.enqueue_type(number, field.type_ref.key());
    }

    fn write_default(&mut self, field: &ModelField) {
        if let Some(default) = &field.default {
            let _ = write!(self.text, " = {default}");
        }
    }

    fn write_description(&mut self, indent: &str, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            let _ = writeln!(self.text, "{indent}{}", quote_string(text));
        }
    }

    fn format_type_ref(&self, number: usize, of: &'a ModelTypeRef) -> String {
        of.format_with(&|key| self.models[number].type_name(key))
    }

    fn build_bindings(&self) -> SubgraphBindings {
        let model = self.model();
        let mut bindings = SubgraphBindings::default();
        for (root, kind) in [(QUERY, OperationKind::Query), (MUTATION, OperationKind::Mutation)] {
            for field in model.fields(root).into_iter().flat_map(ModelFields::values) {
                if let ModelFieldSource::Operation(operation) = &field.source {
                    bindings.roots.insert((kind, field.name.as_str().into()), Arc::clone(operation));
                }
            }
        }
        let is_rest = model.protocol == ModelProtocol::Rest;
        for (key, it) in &model.types {
            let is_root = is_rest && [QUERY, MUTATION].contains(&&**key);
            let binding = type_binding(model, it);
            if !is_root && !binding.is_identity() {
                bindings.types.insert(it.name.as_str().into(), binding);
            }
            if matches!(it.shape, ModelTypeShape::Scalar) {
                let input = if is_rest { scalar_input(key) } else { None };
                bindings.scalars.insert(it.name.as_str().into(), input);
            }
            let hidden = model.possible_objects(key).into_iter().filter(|key| model.is_hidden(key));
            let hidden: Vec<Box<str>> = hidden.map(|key| model.type_name(key).into()).collect();
            if !hidden.is_empty() {
                bindings.hidden_objects.insert(it.name.as_str().into(), hidden);
            }
            let links = it.shape.fields().into_iter().flat_map(ModelFields::values);
            self.bind_links(&mut bindings, &it.name, links, None);
        }
        for calls in &model.keyed_calls {
            let entity = bindings.entities.entry(model.type_name(&calls.type_key).into()).or_default();
            entity.keys.extend(
                model.fields(&calls.type_key).map(|fields| field_names(fields, &calls.needed_fields).into()),
            );
            entity.fetch_strategy = Some(calls.strategy.clone());
        }
        for stub in &model.stubs {
            let owner = &self.models[stub.model];
            let key = owner.fields(&stub.type_key).map(|fields| field_names(fields, &stub.needed_fields));
            self.bind_links(&mut bindings, owner.type_name(&stub.type_key), stub.fields.iter(), key);
        }
        bindings
    }

    fn bind_links<'f>(
        &self,
        bindings: &mut SubgraphBindings,
        name: &str,
        fields: impl Iterator<Item = &'f ModelField>,
        key: Option<String>,
    ) {
        let mut entity =
            EntityBinding { keys: key.map(Into::into).into_iter().collect(), ..EntityBinding::default() };
        for field in fields {
            if let ModelFieldSource::Link(link) = &field.source {
                entity.links.insert(field.name.as_str().into(), link.clone());
            }
        }
        if !entity.links.is_empty() {
            bindings.entities.insert(name.into(), entity);
        }
    }
}

/// The types with these keys that clients see.
fn visible_types<'a>(model: &ServiceModel, keys: &'a [Box<str>]) -> Vec<&'a str> {
    keys.iter().map(|key| &**key).filter(|key| !model.is_hidden(key)).collect()
}

/// The schema names of types.
fn type_names<'a>(model: &'a ServiceModel, keys: &[&'a str]) -> Vec<&'a str> {
    keys.iter().map(|key| model.type_name(key)).collect()
}

/// The `implements` clause for interfaces with these keys.
fn implements_clause(model: &ServiceModel, keys: &[&str]) -> String {
    if keys.is_empty() {
        String::new()
    } else {
        format!(" implements {}", type_names(model, keys).join(" & "))
    }
}

/// The input values of a scalar that was created from an OpenAPI format.
fn scalar_input(key: &str) -> Option<ScalarInput> {
    match key {
        "Long" => Some(ScalarInput::Integer),
        "DateTime" | "Date" => Some(ScalarInput::Text),
        _ => None,
    }
}

/// The mapping of a schema type to the service's type.
fn type_binding(model: &ServiceModel, it: &ModelType) -> TypeBinding {
    let mut binding = TypeBinding {
        name: it.service_name.clone().filter(|own| **own != *it.name),
        ..TypeBinding::default()
    };
    for field in it.shape.fields().into_iter().flat_map(ModelFields::values) {
        if matches!(field.source, ModelFieldSource::Member) && *field.member != *field.name {
            binding.fields.insert(field.name.as_str().into(), field.member.clone());
        }
    }
    match &it.shape {
        ModelTypeShape::Enum(values) => {
            let differing = values.iter().filter(|value| *value.text != *value.name);
            binding.values =
                differing.map(|value| (value.name.as_str().into(), value.text.clone())).collect();
        }
        ModelTypeShape::Union { type_rule: Some(told), .. } => {
            let name = |key: &str| Box::<str>::from(model.type_name(key));
            binding.type_rule = Some(match told {
                TypeRule::Member { name: member, types } => TypeRule::Member {
                    name: member.clone(),
                    types: types
                        .iter()
                        .map(|(text, key)| (text.clone(), name(key)))
                        .collect::<HashMap<_, _>>(),
                },
                TypeRule::Shape(types) => {
                    TypeRule::Shape(types.iter().map(|(key, members)| (name(key), members.clone())).collect())
                }
            });
        }
        _ => {}
    }
    binding
}

impl TypeBinding {
    /// Whether the mapping changes nothing.
    fn is_identity(&self) -> bool {
        self.name.is_none() && self.fields.is_empty() && self.type_rule.is_none() && self.values.is_empty()
    }
}

fn field_names(fields: &ModelFields, keys: &IndexSet<Box<str>>) -> String {
    let names: Vec<&str> = keys.iter().filter_map(|key| fields.get(key)).map(|field| &*field.name).collect();
    names.join(" ")
}

fn deprecated_directive(reason: Option<&str>) -> String {
    reason.map(|reason| format!(" @deprecated(reason: {})", quote_string(reason))).unwrap_or_default()
}

/// A string literal. GraphQL's syntax equals JSON's.
fn quote_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
