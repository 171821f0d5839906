//! The cost of a client's frames (RFC 9113, section 4.1), by their heads.
//!
//! h2 handles all frames that it has read in one poll, so it is given only as many bytes as fit in a turn. A
//! byte of DATA costs almost nothing. A byte of a head can refer to a field (RFC 7541, section 6.1), which
//! takes 60 to 150 ns. For SETTINGS, h2 visits each stream, which takes up to 10 us, and a client has no
//! reason to change its settings again and again.
//!
//! Field blocks are also scanned for the memory that they make h2 keep (`field_blocks.rs`).

use services::http2::{FrameCursor, FrameHead, stream_id};

use super::field_blocks::FieldBlockScanner;

/// The weight of a byte of any frame but DATA, whose bytes have the weight 1.
const BYTE_WEIGHT: u64 = 8;
/// The number of bytes that SETTINGS count as, beside their own.
const SETTINGS_BYTES: u64 = 1 << 10;
/// The length of a client's preface, which precedes its frames.
const PREFACE: usize = 24;

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
/// Flags of frames with a field block, and the lengths of what precedes it, beside the length of the padding.
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_FIELDS: usize = 5;
const PROMISED_STREAM: usize = 4;

/// The position in the bytes that a client sends.
#[derive(Debug)]
pub(in crate::server) struct FrameScanner {
    cursor: FrameCursor,
    /// The head of the last frame, and the weight of each byte of its payload.
    head: FrameHead,
    weight: u64,
    /// The bytes of the frame before its part of a field block, and the numbers of bytes that are left of
    /// both.
    prefix: u64,
    prefix_left: usize,
    fragment_left: usize,
    blocks: FieldBlockScanner,
    /// The number of bytes that were scanned.
    position: u64,
}

/// The bytes that fit in a turn, and their cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct ScannedFrames {
    pub(in crate::server) bytes: usize,
    /// The part of a turn that they take.
    pub(super) weight: u64,
    /// The number of bytes that they count as if they are useless.
    pub(super) cost: u64,
    /// The estimated number of bytes that h2's table of fields keeps after them.
    pub(super) retained_bytes: u64,
    /// The DATA frames that start in them and are not empty.
    pub(super) data_frames: Vec<DataFrame>,
}

/// The stream of a DATA frame, and the number of bytes of the connection before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataFrame {
    pub(super) stream: u32,
    pub(super) position: u64,
}

impl Default for FrameScanner {
    fn default() -> Self {
        Self {
            cursor: FrameCursor::at_preface(PREFACE),
            head: FrameHead::default(),
            weight: BYTE_WEIGHT,
            prefix: 0,
            prefix_left: 0,
            fragment_left: 0,
            blocks: FieldBlockScanner::default(),
            position: 0,
        }
    }
}

impl FrameScanner {
    /// Scans bytes up to their end, or until their weight has reached `room`.
    pub(in crate::server) fn scan(&mut self, bytes: &[u8], room: u64) -> ScannedFrames {
        let mut scanned = ScannedFrames::default();
        let mut rest = bytes;
        while scanned.weight < room && !rest.is_empty() {
            if self.cursor.payload_left() > 0 {
                let fitting = (room - scanned.weight).div_ceil(self.weight);
                let limit = usize::try_from(fitting).unwrap_or(usize::MAX);
                let payload = self.cursor.take_payload(&mut rest, limit);
                scanned.add(payload.len(), self.weight);
                self.scan_payload(payload);
                continue;
            }
            let before = rest.len();
            let head = self.cursor.next_head(&mut rest);
            scanned.add(before - rest.len(), BYTE_WEIGHT);
            self.blocks.skip(before - rest.len());
            if let Some(head) = head {
                self.begin_frame(head, &mut scanned);
            }
        }
        scanned.retained_bytes = self.blocks.retained_bytes();
        self.position += scanned.bytes as u64;
        scanned
    }

    fn begin_frame(&mut self, head: FrameHead, scanned: &mut ScannedFrames) {
        let FrameHead { length, kind, flags, stream } = head;
        self.head = head;
        self.weight = if kind == DATA { 1 } else { BYTE_WEIGHT };
        self.prefix = 0;
        self.prefix_left = 0;
        self.fragment_left = 0;
        match kind {
            DATA if length > 0 => {
                let position = self.position + scanned.bytes as u64;
                scanned.data_frames.push(DataFrame { stream, position });
            }
            SETTINGS => {
                scanned.weight += SETTINGS_BYTES * BYTE_WEIGHT;
                scanned.cost += SETTINGS_BYTES;
            }
            // h2 reads the field block of PUSH_PROMISE before it refuses the frame.
            HEADERS | PUSH_PROMISE => {
                self.blocks.begin_block();
                self.prefix_left = usize::from(flags & PADDED != 0) + behind_pad_length(kind, flags);
                self.fragment_left = length.saturating_sub(self.prefix_left);
            }
            CONTINUATION => self.fragment_left = length,
            _ => {}
        }
    }

    /// Scans bytes behind a frame's head.
    fn scan_payload(&mut self, part: &[u8]) {
        let mut rest = part;
        while self.prefix_left > 0
            && let Some((byte, behind)) = rest.split_first()
        {
            self.prefix = (self.prefix << 8) | u64::from(*byte);
            self.prefix_left -= 1;
            self.blocks.skip(1);
            rest = behind;
            if self.prefix_left == 0 {
                self.end_prefix();
            }
        }
        let (fragment, behind) = rest.split_at(self.fragment_left.min(rest.len()));
        self.fragment_left -= fragment.len();
        self.blocks.scan(fragment);
        self.blocks.skip(behind.len());
    }

    /// Excludes the padding from the field block, or all of it if h2 does not read it.
    fn end_prefix(&mut self) {
        let FrameHead { kind, flags, stream, .. } = self.head;
        let behind = behind_pad_length(kind, flags);
        if flags & PADDED != 0 {
            let padding = usize::from(self.prefix.to_be_bytes()[7 - behind]);
            self.fragment_left = self.fragment_left.saturating_sub(padding);
        }
        // A stream that depends on itself is reset without a look at its field block.
        let [_, _, _, dependency @ .., _] = self.prefix.to_be_bytes();
        if behind == PRIORITY_FIELDS && stream_id(dependency) == stream {
            self.fragment_left = 0;
        }
    }
}

/// Returns the number of bytes between the length of the padding and the field block.
fn behind_pad_length(kind: u8, flags: u8) -> usize {
    match kind {
        HEADERS if flags & PRIORITY != 0 => PRIORITY_FIELDS,
        PUSH_PROMISE => PROMISED_STREAM,
        _ => 0,
    }
}

impl ScannedFrames {
    fn add(&mut self, bytes: usize, weight: u64) {
        self.bytes += bytes;
        self.weight += bytes as u64 * weight;
        self.cost += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use services::http2::FRAME_HEAD;

    use super::*;
    use crate::tests::frames::frame;

    /// Returns a scanner behind the preface.
    fn scanner() -> FrameScanner {
        FrameScanner { cursor: FrameCursor::default(), ..FrameScanner::default() }
    }

    fn weight(frame: &[u8]) -> u64 {
        let scanned = scanner().scan(frame, u64::MAX);
        assert_eq!(scanned.bytes, frame.len());
        scanned.weight
    }

    #[test]
    fn weighs_frames_by_their_types() {
        let head = weight(&frame(DATA, 0, 1, &[]));
        assert_eq!(weight(&frame(DATA, 0, 1, &[0; 1_000])), head + 1_000);
        let head = weight(&frame(HEADERS, 0, 1, &[]));
        assert_eq!(weight(&frame(HEADERS, 0, 1, &[0; 1_000])), head + 1_000 * BYTE_WEIGHT);
        assert!(weight(&frame(SETTINGS, 0, 0, &[0; 6])) > SETTINGS_BYTES * BYTE_WEIGHT);
    }

    #[test]
    fn stops_at_the_end_of_a_turn() {
        let many = [frame(SETTINGS, 0, 0, &[]), frame(DATA, 0, 1, &[0; 100])].concat().repeat(100);
        let (mut scanner, mut rest, mut turns) = (scanner(), &many[..], 0);
        while !rest.is_empty() {
            let scanned = scanner.scan(rest, 20_000);
            assert!(scanned.bytes > 0 && scanned.weight < 20_000 + 10_000);
            rest = &rest[scanned.bytes..];
            turns += 1;
        }
        assert!((30..60).contains(&turns), "{turns}");
    }

    #[test]
    fn finds_the_streams_and_positions_of_data() {
        let frames = [(DATA, 1, 1), (DATA, 3, 0), (HEADERS, 5, 9), (DATA, 3 | (1 << 31), 16), (DATA, 1, 9)];
        let frames = frames.map(|(kind, stream, length)| frame(kind, 0, stream, &vec![0; length])).concat();
        let data_frames = [(1, 9), (3, 46), (1, 71)].map(|(stream, position)| DataFrame { stream, position });
        assert_eq!(scanner().scan(&frames, u64::MAX).data_frames, data_frames);
    }

    #[test]
    fn finds_field_blocks_in_frames() {
        const END_HEADERS: u8 = 4;
        // `:path` with incremental indexing. The same bytes in padding and in other frames are no fields.
        let path = [0x44, 1, b'/'];
        let retained = |frames: &[Vec<u8>]| scanner().scan(&frames.concat(), u64::MAX).retained_bytes;
        let head = FRAME_HEAD as u64;
        assert_eq!(retained(&[frame(HEADERS, END_HEADERS, 1, &path)]), head + 3);
        for kind in [DATA, SETTINGS, 6, 8, 42] {
            assert_eq!(retained(&[frame(kind, 0, 1, &path)]), 0);
        }
        let padded = [&[3][..], &path, &path].concat();
        assert_eq!(retained(&[frame(HEADERS, PADDED, 1, &padded)]), head + 1 + 3);
        let prioritized = [&[0, 0, 0, 3, 16][..], &path].concat();
        assert_eq!(retained(&[frame(HEADERS, PRIORITY, 1, &prioritized)]), head + 5 + 3);
        let both = [&[3, 0x80, 0, 0, 3, 16][..], &path, &path].concat();
        assert_eq!(retained(&[frame(HEADERS, PADDED | PRIORITY, 1, &both)]), head + 6 + 3);
        // h2 does not read the field block of a stream that depends on itself.
        assert_eq!(retained(&[frame(HEADERS, PRIORITY, 3, &prioritized)]), 0);
        assert_eq!(retained(&[frame(HEADERS, PADDED | PRIORITY, 3, &both)]), 0);
        let promise = [&[3, 0, 0, 0, 2][..], &path, &path].concat();
        assert_eq!(retained(&[frame(PUSH_PROMISE, PADDED, 1, &promise)]), head + 5 + 3);
        let continued = [frame(HEADERS, 0, 1, &path[..2]), frame(CONTINUATION, END_HEADERS, 1, &path[2..])];
        assert_eq!(retained(&continued), 2 * head + 3);
        // A frame that is shorter than its prefix.
        let short = [frame(HEADERS, PADDED | PRIORITY, 1, &[0]), frame(DATA, 0, 1, &path)];
        assert_eq!(retained(&short), 0);
    }

    proptest! {
        #[test]
        fn counts_the_same_however_the_bytes_are_cut(
            bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(4_u8), any::<u8>()], 0..2_000),
            room in 1_u64..5_000,
        ) {
            let frames = FrameScanner::default().scan(&bytes, u64::MAX);
            prop_assert_eq!(frames.bytes, bytes.len());
            let (mut scanner, mut rest, mut sum) = (FrameScanner::default(), &bytes[..], ScannedFrames::default());
            while !rest.is_empty() {
                let scanned = scanner.scan(&rest[..rest.len().min(7)], room);
                prop_assert!(scanned.bytes > 0);
                rest = &rest[scanned.bytes..];
                sum.bytes += scanned.bytes;
                sum.weight += scanned.weight;
                sum.cost += scanned.cost;
                sum.retained_bytes = scanned.retained_bytes;
                sum.data_frames.extend(scanned.data_frames);
            }
            prop_assert_eq!(sum, frames);
        }

        #[test]
        fn finds_the_same_fields_however_the_bytes_are_cut(
            frames in prop::collection::vec((0_u8..11, any::<u8>(), 0_u8..3, field_blocks()), 0..20),
            cut in 1_usize..50,
            room in 1_u64..5_000,
        ) {
            let frames = frames.iter().flat_map(|(kind, flags, stream, payload)| {
                frame(*kind, *flags, (*stream).into(), payload)
            });
            let bytes: Vec<u8> = frames.collect();
            let scanned_frames = scanner().scan(&bytes, u64::MAX);
            let (mut scanner, mut rest, mut retained) = (scanner(), &bytes[..], 0);
            while !rest.is_empty() {
                let scanned = scanner.scan(&rest[..rest.len().min(cut)], room);
                rest = &rest[scanned.bytes..];
                retained = scanned.retained_bytes;
            }
            prop_assert_eq!(retained, scanned_frames.retained_bytes);
        }
    }

    /// Payloads that consist of bytes with a meaning in field blocks, for the most part.
    fn field_blocks() -> impl Strategy<Value = Vec<u8>> {
        let bytes = prop::sample::select(vec![0, 1, 2, 0x40, 0x41, 0x44, 0x7e, 0x7f, 0x81, 0x82, 0xb9, b':']);
        prop::collection::vec(prop_oneof![4 => bytes, 1 => any::<u8>()], 0..100)
    }
}
