//! Foreign functions: those of Envoy's that mean something here.

mod signatures;

use std::io::Read;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{ZlibDecoder, ZlibEncoder};

use super::{Done, Guest, properties};
use crate::abi::Status;

/// `proxy_call_foreign_function`
pub(super) fn call(
    guest: &mut Guest<'_>,
    name: u32,
    name_length: u32,
    arguments: u32,
    arguments_length: u32,
    address: u32,
    length: u32,
) -> Done {
    let name = guest.text((name, name_length))?;
    guest.about(|| name.clone());
    let arguments = Bytes::copy_from_slice(guest.bytes((arguments, arguments_length))?);
    let most = guest.host().core.memory;
    let result = match name.as_str() {
        // They take their time, which no clock counts.
        "compress" | "sign" | "verify_signature"
            if arguments.len() as u64 > guest.host().spec().map_or(0, |spec| spec.limits.buffer.0) =>
        {
            return Err(Status::BadArgument);
        }
        "sign" => signatures::sign(&arguments)?,
        "verify_signature" => signatures::verify(&arguments)?,
        "compress" => read(ZlibEncoder::new(&*arguments, Compression::default()), most)?,
        "uncompress" => read(ZlibDecoder::new(&*arguments), most)?,
        "set_envoy_filter_state" => {
            set_filter_state(guest, &arguments)?;
            Vec::new()
        }
        // The route is chosen already; properties need no declaration.
        "clear_route_cache" | "declare_property" => Vec::new(),
        _ => return Err(Status::NotFound),
    };
    guest.give_bytes(result.into(), (address, length))
}

/// All that comes out, unless it is more than the module could hold.
fn read(from: impl Read, most: u64) -> Result<Vec<u8>, Status> {
    let mut out = Vec::new();
    let length = from.take(most + 1).read_to_end(&mut out).map_err(|_| Status::SerializationFailure)?;
    if length as u64 > most { Err(Status::InternalFailure) } else { Ok(out) }
}

/// The message has the path as field 1 and the value as field 2.
fn set_filter_state(guest: &mut Guest<'_>, message: &[u8]) -> Done {
    let [path, value] = fields(message, [1, 2])?;
    let (Some(path), Some(value)) = (path, value) else { return Err(Status::BadArgument) };
    properties::keep(guest.host(), path, value)
}

/// Fields of a message of Protocol Buffers, by their numbers: texts, bytes and messages.
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
