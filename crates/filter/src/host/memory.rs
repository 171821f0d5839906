//! A module's memory: every pointer that it gives is checked here.

use super::{Done, Guest, Host, Stop};
use crate::abi::Status;

/// How much of what a module is given is shown to whoever watches, in bytes.
const SHOWN: usize = 512;

/// Where the module wants to be told an address and a length.
pub(crate) type Place = (u32, u32);

/// A pointer and a length, as the module gives them.
pub(crate) type Span = (u32, u32);

/// What stands at a span of a memory.
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
    /// The memory, and the host beside it.
    pub(crate) fn split(&mut self) -> Done<(&mut [u8], &mut Host)> {
        let memory = self.host().memory.ok_or(Status::InvalidMemoryAccess)?;
        Ok(memory.data_and_store_mut(&mut self.caller))
    }

    /// The bytes at a span.
    pub(crate) fn bytes(&self, span: Span) -> Done<&[u8]> {
        let memory = self.host().memory.ok_or(Status::InvalidMemoryAccess)?;
        Ok(at(memory.data(&self.caller), span)?)
    }

    /// The text at a span, as far as it is one: for logs and names.
    pub(crate) fn text(&self, span: Span) -> Done<String> {
        Ok(String::from_utf8_lossy(self.bytes(span)?).into_owned())
    }

    /// Puts bytes where the module wants them.
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

    /// Gives the module bytes in memory of its own, and says where they are.
    pub(crate) fn give(&mut self, bytes: &[u8], place: Place) -> Done {
        if self.host().is_observed() {
            let shown = bytes.get(..SHOWN).unwrap_or(bytes);
            self.gave = String::from_utf8_lossy(shown).into_owned();
        }
        self.give_with(bytes.len(), place, |into| {
            into.copy_from_slice(bytes);
            Some(())
        })
    }

    /// The same with bytes that are written where they belong.
    pub(crate) fn give_with(
        &mut self,
        length: usize,
        (to_address, to_length): Place,
        write: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Done {
        let length = u32::try_from(length).map_err(|_| Status::InternalFailure)?;
        let address = if length == 0 { 0 } else { self.allocate(length)? };
        let (memory, _) = self.split()?;
        if length > 0 {
            write(at_mut(memory, (address, length))?).ok_or(Status::InternalFailure)?;
        }
        at_mut(memory, (to_address, 4))?.copy_from_slice(&address.to_le_bytes());
        at_mut(memory, (to_length, 4))?.copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Memory of the module's own. Its allocator may call the host, but not need memory for that.
    fn allocate(&mut self, length: u32) -> Done<u32> {
        let allocate = self.host_mut().allocate.take().ok_or(Status::InternalFailure)?;
        let result = allocate.call(&mut self.caller, length);
        self.host_mut().allocate = Some(allocate);
        match result {
            Ok(0) => Err(Status::InvalidMemoryAccess.into()),
            Ok(address) => Ok(address),
            Err(trapped) => Err(Stop::Trap(trapped)),
        }
    }
}
