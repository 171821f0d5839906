//! The response writer: one walk over the client's selection copies text out of the documents. Objects that
//! occur in several places are written once.
//!
//! An object that a document already contains in the requested form is copied in one piece (`copy.rs`). For
//! other objects the values are searched (`scan.rs`) and written field by field. A missing value at a
//! non-null position is an error (`response_errors.rs`), and null propagates to the closest nullable ancestor
//! (6.4.4).

mod copy;
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
use super::run::ExecutionRun;
use super::slot_value::{SlotLists, SlotValue};
use super::{AnswerRules, ExecutionResponse};
use crate::error::{GraphqlError, GraphqlErrorKind};
use crate::plan::data::{FieldLookup, PositionId, allows_type};
use crate::plan::shape::{FieldSource, ShapeField, ShapeId, ShapeRead, ShapeVariant};
use crate::plan::types::{ClientTypeRef, TypeId};
use copy::MAX_COPY_ATTEMPTS;
use scan::ReadResult;
use written_objects::{WrittenObjectKey, WrittenObjects};

/// The reads that yield a value.
type ValueReads<'r> = &'r [ShapeRead];

pub(super) struct DataWriter<'r> {
    run: &'r ExecutionRun<'r>,
    schema: &'r SchemaDocument,
    introspection_values: &'r [(Arc<str>, Bytes)],
    out: Vec<u8>,
    errors: Vec<GraphqlError>,
    /// The approximate size of the errors in bytes.
    error_bytes: usize,
    omitted_errors: usize,
    /// The maximum size of the response in bytes, and whether it has been exceeded; then nothing more is
    /// written.
    max_bytes: usize,
    is_limit_exceeded: bool,
    /// Whether a single value may exceed the maximum size.
    is_large: bool,
    /// The number of fields written so far. Other work counts as fields that take as long.
    steps: usize,
    max_steps: usize,
    path: Vec<WriteStep<'r>>,
    /// The values that were found among the members of all objects in progress.
    hits: Vec<ReadResult<'r>>,
    /// By scan: the names of members in the order in which they last occurred, each with its index among the
    /// names searched for.
    member_orders: Vec<Vec<(&'r [u8], Option<usize>)>>,
    /// By shape: the number of further attempts to copy an object in one piece.
    copy_attempts: Vec<u8>,
    written_objects: WrittenObjects,
    /// Value buffers for reuse.
    spare_buffers: Vec<Vec<SlotValue<'r>>>,
}

/// A response is written without yielding if its sources have at most `SHORT_TEXT` bytes, and as long as it
/// has at most `SHORT_TEXT` bytes and `SHORT_STEPS` fields. This takes about half a millisecond.
const SHORT_STEPS: usize = 8_000;
/// The maximum capacity that is reserved before the size of the response is known.
const MAX_CAPACITY: usize = 1 << 20;

#[derive(Clone, Copy)]
enum WriteStep<'r> {
    Key(&'r Arc<str>),
    Index(usize),
}

/// The origin of those values of an object that are not read from its scanned members.
#[derive(Clone, Copy)]
struct ObjectOrigin<'v, 'r> {
    ty: TypeId,
    values: &'v [SlotValue<'r>],
    /// The start of this object's entries in `hits`.
    base: usize,
}

impl<'r> DataWriter<'r> {
    fn new(
        run: &'r ExecutionRun<'r>,
        schema: &'r SchemaDocument,
        rules: &'r AnswerRules,
        max_bytes: usize,
    ) -> Self {
        let size = run.document_bytes();
        Self {
            run,
            schema,
            introspection_values: &rules.introspection_values,
            out: Vec::with_capacity(64 + size.min(MAX_CAPACITY)),
            errors: Vec::new(),
            error_bytes: 0,
            omitted_errors: 0,
            max_bytes,
            is_limit_exceeded: false,
            is_large: size > max_bytes,
            steps: 0,
            max_steps: usize::MAX,
            path: Vec::new(),
            hits: Vec::new(),
            member_orders: vec![Vec::new(); run.plan.scans],
            copy_attempts: vec![MAX_COPY_ATTEMPTS; run.plan.shapes.len()],
            written_objects: WrittenObjects::default(),
            spare_buffers: Vec::new(),
        }
    }

    /// Writes the complete response; `None` if it would be too large. A short response is written at once; a
    /// long one off the serving thread, where it yields to other requests in between.
    pub(super) async fn write_response(
        run: &'r ExecutionRun<'r>,
        schema: &'r SchemaDocument,
        rules: &'r AnswerRules,
    ) -> Option<ExecutionResponse> {
        // Copying takes less time per byte than parsing.
        offload::move_if_long(run.document_bytes() / 2).await;
        if run.document_bytes() <= SHORT_TEXT {
            let mut writer = Self::new(run, schema, rules, rules.max_bytes.min(SHORT_TEXT));
            writer.max_steps = SHORT_STEPS;
            let values = writer.begin_response();
            let is_written = writer.write_root(&values);
            if let Some(answer) = writer.finish_response(is_written, rules).await {
                #[cfg(test)]
                Self::check_long(run, schema, rules, &answer.tree).await;
                return Some(answer);
            }
        }
        offload::move_to_pool().await;
        let mut writer = Self::new(run, schema, rules, rules.max_bytes);
        let values = writer.begin_response();
        let is_written = writer.write_long_root(&values).await;
        writer.finish_response(is_written, rules).await
    }

    /// Checks that the yielding writer produces the same response.
    #[cfg(test)]
    async fn check_long(
        run: &'r ExecutionRun<'r>,
        schema: &'r SchemaDocument,
        rules: &'r AnswerRules,
        short: &json::JsonTree,
    ) {
        let text = |tree: &json::JsonTree| {
            let mut text = Vec::new();
            tree.write(&mut text);
            String::from_utf8(text).expect("UTF-8")
        };
        let mut writer = Self::new(run, schema, rules, rules.max_bytes);
        let values = writer.begin_response();
        let is_written = writer.write_long_root(&values).await;
        let long = writer.finish_response(is_written, rules).await.expect("an answer");
        assert_eq!(text(&long.tree), text(short));
    }

    /// Begins the response, and returns the values of the root object.
    fn begin_response(&mut self) -> Vec<SlotValue<'r>> {
        self.out.extend_from_slice(b"{\"data\":");
        let position = &self.run.plan.positions[0];
        let mut values = vec![SlotValue::Absent; position.slots.len()];
        self.run.fill_step_results(position, None, &mut values);
        values
    }

    /// Writes the root object, and returns whether it is not null.
    fn write_root(&mut self, values: &[SlotValue<'r>]) -> bool {
        let id = self.run.plan.root;
        let shape = &self.run.plan.shapes[id];
        let Some(variant) = shape.variants.first() else { return false };
        self.report_value_errors(id, values);
        self.scan_members(variant, values);
        self.write_members(variant, ObjectOrigin { ty: shape.parent, values, base: 0 })
    }

    /// Writes everything after the root object. Errors are stripped of schema names for callers without
    /// access to the schema. Yields after some errors.
    async fn finish_response(mut self, is_written: bool, rules: &AnswerRules) -> Option<ExecutionResponse> {
        const ERROR_BATCH: usize = 100;
        if !is_written {
            self.truncate_output(b"{\"data\":".len());
            self.out.extend_from_slice(b"null");
        }
        self.report_step_errors();
        if self.omitted_errors > 0 && !self.errors.is_empty() {
            let message = format!("{} further errors are left out", self.omitted_errors);
            self.errors.push(GraphqlError::new(GraphqlErrorKind::Value, message));
        }
        let (last, has_errors) = (self.errors.len().saturating_sub(1), !self.errors.is_empty());
        for (number, error) in std::mem::take(&mut self.errors).into_iter().enumerate() {
            self.out.extend_from_slice(if number == 0 { b",\"errors\":[" } else { b"," });
            let error = if rules.exposes_schema { error } else { error.without_schema() };
            self.out.extend_from_slice(error.to_json().to_string().as_bytes());
            if self.is_full() {
                break;
            }
            if number == last {
                self.out.push(b']');
            } else if number % ERROR_BATCH == ERROR_BATCH - 1 {
                offload::move_to_pool().await;
            }
        }
        self.out.push(b'}');
        (!self.is_full())
            .then(|| ExecutionResponse { tree: self.written_objects.into_tree(self.out), has_errors })
    }

    /// Whether the response exceeds a limit.
    #[inline]
    fn is_full(&mut self) -> bool {
        self.is_limit_exceeded |= self.out.len() > self.max_bytes || self.steps > self.max_steps;
        self.is_limit_exceeded
    }

    /// Discards everything that was written after this length.
    fn truncate_output(&mut self, length: usize) {
        self.out.truncate(length);
        self.written_objects.truncate(length);
    }

    /// Writes an object, and returns whether it is not null.
    fn write_object(&mut self, id: ShapeId, values: &[SlotValue<'r>]) -> bool {
        let Some((variant, ty)) = self.select_variant(id, values) else { return false };
        if self.try_copy(id, variant, ty, values) {
            return true;
        }
        let (start, base) = (self.out.len(), self.hits.len());
        self.scan_members(variant, values);
        let is_written = self.write_members(variant, ObjectOrigin { ty, values, base });
        self.hits.truncate(base);
        if !is_written {
            self.truncate_output(start);
        }
        is_written
    }

    /// Returns the variant of the shape for an object, and its type; `None` if the type does not fit.
    fn select_variant(
        &mut self,
        id: ShapeId,
        values: &[SlotValue<'r>],
    ) -> Option<(&'r ShapeVariant, TypeId)> {
        let plan = self.run.plan;
        let shape = &plan.shapes[id];
        let ty = match plan.types.is_object(shape.parent) {
            true => Some(shape.parent),
            false => shape.position.and_then(|position| self.run.object_type(position, values)),
        };
        // The type is not requested if nothing depends on it. It matters if the object may be of a hidden
        // type.
        let hides = !plan.types.hidden_objects(shape.parent).is_empty();
        let is_untold = |variant: &ShapeVariant| {
            variant.type_filter.is_none() && !hides && !self.run.is_type_requested(shape.position)
        };
        let ty = ty.or_else(|| shape.variants.iter().any(is_untold).then_some(shape.parent));
        self.report_value_errors(id, values);
        let Some(ty) = ty.filter(|ty| plan.types.includes_object(shape.parent, *ty)) else {
            self.report_untyped_object(shape.parent, ty);
            return None;
        };
        let variant = shape.variants.iter().find(|variant| allows_type(&variant.type_filter, Some(ty)))?;
        Some((variant, ty))
    }

    fn write_members(&mut self, variant: &'r ShapeVariant, place: ObjectOrigin<'_, 'r>) -> bool {
        self.out.push(b'{');
        self.steps += variant.steps;
        let start = self.out.len();
        let member = |writer: &mut Self, field: &'r ShapeField| {
            if writer.is_full() {
                return false;
            }
            if writer.out.len() > start {
                writer.out.push(b',');
            }
            writer.out.extend_from_slice(&field.member_name);
            writer.write_field(field, place)
        };
        let is_whole = if variant.has_variable_order {
            self.ordered_fields(variant).into_iter().all(|field| member(self, field))
        } else {
            variant.fields.iter().all(|field| self.first_occurrence(field).is_none() || member(self, field))
        };
        self.out.push(b'}');
        is_whole
    }

    /// Returns the first occurrence of a field in the document whose conditions hold.
    #[inline]
    fn first_occurrence(&self, field: &ShapeField) -> Option<usize> {
        let holds = |when: &[(Arc<str>, bool)]| {
            when.iter().all(|(name, value)| self.run.variables.is_true(name) == *value)
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
    fn write_field(&mut self, field: &'r ShapeField, place: ObjectOrigin<'_, 'r>) -> bool {
        let plan = self.run.plan;
        let reads = match &field.source {
            FieldSource::Typename => {
                self.out.push(b'"');
                self.out.extend_from_slice(plan.types.name(place.ty).as_bytes());
                self.out.push(b'"');
                return true;
            }
            FieldSource::Introspection(asked) => {
                return self.write_introspection(field, asked);
            }
            FieldSource::Slots(reads) => reads,
        };
        let mut below = self.spare_buffers.pop().unwrap_or_default();
        let (reads, child) = self.collect_values(field, reads, place, &mut below);
        self.path.push(WriteStep::Key(&field.key));
        let is_written = self.write_value(&field.ty, field, reads, &mut below, child);
        self.path.pop();
        below.clear();
        self.spare_buffers.push(below);
        is_written
    }

    /// Writes the value of an introspection field, which was computed before if it is long.
    fn write_introspection(&mut self, field: &ShapeField, asked: &AstField) -> bool {
        if let Some((_, text)) = self.introspection_values.iter().find(|(key, _)| *key == field.key) {
            self.out.extend_from_slice(text);
            return !self.is_full();
        }
        let limits = IntrospectionLimits::for_response(self.max_bytes.saturating_sub(self.out.len()));
        let (plan, variables) = (self.run.plan, &self.run.variables);
        let left =
            introspect::write_introspection(self.schema, plan, variables, asked, &mut self.out, limits);
        self.is_limit_exceeded |= left.is_none();
        !self.is_limit_exceeded
    }

    /// Collects the values that a field is written from: for a composite type one per slot of its position,
    /// otherwise the first that is present. Returns the reads that yielded them, and the position.
    fn collect_values(
        &self,
        field: &'r ShapeField,
        reads: &'r [ShapeRead],
        place: ObjectOrigin<'_, 'r>,
        below: &mut Vec<SlotValue<'r>>,
    ) -> (&'r [ShapeRead], PositionId) {
        let value = |read: &ShapeRead| match read.lookup {
            FieldLookup::WholeValue => place.values[read.slot].without_error(),
            FieldLookup::Member(_) => self.hits[place.base + read.number].value,
        };
        let mut fitting = reads.iter().filter(|read| allows_type(&read.type_filter, Some(place.ty)));
        if let (Some(_), Some(child)) = (field.shape, field.child_position) {
            below.resize(self.run.plan.positions[child].slots.len(), SlotValue::Absent);
            for read in fitting {
                if let Some(slot) = read.value_slot.filter(|slot| matches!(below[*slot], SlotValue::Absent)) {
                    below[slot] = value(read);
                }
            }
            return (reads, child);
        }
        let is_there = |read: &&ShapeRead| !matches!(value(read), SlotValue::Absent | SlotValue::Failed(_));
        let best = fitting
            .clone()
            .find(is_there)
            .or_else(|| fitting.rfind(|read| matches!(value(read), SlotValue::Failed(_))));
        below.push(best.map_or(SlotValue::Absent, value));
        (best.map(std::slice::from_ref).unwrap_or_default(), 0)
    }

    /// Writes a value, or `null` if the type is nullable. Returns whether something was written.
    fn write_value(
        &mut self,
        ty: &'r ClientTypeRef,
        field: &'r ShapeField,
        reads: &'r [ShapeRead],
        values: &mut [SlotValue<'r>],
        child: PositionId,
    ) -> bool {
        let before = self.errors.len();
        let is_written = self.write_non_null(ty.nullable(), field, reads, values, child);
        self.write_null(ty, field, is_written, before)
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
                self.report_missing(field, before);
                false
            }
            _ => {
                self.out.extend_from_slice(b"null");
                true
            }
        }
    }

    /// Writes a non-null value. Returns whether there is one.
    fn write_non_null(
        &mut self,
        ty: &'r ClientTypeRef,
        field: &'r ShapeField,
        reads: &'r [ShapeRead],
        values: &mut [SlotValue<'r>],
        child: PositionId,
    ) -> bool {
        if values.iter().all(|value| matches!(value, SlotValue::Absent | SlotValue::Failed(_))) {
            if let Some(SlotValue::Failed(error)) =
                values.iter().find(|value| matches!(value, SlotValue::Failed(_)))
            {
                self.report_failed_field(*error, field);
            }
            return false;
        }
        if let ClientTypeRef::List(item) = ty {
            return self.write_list(item, field, reads, values, child);
        }
        match field.shape {
            Some(shape) => self.write_composite(shape, field, values, child),
            None => self.write_leaf(ty.named_type(), field, reads, values),
        }
    }

    fn write_list(
        &mut self,
        item: &'r ClientTypeRef,
        field: &'r ShapeField,
        reads: &'r [ShapeRead],
        values: &mut [SlotValue<'r>],
        child: PositionId,
    ) -> bool {
        let Some(mut split) = SlotLists::from_values(self.run, values) else {
            self.report_wrong_value(field, "a list", values);
            return false;
        };
        let (start, mut number) = (self.out.len(), 0);
        while let Some(is_there) = self.next_item(&mut split, number, values) {
            if !is_there {
                return true;
            }
            self.path.push(WriteStep::Index(number));
            let is_written = self.write_value(item, field, reads, values, child);
            self.path.pop();
            if !is_written {
                break;
            }
            number += 1;
        }
        self.truncate_output(start);
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
        if self.is_full() {
            return None;
        }
        self.steps += 1;
        let is_there = split.next(values);
        match (number, is_there) {
            (0, true) => self.out.push(b'['),
            (0, false) => self.out.extend_from_slice(b"[]"),
            (_, true) => self.out.push(b','),
            (_, false) => self.out.push(b']'),
        }
        Some(is_there)
    }

    fn write_leaf(
        &mut self,
        ty: TypeId,
        field: &'r ShapeField,
        reads: &[ShapeRead],
        values: &[SlotValue<'r>],
    ) -> bool {
        let Some(node) = values.first().and_then(|value| value.node()) else { return false };
        if self.is_large && self.out.len() + node.text().len() > self.max_bytes {
            self.is_limit_exceeded = true;
            return false;
        }
        let spelling = reads.first().and_then(|read| read.spelling.as_deref());
        match leaf::write_leaf(&self.run.plan.types, ty, node, spelling, &mut self.out) {
            LeafOutcome::Written => true,
            LeafOutcome::Null => false,
            LeafOutcome::Invalid => {
                let name = Arc::clone(self.run.plan.types.name(ty));
                self.report_wrong_value(field, &format!("a value of `{name}`"), values);
                false
            }
        }
    }

    /// Writes an object of the position `child`.
    fn write_composite(
        &mut self,
        shape: ShapeId,
        field: &'r ShapeField,
        values: &mut [SlotValue<'r>],
        child: PositionId,
    ) -> bool {
        let key = match self.composite_key(shape, field, values, child) {
            Ok(key) => key,
            Err(is_written) => return is_written,
        };
        let (start, errors) = (self.out.len(), self.errors.len());
        let is_written = self.write_object(shape, values);
        if let Some(key) = key.filter(|_| is_written && self.errors.len() == errors) {
            self.written_objects.add(key, start..self.out.len());
        }
        is_written
    }

    /// Returns the key by which an object can be reused if it may occur in several places. An object that has
    /// been written before is copied from there, and a value that is not an object is reported as an error;
    /// `Err` then contains whether the value was written, and nothing is left to do.
    fn composite_key(
        &mut self,
        shape: ShapeId,
        field: &'r ShapeField,
        values: &mut [SlotValue<'r>],
        child: PositionId,
    ) -> Result<Option<WrittenObjectKey>, bool> {
        let position = &self.run.plan.positions[child];
        if !values.iter().any(|value| value.node().is_some_and(|node| node.kind() == ValueKind::Object)) {
            self.report_wrong_value(field, "an object", values);
            return Err(false);
        }
        self.run.fill_step_results(position, None, values);
        let (true, [SlotValue::Node(document, node, None)]) = (position.is_shared, &*values) else {
            return Ok(None);
        };
        let key = (shape, u64::from(*document) << 32 | node.start() as u64);
        let Some(length) = self.written_objects.text_length(&key) else { return Ok(Some(key)) };
        self.is_limit_exceeded |= self.out.len() + length > self.max_bytes;
        Err(!self.is_limit_exceeded && self.written_objects.copy_text(&key, &mut self.out))
    }
}
