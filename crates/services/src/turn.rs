//! Cooperative scheduling for tasks that process data which is available at once.

use tokio::task::{coop::consume_budget, yield_now};

/// The bytes that a task processes before it yields: receiving and copying them takes a small part of a millisecond.
pub const TURN_BYTES: usize = 128 * 1024;

/// A counter of the bytes processed since the last yield. Tokio's budget counts pieces, which may be of one
/// byte or one mebibyte each.
#[derive(Debug, Default)]
pub struct Turn {
    bytes: usize,
}

impl Turn {
    /// Counts a piece, and yields after [`TURN_BYTES`] bytes, or after as many pieces as tokio's budget allows.
    pub async fn took(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes < TURN_BYTES {
            consume_budget().await;
        } else {
            self.bytes = 0;
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;

    async fn polls(pieces: usize, bytes: usize) -> usize {
        let taking = async {
            let mut turn = Turn::default();
            for _ in 0..pieces {
                turn.took(bytes).await;
            }
        };
        let (mut taking, mut polls) = (pin!(taking), 0);
        poll_fn(|context| {
            polls += 1;
            taking.as_mut().poll(context)
        })
        .await;
        polls
    }

    #[tokio::test]
    async fn yields_after_a_number_of_bytes_or_pieces() {
        assert_eq!(polls(4, TURN_BYTES).await, 5);
        assert_eq!(polls(8, TURN_BYTES / 2).await, 5);
        assert_eq!(polls(1, TURN_BYTES - 1).await, 1);
        assert!(polls(10_000, 1).await > 10);
    }
}
