//! The memory of a module. Every pointer from a module is checked here. Bytes for a module are written to
//! memory from its own allocator, between the two halves of a host function (`shim.rs`).

use bytes::Bytes;
use sandbox::Caller;

use super::{Done, Guest, Host};
use crate::abi::Status;
use crate::observe::Event;

/// The capacity of the scratch buffer that is retained, in bytes.
const SCRATCH_KEPT: usize = 64 << 10;

/// The number of returned bytes that are shown to an observer.
const SHOWN: usize = 512;

/// The addresses to which a result's address and length are written.
pub(crate) type Place = (u32, u32);

/// Bytes to be written to memory allocated by the module.
pub(crate) struct Gift {
    /// The bytes. Without them, the data is in the host's scratch buffer.
    bytes: Option<Bytes>,
    length: u32,
    place: Place,
    /// The host function that returns the bytes, once its first half has ended.
    name: Option<&'static str>,
    observed: Option<(String, String)>,
}

impl Gift {
    pub(crate) fn is_begun(&self) -> bool {
        self.name.is_some()
    }

    /// Ends the first half of a host function. Returns the number of bytes to allocate.
    pub(crate) fn begin(&mut self, name: &'static str, observed: Option<(String, String)>) -> u32 {
        (self.name, self.observed) = (Some(name), observed);
        self.length
    }
}

/// A pointer and a length, as passed by the module.
pub(crate) type Span = (u32, u32);

/// The bytes at a span of a memory.
pub(crate) fn at(memory: &[u8], (pointer, length): Span) -> Result<&[u8], Status> {
    let start = pointer as usize;
    let end = start.checked_add(length as usize).ok_or(Status::InvalidMemoryAccess)?;
    memory.get(start..end).ok_or(Status::InvalidMemoryAccess)
}

fn at_mut(memory: &mut [u8], (pointer, length): Span) -> Result<&mut [u8], Status> {
    let start = pointer as usize;
    let end = start.checked_add(length as usize).ok_or(Status::InvalidMemoryAccess)?;
    memory.get_mut(start..end).ok_or(Status::InvalidMemoryAccess)
}

impl Guest<'_> {
    /// The memory, together with the host data.
    pub(crate) fn split(&mut self) -> Done<(&mut [u8], &mut Host)> {
        let memory = self.host().memory.ok_or(Status::InvalidMemoryAccess)?;
        Ok(memory.data_and_store_mut(&mut self.caller))
    }

    /// The bytes at a span.
    pub(crate) fn bytes(&self, span: Span) -> Done<&[u8]> {
        let memory = self.host().memory.ok_or(Status::InvalidMemoryAccess)?;
        at(memory.data(&self.caller), span)
    }

    /// The text at a span, with invalid UTF-8 replaced. For logs and names.
    pub(crate) fn text(&self, span: Span) -> Done<String> {
        Ok(String::from_utf8_lossy(self.bytes(span)?).into_owned())
    }

    /// Writes bytes to an address of the module.
    pub(crate) fn put(&mut self, pointer: u32, bytes: &[u8]) -> Done {
        let length = u32::try_from(bytes.len()).map_err(|_| Status::InvalidMemoryAccess)?;
        let (memory, _) = self.split()?;
        at_mut(memory, (pointer, length))?.copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn put_u32(&mut self, pointer: u32, value: u32) -> Done {
        self.put(pointer, &value.to_le_bytes())
    }

    pub(crate) fn put_u64(&mut self, pointer: u32, value: u64) -> Done {
        self.put(pointer, &value.to_le_bytes())
    }

    /// Returns bytes to the module, in memory allocated by it. Must be the last action of a host function,
    /// and only functions of the shim may use it.
    pub(crate) fn give(&mut self, bytes: &[u8], place: Place) -> Done {
        self.show(bytes);
        self.give_with(bytes.len(), place, |into| {
            into.copy_from_slice(bytes);
            Some(())
        })
    }

    /// Like `give`, for bytes that need no copy.
    pub(crate) fn give_bytes(&mut self, bytes: Bytes, place: Place) -> Done {
        self.show(&bytes);
        self.prepare_gift(bytes.len(), Some(bytes), place)
    }

    /// Like `give`, for bytes that are written by a closure.
    pub(crate) fn give_with(
        &mut self,
        length: usize,
        place: Place,
        write: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Done {
        self.prepare_gift(length, None, place)?;
        let host = self.host_mut();
        host.scratch.clear();
        host.scratch.resize(length, 0);
        write(&mut host.scratch).ok_or(Status::InternalFailure)
    }

    fn prepare_gift(&mut self, length: usize, bytes: Option<Bytes>, place: Place) -> Done {
        let length = u32::try_from(length).map_err(|_| Status::InternalFailure)?;
        // The allocator is running, or does not exist yet.
        if self.host().gift.is_some() || self.host().memory.is_none() {
            return Err(Status::InternalFailure);
        }
        if length == 0 {
            self.put_u32(place.0, 0)?;
            return self.put_u32(place.1, 0);
        }
        self.host_mut().gift = Some(Gift { bytes, length, place, name: None, observed: None });
        Ok(())
    }

    fn show(&mut self, bytes: &[u8]) {
        if self.host().is_observed() {
            let shown = bytes.get(..SHOWN).unwrap_or(bytes);
            self.gave = String::from_utf8_lossy(shown).into_owned();
        }
    }
}

/// The second half of all host functions that return bytes: the module has allocated memory at this address.
pub(super) fn finish(mut caller: Caller<'_, Host>, address: u32) -> u32 {
    let host = caller.data_mut();
    let (Some(gift), Some(memory)) = (host.gift.take(), host.memory) else {
        return Status::InternalFailure as u32;
    };
    let (memory, host) = memory.data_and_store_mut(&mut caller);
    let bytes = gift.bytes.as_deref().unwrap_or(&host.scratch);
    let status = deliver(memory, address, bytes, gift.place).err().unwrap_or(Status::Ok);
    if host.scratch.capacity() > SCRATCH_KEPT {
        host.scratch = Vec::new();
    }
    if let Some(name) = gift.name.filter(|_| status != Status::Ok) {
        host.note_refusal(name, status);
    }
    if let (Some(name), Some((about, gave))) = (gift.name, &gift.observed) {
        host.see(&Event::HostCall { name, about, gave, status: status.name() });
    }
    status as u32
}

fn deliver(memory: &mut [u8], address: u32, bytes: &[u8], place: Place) -> Result<(), Status> {
    let length = u32::try_from(bytes.len()).map_err(|_| Status::InternalFailure)?;
    if address == 0 {
        return Err(Status::InvalidMemoryAccess);
    }
    at_mut(memory, (address, length))?.copy_from_slice(bytes);
    at_mut(memory, (place.0, 4))?.copy_from_slice(&address.to_le_bytes());
    at_mut(memory, (place.1, 4))?.copy_from_slice(&length.to_le_bytes());
    Ok(())
}
