//! Writes a span of a text with its cuts replaced. Nested spans are processed iteratively.

use std::ops::Range;

/// A special cut number: a `$` that is inserted into a name.
pub(crate) const INSERTED_DOLLAR: u32 = u32::MAX;

/// A range within a value that is replaced in the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextCut {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The replacement: the number of an object, or [`INSERTED_DOLLAR`].
    pub(crate) number: u32,
}

/// A span of the text, and its cuts.
#[derive(Clone, Debug)]
pub(crate) struct CutSpan {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) cuts: Range<u32>,
}

/// The replacement of a cut.
pub(crate) enum CutReplacement<'a> {
    /// Another span with its own cuts.
    Span(&'a CutSpan),
    /// A reference to an entry of the table.
    Reference(u32),
    /// A fixed text.
    Text(&'static str),
}

/// Appends a span. `fill` returns the replacement for the number of a cut.
pub(crate) fn write_span<'a>(
    out: &mut Vec<u8>,
    text: &[u8],
    cuts: &[TextCut],
    span: &'a CutSpan,
    fill: impl Fn(u32) -> CutReplacement<'a>,
) {
    let mut spans = vec![span.clone()];
    while let Some(CutSpan { start, end, cuts: left }) = spans.last_mut() {
        let cut = left.next().and_then(|number| cuts.get(number as usize));
        let stop = cut.map_or(*end, |cut| cut.start);
        out.extend_from_slice(text.get(*start as usize..stop as usize).unwrap_or_default());
        let Some(cut) = cut else {
            spans.pop();
            continue;
        };
        *start = cut.end;
        match fill(cut.number) {
            CutReplacement::Span(span) => spans.push(span.clone()),
            CutReplacement::Reference(entry) => write_reference(out, entry),
            CutReplacement::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

/// Appends a reference to an entry of the table.
pub(crate) fn write_reference(out: &mut Vec<u8>, entry: u32) {
    out.extend_from_slice(b"{\"$\":");
    out.extend_from_slice(itoa::Buffer::new().format(entry).as_bytes());
    out.push(b'}');
}
