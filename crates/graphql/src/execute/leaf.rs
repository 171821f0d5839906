//! Result coercion of scalars and enums: a value that conforms to the schema is copied (6.4.3).

use std::collections::HashMap;

use json::{JsonNode, JsonNumber, PassedValue, ValueKind};

use crate::plan::types::{ClientTypeKind, ClientTypes, ScalarKind, TypeId};

/// The outcome of writing a leaf value.
pub(super) enum LeafOutcome {
    Written,
    /// The value is hidden from clients.
    Null,
    /// The value does not conform to its type.
    Invalid,
}

/// Writes a scalar or enum value.
pub(super) fn write_leaf(
    types: &ClientTypes,
    id: TypeId,
    node: JsonNode<'_>,
    spelling: Option<&HashMap<Box<str>, Box<str>>>,
    out: &mut Vec<u8>,
) -> LeafOutcome {
    let kind = node.kind();
    let fits = match types.kind_of(id) {
        ClientTypeKind::Scalar(ScalarKind::Int) => return write_int(node, out),
        ClientTypeKind::Scalar(ScalarKind::Float) => kind == ValueKind::Number,
        ClientTypeKind::Scalar(ScalarKind::String) => kind == ValueKind::String,
        ClientTypeKind::Scalar(ScalarKind::Boolean) => matches!(kind, ValueKind::Bool(_)),
        ClientTypeKind::Scalar(ScalarKind::Id) => {
            if matches!(
                node.number(),
                Some(JsonNumber::Unsigned(_) | JsonNumber::Negative(_) | JsonNumber::Big)
            ) {
                out.push(b'"');
                out.extend_from_slice(node.text());
                out.push(b'"');
                return LeafOutcome::Written;
            }
            kind == ValueKind::String
        }
        ClientTypeKind::Scalar(ScalarKind::Custom) => true,
        ClientTypeKind::Enum(values) => return write_enum(types, id, values, node, spelling, out),
        ClientTypeKind::Hidden => return LeafOutcome::Null,
        ClientTypeKind::Object(_) | ClientTypeKind::Abstract(..) | ClientTypeKind::Input { .. } => false,
    };
    if fits {
        out.extend_from_slice(node.text());
    }
    if fits { LeafOutcome::Written } else { LeafOutcome::Invalid }
}

/// Whether a non-null value can be copied as it is, judged by its first bytes. An `Int` that fails this test
/// may still be valid ([`is_int`]).
#[inline(always)]
pub(super) fn can_copy_verbatim(scalar: ScalarKind, value: &PassedValue<'_>) -> bool {
    match scalar {
        ScalarKind::String | ScalarKind::Id => value.first_byte() == b'"',
        ScalarKind::Int => value.is_short_integer(),
        ScalarKind::Float => matches!(value.first_byte(), b'-' | b'0'..=b'9'),
        ScalarKind::Boolean => matches!(value.first_byte(), b't' | b'f'),
        ScalarKind::Custom => value.first_byte() != b'n',
    }
}

/// Whether a value is a non-negative `Int`, however many digits it has.
pub(super) fn is_int(node: JsonNode<'_>) -> bool {
    matches!(node.number(), Some(JsonNumber::Unsigned(number)) if i32::try_from(number).is_ok())
}

fn write_int(node: JsonNode<'_>, out: &mut Vec<u8>) -> LeafOutcome {
    let number = match node.number() {
        Some(JsonNumber::Unsigned(number)) => i32::try_from(number).ok(),
        Some(JsonNumber::Negative(number)) => i32::try_from(number).ok(),
        Some(JsonNumber::Real(number)) if number.fract() == 0.0 && number.abs() <= f64::from(i32::MAX) => {
            out.extend_from_slice((number as i32).to_string().as_bytes());
            return LeafOutcome::Written;
        }
        _ => None,
    };
    match number {
        Some(_) => {
            out.extend_from_slice(node.text());
            LeafOutcome::Written
        }
        None => LeafOutcome::Invalid,
    }
}

fn write_enum(
    types: &ClientTypes,
    id: TypeId,
    values: &[Box<str>],
    node: JsonNode<'_>,
    spelling: Option<&HashMap<Box<str>, Box<str>>>,
    out: &mut Vec<u8>,
) -> LeafOutcome {
    let said = match node.kind() {
        ValueKind::String => node.string().unwrap_or_default(),
        // Enums of numbers occur in REST services.
        ValueKind::Number if spelling.is_some() => node.text().into(),
        _ => return LeafOutcome::Invalid,
    };
    let Ok(said) = std::str::from_utf8(&said) else { return LeafOutcome::Invalid };
    let name = spelling.and_then(|spelling| spelling.get(said)).map_or(said, |name| name);
    if !values.iter().any(|value| **value == *name) {
        return if types.is_hidden_value(id, name) { LeafOutcome::Null } else { LeafOutcome::Invalid };
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
    LeafOutcome::Written
}
