//! The turns of tasks that take what is there already.

use tokio::task::{coop::consume_budget, yield_now};

/// The bytes that a task takes in a turn: what it costs to receive and copy them is a small part of a millisecond.
pub const TURN_BYTES: usize = 128 * 1024;

/// What a task has taken in its turn. Tokio counts the pieces that a task takes, which may be of a byte or of a mebibyte each.
#[derive(Debug, Default)]
pub struct Turn {
    bytes: usize,
}

impl Turn {
    /// Counts a piece, and lets other tasks run if it was this one's last: [`TURN_BYTES`], or as many pieces as tokio allows.
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
    async fn others_have_their_turn_after_so_many_bytes_or_pieces() {
        assert_eq!(polls(4, TURN_BYTES).await, 5);
        assert_eq!(polls(8, TURN_BYTES / 2).await, 5);
        assert_eq!(polls(1, TURN_BYTES - 1).await, 1);
        assert!(polls(10_000, 1).await > 10);
    }
}
