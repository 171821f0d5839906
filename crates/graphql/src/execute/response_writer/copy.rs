//! Copies objects that a document already contains in the requested form: the selected members are present in
//! this order and valid for their types. No member of such an object is looked up. Its text is copied, in one
//! piece where no unwanted members intervene. Every other case is left to the general writer.

use json::{JsonNode, ObjectMembers, PassedValue};

use super::{DataWriter, ObjectOrigin, SlotValue};
use crate::execute::leaf;
use crate::plan::shape::{MemberScan, PlainKind, ShapeId, ShapeVariant};
use crate::plan::types::{ClientTypeKind, ClientTypeRef, ScalarKind, TypeId};

/// The number of consecutive objects of a shape that may differ from this form before further attempts are
/// given up.
pub(super) const MAX_COPY_ATTEMPTS: u8 = 8;

/// A pending range of a document's text that follows the output written so far.
struct CopyRange<'r> {
    text: &'r [u8],
    start: usize,
    end: usize,
    /// The maximum size of the output in bytes, and whether it has been exceeded; then nothing more is
    /// copied.
    max_bytes: usize,
    is_limit_exceeded: bool,
}

impl CopyRange<'_> {
    fn flush(&mut self, out: &mut Vec<u8>) {
        if out.len() + (self.end - self.start) > self.max_bytes {
            self.is_limit_exceeded = true;
            self.start = self.end;
            return;
        }
        out.extend_from_slice(self.text.get(self.start..self.end).unwrap_or_default());
        self.start = self.end;
    }

    #[inline]
    fn add(&mut self, start: usize, end: usize, out: &mut Vec<u8>) {
        if self.end != start {
            self.flush(out);
            self.start = start;
        }
        self.end = end;
    }

    /// Whether this offset is exactly `between` bytes after the end of a non-empty pending range.
    #[inline]
    fn is_adjacent(&self, place: usize, between: usize) -> bool {
        self.start < self.end && self.end + between == place
    }

    /// Adds a comma or bracket. It extends the pending range if it is the next byte of the text.
    #[inline]
    fn add_delimiter(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.start < self.end && self.text.get(self.end) == Some(&byte) {
            self.end += 1;
        } else {
            self.flush(out);
            out.push(byte);
        }
    }
}

impl<'r> DataWriter<'r> {
    /// Writes an object by copying. Returns false if this is not possible, and then nothing has been written.
    pub(super) fn try_copy(
        &mut self,
        id: ShapeId,
        variant: &'r ShapeVariant,
        ty: TypeId,
        values: &[SlotValue<'r>],
    ) -> bool {
        let Some(SlotValue::Node(document, node, _)) = variant.copy_slot.map(|slot| values[slot]) else {
            return false;
        };
        if self.copy_attempts[id] == 0 {
            return false;
        }
        let Some(document) = self.run.documents.get(document as usize) else { return false };
        let (length, errors) = (self.out.len(), self.errors.len());
        let most = self.max_bytes;
        let mut piece =
            CopyRange { text: document.text(), start: 0, end: 0, max_bytes: most, is_limit_exceeded: false };
        let place = ObjectOrigin { ty, values, base: self.hits.len() };
        if self.copy_members(&mut piece, variant, place, node) {
            piece.flush(&mut self.out);
            self.copy_attempts[id] = MAX_COPY_ATTEMPTS;
            self.is_limit_exceeded |= piece.is_limit_exceeded;
            return !self.is_limit_exceeded;
        }
        self.is_limit_exceeded |= piece.is_limit_exceeded;
        self.copy_attempts[id] -= 1;
        self.truncate_output(length);
        self.errors.truncate(errors);
        false
    }

    fn copy_members(
        &mut self,
        piece: &mut CopyRange<'r>,
        variant: &'r ShapeVariant,
        place: ObjectOrigin<'_, 'r>,
        node: JsonNode<'r>,
    ) -> bool {
        self.steps += variant.steps;
        let mut members = node.members();
        piece.add(node.start(), node.start() + 1, &mut self.out);
        for (number, field) in variant.fields.iter().enumerate() {
            let Some(copied) = &field.copied_field else {
                if number > 0 {
                    piece.add_delimiter(b',', &mut self.out);
                }
                piece.flush(&mut self.out);
                self.out.extend_from_slice(&field.member_name);
                if !self.write_field(field, place) {
                    return false;
                }
                continue;
            };
            // The iterator is passed by value on the slow path, so that it stays in registers here.
            let member = loop {
                if let Some(found) = members.next_matching(&copied.member) {
                    break found;
                }
                match skip_to_member(members, variant, number, &mut self.steps) {
                    Some(further) => members = further,
                    None => return false,
                }
            };
            let (start, name) = (member.start, copied.member.text().len());
            // Between two adjacent members there is only a comma.
            if copied.is_name_unchanged && piece.is_adjacent(start, usize::from(number > 0)) {
                piece.end = start + name;
            } else {
                if number > 0 {
                    piece.add_delimiter(b',', &mut self.out);
                }
                if copied.is_name_unchanged {
                    piece.add(start, start + name, &mut self.out);
                } else {
                    piece.flush(&mut self.out);
                    self.out.extend_from_slice(&field.member_name);
                }
            }
            match copied.scalar {
                Some(scalar) if leaf::can_copy_verbatim(scalar, &member) => {
                    piece.add(member.value, member.end, &mut self.out);
                }
                _ if self.copy_value(piece, &field.ty, copied.plain_kind, member) => {}
                _ => return false,
            }
        }
        piece.add_delimiter(b'}', &mut self.out);
        true
    }

    fn copy_value(
        &mut self,
        piece: &mut CopyRange<'r>,
        ty: &'r ClientTypeRef,
        plain: PlainKind,
        passed: PassedValue<'r>,
    ) -> bool {
        let PassedValue { value, end, .. } = passed;
        if passed.first_byte() == b'n' {
            piece.add(value, end, &mut self.out);
            return !matches!(ty, ClientTypeRef::NonNull(_));
        }
        if let ClientTypeRef::List(item) = ty.nullable() {
            if passed.first_byte() != b'[' {
                return false;
            }
            piece.add(value, value + 1, &mut self.out);
            let (mut items, mut count) = (passed.node().items(), 0);
            while let Some(passed) = items.next_with_positions() {
                if count > 0 {
                    piece.add_delimiter(b',', &mut self.out);
                }
                count += 1;
                if piece.is_limit_exceeded || !self.copy_value(piece, item, plain, passed) {
                    return false;
                }
            }
            piece.add_delimiter(b']', &mut self.out);
            self.steps += count / 4;
            return true;
        }
        let fits = match plain {
            PlainKind::Scalar(scalar) => {
                leaf::can_copy_verbatim(scalar, &passed)
                    || scalar == ScalarKind::Int && leaf::is_int(passed.node())
            }
            PlainKind::Enum(id) => self.is_enum_value(id, piece.text.get(value..end).unwrap_or_default()),
            PlainKind::Object(shape) => {
                let shape = &self.run.plan.shapes[shape];
                let [variant] = shape.variants.as_slice() else { return false };
                let place = ObjectOrigin { ty: shape.parent, values: &[], base: self.hits.len() };
                return passed.first_byte() == b'{'
                    && self.copy_members(piece, variant, place, passed.node());
            }
        };
        if fits {
            piece.add(value, end, &mut self.out);
        }
        fits
    }

    /// Whether a text is the quoted name of an enum value.
    fn is_enum_value(&self, id: TypeId, text: &[u8]) -> bool {
        let ClientTypeKind::Enum(values) = self.run.plan.types.kind_of(id) else { return false };
        matches!(text, [b'"', name @ .., b'"'] if values.iter().any(|value| value.as_bytes() == name))
    }
}

/// Advances to the member of the field with this number, past members that are not wanted. Returns `None` if
/// names are in another order or repeated, which the general writer handles. Counts the members and
/// comparisons.
#[cold]
fn skip_to_member<'r>(
    mut members: ObjectMembers<'r>,
    variant: &ShapeVariant,
    number: usize,
    steps: &mut usize,
) -> Option<ObjectMembers<'r>> {
    let rest = || variant.fields[number..].iter().filter_map(|field| field.copied_field.as_ref());
    let wanted = rest().next()?;
    // All of these fields are members of one slot's object.
    let scan = variant.scans.first()?;
    loop {
        *steps += 1 + scan.comparisons() / 16;
        let (key, _) = members.next()?;
        let is_of_rest = match variant.fields.len() <= MemberScan::MAX_LINEAR_NAMES {
            true => rest().any(|copied| key.equals(copied.name.as_bytes())),
            false => scan.find(key).is_some_and(|name| scan.is_read_from(name, wanted.read_number)),
        };
        if is_of_rest {
            return None;
        }
        if members.next_matches(&wanted.member) {
            return Some(members);
        }
    }
}
