//! Host calls that may take long. They run in parts and yield to other guests in between.
//!
//! A response may be as long as the run's limit of received bytes, and a call can make the host traverse or
//! copy all of it. Scalars of that length are read in the pool.

use bytes::{Bytes, BytesMut};
use sandbox::{Caller, GuestResult, Trapped};
use serde_json::Value;

use super::documents::ScalarPlace;
use super::{Gives, called};
use crate::guest::{Guest, View};
use crate::problem::QueryError;

/// The bytes that are traversed or copied per part.
pub(super) const PART: usize = 512 << 10;

/// The weight of each value in bytes, in addition to its text: the time to read its record is about the same.
pub(super) const VALUE: usize = 128;

/// The values that one part of a host call traverses.
#[derive(Default)]
pub(super) struct Pass {
    begin: Option<usize>,
    values: usize,
}

impl Pass {
    /// Counts a value that begins at a position. Returns whether the value is left for the next part.
    pub(super) fn is_over(&mut self, start: usize) -> bool {
        let begin = *self.begin.get_or_insert(start);
        self.values += 1;
        self.values > 1 && start - begin + VALUE * self.values > PART
    }
}

/// The result of one part of a host call.
pub(super) enum Step<R> {
    /// The call is over.
    Done(R),
    /// Continue after yielding.
    Turn,
    /// Read a long scalar, then continue.
    Read(ScalarPlace),
    /// Copy bytes to an address, then continue, or return if `then` is set.
    Copy { bytes: Bytes, to: u32, then: Option<R> },
}

/// Runs a host function like [`super::call`], but in parts: calls `step` until it is done.
pub(super) async fn call_in_steps<R: Gives + Send>(
    caller: &mut Caller<'_, Guest>,
    function: &'static str,
    with: impl FnOnce(&mut View<'_>) -> Result<Value, QueryError> + Send,
    mut step: impl FnMut(&mut View<'_>) -> GuestResult<Step<R>> + Send,
) -> GuestResult<R> {
    called(&mut View::new(caller, function)?, with).map_err(Trapped::new)?;
    let result = loop {
        match step(&mut View::new(caller, function)?)? {
            Step::Done(result) => break result,
            Step::Turn => turn(caller).await,
            Step::Read(place) => caller.data_mut().read_scalar(place).await.map_err(Trapped::new)?,
            Step::Copy { bytes, to, then } => {
                copy(caller, function, &bytes, to).await?;
                if let Some(result) = then {
                    break result;
                }
            }
        }
    };
    caller.data_mut().tape.gave(result.number()).map_err(Trapped::new)?;
    Ok(result)
}

/// Copies the next part of a text out of the guest's memory. Returns whether the copy is complete.
pub(super) fn copy_in(view: &View<'_>, (data, len): (u32, u32), copied: &mut BytesMut) -> GuestResult<bool> {
    let text = view.slice(data, len)?;
    copied.reserve(text.len() - copied.len());
    let rest = &text[copied.len()..];
    copied.extend_from_slice(&rest[..rest.len().min(PART)]);
    Ok(copied.len() == text.len())
}

/// Copies the bytes that fit and returns the total length.
pub(super) fn copy_out(view: &View<'_>, bytes: &Bytes, (data, len): (u32, u32)) -> GuestResult<Step<i32>> {
    let count = bytes.len().min(len as usize);
    view.slice(data, count as u32)?;
    let then = Some(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    Ok(Step::Copy { bytes: bytes.slice(..count), to: data, then })
}

/// Copies bytes in parts to an address that was checked.
async fn copy(
    caller: &mut Caller<'_, Guest>,
    function: &'static str,
    bytes: &[u8],
    mut to: u32,
) -> GuestResult<()> {
    for (number, part) in bytes.chunks(PART).enumerate() {
        if number > 0 {
            turn(caller).await;
        }
        View::new(caller, function)?.slice_mut(to, part.len() as u32)?.copy_from_slice(part);
        to += part.len() as u32;
    }
    Ok(())
}

/// Yields like an epoch tick does.
async fn turn(caller: &mut Caller<'_, Guest>) {
    caller.data_mut().ticked();
    tokio::task::yield_now().await;
}
