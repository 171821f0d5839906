//! The errors in the response: their locations, and their messages.

use std::sync::Arc;

use serde_json::Value as JsonValue;

use super::output::ResponseOutput;
use crate::error::{GraphqlError, GraphqlErrorKind, ResponsePathStep};
use crate::execute::object_reader::ObjectReader;
use crate::execute::slot_value::SlotValue;
use crate::fetch::outcome::SourceError;
use crate::plan::data::ObjectSlot;
use crate::plan::shape::{ShapeField, ShapeId};
use crate::plan::types::TypeId;

/// The maximum number of errors in a response. Further ones are only counted.
const MAX_ERRORS: usize = 1000;

/// A step of the path to the value that is being written.
#[derive(Clone, Copy)]
enum PathStep<'r> {
    Key(&'r Arc<str>),
    Index(usize),
}

/// The errors of a response, and the path at which they occur.
pub(super) struct ResponseErrors<'r> {
    objects: ObjectReader<'r>,
    path: Vec<PathStep<'r>>,
    entries: Vec<GraphqlError>,
    /// The approximate size of the entries in bytes, and its maximum.
    bytes: usize,
    max_bytes: usize,
    /// The number of errors that are only counted.
    omitted: usize,
}

impl<'r> ResponseErrors<'r> {
    pub(super) fn new(objects: ObjectReader<'r>, max_bytes: usize) -> Self {
        Self { objects, path: Vec::new(), entries: Vec::new(), bytes: 0, max_bytes, omitted: 0 }
    }

    /// Enters a field.
    #[inline]
    pub(super) fn enter_field(&mut self, key: &'r Arc<str>) {
        self.path.push(PathStep::Key(key));
    }

    /// Enters an item of a list.
    #[inline]
    pub(super) fn enter_item(&mut self, index: usize) {
        self.path.push(PathStep::Index(index));
    }

    /// Leaves the field or item that was entered last.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.path.pop();
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Discards the errors that were reported after this number.
    pub(super) fn truncate(&mut self, errors: usize) {
        self.entries.truncate(errors);
    }

    /// Returns all errors, the last of which has the number of omitted ones.
    pub(super) fn finish(mut self) -> Vec<GraphqlError> {
        if self.omitted > 0 && !self.entries.is_empty() {
            let message = format!("{} further errors are left out", self.omitted);
            self.entries.push(GraphqlError::new(GraphqlErrorKind::Value, message));
        }
        self.entries
    }

    /// Reports the errors that services returned along with an object's values, and with fields that were
    /// requested separately.
    pub(super) fn report_value_errors(
        &mut self,
        shape: ShapeId,
        values: &[SlotValue<'r>],
        output: &mut ResponseOutput,
    ) {
        let plan = self.objects.plan;
        for (slot, value) in values.iter().enumerate() {
            if let SlotValue::Node(_, _, Some(error)) = value
                && let Some(error) = self.objects.results.errors.get(*error as usize)
                && self.has_error_room()
            {
                let graphql_error = self.convert_service_error(error);
                let position = plan.shapes[shape].position.map(|position| &plan.positions[position]);
                let slot = position.and_then(|position| position.slots.get(slot));
                let field =
                    slot.and_then(ObjectSlot::field).map(|key| ResponsePathStep::Key(Arc::clone(key)));
                for told in &error.reported_errors {
                    if self.has_error_room() {
                        let mut entry = with_reported_message(&graphql_error, told);
                        let planned = field.clone().into_iter().chain(error_path(told));
                        plan.extend_path(&mut entry.path, shape, planned);
                        self.push_error(entry, output);
                    }
                }
            }
        }
    }

    /// Reports the errors that concern a step as a whole, at the root field above it.
    pub(super) fn report_step_errors(&mut self, output: &mut ResponseOutput) {
        for (step, error) in &self.objects.results.step_errors {
            if output.is_full() {
                return;
            }
            let (plan, errors) = (self.objects.plan, &self.objects.results.errors);
            let (Some(error), Some(group)) = (errors.get(*error as usize), plan.steps[*step].groups.first())
            else {
                continue;
            };
            if !self.has_error_room() {
                continue;
            }
            let mut graphql_error = self.convert_service_error(error);
            let (mut position, mut root) = (group.position, None);
            while let Some((parent, key)) = &plan.positions[position].parent {
                (position, root) = (*parent, Some(ResponsePathStep::Key(Arc::clone(key))));
            }
            plan.extend_path(&mut graphql_error.path, plan.root, root.into_iter());
            self.push_error(graphql_error, output);
        }
    }

    /// Reports a field whose source failed.
    pub(super) fn report_failed_field(
        &mut self,
        error: u32,
        field: &ShapeField,
        output: &mut ResponseOutput,
    ) {
        let Some(error) = self.objects.results.errors.get(error as usize) else { return };
        if !self.has_error_room() {
            return;
        }
        let graphql_error = self.convert_service_error(error).with_location(field.location);
        if error.reported_errors.is_empty() {
            return self.push_error(graphql_error, output);
        }
        for value in &error.reported_errors {
            if self.has_error_room() {
                self.push_error(with_reported_message(&graphql_error, value), output);
            }
        }
    }

    /// Whether there is room for a further error. An error without room is counted.
    fn has_error_room(&mut self) -> bool {
        let has_room = self.entries.len() < MAX_ERRORS && self.bytes < self.max_bytes;
        self.omitted += usize::from(!has_room);
        has_room
    }

    fn push_error(&mut self, error: GraphqlError, output: &mut ResponseOutput) {
        let extensions = error.extensions.values().map(json_size).sum::<usize>();
        let bytes = 64 + error.message.len() + 16 * error.path.len() + extensions;
        self.bytes += bytes;
        // Each byte counts as a field: an error is built, cloned and written as a tree.
        output.steps += bytes;
        self.entries.push(error);
    }

    /// Reports a missing value at a non-null position, unless its cause has been reported.
    pub(super) fn report_missing(&mut self, field: &ShapeField, before: usize, output: &mut ResponseOutput) {
        if output.is_limit_exceeded || !self.has_error_room() {
            return;
        }
        let steps = self.current_path();
        output.steps += self.entries.len() / 4;
        let is_told =
            self.entries.len() > before || self.entries.iter().any(|error| error.path.starts_with(&steps));
        if !is_told {
            let message = format!("`{}` is null, but its type is non-null", field.name);
            self.add_error(GraphqlError::new(GraphqlErrorKind::Null, message), Some(field), output);
        }
    }

    pub(super) fn report_wrong_value(
        &mut self,
        field: &ShapeField,
        wanted: &str,
        values: &[SlotValue<'r>],
        output: &mut ResponseOutput,
    ) {
        if !self.has_error_room() {
            return;
        }
        let node = values.iter().find_map(|value| value.node());
        let found = node.map_or("a list", |node| node.kind().name());
        let plain = format!("`{}` is {found}, which is not valid for its type in the schema", field.name);
        let error = GraphqlError::new(GraphqlErrorKind::Value, format!("{plain}: {wanted}"));
        self.add_error(error.with_plain_message(plain), Some(field), output);
    }

    /// Reports an object of unknown or unexpected type. An object of a hidden type is null without an error.
    pub(super) fn report_untyped_object(
        &mut self,
        parent: TypeId,
        ty: Option<TypeId>,
        output: &mut ResponseOutput,
    ) {
        let types = &self.objects.plan.types;
        if ty.is_some_and(|ty| types.is_hidden(ty)) || !self.has_error_room() {
            return;
        }
        let said = ty.map_or_else(|| "unknown".to_owned(), |ty| format!("`{}`", types.name(ty)));
        let message = format!("the type of an object is {said}, and must be one of `{}`", types.name(parent));
        let plain = "the type of an object is not one that the schema allows at this position";
        self.add_error(
            GraphqlError::new(GraphqlErrorKind::Value, message).with_plain_message(plain),
            None,
            output,
        );
    }

    fn add_error(
        &mut self,
        mut error: GraphqlError,
        field: Option<&ShapeField>,
        output: &mut ResponseOutput,
    ) {
        error.path = self.current_path();
        let error = match field {
            Some(field) => error.with_location(field.location),
            None => error,
        };
        self.push_error(error, output);
    }

    /// Converts a service's error to one at the position that is being written.
    fn convert_service_error(&self, error: &SourceError) -> GraphqlError {
        let mut graphql_error = GraphqlError::new(GraphqlErrorKind::Value, &*error.message);
        graphql_error.code = error.code;
        graphql_error.path = self.current_path();
        graphql_error.extensions.insert("service".to_owned(), (*error.service).into());
        if let Some(status) = error.status {
            graphql_error.extensions.insert("status".to_owned(), status.into());
        }
        graphql_error
    }

    fn current_path(&self) -> Vec<ResponsePathStep> {
        let segment = |step: &PathStep<'_>| match step {
            PathStep::Key(key) => ResponsePathStep::Key(Arc::clone(key)),
            PathStep::Index(index) => ResponsePathStep::Index(*index),
        };
        self.path.iter().map(segment).collect()
    }
}

/// The approximate size of a value in bytes.
fn json_size(value: &JsonValue) -> usize {
    match value {
        JsonValue::String(text) => 16 + text.len(),
        JsonValue::Array(items) => 16 + items.iter().map(json_size).sum::<usize>(),
        JsonValue::Object(members) => {
            16 + members.iter().map(|(name, value)| 16 + name.len() + json_size(value)).sum::<usize>()
        }
        _ => 16,
    }
}

/// Returns the entry with the message and extensions of an error that a GraphQL service reported.
fn with_reported_message(error: &GraphqlError, value: &JsonValue) -> GraphqlError {
    let mut graphql_error = error.clone();
    if let Some(message) = value.get("message").and_then(JsonValue::as_str) {
        message.clone_into(&mut graphql_error.message);
    }
    if let Some(JsonValue::Object(more)) = value.get("extensions") {
        graphql_error.extensions.extend(more.clone());
    }
    graphql_error
}

/// The path of a service's error, relative to the object.
fn error_path(value: &JsonValue) -> impl Iterator<Item = ResponsePathStep> {
    let path = value.get("path").and_then(JsonValue::as_array);
    path.into_iter().flatten().filter_map(|step| match step {
        JsonValue::String(key) => Some(ResponsePathStep::Key(key.as_str().into())),
        JsonValue::Number(index) => index.as_u64().map(|index| ResponsePathStep::Index(index as usize)),
        _ => None,
    })
}
