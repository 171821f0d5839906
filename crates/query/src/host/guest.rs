//! The state of a running program, stored in its wasmtime store: limits, futures, the answer under
//! construction, console.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use offload::OffloadPool;
use sandbox::{Caller, GuestResult, Memory, ResourceLimiter, RunPermit, Trapped};
use services::{RequestCall, RequestTrace};

use super::documents::RunDocuments;
use super::futures::RunFutures;
use crate::limits::{LimitKind, RunLimits};
use crate::problem::{QueryError, short};
use crate::program::CallPermissions;
use crate::record;
use crate::record::{HostCallMode, RunEnd};

/// The length of the console's end that is kept, in bytes.
const CONSOLE_BYTES: usize = 4096;
/// The bytes of text that a problem may quote: four per character, plus room for the ellipsis.
const MAX_QUOTED_BYTES: u32 = 4 * 4096 + 4;

/// The host's state of a program.
pub(crate) struct QueryGuest {
    pub(crate) memory: Option<Memory>,
    pub(crate) access: Arc<CallPermissions>,
    pub(crate) call: RequestCall,
    /// The pool that indexes long answers.
    pub(crate) offload: OffloadPool,
    pub(crate) limits: RunLimits,
    pub(crate) safe_only: bool,
    pub(crate) futures: RunFutures,
    pub(crate) documents: RunDocuments,
    pub(crate) answer: AnswerBuilder,
    pub(crate) console: ConsoleTail,
    pub(crate) tape: HostCallMode,
    /// The run permit. Released while the program waits for a service, and when it becomes heavy.
    run_permit: Option<RunPermit>,
    /// The bytes of linear memory, and the bytes that the host holds for the program.
    memory_used: (usize, usize),
    /// The bytes of linear memory at instantiation.
    pub(crate) initial_memory: usize,
}

/// The answer under construction.
#[derive(Debug, Default)]
pub(crate) struct AnswerBuilder {
    pub(crate) status: Option<StatusCode>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Bytes>,
}

/// The last lines of a program's log.
#[derive(Debug, Default)]
pub(crate) struct ConsoleTail(String);

impl AnswerBuilder {
    /// An answer with a recording instead of the program's output.
    pub(crate) fn from_recording(document: Bytes) -> Self {
        let media_type = HeaderValue::from_static(record::MEDIA_TYPE);
        let headers = [(CONTENT_TYPE, media_type)].into_iter().collect();
        Self { status: None, headers, body: Some(document) }
    }

    /// Returns the end of a recorded run with this answer.
    pub(crate) fn to_run_end(&self) -> RunEnd {
        let body = self.body.as_deref().unwrap_or_default();
        RunEnd::from_answer(self.status.unwrap_or_default(), &self.headers, body)
    }
}

impl QueryGuest {
    pub(crate) fn new(
        access: Arc<CallPermissions>,
        call: RequestCall,
        offload: OffloadPool,
        limits: RunLimits,
        safe_only: bool,
    ) -> Self {
        Self {
            memory: None,
            access,
            call,
            offload,
            limits,
            safe_only,
            futures: RunFutures::default(),
            documents: RunDocuments::default(),
            answer: AnswerBuilder::default(),
            console: ConsoleTail::default(),
            tape: HostCallMode::default(),
            run_permit: None,
            memory_used: (0, 0),
            initial_memory: 0,
        }
    }

    /// Takes over the memory of the instance's previous guest. Returns `false` if that memory exceeds this
    /// run's limit, or if the two runs have different access.
    pub(crate) fn reuse_from(&mut self, before: &Self) -> bool {
        let is_same = Arc::ptr_eq(&before.access, &self.access);
        if !is_same || before.memory_used.0 > self.limits.size(LimitKind::Memory) {
            return false;
        }
        self.memory = before.memory;
        self.memory_used = (before.memory_used.0, 0);
        self.futures = RunFutures::new_after(&before.futures);
        true
    }

    /// Resets the state after a run and returns the answer and the console. Only the memory and the numbering
    /// of handles stay.
    pub(crate) fn reset_after_run(&mut self) -> (AnswerBuilder, ConsoleTail) {
        self.release_run_permit();
        self.futures = RunFutures::new_after(&self.futures);
        self.documents = RunDocuments::default();
        self.call.headers = None;
        self.call.payer = None;
        self.call.trace = RequestTrace::default();
        (std::mem::take(&mut self.answer), std::mem::take(&mut self.console))
    }

    /// Returns the bytes of linear memory.
    pub(crate) fn linear_memory(&self) -> usize {
        self.memory_used.0
    }

    /// Sets the run permit.
    pub(crate) fn set_run_permit(&mut self, permit: RunPermit) {
        self.run_permit = Some(permit);
    }

    /// Releases the run permit.
    pub(crate) fn release_run_permit(&mut self) {
        self.run_permit = None;
    }

    /// Handles an epoch tick: releases the permit of a program that has become heavy.
    pub(crate) fn on_epoch_tick(&mut self) {
        if self.run_permit.as_ref().is_some_and(RunPermit::is_heavy) {
            self.release_run_permit();
        }
    }

    /// Counts bytes that the host starts to hold for the program.
    pub(crate) fn hold_memory(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.memory_used.1 = self.memory_used.1.saturating_add(bytes);
        self.check_memory()
    }

    /// Returns the memory that the run may still use, in bytes.
    pub(crate) fn remaining_memory(&self) -> usize {
        self.limits
            .size(LimitKind::Memory)
            .saturating_sub(self.memory_used.0.saturating_add(self.memory_used.1))
    }

    /// Counts bytes that the host has released.
    pub(crate) fn release_memory(&mut self, bytes: usize) {
        self.memory_used.1 = self.memory_used.1.saturating_sub(bytes);
    }

    fn check_memory(&self) -> Result<(), QueryError> {
        if self.memory_used.0.saturating_add(self.memory_used.1) > self.limits.size(LimitKind::Memory) {
            return Err(self.limits.exceeded_error(LimitKind::Memory).into());
        }
        Ok(())
    }
}

impl ResourceLimiter for QueryGuest {
    /// Ends the program rather than failing the allocation: few programs can continue without the memory that
    /// they requested, and the author should see the limit's name.
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> GuestResult<bool> {
        self.memory_used.0 = desired;
        self.check_memory().map_err(Trapped::new)?;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        _desired: usize,
        _maximum: Option<usize>,
    ) -> GuestResult<bool> {
        Ok(true)
    }
}

impl ConsoleTail {
    /// Adds a line. Reads no more of a long line than the console keeps.
    pub(crate) fn add_line(&mut self, line: &[u8]) {
        let (_, mut end) = line.split_at(line.len().saturating_sub(CONSOLE_BYTES));
        if end.len() < line.len() {
            // Drop the rest of a character that was cut.
            let whole = end.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            end = end.get(whole..).unwrap_or_default();
        }
        self.0.push_str(&String::from_utf8_lossy(end));
        self.0.push('\n');
        let mut cut = self.0.len().saturating_sub(CONSOLE_BYTES);
        while !self.0.is_char_boundary(cut) {
            cut += 1;
        }
        self.0.drain(..cut);
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// A checked view of a program's memory during a host call.
pub(crate) struct MemoryView<'a> {
    pub(crate) function: &'static str,
    pub(crate) bytes: &'a mut [u8],
    pub(crate) guest: &'a mut QueryGuest,
}

impl<'a> MemoryView<'a> {
    /// Creates a view for a call of `function`.
    pub(crate) fn new(caller: &'a mut Caller<'_, QueryGuest>, function: &'static str) -> GuestResult<Self> {
        // A start function runs before the instance's memory has been stored in the guest.
        let exported = |caller: &mut Caller<'_, QueryGuest>| caller.get_export("memory")?.into_memory();
        let memory = caller.data().memory.or_else(|| exported(caller));
        let memory =
            memory.ok_or_else(|| Trapped::new(QueryError::Gateway(format!("{function}: no memory"))))?;
        let (bytes, guest) = memory.data_and_store_mut(caller);
        Ok(Self { function, bytes, guest })
    }

    /// Returns `len` bytes at `address`, or an error if they are outside of the memory.
    pub(crate) fn slice(&self, address: u32, len: u32) -> GuestResult<&[u8]> {
        let range = address as usize..address as usize + len as usize;
        self.bytes.get(range).ok_or_else(|| self.bad_pointer(address, len))
    }

    /// Mutable variant of [`Self::slice`].
    pub(crate) fn slice_mut(&mut self, address: u32, len: u32) -> GuestResult<&mut [u8]> {
        let bad = self.bad_pointer(address, len);
        let range = address as usize..address as usize + len as usize;
        self.bytes.get_mut(range).ok_or(bad)
    }

    /// Mutable variant of [`Self::slice`] that also returns the guest's state.
    pub(crate) fn slice_and_guest(
        &mut self,
        address: u32,
        len: u32,
    ) -> GuestResult<(&mut [u8], &mut QueryGuest)> {
        let bad = self.bad_pointer(address, len);
        let range = address as usize..address as usize + len as usize;
        Ok((self.bytes.get_mut(range).ok_or(bad)?, self.guest))
    }

    /// Returns the text at `address`, cut to the length that a problem may quote.
    pub(crate) fn quote(&self, address: u32, len: u32) -> GuestResult<String> {
        let (quoted, _) = self.slice(address, len)?.split_at(len.min(MAX_QUOTED_BYTES) as usize);
        Ok(short(&String::from_utf8_lossy(quoted)))
    }

    /// Returns the UTF-8 text at `address`.
    pub(crate) fn read_text(&self, address: u32, len: u32) -> GuestResult<&str> {
        let bad = || Trapped::new(QueryError::BadText { function: self.function });
        std::str::from_utf8(self.slice(address, len)?).map_err(|_| bad())
    }

    /// Reads `COUNT` little-endian words at `address`.
    pub(crate) fn read_words<const COUNT: usize>(&self, address: u32) -> GuestResult<[u32; COUNT]> {
        let bytes = self.slice(address, 4 * COUNT as u32)?;
        let (words, _) = bytes.as_chunks::<4>();
        let mut out = [0; COUNT];
        out.iter_mut().zip(words).for_each(|(out, word)| *out = u32::from_le_bytes(*word));
        Ok(out)
    }

    fn bad_pointer(&self, address: u32, len: u32) -> Trapped {
        Trapped::new(QueryError::BadPointer { function: self.function, address, len })
    }
}

#[cfg(test)]
impl QueryGuest {
    /// Returns a guest that can't call any service.
    pub(crate) fn new_isolated() -> Self {
        let access = Arc::new(CallPermissions::none());
        let pool = OffloadPool::start(offload::OffloadConfig::default()).unwrap();
        let limits = RunLimits::from_config(&crate::config::QueryLimitsConfig::default());
        Self::new(access, RequestCall::unlimited(), pool, limits, true)
    }
}

#[cfg(test)]
mod tests {
    use super::ConsoleTail;

    #[test]
    fn keeps_the_end_of_the_console() {
        let mut console = ConsoleTail::default();
        (0..1000).for_each(|number| console.add_line(format!("ä{number}").as_bytes()));
        let text = console.into_text();
        assert!(text.len() <= 4096 && text.ends_with("ä999\n"), "{text}");
    }

    #[test]
    fn cuts_a_long_line_before_copying_it() {
        for (line, end) in
            [("ä".repeat(1 << 20), "ää\n"), ("x".repeat(4097), "xx\n"), ("\u{1f600}".repeat(9999), "\n")]
        {
            let mut console = ConsoleTail::default();
            console.add_line(line.as_bytes());
            let text = console.into_text();
            assert!(text.len() <= 4096 && text.len() > 4088 && text.ends_with(end), "{}", text.len());
            assert!(!text.contains('\u{fffd}'), "no character is split");
        }
        let mut console = ConsoleTail::default();
        console.add_line(&[0xff; 1 << 20]);
        assert!(console.0.capacity() < 1 << 16, "invalid UTF-8 is cut, too");
    }
}
