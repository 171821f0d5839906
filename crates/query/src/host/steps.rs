//! Host calls that may take long: a part is done at a time, and others have their turn between two of them.
//!
//! An answer of a service has as many bytes as a run may receive, and a call can make the host pass over all of them, or
//! copy them. What is read of a scalar as long as that is read in the pool.

use bytes::{Bytes, BytesMut};
use sandbox::{Caller, GuestResult, Trapped};
use serde_json::Value;

use super::documents::ScalarPlace;
use super::{Gives, called};
use crate::guest::{Guest, View};
use crate::problem::QueryError;

/// Bytes that are passed over, or copied, in one go.
pub(super) const PART: usize = 512 << 10;

/// The bytes that each value counts as beside its text: reading its record takes about as long.
pub(super) const VALUE: usize = 128;

/// The part of a host call that passes over the values of a document.
#[derive(Default)]
pub(super) struct Pass {
    begin: Option<usize>,
    values: usize,
}

impl Pass {
    /// Counts a value that begins here. Returns whether it is left for the next part.
    pub(super) fn is_over(&mut self, start: usize) -> bool {
        let begin = *self.begin.get_or_insert(start);
        self.values += 1;
        self.values > 1 && start - begin + VALUE * self.values > PART
    }
}

/// What a part of a host call came to.
pub(super) enum Step<R> {
    /// The call is over.
    Done(R),
    /// There is more to do when others have had their turn.
    Turn,
    /// A long scalar is read before the call goes on.
    Read(ScalarPlace),
    /// Bytes are copied to an address before the call goes on, or is over.
    Copy { bytes: Bytes, to: u32, then: Option<R> },
}

/// Runs a host function as [`super::call`] does, part by part: `step` is called until it is done.
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

/// Copies one part more of a text of the guest's memory. Returns whether all of it is copied.
pub(super) fn copy_in(view: &View<'_>, (data, len): (u32, u32), copied: &mut BytesMut) -> GuestResult<bool> {
    let text = view.slice(data, len)?;
    copied.reserve(text.len() - copied.len());
    let rest = &text[copied.len()..];
    copied.extend_from_slice(&rest[..rest.len().min(PART)]);
    Ok(copied.len() == text.len())
}

/// Copies as much as fits and gives the whole length.
pub(super) fn copy_out(view: &View<'_>, bytes: &Bytes, (data, len): (u32, u32)) -> GuestResult<Step<i32>> {
    let count = bytes.len().min(len as usize);
    view.slice(data, count as u32)?;
    let then = Some(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    Ok(Step::Copy { bytes: bytes.slice(..count), to: data, then })
}

/// Copies to where there is room.
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

/// Lets others run, as a tick does.
async fn turn(caller: &mut Caller<'_, Guest>) {
    caller.data_mut().ticked();
    tokio::task::yield_now().await;
}
