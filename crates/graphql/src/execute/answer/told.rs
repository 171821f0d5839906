//! The errors in the response: their locations, and their messages.

use std::sync::Arc;

use serde_json::Value as JsonValue;

use super::{DataWriter, SlotValue, WriteStep};
use crate::SourceError;
use crate::error::{GraphqlError, GraphqlErrorKind, ResponsePathStep};
use crate::plan::data::ObjectSlot;
use crate::plan::shape::{ShapeField, ShapeId};
use crate::plan::types::TypeId;

/// The maximum number of errors in a response. Further ones are only counted.
const ERRORS: usize = 1000;

impl<'r> DataWriter<'r> {
    /// Reports the errors that services returned along with an object's values, and with fields that were
    /// requested separately.
    pub(super) fn told(&mut self, shape: ShapeId, values: &[SlotValue<'r>]) {
        let plan = self.run.plan;
        for (slot, value) in values.iter().enumerate() {
            if let SlotValue::At(_, _, Some(error)) = value
                && let Some(error) = self.run.errors.get(*error as usize)
                && self.has_room()
            {
                let entry = self.upstream(error);
                let position = plan.shapes[shape].position.map(|position| &plan.positions[position]);
                let slot = position.and_then(|position| position.slots.get(slot));
                let field =
                    slot.and_then(ObjectSlot::field).map(|key| ResponsePathStep::Key(Arc::clone(key)));
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

    /// Reports the errors that concern a step as a whole, at the root field above it.
    pub(super) fn aside(&mut self) {
        for (step, error) in &self.run.aside {
            if self.is_full() {
                return;
            }
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
                (position, root) = (*parent, Some(ResponsePathStep::Key(Arc::clone(key))));
            }
            plan.extend_path(&mut entry.path, plan.root, root.into_iter());
            self.push(entry);
        }
    }

    /// Reports a field whose source failed.
    pub(super) fn failed(&mut self, error: u32, field: &ShapeField) {
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

    /// Whether there is room for a further error. An error without room is counted.
    fn has_room(&mut self) -> bool {
        let has_room = self.errors.len() < ERRORS && self.error_bytes < self.most;
        self.left_out += usize::from(!has_room);
        has_room
    }

    fn push(&mut self, error: GraphqlError) {
        let extensions = error.extensions.values().map(size).sum::<usize>();
        let bytes = 64 + error.message.len() + 16 * error.path.len() + extensions;
        self.error_bytes += bytes;
        // Each byte counts as a field: an error is built, cloned and written as a tree.
        self.steps += bytes;
        self.errors.push(error);
    }

    /// Reports a missing value at a non-null position, unless its cause has been reported.
    pub(super) fn missing(&mut self, field: &ShapeField, before: usize) {
        if self.is_over || !self.has_room() {
            return;
        }
        let place = self.place();
        self.steps += self.errors.len() / 4;
        let is_told =
            self.errors.len() > before || self.errors.iter().any(|error| error.path.starts_with(&place));
        if !is_told {
            let message = format!("`{}` is null, but its type is non-null", field.name);
            self.add(GraphqlError::new(GraphqlErrorKind::Null, message), Some(field));
        }
    }

    pub(super) fn wrong(&mut self, field: &ShapeField, wanted: &str, values: &[SlotValue<'r>]) {
        if !self.has_room() {
            return;
        }
        let node = values.iter().find_map(|value| value.node());
        let found = node.map_or("a list", |node| node.kind().name());
        let plain = format!("`{}` is {found}, which is not valid for its type in the schema", field.name);
        let error = GraphqlError::new(GraphqlErrorKind::Value, format!("{plain}: {wanted}"));
        self.add(error.or_plainly(plain), Some(field));
    }

    /// Reports an object of unknown or unexpected type. An object of a hidden type is null without an error.
    pub(super) fn untyped(&mut self, parent: TypeId, ty: Option<TypeId>) {
        let types = &self.run.plan.types;
        if ty.is_some_and(|ty| types.is_hidden(ty)) || !self.has_room() {
            return;
        }
        let said = ty.map_or_else(|| "unknown".to_owned(), |ty| format!("`{}`", types.name(ty)));
        let message = format!("the type of an object is {said}, and must be one of `{}`", types.name(parent));
        let plain = "the type of an object is not one that the schema allows at this position";
        self.add(GraphqlError::new(GraphqlErrorKind::Value, message).or_plainly(plain), None);
    }

    fn add(&mut self, mut error: GraphqlError, field: Option<&ShapeField>) {
        error.path = self.place();
        self.push(match field {
            Some(field) => error.at(field.location),
            None => error,
        });
    }

    /// Converts a service's error to one at the position that is being written.
    fn upstream(&self, error: &SourceError) -> GraphqlError {
        let mut entry = GraphqlError::new(GraphqlErrorKind::Value, &*error.message);
        entry.code = error.code;
        entry.path = self.place();
        entry.extensions.insert("service".to_owned(), (*error.service).into());
        if let Some(status) = error.status {
            entry.extensions.insert("status".to_owned(), status.into());
        }
        entry
    }

    fn place(&self) -> Vec<ResponsePathStep> {
        let segment = |step: &WriteStep<'_>| match step {
            WriteStep::Key(key) => ResponsePathStep::Key(Arc::clone(key)),
            WriteStep::Index(index) => ResponsePathStep::Index(*index),
        };
        self.path.iter().map(segment).collect()
    }
}

/// The approximate size of a value in bytes.
fn size(value: &JsonValue) -> usize {
    match value {
        JsonValue::String(text) => 16 + text.len(),
        JsonValue::Array(items) => 16 + items.iter().map(size).sum::<usize>(),
        JsonValue::Object(members) => {
            16 + members.iter().map(|(name, value)| 16 + name.len() + size(value)).sum::<usize>()
        }
        _ => 16,
    }
}

/// Returns the entry with the message and extensions of an error that a GraphQL service reported.
fn in_words(entry: &GraphqlError, told: &JsonValue) -> GraphqlError {
    let mut entry = entry.clone();
    if let Some(message) = told.get("message").and_then(JsonValue::as_str) {
        message.clone_into(&mut entry.message);
    }
    if let Some(JsonValue::Object(more)) = told.get("extensions") {
        entry.extensions.extend(more.clone());
    }
    entry
}

/// The path of a service's error, relative to the object.
fn below(told: &JsonValue) -> impl Iterator<Item = ResponsePathStep> {
    let path = told.get("path").and_then(JsonValue::as_array);
    path.into_iter().flatten().filter_map(|step| match step {
        JsonValue::String(key) => Some(ResponsePathStep::Key(key.as_str().into())),
        JsonValue::Number(index) => index.as_u64().map(|index| ResponsePathStep::Index(index as usize)),
        _ => None,
    })
}
