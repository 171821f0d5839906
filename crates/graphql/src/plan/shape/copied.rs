//! Which objects of the answer are copied out of a document in one go: those whose fields are members of one slot's object,
//! under no condition and spelt as the answer spells them. Fields that come whole out of other slots may stand between.

use json::Spelling;

use super::{Field, Shaping, Source};
use crate::plan::data::{From, Lookup, PositionId, SlotId};
use crate::plan::shape::ShapeId;
use crate::plan::types::{Kind, Scalar, Ty, TypeId};
use crate::plan::values::quoted;

/// A field as a member that is copied.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) name: Box<str>,
    /// The name as a document spells it.
    pub(crate) member: Spelling,
    /// Whether the answer has it under this name.
    pub(crate) is_kept: bool,
    pub(crate) plain: Plain,
    /// What its value is where that is one scalar, which most are.
    pub(crate) scalar: Option<Scalar>,
}

/// What its values have to be, within all lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plain {
    Scalar(Scalar),
    Enum(TypeId),
    /// Objects of a shape that is copied wholly.
    Object(ShapeId),
}

impl Shaping<'_> {
    /// The slot that an object with these fields is copied from, if it can be; then the fields know what of it they are.
    pub(super) fn copies(&self, position: Option<PositionId>, fields: &mut [Field]) -> Option<SlotId> {
        position?;
        let mut slot = None;
        for field in &mut *fields {
            if !field.when.iter().all(|(_, when)| when.is_empty()) {
                return None;
            }
            let Source::Slots(reads) = &field.source else { continue };
            if reads.iter().all(|read| read.lookup == Lookup::Itself) {
                continue;
            }
            let [read] = reads.as_slice() else { return None };
            let Lookup::Member(name) = &read.lookup else { return None };
            if read.only.is_some() || read.spelling.is_some() || slot.is_some_and(|slot| slot != read.slot) {
                return None;
            }
            slot = Some(read.slot);
            let plain = self.plain(field, read.slot)?;
            let member = Spelling::new(&[&quoted(name)[..], b":"].concat());
            let is_kept = *member.text() == *field.quoted;
            let scalar = match plain {
                Plain::Scalar(scalar) if !matches!(field.ty.nullable(), Ty::List(_)) => Some(scalar),
                _ => None,
            };
            field.copied = Some(Copied { name: name.clone(), member, is_kept, plain, scalar });
        }
        slot
    }

    fn plain(&self, field: &Field, slot: SlotId) -> Option<Plain> {
        let Some(shape) = field.shape else {
            return match self.types.kind_of(field.ty.named()) {
                Kind::Scalar(scalar) => Some(Plain::Scalar(*scalar)),
                Kind::Enum(_) => Some(Plain::Enum(field.ty.named())),
                _ => None,
            };
        };
        let child = &self.positions[field.child?];
        let (known, [only]) = (&self.shapes[shape], child.slots.as_slice()) else { return None };
        let [variant] = known.variants.as_slice() else { return None };
        let is_whole = only.from == From::Parent(slot)
            && self.types.is_object(known.parent)
            && variant.copies.is_some()
            && variant.fields.iter().all(|field| field.copied.is_some());
        is_whole.then_some(Plain::Object(shape))
    }
}
