//! The memory of a module. Every pointer from a module is checked here. Bytes for a module are written to
//! memory from its own allocator, between the two halves of a host function (`shim.rs`). Long copies in both
//! directions are made in parts, between which the callback yields.

use bytes::{Bytes, BytesMut};
use sandbox::{Caller, GuestResult};
use services::coop::TURN_BYTES;

use super::{FilterHost, GuestModule, HostResult, shim};
use crate::abi::HostStatus;
use crate::telemetry::FilterEvent;

/// The capacity of the scratch buffer that is retained, in bytes.
const MAX_KEPT_SCRATCH: usize = 64 << 10;

/// The maximum length of a name, a target or a similar text in bytes.
const LONGEST_TEXT: usize = 64 << 10;

/// The number of returned bytes that are shown to an observer.
const MAX_OBSERVED_BYTES: usize = 512;

/// The addresses to which a result's address and length are written.
pub(crate) type ResultAddresses = (u32, u32);

/// Bytes to be written to memory allocated by the module.
pub(crate) struct ModuleAllocation {
    /// The bytes. Without them, the data is in the host's scratch buffer.
    bytes: Option<Bytes>,
    length: u32,
    /// The number of bytes that have been written.
    written_bytes: usize,
    result_addresses: ResultAddresses,
    /// The host function that returns the bytes, once its first half has ended.
    name: Option<&'static str>,
    observation: Option<(String, String)>,
}

impl ModuleAllocation {
    pub(crate) fn is_begun(&self) -> bool {
        self.name.is_some()
    }

    /// Ends the first half of a host function. Returns the number of bytes to allocate.
    pub(crate) fn begin(&mut self, name: &'static str, observed: Option<(String, String)>) -> u32 {
        (self.name, self.observation) = (Some(name), observed);
        self.length
    }
}

/// A pointer and a length, as passed by the module.
pub(crate) type MemorySpan = (u32, u32);

/// The bytes at a span of a memory.
pub(crate) fn memory_slice(memory: &[u8], (pointer, length): MemorySpan) -> Result<&[u8], HostStatus> {
    let start = pointer as usize;
    let end = start.checked_add(length as usize).ok_or(HostStatus::InvalidMemoryAccess)?;
    memory.get(start..end).ok_or(HostStatus::InvalidMemoryAccess)
}

fn memory_slice_mut(memory: &mut [u8], (pointer, length): MemorySpan) -> Result<&mut [u8], HostStatus> {
    let start = pointer as usize;
    let end = start.checked_add(length as usize).ok_or(HostStatus::InvalidMemoryAccess)?;
    memory.get_mut(start..end).ok_or(HostStatus::InvalidMemoryAccess)
}

impl GuestModule<'_> {
    /// The memory, together with the host data.
    pub(crate) fn split_memory(&mut self) -> HostResult<(&mut [u8], &mut FilterHost)> {
        let memory = self.host().memory.ok_or(HostStatus::InvalidMemoryAccess)?;
        Ok(memory.data_and_store_mut(&mut self.caller))
    }

    /// The bytes at a span.
    pub(crate) fn memory_bytes(&self, span: MemorySpan) -> HostResult<&[u8]> {
        let memory = self.host().memory.ok_or(HostStatus::InvalidMemoryAccess)?;
        memory_slice(memory.data(&self.caller), span)
    }

    /// The text at a span, with invalid UTF-8 replaced. For logs and names.
    pub(crate) fn memory_text(&self, span: MemorySpan) -> HostResult<String> {
        Ok(String::from_utf8_lossy(self.short_bytes(span)?).into_owned())
    }

    /// The bytes at a span, if it is not longer than a text may be.
    pub(crate) fn short_bytes(&self, span: MemorySpan) -> HostResult<&[u8]> {
        let bytes = self.memory_bytes(span)?;
        if bytes.len() > LONGEST_TEXT { Err(HostStatus::BadArgument) } else { Ok(bytes) }
    }

    /// Copies the bytes at a span. A long copy is made in parts, between which the callback yields.
    ///
    /// # Errors
    /// Traps if the callback's time limit is exceeded.
    pub(crate) async fn copy_bytes(&mut self, span: MemorySpan) -> GuestResult<HostResult<Bytes>> {
        Ok(self.append_bytes(BytesMut::new(), span).await?.map(BytesMut::freeze))
    }

    /// Like `copy`, with the copy appended to `to`.
    pub(crate) async fn append_bytes(
        &mut self,
        mut to: BytesMut,
        (address, length): MemorySpan,
    ) -> GuestResult<HostResult<BytesMut>> {
        if let Err(status) = self.memory_bytes((address, length)) {
            return Ok(Err(status));
        }
        to.reserve(length as usize);
        for from in (0..length).step_by(TURN_BYTES) {
            if from > 0 {
                self.yield_turn().await?;
            }
            let part = (length - from).min(TURN_BYTES as u32);
            match self.memory_bytes((address + from, part)) {
                Ok(part) => to.extend_from_slice(part),
                Err(status) => return Ok(Err(status)),
            }
        }
        Ok(Ok(to))
    }

    /// Yields as at a tick.
    ///
    /// # Errors
    /// Traps if the callback's time limit is exceeded.
    pub(crate) async fn yield_turn(&mut self) -> GuestResult<()> {
        let turn = self.host_mut().clock.tick()?;
        turn.await;
        Ok(())
    }

    /// Writes bytes to an address of the module.
    pub(crate) fn write_bytes(&mut self, pointer: u32, bytes: &[u8]) -> HostResult {
        let length = u32::try_from(bytes.len()).map_err(|_| HostStatus::InvalidMemoryAccess)?;
        let (memory, _) = self.split_memory()?;
        memory_slice_mut(memory, (pointer, length))?.copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn write_u32(&mut self, pointer: u32, value: u32) -> HostResult {
        self.write_bytes(pointer, &value.to_le_bytes())
    }

    pub(crate) fn write_u64(&mut self, pointer: u32, value: u64) -> HostResult {
        self.write_bytes(pointer, &value.to_le_bytes())
    }

    /// Returns bytes to the module, in memory allocated by it. Must be the last action of a host function,
    /// and only functions of the shim may use it.
    pub(crate) fn return_copy(&mut self, bytes: &[u8], place: ResultAddresses) -> HostResult {
        self.record_returned(bytes);
        self.return_with(bytes.len(), place, |into| {
            into.copy_from_slice(bytes);
            Some(())
        })
    }

    /// Like `give`, for bytes that need no copy.
    pub(crate) fn return_bytes(&mut self, bytes: Bytes, place: ResultAddresses) -> HostResult {
        self.record_returned(&bytes);
        self.prepare_allocation(bytes.len(), Some(bytes), place)
    }

    /// Like `give`, for bytes that are written by a closure.
    pub(crate) fn return_with(
        &mut self,
        length: usize,
        place: ResultAddresses,
        write: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> HostResult {
        self.prepare_allocation(length, None, place)?;
        let host = self.host_mut();
        host.scratch.clear();
        host.scratch.resize(length, 0);
        write(&mut host.scratch).ok_or(HostStatus::InternalFailure)
    }

    fn prepare_allocation(
        &mut self,
        length: usize,
        bytes: Option<Bytes>,
        place: ResultAddresses,
    ) -> HostResult {
        let length = u32::try_from(length).map_err(|_| HostStatus::InternalFailure)?;
        // The allocator is running, or does not exist yet.
        if self.host().pending_allocation.is_some() || self.host().memory.is_none() {
            return Err(HostStatus::InternalFailure);
        }
        if length == 0 {
            self.write_u32(place.0, 0)?;
            return self.write_u32(place.1, 0);
        }
        self.host_mut().pending_allocation = Some(ModuleAllocation {
            bytes,
            length,
            written_bytes: 0,
            result_addresses: place,
            name: None,
            observation: None,
        });
        Ok(())
    }

    fn record_returned(&mut self, bytes: &[u8]) {
        if self.host().has_observer() {
            let shown = bytes.get(..MAX_OBSERVED_BYTES).unwrap_or(bytes);
            self.returned_text = String::from_utf8_lossy(shown).into_owned();
        }
    }
}

/// The second half of all host functions that return bytes: the module has allocated memory at this address.
/// Writes the next part, and returns [`shim::CALL_AGAIN`] if further ones are left.
pub(super) fn finish(mut caller: Caller<'_, FilterHost>, address: u32) -> u32 {
    let host = caller.data_mut();
    let (Some(mut gift), Some(memory)) = (host.pending_allocation.take(), host.memory) else {
        return HostStatus::InternalFailure as u32;
    };
    let (memory, host) = memory.data_and_store_mut(&mut caller);
    let bytes = gift.bytes.as_deref().unwrap_or(&host.scratch);
    let status = match write_part(memory, address, bytes, gift.written_bytes, gift.result_addresses) {
        Ok(written) if written < bytes.len() => {
            gift.written_bytes = written;
            host.pending_allocation = Some(gift);
            return shim::CALL_AGAIN;
        }
        Ok(_) => HostStatus::Ok,
        Err(status) => status,
    };
    if host.scratch.capacity() > MAX_KEPT_SCRATCH {
        host.scratch = Vec::new();
    }
    if let Some(name) = gift.name.filter(|_| status != HostStatus::Ok) {
        host.note_host_error(name, status);
    }
    if let (Some(name), Some((about, gave))) = (gift.name, &gift.observation) {
        host.notify_observer(&FilterEvent::HostCall {
            name,
            description: about,
            returned_data: gave,
            status: status.name(),
        });
    }
    status as u32
}

/// Writes the part of the bytes that follows the first `written` ones, and with the last part their address
/// and length. Returns the number of bytes that are written then.
fn write_part(
    memory: &mut [u8],
    address: u32,
    bytes: &[u8],
    written: usize,
    place: ResultAddresses,
) -> Result<usize, HostStatus> {
    let length = u32::try_from(bytes.len()).map_err(|_| HostStatus::InternalFailure)?;
    if address == 0 {
        return Err(HostStatus::InvalidMemoryAccess);
    }
    let to = memory_slice_mut(memory, (address, length))?;
    let end = bytes.len().min(written + TURN_BYTES);
    if let (Some(to), Some(part)) = (to.get_mut(written..end), bytes.get(written..end)) {
        to.copy_from_slice(part);
    }
    if end == bytes.len() {
        memory_slice_mut(memory, (place.0, 4))?.copy_from_slice(&address.to_le_bytes());
        memory_slice_mut(memory, (place.1, 4))?.copy_from_slice(&length.to_le_bytes());
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivers_long_bytes_in_parts_and_their_place_at_the_end() {
        const PAGE: usize = 64 << 10;
        let bytes: Vec<u8> = (0..2 * TURN_BYTES + 5).map(|number| (number % 251) as u8).collect();
        let mut memory = vec![0; PAGE + bytes.len()];
        let (mut written, mut ends) = (0, Vec::new());
        while written < bytes.len() {
            assert_eq!(memory[..8], [0; 8], "the place of bytes that are incomplete");
            written = write_part(&mut memory, PAGE as u32, &bytes, written, (0, 4)).unwrap();
            ends.push(written);
        }
        assert_eq!(ends, [TURN_BYTES, 2 * TURN_BYTES, bytes.len()]);
        assert_eq!(memory[PAGE..], bytes);
        assert_eq!(memory[..4], (PAGE as u32).to_le_bytes());
        assert_eq!(memory[4..8], (bytes.len() as u32).to_le_bytes());
        assert_eq!(
            write_part(&mut memory, 1 + PAGE as u32, &bytes, 0, (0, 4)),
            Err(HostStatus::InvalidMemoryAccess)
        );
    }
}
