//! Foreign functions: those of Envoy that are meaningful here.
//!
//! Their cost depends on data from clients. So arguments and results are limited by `limits.buffer`, the time
//! counts as the callback's own, and long operations run in steps, between which the callback yields.
//! Signatures can't be computed in steps; their arguments have a smaller limit, and those that take long are
//! computed on a thread that serves no requests.

mod signatures;
mod zlib;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sandbox::{CpuClock, GuestResult};
use tokio::runtime::Handle;

use self::zlib::ZlibConversion;
use super::memory::MemorySpan;
use super::{GuestModule, HostResult, properties};
use crate::abi::HostStatus;

/// The maximum length of a foreign function's name.
const LONGEST_NAME: usize = 64;
/// The time after which a foreign function yields.
const YIELD_INTERVAL: Duration = Duration::from_micros(500);

/// The parameters of `proxy_call_foreign_function`: pointer and length of the name and of the argument, and
/// the addresses to which the result's address and length are written.
pub(super) type ForeignParameters = (u32, u32, u32, u32, u32, u32);

/// A foreign function.
#[derive(Clone, Copy)]
enum ForeignFunction {
    /// A function without effect here.
    NoOp,
    Compress,
    Uncompress,
    Sign,
    Verify,
    SetFilterState,
}

/// The result of a foreign function, or its remaining work.
enum ForeignWork {
    Done(Bytes),
    Conversion(ZlibConversion),
}

/// `proxy_call_foreign_function`
///
/// # Errors
/// Traps if the callback's time limit is exceeded.
pub(super) async fn call_foreign_function(
    guest: &mut GuestModule<'_>,
    (name, name_length, argument, argument_length, address, length): ForeignParameters,
) -> GuestResult<HostResult> {
    guest.host_mut().clock.begin_slice();
    let mut since = Instant::now();
    let mut work = match find_function(guest, (name, name_length), (argument, argument_length)) {
        Ok(ForeignFunction::NoOp) => Ok(ForeignWork::Done(Bytes::new())),
        Ok(function) => match guest.copy_bytes((argument, argument_length)).await? {
            Ok(argument) => match function.long_signature(&argument) {
                Some(signature) => {
                    run_blocking(guest, move || signature(&argument)).await?.map(ForeignWork::Done)
                }
                None => start_function(guest, function, argument),
            },
            Err(status) => Err(status),
        },
        Err(status) => Err(status),
    };
    loop {
        if since.elapsed() >= YIELD_INTERVAL {
            guest.yield_turn().await?;
            since = Instant::now();
        }
        let mut conversion = match work {
            Ok(ForeignWork::Conversion(conversion)) => conversion,
            Ok(ForeignWork::Done(result)) => return Ok(guest.return_bytes(result, (address, length))),
            Err(status) => return Ok(Err(status)),
        };
        work = conversion.step().map(|is_last| match is_last {
            true => ForeignWork::Done(conversion.into_output()),
            false => ForeignWork::Conversion(conversion),
        });
    }
}

/// Returns the function with this name, if the argument is not too long for it.
fn find_function(
    guest: &mut GuestModule<'_>,
    name: MemorySpan,
    argument: MemorySpan,
) -> HostResult<ForeignFunction> {
    let name = guest.memory_bytes(name)?;
    if name.len() > LONGEST_NAME {
        return Err(HostStatus::NotFound);
    }
    let name = String::from_utf8_lossy(name).into_owned();
    guest.describe_call(|| name.clone());
    let length = guest.memory_bytes(argument)?.len() as u64;
    let buffer = guest.host().spec().map_or(0, |spec| spec.limits.buffer.0);
    let (function, limit) = match name.as_str() {
        // The route is chosen before filters run, and properties need no declaration.
        "clear_route_cache" | "declare_property" => (ForeignFunction::NoOp, u64::MAX),
        "compress" => (ForeignFunction::Compress, buffer),
        "uncompress" => (ForeignFunction::Uncompress, buffer),
        "sign" => (ForeignFunction::Sign, buffer),
        "verify_signature" => (ForeignFunction::Verify, buffer),
        // A longer message has a path and a value that can't be stored.
        "set_envoy_filter_state" => {
            (ForeignFunction::SetFilterState, buffer.min(properties::MAX_PROPERTY_BYTES as u64))
        }
        _ => return Err(HostStatus::NotFound),
    };
    if length > limit { Err(HostStatus::BadArgument) } else { Ok(function) }
}

/// Performs short operations, and prepares the others.
fn start_function(
    guest: &mut GuestModule<'_>,
    function: ForeignFunction,
    argument: Bytes,
) -> HostResult<ForeignWork> {
    let result = match function {
        ForeignFunction::NoOp => Vec::new(),
        ForeignFunction::Compress => return Ok(ForeignWork::Conversion(ZlibConversion::compress(argument))),
        ForeignFunction::Uncompress => {
            let limit = guest.host().spec().map_or(0, |spec| spec.limits.buffer.0);
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            return Ok(ForeignWork::Conversion(ZlibConversion::uncompress(argument, limit)));
        }
        ForeignFunction::Sign => signatures::sign(&argument)?,
        ForeignFunction::Verify => signatures::verify(&argument)?,
        ForeignFunction::SetFilterState => {
            set_filter_state(guest, &argument)?;
            Vec::new()
        }
    };
    Ok(ForeignWork::Done(result.into()))
}

/// Does work that takes milliseconds in one piece on a thread that serves no requests. Its CPU time counts as
/// the callback's. The threads of the offload pool have a low priority, and other requests wait for the
/// instance meanwhile, so the work is done on one of the runtime's threads for blocking work. An instance has
/// one callback at a time, so these threads are few.
///
/// # Errors
/// Traps if the callback's time limit is exceeded.
async fn run_blocking(
    guest: &mut GuestModule<'_>,
    work: impl FnOnce() -> HostResult<Vec<u8>> + Send + 'static,
) -> GuestResult<HostResult<Bytes>> {
    let Ok(runtime) = Handle::try_current() else { return Ok(work().map(Bytes::from)) };
    // The callback's slice ends before the work, and the next one begins after it.
    let turn = guest.host_mut().clock.tick()?;
    let measured = runtime.spawn_blocking(move || {
        let clock = CpuClock::now();
        (work(), clock.elapsed())
    });
    let (done, cpu) = measured.await.unwrap_or((Err(HostStatus::InternalFailure), Duration::ZERO));
    turn.await;
    guest.host_mut().clock.add_cpu_time(cpu);
    Ok(done.map(Bytes::from))
}

/// Makes or verifies a signature.
type SignatureFunction = fn(&[u8]) -> HostResult<Vec<u8>>;

impl ForeignFunction {
    /// The operation, if it makes or verifies a signature and takes milliseconds.
    fn long_signature(self, argument: &[u8]) -> Option<SignatureFunction> {
        match self {
            Self::Sign if signatures::takes_long_to_sign(argument) => Some(signatures::sign),
            Self::Verify if signatures::takes_long_to_verify(argument) => Some(signatures::verify),
            _ => None,
        }
    }
}

/// Handles `set_envoy_filter_state`: a message with the path as field 1 and the value as field 2.
fn set_filter_state(guest: &mut GuestModule<'_>, message: &[u8]) -> HostResult {
    let [path, value] = extract_fields(message, [1, 2])?;
    let (Some(path), Some(value)) = (path, value) else { return Err(HostStatus::BadArgument) };
    properties::store_property(guest.host(), path, value)
}

/// Extracts length-delimited fields of a Protocol Buffers message by their numbers.
fn extract_fields<const N: usize>(
    message: &[u8],
    numbers: [u64; N],
) -> Result<[Option<&[u8]>; N], HostStatus> {
    let mut found = [None; N];
    let mut rest = message;
    while !rest.is_empty() {
        let (key, after) = read_varint(rest).ok_or(HostStatus::BadArgument)?;
        let (number, after) = read_varint(after).ok_or(HostStatus::BadArgument)?;
        rest = match key & 7 {
            0 => after,
            2 => {
                let length = usize::try_from(number).map_err(|_| HostStatus::BadArgument)?;
                let (field, after) = after.split_at_checked(length).ok_or(HostStatus::BadArgument)?;
                let places = numbers.iter().zip(&mut found);
                places.filter(|(number, _)| **number == key >> 3).for_each(|(_, place)| *place = Some(field));
                after
            }
            _ => return Err(HostStatus::BadArgument),
        };
    }
    Ok(found)
}

fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}
