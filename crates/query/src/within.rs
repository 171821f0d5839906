//! Waiting until a deadline, where most of what is waited for is there already.

use std::time::Instant;

use futures_util::future::poll_immediate;
use tokio::time::error::Elapsed;
use tokio::time::timeout_at;

/// Waits until then at most. A timer is made only for what is not there at once, and boxed, since what is there
/// would keep the room for it otherwise.
///
/// # Errors
/// When it has not come by then.
pub(crate) async fn within<T>(
    deadline: Instant,
    mut coming: impl Future<Output = T> + Unpin,
) -> Result<T, Elapsed> {
    match poll_immediate(&mut coming).await {
        Some(there) => Ok(there),
        None => Box::pin(timeout_at(deadline.into(), coming)).await,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_there_is_never_late_and_what_does_not_come_is() {
        let past = Instant::now() - Duration::from_secs(1);
        assert_eq!(within(past, ready(7)).await, Ok(7));
        assert!(within(past, pending::<()>()).await.is_err());
        let soon = Box::pin(tokio::time::sleep(Duration::from_secs(1)));
        assert_eq!(within(Instant::now() + Duration::from_secs(2), soon).await, Ok(()));
    }
}
