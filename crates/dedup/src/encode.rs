//! Selection of the objects that are shared, and encoding with these objects in a table.

use json::JsonDocument;

use crate::form::DedupForm;
use crate::hash_cons::{self, EqualityCriterion, NumberedText, SharedParts};
use crate::write::{CutReplacement, CutSpan, INSERTED_DOLLAR, write_span};

/// The length of a reference to one of the first entries, `{"$":0}`.
const REFERENCE_LENGTH: u64 = 7;

/// The representation of an object in the output.
#[derive(Clone, Copy)]
enum ObjectEncoding {
    /// The object is written out, with this length in bytes.
    Inline(u64),
    /// The object is this entry of the table.
    Shared(u32),
}

/// Returns the deduplicated form of a text without white space; `None` if it saves less than a tenth.
pub(crate) fn encode(
    document: &JsonDocument,
    shared: &SharedParts,
    form: DedupForm,
    equal: EqualityCriterion,
) -> Option<Vec<u8>> {
    if form == DedupForm::GraphQl && !document.text().starts_with(b"{") {
        return None;
    }
    let numbered = hash_cons::number_objects(document, shared, form, equal)?;
    if !numbered.has_repetitions {
        return None;
    }
    let (fates, table) = choose_encodings(&numbered);
    let body = encoded_length(&numbered, &fates, &numbered.root).saturating_add(table);
    let (open, close) = match form {
        DedupForm::GraphQl => ("{\"t\":[", "]"),
        DedupForm::Json => ("{\"t\":[", "],\"r\":"),
    };
    let size = body.saturating_add((open.len() + close.len() + 1) as u64);
    if size.saturating_mul(10) > numbered.plain_length.saturating_mul(9) {
        return None;
    }
    let mut out = Vec::with_capacity(usize::try_from(size).ok()?);
    let fill = |number: u32| match (fates.get(number as usize), numbered.objects.get(number as usize)) {
        (Some(ObjectEncoding::Shared(index)), _) => CutReplacement::Reference(*index),
        (Some(ObjectEncoding::Inline(_)), Some(object)) => CutReplacement::Span(&object.span),
        _ => CutReplacement::Text("$"),
    };
    let text = document.text();
    out.extend_from_slice(open.as_bytes());
    let before = out.len();
    for (object, _) in
        numbered.objects.iter().zip(&fates).filter(|(_, fate)| matches!(fate, ObjectEncoding::Shared(_)))
    {
        if out.len() > before {
            out.push(b',');
        }
        write_span(&mut out, text, &numbered.cuts, &object.span, fill);
    }
    out.extend_from_slice(close.as_bytes());
    let root = out.len();
    write_span(&mut out, text, &numbered.cuts, &numbered.root, fill);
    match form {
        // The members of the root follow the table: its opening brace becomes the comma between them.
        DedupForm::GraphQl => *out.get_mut(root)? = b',',
        DedupForm::Json => out.push(b'}'),
    }
    Some(out)
}

/// Returns the representation of each object, and the length of the table.
fn choose_encodings(numbered: &NumberedText) -> (Vec<ObjectEncoding>, u64) {
    let count = select_shared(numbered);
    let (mut fates, mut table, mut shared) = (Vec::with_capacity(count.len()), 0_u64, 0_u32);
    for (object, count) in numbered.objects.iter().zip(count) {
        let length = encoded_length(numbered, &fates, &object.span);
        fates.push(if count.is_some() {
            table = table.saturating_add(length + 1);
            shared += 1;
            ObjectEncoding::Shared(shared - 1)
        } else {
            ObjectEncoding::Inline(length)
        });
    }
    (fates, table)
}

/// Returns the number of occurrences of each object that is to be shared. Outer objects are decided first,
/// because the content of a shared object is written only once.
fn select_shared(numbered: &NumberedText) -> Vec<Option<u64>> {
    let mut counts = vec![0_u64; numbered.objects.len()];
    let mut pays = vec![None; numbered.objects.len()];
    let add = |counts: &mut Vec<u64>, span: &CutSpan, times: u64| {
        let range = span.cuts.start as usize..span.cuts.end as usize;
        for cut in
            numbered.cuts.get(range).unwrap_or_default().iter().filter(|cut| cut.number != INSERTED_DOLLAR)
        {
            if let Some(count) = counts.get_mut(cut.number as usize) {
                *count = count.saturating_add(times);
            }
        }
    };
    add(&mut counts, &numbered.root, 1);
    for (number, object) in numbered.objects.iter().enumerate().rev() {
        let count = counts.get(number).copied().unwrap_or_default();
        let within = u64::from(object.span.cuts.end - object.span.cuts.start);
        let length = object.own_length + within * REFERENCE_LENGTH;
        // The savings by references must exceed the cost of the entry.
        let shared =
            count > 1 && count.saturating_mul(length.saturating_sub(REFERENCE_LENGTH + 1)) > length + 1;
        if let Some(pays) = pays.get_mut(number).filter(|_| shared) {
            *pays = Some(count);
        }
        add(&mut counts, &object.span, if shared { 1 } else { count });
    }
    pays
}

/// Returns the length of a span in the output, given the representations of the objects in it.
fn encoded_length(numbered: &NumberedText, fates: &[ObjectEncoding], span: &CutSpan) -> u64 {
    let cuts = numbered.cuts.get(span.cuts.start as usize..span.cuts.end as usize).unwrap_or_default();
    cuts.iter().fold(u64::from(span.end - span.start), |length, cut| {
        let fill = match fates.get(cut.number as usize) {
            Some(ObjectEncoding::Inline(length)) => *length,
            Some(ObjectEncoding::Shared(index)) => {
                REFERENCE_LENGTH + u64::from(index.checked_ilog10().unwrap_or(0))
            }
            None => 1,
        };
        (length - u64::from(cut.end - cut.start)).saturating_add(fill)
    })
}
