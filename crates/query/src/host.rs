//! The host side of a running program: its state, and the host functions, which are the operations that a
//! program can't do by computing alone.
//!
//! The program's store contains the state in `guest.rs`, with the upstream calls of `futures.rs` and the JSON
//! documents of `documents.rs`. The host functions are in `calls.rs`, `json.rs`, `answer.rs` and here, and
//! `values.rs` writes JSON values into a program's memory. `steps.rs` runs long functions in parts, and
//! `recorded_arguments.rs` reads arguments for a recording.
//!
//! Every address and handle is untrusted: invalid ones end the run with an error, and never harm the gateway.
//! Forbidden operations end the run as well, so that the program's author sees the reason.

mod answer;
mod calls;
mod documents;
mod futures;
mod guest;
mod json;
mod recorded_arguments;
mod steps;
mod values;

use query_abi::{FailureKind, HOST_MODULE};
use sandbox::{Caller, GuestResult, Linker, Trapped};
use serde_json::{Value, json};

pub(crate) use guest::{AnswerBuilder, ConsoleTail, QueryGuest};
pub(crate) use steps::COPY_PART_BYTES;

use crate::problem::QueryError;
use guest::MemoryView;

/// The maximum length of a request for random bytes: more than any program needs at once.
const MAX_RANDOM_BYTES: u32 = 64 << 10;
/// The maximum length of a JSON Pointer and of a member's name, in bytes. Reading them does not yield.
const MAX_TEXT_BYTES: u32 = 16 << 10;

/// Adds every function of `query_abi::HOST_FUNCTIONS` to a linker.
pub(crate) fn add_host_functions(linker: &mut Linker<QueryGuest>) -> GuestResult<()> {
    answer::add_to_linker(linker)?;
    calls::add_to_linker(linker)?;
    json::add_to_linker(linker)?;
    linker.func_wrap(HOST_MODULE, "clock", |mut caller: Caller<'_, QueryGuest>| {
        call_host_function(&mut caller, "clock", |_| Ok(Value::Null), |view| Ok(clock(view)))
    })?;
    linker.func_wrap(HOST_MODULE, "random", |mut caller: Caller<'_, QueryGuest>, data: u32, len: u32| {
        call_host_function(
            &mut caller,
            "random",
            |_| Ok(json!({ "len": len })),
            |view| random(view, data, len),
        )
    })?;
    linker.func_wrap(HOST_MODULE, "log", |mut caller: Caller<'_, QueryGuest>, text: u32, len: u32| {
        let with = |view: &mut MemoryView<'_>| Ok(json!({ "text": view.note_text(text, len)? }));
        call_host_function(&mut caller, "log", with, |view| log(view, text, len))
    })?;
    linker.func_wrap(
        HOST_MODULE,
        "fail",
        |mut caller: Caller<'_, QueryGuest>, kind: i32, text: u32, len: u32, line: u32, column: u32| {
            let with = |view: &mut MemoryView<'_>| {
                Ok(json!({ "kind": kind, "text": view.note_text(text, len)?, "line": line, "column": column }))
            };
            call_host_function(&mut caller, "fail", with, |view| fail(view, kind, (text, len), (line, column)))
        },
    )?;
    Ok(())
}

/// Runs a host function for a program and records the call. All host functions use it, so that no call is
/// missing in a recording. `with` builds the call's arguments in the form that recordings have.
fn call_host_function<R: RecordedResult>(
    caller: &mut Caller<'_, QueryGuest>,
    function: &'static str,
    with: impl FnOnce(&mut MemoryView<'_>) -> Result<Value, QueryError>,
    body: impl FnOnce(&mut MemoryView<'_>) -> GuestResult<R>,
) -> GuestResult<R> {
    let mut view = MemoryView::new(caller, function)?;
    record_call(&mut view, with).map_err(Trapped::new)?;
    let result = body(&mut view)?;
    view.guest.tape.record_result(result.number()).map_err(Trapped::new)?;
    Ok(result)
}

fn record_call(
    view: &mut MemoryView<'_>,
    with: impl FnOnce(&mut MemoryView<'_>) -> Result<Value, QueryError>,
) -> Result<(), QueryError> {
    if view.guest.tape.is_off() {
        return Ok(());
    }
    let with = with(view)?;
    view.guest.record_host_call(view.function, with)
}

/// The result of a host function, as recordings have it.
trait RecordedResult {
    fn number(&self) -> Option<i64>;
}

impl RecordedResult for () {
    fn number(&self) -> Option<i64> {
        None
    }
}

impl RecordedResult for i32 {
    fn number(&self) -> Option<i64> {
        Some((*self).into())
    }
}

impl RecordedResult for i64 {
    fn number(&self) -> Option<i64> {
        Some(*self)
    }
}

/// Returns milliseconds since the Unix epoch. The resolution is coarse to prevent timing attacks.
fn clock(view: &MemoryView<'_>) -> i64 {
    if let Some(call) = view.guest.tape.replayed_call() {
        return call.result.unwrap_or_default();
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn random(view: &mut MemoryView<'_>, data: u32, len: u32) -> GuestResult<()> {
    let (bytes, guest) = view.slice_and_guest(data, len)?;
    if len > MAX_RANDOM_BYTES {
        return Err(Trapped::new(QueryError::BadPointer { function: "random", address: data, len }));
    }
    if let Some(call) = guest.tape.replayed_call() {
        let recorded = call.data.iter().flat_map(|data| &data.0);
        bytes.iter_mut().zip(recorded).for_each(|(byte, recorded)| *byte = *recorded);
        return Ok(());
    }
    getrandom::fill(bytes).map_err(|error| Trapped::new(QueryError::Gateway(error.to_string())))?;
    guest.tape.record_data(bytes, &[]).map_err(Trapped::new)
}

fn log(view: &mut MemoryView<'_>, text: u32, len: u32) -> GuestResult<()> {
    view.slice(text, len)?;
    let line = &view.bytes[text as usize..][..len as usize];
    view.guest.console.add_line(line);
    Ok(())
}

/// Ends the run. Always returns an error.
fn fail(view: &MemoryView<'_>, kind: i32, text: (u32, u32), place: (u32, u32)) -> GuestResult<()> {
    let kind = FailureKind::from_number(kind).unwrap_or(FailureKind::Refused);
    let text = view.quote(text.0, text.1)?;
    let (line, column) = place;
    Err(Trapped::new(QueryError::Failed { kind, text, line, column }))
}
