//! Estimates of CPU work for [`offload::leave_for`]: the lengths of the texts that are walked, and a weight for
//! each value that is selected, rendered or joined. A short text can have many values, and a long one few.

use json::{Kind, Node, Path};
use offload::SHORT_TEXT;

/// The weight of a value, in bytes of text: a few tenths of a microsecond.
pub(crate) const VALUE: usize = 32;
/// The number of values that take long, whatever their texts.
const MANY: usize = SHORT_TEXT / VALUE + 1;

/// Adds up estimates until they are long together: the rest makes no difference.
pub(crate) fn total(works: impl IntoIterator<Item = usize>) -> usize {
    let mut total = 0_usize;
    for work in works {
        total = total.saturating_add(work);
        if total > SHORT_TEXT {
            break;
        }
    }
    total
}

/// Returns the work for the values that a path selects.
pub(crate) fn of_values(root: Node<'_>, path: &Path) -> usize {
    let bytes = root.with_space().len();
    // To count the values of a long text would take long itself.
    if bytes > SHORT_TEXT { bytes } else { bytes + VALUE * path.count_within(root, MANY) }
}

/// Returns the work for the targets of a path: the items of the arrays that it selects.
pub(crate) fn of_targets(root: Node<'_>, path: &Path) -> usize {
    let work = of_values(root, path);
    if work > SHORT_TEXT {
        return work;
    }
    let mut items = 0;
    // A path that leads to no array is reported by the visit that follows.
    let _ = path.visit(root, &mut |node| {
        if node.kind() == Kind::Array {
            items += node.count();
        }
    });
    work + VALUE * items
}

/// Returns the number of keys of an item, up to a number that takes long.
pub(crate) fn keys(item: Node<'_>, path: &Path) -> usize {
    path.count_within(item, MANY)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use json::Document;

    use super::*;

    fn works(text: &str, path: &str) -> (usize, usize) {
        let document = Document::new(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        let path = Path::parse(path).unwrap();
        (of_values(document.root(), &path), of_targets(document.root(), &path))
    }

    #[test]
    fn estimates_grow_with_bytes_and_values() {
        let numbers = format!("[{}]", vec!["7"; 2_000].join(","));
        let (bytes, values) = (numbers.len(), 2_000 * VALUE);
        assert_eq!(works(&numbers, ""), (bytes + VALUE, bytes + VALUE + values));
        assert_eq!(works(&numbers, "[*]"), (bytes + values, bytes + values));
        let nested = format!("[{}]", [numbers.as_str(); 3].join(","));
        let (values, targets) = works(&nested, "[*][*]");
        assert!(values > SHORT_TEXT && targets == values, "{values}, {targets}");
        let text = format!("\"{}\"", "x".repeat(SHORT_TEXT));
        assert_eq!(works(&text, ""), (text.len(), text.len()));
    }

    #[test]
    fn adds_up_to_what_is_long() {
        assert_eq!(total([1, 2, 3]), 6);
        assert_eq!(total([1, usize::MAX, 3]), usize::MAX);
        assert_eq!(total(std::iter::repeat(SHORT_TEXT)), 2 * SHORT_TEXT);
    }
}
