//! Flattening of a tree to one text that contains shared values once. So values that the handler knows to be
//! the same are neither hashed nor compared again.

use bytes::Bytes;
use json::{JsonDocument, JsonTree, RepeatedObject};

use crate::hash_cons::{MIN_OBJECT_LENGTH, SharedParts};
use crate::sharing::{self, SharedValues, VisitNumbers};

/// The text of a tree without its repetitions.
#[derive(Debug, Default)]
pub(crate) struct FlatText {
    pub(crate) text: Vec<u8>,
    pub(crate) shared: SharedParts,
}

/// Flattens a tree that has been walked. Returns `None` if it is too long. With `tidy`, white space between
/// tokens is removed.
pub(crate) fn flatten(tree: &JsonTree, values: &SharedValues, tidy: bool) -> Option<FlatText> {
    let flat_locations = vec![FlatLocation::New; values.object_count()];
    let mut flattening = FlattenWalk {
        layout: FlatText::default(),
        visits: values.visits(),
        locations: flat_locations,
        strip_whitespace: tidy,
    };
    flattening.flatten_value(tree)?;
    Some(flattening.layout)
}

struct FlattenWalk<'a> {
    layout: FlatText,
    visits: VisitNumbers<'a>,
    locations: Vec<FlatLocation>,
    strip_whitespace: bool,
}

/// The location of an object in the text.
#[derive(Clone, Copy)]
enum FlatLocation {
    /// The object has not been written.
    New,
    /// The object has been written, and its first occurrence has this index.
    First(usize),
    /// The object is so short that it is written at each occurrence.
    Short,
}

impl FlattenWalk<'_> {
    fn flatten_value(&mut self, tree: &JsonTree) -> Option<()> {
        let Some(number) = self.visits.next_number(tree) else { return self.flatten_content(tree) };
        let start = self.layout.text.len();
        let FlatText { shared, .. } = &mut self.layout;
        match self.locations.get(number)? {
            FlatLocation::First(first) => {
                shared.repetitions.push((u32::try_from(start).ok()?, *first));
                return Some(());
            }
            // The walk did not enter the value again, so that there are no visits for its content.
            FlatLocation::Short => {
                let mut text = Vec::new();
                tree.write(&mut text);
                return self.append_text(&Bytes::from(text));
            }
            FlatLocation::New => {}
        }
        let first = shared.first_occurrences.len();
        shared.first_occurrences.push(u32::try_from(start).ok()?);
        self.flatten_content(tree)?;
        let is_short = self.layout.text.len() - start < MIN_OBJECT_LENGTH as usize;
        *self.locations.get_mut(number)? =
            if is_short { FlatLocation::Short } else { FlatLocation::First(first) };
        Some(())
    }

    fn flatten_content(&mut self, tree: &JsonTree) -> Option<()> {
        match tree {
            JsonTree::Repeating(text, again) if !self.strip_whitespace => {
                self.flatten_repeating(text, again)?
            }
            JsonTree::Text(text) | JsonTree::Repeating(text, _) => self.append_text(text)?,
            JsonTree::Object(members) => {
                self.layout.text.push(b'{');
                self.flatten_members(members, true)?;
                self.layout.text.push(b'}');
            }
            JsonTree::Extended(text, members) => {
                self.append_text(text)?;
                self.layout.text.pop();
                let first = self.layout.text.last() == Some(&b'{');
                self.flatten_members(members, first)?;
                self.layout.text.push(b'}');
            }
            JsonTree::Array(items) => {
                self.layout.text.push(b'[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        self.layout.text.push(b',');
                    }
                    self.flatten_value(item)?;
                }
                self.layout.text.push(b']');
            }
        }
        Some(())
    }

    fn flatten_members(&mut self, members: &[json::TreeMember], mut first: bool) -> Option<()> {
        for (name, value) in members {
            if !std::mem::take(&mut first) {
                self.layout.text.push(b',');
            }
            self.layout.text.extend_from_slice(name);
            self.layout.text.push(b':');
            self.flatten_value(value)?;
        }
        Some(())
    }

    /// Writes a text without its recorded repetitions.
    fn flatten_repeating(&mut self, text: &[u8], objects: &[RepeatedObject]) -> Option<()> {
        let FlatText { text: out, shared } = &mut self.layout;
        let mut firsts: Vec<usize> =
            sharing::shareable_repetitions(objects).map(|object| object.first_position).collect();
        firsts.sort_unstable();
        firsts.dedup();
        let known = shared.first_occurrences.len();
        let (mut next, mut copied) = (firsts.iter().peekable(), 0);
        for RepeatedObject { position: at, first_position: first, length } in
            sharing::shareable_repetitions(objects)
        {
            while let Some(first) = next.next_if(|first| *first < at) {
                let place = out.len() + first.checked_sub(copied)?;
                shared.first_occurrences.push(u32::try_from(place).ok()?);
            }
            out.extend_from_slice(text.get(copied..*at)?);
            shared
                .repetitions
                .push((u32::try_from(out.len()).ok()?, known + firsts.binary_search(first).ok()?));
            copied = at + length;
        }
        out.extend_from_slice(text.get(copied..)?);
        Some(())
    }

    fn append_text(&mut self, text: &Bytes) -> Option<()> {
        if !self.strip_whitespace {
            self.layout.text.extend_from_slice(text);
            return Some(());
        }
        let document = JsonDocument::from_checked(text.clone()).ok()?;
        self.layout.text.extend_from_slice(&strip_whitespace(&document));
        Some(())
    }
}

/// Returns a text without the white space between its tokens.
pub(crate) fn strip_whitespace(document: &JsonDocument) -> Vec<u8> {
    let text = document.text();
    let mut tidy = Vec::with_capacity(text.len());
    let mut starts = document.tokens().map(|(_, at)| at).peekable();
    while let Some(start) = starts.next() {
        let end = starts.peek().copied().unwrap_or(text.len());
        tidy.extend_from_slice(text.get(start..end).unwrap_or_default().trim_ascii_end());
    }
    tidy
}
