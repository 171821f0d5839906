//! Joining by key: finding the items of an array that have the same key as a value elsewhere.
//!
//! Keys are compared exactly, as JSON values: 7 equals 7.0 and 70e-1, but not `"7"`; different numbers beyond
//! 2^53 remain different; `"\u0061"` equals `"a"`. `null`, arrays and objects are not keys.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::BitOr;

use crate::document::{JsonNode, JsonNumber, ValueKind};

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JoinKey<'a>(JoinKeyRepr<'a>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum JoinKeyRepr<'a> {
    Unsigned(u64),
    /// Any other number: its sign, its digits without leading and trailing zeros, and their power of ten.
    Decimal(bool, Box<[u8]>, i64),
    /// A number whose exponent is too large, as its text.
    UnparsedNumber(&'a [u8]),
    Text(Cow<'a, [u8]>),
    /// A string with an unpaired surrogate, as its text.
    Unpaired(&'a [u8]),
    Bool(bool),
}

/// A set of kinds of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinKeyKinds(u8);

impl<'a> JoinKey<'a> {
    /// Returns a value as a key, or `None` if it can't be one.
    #[must_use]
    pub fn from_node(node: JsonNode<'a>) -> Option<Self> {
        Some(Self(match node.kind() {
            ValueKind::Number => normalize_number(node),
            ValueKind::String if node.has_unpaired_surrogate() => JoinKeyRepr::Unpaired(node.text()),
            ValueKind::String => JoinKeyRepr::Text(node.string()?),
            ValueKind::Bool(value) => JoinKeyRepr::Bool(value),
            ValueKind::Null | ValueKind::Array | ValueKind::Object => return None,
        }))
    }

    /// Like [`JoinKey::from_node`], but a number or boolean is represented by its text: 7 equals `"7"`, but
    /// 7.0 does not.
    #[must_use]
    pub fn from_node_text(node: JsonNode<'a>) -> Option<Self> {
        match node.kind() {
            ValueKind::Number | ValueKind::Bool(_) => {
                Some(Self(JoinKeyRepr::Text(Cow::Borrowed(node.text()))))
            }
            _ => Self::from_node(node),
        }
    }

    /// Returns the kind of the key.
    #[must_use]
    pub fn kind(&self) -> JoinKeyKinds {
        JoinKeyKinds(match self.0 {
            JoinKeyRepr::Unsigned(_) | JoinKeyRepr::Decimal(..) | JoinKeyRepr::UnparsedNumber(_) => 1,
            JoinKeyRepr::Text(_) | JoinKeyRepr::Unpaired(_) => 2,
            JoinKeyRepr::Bool(_) => 4,
        })
    }
}

fn normalize_number(node: JsonNode<'_>) -> JoinKeyRepr<'_> {
    if let Some(JsonNumber::Unsigned(number)) = node.number() {
        return JoinKeyRepr::Unsigned(number);
    }
    normalize_decimal(node.text()).unwrap_or(JoinKeyRepr::UnparsedNumber(node.text()))
}

/// Normalizes a number; `None` if its exponent is too large.
fn normalize_decimal(text: &[u8]) -> Option<JoinKeyRepr<'static>> {
    let (is_negative, text) = text.strip_prefix(b"-").map_or((false, text), |text| (true, text));
    let e = text.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(text.len());
    let (mantissa, power) = text.split_at(e);
    let power: i64 = match power {
        [] => 0,
        [_, digits @ ..] => std::str::from_utf8(digits).ok()?.parse().ok()?,
    };
    let behind = mantissa.iter().position(|byte| *byte == b'.').map_or(0, |dot| mantissa.len() - dot - 1);
    let digits: Vec<u8> = mantissa.iter().copied().filter(|byte| *byte != b'.').collect();
    let first = digits.iter().take_while(|byte| **byte == b'0').count();
    let zeros = digits.iter().rev().take_while(|byte| **byte == b'0').count();
    if first == digits.len() {
        return Some(JoinKeyRepr::Unsigned(0));
    }
    let digits = &digits[first..digits.len() - zeros];
    let power = power.checked_sub(i64::try_from(behind).ok()?)?.checked_add(i64::try_from(zeros).ok()?)?;
    let whole = || {
        let ten = 10_u64.checked_pow(u32::try_from(power).ok()?)?;
        std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?.checked_mul(ten)
    };
    match whole().filter(|_| !is_negative) {
        Some(whole) => Some(JoinKeyRepr::Unsigned(whole)),
        None => Some(JoinKeyRepr::Decimal(is_negative, digits.into(), power)),
    }
}

impl JoinKeyKinds {
    /// Whether both sets are nonempty and disjoint, so that no keys are equal.
    #[must_use]
    pub fn are_disjoint(self, other: Self) -> bool {
        self.0 != 0 && other.0 != 0 && self.0 & other.0 == 0
    }

    /// Returns the names of the kinds, for messages.
    #[must_use]
    pub fn kind_names(self) -> String {
        let names = [(1, "numbers"), (2, "strings"), (4, "booleans")];
        let names: Vec<_> =
            names.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, name)| *name).collect();
        names.join(" and ")
    }
}

impl BitOr for JoinKeyKinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Items grouped by key, in their order.
#[derive(Debug, Default)]
pub struct GroupedItems<'a> {
    groups: HashMap<JoinKey<'a>, usize>,
    /// The first and last item of each group.
    group_ends: Vec<(usize, usize)>,
    /// The next item of the same group, for each item.
    next_items: Vec<Option<usize>>,
    kinds: JoinKeyKinds,
}

impl<'a> GroupedItems<'a> {
    /// Creates an empty collection with capacity for a number of items.
    #[must_use]
    pub fn with_capacity(items: usize) -> Self {
        Self {
            groups: HashMap::with_capacity(items),
            next_items: Vec::with_capacity(items),
            group_ends: Vec::with_capacity(items),
            kinds: JoinKeyKinds::default(),
        }
    }

    /// Adds the next item with its key. An item without a key is in no group. Returns whether a previous item
    /// has the same key.
    pub fn add(&mut self, key: Option<JoinKey<'a>>) -> bool {
        let item = self.next_items.len();
        self.next_items.push(None);
        let Some(key) = key else { return false };
        self.kinds = self.kinds | key.kind();
        let group = *self.groups.entry(key).or_insert(self.group_ends.len());
        match self.group_ends.get_mut(group) {
            None => {
                self.group_ends.push((item, item));
                false
            }
            Some((_, last)) => {
                if let Some(next) = self.next_items.get_mut(std::mem::replace(last, item)) {
                    *next = Some(item);
                }
                true
            }
        }
    }

    /// Returns the number of the group with this key.
    #[must_use]
    pub fn find_group(&self, key: &JoinKey<'_>) -> Option<usize> {
        self.groups.get(key).copied()
    }

    /// The number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.group_ends.len()
    }

    /// Whether there are no groups.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.group_ends.is_empty()
    }

    /// Returns the indices of a group's items.
    pub fn items(&self, group: usize) -> impl Iterator<Item = usize> {
        let first = self.group_ends.get(group).map(|(first, _)| *first);
        std::iter::successors(first, |item| self.next_items.get(*item).copied().flatten())
    }

    /// The kinds of keys in all groups.
    #[must_use]
    pub fn kinds(&self) -> JoinKeyKinds {
        self.kinds
    }
}

#[cfg(test)]
mod tests;
