//! Joining by key: which items of an array have the same key as a value elsewhere.
//!
//! Keys are compared as values of JSON, and exactly: 7 is 7.0 and 70e-1, but never `"7"`; numbers beyond 2^53
//! stay different; `"\u0061"` is `"a"`. `null`, arrays and objects are no keys.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::BitOr;

use crate::{Kind, Node, Number};

/// A value by which items are found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scalar<'a>(Repr<'a>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Repr<'a> {
    Whole(u64),
    /// Any other number: its sign, its digits without zeros at the ends, the power of ten that they are of.
    Decimal(bool, Box<[u8]>, i64),
    /// A number whose power of ten is beyond all reason, as it is spelt.
    Spelt(&'a [u8]),
    Text(Cow<'a, [u8]>),
    /// A string with an unpaired surrogate, as it is spelt.
    Unpaired(&'a [u8]),
    Bool(bool),
}

/// Which kinds of keys there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl<'a> Scalar<'a> {
    /// A value as a key; `None` where it can't be one.
    #[must_use]
    pub fn of(node: Node<'a>) -> Option<Self> {
        Some(Self(match node.kind() {
            Kind::Number => number(node),
            Kind::String if node.is_unpaired() => Repr::Unpaired(node.text()),
            Kind::String => Repr::Text(node.string()?),
            Kind::Bool(value) => Repr::Bool(value),
            Kind::Null | Kind::Array | Kind::Object => return None,
        }))
    }

    /// The same, of a number or boolean its spelling: then 7 is `"7"`, and 7.0 is not.
    #[must_use]
    pub fn text(node: Node<'a>) -> Option<Self> {
        match node.kind() {
            Kind::Number | Kind::Bool(_) => Some(Self(Repr::Text(Cow::Borrowed(node.text())))),
            _ => Self::of(node),
        }
    }

    /// What kind it is of.
    #[must_use]
    pub fn kind(&self) -> Kinds {
        Kinds(match self.0 {
            Repr::Whole(_) | Repr::Decimal(..) | Repr::Spelt(_) => 1,
            Repr::Text(_) | Repr::Unpaired(_) => 2,
            Repr::Bool(_) => 4,
        })
    }
}

fn number(node: Node<'_>) -> Repr<'_> {
    if let Some(Number::Unsigned(number)) = node.number() {
        return Repr::Whole(number);
    }
    decimal(node.text()).unwrap_or(Repr::Spelt(node.text()))
}

/// A number in its only form; none where its power of ten is too large to be counted.
fn decimal(text: &[u8]) -> Option<Repr<'static>> {
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
        return Some(Repr::Whole(0));
    }
    let digits = &digits[first..digits.len() - zeros];
    let power = power.checked_sub(i64::try_from(behind).ok()?)?.checked_add(i64::try_from(zeros).ok()?)?;
    let whole = || {
        let ten = 10_u64.checked_pow(u32::try_from(power).ok()?)?;
        std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?.checked_mul(ten)
    };
    match whole().filter(|_| !is_negative) {
        Some(whole) => Some(Repr::Whole(whole)),
        None => Some(Repr::Decimal(is_negative, digits.into(), power)),
    }
}

impl Kinds {
    /// Whether both have kinds, and none in common: nothing can be equal.
    #[must_use]
    pub fn are_apart(self, other: Self) -> bool {
        self.0 != 0 && other.0 != 0 && self.0 & other.0 == 0
    }

    /// What they are called.
    #[must_use]
    pub fn names(self) -> String {
        let names = [(1, "numbers"), (2, "strings"), (4, "booleans")];
        let names: Vec<_> =
            names.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, name)| *name).collect();
        names.join(" and ")
    }
}

impl BitOr for Kinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Items by key, in their order.
#[derive(Debug, Default)]
pub struct Grouped<'a> {
    groups: HashMap<Scalar<'a>, usize>,
    /// Of each group its first and its last item.
    ends: Vec<(usize, usize)>,
    /// Of each item the next one in its group.
    next: Vec<Option<usize>>,
    kinds: Kinds,
}

impl<'a> Grouped<'a> {
    /// Nothing yet, with room for so many items.
    #[must_use]
    pub fn with_capacity(items: usize) -> Self {
        Self {
            groups: HashMap::with_capacity(items),
            next: Vec::with_capacity(items),
            ends: Vec::with_capacity(items),
            kinds: Kinds::default(),
        }
    }

    /// Adds the next item, by its key; one without is in no group. Returns whether an item before had the key.
    pub fn add(&mut self, key: Option<Scalar<'a>>) -> bool {
        let item = self.next.len();
        self.next.push(None);
        let Some(key) = key else { return false };
        self.kinds = self.kinds | key.kind();
        let group = *self.groups.entry(key).or_insert(self.ends.len());
        match self.ends.get_mut(group) {
            None => {
                self.ends.push((item, item));
                false
            }
            Some((_, last)) => {
                if let Some(next) = self.next.get_mut(std::mem::replace(last, item)) {
                    *next = Some(item);
                }
                true
            }
        }
    }

    /// The number of the group that has this key.
    #[must_use]
    pub fn find(&self, key: &Scalar<'_>) -> Option<usize> {
        self.groups.get(key).copied()
    }

    /// How many groups there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The numbers of a group's items.
    pub fn items(&self, group: usize) -> impl Iterator<Item = usize> {
        let first = self.ends.get(group).map(|(first, _)| *first);
        std::iter::successors(first, |item| self.next.get(*item).copied().flatten())
    }

    /// Which kinds of keys there are.
    #[must_use]
    pub fn kinds(&self) -> Kinds {
        self.kinds
    }
}

#[cfg(test)]
mod tests;
