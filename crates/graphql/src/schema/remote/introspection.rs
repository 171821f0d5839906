//! Conversion of an introspection result to a model.

use diagnostics::Diagnostic;
use serde::Deserialize;

use super::{RootTypeNames, SUBGRAPH_FIELDS, add_or_merge_type};
use crate::schema::diagnostic::document_warning;

use crate::schema::model::{
    BUILT_IN_SCALARS, MUTATION, ModelEnumValue, ModelField, ModelFields, ModelTypeRef, ModelTypeShape, QUERY,
    ServiceModel,
};

/// The whole response, its `data`, or the `__schema` member.
#[derive(Deserialize)]
struct IntrospectionResponse {
    data: Option<IntrospectionData>,
    #[serde(rename = "__schema")]
    schema: Option<IntrospectedSchema>,
}

#[derive(Deserialize)]
struct IntrospectionData {
    #[serde(rename = "__schema")]
    schema: IntrospectedSchema,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IntrospectedSchema {
    query_type: Option<IntrospectedName>,
    mutation_type: Option<IntrospectedName>,
    subscription_type: Option<IntrospectedName>,
    types: Vec<IntrospectedType>,
}

#[derive(Deserialize)]
struct IntrospectedName {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IntrospectedType {
    kind: String,
    name: String,
    description: Option<String>,
    #[serde(default)]
    fields: Option<Vec<IntrospectedElement>>,
    #[serde(default)]
    input_fields: Option<Vec<IntrospectedElement>>,
    #[serde(default)]
    interfaces: Option<Vec<IntrospectedTypeRef>>,
    #[serde(default)]
    possible_types: Option<Vec<IntrospectedTypeRef>>,
    #[serde(default)]
    enum_values: Option<Vec<EnumValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IntrospectedElement {
    name: String,
    description: Option<String>,
    #[serde(default)]
    args: Vec<IntrospectedElement>,
    #[serde(rename = "type")]
    of: IntrospectedTypeRef,
    default_value: Option<String>,
    #[serde(default)]
    is_deprecated: Option<bool>,
    deprecation_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnumValue {
    name: String,
    description: Option<String>,
    #[serde(default)]
    is_deprecated: Option<bool>,
    deprecation_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IntrospectedTypeRef {
    kind: String,
    name: Option<String>,
    of_type: Option<Box<IntrospectedTypeRef>>,
}

/// Reads an introspection result into a model.
///
/// # Errors
/// If the text is not an introspection result.
pub(super) fn read_introspection(model: &mut ServiceModel, text: &str) -> Result<Vec<Diagnostic>, String> {
    let answer: IntrospectionResponse = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let schema = answer.schema.or_else(|| Some(answer.data?.schema));
    let schema = schema.ok_or("it has no `__schema`: the service does not provide its schema")?;
    let name = |name: Option<IntrospectedName>| name.map(|name| name.name);
    let roots = RootTypeNames {
        query: name(schema.query_type).unwrap_or_else(|| QUERY.to_owned()),
        mutation: name(schema.mutation_type).unwrap_or_else(|| MUTATION.to_owned()),
        subscription: name(schema.subscription_type).unwrap_or_else(|| "Subscription".to_owned()),
    };
    let mut findings = Vec::new();
    for it in schema.types {
        if it.name == roots.subscription {
            findings.push(document_warning(&model.service, it.name, "subscriptions are left out", ""));
        } else if !it.name.starts_with("__") && !BUILT_IN_SCALARS.contains(&&*it.name) {
            let Some(shape) = convert_shape(&it, &roots) else { continue };
            add_or_merge_type(
                model,
                roots.type_key(&it.name),
                &it.name,
                it.description.as_deref().unwrap_or_default(),
                shape,
            );
        }
    }
    Ok(findings)
}

fn convert_shape(it: &IntrospectedType, roots: &RootTypeNames) -> Option<ModelTypeShape> {
    let keys = |of: &Option<Vec<IntrospectedTypeRef>>| {
        let names = of.iter().flatten().filter_map(|of| of.name.as_deref());
        names.map(|name| roots.type_key(name).into()).collect()
    };
    let described =
        |of: &Option<Vec<IntrospectedElement>>| convert_fields(of.as_deref().unwrap_or_default(), roots);
    Some(match &*it.kind {
        "SCALAR" => ModelTypeShape::Scalar,
        "OBJECT" => {
            ModelTypeShape::Object { fields: described(&it.fields), implements: keys(&it.interfaces) }
        }
        "INTERFACE" => {
            ModelTypeShape::Interface { fields: described(&it.fields), implements: keys(&it.interfaces) }
        }
        "UNION" => ModelTypeShape::Union { types: keys(&it.possible_types), type_rule: None },
        "INPUT_OBJECT" => ModelTypeShape::Input(described(&it.input_fields)),
        "ENUM" => ModelTypeShape::Enum(
            it.enum_values
                .iter()
                .flatten()
                .map(|value| ModelEnumValue {
                    name: value.name.clone(),
                    text: value.name.as_str().into(),
                    description: value.description.clone().unwrap_or_default(),
                    deprecated: deprecation_reason(value.is_deprecated, value.deprecation_reason.as_ref()),
                })
                .collect(),
        ),
        _ => return None,
    })
}

fn convert_fields(described: &[IntrospectedElement], roots: &RootTypeNames) -> ModelFields {
    let fields = described.iter().filter(|it| !SUBGRAPH_FIELDS.contains(&&*it.name)).map(|it| {
        let mut field = ModelField::new(&it.name, &it.name, convert_type_ref(&it.of, roots));
        field.description = it.description.clone().unwrap_or_default();
        field.default.clone_from(&it.default_value);
        field.deprecated = deprecation_reason(it.is_deprecated, it.deprecation_reason.as_ref());
        field.arguments = convert_fields(&it.args, roots);
        (Box::from(&*it.name), field)
    });
    fields.collect()
}

fn convert_type_ref(type_ref: &IntrospectedTypeRef, roots: &RootTypeNames) -> ModelTypeRef {
    match (&*type_ref.kind, &type_ref.of_type) {
        ("LIST", Some(items)) => ModelTypeRef::list(convert_type_ref(items, roots)),
        ("NON_NULL", Some(inner)) => convert_type_ref(inner, roots).required(),
        _ => ModelTypeRef::named(roots.type_key(type_ref.name.as_deref().unwrap_or("String"))),
    }
}

fn deprecation_reason(is_deprecated: Option<bool>, reason: Option<&String>) -> Option<String> {
    (is_deprecated == Some(true)).then(|| reason.cloned().unwrap_or_else(|| "No longer supported".to_owned()))
}
