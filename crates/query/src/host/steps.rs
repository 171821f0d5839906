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

/// Copies what [`copy_out`] has left.
pub(super) async fn copy_rest(
    caller: &mut Caller<'_, Guest>,
    function: &'static str,
    mut rest: Bytes,
    address: u32,
) -> GuestResult<()> {
    let mut at = address.saturating_add(STEP);
    while !rest.is_empty() {
        tokio::task::yield_now().await;
        let step = rest.split_to(rest.len().min(STEP as usize));
        let mut view = View::new(caller, function)?;
        view.slice_mut(at, step.len() as u32)?.copy_from_slice(&step);
        at = at.saturating_add(STEP);
    }
    Ok(())
}

/// Copies the first step of as much as fits, leaves the other steps in `rest`, and returns the whole length.
pub(super) fn copy_out(
    view: &mut View<'_>,
    bytes: &Bytes,
    (address, len): (u32, u32),
    rest: &mut Bytes,
) -> GuestResult<i32> {
    let count = bytes.len().min(len as usize);
    let first = count.min(STEP as usize);
    view.slice_mut(address, count as u32)?[..first].copy_from_slice(&bytes[..first]);
    *rest = bytes.slice(first..count);
    Ok(i32::try_from(bytes.len()).unwrap_or(i32::MAX))
}
