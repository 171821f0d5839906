//! The types of the composed schema by number, for fast lookups during execution.

use std::collections::HashMap;
use std::sync::Arc;

use graphql_tools::static_graphql::schema::{
    Definition, Document, Field as FieldDefinition, InputValue, Type as Written, TypeDefinition, Value,
};

use crate::subgraph::ScalarInput;
use crate::subgraph::{OperationKind, SubgraphBindings};

/// The number of a type.
pub(crate) type TypeId = u32;

/// The types that clients see, and the names of hidden types.
#[derive(Debug, Default)]
pub(crate) struct ClientTypes {
    types: Vec<ClientType>,
    by_name: HashMap<Arc<str>, TypeId>,
    hidden_values: HashMap<TypeId, Vec<Box<str>>>,
    /// The accepted values of custom scalars; scalars that accept any value are missing.
    scalar_inputs: HashMap<TypeId, ScalarInput>,
    /// The hidden possible types of interfaces and unions.
    hidden_objects: HashMap<TypeId, Vec<TypeId>>,
    pub(crate) query: TypeId,
    pub(crate) mutation: Option<TypeId>,
    /// The most work that one value of a variable may take, in comparisons of names.
    pub(crate) max_input_width: usize,
}

/// A type.
#[derive(Debug)]
pub(crate) struct ClientType {
    pub(crate) name: Arc<str>,
    pub(crate) kind: ClientTypeKind,
}

/// The kind of a type.
#[derive(Debug)]
pub(crate) enum ClientTypeKind {
    /// A type that is hidden from clients.
    Hidden,
    Scalar(ScalarKind),
    Object(HashMap<Box<str>, ClientField>),
    /// An interface or a union: its fields, and its possible types, in order.
    Abstract(HashMap<Box<str>, ClientField>, Vec<TypeId>),
    Enum(Vec<Box<str>>),
    Input {
        fields: Vec<ClientInput>,
        is_one_of: bool,
    },
}

/// The kinds of scalars, which determine how values are coerced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    Int,
    Float,
    String,
    Boolean,
    Id,
    /// Any JSON.
    Custom,
}

/// A field of an object or interface.
#[derive(Debug)]
pub(crate) struct ClientField {
    pub(crate) ty: ClientTypeRef,
    pub(crate) arguments: Vec<ClientInput>,
}

/// An argument, or a field of an input object.
#[derive(Debug)]
pub(crate) struct ClientInput {
    pub(crate) name: Box<str>,
    pub(crate) ty: ClientTypeRef,
    pub(crate) default: Option<Value>,
}

/// A type reference, with lists and non-null markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientTypeRef {
    Named(TypeId),
    List(Box<ClientTypeRef>),
    NonNull(Box<ClientTypeRef>),
}

impl ClientType {
    /// The work of coercing a value of this type, in comparisons of names: with those of an enum's values, or
    /// of an input object's fields.
    fn input_width(&self) -> usize {
        /// Writing a default takes as long as this number of comparisons.
        const DEFAULT_COST: usize = 50;
        match &self.kind {
            ClientTypeKind::Enum(values) => values.len(),
            ClientTypeKind::Input { fields, .. } => {
                fields.iter().map(|field| if field.default.is_some() { DEFAULT_COST } else { 1 }).sum()
            }
            _ => 0,
        }
    }
}

impl ClientTypeRef {
    /// The innermost type.
    pub(crate) fn named_type(&self) -> TypeId {
        match self {
            Self::Named(id) => *id,
            Self::List(inner) | Self::NonNull(inner) => inner.named_type(),
        }
    }

    /// The type without a non-null marker.
    pub(crate) fn nullable(&self) -> &Self {
        match self {
            Self::NonNull(inner) => inner,
            other => other,
        }
    }
}

impl ClientTypes {
    /// Indexes the types of the schema that clients see.
    pub(crate) fn from_schema(schema: &Document) -> Self {
        let mut types = Self::default();
        for definition in &schema.definitions {
            if let Definition::TypeDefinition(definition) = definition {
                types.intern(definition.name());
            }
        }
        for definition in &schema.definitions {
            if let Definition::TypeDefinition(definition) = definition {
                let kind = types.build_kind(definition);
                let id = types.intern(definition.name());
                types.types[id as usize].kind = kind;
            }
        }
        types.record_possible_types(schema);
        let root = |name: Option<&str>| name.and_then(|name| types.find(name));
        let named = schema.definitions.iter().find_map(|definition| match definition {
            Definition::SchemaDefinition(roots) => Some(roots),
            _ => None,
        });
        let query = root(named.and_then(|roots| roots.query.as_deref()).or(Some("Query")));
        let mutation = match named {
            Some(roots) => root(roots.mutation.as_deref()),
            None => root(Some("Mutation")),
        };
        types.query = query.unwrap_or_else(|| types.intern("Query"));
        types.mutation = mutation;
        types.max_input_width = types.types.iter().map(ClientType::input_width).max().unwrap_or(0);
        types
    }

    /// The root type of an operation.
    pub(crate) fn root_type(&self, kind: OperationKind) -> TypeId {
        match kind {
            OperationKind::Query => self.query,
            OperationKind::Mutation => self.mutation.unwrap_or(self.query),
        }
    }

    /// Returns the number of a name. A new name becomes that of a hidden type.
    pub(crate) fn intern(&mut self, name: &str) -> TypeId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let id = TypeId::try_from(self.types.len()).unwrap_or(TypeId::MAX);
        self.types.push(ClientType { name: Arc::clone(&name), kind: ClientTypeKind::Hidden });
        self.by_name.insert(name, id);
        id
    }

    pub(crate) fn find(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn get(&self, id: TypeId) -> &ClientType {
        &self.types[id as usize]
    }

    pub(crate) fn name(&self, id: TypeId) -> &Arc<str> {
        &self.get(id).name
    }

    pub(crate) fn kind_of(&self, id: TypeId) -> &ClientTypeKind {
        &self.get(id).kind
    }

    /// Whether the type is hidden from clients.
    pub(crate) fn is_hidden(&self, id: TypeId) -> bool {
        matches!(self.kind_of(id), ClientTypeKind::Hidden)
    }

    /// Whether an enum value is hidden from clients.
    pub(crate) fn is_hidden_value(&self, id: TypeId, name: &str) -> bool {
        self.hidden_values.get(&id).is_some_and(|values| values.iter().any(|value| **value == *name))
    }

    /// Records the hidden values of an enum: those that clients do not see.
    pub(crate) fn hide_values<'v>(&mut self, name: &str, all: impl Iterator<Item = &'v str>) {
        let id = self.intern(name);
        let ClientTypeKind::Enum(seen) = self.kind_of(id) else { return };
        let hidden: Vec<Box<str>> =
            all.filter(|value| !seen.iter().any(|seen| **seen == **value)).map(Into::into).collect();
        if !hidden.is_empty() {
            self.hidden_values.insert(id, hidden);
        }
    }

    /// Records the hidden possible types of a supergraph's interfaces and unions.
    pub(crate) fn hide_objects(&mut self, supergraph: &Document) {
        for definition in &supergraph.definitions {
            match definition {
                Definition::TypeDefinition(TypeDefinition::Object(object)) => {
                    let interfaces = &object.implements_interfaces;
                    interfaces.iter().for_each(|interface| self.hide_object(interface, &object.name));
                }
                Definition::TypeDefinition(TypeDefinition::Union(union)) => {
                    union.types.iter().for_each(|object| self.hide_object(&union.name, object));
                }
                _ => {}
            }
        }
    }

    /// Records that an interface or union may be of a type, if that type is hidden.
    pub(crate) fn hide_object(&mut self, of: &str, object: &str) {
        let (of, object) = (self.intern(of), self.intern(object));
        if self.is_hidden(object) && matches!(self.kind_of(of), ClientTypeKind::Abstract(..)) {
            self.hidden_objects.entry(of).or_default().push(object);
        }
    }

    /// Records the values that services' scalars accept. If one service accepts any value of a scalar, the
    /// schema does, too.
    pub(crate) fn record_scalars<'b>(&mut self, services: impl Iterator<Item = &'b SubgraphBindings>) {
        let mut inputs: HashMap<&str, Option<ScalarInput>> = HashMap::new();
        for (name, input) in services.flat_map(|bindings| &bindings.scalars) {
            let scalar_input = inputs.entry(&**name).or_insert(*input);
            *scalar_input = scalar_input.filter(|known| Some(*known) == *input);
        }
        for (name, input) in inputs {
            if let (Some(id), Some(input)) = (self.find(name), input) {
                self.scalar_inputs.insert(id, input);
            }
        }
    }

    /// The values that a custom scalar accepts; `None` if it accepts any, and for all other types.
    pub(crate) fn scalar_input(&self, id: TypeId) -> Option<ScalarInput> {
        self.scalar_inputs.get(&id).copied()
    }

    pub(crate) fn is_object(&self, id: TypeId) -> bool {
        matches!(self.kind_of(id), ClientTypeKind::Object(_))
    }

    pub(crate) fn is_composite(&self, id: TypeId) -> bool {
        matches!(self.kind_of(id), ClientTypeKind::Object(_) | ClientTypeKind::Abstract(..))
    }

    pub(crate) fn is_union(&self, id: TypeId) -> bool {
        matches!(self.kind_of(id), ClientTypeKind::Abstract(fields, _) if fields.is_empty())
    }

    /// The possible object types of a type, as clients see them.
    pub(crate) fn objects(&self, id: TypeId) -> &[TypeId] {
        match self.kind_of(id) {
            ClientTypeKind::Abstract(_, possible) => possible,
            _ => &[],
        }
    }

    /// The hidden possible object types of a type. Objects of these types become `null`.
    pub(crate) fn hidden_objects(&self, id: TypeId) -> &[TypeId] {
        self.hidden_objects.get(&id).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether a value of the type `id` may be an `object`, which is an object type.
    pub(crate) fn includes_object(&self, id: TypeId, object: TypeId) -> bool {
        id == object || self.objects(id).contains(&object)
    }

    pub(crate) fn field(&self, id: TypeId, name: &str) -> Option<&ClientField> {
        match self.kind_of(id) {
            ClientTypeKind::Object(fields) | ClientTypeKind::Abstract(fields, _) => fields.get(name),
            _ => None,
        }
    }

    /// A type reference in GraphQL syntax.
    pub(crate) fn format_type(&self, ty: &ClientTypeRef) -> String {
        match ty {
            ClientTypeRef::Named(id) => self.name(*id).to_string(),
            ClientTypeRef::List(inner) => format!("[{}]", self.format_type(inner)),
            ClientTypeRef::NonNull(inner) => format!("{}!", self.format_type(inner)),
        }
    }

    pub(crate) fn intern_type(&mut self, written: &Written) -> ClientTypeRef {
        match written {
            Written::NamedType(name) => ClientTypeRef::Named(self.intern(name)),
            Written::ListType(inner) => ClientTypeRef::List(Box::new(self.intern_type(inner))),
            Written::NonNullType(inner) => ClientTypeRef::NonNull(Box::new(self.intern_type(inner))),
        }
    }

    /// The type reference if all names are known; otherwise `None`.
    pub(crate) fn resolve_type(&self, written: &Written) -> Option<ClientTypeRef> {
        Some(match written {
            Written::NamedType(name) => ClientTypeRef::Named(self.find(name)?),
            Written::ListType(inner) => ClientTypeRef::List(Box::new(self.resolve_type(inner)?)),
            Written::NonNullType(inner) => ClientTypeRef::NonNull(Box::new(self.resolve_type(inner)?)),
        })
    }

    fn build_kind(&mut self, definition: &TypeDefinition) -> ClientTypeKind {
        match definition {
            TypeDefinition::Scalar(scalar) => ClientTypeKind::Scalar(match scalar.name.as_str() {
                "Int" => ScalarKind::Int,
                "Float" => ScalarKind::Float,
                "String" => ScalarKind::String,
                "Boolean" => ScalarKind::Boolean,
                "ID" => ScalarKind::Id,
                _ => ScalarKind::Custom,
            }),
            TypeDefinition::Object(object) => ClientTypeKind::Object(self.build_fields(&object.fields)),
            TypeDefinition::Interface(interface) => {
                ClientTypeKind::Abstract(self.build_fields(&interface.fields), Vec::new())
            }
            TypeDefinition::Union(union) => ClientTypeKind::Abstract(
                HashMap::new(),
                union.types.iter().map(|name| self.intern(name)).collect(),
            ),
            TypeDefinition::Enum(named) => {
                ClientTypeKind::Enum(named.values.iter().map(|value| value.name.as_str().into()).collect())
            }
            TypeDefinition::InputObject(input) => ClientTypeKind::Input {
                fields: self.build_inputs(&input.fields),
                is_one_of: input.directives.iter().any(|directive| directive.name == "oneOf"),
            },
        }
    }

    fn build_fields(&mut self, fields: &[FieldDefinition]) -> HashMap<Box<str>, ClientField> {
        let mut field = |field: &FieldDefinition| {
            let (ty, arguments) = (self.intern_type(&field.field_type), self.build_inputs(&field.arguments));
            (field.name.as_str().into(), ClientField { ty, arguments })
        };
        fields.iter().map(&mut field).collect()
    }

    fn build_inputs(&mut self, inputs: &[InputValue]) -> Vec<ClientInput> {
        let mut input = |input: &InputValue| ClientInput {
            name: input.name.as_str().into(),
            ty: self.intern_type(&input.value_type),
            default: input.default_value.clone(),
        };
        inputs.iter().map(&mut input).collect()
    }

    /// Records the possible types of each interface.
    fn record_possible_types(&mut self, schema: &Document) {
        for definition in &schema.definitions {
            let Definition::TypeDefinition(TypeDefinition::Object(object)) = definition else { continue };
            let id = self.intern(&object.name);
            for interface in &object.implements_interfaces {
                let interface = self.intern(interface);
                if let ClientTypeKind::Abstract(_, possible) = &mut self.types[interface as usize].kind {
                    possible.push(id);
                }
            }
        }
    }
}
