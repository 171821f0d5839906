//! Assigns numbers to the objects of a text, from the innermost outwards. Equal objects receive the same
//! number (hash consing).
//!
//! An object is identified by its own bytes and the numbers of its nested objects. So every byte is hashed
//! and compared only once, whatever its nesting depth, and an object that occurs only as a reference equals
//! one that is written out.

use json::JsonDocument;

use crate::form::DedupForm;
use crate::hash;
use crate::write::{CutSpan, INSERTED_DOLLAR, TextCut};

/// The minimum length of a numbered object. For shorter ones a reference saves nothing.
pub(crate) const MIN_OBJECT_LENGTH: u64 = 24;
/// The maximum nesting depth. The form adds two levels and must itself stay within the JSON limit.
pub(crate) const MAX_PLAIN_DEPTH: usize = json::DEPTH - 2;
/// The maximum number of objects in a text or tree, each occurrence counted. Each takes up to 128 bytes until
/// the text is written.
pub(crate) const MAX_OBJECTS: usize = 128 << 10;

/// The criterion of equality between objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EqualityCriterion {
    /// Only known repetitions are equal. Nothing is hashed, and no other object receives a number.
    KnownRepetitions,
    /// Objects with the same spelling are equal.
    SameText,
}

/// The parts of a text that are written once and occur several times in the tree.
#[derive(Debug, Default)]
pub(crate) struct SharedParts {
    /// The start offsets of the first occurrences of objects, in order.
    pub(crate) first_occurrences: Vec<u32>,
    /// The offsets of the further occurrences, in order, with the index of the first one.
    pub(crate) repetitions: Vec<(u32, usize)>,
}

/// An object at its first occurrence.
#[derive(Clone, Debug)]
pub(crate) struct NumberedObject {
    hash: u64,
    pub(crate) span: CutSpan,
    /// The length of its own bytes, without those of the objects in it.
    pub(crate) own_length: u64,
    /// The length of its complete plain text.
    pub(crate) plain_length: u64,
    /// The nesting depth of its plain text.
    height: usize,
}

/// The numbered objects of a text.
#[derive(Debug)]
pub(crate) struct NumberedText {
    /// The objects by number. The number of an object is greater than those of its nested objects.
    pub(crate) objects: Vec<NumberedObject>,
    /// The cuts of all spans.
    pub(crate) cuts: Vec<TextCut>,
    /// The whole text.
    pub(crate) root: CutSpan,
    /// The length of its plain text.
    pub(crate) plain_length: u64,
    /// Whether any object occurs more than once.
    pub(crate) has_repetitions: bool,
}

/// Numbers the objects of a text without white space. Returns `None` if the text cannot be encoded or has too
/// many objects.
pub(crate) fn number_objects(
    document: &JsonDocument,
    shared: &SharedParts,
    form: DedupForm,
    equal: EqualityCriterion,
) -> Option<NumberedText> {
    let mut numbering = ObjectNumbering {
        text: document.text(),
        form,
        criterion: equal,
        number_table: NumberTable::new(document.text().len() / 256),
        objects: Vec::new(),
        cuts: Vec::new(),
        open_containers: Vec::with_capacity(16),
        pending_cuts: Vec::new(),
        first_numbers: vec![INSERTED_DOLLAR; shared.first_occurrences.len()],
        next_first: 0,
        has_repetitions: false,
        seed: hash::process_seed(),
    };
    numbering.open_containers.push(numbering.new_open_object(0, false));
    numbering.process_tokens(document, shared)?;
    numbering.finish()
}

/// A container whose end has not been reached.
struct OpenObject {
    start: u32,
    is_object: bool,
    /// The end of the text that has been hashed.
    hashed_end: u32,
    hash: u64,
    /// The start of its cuts in `done`.
    first_cut: usize,
    /// The maximum nesting depth of its content.
    content_depth: usize,
    /// Its index among the first occurrences of known repetitions, if it is one.
    first_index: Option<usize>,
    name_check: NameCheck,
}

/// The state of the check of an object's names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameCheck {
    /// The names need no check.
    Any,
    /// The only name so far consists of dollar signs.
    Dollar,
    /// There are several names, all of them of dollar signs.
    Dollars,
    /// No name may be mistaken for a member of the form.
    Root,
}

struct ObjectNumbering<'a> {
    text: &'a [u8],
    form: DedupForm,
    criterion: EqualityCriterion,
    number_table: NumberTable,
    objects: Vec<NumberedObject>,
    cuts: Vec<TextCut>,
    open_containers: Vec<OpenObject>,
    /// The cuts in the open containers.
    pending_cuts: Vec<TextCut>,
    /// The numbers of the first occurrences of known repetitions.
    first_numbers: Vec<u32>,
    next_first: usize,
    has_repetitions: bool,
    seed: u64,
}

impl<'a> ObjectNumbering<'a> {
    fn process_tokens(&mut self, document: &JsonDocument, shared: &SharedParts) -> Option<()> {
        let mut again = shared.repetitions.iter();
        let mut next = again.next();
        for (byte, at) in document.tokens() {
            let at = at as u32;
            while let Some(&(place, first)) = next.filter(|(place, _)| *place <= at) {
                self.record_repetition(place, *self.first_numbers.get(first)?)?;
                next = again.next();
            }
            match byte {
                b'{' => {
                    self.begin_container(at, true, shared)?;
                    if self.text.get(at as usize + 1) == Some(&b'"') {
                        self.check_name(at + 1)?;
                    }
                }
                b'[' => self.begin_container(at, false, shared)?,
                b'}' | b']' => self.end_container(at + 1)?,
                b',' => self.check_name(at + 1)?,
                _ => {}
            }
        }
        while let Some(&(place, first)) = next {
            self.record_repetition(place, *self.first_numbers.get(first)?)?;
            next = again.next();
        }
        Some(())
    }

    /// Extends a hash with these bytes.
    #[inline]
    fn extend_hash(&self, hash: u64, bytes: &[u8]) -> u64 {
        match self.criterion {
            EqualityCriterion::KnownRepetitions => hash,
            EqualityCriterion::SameText => hash::extend_bytes(hash, bytes),
        }
    }

    fn text_slice(&self, start: u32, end: u32) -> &'a [u8] {
        self.text.get(start as usize..end as usize).unwrap_or_default()
    }

    fn new_open_object(&self, start: u32, object: bool) -> OpenObject {
        OpenObject {
            start,
            is_object: object,
            hashed_end: start,
            hash: self.seed,
            first_cut: self.pending_cuts.len(),
            content_depth: 0,
            first_index: None,
            name_check: NameCheck::Any,
        }
    }

    fn begin_container(&mut self, at: u32, object: bool, shared: &SharedParts) -> Option<()> {
        if self.open_containers.len() > MAX_PLAIN_DEPTH {
            return None;
        }
        let outer = self.open_containers.last()?;
        let hash = self.extend_hash(outer.hash, self.text_slice(outer.hashed_end, at));
        self.open_containers.last_mut()?.hash = hash;
        let mut open = self.new_open_object(at, object);
        if shared.first_occurrences.get(self.next_first) == Some(&at) {
            open.first_index = Some(self.next_first);
            self.next_first += 1;
        }
        if object && self.open_containers.len() == 1 && self.form == DedupForm::GraphQl {
            open.name_check = NameCheck::Root;
        }
        self.open_containers.push(open);
        Some(())
    }

    /// Checks a name. In an array, the text at the position of a name is ignored.
    #[inline]
    fn check_name(&mut self, at: u32) -> Option<()> {
        let open = self.open_containers.last_mut()?;
        let first = open.start + 1 == at;
        if !open.is_object || (open.name_check == NameCheck::Any && !first) {
            return Some(());
        }
        let name = self.text.get(at as usize..).unwrap_or_default();
        open.name_check = match (open.name_check, name) {
            (NameCheck::Root, [b'"', b't' | b'r', b'"', ..] | [b'"', b'$' | b'\\', ..]) => return None,
            (NameCheck::Root, _) => NameCheck::Root,
            _ if !is_dollars(name) => NameCheck::Any,
            _ if first => NameCheck::Dollar,
            _ => NameCheck::Dollars,
        };
        Some(())
    }

    fn end_container(&mut self, end: u32) -> Option<()> {
        let open = self.open_containers.pop()?;
        let hash = self.extend_hash(open.hash, self.text_slice(open.hashed_end, end));
        match open.name_check {
            // Parsers keep only one of equal names, so that the meaning would be ambiguous.
            NameCheck::Dollars => return None,
            NameCheck::Dollar => {
                let place = open.start + 2;
                self.pending_cuts
                    .insert(open.first_cut, TextCut { start: place, end: place, number: INSERTED_DOLLAR });
            }
            NameCheck::Any | NameCheck::Root => {}
        }
        let number = if open.is_object { self.number_object(&open, end, hash)? } else { None };
        if let Some(number) = number {
            self.pending_cuts.truncate(open.first_cut);
            self.pending_cuts.push(TextCut { start: open.start, end, number });
        }
        if let (Some(first), Some(number)) = (open.first_index, number) {
            *self.first_numbers.get_mut(first)? = number;
        }
        let outer = self.open_containers.last_mut()?;
        outer.hashed_end = end;
        outer.content_depth = outer.content_depth.max(open.content_depth + 1);
        outer.hash = hash::extend_number(outer.hash, number.map_or(hash, u64::from));
        self.check_count()
    }

    /// Records a further occurrence of a known repetition.
    fn record_repetition(&mut self, place: u32, number: u32) -> Option<()> {
        let height = self.objects.get(number as usize)?.height;
        if self.open_containers.len() + height > MAX_PLAIN_DEPTH + 1 {
            return None;
        }
        let outer = self.open_containers.last()?;
        let hash = self.extend_hash(outer.hash, self.text_slice(outer.hashed_end, place));
        let outer = self.open_containers.last_mut()?;
        outer.hash = hash::extend_number(hash, u64::from(number));
        outer.content_depth = outer.content_depth.max(height);
        outer.hashed_end = place;
        self.pending_cuts.push(TextCut { start: place, end: place, number });
        self.has_repetitions = true;
        self.check_count()
    }

    /// Returns `None` if there are too many cuts. There is at most one for each occurrence of an object, and
    /// one for each inserted `$`.
    #[inline]
    fn check_count(&self) -> Option<()> {
        (self.cuts.len() + self.pending_cuts.len() <= MAX_OBJECTS).then_some(())
    }

    /// Returns the number of an object at its end; the inner `None` if it is too short to have one.
    fn number_object(&mut self, open: &OpenObject, end: u32, hash: u64) -> Option<Option<u32>> {
        if self.criterion == EqualityCriterion::KnownRepetitions && open.first_index.is_none() {
            return Some(None);
        }
        let (mut own, mut within) = (u64::from(end - open.start), 0_u64);
        let cuts = self.pending_cuts.get(open.first_cut..)?;
        for cut in cuts {
            own -= u64::from(cut.end - cut.start);
            within =
                within.saturating_add(self.objects.get(cut.number as usize).map_or(0, |it| it.plain_length));
        }
        let plain = own.saturating_add(within);
        if plain < MIN_OBJECT_LENGTH {
            return Some(None);
        }
        let same = |number: u32| {
            let object = self.objects.get(number as usize);
            object.is_some_and(|numbered_object| {
                numbered_object.hash == hash && self.has_same_text(numbered_object, open.start, end, cuts)
            })
        };
        let slot = match self.criterion {
            EqualityCriterion::KnownRepetitions => None,
            EqualityCriterion::SameText => match self.number_table.find(hash, same) {
                Ok(number) => {
                    self.has_repetitions = true;
                    return Some(Some(number));
                }
                Err(slot) => Some(slot),
            },
        };
        let number = u32::try_from(self.objects.len()).ok()?;
        let first = self.cuts.len() as u32;
        self.cuts.extend_from_slice(cuts);
        let span = CutSpan { start: open.start, end, cuts: first..self.cuts.len() as u32 };
        self.objects.push(NumberedObject {
            hash,
            span,
            own_length: own,
            plain_length: plain,
            height: open.content_depth + 1,
        });
        if let Some(slot) = slot {
            let objects = &self.objects;
            self.number_table
                .insert(slot, number, |number| objects.get(number as usize).map_or(0, |known| known.hash));
        }
        Some(Some(number))
    }

    /// Whether a numbered object has the same text.
    fn has_same_text(&self, object: &NumberedObject, mut start: u32, end: u32, cuts: &[TextCut]) -> bool {
        let CutSpan { start: mut place, end: last, cuts: range } = object.span.clone();
        let others = self.cuts.get(range.start as usize..range.end as usize).unwrap_or_default();
        let alike = others.iter().zip(cuts).all(|(other, cut)| {
            let alike = other.number == cut.number
                && self.text_slice(place, other.start) == self.text_slice(start, cut.start);
            (place, start) = (other.end, cut.end);
            alike
        });
        alike && others.len() == cuts.len() && self.text_slice(place, last) == self.text_slice(start, end)
    }

    fn finish(mut self) -> Option<NumberedText> {
        let end = u32::try_from(self.text.len()).ok()?;
        let first = self.cuts.len() as u32;
        let (mut own, mut within) = (u64::from(end), 0_u64);
        for cut in &self.pending_cuts {
            own -= u64::from(cut.end - cut.start);
            within =
                within.saturating_add(self.objects.get(cut.number as usize).map_or(0, |it| it.plain_length));
        }
        self.cuts.append(&mut self.pending_cuts);
        Some(NumberedText {
            root: CutSpan { start: 0, end, cuts: first..self.cuts.len() as u32 },
            objects: self.objects,
            cuts: self.cuts,
            plain_length: own.saturating_add(within),
            has_repetitions: self.has_repetitions,
        })
    }
}

/// Whether a text begins with a string of dollar signs only, escaped or not.
pub(crate) fn is_dollars(text: &[u8]) -> bool {
    let Some(mut rest) = text.strip_prefix(b"\"") else { return false };
    let mut any = false;
    while let Some(behind) = rest.strip_prefix(b"$").or_else(|| rest.strip_prefix(b"\\u0024")) {
        (any, rest) = (true, behind);
    }
    any && rest.starts_with(b"\"")
}

/// A hash table of object numbers with open addressing.
struct NumberTable {
    /// The slots. Their count is a power of two, and at least half of them are empty.
    slots: Vec<Option<std::num::NonZeroU32>>,
    used_slots: usize,
}

impl NumberTable {
    fn new(expected: usize) -> Self {
        Self { slots: vec![None; (expected * 2).next_power_of_two().max(64)], used_slots: 0 }
    }

    /// Returns the number of the equal object, or the free slot for it.
    fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while let Some(Some(number)) = self.slots.get(slot) {
            let number = number.get() - 1;
            if same(number) {
                return Ok(number);
            }
            slot = (slot + 1) & mask;
        }
        Err(slot)
    }

    fn insert(&mut self, slot: usize, number: u32, hash: impl Fn(u32) -> u64) {
        let entry = std::num::NonZeroU32::new(number.wrapping_add(1));
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = entry;
        }
        self.used_slots += 1;
        if self.used_slots * 2 > self.slots.len() {
            let numbers = std::mem::take(&mut self.slots);
            self.slots = vec![None; numbers.len() * 4];
            for number in numbers.into_iter().flatten() {
                let free = self.find(hash(number.get() - 1), |_| false);
                if let Some(slot) = free.err().and_then(|slot| self.slots.get_mut(slot)) {
                    *slot = Some(number);
                }
            }
        }
    }
}
