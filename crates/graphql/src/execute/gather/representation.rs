//! Entity representations: the JSON objects by which a service of Apollo Federation finds its entities.

use crate::execute::object_reader::ObjectReader;
use crate::execute::slot_value::SlotValue;
use crate::plan::data::{EntityRepresentation, PositionId, RepresentationValue, allows_type};
use crate::plan::types::TypeId;

/// A writer of an object's representation.
pub(super) struct RepresentationWriter<'r> {
    objects: ObjectReader<'r>,
    out: Vec<u8>,
}

impl<'r> RepresentationWriter<'r> {
    pub(super) fn new(objects: ObjectReader<'r>) -> Self {
        Self { objects, out: Vec::new() }
    }

    /// Returns the text that was written.
    pub(super) fn into_text(self) -> Vec<u8> {
        self.out
    }

    /// Writes the representation of an object; `None` if a value is missing, or if only the type would be
    /// written.
    pub(super) fn write_object(
        &mut self,
        position: PositionId,
        representation: &EntityRepresentation,
        values: &[SlotValue<'r>],
        ty: Option<TypeId>,
    ) -> Option<()> {
        self.out.push(b'{');
        let start = self.out.len();
        let (mut has_fields, mut is_typename) = (false, true);
        let mut written: Vec<&str> = Vec::new();
        for field in &representation.0 {
            if field.type_filter.is_some() && !ty.is_some_and(|ty| allows_type(&field.type_filter, Some(ty)))
                || written.contains(&&*field.name)
            {
                continue;
            }
            written.push(&field.name);
            if self.out.len() > start {
                self.out.push(b',');
            }
            self.out.extend_from_slice(serde_json::Value::from(&*field.name).to_string().as_bytes());
            self.out.push(b':');
            is_typename &=
                matches!(field.value, RepresentationValue::Typename | RepresentationValue::Constant(_));
            match &field.value {
                RepresentationValue::Constant(text) => self.out.extend_from_slice(text),
                RepresentationValue::Typename => {
                    let name = self.objects.plan.types.name(ty?);
                    self.out.extend_from_slice(serde_json::Value::from(&**name).to_string().as_bytes());
                }
                RepresentationValue::Leaf => {
                    self.write_leaf(position, &field.key, values, ty)?;
                    has_fields = true;
                }
                RepresentationValue::Object(below) => {
                    let positions = &self.objects.plan.positions;
                    let child = *positions[position].children.get(&field.key)?;
                    let mut values = self.objects.child_values(&positions[child], None, values, ty);
                    self.write_value(child, below, &mut values)?;
                    has_fields = true;
                }
            }
        }
        self.out.push(b'}');
        let asks_typename = representation.0.iter().all(|field| {
            matches!(field.value, RepresentationValue::Typename | RepresentationValue::Constant(_))
        });
        (has_fields || asks_typename && is_typename && self.out.len() > start + 1).then_some(())
    }

    /// Writes a leaf of a representation. A `null` from a service is written as `null`, while a value that
    /// was never fetched makes the representation incomplete.
    fn write_leaf(
        &mut self,
        position: PositionId,
        key: &str,
        values: &[SlotValue<'r>],
        ty: Option<TypeId>,
    ) -> Option<()> {
        match self.objects.field_value(position, key, values, ty) {
            SlotValue::Node(_, node, _) => self.out.extend_from_slice(node.text()),
            SlotValue::Failed(_) | SlotValue::Many(_) => return None,
            SlotValue::Absent => {
                let slots = self.objects.plan.positions[position].slots.iter().zip(values);
                let is_there = slots.into_iter().any(|(slot, value)| {
                    slot.requested_entry(key, ty).is_some() && matches!(value, SlotValue::Node(..))
                });
                self.out.extend_from_slice(is_there.then_some(&b"null"[..])?);
            }
        }
        Some(())
    }

    /// Writes the representations of a value's objects, which may be a list.
    fn write_value(
        &mut self,
        position: PositionId,
        representation: &EntityRepresentation,
        values: &mut [SlotValue<'r>],
    ) -> Option<()> {
        if let Some(mut split) = self.objects.lists(values) {
            self.out.push(b'[');
            let mut is_first = true;
            while split.next(values) {
                if !std::mem::take(&mut is_first) {
                    self.out.push(b',');
                }
                self.write_value(position, representation, values)?;
            }
            self.out.push(b']');
            return Some(());
        }
        if values.iter().all(|value| matches!(value, SlotValue::Absent)) {
            self.out.extend_from_slice(b"null");
            return Some(());
        }
        let objects = self.objects;
        objects.fill_step_results(&objects.plan.positions[position], None, values);
        let ty = objects.object_type(position, values);
        self.write_object(position, representation, values, ty)
    }
}
