//! An object: named members in insertion order, as in JavaScript.
//!
//! Setting or removing a member takes constant time even for 100,000 members. Large objects therefore use a
//! hash table, and each member has a sequence number: sorting by it yields the order, and a restored member
//! returns to its former position.

use std::collections::HashMap;

use super::tree::Node;

/// The maximum number of members in list form: for fewer, a table would take more memory than it saves time.
const FEW: usize = 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    /// The next sequence number.
    next: u64,
    members: Members,
}

#[derive(Clone, Debug)]
enum Members {
    /// Sorted by sequence number.
    Few(Vec<(u64, Box<[u8]>, Node)>),
    Many(HashMap<Box<[u8]>, (u64, Node)>),
}

impl Default for Members {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Object {
    pub(crate) fn get_mut(&mut self, name: &[u8]) -> Option<&mut Node> {
        match &mut self.members {
            Members::Few(few) => {
                few.iter_mut().find(|(_, known, _)| **known == *name).map(|(_, _, node)| node)
            }
            Members::Many(many) => many.get_mut(name).map(|(_, node)| node),
        }
    }

    /// Sets a member in place, or appends it. Returns its previous value with its sequence number.
    pub(crate) fn set(&mut self, name: &[u8], node: Node) -> Option<(u64, Node)> {
        let number = match &self.members {
            Members::Few(few) => {
                few.iter().find(|(_, known, _)| **known == *name).map(|(number, _, _)| *number)
            }
            Members::Many(many) => many.get(name).map(|(number, _)| *number),
        };
        let Some(number) = number else {
            let number = self.next;
            self.next += 1;
            self.add(name, number, node);
            return None;
        };
        let was = std::mem::replace(self.get_mut(name)?, node);
        Some((number, was))
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<(u64, Node)> {
        match &mut self.members {
            Members::Few(few) => {
                let place = few.iter().position(|(_, known, _)| **known == *name)?;
                let (number, _, node) = few.remove(place);
                Some((number, node))
            }
            Members::Many(many) => many.remove(name),
        }
    }

    /// Restores a member with its value and position, or removes it if it did not exist.
    pub(crate) fn put_back(&mut self, name: &[u8], was: Option<(u64, Node)>) {
        self.remove(name);
        if let Some((number, node)) = was {
            self.add(name, number, node);
        }
    }

    fn add(&mut self, name: &[u8], number: u64, node: Node) {
        match &mut self.members {
            Members::Few(few) if few.len() < FEW => {
                let place = few.partition_point(|(known, _, _)| *known < number);
                few.insert(place, (number, name.into(), node));
            }
            Members::Few(few) => {
                let few = std::mem::take(few).into_iter();
                let mut many: HashMap<_, _> =
                    few.map(|(number, name, node)| (name, (number, node))).collect();
                many.insert(name.into(), (number, node));
                self.members = Members::Many(many);
            }
            Members::Many(many) => {
                many.insert(name.into(), (number, node));
            }
        }
    }

    /// The number of members.
    pub(crate) fn len(&self) -> usize {
        match &self.members {
            Members::Few(few) => few.len(),
            Members::Many(many) => many.len(),
        }
    }

    /// The number of members that fit before all of them move.
    pub(crate) fn capacity(&self) -> usize {
        match &self.members {
            // Lists are short.
            Members::Few(_) => usize::MAX,
            Members::Many(many) => many.capacity(),
        }
    }

    /// Returns the values, in any order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Node> {
        let (few, many) = match &self.members {
            Members::Few(few) => (Some(few), None),
            Members::Many(many) => (None, Some(many)),
        };
        let few = few.into_iter().flatten().map(|(_, _, node)| node);
        few.chain(many.into_iter().flat_map(HashMap::values).map(|(_, node)| node))
    }

    /// The size of the names and values as JSON text in bytes, without separators.
    pub(crate) fn size(&self) -> usize {
        match &self.members {
            Members::Few(few) => few.iter().map(|(_, name, node)| name.len() + node.size()).sum(),
            Members::Many(many) => many.iter().map(|(name, (_, node))| name.len() + node.size()).sum(),
        }
    }

    /// Returns the members in order.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&[u8], &Node)> {
        let mut members: Vec<(u64, &[u8], &Node)> = match &self.members {
            Members::Few(few) => few.iter().map(|(number, name, node)| (*number, &**name, node)).collect(),
            Members::Many(many) => {
                many.iter().map(|(name, (number, node))| (*number, &**name, node)).collect()
            }
        };
        if matches!(self.members, Members::Many(_)) {
            members.sort_unstable_by_key(|(number, _, _)| *number);
        }
        members.into_iter().map(|(_, name, node)| (name, node))
    }
}
