//! The DATA frames that h2 keeps until they are read (RFC 9113, section 6.1).
//!
//! h2 has a budget for short frames, but each long frame refills it, on whichever stream it arrives. A frame takes
//! about 250 bytes, and keeps the buffer that it was read from. h2 drops the frames of streams whose bodies were
//! dropped, so these are not counted.

use std::collections::BTreeMap;

/// The number of frames whose streams may still be accepted: more than a turn has room for (`traffic.rs`).
const MAX_EARLY: usize = 1_024;

/// The number of unread DATA frames by stream.
#[derive(Debug, Default)]
pub(super) struct UnreadFrames {
    /// The numbers of frames of the streams with a body. They are negative if frames are read before they are counted.
    streams: BTreeMap<u32, i64>,
    /// The sum of these numbers.
    sum: i64,
    /// The latest stream with a body.
    latest: u32,
    /// The streams of the frames that are not counted yet.
    arrived: Vec<u32>,
}

impl UnreadFrames {
    /// Adds the streams of frames that have arrived.
    pub(super) fn add_arrived(&mut self, streams: Vec<u32>) {
        self.arrived.extend(streams);
    }

    /// Counts the frames that have arrived, except those of streams that may be accepted later: h2 does not handle all
    /// that it has read while it waits for the client to read. Returns the number of unread frames.
    pub(super) fn count(&mut self) -> u64 {
        for stream in std::mem::take(&mut self.arrived) {
            if let Some(frames) = self.streams.get_mut(&stream) {
                *frames += 1;
                self.sum += 1;
            } else if stream > self.latest && self.arrived.len() < MAX_EARLY {
                self.arrived.push(stream);
            }
        }
        u64::try_from(self.sum).unwrap_or_default()
    }

    /// Starts to count the frames of a stream.
    pub(super) fn begin_body(&mut self, stream: u32) {
        self.streams.insert(stream, 0);
        self.latest = stream;
    }

    /// Counts a frame as read.
    pub(super) fn note_frame_read(&mut self, stream: u32) {
        if let Some(frames) = self.streams.get_mut(&stream) {
            *frames -= 1;
            self.sum -= 1;
        }
    }

    /// Stops counting the frames of a stream, whose body is dropped.
    pub(super) fn end_body(&mut self, stream: u32) {
        self.sum -= self.streams.remove(&stream).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_frames_until_they_are_read_or_their_body_is_dropped() {
        let mut unread = UnreadFrames::default();
        // The first frames of a stream can arrive before its request is accepted.
        unread.add_arrived(vec![1, 1, 3]);
        unread.begin_body(1);
        assert_eq!(unread.count(), 2);
        unread.begin_body(3);
        assert_eq!(unread.count(), 3);
        unread.note_frame_read(1);
        assert_eq!(unread.count(), 2);
        unread.end_body(3);
        assert_eq!(unread.count(), 1);
    }

    #[test]
    fn does_not_count_frames_of_streams_without_a_body() {
        let mut unread = UnreadFrames::default();
        unread.begin_body(1);
        unread.begin_body(3);
        unread.end_body(1);
        for _ in 0..2 * MAX_EARLY {
            unread.add_arrived(vec![1, 5]);
            assert_eq!(unread.count(), 0);
        }
        assert!(unread.arrived.len() <= MAX_EARLY);
    }

    #[test]
    fn frames_that_are_read_before_they_are_counted_offset_no_others() {
        let mut unread = UnreadFrames::default();
        unread.begin_body(1);
        unread.begin_body(3);
        unread.add_arrived(vec![1, 1, 3]);
        unread.note_frame_read(1);
        unread.note_frame_read(1);
        assert_eq!(unread.count(), 1);
        unread.add_arrived(vec![1]);
        unread.note_frame_read(1);
        unread.end_body(1);
        assert_eq!(unread.count(), 1);
    }
}
