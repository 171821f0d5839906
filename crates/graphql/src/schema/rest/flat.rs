//! Normalization of schemas: references are resolved, `allOf` is merged, and `null` is separated.

use std::collections::HashMap;

use indexmap::{IndexMap, IndexSet};
use openapi::{DiscriminatedUnion, MemberSchema, ObjectSchema, OpenApiDocument, OpenApiSchema};
use serde_json::Value;

/// The maximum nesting depth of composed schemas.
const MAX_DEPTH: usize = 64;
/// The maximum number of branches of a union.
const MAX_BRANCHES: usize = 500;

/// A normalized schema.
#[derive(Clone, Debug)]
pub(super) struct FlatSchema<'a> {
    pub(super) kind: FlatSchemaKind<'a>,
    pub(super) is_nullable: bool,
    /// The name in the document.
    pub(super) name: Option<&'a str>,
}

#[derive(Clone, Debug)]
pub(super) enum FlatSchemaKind<'a> {
    /// A built-in scalar of GraphQL, or a scalar of the gateway.
    Scalar(&'static str),
    /// An enumeration of texts.
    Enum(IndexSet<&'a str>),
    List(&'a OpenApiSchema),
    Object(FlatMembers<'a>),
    /// A union of several objects.
    Union(Vec<FlatSchema<'a>>, Option<&'a DiscriminatedUnion>),
    /// Any JSON. Contains the reason, unless the document does not restrict the value at all.
    Json(Option<&'static str>),
}

/// Members by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct FlatMembers<'a> {
    pub(super) by_name: IndexMap<&'a str, FlatMember<'a>>,
    /// Whether the object may have additional properties.
    pub(super) has_others: bool,
}

/// A member of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlatMember<'a> {
    pub(super) member: &'a MemberSchema,
    /// Whether it is required.
    pub(super) is_required: bool,
    /// The named schema that declares it.
    pub(super) origin: Option<&'a str>,
}

/// Normalizes the schemas of a document.
#[derive(Debug)]
pub(super) struct SchemaFlattener<'a> {
    schemas: HashMap<&'a str, &'a OpenApiSchema>,
    /// The normalized named schemas.
    cache: HashMap<&'a str, FlatSchema<'a>>,
}

impl<'a> SchemaFlattener<'a> {
    pub(super) fn new(document: &'a OpenApiDocument) -> Self {
        let schemas = document.schemas.iter().map(|(name, schema)| (&**name, schema));
        Self { schemas: schemas.collect(), cache: HashMap::new() }
    }

    pub(super) fn flatten(&mut self, schema: &'a OpenApiSchema) -> FlatSchema<'a> {
        self.flatten_at_depth(schema, 0)
    }

    fn flatten_at_depth(&mut self, schema: &'a OpenApiSchema, depth: usize) -> FlatSchema<'a> {
        if depth > MAX_DEPTH {
            return unsupported_schema("schemas nested too deeply");
        }
        match schema {
            OpenApiSchema::Unknown => {
                FlatSchema { kind: FlatSchemaKind::Json(None), is_nullable: true, name: None }
            }
            OpenApiSchema::Never => unsupported_schema("the schema accepts no value"),
            OpenApiSchema::Null => {
                FlatSchema { kind: FlatSchemaKind::Json(None), is_nullable: true, name: None }
            }
            OpenApiSchema::Boolean => scalar_schema("Boolean"),
            OpenApiSchema::Integer(format) if format.as_deref() == Some("int64") => scalar_schema("Long"),
            OpenApiSchema::Integer(_) => scalar_schema("Int"),
            OpenApiSchema::Number => scalar_schema("Float"),
            OpenApiSchema::Text(format) => scalar_schema(match format.as_deref() {
                Some("date-time") => "DateTime",
                Some("date") => "Date",
                _ => "String",
            }),
            OpenApiSchema::Literals(values) => flatten_literals(values),
            OpenApiSchema::List(items) => non_null_schema(FlatSchemaKind::List(items)),
            OpenApiSchema::Tuple(first, Some(rest)) if first.is_empty() => {
                non_null_schema(FlatSchemaKind::List(rest))
            }
            OpenApiSchema::Tuple(..) => unsupported_schema("a list with positional items"),
            OpenApiSchema::Object(object) => non_null_schema(object_kind(object)),
            OpenApiSchema::Named(name) => self.flatten_named(name, depth),
            OpenApiSchema::Any(branches) => self.flatten_any_of(branches, None, depth),
            OpenApiSchema::Discriminated(told) => self.flatten_any_of(&told.branches, Some(told), depth),
            OpenApiSchema::All(parts) => self.flatten_all_of(parts, depth),
        }
    }

    fn flatten_named(&mut self, name: &'a str, depth: usize) -> FlatSchema<'a> {
        // A name may refer to another name, in a chain of any length.
        let mut name = name;
        let schema = loop {
            match self.schemas.get(name) {
                Some(OpenApiSchema::Named(next)) => name = next,
                Some(schema) => break *schema,
                None => return unsupported_schema("the referenced schema does not exist"),
            }
        };
        if let Some(flat_schema) = self.cache.get(name) {
            return flat_schema.clone();
        }
        let mut flat = self.flatten_at_depth(schema, depth + 1);
        if let (None, FlatSchemaKind::Object(members)) = (flat.name, &mut flat.kind) {
            members.by_name.values_mut().for_each(|part| part.origin = part.origin.or(Some(name)));
        }
        flat.name = flat.name.or(Some(name));
        // The result depends on the depth here, so it is cached only at small depths.
        if depth < MAX_DEPTH / 2 {
            self.cache.insert(name, flat.clone());
        }
        flat
    }

    fn flatten_all_of(&mut self, parts: &'a [OpenApiSchema], depth: usize) -> FlatSchema<'a> {
        let parts: Vec<FlatSchema<'a>> =
            parts.iter().map(|part| self.flatten_at_depth(part, depth + 1)).collect();
        let says = |part: &FlatSchema<'a>| !matches!(part.kind, FlatSchemaKind::Json(None));
        // A value must satisfy every part; a part without restrictions accepts every value.
        let is_nullable = parts.iter().all(|part| part.is_nullable || !says(part));
        let mut parts: Vec<FlatSchema<'a>> = parts.into_iter().filter(says).collect();
        if parts.len() < 2 {
            let schema = parts.pop();
            return schema.unwrap_or(FlatSchema {
                kind: FlatSchemaKind::Json(None),
                is_nullable,
                name: None,
            });
        }
        let mut merged = FlatMembers::default();
        for part in &parts {
            match &part.kind {
                FlatSchemaKind::Object(members) => merged.merge_members(members),
                other if parts.iter().all(|part| is_same_kind(&part.kind, other)) => return part.clone(),
                _ => return unsupported_schema("a combination of schemas that are not all objects"),
            }
        }
        FlatSchema { kind: FlatSchemaKind::Object(merged), is_nullable, name: None }
    }

    fn flatten_any_of(
        &mut self,
        branches: &'a [OpenApiSchema],
        union: Option<&'a DiscriminatedUnion>,
        depth: usize,
    ) -> FlatSchema<'a> {
        if branches.len() > MAX_BRANCHES {
            return unsupported_schema("one of too many alternatives");
        }
        let mut is_nullable = false;
        let mut kinds: Vec<FlatSchema<'a>> = Vec::new();
        for branch in branches {
            let flat = self.flatten_at_depth(branch, depth + 1);
            is_nullable |= flat.is_nullable;
            let inner = match flat {
                _ if matches!(branch, OpenApiSchema::Null) => Vec::new(),
                FlatSchema { kind: FlatSchemaKind::Union(inner, _), .. } => inner,
                flat => vec![flat],
            };
            for flat in inner {
                if !kinds.iter().any(|schema| is_same_schema(schema, &flat)) {
                    kinds.push(flat);
                }
            }
        }
        let schema_kind = match kinds.len() {
            0 => FlatSchemaKind::Json(None),
            1 => {
                let flat_schema = kinds.remove(0);
                return FlatSchema { is_nullable: is_nullable || flat_schema.is_nullable, ..flat_schema };
            }
            _ => combine_kinds(kinds, union),
        };
        FlatSchema { kind: schema_kind, is_nullable, name: None }
    }
}

impl<'a> FlatMembers<'a> {
    fn merge_members(&mut self, others: &Self) {
        for (name, part) in &others.by_name {
            let member = self.by_name.entry(name).or_insert(*part);
            let is_required = member.is_required || part.is_required;
            // A bare `required` does not restrict the type of the member.
            if member.member.schema == OpenApiSchema::Unknown {
                *member = *part;
            }
            member.is_required = is_required;
        }
        self.has_others |= others.has_others;
    }
}

fn scalar_schema(name: &'static str) -> FlatSchema<'static> {
    non_null_schema(FlatSchemaKind::Scalar(name))
}

fn non_null_schema(schema_kind: FlatSchemaKind<'_>) -> FlatSchema<'_> {
    FlatSchema { kind: schema_kind, is_nullable: false, name: None }
}

fn unsupported_schema(why: &'static str) -> FlatSchema<'static> {
    FlatSchema { kind: FlatSchemaKind::Json(Some(why)), is_nullable: true, name: None }
}

fn object_kind(object: &ObjectSchema) -> FlatSchemaKind<'_> {
    if object.members.is_empty() {
        return FlatSchemaKind::Json(None);
    }
    let members = object
        .members
        .iter()
        .map(|member| (&*member.name, FlatMember { member, is_required: member.is_required, origin: None }));
    FlatSchemaKind::Object(FlatMembers {
        by_name: members.collect(),
        has_others: object.additional.is_some(),
    })
}

fn flatten_literals(values: &[Value]) -> FlatSchema<'_> {
    let is_nullable = values.contains(&Value::Null);
    let mut others = values.iter().filter(|value| !value.is_null()).peekable();
    let is_all = |is: fn(&Value) -> bool| values.iter().all(|value| value.is_null() || is(value));
    let schema_kind = if others.peek().is_none() {
        FlatSchemaKind::Json(None)
    } else if is_all(Value::is_string) {
        FlatSchemaKind::Enum(others.filter_map(Value::as_str).collect())
    } else if is_all(|value| value.as_i64().is_some_and(|number| i32::try_from(number).is_ok())) {
        FlatSchemaKind::Scalar("Int")
    } else if is_all(|value| value.is_i64() || value.is_u64()) {
        FlatSchemaKind::Scalar("Long")
    } else if is_all(Value::is_number) {
        FlatSchemaKind::Scalar("Float")
    } else if is_all(Value::is_boolean) {
        FlatSchemaKind::Scalar("Boolean")
    } else {
        FlatSchemaKind::Json(Some("values of several types"))
    };
    FlatSchema { kind: schema_kind, is_nullable, name: None }
}

/// Combines several kinds of values.
fn combine_kinds<'a>(
    kinds: Vec<FlatSchema<'a>>,
    union: Option<&'a DiscriminatedUnion>,
) -> FlatSchemaKind<'a> {
    let is_all = |is: fn(&FlatSchemaKind<'a>) -> bool| kinds.iter().all(|kind| is(&kind.kind));
    if is_all(has_only_required_members) {
        // `anyOf: [{ required: [a] }, { required: [b] }]` restricts a type that is defined elsewhere.
        FlatSchemaKind::Json(None)
    } else if is_all(|schema_kind| matches!(schema_kind, FlatSchemaKind::Object(_))) {
        FlatSchemaKind::Union(kinds, union)
    } else if is_all(|flat_schema_kind| matches!(flat_schema_kind, FlatSchemaKind::Scalar("Int" | "Long"))) {
        FlatSchemaKind::Scalar("Long")
    } else if is_all(|what| matches!(what, FlatSchemaKind::Scalar("Int" | "Long" | "Float"))) {
        FlatSchemaKind::Scalar("Float")
    } else if is_all(|what| matches!(what, FlatSchemaKind::Enum(_))) {
        let texts = kinds.iter().filter_map(|kind| match &kind.kind {
            FlatSchemaKind::Enum(texts) => Some(texts.iter().copied()),
            _ => None,
        });
        FlatSchemaKind::Enum(texts.flatten().collect())
    } else if is_all(|what| {
        matches!(what, FlatSchemaKind::Enum(_) | FlatSchemaKind::Scalar("String" | "DateTime" | "Date"))
    }) {
        FlatSchemaKind::Scalar("String")
    } else {
        FlatSchemaKind::Json(Some("one of several alternatives that are not all objects"))
    }
}

/// Whether an object schema only lists required members, without their types.
fn has_only_required_members(kind: &FlatSchemaKind<'_>) -> bool {
    let FlatSchemaKind::Object(members) = kind else { return false };
    members.by_name.values().all(|part| part.is_required && part.member.schema == OpenApiSchema::Unknown)
}

/// Whether two schemas are equal.
fn is_same_schema(schema: &FlatSchema<'_>, other: &FlatSchema<'_>) -> bool {
    match (schema.name, other.name) {
        (Some(one), Some(other)) => one == other,
        _ => is_same_kind(&schema.kind, &other.kind),
    }
}

fn is_same_kind(kind: &FlatSchemaKind<'_>, other: &FlatSchemaKind<'_>) -> bool {
    match (kind, other) {
        (FlatSchemaKind::Scalar(one), FlatSchemaKind::Scalar(other)) => one == other,
        (FlatSchemaKind::Enum(one), FlatSchemaKind::Enum(other)) => one == other,
        (FlatSchemaKind::List(one), FlatSchemaKind::List(other)) => one == other,
        (FlatSchemaKind::Json(_), FlatSchemaKind::Json(_)) => true,
        _ => false,
    }
}
