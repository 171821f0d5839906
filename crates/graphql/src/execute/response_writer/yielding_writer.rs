//! The writer of long responses: the same walk, but it leaves the serving thread when it takes long.
//!
//! The walk is asynchronous where there are lists: from the root object down to the objects without lists
//! below them, which are written at once as in a short response.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{DataWriter, FieldValue, ObjectOrigin};
use crate::execute::slot_value::SlotValue;
use crate::plan::QueryPlan;
use crate::plan::shape::{FieldSource, ShapeField, ShapeId, ShapeVariant};
use crate::plan::types::ClientTypeRef;

/// The bytes and fields after which the writer yields: a few tenths of a millisecond of work.
const TURN_BYTES: usize = 256 << 10;
const TURN_STEPS: usize = 8_000;
/// The maximum size in bytes of an object that is copied without yielding.
const MAX_COPIED_BYTES: usize = 64 << 10;

/// A writer that yields.
pub(super) struct YieldingWriter<'w, 'r> {
    writer: &'w mut DataWriter<'r>,
    /// By shape: whether there are lists below its objects.
    has_lists: Vec<bool>,
    /// The output size at which the writer yields next.
    yield_bytes: usize,
    yield_steps: usize,
}

impl<'w, 'r> YieldingWriter<'w, 'r> {
    pub(super) fn new(writer: &'w mut DataWriter<'r>) -> Self {
        let has_lists = shapes_with_lists(writer.objects.plan);
        Self { writer, has_lists, yield_bytes: TURN_BYTES, yield_steps: TURN_STEPS }
    }

    /// Writes the root object, and returns whether it is not null.
    pub(super) async fn write_root(&mut self, values: &[SlotValue<'r>]) -> bool {
        let writer = &mut *self.writer;
        let id = writer.objects.plan.root;
        let shape = &writer.objects.plan.shapes[id];
        let Some(variant) = shape.variants.first() else { return false };
        writer.errors.report_value_errors(id, values, &mut writer.output);
        writer.output.steps += writer.members.scan(variant, values);
        self.write_members(variant, ObjectOrigin { ty: shape.parent, values, base: 0 }).await
    }

    async fn yield_turn(&mut self) {
        let output = &self.writer.output;
        if output.text.len() > self.yield_bytes || output.steps > self.yield_steps {
            self.yield_bytes = output.text.len() + TURN_BYTES;
            self.yield_steps = output.steps + TURN_STEPS;
            offload::move_to_pool().await;
        }
    }

    /// Whether there are lists below the objects of a field.
    fn has_lists_below(&self, field: &ShapeField) -> bool {
        field.shape.is_some_and(|shape| self.has_lists.get(shape) == Some(&true))
    }

    /// Writes an object's fields, as [`DataWriter::write_members`] does.
    async fn write_members(&mut self, variant: &'r ShapeVariant, origin: ObjectOrigin<'_, 'r>) -> bool {
        self.writer.output.text.push(b'{');
        self.writer.output.steps += variant.steps;
        for (number, field) in self.writer.ordered_fields(variant).into_iter().enumerate() {
            if self.writer.output.is_full() {
                return false;
            }
            if number > 0 {
                self.writer.output.text.push(b',');
            }
            self.writer.output.text.extend_from_slice(&field.member_name);
            if !self.write_field(field, origin).await {
                return false;
            }
        }
        self.writer.output.text.push(b'}');
        true
    }

    /// Writes a field, as [`DataWriter::write_field`] does.
    async fn write_field(&mut self, field: &'r ShapeField, origin: ObjectOrigin<'_, 'r>) -> bool {
        let FieldSource::Slots(reads) = &field.source else { return self.writer.write_field(field, origin) };
        let mut below = Vec::new();
        let mut value = self.writer.collect_values(field, reads, origin, &mut below);
        self.writer.errors.enter_field(&field.key);
        let is_written = self.write_value(&mut value).await;
        self.writer.errors.leave();
        is_written
    }

    /// Writes a value, as [`DataWriter::write_value`] does.
    fn write_value<'f>(&'f mut self, value: &'f mut FieldValue<'_, 'r>) -> BoxFuture<'f, bool> {
        async move {
            let is_list = matches!(value.ty.nullable(), ClientTypeRef::List(_));
            let deep = value.field.shape.filter(|_| self.has_lists_below(value.field));
            if value.is_absent() || !is_list && deep.is_none() {
                let is_written = self.writer.write_value(value);
                self.yield_turn().await;
                return is_written;
            }
            let before = self.writer.errors.len();
            let is_written = match (value.ty.nullable(), deep) {
                (ClientTypeRef::List(item), _) => self.write_list(&mut value.with_type(item)).await,
                (_, Some(shape)) => self.write_composite(shape, value).await,
                (_, None) => false,
            };
            self.writer.write_null(value.ty, value.field, is_written, before)
        }
        .boxed()
    }

    /// Writes a list, as [`DataWriter::write_list`] does.
    async fn write_list(&mut self, item: &mut FieldValue<'_, 'r>) -> bool {
        let Some(mut split) = self.writer.objects.lists(item.values) else {
            let writer = &mut *self.writer;
            writer.errors.report_wrong_value(item.field, "a list", item.values, &mut writer.output);
            return false;
        };
        let is_deep =
            matches!(item.ty.nullable(), ClientTypeRef::List(_)) || self.has_lists_below(item.field);
        let (start, mut number) = (self.writer.output.text.len(), 0);
        while let Some(is_there) = self.writer.next_item(&mut split, number, item.values) {
            if !is_there {
                return true;
            }
            self.writer.errors.enter_item(number);
            let is_written = match is_deep {
                true => self.write_value(item).await,
                false => self.writer.write_value(item),
            };
            self.writer.errors.leave();
            if !is_written {
                break;
            }
            number += 1;
            self.yield_turn().await;
        }
        self.writer.output.truncate(start);
        false
    }

    /// Writes an object, as [`DataWriter::write_composite`] does.
    async fn write_composite(&mut self, shape: ShapeId, value: &mut FieldValue<'_, 'r>) -> bool {
        let key = match self.writer.composite_key(shape, value) {
            Ok(key) => key,
            Err(is_written) => return is_written,
        };
        let (start, errors) = (self.writer.output.text.len(), self.writer.errors.len());
        let is_written = self.write_object(shape, value.values).await;
        if let Some(key) = key.filter(|_| is_written && self.writer.errors.len() == errors) {
            self.writer.output.record_object(key, start);
        }
        is_written
    }

    /// Writes an object, as [`DataWriter::write_object`] does.
    async fn write_object(&mut self, id: ShapeId, values: &[SlotValue<'r>]) -> bool {
        let writer = &mut *self.writer;
        let Some((variant, ty)) = writer.select_variant(id, values) else { return false };
        let copied = variant.copy_slot.and_then(|slot| values.get(slot)).and_then(|value| value.node());
        if copied.is_some_and(|node| node.text().len() <= MAX_COPIED_BYTES)
            && writer.try_copy(id, variant, ty, values)
        {
            return true;
        }
        let (start, base) = (writer.output.text.len(), writer.members.len());
        writer.output.steps += writer.members.scan(variant, values);
        let is_written = self.write_members(variant, ObjectOrigin { ty, values, base }).await;
        self.writer.members.truncate(base);
        if !is_written {
            self.writer.output.truncate(start);
        }
        is_written
    }
}

/// Computes by shape whether there are lists below its objects.
fn shapes_with_lists(plan: &QueryPlan) -> Vec<bool> {
    let shapes = &plan.shapes;
    let mut has_lists = vec![false; shapes.len()];
    let mut is_changed = true;
    while std::mem::take(&mut is_changed) {
        for (id, shape) in shapes.iter().enumerate() {
            let mut fields = shape.variants.iter().flat_map(|variant| &variant.fields);
            let has_list = |field: &ShapeField| {
                matches!(field.ty.nullable(), ClientTypeRef::List(_))
                    || field.shape.is_some_and(|shape| has_lists.get(shape) == Some(&true))
            };
            if !has_lists[id] && fields.any(has_list) {
                (has_lists[id], is_changed) = (true, true);
            }
        }
    }
    has_lists
}
