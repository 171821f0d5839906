//! Variable coercion by the specification (6.1.2), and the insertion of variables into arguments.

mod spelled_values;

use std::collections::HashMap;

use bytes::Bytes;
use json::{AmbiguousValue, JsonDocument, JsonNode, JsonNumber, NodeId, ValueKind};
use offload::{SHORT_TEXT, work};

use crate::error::GraphqlError;
use crate::error::GraphqlErrorKind;
use crate::plan::data::PlanStep;
use crate::plan::types::{ClientInput, ClientTypeKind, ClientTypeRef, ClientTypes, ScalarKind};
use crate::plan::values::{CallArgumentTexts, ValueSpeller, ValueTemplate, quote_json};
use crate::plan::{OperationVariable, QueryPlan, shorten_text};
use crate::subgraph::ScalarInput;
use spelled_values::{MAX_ARGUMENT_BYTES, SpelledValues};

/// The coerced variables of a request.
#[derive(Debug, Default)]
pub(crate) struct CoercedVariables {
    /// An object of the variables that have a value.
    document: Option<JsonDocument>,
    /// All variables, by name.
    declarations: HashMap<Box<str>, DeclaredVariable>,
    spelled_values: SpelledValues,
}

/// A variable of the operation.
#[derive(Debug)]
struct DeclaredVariable {
    ty: ClientTypeRef,
    /// The location of its value in the document, if it has one. Conditions are evaluated for each object, so
    /// that the document is not searched for them.
    node_id: Option<NodeId>,
}

/// The work of coercing variables up to which it does not matter that they may be spelled for each service
/// (`spelled_values.rs`).
const SHORT_WORK: usize = 2 << 10;
/// The maximum nesting depth of lists and input objects in a value.
const MAX_DEPTH: usize = 200;
/// The maximum number of reported errors.
const MAX_ERRORS: usize = 20;

/// The error for a value that services could interpret in several ways.
const AMBIGUOUS_MESSAGE: &str = " must not contain duplicate names or unpaired surrogates";

/// A coercion error, and its path within the value.
struct CoercionError {
    path: String,
    message: String,
    /// The message without names that only the schema has.
    plain_message: &'static str,
}

impl CoercedVariables {
    /// Estimates the work of [`Self::coerce`], for [`offload::move_if_long`]. Long values are spelled for
    /// each service. Only the length is returned if it exceeds [`SHORT_TEXT`]: counting the values would take
    /// long, too.
    pub(crate) fn coercion_work(plan: &QueryPlan, given: &[u8]) -> usize {
        if plan.variables.is_empty() {
            return 0;
        }
        let defaults = plan.variables.iter().filter_map(|variable| variable.default.as_deref());
        let texts = std::iter::once(given).chain(defaults);
        let (mut bytes, mut values) = (0, 0);
        for text in texts {
            bytes += text.len();
            if bytes > SHORT_TEXT {
                return bytes;
            }
            // There are at most as many values as separators.
            values += text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        }
        let work = bytes + work::VALUE * values + values * plan.types.max_input_width / 2;
        let services = if work > SHORT_WORK { spelled_values::count_services(plan) } else { 0 };
        work * (1 + services)
    }

    /// Coerces the variables of a plan from a JSON object.
    pub(crate) fn coerce(plan: &QueryPlan, given: Bytes) -> Result<Self, Vec<GraphqlError>> {
        if plan.variables.is_empty() {
            return Ok(Self::default());
        }
        let unreadable = |error: json::JsonError| {
            vec![GraphqlError::new(
                GraphqlErrorKind::Variables,
                format!("`variables` can't be read: {error}"),
            )]
        };
        let json_document = JsonDocument::new(given).map_err(unreadable)?;
        let values = given_values(plan, json_document.root());
        let (mut out, mut errors) = (vec![b'{'], Vec::new());
        for (variable, value) in plan.variables.iter().zip(values) {
            let mark = out.len();
            if mark > 1 {
                out.push(b',');
            }
            out.extend_from_slice(&quote_json(&variable.name));
            out.push(b':');
            match variable_value(plan, variable, value, &mut out) {
                Ok(true) => {}
                Ok(false) => out.truncate(mark),
                Err(coercion_error) => {
                    out.truncate(mark);
                    errors.push(
                        coercion_error.to_graphql_error(&variable.name).with_location(variable.location),
                    );
                    if errors.len() == MAX_ERRORS {
                        break;
                    }
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        out.push(b'}');
        let declare = |variable: &OperationVariable| {
            (Box::from(&*variable.name), DeclaredVariable { ty: variable.ty.clone(), node_id: None })
        };
        let mut declared: HashMap<Box<str>, DeclaredVariable> = plan.variables.iter().map(declare).collect();
        let document = JsonDocument::new(out.into()).map_err(unreadable)?;
        for (key, value) in document.root().members() {
            if let Some(declared_variable) = declared.get_mut(&*key.node().scalar_text().unwrap_or_default())
            {
                declared_variable.node_id = Some(value.node_id());
            }
        }
        let mut variables = Self {
            document: Some(document),
            declarations: declared,
            spelled_values: SpelledValues::default(),
        };
        variables.spelled_values = SpelledValues::new(&variables, plan).map_err(|error| vec![*error])?;
        Ok(variables)
    }

    fn get(&self, name: &str) -> Option<JsonNode<'_>> {
        self.document.as_ref()?.node_by_id(self.declarations.get(name)?.node_id?)
    }

    /// The number of bytes of variable values in a step's calls; 0 if the values are short.
    pub(super) fn long_bytes(&self, step: &PlanStep) -> usize {
        if self.spelled_values.is_empty() { 0 } else { spelled_values::variable_bytes(self, step) }
    }

    /// Whether a variable is `true`.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|node| node.kind() == ValueKind::Bool(true))
    }

    /// Returns the value of a string variable.
    pub(super) fn string_value(&self, name: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.get(name)?.string()?).into_owned())
    }

    /// Returns those of the named variables that have a value, with enum values in the service's spelling.
    pub(super) fn spelled_variables(
        &self,
        names: &[Box<str>],
        speller: &ValueSpeller<'_>,
    ) -> Vec<(Box<str>, Bytes)> {
        let pair = |name: &str| {
            let (node, ty) = (self.get(name)?, &self.declarations.get(name)?.ty);
            if let Some(spelled) = self.spelled_values.get(name, speller.bindings) {
                return Some((name.into(), spelled.clone()));
            }
            let mut text = Vec::new();
            speller.respell(node, ty, &mut text);
            Some((name.into(), text.into()))
        };
        names.iter().filter_map(|name| pair(name)).collect()
    }

    /// Builds the object of arguments with enum values in the service's spelling; `None` if there are no
    /// arguments.
    pub(super) fn build_arguments(
        &self,
        arguments: &CallArgumentTexts,
        speller: &ValueSpeller<'_>,
    ) -> Option<Bytes> {
        let mut out = vec![b'{'];
        for (name, value) in &arguments.0 {
            self.write_member(name, value, speller, &mut out);
        }
        out.push(b'}');
        (out.len() > 2).then(|| out.into())
    }

    fn write_member(
        &self,
        name: &[u8],
        value: &ValueTemplate,
        speller: &ValueSpeller<'_>,
        out: &mut Vec<u8>,
    ) {
        let mark = out.len();
        if mark > 1 && out.last() != Some(&b'{') {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b':');
        if !self.write_value(value, speller, out) {
            out.truncate(mark);
        }
    }

    /// Writes a value. Returns whether there is one.
    fn write_value(&self, template: &ValueTemplate, speller: &ValueSpeller<'_>, out: &mut Vec<u8>) -> bool {
        match template {
            ValueTemplate::Text(text) => out.extend_from_slice(text),
            ValueTemplate::Variable { name, ty, fallback: otherwise } => match (self.get(name), otherwise) {
                (Some(node), _) => {
                    // A single value is accepted in place of a list (list coercion).
                    let is_single = matches!(ty.nullable(), ClientTypeRef::List(_))
                        && !matches!(node.kind(), ValueKind::Array | ValueKind::Null);
                    let ty = self.declarations.get(name).map_or(ty, |variable| &variable.ty);
                    if is_single {
                        out.push(b'[');
                    }
                    match self.spelled_values.get(name, speller.bindings) {
                        Some(spelled) => out.extend_from_slice(spelled),
                        None => speller.respell(node, ty, out),
                    }
                    if is_single {
                        out.push(b']');
                    }
                }
                (None, Some(default)) => out.extend_from_slice(default),
                (None, None) => return false,
            },
            ValueTemplate::List(items) => {
                out.push(b'[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    if !self.write_value(item, speller, out) {
                        out.extend_from_slice(b"null");
                    }
                }
                out.push(b']');
            }
            ValueTemplate::Object(members) => {
                out.push(b'{');
                for (name, value) in members {
                    self.write_member(name, value, speller, out);
                }
                out.push(b'}');
            }
        }
        true
    }
}

/// Returns the given values in the order of a plan's variables. Duplicate names have been rejected before
/// (`serve/graphql_request.rs`).
fn given_values<'g>(plan: &QueryPlan, node: JsonNode<'g>) -> Vec<Option<JsonNode<'g>>> {
    let numbers: HashMap<&[u8], usize> =
        plan.variables.iter().enumerate().map(|(number, known)| (known.name.as_bytes(), number)).collect();
    let mut values = vec![None; plan.variables.len()];
    for (key, value) in node.members() {
        let name = key.node().string().unwrap_or_default();
        if let Some(json_node) = numbers.get(&*name).and_then(|number| values.get_mut(*number)) {
            json_node.get_or_insert(value);
        }
    }
    values
}

/// Writes a variable's value. Returns whether there is one.
fn variable_value(
    plan: &QueryPlan,
    variable: &OperationVariable,
    json_node: Option<JsonNode<'_>>,
    out: &mut Vec<u8>,
) -> Result<bool, CoercionError> {
    match (json_node, &variable.default) {
        (Some(node), _) => coerce_value(&plan.types, node, &variable.ty, MAX_DEPTH, out).map(|()| true),
        (None, Some(default)) => {
            out.extend_from_slice(default);
            Ok(true)
        }
        (None, None) if matches!(variable.ty, ClientTypeRef::NonNull(_)) => {
            let ty = plan.types.format_type(&variable.ty);
            Err(CoercionError {
                plain_message: " is missing",
                ..CoercionError::new(format!(" of the type `{ty}` is missing"))
            })
        }
        (None, None) => Ok(false),
    }
}

/// Writes a value coerced to its type. `depth` is the remaining nesting depth.
fn coerce_value(
    types: &ClientTypes,
    node: JsonNode<'_>,
    ty: &ClientTypeRef,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), CoercionError> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(CoercionError::new(format!(" nests more than {MAX_DEPTH} values within each other")));
    };
    let wrong = || {
        CoercionError::new(format!(
            " is {}, and not of the type `{}`",
            describe_value(node),
            types.format_type(ty)
        ))
    };
    if node.kind() == ValueKind::Null {
        return match ty {
            ClientTypeRef::NonNull(_) => Err(wrong()),
            _ => {
                out.extend_from_slice(b"null");
                Ok(())
            }
        };
    }
    let id = match ty.nullable() {
        ClientTypeRef::List(inner) => return coerce_list(types, node, inner, depth, out),
        other => other.named_type(),
    };
    match types.kind_of(id) {
        ClientTypeKind::Scalar(scalar) => {
            // JSON and strings are sent to services as they are spelt.
            node.check_unambiguous().map_err(CoercionError::from_ambiguity)?;
            let text = match scalar {
                ScalarKind::Int => {
                    let number = integer_value(node)
                        .and_then(|number| i32::try_from(number).ok())
                        .ok_or_else(wrong)?;
                    return write_text(out, &number.to_string());
                }
                ScalarKind::Id if node.kind() == ValueKind::Number => {
                    let number = integer_value(node).ok_or_else(wrong)?;
                    return write_text(out, &format!("\"{number}\""));
                }
                ScalarKind::Float => (node.kind() == ValueKind::Number).then_some(node.text()),
                ScalarKind::String | ScalarKind::Id => {
                    (node.kind() == ValueKind::String).then_some(node.text())
                }
                ScalarKind::Boolean => matches!(node.kind(), ValueKind::Bool(_)).then_some(node.text()),
                ScalarKind::Custom => match types.scalar_input(id) {
                    None => Some(node.text()),
                    Some(ScalarInput::Text) => (node.kind() == ValueKind::String).then_some(node.text()),
                    Some(ScalarInput::Integer) => match node.number() {
                        Some(JsonNumber::Unsigned(_) | JsonNumber::Negative(_)) => Some(node.text()),
                        _ => {
                            let number = integer_value(node).ok_or_else(wrong)?;
                            return write_text(out, &number.to_string());
                        }
                    },
                },
            };
            out.extend_from_slice(text.ok_or_else(wrong)?);
            Ok(())
        }
        ClientTypeKind::Enum(values) => {
            let name = node.string().ok_or_else(wrong)?;
            let is_known = values.iter().any(|value| value.as_bytes() == &*name);
            let named = || {
                let known = values.iter().take(10).map(|value| format!("`{value}`")).collect::<Vec<_>>();
                CoercionError::new(format!(
                    " is {}; `{}` has {}",
                    describe_value(node),
                    types.name(id),
                    known.join(", ")
                ))
            };
            is_known.then(|| out.extend_from_slice(node.text())).ok_or_else(named)
        }
        ClientTypeKind::Input { fields, is_one_of } => {
            coerce_object(types, node, types.name(id), (fields, *is_one_of), depth, out)
        }
        ClientTypeKind::Hidden | ClientTypeKind::Object(_) | ClientTypeKind::Abstract(..) => Err(wrong()),
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) -> Result<(), CoercionError> {
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Coerces a list, or a single value in place of a list.
fn coerce_list(
    types: &ClientTypes,
    node: JsonNode<'_>,
    inner: &ClientTypeRef,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), CoercionError> {
    out.push(b'[');
    if node.kind() == ValueKind::Array {
        for (place, item) in node.items().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            coerce_value(types, item, inner, depth, out)
                .map_err(|error| error.with_path_step(&format!("[{place}]")))?;
        }
    } else {
        coerce_value(types, node, inner, depth, out)?;
    }
    out.push(b']');
    Ok(())
}

fn coerce_object(
    types: &ClientTypes,
    node: JsonNode<'_>,
    name: &str,
    (fields, is_one_of): (&[ClientInput], bool),
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), CoercionError> {
    if node.kind() != ValueKind::Object {
        return Err(CoercionError::new(format!(
            " is {}, and not an object of the type `{name}`",
            describe_value(node)
        )));
    }
    let mut values: Vec<Option<JsonNode<'_>>> = vec![None; fields.len()];
    for (key, value) in node.members() {
        let Some(place) = fields.iter().position(|field| key.equals(field.name.as_bytes())) else {
            let key = shorten_text(&String::from_utf8_lossy(&key.node().string().unwrap_or_default()));
            return Err(CoercionError::new(format!(" has a field `{key}`, which `{name}` does not have")));
        };
        // Parsers disagree on whether the first or the last of equal names counts.
        if values[place].replace(value).is_some() {
            let field = &fields[place].name;
            return Err(CoercionError::new(format!(" has a field `{field}` of `{name}` more than once")));
        }
    }
    if is_one_of {
        let mut members = node.members();
        let is_one = members.next().is_some_and(|(_, value)| value.kind() != ValueKind::Null)
            && members.next().is_none();
        if !is_one {
            return Err(CoercionError::new(format!(" needs exactly one field of `{name}` that is not null")));
        }
    }
    let speller = ValueSpeller { types, bindings: None };
    out.push(b'{');
    let mut is_first = true;
    for (field, json_node) in fields.iter().zip(values) {
        if json_node.is_none() && field.default.is_none() {
            if matches!(field.ty, ClientTypeRef::NonNull(_)) {
                return Err(CoercionError::new(format!(" lacks the field `{}` of `{name}`", field.name)));
            }
            continue;
        }
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        out.extend_from_slice(&quote_json(&field.name));
        out.push(b':');
        match (json_node, &field.default) {
            (Some(value), _) => {
                let within = |error: CoercionError| error.with_path_step(&format!(".{}", field.name));
                coerce_value(types, value, &field.ty, depth, out).map_err(within)?;
            }
            (None, Some(default)) => {
                out.extend_from_slice(&speller.literal_json(default, &field.ty));
                // Each `{},` of a list grows by the length of the type's defaults.
                if out.len() > MAX_ARGUMENT_BYTES {
                    let message =
                        format!(" has more than {MAX_ARGUMENT_BYTES} bytes with the defaults of `{name}`");
                    return Err(CoercionError::new(message));
                }
            }
            (None, None) => {}
        }
    }
    out.push(b'}');
    Ok(())
}

/// Returns the value of a number without a fraction.
fn integer_value(node: JsonNode<'_>) -> Option<i64> {
    match node.number()? {
        JsonNumber::Unsigned(number) => i64::try_from(number).ok(),
        JsonNumber::Negative(number) => Some(number),
        JsonNumber::Real(number) if number.fract() == 0.0 && number.abs() < 9e15 => Some(number as i64),
        JsonNumber::Real(_) | JsonNumber::Big => None,
    }
}

/// Returns a short form of a value for error messages.
fn describe_value(node: JsonNode<'_>) -> String {
    match node.kind() {
        kind @ (ValueKind::Array | ValueKind::Object) => kind.name().to_owned(),
        _ => String::from_utf8_lossy(node.text()).chars().take(40).collect(),
    }
}

impl CoercionError {
    fn new(message: String) -> Self {
        Self { path: String::new(), message, plain_message: " is not a value of its type" }
    }

    fn from_ambiguity(value: AmbiguousValue) -> Self {
        Self {
            path: value.path(),
            message: format!(" must {}", value.requirement()),
            plain_message: AMBIGUOUS_MESSAGE,
        }
    }

    /// Converts to the error of a variable.
    fn to_graphql_error(&self, variable: &str) -> GraphqlError {
        let place = match self.path.trim_start_matches('.') {
            "" => String::new(),
            path => format!(": `{}`", shorten_text(path)),
        };
        let told = |message: &str| format!("the variable `${variable}`{place}{message}");
        GraphqlError::new(GraphqlErrorKind::Variables, told(&self.message))
            .with_plain_message(told(self.plain_message))
    }

    fn with_path_step(mut self, step: &str) -> Self {
        self.path.insert_str(0, step);
        self
    }
}
