//! What the client is told of what went wrong: where in the answer, and in whose words.

use std::sync::Arc;

use serde_json::Value as Json;

use super::{Step, Val, Writer};
use crate::SourceError;
use crate::error::{Code, GraphqlError, Segment};
use crate::plan::data::Slot;
use crate::plan::shape::{Field, ShapeId};
use crate::plan::types::TypeId;

/// How many errors an answer has; of further ones it says how many there are.
const ERRORS: usize = 1000;

impl<'r> Writer<'r> {
    /// What services told of an object, and of fields that they were asked for by themselves, beside the values.
    pub(super) fn told(&mut self, shape: ShapeId, values: &[Val<'r>]) {
        let plan = self.run.plan;
        for (slot, value) in values.iter().enumerate() {
            if let Val::At(_, _, Some(error)) = value
                && let Some(error) = self.run.errors.get(*error as usize)
                && self.has_room()
            {
                let entry = self.upstream(error);
                let position = plan.shapes[shape].position.map(|position| &plan.positions[position]);
                let slot = position.and_then(|position| position.slots.get(slot));
                let field = slot.and_then(Slot::field).map(|key| Segment::Key(Arc::clone(key)));
                for told in &error.told {
                    if self.has_room() {
                        let mut entry = in_words(&entry, told);
                        let planned = field.clone().into_iter().chain(below(told));
                        plan.extend_path(&mut entry.path, shape, planned);
                        self.push(entry);
                    }
                }
            }
        }
    }

    /// What went wrong in steps as a whole, told of the field of the answer that they are below.
    pub(super) fn aside(&mut self) {
        for (step, error) in &self.run.aside {
            let (plan, errors) = (self.run.plan, &self.run.errors);
            let (Some(error), Some(group)) = (errors.get(*error as usize), plan.steps[*step].groups.first())
            else {
                continue;
            };
            if !self.has_room() {
                continue;
            }
            let mut entry = self.upstream(error);
            let (mut position, mut root) = (group.position, None);
            while let Some((parent, key)) = &plan.positions[position].parent {
                (position, root) = (*parent, Some(Segment::Key(Arc::clone(key))));
            }
            plan.extend_path(&mut entry.path, plan.root, root.into_iter());
            self.push(entry);
        }
    }

    /// A field whose source failed.
    pub(super) fn failed(&mut self, error: u32, field: &Field) {
        let Some(error) = self.run.errors.get(error as usize) else { return };
        if !self.has_room() {
            return;
        }
        let entry = self.upstream(error).at(field.location);
        if error.told.is_empty() {
            return self.push(entry);
        }
        for told in &error.told {
            if self.has_room() {
                self.push(in_words(&entry, told));
            }
        }
    }

    /// Whether a further error is told; one that is not is counted.
    fn has_room(&mut self) -> bool {
        let has_room = self.errors.len() < ERRORS && self.error_bytes < self.most;
        self.left_out += usize::from(!has_room);
        has_room
    }

    fn push(&mut self, error: GraphqlError) {
        let extensions = error.extensions.values().map(size).sum::<usize>();
        self.error_bytes += 64 + error.message.len() + 16 * error.path.len() + extensions;
        self.errors.push(error);
    }

    /// A value that is missing where there must be one, unless what is the matter was told.
    pub(super) fn missing(&mut self, field: &Field, before: usize) {
        if self.is_over || !self.has_room() {
            return;
        }
        let place = self.place();
        let is_told =
            self.errors.len() > before || self.errors.iter().any(|error| error.path.starts_with(&place));
        if !is_told {
            let message = format!("`{}` is null, and must not be", field.name);
            self.add(GraphqlError::new(Code::Null, message), Some(field));
        }
    }

    pub(super) fn wrong(&mut self, field: &Field, wanted: &str, values: &[Val<'r>]) {
        if !self.has_room() {
            return;
        }
        let node = values.iter().find_map(|value| value.node());
        let found = node.map_or("a list", |node| node.kind().name());
        let plain = format!("`{}` is {found}, and no such value as the schema says", field.name);
        let error = GraphqlError::new(Code::Value, format!("{plain}: {wanted}"));
        self.add(error.or_plainly(plain), Some(field));
    }

    /// An object of which nobody says what it is, or that is none of what it must be. One that clients don't see is null.
    pub(super) fn untyped(&mut self, parent: TypeId, ty: Option<TypeId>) {
        let types = &self.run.plan.types;
        if ty.is_some_and(|ty| types.is_hidden(ty)) || !self.has_room() {
            return;
        }
        let said = ty.map_or_else(|| "not told".to_owned(), |ty| format!("`{}`", types.name(ty)));
        let message = format!("the type of an object is {said}, and must be one of `{}`", types.name(parent));
        let plain = "the type of an object is none of those that the schema has there";
        self.add(GraphqlError::new(Code::Value, message).or_plainly(plain), None);
    }

    fn add(&mut self, mut error: GraphqlError, field: Option<&Field>) {
        error.path = self.place();
        self.push(match field {
            Some(field) => error.at(field.location),
            None => error,
        });
    }

    /// A service's error, told of the place that is being written.
    fn upstream(&self, error: &SourceError) -> GraphqlError {
        let mut entry = GraphqlError::new(Code::Value, &*error.message);
        entry.code = error.code;
        entry.path = self.place();
        entry.extensions.insert("service".to_owned(), (*error.service).into());
        if let Some(status) = error.status {
            entry.extensions.insert("status".to_owned(), status.into());
        }
        entry
    }

    fn place(&self) -> Vec<Segment> {
        let segment = |step: &Step<'_>| match step {
            Step::Key(key) => Segment::Key(Arc::clone(key)),
            Step::Index(index) => Segment::Index(*index),
        };
        self.path.iter().map(segment).collect()
    }
}

/// The bytes of a value, about.
fn size(value: &Json) -> usize {
    match value {
        Json::String(text) => 16 + text.len(),
        Json::Array(items) => 16 + items.iter().map(size).sum::<usize>(),
        Json::Object(members) => {
            16 + members.iter().map(|(name, value)| 16 + name.len() + size(value)).sum::<usize>()
        }
        _ => 16,
    }
}

/// An entry in the words of an error that a GraphQL service told.
fn in_words(entry: &GraphqlError, told: &Json) -> GraphqlError {
    let mut entry = entry.clone();
    if let Some(message) = told.get("message").and_then(Json::as_str) {
        message.clone_into(&mut entry.message);
    }
    if let Some(Json::Object(more)) = told.get("extensions") {
        entry.extensions.extend(more.clone());
    }
    entry
}

/// Where a service says that an error is, from the object on.
fn below(told: &Json) -> impl Iterator<Item = Segment> {
    let path = told.get("path").and_then(Json::as_array);
    path.into_iter().flatten().filter_map(|step| match step {
        Json::String(key) => Some(Segment::Key(key.as_str().into())),
        Json::Number(index) => index.as_u64().map(|index| Segment::Index(index as usize)),
        _ => None,
    })
}
