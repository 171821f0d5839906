//! The memory that the dynamic table of a client's field blocks keeps (RFC 7541, section 2.3.2).
//!
//! h2 copies the values of fields into its table, but not those of pseudo-header fields: such an entry keeps
//! the buffer that it was read from, which may have all of its field block, or other frames. The table has a
//! limit for the lengths of its entries, and none for these buffers.

/// The bytes before a field block that can share a buffer with its first entry.
const BUFFER_BYTES: u64 = 16 << 10;
/// The number of insertions after which an entry is not in the table anymore. The table has 4,096 bytes, and
/// an entry counts as 32 and its text.
const MAX_ENTRIES: u32 = u128::BITS;
/// The index of the latest entry in the dynamic table.
const FIRST_DYNAMIC: usize = 62;

/// Scans field blocks for insertions into the dynamic table.
#[derive(Debug, Default)]
pub(super) struct FieldBlockScanner {
    /// The number of bytes that were received: by now, at the start of the field block, and at the last
    /// insertion of a pseudo-header field.
    position: u64,
    block_start: u64,
    last_insertion: u64,
    /// The part of a representation that the next byte belongs to.
    part: FieldPart,
    /// The integer that is being read, and the shift of its next bits. The bytes that are left of a string.
    integer: usize,
    shift: u32,
    /// Whether the field is inserted into the table, and whether it is a pseudo-header field.
    is_inserted: bool,
    is_pseudo: bool,
    /// Whether the string is a name.
    is_name: bool,
    /// Whether the latest insertions were pseudo-header fields. The lowest bit is the latest.
    pseudo_history: u128,
    /// The number of insertions in the current period, and the bytes that those of this period and of the one
    /// before keep.
    insertions: u32,
    recent_bytes: u64,
    earlier_bytes: u64,
}

/// A part of a field's representation (RFC 7541, section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FieldPart {
    #[default]
    Representation,
    /// The rest of an integer without strings behind it: the index of a whole field, or a table size.
    Integer,
    /// The rest of the index of a literal's name.
    NameIndex,
    /// The start of a string's length.
    String,
    /// The rest of a string's length.
    Length { is_huffman: bool },
    /// The start of a literal name.
    Name { is_huffman: bool },
    /// The rest of a string.
    Text,
}

impl FieldBlockScanner {
    /// The estimated number of bytes that entries keep.
    pub(super) fn retained_bytes(&self) -> u64 {
        self.recent_bytes + self.earlier_bytes
    }

    /// Passes over bytes that belong to no field block.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.position += bytes as u64;
    }

    /// Starts a field block.
    pub(super) fn begin_block(&mut self) {
        self.block_start = self.position;
        self.part = FieldPart::Representation;
    }

    /// Scans the next bytes of a field block. h2 refuses malformed blocks, and ends their connections.
    pub(super) fn scan(&mut self, fragment: &[u8]) {
        let mut rest = fragment;
        while let Some(byte) = rest.first().copied() {
            let part = self.part;
            let count = if part == FieldPart::Text { self.integer.min(rest.len()) } else { 1 };
            self.skip(count);
            rest = &rest[count..];
            match part {
                FieldPart::Representation => self.begin_representation(byte),
                FieldPart::Integer if self.extend_integer(byte) => self.part = FieldPart::Representation,
                FieldPart::NameIndex if self.extend_integer(byte) => self.end_name_index(),
                FieldPart::String => {
                    let is_huffman = byte & 0x80 != 0;
                    self.part = FieldPart::Length { is_huffman };
                    if self.begin_integer(byte, 7) {
                        self.end_length(is_huffman);
                    }
                }
                FieldPart::Length { is_huffman } if self.extend_integer(byte) => self.end_length(is_huffman),
                FieldPart::Integer | FieldPart::NameIndex | FieldPart::Length { .. } => {}
                FieldPart::Name { is_huffman } => {
                    // The code of `:` has seven bits (RFC 7541, appendix B).
                    self.is_pseudo = if is_huffman { byte >> 1 == 0x5c } else { byte == b':' };
                    self.part = FieldPart::Text;
                    self.advance_text(1);
                }
                FieldPart::Text => self.advance_text(count),
            }
        }
    }

    fn begin_representation(&mut self, byte: u8) {
        // An indexed field, a literal with incremental indexing, a table size, or a literal without indexing.
        let (prefix, part) = match byte.leading_zeros() {
            0 => (7, FieldPart::Integer),
            1 => (6, FieldPart::NameIndex),
            2 => (5, FieldPart::Integer),
            _ => (4, FieldPart::NameIndex),
        };
        self.is_inserted = prefix == 6;
        self.part = part;
        match (self.begin_integer(byte, prefix), part) {
            (true, FieldPart::NameIndex) => self.end_name_index(),
            (true, _) => self.part = FieldPart::Representation,
            (false, _) => {}
        }
    }

    /// Starts an integer with a prefix of this many bits (RFC 7541, section 5.1). Returns whether it ends
    /// there.
    fn begin_integer(&mut self, byte: u8, prefix: u32) -> bool {
        let mask = (1_u8 << prefix) - 1;
        self.integer = (byte & mask).into();
        self.shift = 0;
        byte & mask < mask
    }

    /// Adds a byte to an integer. Returns whether it ends there. h2 refuses integers of more than five bytes.
    fn extend_integer(&mut self, byte: u8) -> bool {
        self.integer = self.integer.saturating_add(usize::from(byte & 0x7f) << self.shift);
        self.shift = (self.shift + 7).min(21);
        byte & 0x80 == 0
    }

    fn end_name_index(&mut self) {
        self.is_name = self.integer == 0;
        self.is_pseudo = match self.integer.checked_sub(FIRST_DYNAMIC) {
            // `:authority`, `:path` and `:scheme`. Methods and statuses are copied.
            None => matches!(self.integer, 1 | 4..=7),
            Some(age) => {
                let latest = u32::try_from(age).ok().and_then(|age| self.pseudo_history.checked_shr(age));
                latest.is_some_and(|latest| latest & 1 == 1)
            }
        };
        self.part = FieldPart::String;
    }

    fn end_length(&mut self, is_huffman: bool) {
        if self.integer == 0 {
            // h2 does not insert a field without a name, and ends the connection unless the block continues.
            self.is_inserted &= !self.is_name;
            self.end_text();
        } else {
            self.part = if self.is_name { FieldPart::Name { is_huffman } } else { FieldPart::Text };
        }
    }

    fn advance_text(&mut self, count: usize) {
        self.integer -= count;
        if self.integer == 0 {
            self.end_text();
        }
    }

    fn end_text(&mut self) {
        if std::mem::take(&mut self.is_name) {
            self.part = FieldPart::String;
            return;
        }
        self.part = FieldPart::Representation;
        if self.is_inserted {
            self.insert();
        }
    }

    /// Counts an insertion into the table. A field that is too long for the table empties it, so that the
    /// positions of entries are those of insertions in any case.
    fn insert(&mut self) {
        self.pseudo_history = (self.pseudo_history << 1) | u128::from(self.is_pseudo);
        self.insertions += 1;
        if self.insertions == MAX_ENTRIES {
            self.insertions = 0;
            self.earlier_bytes = std::mem::take(&mut self.recent_bytes);
        }
        if self.is_pseudo {
            let in_block = self.position - self.block_start;
            self.recent_bytes += (self.position - self.last_insertion).min(BUFFER_BYTES + in_block);
            self.last_insertion = self.position;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A literal with incremental indexing: `:path` with the value `/`.
    const PATH: [u8; 3] = [0x44, 1, b'/'];
    /// The same of the field `a`, with an empty value.
    const FIELD: [u8; 4] = [0x40, 1, b'a', 0];

    /// Returns the retained bytes after these field blocks.
    fn retained_after(blocks: &[&[u8]]) -> u64 {
        let mut scanner = FieldBlockScanner::default();
        for block in blocks {
            scanner.begin_block();
            scanner.scan(block);
        }
        scanner.retained_bytes()
    }

    #[test]
    fn counts_insertions_of_pseudo_header_fields() {
        let cases: &[(&[u8], u64)] = &[
            (&PATH, 3),
            (&[0x41, 1, b'a'], 3),
            (&[0x86, 0x46, 0], 3),
            (&[0x40, 5, b':', b'p', b'a', b't', b'h', 1, b'/'], 9),
            // `:path` with Huffman codes.
            (&[0x40, 0x84, 0xb9, 0x58, 0xd3, 0x3f, 1, b'/'], 8),
            // A length of two more bytes.
            (&[&[0x44, 0x7f, 0x81, 0x01][..], &[b'/'; 256]].concat(), 260),
            // A table size, a literal without indexing and one that is never indexed.
            (&[0x3f, 0xe1, 0x1f, 0x04, 1, b'/', 0x14, 1, b'/', 0x44, 0], 11),
            (&[0x04, 1, b'/', 0x14, 1, b'/', 0x00, 2, b':', b'a', 0], 0),
            // Fields that are copied.
            (&[0x42, 1, b'A', 0x48, 3, b'2', b'0', b'0', 0x7a, 1, b'a'], 0),
            (&FIELD, 0),
            (&[0x40, 0x81, 0x1f, 1, b'a'], 0),
            // No part of a value is a representation.
            (&[0x7a, 3, 0x44, 0x44, 0x44], 0),
        ];
        for (block, bytes) in cases {
            assert_eq!(retained_after(&[block]), *bytes, "{block:x?}");
        }
    }

    #[test]
    fn counts_no_more_than_a_buffer_and_the_block_before_an_insertion() {
        let mut scanner = FieldBlockScanner::default();
        scanner.skip(1 << 20);
        scanner.begin_block();
        scanner.scan(&PATH);
        scanner.skip(10);
        scanner.begin_block();
        scanner.scan(&PATH);
        assert_eq!(scanner.retained_bytes(), BUFFER_BYTES + 3 + 13);
    }

    #[test]
    fn recognizes_pseudo_header_fields_by_their_positions_in_the_table() {
        // Fields with the name of the latest entry and of the one before, and with empty values.
        let (latest, second) = ([0x7e, 0], [0x7f, 0, 0]);
        assert_eq!(retained_after(&[&PATH, &latest]), 3 + 2);
        assert_eq!(retained_after(&[&FIELD, &latest]), 0);
        assert_eq!(retained_after(&[&PATH, &FIELD, &latest]), 3);
        assert_eq!(retained_after(&[&PATH, &FIELD, &second]), 3 + 4 + 3);
        // An index of nothing.
        assert_eq!(retained_after(&[&PATH, &[0x7f, 0xff, 0xff, 0xff, 0x7f, 0]]), 3);
    }

    #[test]
    fn a_field_without_a_name_is_not_inserted() {
        assert_eq!(retained_after(&[&PATH, &[0x40, 0, 1, b'a'], &[0x7e, 0]]), 3 + 4 + 2);
    }

    #[test]
    fn counts_entries_until_later_ones_have_displaced_them() {
        let fields = |count: usize| FIELD.repeat(count);
        assert_eq!(retained_after(&[&PATH, &fields(127)]), 3);
        assert_eq!(retained_after(&[&PATH, &fields(256)]), 0);
        assert_eq!(retained_after(&[&PATH.repeat(1_000)]), 3 * (1_000 - 767));
    }
}
