//! Copies objects that a document already contains in the requested form: the selected members are present in
//! this order and valid for their types. No member of such an object is looked up. Its text is copied, in one
//! piece where no unwanted members intervene. Every other case is left to the general writer.

use json::{JsonNode, ObjectMembers, PassedValue};

use super::{DataWriter, ObjectOrigin};
use crate::execute::leaf;
use crate::plan::shape::{MemberScan, PlainKind, ShapeId, ShapeVariant};
use crate::plan::types::{ClientTypeKind, ClientTypeRef, ScalarKind};

/// The number of consecutive objects of a shape that may differ from this form before further attempts are
/// given up.
const MAX_FAILED_COPIES: u8 = 8;

/// By shape: the number of further attempts to copy an object.
pub(super) struct CopyAttempts(Vec<u8>);

impl CopyAttempts {
    pub(super) fn new(shapes: usize) -> Self {
        Self(vec![MAX_FAILED_COPIES; shapes])
    }

    /// Whether an object of the shape is worth a further attempt.
    #[inline]
    pub(super) fn is_left(&self, shape: ShapeId) -> bool {
        self.0[shape] > 0
    }

    /// Counts an attempt.
    #[inline]
    pub(super) fn count(&mut self, shape: ShapeId, is_copied: bool) {
        self.0[shape] = if is_copied { MAX_FAILED_COPIES } else { self.0[shape] - 1 };
    }
}

/// The copy of an object: a pending range of a document's text that follows the output written so far.
pub(super) struct ObjectCopy<'r> {
    text: &'r [u8],
    start: usize,
    end: usize,
    /// The maximum size of the output in bytes, and whether it has been exceeded; then nothing more is
    /// copied.
    max_bytes: usize,
    is_limit_exceeded: bool,
}

impl<'r> ObjectCopy<'r> {
    pub(super) fn new(text: &'r [u8], max_bytes: usize) -> Self {
        Self { text, start: 0, end: 0, max_bytes, is_limit_exceeded: false }
    }

    /// Whether the maximum size has been exceeded.
    pub(super) fn is_limit_exceeded(&self) -> bool {
        self.is_limit_exceeded
    }

    /// Writes the pending range.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
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

    /// Copies the members of an object. Returns false if it differs from the form that can be copied; part of
    /// it may be written then.
    pub(super) fn copy_members(
        &mut self,
        writer: &mut DataWriter<'r>,
        variant: &'r ShapeVariant,
        origin: ObjectOrigin<'_, 'r>,
        node: JsonNode<'r>,
    ) -> bool {
        writer.output.steps += variant.steps;
        let mut members = node.members();
        self.add(node.start(), node.start() + 1, &mut writer.output.text);
        for (number, field) in variant.fields.iter().enumerate() {
            let Some(copied) = &field.copied_field else {
                if number > 0 {
                    self.add_delimiter(b',', &mut writer.output.text);
                }
                self.flush(&mut writer.output.text);
                writer.output.text.extend_from_slice(&field.member_name);
                if !writer.write_field(field, origin) {
                    return false;
                }
                continue;
            };
            // The iterator is passed by value on the slow path, so that it stays in registers here.
            let member = loop {
                if let Some(value) = members.next_matching(&copied.member) {
                    break value;
                }
                match skip_to_member(members, variant, number, &mut writer.output.steps) {
                    Some(further) => members = further,
                    None => return false,
                }
            };
            let (start, name) = (member.start, copied.member.text().len());
            // Between two adjacent members there is only a comma.
            if copied.is_name_unchanged && self.is_adjacent(start, usize::from(number > 0)) {
                self.end = start + name;
            } else {
                if number > 0 {
                    self.add_delimiter(b',', &mut writer.output.text);
                }
                if copied.is_name_unchanged {
                    self.add(start, start + name, &mut writer.output.text);
                } else {
                    self.flush(&mut writer.output.text);
                    writer.output.text.extend_from_slice(&field.member_name);
                }
            }
            match copied.scalar {
                Some(scalar) if leaf::can_copy_verbatim(scalar, &member) => {
                    self.add(member.value, member.end, &mut writer.output.text);
                }
                _ if self.copy_value(writer, &field.ty, copied.plain_kind, member) => {}
                _ => return false,
            }
        }
        self.add_delimiter(b'}', &mut writer.output.text);
        true
    }

    fn copy_value(
        &mut self,
        writer: &mut DataWriter<'r>,
        ty: &'r ClientTypeRef,
        plain: PlainKind,
        passed: PassedValue<'r>,
    ) -> bool {
        let PassedValue { value, end, .. } = passed;
        if passed.first_byte() == b'n' {
            self.add(value, end, &mut writer.output.text);
            return !matches!(ty, ClientTypeRef::NonNull(_));
        }
        if let ClientTypeRef::List(item) = ty.nullable() {
            if passed.first_byte() != b'[' {
                return false;
            }
            self.add(value, value + 1, &mut writer.output.text);
            let (mut items, mut count) = (passed.node().items(), 0);
            while let Some(passed) = items.next_with_positions() {
                if count > 0 {
                    self.add_delimiter(b',', &mut writer.output.text);
                }
                count += 1;
                if self.is_limit_exceeded || !self.copy_value(writer, item, plain, passed) {
                    return false;
                }
            }
            self.add_delimiter(b']', &mut writer.output.text);
            writer.output.steps += count / 4;
            return true;
        }
        let fits = match plain {
            PlainKind::Scalar(scalar) => {
                leaf::can_copy_verbatim(scalar, &passed)
                    || scalar == ScalarKind::Int && leaf::is_int(passed.node())
            }
            PlainKind::Enum(id) => is_enum_value(
                writer.objects.plan.types.kind_of(id),
                self.text.get(value..end).unwrap_or_default(),
            ),
            PlainKind::Object(shape) => {
                let shape = &writer.objects.plan.shapes[shape];
                let [variant] = shape.variants.as_slice() else { return false };
                let origin = ObjectOrigin { ty: shape.parent, values: &[], base: writer.members.len() };
                return passed.first_byte() == b'{'
                    && self.copy_members(writer, variant, origin, passed.node());
            }
        };
        if fits {
            self.add(value, end, &mut writer.output.text);
        }
        fits
    }
}

/// Whether a text is the quoted name of a value of an enum.
fn is_enum_value(kind: &ClientTypeKind, text: &[u8]) -> bool {
    let ClientTypeKind::Enum(values) = kind else { return false };
    matches!(text, [b'"', name @ .., b'"'] if values.iter().any(|value| value.as_bytes() == name))
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
    let copied_field = rest().next()?;
    // All of these fields are members of one slot's object.
    let scan = variant.scans.first()?;
    loop {
        *steps += 1 + scan.comparisons() / 16;
        let (key, _) = members.next()?;
        let is_of_rest = match variant.fields.len() <= MemberScan::MAX_LINEAR_NAMES {
            true => rest().any(|copied| key.equals(copied.name.as_bytes())),
            false => scan.find(key).is_some_and(|name| scan.is_read_from(name, copied_field.read_number)),
        };
        if is_of_rest {
            return None;
        }
        if members.next_matches(&copied_field.member) {
            return Some(members);
        }
    }
}
