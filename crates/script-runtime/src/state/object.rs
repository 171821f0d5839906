//! An object: named members in insertion order, as in JavaScript.
//!
//! Setting or removing a member takes constant time even for 100,000 members. Large objects therefore use a
//! hash table, and each member has a sequence number: sorting by it yields the order, and a restored member
//! returns to its former position.

use std::collections::HashMap;

use super::tree::StateValue;

/// The maximum number of members in list form: for fewer, a table would take more memory than it saves time.
const MAX_LIST_MEMBERS: usize = 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct StateObject {
    /// The next sequence number.
    next_sequence: u64,
    members: StateObjectMembers,
}

#[derive(Clone, Debug)]
enum StateObjectMembers {
    /// Sorted by sequence number.
    List(Vec<(u64, Box<[u8]>, StateValue)>),
    Map(HashMap<Box<[u8]>, (u64, StateValue)>),
}

impl Default for StateObjectMembers {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl StateObject {
    pub(crate) fn get_mut(&mut self, name: &[u8]) -> Option<&mut StateValue> {
        match &mut self.members {
            StateObjectMembers::List(few) => {
                few.iter_mut().find(|(_, known, _)| **known == *name).map(|(_, _, node)| node)
            }
            StateObjectMembers::Map(many) => many.get_mut(name).map(|(_, node)| node),
        }
    }

    /// Sets a member in place, or appends it. Returns its previous value with its sequence number.
    pub(crate) fn set(&mut self, name: &[u8], node: StateValue) -> Option<(u64, StateValue)> {
        let number = match &self.members {
            StateObjectMembers::List(few) => {
                few.iter().find(|(_, known, _)| **known == *name).map(|(number, _, _)| *number)
            }
            StateObjectMembers::Map(many) => many.get(name).map(|(number, _)| *number),
        };
        let Some(number) = number else {
            let number = self.next_sequence;
            self.next_sequence += 1;
            self.insert(name, number, node);
            return None;
        };
        let was = std::mem::replace(self.get_mut(name)?, node);
        Some((number, was))
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<(u64, StateValue)> {
        match &mut self.members {
            StateObjectMembers::List(few) => {
                let place = few.iter().position(|(_, known, _)| **known == *name)?;
                let (number, _, node) = few.remove(place);
                Some((number, node))
            }
            StateObjectMembers::Map(many) => many.remove(name),
        }
    }

    /// Restores a member with its value and position, or removes it if it did not exist.
    pub(crate) fn restore(&mut self, name: &[u8], was: Option<(u64, StateValue)>) {
        self.remove(name);
        if let Some((number, node)) = was {
            self.insert(name, number, node);
        }
    }

    fn insert(&mut self, name: &[u8], number: u64, node: StateValue) {
        match &mut self.members {
            StateObjectMembers::List(few) if few.len() < MAX_LIST_MEMBERS => {
                let place = few.partition_point(|(known, _, _)| *known < number);
                few.insert(place, (number, name.into(), node));
            }
            StateObjectMembers::List(few) => {
                let few = std::mem::take(few).into_iter();
                let mut many: HashMap<_, _> =
                    few.map(|(number, name, node)| (name, (number, node))).collect();
                many.insert(name.into(), (number, node));
                self.members = StateObjectMembers::Map(many);
            }
            StateObjectMembers::Map(many) => {
                many.insert(name.into(), (number, node));
            }
        }
    }

    /// The number of members.
    pub(crate) fn len(&self) -> usize {
        match &self.members {
            StateObjectMembers::List(few) => few.len(),
            StateObjectMembers::Map(many) => many.len(),
        }
    }

    /// The number of members that fit before all of them move.
    pub(crate) fn capacity(&self) -> usize {
        match &self.members {
            // Lists are short.
            StateObjectMembers::List(_) => usize::MAX,
            StateObjectMembers::Map(many) => many.capacity(),
        }
    }

    /// Returns the values, in any order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &StateValue> {
        let (few, many) = match &self.members {
            StateObjectMembers::List(few) => (Some(few), None),
            StateObjectMembers::Map(many) => (None, Some(many)),
        };
        let few = few.into_iter().flatten().map(|(_, _, node)| node);
        few.chain(many.into_iter().flat_map(HashMap::values).map(|(_, node)| node))
    }

    /// The size of the names and values as JSON text in bytes, without separators.
    pub(crate) fn text_size(&self) -> usize {
        match &self.members {
            StateObjectMembers::List(few) => {
                few.iter().map(|(_, name, node)| name.len() + node.text_size()).sum()
            }
            StateObjectMembers::Map(many) => {
                many.iter().map(|(name, (_, node))| name.len() + node.text_size()).sum()
            }
        }
    }

    /// Returns the members in order.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&[u8], &StateValue)> {
        let mut members: Vec<(u64, &[u8], &StateValue)> = match &self.members {
            StateObjectMembers::List(few) => {
                few.iter().map(|(number, name, node)| (*number, &**name, node)).collect()
            }
            StateObjectMembers::Map(many) => {
                many.iter().map(|(name, (number, node))| (*number, &**name, node)).collect()
            }
        };
        if matches!(self.members, StateObjectMembers::Map(_)) {
            members.sort_unstable_by_key(|(number, _, _)| *number);
        }
        members.into_iter().map(|(_, name, node)| (name, node))
    }
}
