//! Detection of objects that can be copied from a document in one pass: their fields are members of one
//! slot's object, unconditional, and have the same texts as in the response. Fields that come entirely from
//! other slots may be in between.

use json::KeyPattern;

use super::{FieldSource, ShapeBuilder, ShapeField};
use crate::plan::data::{FieldLookup, PositionId, SlotId, SlotOrigin};
use crate::plan::shape::ShapeId;
use crate::plan::types::{ClientTypeKind, ClientTypeRef, ScalarKind, TypeId};
use crate::plan::values::quote_json;

/// A field that is copied as a member.
#[derive(Debug)]
pub(crate) struct CopiedField {
    pub(crate) name: Box<str>,
    /// The number of its read.
    pub(crate) read_number: usize,
    /// The name as it occurs in a document.
    pub(crate) member: KeyPattern,
    /// Whether the member has the same name in the response.
    pub(crate) is_name_unchanged: bool,
    pub(crate) plain_kind: PlainKind,
    /// The scalar type of the value, if it is a single scalar; this is the common case.
    pub(crate) scalar: Option<ScalarKind>,
}

/// The required kind of the values, within all lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlainKind {
    Scalar(ScalarKind),
    Enum(TypeId),
    /// Objects whose shape is copied as a whole.
    Object(ShapeId),
}

impl ShapeBuilder<'_> {
    /// The slot from which an object with these fields is copied, if possible. Sets how each field is copied.
    pub(super) fn find_copy_slot(
        &self,
        position: Option<PositionId>,
        fields: &mut [ShapeField],
    ) -> Option<SlotId> {
        position?;
        let mut slot = None;
        for field in &mut *fields {
            if !field.occurrences.iter().all(|(_, when)| when.is_empty()) {
                return None;
            }
            let FieldSource::Slots(reads) = &field.source else { continue };
            if reads.iter().all(|read| read.lookup == FieldLookup::WholeValue) {
                continue;
            }
            let [read] = reads.as_slice() else { return None };
            let FieldLookup::Member(name) = &read.lookup else { return None };
            if read.type_filter.is_some()
                || read.spelling.is_some()
                || slot.is_some_and(|slot| slot != read.slot)
            {
                return None;
            }
            slot = Some(read.slot);
            let plain = self.plain_kind(field, read.slot)?;
            let member = KeyPattern::new(&[&quote_json(name)[..], b":"].concat());
            let is_kept = *member.text() == *field.member_name;
            let scalar = match plain {
                PlainKind::Scalar(scalar) if !matches!(field.ty.nullable(), ClientTypeRef::List(_)) => {
                    Some(scalar)
                }
                _ => None,
            };
            let (name, read) = (name.clone(), read.number);
            field.copied_field = Some(CopiedField {
                name,
                read_number: read,
                member,
                is_name_unchanged: is_kept,
                plain_kind: plain,
                scalar,
            });
        }
        slot
    }

    fn plain_kind(&self, field: &ShapeField, slot: SlotId) -> Option<PlainKind> {
        let Some(shape) = field.shape else {
            return match self.types.kind_of(field.ty.named_type()) {
                ClientTypeKind::Scalar(scalar) => Some(PlainKind::Scalar(*scalar)),
                ClientTypeKind::Enum(_) => Some(PlainKind::Enum(field.ty.named_type())),
                _ => None,
            };
        };
        let child = &self.positions[field.child_position?];
        let (response_shape, [object_slot]) = (&self.shapes[shape], child.slots.as_slice()) else {
            return None;
        };
        let [variant] = response_shape.variants.as_slice() else { return None };
        let is_whole = object_slot.origin == SlotOrigin::Parent(slot)
            && self.types.is_object(response_shape.parent)
            && variant.copy_slot.is_some()
            && variant.fields.iter().all(|field| field.copied_field.is_some());
        is_whole.then_some(PlainKind::Object(shape))
    }
}
