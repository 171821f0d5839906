//! A value of a slot: a place in a document, and the values that are reached from there.

use json::{Kind, Node};

use super::run::Run;
use crate::Place;
use crate::plan::data::Lookup;

/// A value of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Val<'r> {
    #[default]
    Absent,
    /// A value, and which error came with it.
    At(u32, Node<'r>, Option<u32>),
    Many(&'r [Place]),
    Failed(u32),
}

impl<'r> Val<'r> {
    /// Where it is, in one number.
    pub(super) fn place(self) -> Option<u64> {
        match self {
            Self::At(document, node, _) => Some(u64::from(document) << 32 | node.start() as u64),
            _ => None,
        }
    }

    /// The same, with another number for what is no place.
    pub(super) fn place_or_none(self) -> u64 {
        self.place().unwrap_or(u64::MAX)
    }

    pub(super) fn node(self) -> Option<Node<'r>> {
        match self {
            Self::At(_, node, _) => Some(node),
            _ => None,
        }
    }

    /// Itself; nothing if it is `null`.
    pub(super) fn or_absent(self) -> Self {
        match self {
            Self::At(_, node, None) if node.kind() == Kind::Null => Self::Absent,
            other => other,
        }
    }

    /// Itself, without what is wrong with it: the object that it is a field of tells that.
    pub(super) fn alone(self) -> Self {
        match self {
            Self::At(document, node, _) => Self::At(document, node, None).or_absent(),
            other => other,
        }
    }

    pub(super) fn is_list(self) -> bool {
        match self {
            Self::Many(_) => true,
            Self::At(_, node, _) => node.kind() == Kind::Array,
            _ => false,
        }
    }
}

/// A field's value in a slot.
pub(super) fn read<'r>(lookup: &Lookup, value: Val<'r>) -> Val<'r> {
    match (lookup, value) {
        (Lookup::Itself, value) => value.alone(),
        (Lookup::Member(name), Val::At(document, node, _)) => {
            let member = node.member(name.as_bytes()).filter(|member| member.kind() != Kind::Null);
            member.map_or(Val::Absent, |member| Val::At(document, member, None))
        }
        (Lookup::Member(_), Val::Failed(error)) => Val::Failed(error),
        (Lookup::Member(_), Val::Absent | Val::Many(_)) => Val::Absent,
    }
}

/// The lists of a position's slots, item by item.
pub(super) struct Split<'r> {
    run: &'r Run<'r>,
    lists: Vec<List<'r>>,
}

enum List<'r> {
    /// No list: the same for every item if it failed.
    None(Val<'r>),
    Items(u32, json::Items<'r>),
    Places(std::slice::Iter<'r, Place>),
}

impl<'r> Split<'r> {
    /// None if there is no list among the values.
    pub(super) fn of(run: &'r Run<'r>, values: &[Val<'r>]) -> Option<Self> {
        if !values.iter().any(|value| value.is_list()) {
            return None;
        }
        let list = |value: &Val<'r>| match *value {
            Val::At(document, node, _) if node.kind() == Kind::Array => List::Items(document, node.items()),
            Val::Many(places) => List::Places(places.iter()),
            Val::Failed(error) => List::None(Val::Failed(error)),
            _ => List::None(Val::Absent),
        };
        Some(Self { run, lists: values.iter().map(list).collect() })
    }

    /// Sets the values to those of the next item; says whether there is one.
    pub(super) fn next(&mut self, values: &mut [Val<'r>]) -> bool {
        let mut is_any = false;
        for (list, value) in self.lists.iter_mut().zip(values) {
            let item = match list {
                List::None(value) => {
                    let value = *value;
                    Some(value).filter(|value| matches!(value, Val::Failed(_)))
                }
                List::Items(document, items) => {
                    let item = items.next().map(|node| Val::At(*document, node, None).or_absent());
                    is_any |= item.is_some();
                    item
                }
                List::Places(places) => {
                    let item = places.next().map(|place| self.run.item(*place).or_absent());
                    is_any |= item.is_some();
                    item
                }
            };
            *value = item.unwrap_or_default();
        }
        is_any
    }
}
