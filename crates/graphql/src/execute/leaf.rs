//! Scalars and enums of answers: copied if they are what the schema says (6.4.3).

use std::collections::HashMap;

use json::{Kind as Json, Node, Number, Passed};

use crate::plan::types::{Kind, Scalar, TypeId, Types};

/// What comes of a value that is no object.
pub(super) enum Leaf {
    Written,
    /// It is one that clients don't see.
    Null,
    /// It is none of its type.
    Wrong,
}

/// Writes a value of a scalar or enum.
pub(super) fn write(
    types: &Types,
    id: TypeId,
    node: Node<'_>,
    spelling: Option<&HashMap<Box<str>, Box<str>>>,
    out: &mut Vec<u8>,
) -> Leaf {
    let kind = node.kind();
    let fits = match types.kind_of(id) {
        Kind::Scalar(Scalar::Int) => return int(node, out),
        Kind::Scalar(Scalar::Float) => kind == Json::Number,
        Kind::Scalar(Scalar::String) => kind == Json::String,
        Kind::Scalar(Scalar::Boolean) => matches!(kind, Json::Bool(_)),
        Kind::Scalar(Scalar::Id) => {
            if matches!(node.number(), Some(Number::Unsigned(_) | Number::Negative(_) | Number::Big)) {
                out.push(b'"');
                out.extend_from_slice(node.text());
                out.push(b'"');
                return Leaf::Written;
            }
            kind == Json::String
        }
        Kind::Scalar(Scalar::Custom) => true,
        Kind::Enum(values) => return value(types, id, values, node, spelling, out),
        Kind::Hidden => return Leaf::Null,
        Kind::Object(_) | Kind::Abstract(..) | Kind::Input { .. } => false,
    };
    if fits {
        out.extend_from_slice(node.text());
    }
    if fits { Leaf::Written } else { Leaf::Wrong }
}

/// Whether a value that is not null is of a scalar, and spelt as the answer spells it, at one glance. Only an `Int` may be it
/// all the same ([`is_int`]).
#[inline(always)]
pub(super) fn is_plainly_as_it_stands(scalar: Scalar, value: &Passed<'_>) -> bool {
    match scalar {
        Scalar::String | Scalar::Id => value.first() == b'"',
        Scalar::Int => value.is_short(),
        Scalar::Float => matches!(value.first(), b'-' | b'0'..=b'9'),
        Scalar::Boolean => matches!(value.first(), b't' | b'f'),
        Scalar::Custom => value.first() != b'n',
    }
}

/// Whether a value is an `Int` from 0 on, of however many digits.
pub(super) fn is_int(node: Node<'_>) -> bool {
    matches!(node.number(), Some(Number::Unsigned(number)) if i32::try_from(number).is_ok())
}

fn int(node: Node<'_>, out: &mut Vec<u8>) -> Leaf {
    let number = match node.number() {
        Some(Number::Unsigned(number)) => i32::try_from(number).ok(),
        Some(Number::Negative(number)) => i32::try_from(number).ok(),
        Some(Number::Real(number)) if number.fract() == 0.0 && number.abs() <= f64::from(i32::MAX) => {
            out.extend_from_slice((number as i32).to_string().as_bytes());
            return Leaf::Written;
        }
        _ => None,
    };
    match number {
        Some(_) => {
            out.extend_from_slice(node.text());
            Leaf::Written
        }
        None => Leaf::Wrong,
    }
}

fn value(
    types: &Types,
    id: TypeId,
    values: &[Box<str>],
    node: Node<'_>,
    spelling: Option<&HashMap<Box<str>, Box<str>>>,
    out: &mut Vec<u8>,
) -> Leaf {
    let said = match node.kind() {
        Json::String => node.string().unwrap_or_default(),
        // An enum of numbers, which REST services have.
        Json::Number if spelling.is_some() => node.text().into(),
        _ => return Leaf::Wrong,
    };
    let Ok(said) = std::str::from_utf8(&said) else { return Leaf::Wrong };
    let name = spelling.and_then(|spelling| spelling.get(said)).map_or(said, |name| name);
    if !values.iter().any(|value| **value == *name) {
        return if types.is_hidden_value(id, name) { Leaf::Null } else { Leaf::Wrong };
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
    Leaf::Written
}
