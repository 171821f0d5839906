//! The writer of long responses: the same walk, but it leaves the serving thread when it takes long.
//!
//! The walk is asynchronous where there are lists: from the root object down to the objects without lists
//! below them, which are written at once as in a short response.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{DataWriter, ObjectOrigin, ValueReads, WriteStep};
use crate::execute::slot_value::{SlotLists, SlotValue};
use crate::plan::data::PositionId;
use crate::plan::shape::{FieldSource, ShapeField, ShapeId, ShapeVariant};
use crate::plan::types::ClientTypeRef;

/// The bytes and fields after which the writer yields: a few tenths of a millisecond of work.
const TURN_BYTES: usize = 256 << 10;
const TURN_STEPS: usize = 8_000;
/// The maximum size in bytes of an object that is copied without yielding.
const MAX_COPIED_BYTES: usize = 64 << 10;

/// The state of the yielding writer.
struct WriterTurns {
    /// By shape: whether there are lists below its objects.
    has_lists: Vec<bool>,
    /// The output size at which the writer yields next.
    bytes: usize,
    steps: usize,
}

impl<'r> DataWriter<'r> {
    /// Writes the root object, and returns whether it is not null.
    pub(super) async fn write_long_root(&mut self, values: &[SlotValue<'r>]) -> bool {
        let id = self.run.plan.root;
        let shape = &self.run.plan.shapes[id];
        let Some(variant) = shape.variants.first() else { return false };
        self.report_value_errors(id, values);
        self.scan_members(variant, values);
        let mut turns =
            WriterTurns { has_lists: self.shapes_with_lists(), bytes: TURN_BYTES, steps: TURN_STEPS };
        self.write_long_members(variant, ObjectOrigin { ty: shape.parent, values, base: 0 }, &mut turns).await
    }

    /// Computes by shape whether there are lists below its objects.
    fn shapes_with_lists(&self) -> Vec<bool> {
        let shapes = &self.run.plan.shapes;
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

    async fn yield_turn(&mut self, turns: &mut WriterTurns) {
        if self.out.len() > turns.bytes || self.steps > turns.steps {
            (turns.bytes, turns.steps) = (self.out.len() + TURN_BYTES, self.steps + TURN_STEPS);
            offload::move_to_pool().await;
        }
    }

    /// Writes an object's fields, as [`DataWriter::write_members`] does.
    async fn write_long_members(
        &mut self,
        variant: &'r ShapeVariant,
        place: ObjectOrigin<'_, 'r>,
        turns: &mut WriterTurns,
    ) -> bool {
        self.out.push(b'{');
        self.steps += variant.steps;
        for (number, field) in self.ordered_fields(variant).into_iter().enumerate() {
            if self.is_full() {
                return false;
            }
            if number > 0 {
                self.out.push(b',');
            }
            self.out.extend_from_slice(&field.member_name);
            if !self.write_long_field(field, place, turns).await {
                return false;
            }
        }
        self.out.push(b'}');
        true
    }

    /// Writes a field, as [`DataWriter::write_field`] does.
    async fn write_long_field(
        &mut self,
        field: &'r ShapeField,
        place: ObjectOrigin<'_, 'r>,
        turns: &mut WriterTurns,
    ) -> bool {
        let FieldSource::Slots(reads) = &field.source else { return self.write_field(field, place) };
        let mut below = Vec::new();
        let (reads, child) = self.collect_values(field, reads, place, &mut below);
        self.path.push(WriteStep::Key(&field.key));
        let is_written = self.write_long_value(&field.ty, (field, reads), &mut below, child, turns).await;
        self.path.pop();
        is_written
    }

    /// Writes a value, as [`DataWriter::write_value`] does.
    fn write_long_value<'w>(
        &'w mut self,
        ty: &'r ClientTypeRef,
        (field, reads): (&'r ShapeField, ValueReads<'r>),
        values: &'w mut [SlotValue<'r>],
        child: PositionId,
        turns: &'w mut WriterTurns,
    ) -> BoxFuture<'w, bool> {
        async move {
            let is_list = matches!(ty.nullable(), ClientTypeRef::List(_));
            let deep = field.shape.filter(|shape| turns.has_lists.get(*shape) == Some(&true));
            let is_there =
                values.iter().any(|value| !matches!(value, SlotValue::Absent | SlotValue::Failed(_)));
            if !is_there || !is_list && deep.is_none() {
                let is_written = self.write_value(ty, field, reads, values, child);
                self.yield_turn(turns).await;
                return is_written;
            }
            let before = self.errors.len();
            let is_written = match (ty.nullable(), deep) {
                (ClientTypeRef::List(item), _) => {
                    self.write_long_list(item, (field, reads), values, child, turns).await
                }
                (_, Some(shape)) => self.write_long_composite(shape, field, values, child, turns).await,
                (_, None) => false,
            };
            self.write_null(ty, field, is_written, before)
        }
        .boxed()
    }

    async fn write_long_list(
        &mut self,
        item: &'r ClientTypeRef,
        of: (&'r ShapeField, ValueReads<'r>),
        values: &mut [SlotValue<'r>],
        child: PositionId,
        turns: &mut WriterTurns,
    ) -> bool {
        let Some(mut split) = SlotLists::from_values(self.run, values) else {
            self.report_wrong_value(of.0, "a list", values);
            return false;
        };
        let is_deep = matches!(item.nullable(), ClientTypeRef::List(_))
            || of.0.shape.is_some_and(|shape| turns.has_lists.get(shape) == Some(&true));
        let (start, mut number) = (self.out.len(), 0);
        while let Some(is_there) = self.next_item(&mut split, number, values) {
            if !is_there {
                return true;
            }
            self.path.push(WriteStep::Index(number));
            let is_written = match is_deep {
                true => self.write_long_value(item, of, values, child, turns).await,
                false => self.write_value(item, of.0, of.1, values, child),
            };
            self.path.pop();
            if !is_written {
                break;
            }
            number += 1;
            self.yield_turn(turns).await;
        }
        self.truncate_output(start);
        false
    }

    /// Writes an object of the position `child`, as [`DataWriter::write_composite`] does.
    async fn write_long_composite(
        &mut self,
        shape: ShapeId,
        field: &'r ShapeField,
        values: &mut [SlotValue<'r>],
        child: PositionId,
        turns: &mut WriterTurns,
    ) -> bool {
        let key = match self.composite_key(shape, field, values, child) {
            Ok(key) => key,
            Err(is_written) => return is_written,
        };
        let (start, errors) = (self.out.len(), self.errors.len());
        let is_written = self.write_long_object(shape, values, turns).await;
        if let Some(key) = key.filter(|_| is_written && self.errors.len() == errors) {
            self.written_objects.add(key, start..self.out.len());
        }
        is_written
    }

    /// Writes an object, as [`DataWriter::write_object`] does.
    async fn write_long_object(
        &mut self,
        id: ShapeId,
        values: &[SlotValue<'r>],
        turns: &mut WriterTurns,
    ) -> bool {
        let Some((variant, ty)) = self.select_variant(id, values) else { return false };
        let copied = variant.copy_slot.and_then(|slot| values.get(slot)).and_then(|value| value.node());
        if copied.is_some_and(|node| node.text().len() <= MAX_COPIED_BYTES)
            && self.try_copy(id, variant, ty, values)
        {
            return true;
        }
        let (start, base) = (self.out.len(), self.hits.len());
        self.scan_members(variant, values);
        let is_written = self.write_long_members(variant, ObjectOrigin { ty, values, base }, turns).await;
        self.hits.truncate(base);
        if !is_written {
            self.truncate_output(start);
        }
        is_written
    }
}
