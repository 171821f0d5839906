//! Host calls that may take long. They run in parts and yield to other guests in between.
//!
//! A response may be as long as the run's limit of received bytes, and a call can make the host traverse or
//! copy all of it. Scalars of that length are read in the pool.

use bytes::{Bytes, BytesMut};
use offload::SHORT_TEXT;
use sandbox::{Caller, GuestResult, Trapped};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::documents::ScalarPlace;
use super::guest::{MemoryView, QueryGuest};
use super::{RecordedResult, record_call};
use crate::limits::LimitKind;
use crate::problem::QueryError;
use crate::program::to_hex;

/// The bytes that are copied per part: some tenths of a millisecond, even to pages that are touched for the
/// first time.
pub(crate) const COPY_PART_BYTES: usize = 512 << 10;
/// The bytes that are traversed or hashed per part. A guest may have run for a millisecond before the call.
const PART_BYTES: usize = SHORT_TEXT;

/// The weight of each value in bytes, in addition to its text: the time to read its record is about the same.
const VALUE_WEIGHT: usize = 128;
/// The weight of each byte of a string with escapes, in addition to its text.
const ESCAPED_WEIGHT: usize = 8;

/// The values that one part of a host call traverses.
#[derive(Default)]
pub(super) struct TraversalPart {
    start: Option<usize>,
    values: usize,
    escaped: usize,
}

impl TraversalPart {
    /// Counts a value that begins at a position. Returns whether the value is left for the next part.
    pub(super) fn count_value(&mut self, start: usize) -> bool {
        let begin = *self.start.get_or_insert(start);
        self.values += 1;
        self.values > 1
            && start - begin + VALUE_WEIGHT * self.values + ESCAPED_WEIGHT * self.escaped > PART_BYTES
    }

    /// Counts the content of strings that had escapes, in bytes.
    pub(super) fn count_escaped(&mut self, bytes: usize) {
        self.escaped += bytes;
    }
}

/// The result of one part of a host call.
pub(super) enum PartOutcome<R> {
    /// The call is over.
    Done(R),
    /// Continue after yielding.
    Yield,
    /// Read a long scalar, then continue.
    Read(ScalarPlace),
    /// Copy bytes to an address, then continue, or return if `then` is set.
    Copy { bytes: Bytes, address: u32, result: Option<R> },
}

/// Runs a host function like [`super::call_host_function`], but in parts: calls `step` until it is done.
pub(super) async fn call_in_steps<R: RecordedResult + Send>(
    caller: &mut Caller<'_, QueryGuest>,
    function: &'static str,
    with: impl FnOnce(&mut MemoryView<'_>) -> Result<Value, QueryError> + Send,
    step: impl FnMut(&mut MemoryView<'_>) -> GuestResult<PartOutcome<R>> + Send,
) -> GuestResult<R> {
    record_call(&mut MemoryView::new(caller, function)?, with).map_err(Trapped::new)?;
    run_in_steps(caller, function, step).await
}

/// Runs a host function whose call has been recorded.
pub(super) async fn run_in_steps<R: RecordedResult + Send>(
    caller: &mut Caller<'_, QueryGuest>,
    function: &'static str,
    mut step: impl FnMut(&mut MemoryView<'_>) -> GuestResult<PartOutcome<R>> + Send,
) -> GuestResult<R> {
    let result = loop {
        match step(&mut MemoryView::new(caller, function)?)? {
            PartOutcome::Done(result) => break result,
            PartOutcome::Yield => yield_guest(caller).await,
            PartOutcome::Read(place) => {
                yield_guest(caller).await;
                caller.data_mut().read_scalar(place).await.map_err(Trapped::new)?;
            }
            PartOutcome::Copy { bytes, address: to, result: then } => {
                copy_to_guest(caller, function, &bytes, to).await?;
                if let Some(result) = then {
                    break result;
                }
            }
        }
    };
    caller.data_mut().tape.record_result(result.number()).map_err(Trapped::new)?;
    Ok(result)
}

/// Copies the next part of a text out of the guest's memory. Returns whether the copy is complete.
pub(super) fn copy_in(
    view: &MemoryView<'_>,
    (data, len): (u32, u32),
    copied: &mut BytesMut,
) -> GuestResult<bool> {
    let text = view.slice(data, len)?;
    copied.reserve(text.len() - copied.len());
    let rest = &text[copied.len()..];
    copied.extend_from_slice(&rest[..rest.len().min(COPY_PART_BYTES)]);
    Ok(copied.len() == text.len())
}

/// Copies the bytes that fit and returns the total length.
pub(super) fn copy_out(
    view: &MemoryView<'_>,
    bytes: &Bytes,
    (data, len): (u32, u32),
) -> GuestResult<PartOutcome<i32>> {
    let count = bytes.len().min(len as usize);
    view.slice(data, count as u32)?;
    let then = Some(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    Ok(PartOutcome::Copy { bytes: bytes.slice(..count), address: data, result: then })
}

/// Copies bytes in parts to an address that was checked.
async fn copy_to_guest(
    caller: &mut Caller<'_, QueryGuest>,
    function: &'static str,
    bytes: &[u8],
    mut to: u32,
) -> GuestResult<()> {
    for (number, part) in bytes.chunks(COPY_PART_BYTES).enumerate() {
        if number > 0 {
            yield_guest(caller).await;
        }
        MemoryView::new(caller, function)?.slice_mut(to, part.len() as u32)?.copy_from_slice(part);
        to += part.len() as u32;
    }
    Ok(())
}

/// Copies bytes out of the guest's memory.
pub(super) async fn copy_whole(
    caller: &mut Caller<'_, QueryGuest>,
    function: &'static str,
    text: (u32, u32),
) -> GuestResult<Bytes> {
    let mut copied = BytesMut::new();
    while !copy_in(&MemoryView::new(caller, function)?, text, &mut copied)? {
        yield_guest(caller).await;
    }
    Ok(copied.freeze())
}

/// Returns the hash of an answer, which a replay reproduces, in the format of recordings. Answers above the
/// size limit are not hashed, and none is if the run is not recorded or replayed.
pub(super) async fn answer_hash(
    caller: &mut Caller<'_, QueryGuest>,
    function: &'static str,
    (mut data, mut len): (u32, u32),
) -> GuestResult<String> {
    let guest = caller.data();
    if guest.tape.is_off() {
        return Ok(String::new());
    }
    let is_small = len as usize <= guest.limits.size(LimitKind::Output);
    if !is_small || MemoryView::new(caller, function)?.slice(data, len).is_err() {
        len = 0;
    }
    let mut hash = Sha256::new();
    while len > 0 {
        let part = len.min(PART_BYTES as u32);
        hash.update(MemoryView::new(caller, function)?.slice(data, part)?);
        (data, len) = (data + part, len - part);
        yield_guest(caller).await;
    }
    Ok(to_hex(&hash.finalize().into()))
}

/// Yields like an epoch tick does.
async fn yield_guest(caller: &mut Caller<'_, QueryGuest>) {
    caller.data_mut().on_epoch_tick();
    tokio::task::yield_now().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_fewer_strings_with_escapes() {
        let mut pass = TraversalPart::default();
        assert!(!pass.count_value(0) && !pass.count_value(PART_BYTES / 2));
        pass.count_escaped(PART_BYTES / ESCAPED_WEIGHT / 2);
        assert!(pass.count_value(PART_BYTES / 2 + 1));
    }
}
