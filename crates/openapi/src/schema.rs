//! Schemas: the structure of values as far as types can express it. Mere restrictions (lengths, patterns,
//! `not`) are ignored.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

/// The structure of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum OpenApiSchema {
    /// Any value, or an unknown one.
    Unknown,
    /// No value.
    Never,
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// An integer, with its `format`.
    Integer(Option<String>),
    /// A number.
    Number,
    /// A text, with its `format`.
    Text(Option<String>),
    /// A literal: a text, number, boolean or `null` of this list.
    Literals(Vec<Value>),
    /// A list.
    List(Box<OpenApiSchema>),
    /// A list that starts with these items, followed by others if the second part is present.
    Tuple(Vec<OpenApiSchema>, Option<Box<OpenApiSchema>>),
    /// An object.
    Object(ObjectSchema),
    /// A reference to a named schema of the document.
    Named(String),
    /// A union: at least one of these.
    Any(Vec<OpenApiSchema>),
    /// A union with a discriminator.
    Discriminated(DiscriminatedUnion),
    /// An intersection: all of these at once.
    All(Vec<OpenApiSchema>),
}

/// A union of objects with a discriminator.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscriminatedUnion {
    /// The member that is the discriminator.
    pub discriminator: String,
    /// The alternatives.
    pub branches: Vec<OpenApiSchema>,
    /// The discriminator's values, each with the name of its schema.
    pub values: Vec<(String, String)>,
}

/// An object: its members, and the schema of additional ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectSchema {
    /// The named members.
    pub members: Vec<MemberSchema>,
    /// The schema of additional members, or `None` if the document does not describe them.
    pub additional: Option<Box<OpenApiSchema>>,
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberSchema {
    /// The name in the JSON.
    pub name: String,
    /// The schema of its value.
    pub schema: OpenApiSchema,
    /// Whether the member is required.
    pub is_required: bool,
    /// The description, or empty if there is none.
    pub description: String,
    /// The directions in which it is sent.
    pub access: MemberAccess,
    /// Whether the member should no longer be used.
    pub is_deprecated: bool,
}

/// The directions in which a member is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberAccess {
    /// In requests and responses.
    #[default]
    Both,
    /// In responses only.
    ReadOnly,
    /// In requests only.
    WriteOnly,
}

/// Finds names that only refer to themselves, as `a: b`, `b: a` do, and makes them unknown. A cycle through a
/// list or an object is valid.
pub(crate) fn break_cycles(schemas: &mut [(String, OpenApiSchema)]) -> Vec<String> {
    let index: HashMap<&str, usize> =
        schemas.iter().enumerate().map(|(index, (name, _))| (&**name, index)).collect();
    let edges: Vec<Vec<usize>> =
        schemas.iter().map(|(_, schema)| direct_references(schema, &index)).collect();
    let mut state = vec![SchemaReadState::Unvisited; edges.len()];
    let mut circular = BTreeSet::new();
    for start in 0..edges.len() {
        // Depth first, with an explicit stack, since a chain may be as long as the document.
        let mut path = vec![(start, 0)];
        while let Some((at, next)) = path.pop() {
            if next == 0 && state[at] != SchemaReadState::Unvisited {
                continue;
            }
            state[at] = SchemaReadState::Visiting;
            match edges[at].get(next) {
                None => state[at] = SchemaReadState::Visited,
                Some(&to) => {
                    path.push((at, next + 1));
                    match state[to] {
                        SchemaReadState::Visiting => drop(circular.insert(at)),
                        SchemaReadState::Unvisited => path.push((to, 0)),
                        SchemaReadState::Visited => {}
                    }
                }
            }
        }
    }
    let names = circular.into_iter().map(|at| {
        schemas[at].1 = OpenApiSchema::Unknown;
        schemas[at].0.clone()
    });
    names.collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaReadState {
    Unvisited,
    Visiting,
    Visited,
}

/// The names that a schema refers to directly, without a list or an object in between.
fn direct_references(schema: &OpenApiSchema, index: &HashMap<&str, usize>) -> Vec<usize> {
    match schema {
        OpenApiSchema::Named(name) => index.get(&**name).copied().into_iter().collect(),
        OpenApiSchema::Any(parts)
        | OpenApiSchema::All(parts)
        | OpenApiSchema::Discriminated(DiscriminatedUnion { branches: parts, .. }) => {
            parts.iter().flat_map(|part| direct_references(part, index)).collect()
        }
        _ => Vec::new(),
    }
}
