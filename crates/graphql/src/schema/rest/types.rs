//! Conversion of schemas to types: objects, inputs, unions, enums and scalars, each created once, on first
//! use.

use std::collections::{HashMap, HashSet, VecDeque};

use diagnostics::Diagnostic;
use indexmap::IndexSet;
use json::pointer::escape_step;
use openapi::{DiscriminatedUnion, MemberAccess, OpenApiDocument, OpenApiSchema};

use super::flat::{FlatMember, FlatMembers, FlatSchema, FlatSchemaKind, SchemaFlattener};
use crate::schema::diagnostic::document_warning;
use crate::schema::graphql_names::{self, TypeNames};

use crate::schema::model::{
    BUILT_IN_SCALARS, ModelEnumValue, ModelField, ModelFields, ModelType, ModelTypeRef, ModelTypeShape,
    ServiceModel,
};
use crate::subgraph::TypeRule;

/// The maximum number of fields. Further types become JSON.
const MAX_FIELDS: usize = 100_000;
/// The maximum nesting depth of lists, since a schema may be a list of itself.
const MAX_LISTS: u8 = 8;

/// The direction of values: received from the service or sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ValueDirection {
    Output,
    Input,
}

/// The location of a schema in the document, and a name for its type if it has none in the document.
#[derive(Clone, Debug)]
pub(super) struct SchemaLocation {
    pub(super) pointer: String,
    pub(super) fallback_name: String,
    /// The number of lists around it.
    pub(super) list_depth: u8,
    /// The address of the schema at this location; 0 if the schema is not in the document.
    schema_address: usize,
}

impl SchemaLocation {
    pub(super) fn new(pointer: impl Into<String>, like: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), fallback_name: like.into(), list_depth: 0, schema_address: 0 }
    }
}

/// The types of a document while they are built.
pub(super) struct TypeBuilder<'a> {
    pub(super) model: ServiceModel,
    pub(super) warnings: Vec<Diagnostic>,
    /// The warnings so far. They are deduplicated, since a schema may be used in both directions.
    reported: HashSet<(String, String)>,
    document: &'a OpenApiDocument,
    flattener: SchemaFlattener<'a>,
    names: TypeNames,
    /// The type names of named schemas, by direction.
    assigned_names: HashMap<(&'a str, ValueDirection), String>,
    /// The keys of the types created for named schemas, by direction.
    named_types: HashMap<(&'a str, ValueDirection), Box<str>>,
    /// The keys of the types created for unnamed schemas, by the schema's address. A schema that several
    /// others include becomes one type, and a schema may refer to itself through an unnamed schema.
    unnamed_types: HashMap<(usize, ValueDirection), Box<str>>,
    /// Types whose fields have yet to be created.
    pending: VecDeque<(Box<str>, FlatMembers<'a>, ValueDirection, String)>,
    field_count: usize,
}

impl<'a> TypeBuilder<'a> {
    pub(super) fn new(document: &'a OpenApiDocument, model: ServiceModel) -> Self {
        let (mut names, mut assigned_names) = (TypeNames::default(), HashMap::new());
        for (name, _) in &document.schemas {
            let is_input = name.ends_with("Input");
            let out = if is_input { format!("{name}Output") } else { name.clone() };
            let input = if is_input { name.clone() } else { format!("{name}Input") };
            for (direction, like) in [(ValueDirection::Output, out), (ValueDirection::Input, input)] {
                assigned_names.insert((&**name, direction), names.assign_name(&like, &model.service));
            }
        }
        Self {
            flattener: SchemaFlattener::new(document),
            warnings: Vec::new(),
            reported: HashSet::new(),
            named_types: HashMap::new(),
            unnamed_types: HashMap::new(),
            pending: VecDeque::new(),
            field_count: 0,
            document,
            model,
            names,
            assigned_names,
        }
    }

    pub(super) fn add_warning(&mut self, place: &str, message: impl Into<String>, hint: &str) {
        let (place, message) = (place.to_owned(), message.into());
        if self.reported.insert((place.clone(), message.clone())) {
            self.warnings.push(document_warning(&self.model.service, place, message, hint));
        }
    }

    /// The type of a value, and whether it may be `null`.
    pub(super) fn value_type(
        &mut self,
        schema: &'a OpenApiSchema,
        direction: ValueDirection,
        at: &SchemaLocation,
    ) -> (ModelTypeRef, bool) {
        let flat = self.flattener.flatten(schema);
        let is_nullable = flat.is_nullable;
        (
            self.flat_type(
                flat,
                direction,
                &SchemaLocation { schema_address: std::ptr::from_ref(schema).addr(), ..at.clone() },
            ),
            is_nullable,
        )
    }

    /// The type of a field: non-null if a value is always present.
    pub(super) fn field_type(
        &mut self,
        schema: &'a OpenApiSchema,
        is_required: bool,
        direction: ValueDirection,
        at: &SchemaLocation,
    ) -> ModelTypeRef {
        let (of, is_nullable) = self.value_type(schema, direction, at);
        if is_required && !is_nullable { of.required() } else { of }
    }

    /// The type of a parameter; `None` if it would be an object. A value that could be of several types is a
    /// text.
    pub(super) fn parameter_type(
        &mut self,
        schema: &'a OpenApiSchema,
        at: &SchemaLocation,
    ) -> Option<ModelTypeRef> {
        let flat = self.flattener.flatten(schema);
        match flat.kind {
            FlatSchemaKind::Scalar(_) | FlatSchemaKind::Enum(_) => {
                Some(self.flat_type(flat, ValueDirection::Input, at))
            }
            FlatSchemaKind::List(items) => match self.flattener.flatten(items) {
                item @ FlatSchema { kind: FlatSchemaKind::Scalar(_) | FlatSchemaKind::Enum(_), .. } => {
                    Some(ModelTypeRef::list(self.flat_type(item, ValueDirection::Input, at).required()))
                }
                FlatSchema { kind: FlatSchemaKind::Json(_), .. } => {
                    Some(ModelTypeRef::list(ModelTypeRef::named("String").required()))
                }
                _ => None,
            },
            FlatSchemaKind::Json(_) => Some(ModelTypeRef::named("String")),
            FlatSchemaKind::Object(_) | FlatSchemaKind::Union(..) => None,
        }
    }

    /// Creates the fields of all referenced types.
    pub(super) fn build_pending_fields(&mut self) {
        while let Some((key, members, way, pointer)) = self.pending.pop_front() {
            let name = self.model.type_name(&key).to_owned();
            let mut fields = ModelFields::new();
            let (mut taken, mut next) = (HashSet::new(), HashMap::new());
            for (member_name, FlatMember { member, is_required, origin }) in members.by_name {
                let skipped = if way == ValueDirection::Output {
                    MemberAccess::WriteOnly
                } else {
                    MemberAccess::ReadOnly
                };
                if member.access == skipped {
                    continue;
                }
                let field_name =
                    graphql_names::unique_name(&mut taken, &mut next, graphql_names::valid_name(member_name));
                let pointer = format!("{pointer}/properties/{}", escape_step(member_name));
                if field_name != member_name {
                    self.add_warning(
                        &pointer,
                        format!("the name is not valid in GraphQL: the field is `{name}.{field_name}`"),
                        "",
                    );
                }
                let given = origin.and_then(|origin| self.assigned_names.get(&(origin, way)));
                let base = given.unwrap_or(&name);
                let base =
                    base.strip_suffix("Input").filter(|_| way == ValueDirection::Input).unwrap_or(base);
                let like = format!("{base}{}", graphql_names::to_pascal_case(member_name));
                let of =
                    self.field_type(&member.schema, is_required, way, &SchemaLocation::new(pointer, like));
                let mut field = ModelField::new(&field_name, member_name, of);
                field.description.clone_from(&member.description);
                field.deprecated = member.is_deprecated.then(|| "Deprecated by the service.".to_owned());
                fields.insert(field_name.into(), field);
            }
            if fields.is_empty() {
                // A type needs at least one field, and all fields of this type are for the other direction.
                self.add_warning(
                    &pointer,
                    format!("`{name}` has no fields in this direction: it is JSON"),
                    "",
                );
                self.scalar_type("JSON");
                fields.insert("_".into(), ModelField::new("_", "_", ModelTypeRef::named("JSON")));
            }
            if let Some(of) = self.model.types.get_mut(&key).and_then(|it| it.shape.fields_mut()) {
                *of = fields;
            }
        }
    }

    fn flat_type(
        &mut self,
        flat: FlatSchema<'a>,
        direction: ValueDirection,
        at: &SchemaLocation,
    ) -> ModelTypeRef {
        match flat.kind {
            FlatSchemaKind::Scalar(name) => self.scalar_type(name),
            FlatSchemaKind::Json(None) => self.scalar_type("JSON"),
            FlatSchemaKind::Json(Some(why)) => self.json_fallback(at, why),
            FlatSchemaKind::List(_) if at.list_depth >= MAX_LISTS => {
                self.json_fallback(at, "lists nested too deeply")
            }
            FlatSchemaKind::List(items) => {
                let pointer = format!("{}/items", at.pointer);
                let below = SchemaLocation { pointer, list_depth: at.list_depth + 1, ..at.clone() };
                ModelTypeRef::list(self.field_type(items, true, direction, &below))
            }
            FlatSchemaKind::Enum(ref texts) => {
                let texts = texts.clone();
                self.enum_type(&flat, texts, at)
            }
            FlatSchemaKind::Union(..) if direction == ValueDirection::Input => {
                self.json_fallback(at, "an input that is one of several objects")
            }
            FlatSchemaKind::Object(_) | FlatSchemaKind::Union(..) if self.field_count > MAX_FIELDS => {
                self.json_fallback(at, "the schema has too many fields")
            }
            FlatSchemaKind::Object(ref members) => {
                let members = members.clone();
                self.object_type(&flat, members, direction, at)
            }
            FlatSchemaKind::Union(ref branches, told) => {
                let branches = branches.clone();
                self.union_type(&flat, branches, told, at)
            }
        }
    }

    fn scalar_type(&mut self, name: &str) -> ModelTypeRef {
        if !BUILT_IN_SCALARS.contains(&name) && !self.model.types.contains_key(name) {
            self.model.types.insert(name.into(), ModelType::new(name, ModelTypeShape::Scalar));
        }
        ModelTypeRef::named(name)
    }

    fn json_fallback(&mut self, at: &SchemaLocation, why: &str) -> ModelTypeRef {
        self.add_warning(&at.pointer, format!("{why}: it is passed through as JSON"), "");
        self.scalar_type("JSON")
    }

    /// Returns the existing type of a schema as an error, or else the key and pointer of a new one.
    fn reserve_type(
        &mut self,
        flat: &FlatSchema<'a>,
        direction: ValueDirection,
        at: &SchemaLocation,
    ) -> Result<(Box<str>, String), ModelTypeRef> {
        let made = match flat.name {
            Some(name) => self.named_types.get(&(name, direction)),
            None => self.unnamed_types.get(&(at.schema_address, direction)),
        };
        if let Some(key) = made {
            return Err(ModelTypeRef::Named(key.clone()));
        }
        let given = flat.name.and_then(|name| self.assigned_names.get(&(name, direction)));
        let name = match given {
            Some(given) => given.clone(),
            None => {
                let like = if direction == ValueDirection::Input {
                    format!("{}Input", at.fallback_name)
                } else {
                    at.fallback_name.clone()
                };
                self.names.assign_name(&like, &self.model.service)
            }
        };
        let key: Box<str> = name.clone().into();
        let pointer = match flat.name {
            Some(own) => {
                self.named_types.insert((own, direction), key.clone());
                format!("/components/schemas/{}", escape_step(own))
            }
            None => {
                if at.schema_address != 0 {
                    self.unnamed_types.insert((at.schema_address, direction), key.clone());
                }
                at.pointer.clone()
            }
        };
        Ok((key, pointer))
    }

    fn insert_type(&mut self, key: &str, flat: &FlatSchema<'a>, shape: ModelTypeShape) {
        let mut model_type = ModelType::new(key, shape);
        let description = flat.name.and_then(|name| self.document.descriptions.get(name));
        model_type.description = description.cloned().unwrap_or_default();
        self.model.types.insert(key.into(), model_type);
    }

    fn object_type(
        &mut self,
        flat: &FlatSchema<'a>,
        members: FlatMembers<'a>,
        direction: ValueDirection,
        at: &SchemaLocation,
    ) -> ModelTypeRef {
        let (key, pointer) = match self.reserve_type(flat, direction, at) {
            Ok(place) => place,
            Err(type_ref) => return type_ref,
        };
        if members.has_others && direction == ValueDirection::Output {
            self.add_warning(&pointer, format!("additional properties of `{key}` are left out"), "");
        }
        self.field_count += members.by_name.len();
        let shape = match direction {
            ValueDirection::Output => {
                ModelTypeShape::Object { fields: ModelFields::new(), implements: Vec::new() }
            }
            ValueDirection::Input => ModelTypeShape::Input(ModelFields::new()),
        };
        self.insert_type(&key, flat, shape);
        self.pending.push_back((key.clone(), members, direction, pointer));
        ModelTypeRef::Named(key)
    }

    fn enum_type(
        &mut self,
        flat: &FlatSchema<'a>,
        texts: IndexSet<&'a str>,
        at: &SchemaLocation,
    ) -> ModelTypeRef {
        let (key, pointer) = match self.reserve_type(flat, ValueDirection::Output, at) {
            Ok(place) => place,
            Err(type_ref) => return type_ref,
        };
        let (mut taken, mut next) = (HashSet::new(), HashMap::new());
        let mut values = Vec::new();
        for text in texts {
            let mut like = graphql_names::valid_name(text);
            if matches!(&*like, "true" | "false" | "null") {
                like.push('_');
            }
            let name = graphql_names::unique_name(&mut taken, &mut next, like);
            if name != text {
                self.add_warning(
                    &pointer,
                    format!("`{text}` is not a GraphQL name: the value is `{key}.{name}`"),
                    "",
                );
            }
            values.push(ModelEnumValue {
                name,
                text: text.into(),
                description: String::new(),
                deprecated: None,
            });
        }
        self.insert_type(&key, flat, ModelTypeShape::Enum(values));
        ModelTypeRef::Named(key)
    }

    fn union_type(
        &mut self,
        flat: &FlatSchema<'a>,
        branches: Vec<FlatSchema<'a>>,
        union: Option<&'a DiscriminatedUnion>,
        at: &SchemaLocation,
    ) -> ModelTypeRef {
        let told_by = distinguish_branches(&branches, union);
        let Some(told_by) = told_by else {
            return self.json_fallback(at, "one of several objects that can't be distinguished");
        };
        let (key, pointer) = match self.reserve_type(flat, ValueDirection::Output, at) {
            Ok(place) => place,
            Err(type_ref) => return type_ref,
        };
        self.insert_type(&key, flat, ModelTypeShape::Union { types: Vec::new(), type_rule: None });
        let mut keys: Vec<Box<str>> = Vec::new();
        for (number, branch) in branches.into_iter().enumerate() {
            let below =
                SchemaLocation::new(format!("{pointer}/oneOf/{number}"), format!("{key}{}", number + 1));
            keys.push(self.flat_type(branch, ValueDirection::Output, &below).key().into());
        }
        let told_by = match told_by {
            TellBy::Member(name, texts) => TypeRule::Member {
                name: name.into(),
                types: texts.into_iter().map(|(text, branch)| (text.into(), keys[branch].clone())).collect(),
            },
            TellBy::Shape(required) => TypeRule::Shape(
                required.into_iter().map(|(branch, members)| (keys[branch].clone(), members)).collect(),
            ),
        };
        let types =
            keys.into_iter().filter(|key| !BUILT_IN_SCALARS.contains(&&**key)).collect::<IndexSet<_>>();
        let is_whole = types.iter().all(|key| {
            matches!(self.model.types.get(key).map(|it| &it.shape), Some(ModelTypeShape::Object { .. }))
        });
        if !is_whole {
            self.model.types.shift_remove(&key);
            return self.json_fallback(at, "one of several alternatives that are not all objects");
        }
        self.insert_type(
            &key,
            flat,
            ModelTypeShape::Union { types: types.into_iter().collect(), type_rule: Some(told_by) },
        );
        ModelTypeRef::Named(key)
    }
}

/// The rule that distinguishes the objects of a union, by branch index.
enum TellBy {
    Member(String, Vec<(String, usize)>),
    /// Sorted by descending number of required members.
    Shape(Vec<(usize, Vec<Box<str>>)>),
}

fn distinguish_branches(branches: &[FlatSchema<'_>], union: Option<&DiscriminatedUnion>) -> Option<TellBy> {
    if let Some(discriminated_union) = union {
        let number = |name: &str| branches.iter().position(|branch| branch.name == Some(name));
        let texts =
            discriminated_union.values.iter().filter_map(|(text, name)| Some((text.clone(), number(name)?)));
        return Some(TellBy::Member(discriminated_union.discriminator.clone(), texts.collect()));
    }
    distinguish_by_tag(branches).or_else(|| distinguish_by_shape(branches))
}

/// Finds a member that every branch requires, with different texts in each branch.
fn distinguish_by_tag(branches: &[FlatSchema<'_>]) -> Option<TellBy> {
    let members = branches.iter().map(|branch| match &branch.kind {
        FlatSchemaKind::Object(members) => Some(members),
        _ => None,
    });
    let members: Vec<&FlatMembers<'_>> = members.collect::<Option<_>>()?;
    for name in members.first()?.by_name.keys() {
        let texts = members.iter().map(|members| match members.by_name.get(name) {
            Some(FlatMember { member, is_required: true, .. }) => match &member.schema {
                OpenApiSchema::Literals(values) => values.iter().map(serde_json::Value::as_str).collect(),
                _ => None,
            },
            _ => None,
        });
        let Some(texts) = texts.collect::<Option<Vec<Vec<&str>>>>() else { continue };
        let mut seen = HashSet::new();
        if texts.iter().flatten().all(|text| seen.insert(*text)) {
            let texts = texts
                .iter()
                .enumerate()
                .flat_map(|(branch, texts)| texts.iter().map(move |text| ((*text).to_owned(), branch)));
            return Some(TellBy::Member((*name).to_owned(), texts.collect()));
        }
    }
    None
}

/// The required members of each branch. No two branches may require the same members.
fn distinguish_by_shape(branches: &[FlatSchema<'_>]) -> Option<TellBy> {
    let mut required = Vec::new();
    for (number, branch) in branches.iter().enumerate() {
        let FlatSchemaKind::Object(members) = &branch.kind else { return None };
        let needed = members.by_name.iter().filter(|(_, part)| part.is_required);
        required.push((number, needed.map(|(name, _)| Box::from(*name)).collect::<Vec<Box<str>>>()));
    }
    required.sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
    let mut seen = HashSet::new();
    let is_told = required.iter().all(|(_, members)| {
        let mut sorted = members.clone();
        sorted.sort();
        seen.insert(sorted)
    });
    is_told.then_some(TellBy::Shape(required))
}
