//! Conversion of a model to a subgraph: the schema text of all types reachable from operations and links, and
//! the bindings.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;
use std::sync::Arc;

use indexmap::IndexSet;

use super::model::{
    BUILT_IN, MUTATION, ModelField, ModelFieldSource, ModelFields, ModelProtocol, ModelType, ModelTypeRef,
    ModelTypeShape, QUERY, ServiceModel,
};
use crate::subgraph::{
    EntityBinding, OperationKind, ScalarInput, Subgraph, SubgraphBindings, SubgraphProtocol, TypeBinding,
    TypeRule,
};

/// The header of a subgraph's schema.
const HEAD: &str = "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.3\", \
                    import: [\"@key\", \"@shareable\", \"@inaccessible\"])\n";

/// Returns the subgraph of a model, or `None` if it has no operations.
pub(super) fn subgraph(models: &[ServiceModel], number: usize) -> Option<Subgraph> {
    let model = &models[number];
    let mut writer = SchemaWriter {
        models,
        number,
        seen: HashSet::new(),
        waiting: VecDeque::new(),
        written: HashSet::new(),
        text: String::new(),
    };
    let is_federated = matches!(model.asked, ModelProtocol::Federated { .. });
    let text = if is_federated { writer.additions() } else { writer.whole()? };
    let bindings = Arc::new(writer.bindings());
    let name = Arc::clone(&model.service);
    Some(match &model.asked {
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
    seen: HashSet<(usize, &'a str)>,
    waiting: VecDeque<(usize, &'a str)>,
    /// The names of the types written so far.
    written: HashSet<&'a str>,
    text: String,
}

impl<'a> SchemaWriter<'a> {
    fn model(&self) -> &'a ServiceModel {
        &self.models[self.number]
    }

    /// Writes all types reachable from the operations, and the types of other services that get fields from
    /// this one.
    fn whole(&mut self) -> Option<String> {
        let model = self.model();
        let has_fields = |root: &&str| {
            model.fields(root).is_some_and(|fields| fields.values().any(|it| self.is_shown(it)))
        };
        let roots: Vec<&'static str> = [QUERY, MUTATION].into_iter().filter(has_fields).collect();
        if roots.is_empty() && model.stubs.is_empty() {
            return None;
        }
        self.text.push_str(HEAD);
        for root in roots {
            self.lead(self.number, root);
        }
        self.all_that_waits();
        self.stubs("type");
        self.all_that_waits();
        Some(std::mem::take(&mut self.text))
    }

    /// Writes the additions of links to a federated subgraph's own schema.
    fn additions(&mut self) -> String {
        let model = self.model();
        for (key, it) in &model.types {
            let links = it.shape.fields().into_iter().flatten().map(|(_, field)| field);
            let is_new =
                |field: &&ModelField| matches!(field.from, ModelFieldSource::Link(_)) && self.is_shown(field);
            let links: Vec<&ModelField> = links.filter(is_new).collect();
            if it.keys.is_empty() && links.is_empty() {
                continue;
            }
            let _ = write!(self.text, "\nextend type {}{}", it.name, self.keys(self.number, key, it));
            self.text.push_str(if links.is_empty() { "\n" } else { " {\n" });
            links.iter().for_each(|field| self.field(self.number, field, false));
            self.text.push_str(if links.is_empty() { "" } else { "}\n" });
        }
        self.stubs("extend type");
        self.all_that_waits();
        std::mem::take(&mut self.text)
    }

    /// Writes the reached types and the types that they refer to. Scalars are shared by all services, and the
    /// types of a federated subgraph are in its own text.
    fn all_that_waits(&mut self) {
        let model = self.model();
        let is_federated = matches!(model.asked, ModelProtocol::Federated { .. });
        while let Some((number, key)) = self.waiting.pop_front() {
            let Some(it) = self.models[number].types.get(key) else { continue };
            if !(is_federated && model.types.contains_key(key)) && self.written.insert(&it.name) {
                self.write(number, key, it);
            }
        }
    }

    fn stubs(&mut self, word: &str) {
        let models = self.models;
        for stub in &self.model().stubs {
            let owner = &models[stub.model];
            let Some(of) = owner.fields(&stub.of) else { continue };
            let _ = write!(self.text, "\n{word} {}", owner.name(&stub.of));
            let _ = writeln!(self.text, " @key(fields: \"{}\") {{", field_names(of, &stub.needs));
            for field in stub.needs.iter().filter_map(|key| of.get(key)) {
                self.field(stub.model, field, field.is_hidden);
            }
            let shown: Vec<&ModelField> = stub.fields.iter().filter(|field| self.is_shown(field)).collect();
            shown.into_iter().for_each(|field| self.field(self.number, field, false));
            self.text.push_str("}\n");
        }
    }

    fn lead(&mut self, number: usize, key: &'a str) {
        if !BUILT_IN.contains(&key) && self.seen.insert((number, key)) {
            self.waiting.push_back((number, key));
        }
    }

    /// Whether the field is in the schema: neither the field nor its type is hidden.
    fn is_shown(&self, field: &ModelField) -> bool {
        !field.is_hidden && !self.model().is_hidden(field.of.key())
    }

    /// The directive of a hidden type. Such a type is in the schema only as the type of a field that other
    /// services need.
    fn mark(&self, number: usize, it: &ModelType) -> &'static str {
        // A scalar is shared by all services, so another service may show it.
        let shows = |other: &ModelType| other.name == it.name && !other.is_hidden;
        let is_shared = matches!(it.shape, ModelTypeShape::Scalar)
            && self.models.iter().any(|model| model.types.values().any(shows));
        if it.is_hidden && number == self.number && !is_shared { " @inaccessible" } else { "" }
    }

    fn write(&mut self, number: usize, key: &'a str, it: &'a ModelType) {
        self.text.push('\n');
        self.description("", &it.description);
        let (name, mark, model) = (&it.name, self.mark(number, it), &self.models[number]);
        let _ = match &it.shape {
            ModelTypeShape::Scalar => writeln!(self.text, "scalar {name}{mark}"),
            ModelTypeShape::Enum(values) => {
                let _ = writeln!(self.text, "enum {name}{mark} {{");
                for value in values {
                    self.description("  ", &value.description);
                    let _ =
                        writeln!(self.text, "  {}{}", value.name, deprecated(value.deprecated.as_deref()));
                }
                writeln!(self.text, "}}")
            }
            ModelTypeShape::Union { types, .. } => {
                let mut shown = shown(model, types);
                shown.retain(|key| model.types.contains_key(*key));
                let _ = writeln!(self.text, "union {name}{mark} = {}", names(model, &shown).join(" | "));
                shown.into_iter().for_each(|key| self.lead(number, key));
                Ok(())
            }
            ModelTypeShape::Object { fields, implements } => {
                let shown = shown(model, implements);
                let head = format!("{name}{}{}{mark}", interfaces(model, &shown), self.keys(number, key, it));
                self.block(number, "type", &head, fields, it);
                shown.into_iter().for_each(|key| self.lead(number, key));
                Ok(())
            }
            ModelTypeShape::Interface { fields, implements } => {
                let head = format!("{name}{}{mark}", interfaces(model, &shown(model, implements)));
                self.block(number, "interface", &head, fields, it);
                let is_of_it = |it: &ModelType| it.shape.implements().iter().any(|known| **known == *key);
                let theirs = model.types.iter().filter(|(_, it)| !it.is_hidden && is_of_it(it));
                theirs.for_each(|(other, _)| self.lead(number, other));
                Ok(())
            }
            ModelTypeShape::Input(fields) => {
                self.block(number, "input", &format!("{name}{mark}"), fields, it);
                Ok(())
            }
        };
    }

    /// The keys by which other services refer to the type. Keys that only links of other services need are
    /// not resolvable.
    fn keys(&self, number: usize, key: &str, it: &ModelType) -> String {
        let fields = self.models[number].fields(key);
        let own = self.models[number].owns.iter().filter(|own| *own.of == *key).map(|own| &own.needs);
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

    fn block(&mut self, number: usize, word: &str, head: &str, fields: &'a ModelFields, it: &ModelType) {
        let _ = writeln!(self.text, "{word} {head} {{");
        for (key, field) in fields {
            let is_shown = self.is_shown(field);
            if is_shown || it.keys.iter().any(|needs| needs.contains(key)) {
                self.field(number, field, !is_shown);
            }
        }
        self.text.push_str("}\n");
    }

    fn field(&mut self, number: usize, field: &'a ModelField, is_hidden: bool) {
        self.description("  ", &field.description);
        let _ = write!(self.text, "  {}", field.name);
        let arguments: Vec<&'a ModelField> =
            field.arguments.values().filter(|it| self.is_shown(it)).collect();
        for (place, argument) in arguments.iter().enumerate() {
            self.text.push_str(if place == 0 { "(" } else { ", " });
            let _ = write!(self.text, "{}: {}", argument.name, self.reference(number, &argument.of));
            self.default(argument);
            self.lead(number, argument.of.key());
        }
        self.text.push_str(if arguments.is_empty() { ": " } else { "): " });
        let of = self.reference(number, &field.of);
        self.text.push_str(&of);
        self.default(field);
        self.text.push_str(&deprecated(field.deprecated.as_deref()));
        self.text.push_str(if is_hidden { " @inaccessible\n" } else { "\n" });
        self.lead(number, field.of.key());
    }

    fn default(&mut self, field: &ModelField) {
        if let Some(default) = &field.default {
            let _ = write!(self.text, " = {default}");
        }
    }

    fn description(&mut self, indent: &str, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            let _ = writeln!(self.text, "{indent}{}", quoted(text));
        }
    }

    fn reference(&self, number: usize, of: &'a ModelTypeRef) -> String {
        of.written(&|key| self.models[number].name(key))
    }

    fn bindings(&self) -> SubgraphBindings {
        let model = self.model();
        let mut bindings = SubgraphBindings::default();
        for (root, kind) in [(QUERY, OperationKind::Query), (MUTATION, OperationKind::Mutation)] {
            for field in model.fields(root).into_iter().flat_map(ModelFields::values) {
                if let ModelFieldSource::Operation(operation) = &field.from {
                    bindings.roots.insert((kind, field.name.as_str().into()), Arc::clone(operation));
                }
            }
        }
        let is_rest = model.asked == ModelProtocol::Rest;
        for (key, it) in &model.types {
            let is_root = is_rest && [QUERY, MUTATION].contains(&&**key);
            let binding = binding(model, it);
            if !is_root && !binding.is_plain() {
                bindings.types.insert(it.name.as_str().into(), binding);
            }
            if matches!(it.shape, ModelTypeShape::Scalar) {
                let input = if is_rest { scalar_input(key) } else { None };
                bindings.scalars.insert(it.name.as_str().into(), input);
            }
            let hidden = model.objects(key).into_iter().filter(|key| model.is_hidden(key));
            let hidden: Vec<Box<str>> = hidden.map(|key| model.name(key).into()).collect();
            if !hidden.is_empty() {
                bindings.hidden_objects.insert(it.name.as_str().into(), hidden);
            }
            let links = it.shape.fields().into_iter().flat_map(ModelFields::values);
            self.links(&mut bindings, &it.name, links, None);
        }
        for own in &model.owns {
            let entity = bindings.entities.entry(model.name(&own.of).into()).or_default();
            entity.keys.extend(model.fields(&own.of).map(|fields| field_names(fields, &own.needs).into()));
            entity.own = Some(own.how.clone());
        }
        for stub in &model.stubs {
            let owner = &self.models[stub.model];
            let key = owner.fields(&stub.of).map(|fields| field_names(fields, &stub.needs));
            self.links(&mut bindings, owner.name(&stub.of), stub.fields.iter(), key);
        }
        bindings
    }

    fn links<'f>(
        &self,
        bindings: &mut SubgraphBindings,
        name: &str,
        fields: impl Iterator<Item = &'f ModelField>,
        key: Option<String>,
    ) {
        let mut entity =
            EntityBinding { keys: key.map(Into::into).into_iter().collect(), ..EntityBinding::default() };
        for field in fields {
            if let ModelFieldSource::Link(link) = &field.from {
                entity.links.insert(field.name.as_str().into(), link.clone());
            }
        }
        if !entity.links.is_empty() {
            bindings.entities.insert(name.into(), entity);
        }
    }
}

/// The types with these keys that clients see.
fn shown<'a>(model: &ServiceModel, keys: &'a [Box<str>]) -> Vec<&'a str> {
    keys.iter().map(|key| &**key).filter(|key| !model.is_hidden(key)).collect()
}

/// The schema names of types.
fn names<'a>(model: &'a ServiceModel, keys: &[&'a str]) -> Vec<&'a str> {
    keys.iter().map(|key| model.name(key)).collect()
}

/// The `implements` clause for interfaces with these keys.
fn interfaces(model: &ServiceModel, keys: &[&str]) -> String {
    if keys.is_empty() { String::new() } else { format!(" implements {}", names(model, keys).join(" & ")) }
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
fn binding(model: &ServiceModel, it: &ModelType) -> TypeBinding {
    let mut binding =
        TypeBinding { name: it.own_name.clone().filter(|own| **own != *it.name), ..TypeBinding::default() };
    for field in it.shape.fields().into_iter().flat_map(ModelFields::values) {
        if matches!(field.from, ModelFieldSource::Member) && *field.member != *field.name {
            binding.fields.insert(field.name.as_str().into(), field.member.clone());
        }
    }
    match &it.shape {
        ModelTypeShape::Enum(values) => {
            let differing = values.iter().filter(|value| *value.text != *value.name);
            binding.values =
                differing.map(|value| (value.name.as_str().into(), value.text.clone())).collect();
        }
        ModelTypeShape::Union { told_by: Some(told), .. } => {
            let name = |key: &str| Box::<str>::from(model.name(key));
            binding.told_by = Some(match told {
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
    fn is_plain(&self) -> bool {
        self.name.is_none() && self.fields.is_empty() && self.told_by.is_none() && self.values.is_empty()
    }
}

fn field_names(fields: &ModelFields, keys: &IndexSet<Box<str>>) -> String {
    let names: Vec<&str> = keys.iter().filter_map(|key| fields.get(key)).map(|field| &*field.name).collect();
    names.join(" ")
}

fn deprecated(reason: Option<&str>) -> String {
    reason.map(|reason| format!(" @deprecated(reason: {})", quoted(reason))).unwrap_or_default()
}

/// A string literal. GraphQL's syntax equals JSON's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
