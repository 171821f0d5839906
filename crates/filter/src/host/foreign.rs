//! Foreign functions: those of Envoy that are meaningful here.
//!
//! Their cost depends on data from clients. So arguments and results are limited by `limits.buffer`, the time
//! counts as the callback's own, and long operations run in steps, between which the callback yields.
//! Signatures can't be computed in steps; their arguments have a smaller limit.

mod signatures;
mod zlib;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sandbox::GuestResult;

use self::zlib::Conversion;
use super::memory::Span;
use super::{Done, Guest, properties};
use crate::abi::Status;

/// The maximum length of a foreign function's name.
const LONGEST_NAME: usize = 64;
/// The time after which a foreign function yields.
const SLICE: Duration = Duration::from_micros(500);

/// The parameters of `proxy_call_foreign_function`: pointer and length of the name and of the argument, and
/// the addresses to which the result's address and length are written.
pub(super) type Parameters = (u32, u32, u32, u32, u32, u32);

/// The result of a foreign function, or its remaining work.
enum Work {
    Done(Bytes),
    Conversion(Conversion),
}

/// `proxy_call_foreign_function`
///
/// # Errors
/// Traps if the callback's time limit is exceeded.
pub(super) async fn call(
    guest: &mut Guest<'_>,
    (name, name_length, argument, argument_length, address, length): Parameters,
) -> GuestResult<Done> {
    guest.host_mut().clock.begin_slice();
    let mut since = Instant::now();
    let mut work = begin(guest, (name, name_length), (argument, argument_length));
    loop {
        if since.elapsed() >= SLICE {
            let turn = guest.host_mut().clock.tick()?;
            turn.await;
            since = Instant::now();
        }
        let mut conversion = match work {
            Ok(Work::Conversion(conversion)) => conversion,
            Ok(Work::Done(result)) => return Ok(guest.give_bytes(result, (address, length))),
            Err(status) => return Ok(Err(status)),
        };
        work = conversion.step().map(|is_last| match is_last {
            true => Work::Done(conversion.into_output()),
            false => Work::Conversion(conversion),
        });
    }
}

/// Performs short operations, including signatures, whose size is limited since they can't run in steps.
fn begin(guest: &mut Guest<'_>, name: Span, argument: Span) -> Done<Work> {
    let name = guest.bytes(name)?;
    if name.len() > LONGEST_NAME {
        return Err(Status::NotFound);
    }
    let name = String::from_utf8_lossy(name).into_owned();
    guest.about(|| name.clone());
    let limit = guest.host().spec().map_or(0, |spec| spec.limits.buffer.0);
    let argument = guest.bytes(argument)?;
    let is_too_long = argument.len() as u64 > limit;
    let argument = if is_too_long { Bytes::new() } else { Bytes::copy_from_slice(argument) };
    let result = match name.as_str() {
        // The route is chosen before filters run, and properties need no declaration.
        "clear_route_cache" | "declare_property" => Vec::new(),
        "compress" | "uncompress" | "sign" | "verify_signature" | "set_envoy_filter_state" if is_too_long => {
            return Err(Status::BadArgument);
        }
        "compress" => return Ok(Work::Conversion(Conversion::compress(argument))),
        "uncompress" => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            return Ok(Work::Conversion(Conversion::uncompress(argument, limit)));
        }
        "sign" => signatures::sign(&argument)?,
        "verify_signature" => signatures::verify(&argument)?,
        "set_envoy_filter_state" => {
            set_filter_state(guest, &argument)?;
            Vec::new()
        }
        _ => return Err(Status::NotFound),
    };
    Ok(Work::Done(result.into()))
}

/// Handles `set_envoy_filter_state`: a message with the path as field 1 and the value as field 2.
fn set_filter_state(guest: &mut Guest<'_>, message: &[u8]) -> Done {
    let [path, value] = fields(message, [1, 2])?;
    let (Some(path), Some(value)) = (path, value) else { return Err(Status::BadArgument) };
    properties::keep(guest.host(), path, value)
}

/// Extracts length-delimited fields of a Protocol Buffers message by their numbers.
fn fields<const N: usize>(message: &[u8], numbers: [u64; N]) -> Result<[Option<&[u8]>; N], Status> {
    let mut found = [None; N];
    let mut rest = message;
    while !rest.is_empty() {
        let (key, after) = varint(rest).ok_or(Status::BadArgument)?;
        let (number, after) = varint(after).ok_or(Status::BadArgument)?;
        rest = match key & 7 {
            0 => after,
            2 => {
                let length = usize::try_from(number).map_err(|_| Status::BadArgument)?;
                let (field, after) = after.split_at_checked(length).ok_or(Status::BadArgument)?;
                let places = numbers.iter().zip(&mut found);
                places.filter(|(number, _)| **number == key >> 3).for_each(|(_, place)| *place = Some(field));
                after
            }
            _ => return Err(Status::BadArgument),
        };
    }
    Ok(found)
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}
