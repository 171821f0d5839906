//! HTTP/2 (RFC 9113), as far as clients and servers share it: the position in a peer's frames. h2 implements
//! the rest. `transport/http2/paced_reader.rs` paces a service's frames by it,
//! `gateway/src/server/http2/frames.rs` weighs those of a client.

/// The length of a frame's head (RFC 9113, section 4.1).
pub const FRAME_HEAD: usize = 9;

/// The head of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHead {
    /// The number of bytes of the payload.
    pub length: usize,
    /// The type of the frame.
    pub kind: u8,
    /// The flags of the frame.
    pub flags: u8,
    /// The stream of the frame, or 0 for the connection.
    pub stream: u32,
}

/// The position in frames that arrive in pieces of any length.
#[derive(Debug, Default)]
pub struct FrameCursor {
    /// The bytes of the next frame's head that have arrived, and their number.
    head: [u8; FRAME_HEAD],
    arrived: usize,
    /// The number of bytes until the next frame's head.
    payload_left: usize,
}

impl FrameCursor {
    /// Creates the position at a preface of this length, which counts as a payload.
    #[must_use]
    pub fn at_preface(length: usize) -> Self {
        Self { payload_left: length, ..Self::default() }
    }

    /// The number of bytes until the next frame's head.
    #[inline]
    #[must_use]
    pub fn payload_left(&self) -> usize {
        self.payload_left
    }

    /// Takes the bytes that belong to the current payload, at most `limit`.
    #[inline]
    pub fn take_payload<'b>(&mut self, bytes: &mut &'b [u8], limit: usize) -> &'b [u8] {
        let (payload, behind) = bytes.split_at(self.payload_left.min(bytes.len()).min(limit));
        self.payload_left -= payload.len();
        *bytes = behind;
        payload
    }

    /// Takes the bytes up to the end of the next frame's head, and returns the head if it is complete.
    #[inline]
    pub fn next_head(&mut self, bytes: &mut &[u8]) -> Option<FrameHead> {
        self.take_payload(bytes, usize::MAX);
        let (part, behind) = bytes.split_at(bytes.len().min(FRAME_HEAD - self.arrived));
        self.head[self.arrived..][..part.len()].copy_from_slice(part);
        self.arrived += part.len();
        *bytes = behind;
        if self.arrived < FRAME_HEAD {
            return None;
        }
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.arrived = 0;
        self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
        Some(FrameHead { length: self.payload_left, kind, flags, stream: stream_id(stream) })
    }
}

/// Returns the number of a stream, without the reserved bit (RFC 9113, section 4.1).
#[inline]
#[must_use]
pub fn stream_id(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & (u32::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_same_heads_however_the_bytes_are_cut() {
        let first = FrameHead { length: 3, kind: 0, flags: 1, stream: 5 };
        let empty = FrameHead { length: 0, kind: 4, flags: 0, stream: 0 };
        let long = FrameHead { length: 1 << 16, kind: 1, flags: 0x24, stream: u32::MAX >> 1 };
        let frames = [
            &b"preface"[..],
            &[0, 0, 3, 0, 1, 0, 0, 0, 5, 7, 7, 7],
            &[0, 0, 0, 4, 0, 0, 0, 0, 0],
            &[1, 0, 0, 1, 0x24, 0xff, 0xff, 0xff, 0xff, 7],
        ]
        .concat();
        for cut in 1..=frames.len() {
            let (mut cursor, mut heads) = (FrameCursor::at_preface(7), Vec::new());
            for mut piece in frames.chunks(cut) {
                while let Some(head) = cursor.next_head(&mut piece) {
                    heads.push(head);
                }
                assert!(piece.is_empty(), "pieces of {cut} bytes");
            }
            assert_eq!(heads, [first, empty, long], "pieces of {cut} bytes");
            assert_eq!(cursor.payload_left(), long.length - 1, "pieces of {cut} bytes");
        }
    }

    #[test]
    fn takes_no_more_than_the_payload_and_the_limit() {
        let (mut cursor, mut bytes) = (FrameCursor::at_preface(5), &b"payload"[..]);
        assert_eq!(cursor.take_payload(&mut bytes, 2), b"pa");
        assert_eq!(cursor.take_payload(&mut bytes, 9), b"ylo");
        assert_eq!(cursor.take_payload(&mut bytes, 9), b"");
        assert_eq!(bytes, b"ad");
    }
}
