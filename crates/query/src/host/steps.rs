//! Copies of many bytes into and out of a program's memory: in steps, between which others have the thread.

use bytes::Bytes;
use sandbox::{Caller, GuestResult};

use crate::guest::{Guest, View};

/// Bytes that are copied at once: a fraction of a millisecond.
pub(super) const STEP: u32 = 1 << 20;

/// Copies more than one step of a program's memory. `None` where there is less, where not all of it is there, or where it is
/// more than `most` or than the program may still use: then the host function copies it itself, or refuses it.
pub(super) async fn copy_in(
    caller: &mut Caller<'_, Guest>,
    function: &'static str,
    (address, len): (u32, u32),
    most: usize,
) -> Option<Bytes> {
    if len <= STEP || len as usize > most.min(caller.data().rest_memory()) {
        return None;
    }
    View::new(caller, function).ok()?.slice(address, len).ok()?;
    let mut copied = Vec::with_capacity(len as usize);
    for done in (0..len).step_by(STEP as usize) {
        {
            let view = View::new(caller, function).ok()?;
            copied.extend_from_slice(view.slice(address + done, (len - done).min(STEP)).ok()?);
        }
        tokio::task::yield_now().await;
    }
    Some(copied.into())
}

/// Copies as much as fits and returns the whole length.
pub(super) fn copy_out(view: &mut View<'_>, bytes: &[u8], (data, len): (u32, u32)) -> GuestResult<i32> {
    let count = bytes.len().min(len as usize);
    view.slice_mut(data, count as u32)?.copy_from_slice(&bytes[..count]);
    Ok(i32::try_from(bytes.len()).unwrap_or(i32::MAX))
}
