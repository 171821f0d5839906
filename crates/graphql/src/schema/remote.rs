//! A GraphQL service as a model, from its SDL or its introspection result.
//!
//! The text of a federated subgraph remains unchanged; it is parsed to resolve links. Subscriptions are left
//! out.

mod introspection;

use std::sync::Arc;

use diagnostics::Diagnostic;
use graphql_tools::parser::schema::{
    Definition, Directive, Document, EnumValue, Field as Written, InputValue, Type as Of, TypeDefinition,
    TypeExtension, Value as AstValue, parse_schema,
};

use super::diagnostic::document_warning;
use super::model::{
    MUTATION, ModelEnumValue, ModelField, ModelFields, ModelProtocol, ModelType, ModelTypeRef,
    ModelTypeShape, QUERY, ServiceModel,
};
use crate::compose::sdl_text::normalize_sdl;

/// The `Query` fields that every federated subgraph has.
const SUBGRAPH_FIELDS: [&str; 2] = ["_entities", "_service"];

type SdlSchema = Document<'static, String>;

/// Builds the model of a GraphQL service, federated or not.
///
/// # Errors
/// The parser's message, if the text is invalid.
pub(super) fn build_model(
    service: &Arc<str>,
    path: &Arc<str>,
    text: &str,
    is_federated: bool,
) -> Result<(ServiceModel, Vec<Diagnostic>), String> {
    let path = Arc::clone(path);
    if text.trim_start().starts_with('{') {
        let mut model = ServiceModel::new(service, ModelProtocol::Graphql { path });
        let findings = introspection::read_introspection(&mut model, text)?;
        return Ok((model, findings));
    }
    let prepared = normalize_sdl(text).map_err(|_| "its brackets are nested too deeply")?;
    let document = parse_schema::<String>(&prepared).map_err(|error| error.to_string())?.into_static();
    let protocol = match is_federated {
        true => ModelProtocol::Federated { path, sdl: text.to_owned() },
        false => ModelProtocol::Graphql { path },
    };
    let mut reader = RemoteSchemaReader {
        model: ServiceModel::new(service, protocol),
        roots: root_type_names(&document),
        warnings: Vec::new(),
    };
    for definition in &document.definitions {
        match definition {
            Definition::TypeDefinition(definition) => reader.define_type(definition),
            Definition::TypeExtension(extension) => reader.extend_type(extension),
            Definition::SchemaDefinition(_) | Definition::DirectiveDefinition(_) => {}
        }
    }
    Ok((reader.model, reader.warnings))
}

/// The service's names of `Query`, `Mutation` and `Subscription`.
#[derive(Debug)]
struct RootTypeNames {
    query: String,
    mutation: String,
    subscription: String,
}

impl RootTypeNames {
    /// The key of a type. The root types have the same keys in every service.
    fn type_key<'a>(&self, name: &'a str) -> &'a str {
        match name {
            _ if name == self.query => QUERY,
            _ if name == self.mutation => MUTATION,
            other => other,
        }
    }
}

fn root_type_names(document: &SdlSchema) -> RootTypeNames {
    let mut roots = RootTypeNames {
        query: QUERY.to_owned(),
        mutation: MUTATION.to_owned(),
        subscription: "Subscription".to_owned(),
    };
    for definition in &document.definitions {
        let Definition::SchemaDefinition(schema) = definition else { continue };
        schema.query.iter().for_each(|name| roots.query.clone_from(name));
        schema.mutation.iter().for_each(|name| roots.mutation.clone_from(name));
        schema.subscription.iter().for_each(|name| roots.subscription.clone_from(name));
    }
    roots
}

struct RemoteSchemaReader {
    model: ServiceModel,
    roots: RootTypeNames,
    warnings: Vec<Diagnostic>,
}

impl RemoteSchemaReader {
    fn define_type(&mut self, definition: &TypeDefinition<'static, String>) {
        match definition {
            TypeDefinition::Scalar(it) => {
                self.add_type(&it.name, it.description.as_ref(), ModelTypeShape::Scalar)
            }
            TypeDefinition::Object(it) => {
                let shape = ModelTypeShape::Object {
                    fields: self.convert_fields(&it.fields),
                    implements: self.type_keys(&it.implements_interfaces),
                };
                self.add_type(&it.name, it.description.as_ref(), shape);
            }
            TypeDefinition::Interface(it) => {
                let shape = ModelTypeShape::Interface {
                    fields: self.convert_fields(&it.fields),
                    implements: self.type_keys(&it.implements_interfaces),
                };
                self.add_type(&it.name, it.description.as_ref(), shape);
            }
            TypeDefinition::Union(it) => {
                let shape = ModelTypeShape::Union { types: self.type_keys(&it.types), type_rule: None };
                self.add_type(&it.name, it.description.as_ref(), shape);
            }
            TypeDefinition::Enum(it) => {
                let shape = ModelTypeShape::Enum(convert_values(&it.values));
                self.add_type(&it.name, it.description.as_ref(), shape);
            }
            TypeDefinition::InputObject(it) => {
                let shape = ModelTypeShape::Input(self.convert_inputs(&it.fields));
                self.add_type(&it.name, it.description.as_ref(), shape);
            }
        }
    }

    /// Adds the fields of an extension to the type that it extends, or defines this type if it does not
    /// exist.
    fn extend_type(&mut self, extension: &TypeExtension<'static, String>) {
        let (name, shape) = match extension {
            TypeExtension::Object(it) => (
                &it.name,
                ModelTypeShape::Object {
                    fields: self.convert_fields(&it.fields),
                    implements: self.type_keys(&it.implements_interfaces),
                },
            ),
            TypeExtension::Interface(it) => (
                &it.name,
                ModelTypeShape::Interface {
                    fields: self.convert_fields(&it.fields),
                    implements: self.type_keys(&it.implements_interfaces),
                },
            ),
            TypeExtension::InputObject(it) => {
                (&it.name, ModelTypeShape::Input(self.convert_inputs(&it.fields)))
            }
            TypeExtension::Union(it) => {
                (&it.name, ModelTypeShape::Union { types: self.type_keys(&it.types), type_rule: None })
            }
            TypeExtension::Enum(it) => (&it.name, ModelTypeShape::Enum(convert_values(&it.values))),
            TypeExtension::Scalar(_) => return,
        };
        self.add_type(name, None, shape);
    }

    fn add_type(&mut self, name: &str, description: Option<&String>, shape: ModelTypeShape) {
        if name == self.roots.subscription {
            let message = "subscriptions are left out";
            self.warnings.push(document_warning(&self.model.service, name, message, ""));
            return;
        }
        add_or_merge_type(
            &mut self.model,
            self.roots.type_key(name),
            name,
            description.map_or("", String::as_str),
            shape,
        );
    }

    fn type_keys(&self, names: &[String]) -> Vec<Box<str>> {
        names.iter().map(|name| self.roots.type_key(name).into()).collect()
    }

    fn convert_fields(&self, written: &[Written<'static, String>]) -> ModelFields {
        let fields = written.iter().filter(|field| !SUBGRAPH_FIELDS.contains(&&*field.name)).map(|written| {
            let mut field =
                ModelField::new(&written.name, &written.name, self.convert_type_ref(&written.field_type));
            field.description = written.description.clone().unwrap_or_default();
            field.deprecated = deprecation_reason(&written.directives);
            field.arguments = self.convert_inputs(&written.arguments);
            (Box::from(&*written.name), field)
        });
        fields.collect()
    }

    fn convert_inputs(&self, written: &[InputValue<'static, String>]) -> ModelFields {
        let fields = written.iter().map(|written| {
            let mut field =
                ModelField::new(&written.name, &written.name, self.convert_type_ref(&written.value_type));
            field.description = written.description.clone().unwrap_or_default();
            field.default = written.default_value.as_ref().map(ToString::to_string);
            (Box::from(&*written.name), field)
        });
        fields.collect()
    }

    fn convert_type_ref(&self, of: &Of<'static, String>) -> ModelTypeRef {
        match of {
            Of::NamedType(name) => ModelTypeRef::named(self.roots.type_key(name)),
            Of::ListType(items) => ModelTypeRef::list(self.convert_type_ref(items)),
            Of::NonNullType(of) => self.convert_type_ref(of).required(),
        }
    }
}

fn convert_values(enum_values: &[EnumValue<'static, String>]) -> Vec<ModelEnumValue> {
    let values = enum_values.iter().map(|value| ModelEnumValue {
        name: value.name.clone(),
        text: value.name.as_str().into(),
        description: value.description.clone().unwrap_or_default(),
        deprecated: deprecation_reason(&value.directives),
    });
    values.collect()
}

/// Adds a type, or merges the definition into an existing type.
fn add_or_merge_type(
    model: &mut ServiceModel,
    key: &str,
    name: &str,
    description: &str,
    shape: ModelTypeShape,
) {
    if let Some(model_type) = model.types.get_mut(key) {
        match (&mut model_type.shape, shape) {
            (
                ModelTypeShape::Object { fields, implements }
                | ModelTypeShape::Interface { fields, implements },
                ModelTypeShape::Object { fields: more, implements: also }
                | ModelTypeShape::Interface { fields: more, implements: also },
            ) => {
                fields.extend(more);
                implements.extend(also);
            }
            (ModelTypeShape::Input(fields), ModelTypeShape::Input(more)) => fields.extend(more),
            (ModelTypeShape::Enum(values), ModelTypeShape::Enum(more)) => values.extend(more),
            (ModelTypeShape::Union { types, .. }, ModelTypeShape::Union { types: more, .. }) => {
                types.extend(more)
            }
            _ => {}
        }
        return;
    }
    let mut made = ModelType::new(key, shape);
    made.service_name = Some(name.into());
    made.description = description.to_owned();
    model.types.insert(key.into(), made);
}

fn deprecation_reason(directives: &[Directive<'static, String>]) -> Option<String> {
    let directive = directives.iter().find(|directive| directive.name == "deprecated")?;
    let reason = directive.arguments.iter().find(|(name, _)| name == "reason");
    Some(match reason {
        Some((_, AstValue::String(text))) => text.clone(),
        _ => "No longer supported".to_owned(),
    })
}
