//! The answer's tree: what parts brought is put into each other. Texts are shared, not copied.
//!
//! First it is found out, for every place that something is put into, what that is (`joined`, and `join.rs`): mistakes
//! show before anything is built, and a part that may fail can still become `null`. Then the values are walked once
//! (`weave.rs`), where only some fields are wanted with texts of these (`fields.rs`).

mod fields;
mod join;
mod weave;

use std::cell::RefCell;

use json::{Kind, Node, Tree};

use self::fields::Selected;
use self::join::Join;
use self::weave::{Patch, Weaver, shaped};
use crate::plan::Part;
use crate::problem::{AggregateError, Failure, Reason};
use crate::run::failure;
use crate::value::{Known, Value, targets};

/// Builds trees of a request's parts.
pub(crate) struct Assembly<'a> {
    pub(crate) known: &'a Known<'a>,
    /// Parts that turned out not to fit.
    pub(crate) failures: RefCell<Vec<Failure>>,
}

impl<'a> Assembly<'a> {
    /// The tree of a part.
    pub(crate) fn tree(&self, number: usize) -> Result<Tree, AggregateError> {
        let part = &self.known.plan.parts[number];
        match self.known.value(number) {
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
        let part = &self.known.plan.parts[number];
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
        let parts = &self.known.plan.parts;
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
            let name = &self.known.plan.parts[into.part].name;
            return Ok(Err(Reason::JoinNotObject(name.clone(), kind.name())));
        }
        let objects = || places.iter().filter(|place| place.kind() == Kind::Object);
        let value = match self.known.value(number) {
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
