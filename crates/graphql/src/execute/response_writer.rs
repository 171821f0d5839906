//! The response writer: one walk over the client's selection copies text out of the documents. Objects that
//! occur in several places are written once.
//!
//! An object that a document already contains in the requested form is copied in one piece (`copy.rs`). For
//! other objects the values are searched (`scan.rs`) and written field by field. A missing value at a
//! non-null position is an error (`response_errors.rs`), and null propagates to the closest nullable ancestor
//! (6.4.4). `output.rs` holds the text and its limits, and `yielding_writer.rs` writes long responses.

mod copy;
mod output;
mod response_errors;
mod scan;
mod written_objects;
mod yielding_writer;

use std::sync::Arc;

use bytes::Bytes;
use graphql_tools::static_graphql::query::Field as AstField;
use graphql_tools::static_graphql::schema::Document as SchemaDocument;
use json::ValueKind;
use offload::SHORT_TEXT;

use super::introspect::{self, IntrospectionLimits};
use super::leaf::{self, LeafOutcome};
use super::object_reader::ObjectReader;
use super::slot_lists::SlotLists;
use super::slot_value::SlotValue;
use super::variables::CoercedVariables;
use super::{AnswerRules, ExecutionResponse};
use crate::plan::data::{FieldLookup, PositionId, allows_type};
use crate::plan::shape::{FieldSource, ShapeField, ShapeId, ShapeRead, ShapeVariant};
use crate::plan::types::{ClientTypeRef, TypeId};
use copy::{CopyAttempts, ObjectCopy};
use output::ResponseOutput;
use response_errors::ResponseErrors;
use scan::MemberScanner;
use written_objects::WrittenObjectKey;
use yielding_writer::YieldingWriter;

/// The writer of a response.
pub(super) struct DataWriter<'r> {
    objects: ObjectReader<'r>,
    variables: &'r CoercedVariables,
    schema: &'r SchemaDocument,
    introspection_values: &'r [(Arc<str>, Bytes)],
    output: ResponseOutput,
    errors: ResponseErrors<'r>,
    members: MemberScanner<'r>,
    copy_attempts: CopyAttempts,
    /// Whether a single value may exceed the maximum size.
    is_large: bool,
    /// Value buffers for reuse.
    spare_buffers: Vec<Vec<SlotValue<'r>>>,
}

/// A response is written without yielding if its sources have at most `SHORT_TEXT` bytes, and as long as it
/// has at most `SHORT_TEXT` bytes and `SHORT_STEPS` fields. This takes about half a millisecond.
const SHORT_STEPS: usize = 8_000;
/// The maximum capacity that is reserved before the size of the response is known.
const MAX_CAPACITY: usize = 1 << 20;

/// The origin of those values of an object that are not read from its scanned members.
#[derive(Clone, Copy)]
struct ObjectOrigin<'v, 'r> {
    ty: TypeId,
    values: &'v [SlotValue<'r>],
    /// The base of this object's values in the [`MemberScanner`].
    base: usize,
}

/// A value of a field to write.
struct FieldValue<'v, 'r> {
    ty: &'r ClientTypeRef,
    field: &'r ShapeField,
    /// The reads that yielded the values.
    reads: &'r [ShapeRead],
    /// One value for each slot of the position of a composite type, otherwise a single one.
    values: &'v mut [SlotValue<'r>],
    /// The position of the objects of a composite type.
    child: PositionId,
}

impl<'r> FieldValue<'_, 'r> {
    /// Returns the same value as one of another type: an item of a list.
    fn with_type(&mut self, ty: &'r ClientTypeRef) -> FieldValue<'_, 'r> {
        FieldValue { ty, field: self.field, reads: self.reads, values: self.values, child: self.child }
    }

    /// Whether no slot has a value.
    fn is_absent(&self) -> bool {
        self.values.iter().all(|value| matches!(value, SlotValue::Absent | SlotValue::Failed(_)))
    }
}

impl<'r> DataWriter<'r> {
    fn new(
        objects: ObjectReader<'r>,
        variables: &'r CoercedVariables,
        schema: &'r SchemaDocument,
        rules: &'r AnswerRules,
        max_bytes: usize,
        max_steps: usize,
    ) -> Self {
        let size = objects.results.document_bytes();
        Self {
            objects,
            variables,
            schema,
            introspection_values: &rules.introspection_values,
            output: ResponseOutput::new(64 + size.min(MAX_CAPACITY), max_bytes, max_steps),
            errors: ResponseErrors::new(objects, max_bytes),
            members: MemberScanner::new(objects.plan.scans),
            copy_attempts: CopyAttempts::new(objects.plan.shapes.len()),
            is_large: size > max_bytes,
            spare_buffers: Vec::new(),
        }
    }

    /// Writes the complete response; `None` if it would be too large. A short response is written at once; a
    /// long one off the serving thread, where it yields to other requests in between.
    pub(super) async fn write_response(
        objects: ObjectReader<'r>,
        variables: &'r CoercedVariables,
        schema: &'r SchemaDocument,
        rules: &'r AnswerRules,
    ) -> Option<ExecutionResponse> {
        let bytes = objects.results.document_bytes();
        // Copying takes less time per byte than parsing.
        offload::move_if_long(bytes / 2).await;
        if bytes <= SHORT_TEXT {
            let max_bytes = rules.max_bytes.min(SHORT_TEXT);
            let mut writer = Self::new(objects, variables, schema, rules, max_bytes, SHORT_STEPS);
            let values = writer.begin_response();
            let is_written = writer.write_root(&values);
            if let Some(answer) = writer.finish_response(is_written, rules).await {
                #[cfg(test)]
                Self::check_long(objects, variables, schema, rules, &answer.tree).await;
                return Some(answer);
            }
        }
        offload::move_to_pool().await;
        Self::write_long_response(objects, variables, schema, rules).await
    }

    /// Writes a long response.
    async fn write_long_response(
        objects: ObjectReader<'r>,
        variables: &'r CoercedVariables,
        schema: &'r SchemaDocument,
        rules: &'r AnswerRules,
    ) -> Option<ExecutionResponse> {
        let mut writer = Self::new(objects, variables, schema, rules, rules.max_bytes, usize::MAX);
        let values = writer.begin_response();
        let is_written = YieldingWriter::new(&mut writer).write_root(&values).await;
        writer.finish_response(is_written, rules).await
    }

    /// Checks that the yielding writer produces the same response.
    #[cfg(test)]
    async fn check_long(
        objects: ObjectReader<'r>,
        variables: &'r CoercedVariables,
        schema: &'r SchemaDocument,
        rules: &'r AnswerRules,
        short: &json::JsonTree,
    ) {
        let text = |tree: &json::JsonTree| {
            let mut text = Vec::new();
            tree.write(&mut text);
            String::from_utf8(text).expect("UTF-8")
        };
        let long = Self::write_long_response(objects, variables, schema, rules).await.expect("an answer");
        assert_eq!(text(&long.tree), text(short));
    }

    /// Begins the response, and returns the values of the root object.
    fn begin_response(&mut self) -> Vec<SlotValue<'r>> {
        self.output.text.extend_from_slice(b"{\"data\":");
        let position = &self.objects.plan.positions[0];
        let mut values = vec![SlotValue::Absent; position.slots.len()];
        self.objects.fill_step_results(position, None, &mut values);
        values
    }

    /// Writes the root object, and returns whether it is not null.
    fn write_root(&mut self, values: &[SlotValue<'r>]) -> bool {
        let id = self.objects.plan.root;
        let shape = &self.objects.plan.shapes[id];
        let Some(variant) = shape.variants.first() else { return false };
        self.errors.report_value_errors(id, values, &mut self.output);
        self.output.steps += self.members.scan(variant, values);
        self.write_members(variant, ObjectOrigin { ty: shape.parent, values, base: 0 })
    }

    /// Writes everything after the root object. Errors are stripped of schema names for callers without
    /// access to the schema. Yields after some errors.
    async fn finish_response(mut self, is_written: bool, rules: &AnswerRules) -> Option<ExecutionResponse> {
        const ERROR_BATCH: usize = 100;
        if !is_written {
            self.output.truncate(b"{\"data\":".len());
            self.output.text.extend_from_slice(b"null");
        }
        self.errors.report_step_errors(&mut self.output);
        let errors = self.errors.finish();
        let (last, has_errors) = (errors.len().saturating_sub(1), !errors.is_empty());
        for (number, error) in errors.into_iter().enumerate() {
            self.output.text.extend_from_slice(if number == 0 { b",\"errors\":[" } else { b"," });
            let error = if rules.exposes_schema { error } else { error.without_schema() };
            self.output.text.extend_from_slice(error.to_json().to_string().as_bytes());
            if self.output.is_full() {
                break;
            }
            if number == last {
                self.output.text.push(b']');
            } else if number % ERROR_BATCH == ERROR_BATCH - 1 {
                offload::move_to_pool().await;
            }
        }
        self.output.text.push(b'}');
        (!self.output.is_full()).then(|| ExecutionResponse { tree: self.output.into_tree(), has_errors })
    }

    /// Writes an object, and returns whether it is not null.
    fn write_object(&mut self, id: ShapeId, values: &[SlotValue<'r>]) -> bool {
        let Some((variant, ty)) = self.select_variant(id, values) else { return false };
        if self.try_copy(id, variant, ty, values) {
            return true;
        }
        let (start, base) = (self.output.text.len(), self.members.len());
        self.output.steps += self.members.scan(variant, values);
        let is_written = self.write_members(variant, ObjectOrigin { ty, values, base });
        self.members.truncate(base);
        if !is_written {
            self.output.truncate(start);
        }
        is_written
    }

    /// Writes an object by copying. Returns false if this is not possible, and then nothing has been written.
    fn try_copy(
        &mut self,
        id: ShapeId,
        variant: &'r ShapeVariant,
        ty: TypeId,
        values: &[SlotValue<'r>],
    ) -> bool {
        let Some(SlotValue::Node(document, node, _)) = variant.copy_slot.map(|slot| values[slot]) else {
            return false;
        };
        if !self.copy_attempts.is_left(id) {
            return false;
        }
        let Some(document) = self.objects.results.documents.get(document as usize) else { return false };
        let (length, errors) = (self.output.text.len(), self.errors.len());
        let mut copy = ObjectCopy::new(document.text(), self.output.max_bytes);
        let origin = ObjectOrigin { ty, values, base: self.members.len() };
        let is_copied = copy.copy_members(self, variant, origin, node);
        if is_copied {
            copy.flush(&mut self.output.text);
        }
        self.copy_attempts.count(id, is_copied);
        self.output.is_limit_exceeded |= copy.is_limit_exceeded();
        if is_copied {
            return !self.output.is_limit_exceeded;
        }
        self.output.truncate(length);
        self.errors.truncate(errors);
        false
    }

    /// Returns the variant of the shape for an object, and its type; `None` if the type does not fit.
    fn select_variant(
        &mut self,
        id: ShapeId,
        values: &[SlotValue<'r>],
    ) -> Option<(&'r ShapeVariant, TypeId)> {
        let plan = self.objects.plan;
        let shape = &plan.shapes[id];
        let ty = match plan.types.is_object(shape.parent) {
            true => Some(shape.parent),
            false => shape.position.and_then(|position| self.objects.object_type(position, values)),
        };
        // The type is not requested if nothing depends on it. It matters if the object may be of a hidden
        // type.
        let hides = !plan.types.hidden_objects(shape.parent).is_empty();
        let is_untold = |variant: &ShapeVariant| {
            variant.type_filter.is_none() && !hides && !self.objects.is_type_requested(shape.position)
        };
        let ty = ty.or_else(|| shape.variants.iter().any(is_untold).then_some(shape.parent));
        self.errors.report_value_errors(id, values, &mut self.output);
        let Some(ty) = ty.filter(|ty| plan.types.includes_object(shape.parent, *ty)) else {
            self.errors.report_untyped_object(shape.parent, ty, &mut self.output);
            return None;
        };
        let variant = shape.variants.iter().find(|variant| allows_type(&variant.type_filter, Some(ty)))?;
        Some((variant, ty))
    }

    fn write_members(&mut self, variant: &'r ShapeVariant, origin: ObjectOrigin<'_, 'r>) -> bool {
        self.output.text.push(b'{');
        self.output.steps += variant.steps;
        let start = self.output.text.len();
        let member = |writer: &mut Self, field: &'r ShapeField| {
            if writer.output.is_full() {
                return false;
            }
            if writer.output.text.len() > start {
                writer.output.text.push(b',');
            }
            writer.output.text.extend_from_slice(&field.member_name);
            writer.write_field(field, origin)
        };
        let is_whole = if variant.has_variable_order {
            self.ordered_fields(variant).into_iter().all(|field| member(self, field))
        } else {
            variant.fields.iter().all(|field| self.first_occurrence(field).is_none() || member(self, field))
        };
        self.output.text.push(b'}');
        is_whole
    }

    /// Returns the first occurrence of a field in the document whose conditions hold.
    #[inline]
    fn first_occurrence(&self, field: &ShapeField) -> Option<usize> {
        let holds = |when: &[(Arc<str>, bool)]| {
            when.iter().all(|(name, value)| self.variables.is_true(name) == *value)
        };
        field.occurrences.iter().find(|(_, when)| holds(when)).map(|(place, _)| *place)
    }

    /// Returns the included fields of an object in the order of their occurrences.
    fn ordered_fields(&self, variant: &'r ShapeVariant) -> Vec<&'r ShapeField> {
        let there = variant.fields.iter().filter_map(|field| Some((self.first_occurrence(field)?, field)));
        let mut there: Vec<(usize, &ShapeField)> = there.collect();
        there.sort_by_key(|(place, _)| *place);
        there.into_iter().map(|(_, field)| field).collect()
    }

    /// Writes a field's value. Returns false if its null propagates to the object.
    fn write_field(&mut self, field: &'r ShapeField, origin: ObjectOrigin<'_, 'r>) -> bool {
        let plan = self.objects.plan;
        let reads = match &field.source {
            FieldSource::Typename => {
                self.output.text.push(b'"');
                self.output.text.extend_from_slice(plan.types.name(origin.ty).as_bytes());
                self.output.text.push(b'"');
                return true;
            }
            FieldSource::Introspection(asked) => {
                return self.write_introspection(field, asked);
            }
            FieldSource::Slots(reads) => reads,
        };
        let mut below = self.spare_buffers.pop().unwrap_or_default();
        let mut value = self.collect_values(field, reads, origin, &mut below);
        self.errors.enter_field(&field.key);
        let is_written = self.write_value(&mut value);
        self.errors.leave();
        below.clear();
        self.spare_buffers.push(below);
        is_written
    }

    /// Writes the value of an introspection field, which was computed before if it is long.
    fn write_introspection(&mut self, field: &ShapeField, asked: &AstField) -> bool {
        if let Some((_, text)) = self.introspection_values.iter().find(|(key, _)| *key == field.key) {
            self.output.text.extend_from_slice(text);
            return !self.output.is_full();
        }
        let output = &mut self.output;
        let limits = IntrospectionLimits::for_response(output.max_bytes.saturating_sub(output.text.len()));
        let (schema, plan, variables) = (self.schema, self.objects.plan, self.variables);
        let left = introspect::write_introspection(schema, plan, variables, asked, &mut output.text, limits);
        self.output.is_limit_exceeded |= left.is_none();
        !self.output.is_limit_exceeded
    }

    /// Collects the values that a field is written from: for a composite type one per slot of its position,
    /// otherwise the first that is present.
    fn collect_values<'v>(
        &self,
        field: &'r ShapeField,
        reads: &'r [ShapeRead],
        origin: ObjectOrigin<'_, 'r>,
        below: &'v mut Vec<SlotValue<'r>>,
    ) -> FieldValue<'v, 'r> {
        let value = |read: &ShapeRead| match read.lookup {
            FieldLookup::WholeValue => origin.values[read.slot].without_error(),
            FieldLookup::Member(_) => self.members.value(origin.base, read.number),
        };
        let mut fitting = reads.iter().filter(|read| allows_type(&read.type_filter, Some(origin.ty)));
        if let (Some(_), Some(child)) = (field.shape, field.child_position) {
            below.resize(self.objects.plan.positions[child].slots.len(), SlotValue::Absent);
            for read in fitting {
                if let Some(slot) = read.value_slot.filter(|slot| matches!(below[*slot], SlotValue::Absent)) {
                    below[slot] = value(read);
                }
            }
            return FieldValue { ty: &field.ty, field, reads, values: below, child };
        }
        let is_there = |read: &&ShapeRead| !matches!(value(read), SlotValue::Absent | SlotValue::Failed(_));
        let best = fitting
            .clone()
            .find(is_there)
            .or_else(|| fitting.rfind(|read| matches!(value(read), SlotValue::Failed(_))));
        below.push(best.map_or(SlotValue::Absent, value));
        let reads = best.map(std::slice::from_ref).unwrap_or_default();
        FieldValue { ty: &field.ty, field, reads, values: below, child: 0 }
    }

    /// Writes a value, or `null` if the type is nullable. Returns whether something was written.
    fn write_value(&mut self, value: &mut FieldValue<'_, 'r>) -> bool {
        let before = self.errors.len();
        let is_written = self.write_non_null(value);
        self.write_null(value.ty, value.field, is_written, before)
    }

    /// Writes `null` for a value that could not be written, if the type is nullable. `before` is the number
    /// of errors before it.
    fn write_null(
        &mut self,
        ty: &ClientTypeRef,
        field: &ShapeField,
        is_written: bool,
        before: usize,
    ) -> bool {
        match ty {
            _ if is_written => true,
            ClientTypeRef::NonNull(_) => {
                self.errors.report_missing(field, before, &mut self.output);
                false
            }
            _ => {
                self.output.text.extend_from_slice(b"null");
                true
            }
        }
    }

    /// Writes a non-null value. Returns whether there is one.
    fn write_non_null(&mut self, value: &mut FieldValue<'_, 'r>) -> bool {
        if value.is_absent() {
            if let Some(SlotValue::Failed(error)) =
                value.values.iter().find(|value| matches!(value, SlotValue::Failed(_)))
            {
                self.errors.report_failed_field(*error, value.field, &mut self.output);
            }
            return false;
        }
        if let ClientTypeRef::List(item) = value.ty.nullable() {
            return self.write_list(&mut value.with_type(item));
        }
        match value.field.shape {
            Some(shape) => self.write_composite(shape, value),
            None => self.write_leaf(value),
        }
    }

    /// Writes a list; `item` has the type of its items, and the values of the list.
    fn write_list(&mut self, item: &mut FieldValue<'_, 'r>) -> bool {
        let Some(mut split) = self.objects.lists(item.values) else {
            self.errors.report_wrong_value(item.field, "a list", item.values, &mut self.output);
            return false;
        };
        let (start, mut number) = (self.output.text.len(), 0);
        while let Some(is_there) = self.next_item(&mut split, number, item.values) {
            if !is_there {
                return true;
            }
            self.errors.enter_item(number);
            let is_written = self.write_value(item);
            self.errors.leave();
            if !is_written {
                break;
            }
            number += 1;
        }
        self.output.truncate(start);
        false
    }

    /// Advances to the next item of a list, and writes the delimiter before it. Returns whether there is an
    /// item, or `None` if the response exceeds a limit.
    #[inline]
    fn next_item(
        &mut self,
        split: &mut SlotLists<'r>,
        number: usize,
        values: &mut [SlotValue<'r>],
    ) -> Option<bool> {
        if self.output.is_full() {
            return None;
        }
        self.output.steps += 1;
        let is_there = split.next(values);
        match (number, is_there) {
            (0, true) => self.output.text.push(b'['),
            (0, false) => self.output.text.extend_from_slice(b"[]"),
            (_, true) => self.output.text.push(b','),
            (_, false) => self.output.text.push(b']'),
        }
        Some(is_there)
    }

    fn write_leaf(&mut self, value: &FieldValue<'_, 'r>) -> bool {
        let Some(node) = value.values.first().and_then(|value| value.node()) else { return false };
        if self.is_large && self.output.text.len() + node.text().len() > self.output.max_bytes {
            self.output.is_limit_exceeded = true;
            return false;
        }
        let types = &self.objects.plan.types;
        let ty = value.ty.named_type();
        let spelling = value.reads.first().and_then(|read| read.spelling.as_deref());
        match leaf::write_leaf(types, ty, node, spelling, &mut self.output.text) {
            LeafOutcome::Written => true,
            LeafOutcome::Null => false,
            LeafOutcome::Invalid => {
                let wanted = format!("a value of `{}`", types.name(ty));
                self.errors.report_wrong_value(value.field, &wanted, value.values, &mut self.output);
                false
            }
        }
    }

    /// Writes an object.
    fn write_composite(&mut self, shape: ShapeId, value: &mut FieldValue<'_, 'r>) -> bool {
        let key = match self.composite_key(shape, value) {
            Ok(key) => key,
            Err(is_written) => return is_written,
        };
        let (start, errors) = (self.output.text.len(), self.errors.len());
        let is_written = self.write_object(shape, value.values);
        if let Some(key) = key.filter(|_| is_written && self.errors.len() == errors) {
            self.output.record_object(key, start);
        }
        is_written
    }

    /// Returns the key by which an object can be reused if it may occur in several places. An object that has
    /// been written before is copied from there, and a value that is not an object is reported as an error;
    /// `Err` then contains whether the value was written, and nothing is left to do.
    fn composite_key(
        &mut self,
        shape: ShapeId,
        value: &mut FieldValue<'_, 'r>,
    ) -> Result<Option<WrittenObjectKey>, bool> {
        let FieldValue { field, values, child, .. } = value;
        let position = &self.objects.plan.positions[*child];
        if !values.iter().any(|value| value.node().is_some_and(|node| node.kind() == ValueKind::Object)) {
            self.errors.report_wrong_value(field, "an object", values, &mut self.output);
            return Err(false);
        }
        self.objects.fill_step_results(position, None, values);
        let (true, [SlotValue::Node(document, node, None)]) = (position.is_shared, &**values) else {
            return Ok(None);
        };
        let key = (shape, u64::from(*document) << 32 | node.start() as u64);
        self.output.repeat_object(&key).map_or(Ok(Some(key)), Err)
    }
}
