//! The host functions: what a program can do beyond computing.
//!
//! Every address and handle comes from a stranger: it is checked, and a bad one ends the run with a name,
//! never the gateway. What may not be done at all ends the run, too, so that its author reads why.

mod answer;
mod calls;
mod json;

pub(crate) use json::Documents;

use query_abi::{Failure, HOST_MODULE};
use sandbox::{Caller, GuestResult, Linker, Trapped};

use crate::guest::{Guest, View};
use crate::problem::{QueryError, short};

/// The largest random request, in bytes: more than any program needs at once.
const RANDOM: u32 = 64 << 10;

/// Adds every function of `query_abi::HOST_FUNCTIONS` to a linker.
pub(crate) fn add(linker: &mut Linker<Guest>) -> GuestResult<()> {
    answer::add(linker)?;
    calls::add(linker)?;
    json::add(linker)?;
    linker.func_wrap(HOST_MODULE, "clock", || -> i64 { clock() })?;
    linker.func_wrap(HOST_MODULE, "random", random)?;
    linker.func_wrap(HOST_MODULE, "log", log)?;
    linker.func_wrap(HOST_MODULE, "fail", fail)?;
    Ok(())
}

/// Milliseconds since the epoch: coarse, so that nothing fine can be timed.
fn clock() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn random(mut caller: Caller<'_, Guest>, data: u32, len: u32) -> GuestResult<()> {
    let mut view = View::new(&mut caller, "random")?;
    let bytes = view.slice_mut(data, len)?;
    if len > RANDOM {
        return Err(Trapped::new(QueryError::BadPointer { function: "random", address: data, len }));
    }
    getrandom::fill(bytes).map_err(|error| Trapped::new(QueryError::Gateway(error.to_string())))
}

fn log(mut caller: Caller<'_, Guest>, text: u32, len: u32) -> GuestResult<()> {
    let view = View::new(&mut caller, "log")?;
    let line = String::from_utf8_lossy(view.slice(text, len)?).into_owned();
    view.guest.console.add(&line);
    Ok(())
}

/// Ends the run. It returns an error and nothing else: to the program it does not return.
fn fail(
    mut caller: Caller<'_, Guest>,
    kind: i32,
    text: u32,
    len: u32,
    line: u32,
    column: u32,
) -> GuestResult<()> {
    let view = View::new(&mut caller, "fail")?;
    let kind = Failure::from_number(kind).unwrap_or(Failure::Refused);
    let text = short(&String::from_utf8_lossy(view.slice(text, len)?));
    Err(Trapped::new(QueryError::Failed { kind, text, line, column }))
}
