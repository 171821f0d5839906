//! The cost of a client's frames (RFC 9113, section 4.1), by their heads.
//!
//! h2 handles all frames that it has read in one poll, so it is given only as many bytes as fit in a turn. A byte
//! of DATA costs almost nothing. A byte of a head can refer to a field (RFC 7541, section 6.1), which takes 60 to
//! 150 ns. For SETTINGS, h2 visits each stream, which takes up to 10 us, and a client has no reason to change its
//! settings again and again.

/// The weight of a byte of any frame but DATA, whose bytes have the weight 1.
const BYTE_WEIGHT: u64 = 4;
/// The number of bytes that SETTINGS count as, beside their own.
const SETTINGS_BYTES: u64 = 1 << 10;
/// The lengths of the parts of a frame's head: length and type, then flags and stream.
const HEAD_START: usize = 4;
const HEAD_REST: usize = 5;
/// The length of a client's preface, which precedes its frames.
const PREFACE: usize = 24;

/// Types of frames.
const DATA: u8 = 0;
const SETTINGS: u8 = 4;

/// The position in the bytes that a client sends.
#[derive(Debug)]
pub(in crate::server) struct FrameScanner {
    /// The start of a frame's head, and the number of its bytes that have arrived.
    head: [u8; HEAD_START],
    arrived: usize,
    /// The number of bytes until the next frame, and the weight of each.
    left: usize,
    weight: u64,
}

/// The bytes that fit in a turn, and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct Scanned {
    pub(in crate::server) bytes: usize,
    /// The part of a turn that they take.
    pub(super) weight: u64,
    /// The number of bytes that they count as if they are useless.
    pub(super) cost: u64,
}

impl Default for FrameScanner {
    fn default() -> Self {
        Self { head: [0; HEAD_START], arrived: 0, left: PREFACE, weight: BYTE_WEIGHT }
    }
}

impl FrameScanner {
    /// Scans bytes up to their end, or until their weight has reached `room`.
    pub(in crate::server) fn scan(&mut self, bytes: &[u8], room: u64) -> Scanned {
        let mut scanned = Scanned::default();
        let mut rest = bytes;
        while scanned.weight < room
            && let Some((byte, behind)) = rest.split_first()
        {
            if self.left > 0 {
                let fitting = (room - scanned.weight).div_ceil(self.weight);
                let count = self.left.min(rest.len()).min(usize::try_from(fitting).unwrap_or(usize::MAX));
                scanned.add(count, self.weight);
                self.left -= count;
                rest = &rest[count..];
                continue;
            }
            scanned.add(1, BYTE_WEIGHT);
            self.head[self.arrived] = *byte;
            self.arrived += 1;
            if self.arrived == HEAD_START {
                self.begin_frame(&mut scanned);
            }
            rest = behind;
        }
        scanned
    }

    fn begin_frame(&mut self, scanned: &mut Scanned) {
        let [a, b, c, kind] = self.head;
        self.arrived = 0;
        self.left = HEAD_REST + u32::from_be_bytes([0, a, b, c]) as usize;
        self.weight = if kind == DATA { 1 } else { BYTE_WEIGHT };
        if kind == SETTINGS {
            scanned.weight += SETTINGS_BYTES * BYTE_WEIGHT;
            scanned.cost += SETTINGS_BYTES;
        }
    }
}

impl Scanned {
    fn add(&mut self, bytes: usize, weight: u64) {
        self.bytes += bytes;
        self.weight += bytes as u64 * weight;
        self.cost += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::frames::{HEADERS, frame};

    /// Returns a scanner behind the preface.
    fn scanner() -> FrameScanner {
        FrameScanner { left: 0, ..FrameScanner::default() }
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
        assert_eq!(weight(&frame(HEADERS, 0, 1, &[0; 1_000])), head + 4_000);
        assert!(weight(&frame(SETTINGS, 0, 0, &[0; 6])) > 4_096);
    }

    #[test]
    fn stops_at_the_end_of_a_turn() {
        let many = [frame(SETTINGS, 0, 0, &[]), frame(DATA, 0, 1, &[0; 100])].concat().repeat(100);
        let (mut scanner, mut rest, mut turns) = (scanner(), &many[..], 0);
        while !rest.is_empty() {
            let scanned = scanner.scan(rest, 10_000);
            assert!(scanned.bytes > 0 && scanned.weight < 10_000 + 5_000);
            rest = &rest[scanned.bytes..];
            turns += 1;
        }
        assert!((30..60).contains(&turns), "{turns}");
    }

    proptest! {
        #[test]
        fn counts_the_same_however_the_bytes_are_cut(
            bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(4_u8), any::<u8>()], 0..2_000),
            room in 1_u64..5_000,
        ) {
            let whole = FrameScanner::default().scan(&bytes, u64::MAX);
            prop_assert_eq!(whole.bytes, bytes.len());
            let (mut scanner, mut rest, mut sum) = (FrameScanner::default(), &bytes[..], Scanned::default());
            while !rest.is_empty() {
                let scanned = scanner.scan(&rest[..rest.len().min(7)], room);
                prop_assert!(scanned.bytes > 0);
                rest = &rest[scanned.bytes..];
                sum.bytes += scanned.bytes;
                sum.weight += scanned.weight;
                sum.cost += scanned.cost;
            }
            prop_assert_eq!(sum, whole);
        }
    }
}
