//! Conversion of an introspection result to a model.

use serde::Deserialize;

use super::{OF_SUBGRAPHS, Roots, add};
use crate::mistake::Finding;
use crate::schema::model::{BUILT_IN, Field, Fields, MUTATION, Model, QUERY, Ref, Shape, Value};

/// The whole response, its `data`, or the `__schema` member.
#[derive(Deserialize)]
struct Answer {
    data: Option<Data>,
    #[serde(rename = "__schema")]
    schema: Option<Schema>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "__schema")]
    schema: Schema,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    query_type: Option<Name>,
    mutation_type: Option<Name>,
    subscription_type: Option<Name>,
    types: Vec<Type>,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Type {
    kind: String,
    name: String,
    description: Option<String>,
    #[serde(default)]
    fields: Option<Vec<Described>>,
    #[serde(default)]
    input_fields: Option<Vec<Described>>,
    #[serde(default)]
    interfaces: Option<Vec<Of>>,
    #[serde(default)]
    possible_types: Option<Vec<Of>>,
    #[serde(default)]
    enum_values: Option<Vec<EnumValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    name: String,
    description: Option<String>,
    #[serde(default)]
    args: Vec<Described>,
    #[serde(rename = "type")]
    of: Of,
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
struct Of {
    kind: String,
    name: Option<String>,
    of_type: Option<Box<Of>>,
}

/// Reads an introspection result into a model.
///
/// # Errors
/// If the text is not an introspection result.
pub(super) fn read(model: &mut Model, text: &str) -> Result<Vec<Finding>, String> {
    let answer: Answer = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let schema = answer.schema.or_else(|| Some(answer.data?.schema));
    let schema = schema.ok_or("it has no `__schema`: the service does not provide its schema")?;
    let name = |name: Option<Name>| name.map(|name| name.name);
    let roots = Roots {
        query: name(schema.query_type).unwrap_or_else(|| QUERY.to_owned()),
        mutation: name(schema.mutation_type).unwrap_or_else(|| MUTATION.to_owned()),
        subscription: name(schema.subscription_type).unwrap_or_else(|| "Subscription".to_owned()),
    };
    let mut findings = Vec::new();
    for it in schema.types {
        if it.name == roots.subscription {
            findings.push(Finding {
                service: model.service.clone(),
                place: it.name,
                message: "subscriptions are left out".to_owned(),
                hint: String::new(),
            });
        } else if !it.name.starts_with("__") && !BUILT_IN.contains(&&*it.name) {
            let Some(shape) = shape(&it, &roots) else { continue };
            add(model, roots.key(&it.name), &it.name, it.description.as_deref().unwrap_or_default(), shape);
        }
    }
    Ok(findings)
}

fn shape(it: &Type, roots: &Roots) -> Option<Shape> {
    let keys = |of: &Option<Vec<Of>>| {
        let names = of.iter().flatten().filter_map(|of| of.name.as_deref());
        names.map(|name| roots.key(name).into()).collect()
    };
    let described = |of: &Option<Vec<Described>>| fields(of.as_deref().unwrap_or_default(), roots);
    Some(match &*it.kind {
        "SCALAR" => Shape::Scalar,
        "OBJECT" => Shape::Object { fields: described(&it.fields), implements: keys(&it.interfaces) },
        "INTERFACE" => Shape::Interface { fields: described(&it.fields), implements: keys(&it.interfaces) },
        "UNION" => Shape::Union { types: keys(&it.possible_types), told_by: None },
        "INPUT_OBJECT" => Shape::Input(described(&it.input_fields)),
        "ENUM" => Shape::Enum(
            it.enum_values
                .iter()
                .flatten()
                .map(|value| Value {
                    name: value.name.clone(),
                    text: value.name.as_str().into(),
                    description: value.description.clone().unwrap_or_default(),
                    deprecated: deprecated(value.is_deprecated, value.deprecation_reason.as_ref()),
                })
                .collect(),
        ),
        _ => return None,
    })
}

fn fields(described: &[Described], roots: &Roots) -> Fields {
    let fields = described.iter().filter(|it| !OF_SUBGRAPHS.contains(&&*it.name)).map(|it| {
        let mut field = Field::new(&it.name, &it.name, of(&it.of, roots));
        field.description = it.description.clone().unwrap_or_default();
        field.default.clone_from(&it.default_value);
        field.deprecated = deprecated(it.is_deprecated, it.deprecation_reason.as_ref());
        field.arguments = fields(&it.args, roots);
        (Box::from(&*it.name), field)
    });
    fields.collect()
}

fn of(written: &Of, roots: &Roots) -> Ref {
    match (&*written.kind, &written.of_type) {
        ("LIST", Some(items)) => Ref::list(of(items, roots)),
        ("NON_NULL", Some(inner)) => of(inner, roots).required(),
        _ => Ref::named(roots.key(written.name.as_deref().unwrap_or("String"))),
    }
}

fn deprecated(is_deprecated: Option<bool>, reason: Option<&String>) -> Option<String> {
    (is_deprecated == Some(true)).then(|| reason.cloned().unwrap_or_else(|| "No longer supported".to_owned()))
}
