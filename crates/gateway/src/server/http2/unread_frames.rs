//! The DATA frames that h2 keeps until they are read (RFC 9113, section 6.1).
//!
//! h2 has a budget for short frames, but each long frame refills it, on whichever stream it arrives. A frame
//! takes about 250 bytes, and keeps the buffer that it was read from, even if the other frames in it were
//! read. h2 drops the frames of streams whose bodies were dropped, so these are not counted.
//!
//! The buffers are estimated by blocks of the bytes of the connection: frames that start in the same block
//! share them.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};

use super::frames::DataFrame;

/// The number of frames whose streams may still be accepted: more than a turn has room for (`traffic.rs`).
const MAX_UNASSIGNED_FRAMES: usize = 1_024;
/// The estimated number of bytes that a frame takes beside its buffer, in h2 and here.
const FRAME_BYTES: u64 = 272;
/// The length of a block, that of h2's buffers, and the estimated number of bytes of the buffers for a block.
/// h2 leaves up to half of a buffer empty if the next frame does not fit in it.
const BLOCK: u64 = 8 << 10;
const BLOCK_BYTES: u64 = 2 * BLOCK;

/// The unread DATA frames of a connection.
#[derive(Debug, Default)]
pub(super) struct UnreadFrames {
    /// The frames of the streams with a body.
    streams: BTreeMap<u32, StreamFrames>,
    /// The numbers of frames by the blocks in which they start.
    blocks: BTreeMap<u64, u64>,
    /// The sum of these numbers.
    frame_count: u64,
    /// The latest stream with a body.
    latest_stream: u32,
    /// The frames that are not counted yet.
    arrived_frames: Vec<DataFrame>,
}

/// The unread DATA frames of a stream.
#[derive(Debug, Default)]
struct StreamFrames {
    /// The blocks in which the frames start. h2 hands out the frames of a stream in order.
    blocks: VecDeque<u64>,
    /// The number of frames that were read and are not counted yet.
    read_early: u64,
}

impl UnreadFrames {
    /// Adds frames that have arrived.
    pub(super) fn add_arrived(&mut self, frames: Vec<DataFrame>) {
        self.arrived_frames.extend(frames);
    }

    /// Counts the frames that have arrived, except those of streams that may be accepted later: h2 does not
    /// handle all that it has read while it waits for the client to read. Returns the estimated number of
    /// bytes that the unread frames keep.
    pub(super) fn count_frames(&mut self) -> u64 {
        for frame in std::mem::take(&mut self.arrived_frames) {
            if let Some(stream) = self.streams.get_mut(&frame.stream) {
                if stream.read_early > 0 {
                    stream.read_early -= 1;
                    continue;
                }
                let block = frame.position / BLOCK;
                stream.blocks.push_back(block);
                *self.blocks.entry(block).or_default() += 1;
                self.frame_count += 1;
            } else if frame.stream > self.latest_stream && self.arrived_frames.len() < MAX_UNASSIGNED_FRAMES {
                self.arrived_frames.push(frame);
            }
        }
        self.frame_count * FRAME_BYTES + self.blocks.len() as u64 * BLOCK_BYTES
    }

    /// Starts to count the frames of a stream.
    pub(super) fn begin_body(&mut self, stream: u32) {
        self.streams.insert(stream, StreamFrames::default());
        self.latest_stream = stream;
    }

    /// Counts a frame as read.
    pub(super) fn note_frame_read(&mut self, stream: u32) {
        let Some(frames) = self.streams.get_mut(&stream) else { return };
        match frames.blocks.pop_front() {
            Some(block) => self.remove_frame(block),
            None => frames.read_early += 1,
        }
    }

    /// Stops counting the frames of a stream, whose body is dropped.
    pub(super) fn end_body(&mut self, stream: u32) {
        for block in self.streams.remove(&stream).unwrap_or_default().blocks {
            self.remove_frame(block);
        }
    }

    /// Stops counting a frame that starts in this block.
    fn remove_frame(&mut self, block: u64) {
        if let Entry::Occupied(mut frames) = self.blocks.entry(block) {
            self.frame_count -= 1;
            *frames.get_mut() -= 1;
            if *frames.get() == 0 {
                frames.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns frames at the start of the connection.
    fn frames(streams: &[u32]) -> Vec<DataFrame> {
        streams.iter().map(|stream| DataFrame { stream: *stream, position: 0 }).collect()
    }

    /// Counts the frames that have arrived. Returns the number of unread frames.
    fn count_unread(unread: &mut UnreadFrames) -> u64 {
        unread.count_frames();
        unread.frame_count
    }

    #[test]
    fn counts_frames_until_they_are_read_or_their_body_is_dropped() {
        let mut unread = UnreadFrames::default();
        // The first frames of a stream can arrive before its request is accepted.
        unread.add_arrived(frames(&[1, 1, 3]));
        unread.begin_body(1);
        assert_eq!(count_unread(&mut unread), 2);
        unread.begin_body(3);
        assert_eq!(count_unread(&mut unread), 3);
        unread.note_frame_read(1);
        assert_eq!(count_unread(&mut unread), 2);
        unread.end_body(3);
        assert_eq!(count_unread(&mut unread), 1);
        unread.note_frame_read(1);
        assert_eq!(unread.count_frames(), 0);
    }

    #[test]
    fn does_not_count_frames_of_streams_without_a_body() {
        let mut unread = UnreadFrames::default();
        unread.begin_body(1);
        unread.begin_body(3);
        unread.end_body(1);
        for _ in 0..2 * MAX_UNASSIGNED_FRAMES {
            unread.add_arrived(frames(&[1, 5]));
            assert_eq!(unread.count_frames(), 0);
        }
        assert!(unread.arrived_frames.len() <= MAX_UNASSIGNED_FRAMES);
    }

    #[test]
    fn frames_that_are_read_before_they_are_counted_offset_no_others() {
        let mut unread = UnreadFrames::default();
        unread.begin_body(1);
        unread.begin_body(3);
        unread.add_arrived(frames(&[1, 1, 3]));
        unread.note_frame_read(1);
        unread.note_frame_read(1);
        assert_eq!(count_unread(&mut unread), 1);
        unread.add_arrived(frames(&[1]));
        unread.note_frame_read(1);
        unread.end_body(1);
        assert_eq!(count_unread(&mut unread), 1);
    }

    #[test]
    fn frames_of_a_block_share_its_buffers() {
        let mut unread = UnreadFrames::default();
        for stream in [1, 3] {
            unread.begin_body(stream);
            let frames = (0..100).map(|number| DataFrame { stream, position: number * BLOCK / 10 });
            unread.add_arrived(frames.collect());
        }
        assert_eq!(unread.count_frames(), 200 * FRAME_BYTES + 10 * BLOCK_BYTES);
        unread.end_body(1);
        assert_eq!(unread.count_frames(), 100 * FRAME_BYTES + 10 * BLOCK_BYTES);
        for _ in 0..50 {
            unread.note_frame_read(3);
        }
        assert_eq!(unread.count_frames(), 50 * FRAME_BYTES + 5 * BLOCK_BYTES);
    }

    #[test]
    fn a_frame_keeps_a_buffer_whose_other_frames_were_read() {
        let mut unread = UnreadFrames::default();
        unread.begin_body(1);
        unread.begin_body(3);
        for number in 0..100 {
            let start = number * BLOCK;
            // The kept frame directly follows a short one that is read.
            for (stream, offset) in [(3, 0), (3, 8_000), (1, 8_010)] {
                unread.add_arrived(vec![DataFrame { stream, position: start + offset }]);
            }
            unread.count_frames();
            unread.note_frame_read(3);
            unread.note_frame_read(3);
        }
        assert_eq!(unread.count_frames(), 100 * (FRAME_BYTES + BLOCK_BYTES));
    }
}
