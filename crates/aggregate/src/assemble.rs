//! The answer's tree: what parts brought is put into each other. Texts are shared, not copied; of a value only what
//! something is put into is taken apart.
//!
//! First it is found out, for every place that something is put into, what that is (`joined`): mistakes show before
//! anything is built, and a part that may fail can still become `null`. Then the values are walked once (`Weaver`).

use std::cell::RefCell;

use bytes::Bytes;
use json::{Grouped, Kind, Kinds, Member, Node, NotArray, Path, Scalar, Step, Tree};

use crate::declaration::{Missing, One};
use crate::plan::{Joins, Part};
use crate::problem::{AggregateError, Failure, Reason};
use crate::run::{Run, failure};
use crate::value::{Value, targets};

/// Builds trees of a request's parts.
pub(crate) struct Assembly<'a> {
    pub(crate) run: &'a Run<'a>,
    /// Parts that turned out not to fit.
    pub(crate) failures: RefCell<Vec<Failure>>,
}

/// What is put in at a path, for each of its places in order.
struct Patch<'a> {
    steps: &'a [Step],
    name: &'a str,
    quoted: &'a Bytes,
    values: std::vec::IntoIter<Tree>,
}

impl<'a> Assembly<'a> {
    /// The tree of a part.
    pub(crate) fn tree(&self, number: usize) -> Result<Tree, AggregateError> {
        let part = &self.run.plan.parts[number];
        match self.run.value(number) {
            None => Ok(Tree::NULL),
            Some(Value::Each(fan)) if part.children.is_empty() => {
                let trees: Vec<Tree> = fan.answers.iter().map(|body| shaped(part, body.root())).collect();
                let of_item = |answer: &Option<usize>| answer.and_then(|answer| trees.get(answer).cloned());
                Ok(Tree::Array(
                    fan.of_item.iter().map(|answer| of_item(answer).unwrap_or(Tree::NULL)).collect(),
                ))
            }
            Some(value) => {
                let root = value.root();
                let mut patches = self.patches(number, root)?;
                if patches.is_empty() && part.fields.is_none() {
                    return Ok(Tree::Text(root.slice()));
                }
                let selected = part.fields.as_deref().map(|fields| Selected::of(root, fields));
                Ok(Weaver { own: selected }.tree(root, &mut patches.iter_mut().collect::<Vec<_>>()))
            }
        }
    }

    /// The trees of a part's rows.
    fn rows(&self, number: usize, root: Node<'a>) -> Result<Vec<Tree>, AggregateError> {
        let part = &self.run.plan.parts[number];
        if part.children.is_empty() && part.fields.is_none() {
            return Ok(root.items().map(|row| Tree::Text(row.slice())).collect());
        }
        let mut patches = self.patches(number, root)?;
        let selected = part.fields.as_deref().map(|fields| Selected::of(root, fields));
        let mut weaver = Weaver { own: selected };
        let mut below: Vec<&mut Patch<'_>> = patches.iter_mut().map(Patch::at_items).collect();
        Ok(root.items().map(|row| weaver.item(row, &mut below)).collect())
    }

    /// What is put into a part.
    fn patches(&self, number: usize, root: Node<'a>) -> Result<Vec<Patch<'a>>, AggregateError> {
        let parts = &self.run.plan.parts;
        let mut patches = Vec::new();
        for child in &parts[number].children {
            let part = &parts[*child];
            let Some(into) = part.goes_into() else { continue };
            let mut places = Vec::new();
            // A path that leads to no array was told by who called for its items, and leads to nothing in a join.
            let _ = targets(root, &into.path, &mut |node| places.push(node));
            let values = match self.joined(*child, part, &places)? {
                Ok(values) => values,
                Err(reason) if part.is_required() => return Err(failure(part, reason).into()),
                Err(reason) => {
                    self.failures.borrow_mut().push(failure(part, reason));
                    places.iter().filter(|place| place.kind() == Kind::Object).map(|_| Tree::NULL).collect()
                }
            };
            let steps = into.path.steps();
            patches.push(Patch { steps, name: &into.name, quoted: &into.quoted, values: values.into_iter() });
        }
        Ok(patches)
    }

    /// What a part puts into each of these places that is an object.
    fn joined(
        &self,
        number: usize,
        part: &'a Part,
        places: &[Node<'a>],
    ) -> Result<Result<Vec<Tree>, Reason>, AggregateError> {
        let wrong =
            places.iter().map(|place| place.kind()).find(|kind| !matches!(kind, Kind::Object | Kind::Null));
        if let (Some(kind), Some(into)) = (wrong, part.goes_into()) {
            let name = &self.run.plan.parts[into.part].name;
            return Ok(Err(Reason::JoinNotObject(name.clone(), kind.name())));
        }
        let objects = || places.iter().filter(|place| place.kind() == Kind::Object);
        let value = match self.run.value(number) {
            None => return Ok(Ok(objects().map(|_| Tree::NULL).collect())),
            Some(value) => value,
        };
        match (value, &part.joins) {
            (Value::Each(fan), _) => {
                let trees: Vec<Tree> = fan.answers.iter().map(|body| shaped(part, body.root())).collect();
                let of_item =
                    fan.of_item.iter().zip(places).filter(|(_, place)| place.kind() == Kind::Object);
                let tree = |answer: &Option<usize>| answer.and_then(|answer| trees.get(answer).cloned());
                Ok(Ok(of_item.map(|(answer, _)| tree(answer).unwrap_or(Tree::NULL)).collect()))
            }
            // What is put into another part is looked into, and so never handed on.
            (Value::Long(..), _) => Ok(Ok(objects().map(|_| Tree::NULL).collect())),
            (Value::One(body), Some(joins)) => match body.root().kind() {
                Kind::Array => {
                    let rows = self.rows(number, body.root())?;
                    Ok(Join { joins, rows }.find(body.root(), objects().copied()))
                }
                // A part that failed and may.
                Kind::Null if !part.is_required() => Ok(Ok(objects().map(|_| Tree::NULL).collect())),
                kind => Ok(Err(Reason::JoinNotArray(kind.name()))),
            },
            // An `each` that failed as a whole.
            (Value::One(body), None) => {
                let tree = shaped(part, body.root());
                Ok(Ok(objects().map(|_| tree.clone()).collect()))
            }
        }
    }
}

/// Rows that are looked for.
struct Join<'a> {
    joins: &'a Joins,
    rows: Vec<Tree>,
}

impl Join<'_> {
    /// For each item its rows.
    fn find<'n>(self, root: Node<'n>, items: impl Iterator<Item = Node<'n>>) -> Result<Vec<Tree>, Reason> {
        let Self { joins, rows } = self;
        let key = |node: Node<'n>| if joins.text { Scalar::text(node) } else { Scalar::of(node) };
        let mut grouped = Grouped::with_capacity(rows.len());
        for row in root.items() {
            let node = joins.row_key.find(row);
            let is_second = grouped.add(node.and_then(key));
            if is_second && joins.one == One::Only(true) {
                return Err(Reason::JoinDuplicate(shown(node)));
            }
        }
        let is_one = joins.one != One::Only(false);
        let mut lists: Vec<Option<Tree>> = vec![None; if is_one { 0 } else { grouped.len() }];
        let (empty, mut found_any, mut kinds) = (Tree::Array([].into()), false, Kinds::default());
        let mut values = Vec::new();
        for item in items {
            if joins.item_key.is_many() {
                let mut list = Vec::new();
                let visited = joins.item_key.visit(item, &mut |node| {
                    let Some(key) = key(node) else { return };
                    kinds = kinds | key.kind();
                    let places = grouped.find(&key).into_iter().flat_map(|group| grouped.items(group));
                    list.extend(places.filter_map(|place| rows.get(place).cloned()));
                });
                if let Err(NotArray(Some(kind))) = visited {
                    return Err(Reason::EachNotArray(joins.on.clone(), kind.name()));
                }
                found_any |= !list.is_empty();
                values.push(Tree::Array(list.into()));
                continue;
            }
            let node = joins.item_key.find(item);
            let key = node.and_then(key);
            kinds = key.as_ref().map_or(kinds, |key| kinds | key.kind());
            let group = key.as_ref().and_then(|key| grouped.find(key));
            found_any |= group.is_some();
            values.push(match group {
                None if joins.missing == Missing::Error => return Err(Reason::JoinMissing(shown(node))),
                None if is_one => Tree::NULL,
                None => empty.clone(),
                Some(group) if is_one => grouped
                    .items(group)
                    .next()
                    .and_then(|place| rows.get(place).cloned())
                    .unwrap_or(Tree::NULL),
                Some(group) => {
                    let list = || {
                        Tree::Array(
                            grouped.items(group).filter_map(|place| rows.get(place).cloned()).collect(),
                        )
                    };
                    lists
                        .get_mut(group)
                        .map_or_else(|| empty.clone(), |known| known.get_or_insert_with(list).clone())
                }
            });
        }
        if !found_any && kinds.are_apart(grouped.kinds()) {
            let (left, right) = (kinds.names(), grouped.kinds().names());
            return Err(Reason::JoinKinds { on: joins.on.clone(), left, right });
        }
        Ok(values)
    }
}

/// A key for a message; short, since it is a service's word.
fn shown(node: Option<Node<'_>>) -> String {
    let text = node.map_or(&b"null"[..], Node::text);
    String::from_utf8_lossy(text).chars().take(40).collect()
}

impl Patch<'_> {
    /// The same for each item of the array that it was for.
    fn at_items(&mut self) -> &mut Self {
        if let [Step::Each, rest @ ..] = self.steps {
            self.steps = rest;
        }
        self
    }
}

/// The objects of a part after its fields were chosen, one behind the other in a text of their own.
struct Selected {
    text: Bytes,
    ends: std::vec::IntoIter<Option<usize>>,
    start: usize,
}

impl Selected {
    /// Of an array its items, of anything else itself. What is no object stays as it is.
    fn of(root: Node<'_>, fields: &[(Bytes, Path)]) -> Self {
        let mut text = Vec::with_capacity(root.text().len() / 2);
        let mut ends = Vec::new();
        let mut add = |node: Node<'_>| {
            let is_object = node.kind() == Kind::Object;
            if is_object {
                select(node, fields, &mut text);
            }
            ends.push(is_object.then_some(text.len()));
        };
        match root.kind() {
            Kind::Array => root.items().for_each(add),
            _ => add(root),
        }
        Self { text: text.into(), ends: ends.into_iter(), start: 0 }
    }

    /// The text of the next object.
    fn next(&mut self) -> Option<Bytes> {
        let end = self.ends.next()??;
        let text = self.text.slice(self.start..end);
        self.start = end;
        Some(text)
    }
}

/// Writes the fields of an object, in the order of the declaration.
fn select(node: Node<'_>, fields: &[(Bytes, Path)], out: &mut Vec<u8>) {
    let mut found: [Option<Node<'_>>; 16] = [None; 16];
    let is_plain =
        fields.len() <= found.len() && fields.iter().all(|(_, path)| matches!(path.steps(), [Step::Name(_)]));
    if is_plain {
        for (key, value) in node.members() {
            let named = fields
                .iter()
                .position(|(_, path)| matches!(path.steps(), [Step::Name(name)] if key.is(name.as_bytes())));
            if let Some(place) = named.and_then(|place| found.get_mut(place)) {
                place.get_or_insert(value);
            }
        }
    }
    out.push(b'{');
    let mut first = true;
    for (place, (name, path)) in fields.iter().enumerate() {
        let value = if is_plain { found.get(place).copied().flatten() } else { path.find(node) };
        let Some(value) = value else { continue };
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b':');
        out.extend_from_slice(value.text());
    }
    out.push(b'}');
}

/// A value with the fields that are wanted, and nothing put in.
fn shaped(part: &Part, root: Node<'_>) -> Tree {
    match part.fields.as_deref() {
        None => Tree::Text(root.slice()),
        Some(fields) => Weaver { own: Some(Selected::of(root, fields)) }.tree(root, &mut []),
    }
}

/// Walks through a value and puts in what belongs into it.
struct Weaver {
    own: Option<Selected>,
}

impl Weaver {
    /// The value of a part.
    fn tree(&mut self, root: Node<'_>, patches: &mut [&mut Patch<'_>]) -> Tree {
        match root.kind() {
            Kind::Array => {
                let mut below: Vec<&mut Patch<'_>> =
                    patches.iter_mut().map(|patch| patch.at_items()).collect();
                Tree::Array(root.items().map(|item| self.item(item, &mut below)).collect())
            }
            _ => self.item(root, patches),
        }
    }

    /// An item, or the only object: that of which fields were chosen.
    fn item(&mut self, node: Node<'_>, patches: &mut [&mut Patch<'_>]) -> Tree {
        let own = self.own.as_mut().map(Selected::next);
        match own {
            Some(Some(text)) => put(text, node, patches, false),
            _ if patches.is_empty() => Tree::Text(node.slice()),
            _ => weave(node, patches),
        }
    }
}

/// A value somewhere in a part.
fn weave(node: Node<'_>, patches: &mut [&mut Patch<'_>]) -> Tree {
    if patches.is_empty() {
        return Tree::Text(node.slice());
    }
    match node.kind() {
        Kind::Array => Tree::Array(
            node.items()
                .enumerate()
                .map(|(number, item)| {
                    let steps: Vec<&[Step]> = patches.iter().map(|patch| patch.steps).collect();
                    let mut below: Vec<&mut Patch<'_>> = patches
                        .iter_mut()
                        .filter(|patch| goes_into(patch.steps, number))
                        .map(|patch| &mut **patch)
                        .collect();
                    below.iter_mut().for_each(|patch| {
                        if let [_, rest @ ..] = patch.steps {
                            patch.steps = rest
                        }
                    });
                    let tree = weave(item, &mut below);
                    patches.iter_mut().zip(steps).for_each(|(patch, steps)| patch.steps = steps);
                    tree
                })
                .collect(),
        ),
        Kind::Object if patches.iter().all(|patch| patch.steps.is_empty()) => {
            put(node.slice(), node, patches, true)
        }
        Kind::Object => open(node, patches),
        _ => Tree::Text(node.slice()),
    }
}

/// Whether a path goes on in an item of an array. One that ends at the array is for all its items.
fn goes_into(steps: &[Step], number: usize) -> bool {
    match steps {
        [] | [Step::Each, ..] => true,
        [Step::Name(name), ..] => name.parse() == Ok(number),
    }
}

/// An object with what is put into it, of whose members nothing is taken apart. `text` is the object's, or what was
/// chosen of it; then names were looked at before.
fn put(text: Bytes, node: Node<'_>, patches: &mut [&mut Patch<'_>], is_whole: bool) -> Tree {
    if patches.is_empty() {
        return Tree::Text(text);
    }
    let is_hidden = |key: json::Key<'_>| patches.iter().any(|patch| key.is(patch.name.as_bytes()));
    if is_whole && node.members().any(|(key, _)| is_hidden(key)) {
        return open(node, patches);
    }
    let members =
        patches.iter_mut().map(|patch| (patch.quoted.clone(), patch.values.next().unwrap_or(Tree::NULL)));
    Tree::Extended(text, members.collect())
}

/// An object, member by member: something is put in below, or has the name of a member, in whose place it comes.
fn open(node: Node<'_>, patches: &mut [&mut Patch<'_>]) -> Tree {
    let mut members: Vec<Member> = Vec::new();
    for (key, value) in node.members() {
        let is_hidden = patches.iter().any(|patch| patch.steps.is_empty() && key.is(patch.name.as_bytes()));
        if is_hidden {
            continue;
        }
        let steps: Vec<&[Step]> = patches.iter().map(|patch| patch.steps).collect();
        let goes_on = |patch: &&mut &mut Patch<'_>| matches!(patch.steps, [Step::Name(name), ..] if key.is(name.as_bytes()));
        let mut below: Vec<&mut Patch<'_>> =
            patches.iter_mut().filter(goes_on).map(|patch| &mut **patch).collect();
        below.iter_mut().for_each(|patch| {
            if let [_, rest @ ..] = patch.steps {
                patch.steps = rest
            }
        });
        let tree = weave(value, &mut below);
        patches.iter_mut().zip(steps).for_each(|(patch, steps)| patch.steps = steps);
        members.push((key.node().slice(), tree));
    }
    for patch in patches.iter_mut().filter(|patch| patch.steps.is_empty()) {
        members.push((patch.quoted.clone(), patch.values.next().unwrap_or(Tree::NULL)));
    }
    Tree::Object(members.into())
}
