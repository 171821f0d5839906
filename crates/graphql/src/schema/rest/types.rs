//! Conversion of schemas to types: objects, inputs, unions, enums and scalars, each created once, on first
//! use.

use std::collections::{HashMap, HashSet, VecDeque};

use indexmap::IndexSet;
use json::pointer::escape_step;
use openapi::{DiscriminatedUnion, MemberAccess, OpenApiDocument, OpenApiSchema};

use super::flat::{FlatMember, FlatMembers, FlatSchema, FlatSchemaKind, SchemaFlattener};
use crate::mistake::SchemaWarning;
use crate::schema::model::{
    BUILT_IN, ModelEnumValue, ModelField, ModelFields, ModelType, ModelTypeRef, ModelTypeShape, ServiceModel,
};
use crate::schema::word::{self, TypeNames};
use crate::subgraph::TypeRule;

/// The maximum number of fields. Further types become JSON.
const MAX_FIELDS: usize = 100_000;
/// The maximum nesting depth of lists, since a schema may be a list of itself.
const MAX_LISTS: u8 = 8;

/// The direction of values: received from the service or sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ValueDirection {
    Out,
    In,
}

/// The location of a schema in the document, and a name for its type if it has none in the document.
#[derive(Clone, Debug)]
pub(super) struct SchemaLocation {
    pub(super) pointer: String,
    pub(super) like: String,
    /// The number of lists around it.
    pub(super) lists: u8,
    /// The address of the schema at this location; 0 if the schema is not in the document.
    schema: usize,
}

impl SchemaLocation {
    pub(super) fn new(pointer: impl Into<String>, like: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), like: like.into(), lists: 0, schema: 0 }
    }
}

/// The types of a document while they are built.
pub(super) struct TypeBuilder<'a> {
    pub(super) model: ServiceModel,
    pub(super) findings: Vec<SchemaWarning>,
    /// The warnings so far. They are deduplicated, since a schema may be used in both directions.
    told: HashSet<(String, String)>,
    document: &'a OpenApiDocument,
    flattener: SchemaFlattener<'a>,
    names: TypeNames,
    /// The type names of named schemas, by direction.
    given: HashMap<(&'a str, ValueDirection), String>,
    /// The keys of the types created for named schemas, by direction.
    made: HashMap<(&'a str, ValueDirection), Box<str>>,
    /// The keys of the types created for unnamed schemas, by the schema's address. A schema that several
    /// others include becomes one type, and a schema may refer to itself through an unnamed schema.
    unnamed: HashMap<(usize, ValueDirection), Box<str>>,
    /// Types whose fields have yet to be created.
    waiting: VecDeque<(Box<str>, FlatMembers<'a>, ValueDirection, String)>,
    fields: usize,
}

impl<'a> TypeBuilder<'a> {
    pub(super) fn new(document: &'a OpenApiDocument, model: ServiceModel) -> Self {
        let (mut names, mut given) = (TypeNames::default(), HashMap::new());
        for (name, _) in &document.schemas {
            let is_input = name.ends_with("Input");
            let out = if is_input { format!("{name}Output") } else { name.clone() };
            let input = if is_input { name.clone() } else { format!("{name}Input") };
            for (way, like) in [(ValueDirection::Out, out), (ValueDirection::In, input)] {
                given.insert((&**name, way), names.give(&like, &model.service));
            }
        }
        Self {
            flattener: SchemaFlattener::new(document),
            findings: Vec::new(),
            told: HashSet::new(),
            made: HashMap::new(),
            unnamed: HashMap::new(),
            waiting: VecDeque::new(),
            fields: 0,
            document,
            model,
            names,
            given,
        }
    }

    pub(super) fn note(&mut self, place: &str, message: impl Into<String>, hint: &str) {
        let (place, message) = (place.to_owned(), message.into());
        if self.told.insert((place.clone(), message.clone())) {
            let (service, hint) = (self.model.service.clone(), hint.to_owned());
            self.findings.push(SchemaWarning { service, place, message, hint });
        }
    }

    /// The type of a value, and whether it may be `null`.
    pub(super) fn of(
        &mut self,
        schema: &'a OpenApiSchema,
        way: ValueDirection,
        at: &SchemaLocation,
    ) -> (ModelTypeRef, bool) {
        let flat = self.flattener.flat(schema);
        let is_nullable = flat.is_nullable;
        (
            self.of_flat(
                flat,
                way,
                &SchemaLocation { schema: std::ptr::from_ref(schema).addr(), ..at.clone() },
            ),
            is_nullable,
        )
    }

    /// The type of a field: non-null if a value is always present.
    pub(super) fn field_of(
        &mut self,
        schema: &'a OpenApiSchema,
        is_required: bool,
        way: ValueDirection,
        at: &SchemaLocation,
    ) -> ModelTypeRef {
        let (of, is_nullable) = self.of(schema, way, at);
        if is_required && !is_nullable { of.required() } else { of }
    }

    /// The type of a parameter; `None` if it would be an object. A value that could be of several types is a
    /// text.
    pub(super) fn parameter(
        &mut self,
        schema: &'a OpenApiSchema,
        at: &SchemaLocation,
    ) -> Option<ModelTypeRef> {
        let flat = self.flattener.flat(schema);
        match flat.what {
            FlatSchemaKind::Scalar(_) | FlatSchemaKind::Enum(_) => {
                Some(self.of_flat(flat, ValueDirection::In, at))
            }
            FlatSchemaKind::List(items) => match self.flattener.flat(items) {
                item @ FlatSchema { what: FlatSchemaKind::Scalar(_) | FlatSchemaKind::Enum(_), .. } => {
                    Some(ModelTypeRef::list(self.of_flat(item, ValueDirection::In, at).required()))
                }
                FlatSchema { what: FlatSchemaKind::Json(_), .. } => {
                    Some(ModelTypeRef::list(ModelTypeRef::named("String").required()))
                }
                _ => None,
            },
            FlatSchemaKind::Json(_) => Some(ModelTypeRef::named("String")),
            FlatSchemaKind::Object(_) | FlatSchemaKind::Union(..) => None,
        }
    }

    /// Creates the fields of all referenced types.
    pub(super) fn finish(&mut self) {
        while let Some((key, members, way, pointer)) = self.waiting.pop_front() {
            let name = self.model.name(&key).to_owned();
            let mut fields = ModelFields::new();
            let (mut taken, mut next) = (HashSet::new(), HashMap::new());
            for (member_name, FlatMember { member, is_required, origin }) in members.all {
                let skipped =
                    if way == ValueDirection::Out { MemberAccess::WriteOnly } else { MemberAccess::ReadOnly };
                if member.access == skipped {
                    continue;
                }
                let field_name = word::unique(&mut taken, &mut next, word::name(member_name));
                let pointer = format!("{pointer}/properties/{}", escape_step(member_name));
                if field_name != member_name {
                    self.note(
                        &pointer,
                        format!("the name is not valid in GraphQL: the field is `{name}.{field_name}`"),
                        "",
                    );
                }
                let given = origin.and_then(|origin| self.given.get(&(origin, way)));
                let base = given.unwrap_or(&name);
                let base = base.strip_suffix("Input").filter(|_| way == ValueDirection::In).unwrap_or(base);
                let like = format!("{base}{}", word::pascal(member_name));
                let of = self.field_of(&member.schema, is_required, way, &SchemaLocation::new(pointer, like));
                let mut field = ModelField::new(&field_name, member_name, of);
                field.description.clone_from(&member.description);
                field.deprecated = member.is_deprecated.then(|| "Deprecated by the service.".to_owned());
                fields.insert(field_name.into(), field);
            }
            if fields.is_empty() {
                // A type needs at least one field, and all fields of this type are for the other direction.
                self.note(&pointer, format!("`{name}` has no fields in this direction: it is JSON"), "");
                self.scalar("JSON");
                fields.insert("_".into(), ModelField::new("_", "_", ModelTypeRef::named("JSON")));
            }
            if let Some(of) = self.model.types.get_mut(&key).and_then(|it| it.shape.fields_mut()) {
                *of = fields;
            }
        }
    }

    fn of_flat(&mut self, flat: FlatSchema<'a>, way: ValueDirection, at: &SchemaLocation) -> ModelTypeRef {
        match flat.what {
            FlatSchemaKind::Scalar(name) => self.scalar(name),
            FlatSchemaKind::Json(None) => self.scalar("JSON"),
            FlatSchemaKind::Json(Some(why)) => self.json(at, why),
            FlatSchemaKind::List(_) if at.lists >= MAX_LISTS => self.json(at, "lists nested too deeply"),
            FlatSchemaKind::List(items) => {
                let pointer = format!("{}/items", at.pointer);
                let below = SchemaLocation { pointer, lists: at.lists + 1, ..at.clone() };
                ModelTypeRef::list(self.field_of(items, true, way, &below))
            }
            FlatSchemaKind::Enum(ref texts) => {
                let texts = texts.clone();
                self.enumeration(&flat, texts, at)
            }
            FlatSchemaKind::Union(..) if way == ValueDirection::In => {
                self.json(at, "an input that is one of several objects")
            }
            FlatSchemaKind::Object(_) | FlatSchemaKind::Union(..) if self.fields > MAX_FIELDS => {
                self.json(at, "the schema has too many fields")
            }
            FlatSchemaKind::Object(ref members) => {
                let members = members.clone();
                self.object(&flat, members, way, at)
            }
            FlatSchemaKind::Union(ref branches, told) => {
                let branches = branches.clone();
                self.union(&flat, branches, told, at)
            }
        }
    }

    fn scalar(&mut self, name: &str) -> ModelTypeRef {
        if !BUILT_IN.contains(&name) && !self.model.types.contains_key(name) {
            self.model.types.insert(name.into(), ModelType::new(name, ModelTypeShape::Scalar));
        }
        ModelTypeRef::named(name)
    }

    fn json(&mut self, at: &SchemaLocation, why: &str) -> ModelTypeRef {
        self.note(&at.pointer, format!("{why}: it is passed through as JSON"), "");
        self.scalar("JSON")
    }

    /// Returns the existing type of a schema as an error, or else the key and pointer of a new one.
    fn place(
        &mut self,
        flat: &FlatSchema<'a>,
        way: ValueDirection,
        at: &SchemaLocation,
    ) -> Result<(Box<str>, String), ModelTypeRef> {
        let made = match flat.name {
            Some(name) => self.made.get(&(name, way)),
            None => self.unnamed.get(&(at.schema, way)),
        };
        if let Some(key) = made {
            return Err(ModelTypeRef::Named(key.clone()));
        }
        let given = flat.name.and_then(|name| self.given.get(&(name, way)));
        let name = match given {
            Some(given) => given.clone(),
            None => {
                let like =
                    if way == ValueDirection::In { format!("{}Input", at.like) } else { at.like.clone() };
                self.names.give(&like, &self.model.service)
            }
        };
        let key: Box<str> = name.clone().into();
        let pointer = match flat.name {
            Some(own) => {
                self.made.insert((own, way), key.clone());
                format!("/components/schemas/{}", escape_step(own))
            }
            None => {
                if at.schema != 0 {
                    self.unnamed.insert((at.schema, way), key.clone());
                }
                at.pointer.clone()
            }
        };
        Ok((key, pointer))
    }

    fn put(&mut self, key: &str, flat: &FlatSchema<'a>, shape: ModelTypeShape) {
        let mut made = ModelType::new(key, shape);
        let description = flat.name.and_then(|name| self.document.descriptions.get(name));
        made.description = description.cloned().unwrap_or_default();
        self.model.types.insert(key.into(), made);
    }

    fn object(
        &mut self,
        flat: &FlatSchema<'a>,
        members: FlatMembers<'a>,
        way: ValueDirection,
        at: &SchemaLocation,
    ) -> ModelTypeRef {
        let (key, pointer) = match self.place(flat, way, at) {
            Ok(place) => place,
            Err(made) => return made,
        };
        if members.has_others && way == ValueDirection::Out {
            self.note(&pointer, format!("additional properties of `{key}` are left out"), "");
        }
        self.fields += members.all.len();
        let shape = match way {
            ValueDirection::Out => {
                ModelTypeShape::Object { fields: ModelFields::new(), implements: Vec::new() }
            }
            ValueDirection::In => ModelTypeShape::Input(ModelFields::new()),
        };
        self.put(&key, flat, shape);
        self.waiting.push_back((key.clone(), members, way, pointer));
        ModelTypeRef::Named(key)
    }

    fn enumeration(
        &mut self,
        flat: &FlatSchema<'a>,
        texts: IndexSet<&'a str>,
        at: &SchemaLocation,
    ) -> ModelTypeRef {
        let (key, pointer) = match self.place(flat, ValueDirection::Out, at) {
            Ok(place) => place,
            Err(made) => return made,
        };
        let (mut taken, mut next) = (HashSet::new(), HashMap::new());
        let mut values = Vec::new();
        for text in texts {
            let mut like = word::name(text);
            if matches!(&*like, "true" | "false" | "null") {
                like.push('_');
            }
            let name = word::unique(&mut taken, &mut next, like);
            if name != text {
                self.note(
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
        self.put(&key, flat, ModelTypeShape::Enum(values));
        ModelTypeRef::Named(key)
    }

    fn union(
        &mut self,
        flat: &FlatSchema<'a>,
        branches: Vec<FlatSchema<'a>>,
        told: Option<&'a DiscriminatedUnion>,
        at: &SchemaLocation,
    ) -> ModelTypeRef {
        let told_by = told_by(&branches, told);
        let Some(told_by) = told_by else {
            return self.json(at, "one of several objects that can't be distinguished");
        };
        let (key, pointer) = match self.place(flat, ValueDirection::Out, at) {
            Ok(place) => place,
            Err(made) => return made,
        };
        self.put(&key, flat, ModelTypeShape::Union { types: Vec::new(), told_by: None });
        let mut keys: Vec<Box<str>> = Vec::new();
        for (number, branch) in branches.into_iter().enumerate() {
            let below =
                SchemaLocation::new(format!("{pointer}/oneOf/{number}"), format!("{key}{}", number + 1));
            keys.push(self.of_flat(branch, ValueDirection::Out, &below).key().into());
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
        let types = keys.into_iter().filter(|key| !BUILT_IN.contains(&&**key)).collect::<IndexSet<_>>();
        let is_whole = types.iter().all(|key| {
            matches!(self.model.types.get(key).map(|it| &it.shape), Some(ModelTypeShape::Object { .. }))
        });
        if !is_whole {
            self.model.types.shift_remove(&key);
            return self.json(at, "one of several alternatives that are not all objects");
        }
        self.put(
            &key,
            flat,
            ModelTypeShape::Union { types: types.into_iter().collect(), told_by: Some(told_by) },
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

fn told_by(branches: &[FlatSchema<'_>], told: Option<&DiscriminatedUnion>) -> Option<TellBy> {
    if let Some(told) = told {
        let number = |name: &str| branches.iter().position(|branch| branch.name == Some(name));
        let texts = told.values.iter().filter_map(|(text, name)| Some((text.clone(), number(name)?)));
        return Some(TellBy::Member(told.discriminator.clone(), texts.collect()));
    }
    by_tag(branches).or_else(|| by_shape(branches))
}

/// Finds a member that every branch requires, with different texts in each branch.
fn by_tag(branches: &[FlatSchema<'_>]) -> Option<TellBy> {
    let members = branches.iter().map(|branch| match &branch.what {
        FlatSchemaKind::Object(members) => Some(members),
        _ => None,
    });
    let members: Vec<&FlatMembers<'_>> = members.collect::<Option<_>>()?;
    for name in members.first()?.all.keys() {
        let texts = members.iter().map(|members| match members.all.get(name) {
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
fn by_shape(branches: &[FlatSchema<'_>]) -> Option<TellBy> {
    let mut required = Vec::new();
    for (number, branch) in branches.iter().enumerate() {
        let FlatSchemaKind::Object(members) = &branch.what else { return None };
        let needed = members.all.iter().filter(|(_, part)| part.is_required);
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
