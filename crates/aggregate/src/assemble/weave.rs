//! The walk through a part's value that puts in what belongs into it. Of a value only what something is put into is
//! taken apart.

use bytes::Bytes;
use json::{Kind, Member, Node, Step, Tree};

use super::fields::Selected;
use crate::memory::{MemoryBudget, MemoryExhausted};
use crate::plan::Part;

/// What is put in at a path, for each of its places in order.
pub(super) struct Patch<'a> {
    pub(super) steps: &'a [Step],
    pub(super) name: &'a str,
    pub(super) quoted: &'a Bytes,
    pub(super) values: std::vec::IntoIter<Tree>,
}

impl Patch<'_> {
    /// The same for each item of the array that it was for.
    pub(super) fn at_items(&mut self) -> &mut Self {
        if let [Step::Each, rest @ ..] = self.steps {
            self.steps = rest;
        }
        self
    }
}

/// A value with the fields that are wanted, and nothing put in.
pub(super) fn shaped(part: &Part, root: Node<'_>, memory: &MemoryBudget) -> Result<Tree, MemoryExhausted> {
    match part.fields.as_deref() {
        None => Ok(Tree::Text(root.slice())),
        Some(fields) => {
            let mut weaver = Weaver::new(Some(Selected::of(root, fields, memory)?), memory);
            let tree = weaver.tree(root, &mut []);
            weaver.finish(tree)
        }
    }
}

/// Walks through a value and puts in what belongs into it.
pub(super) struct Weaver<'m> {
    own: Option<Selected>,
    memory: &'m MemoryBudget,
    /// Whether there was not enough of it: then what was made is not whole.
    is_exhausted: bool,
}

impl<'m> Weaver<'m> {
    pub(super) fn new(own: Option<Selected>, memory: &'m MemoryBudget) -> Self {
        Self { own, memory, is_exhausted: false }
    }

    /// What was made, if there was memory for it.
    pub(super) fn finish<T>(self, made: T) -> Result<T, MemoryExhausted> {
        if self.is_exhausted { Err(MemoryExhausted) } else { Ok(made) }
    }

    /// The value of a part.
    pub(super) fn tree(&mut self, root: Node<'_>, patches: &mut [&mut Patch<'_>]) -> Tree {
        match root.kind() {
            Kind::Array if self.has_room::<Tree>(root) => {
                let mut below: Vec<&mut Patch<'_>> =
                    patches.iter_mut().map(|patch| patch.at_items()).collect();
                Tree::Array(root.items().map(|item| self.item(item, &mut below)).collect())
            }
            _ => self.item(root, patches),
        }
    }

    /// An item, or the only object: that of which fields were chosen.
    pub(super) fn item(&mut self, node: Node<'_>, patches: &mut [&mut Patch<'_>]) -> Tree {
        let own = self.own.as_mut().map(Selected::next);
        match own {
            Some(Some(text)) => self.put(text, node, patches, false),
            _ if patches.is_empty() => Tree::Text(node.slice()),
            _ => self.weave(node, patches),
        }
    }

    /// Whether there is memory for a list with a place for each item or member of a value.
    fn has_room<T>(&mut self, node: Node<'_>) -> bool {
        self.is_exhausted = self.is_exhausted || self.memory.take_for::<T>(node.count()).is_err();
        !self.is_exhausted
    }

    /// A value somewhere in a part.
    fn weave(&mut self, node: Node<'_>, patches: &mut [&mut Patch<'_>]) -> Tree {
        if patches.is_empty() {
            return Tree::Text(node.slice());
        }
        match node.kind() {
            Kind::Array if self.has_room::<Tree>(node) => self.items(node, patches),
            Kind::Object if patches.iter().all(|patch| patch.steps.is_empty()) => {
                self.put(node.slice(), node, patches, true)
            }
            Kind::Object => self.open(node, patches),
            _ => Tree::Text(node.slice()),
        }
    }

    /// An array. Values may be nested in a thousand others, so frames are kept small: there is no closure for each.
    fn items(&mut self, array: Node<'_>, patches: &mut [&mut Patch<'_>]) -> Tree {
        let mut items = Vec::with_capacity(array.count());
        for (number, item) in array.items().enumerate() {
            items.push(self.below(item, patches, |steps| goes_into(steps, number)));
        }
        Tree::Array(items.into())
    }

    /// An item or a member, with what of the patches goes on in it.
    fn below(
        &mut self,
        node: Node<'_>,
        patches: &mut [&mut Patch<'_>],
        goes_on: impl Fn(&[Step]) -> bool,
    ) -> Tree {
        let steps: Vec<&[Step]> = patches.iter().map(|patch| patch.steps).collect();
        let of_these = patches.iter_mut().filter(|patch| goes_on(patch.steps));
        let mut below: Vec<&mut Patch<'_>> = of_these.map(|patch| &mut **patch).collect();
        below.iter_mut().for_each(|patch| patch.steps = patch.steps.get(1..).unwrap_or_default());
        let tree = self.weave(node, &mut below);
        patches.iter_mut().zip(steps).for_each(|(patch, steps)| patch.steps = steps);
        tree
    }

    /// An object with what is put into it, of whose members nothing is taken apart. `text` is the object's, or what was
    /// chosen of it; then names were looked at before.
    fn put(&mut self, text: Bytes, node: Node<'_>, patches: &mut [&mut Patch<'_>], is_whole: bool) -> Tree {
        if patches.is_empty() {
            return Tree::Text(text);
        }
        let is_hidden = |key: json::Key<'_>| patches.iter().any(|patch| key.is(patch.name.as_bytes()));
        if is_whole && node.members().any(|(key, _)| is_hidden(key)) {
            return self.open(node, patches);
        }
        let members =
            patches.iter_mut().map(|patch| (patch.quoted.clone(), patch.values.next().unwrap_or(Tree::NULL)));
        Tree::Extended(text, members.collect())
    }

    /// An object, member by member: something is put in below, or has the name of a member, in whose place it comes.
    fn open(&mut self, node: Node<'_>, patches: &mut [&mut Patch<'_>]) -> Tree {
        if !self.has_room::<Member>(node) {
            return Tree::NULL;
        }
        let mut members: Vec<Member> = Vec::new();
        for (key, value) in node.members() {
            let is_hidden =
                patches.iter().any(|patch| patch.steps.is_empty() && key.is(patch.name.as_bytes()));
            if is_hidden {
                continue;
            }
            let tree = self.below(
                value,
                patches,
                |steps| matches!(steps, [Step::Name(name), ..] if key.is(name.as_bytes())),
            );
            members.push((key.node().slice(), tree));
        }
        for patch in patches.iter_mut().filter(|patch| patch.steps.is_empty()) {
            members.push((patch.quoted.clone(), patch.values.next().unwrap_or(Tree::NULL)));
        }
        Tree::Object(members.into())
    }
}

/// Whether a path goes on in an item of an array. One that ends at the array is for all its items.
fn goes_into(steps: &[Step], number: usize) -> bool {
    match steps {
        [] | [Step::Each, ..] => true,
        [Step::Name(name), ..] => name.parse() == Ok(number),
    }
}
