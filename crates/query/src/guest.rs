//! What a running program has: its allowance, its futures, the answer that it builds, its console. The
//! data of its store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use offload::OffloadPool;
use sandbox::{Caller, GuestResult, Memory, Place, ResourceLimiter, Trapped};
use services::{Call, Service, Services, Trace};

use crate::futures::Futures;
use crate::host::Documents;
use crate::limits::{Limit, Limits};
use crate::problem::{QueryError, short};
use crate::record::{self, Tape};
use crate::trust::KeyConfig;

/// How much of the console is kept, in bytes: the end of it.
const CONSOLE: usize = 4096;
/// The bytes of a text that a problem may quote: four for each of its characters, and some for what is left out.
const QUOTED: u32 = 4 * 4096 + 4;

/// What the programs of a route may reach.
pub(crate) struct Access {
    pub(crate) services: HashMap<String, Arc<Service>>,
    /// By which they are called.
    pub(crate) all: Services,
    pub(crate) methods: Vec<http::Method>,
    /// The services' names with commas between, as the JavaScript environment takes them.
    pub(crate) names: String,
}

impl Access {
    pub(crate) fn new(
        services: HashMap<String, Arc<Service>>,
        all: Services,
        methods: Vec<http::Method>,
    ) -> Self {
        let sorted: BTreeMap<_, _> = services.iter().collect();
        let names = sorted.values().map(|service| &**service.name()).collect::<Vec<_>>().join(",");
        Self { services, all, methods, names }
    }

    /// What is left of it for the programs that a key has signed.
    pub(crate) fn narrowed(&self, key: &KeyConfig) -> Self {
        let among = |names: &[String], name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        let service = |name: &str| key.services.as_ref().is_none_or(|names| among(names, name));
        let method =
            |name: &str| key.methods.as_ref().is_none_or(|names| names.iter().any(|known| known == name));
        let services = self.services.iter().filter(|(name, _)| service(name));
        let methods = self.methods.iter().filter(|name| method(name.as_str()));
        let services = services.map(|(name, it)| (name.clone(), it.clone())).collect();
        Self::new(services, self.all.clone(), methods.cloned().collect())
    }
}

/// A program's state on the host's side.
pub(crate) struct Guest {
    pub(crate) memory: Option<Memory>,
    pub(crate) access: Arc<Access>,
    pub(crate) call: Call,
    /// Where long answers are indexed.
    pub(crate) offload: OffloadPool,
    pub(crate) limits: Limits,
    pub(crate) safe_only: bool,
    pub(crate) futures: Futures,
    pub(crate) documents: Documents,
    pub(crate) answer: Answer,
    pub(crate) console: Console,
    pub(crate) tape: Tape,
    /// Where it runs, until it waits for a service or is heavy.
    place: Option<Place>,
    /// Bytes of linear memory, and bytes that the host holds for the program.
    used: (usize, usize),
    /// Bytes of linear memory when the instance was made.
    pub(crate) first: usize,
}

/// The answer that a program builds.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: Option<StatusCode>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Bytes>,
}

/// The last lines that a program logged.
#[derive(Debug, Default)]
pub(crate) struct Console(String);

impl Answer {
    /// A recording in the place of what the program made.
    pub(crate) fn recording(document: Bytes) -> Self {
        let media_type = HeaderValue::from_static(record::MEDIA_TYPE);
        let headers = [(CONTENT_TYPE, media_type)].into_iter().collect();
        Self { status: None, headers, body: Some(document) }
    }
}

impl Guest {
    pub(crate) fn new(
        access: Arc<Access>,
        call: Call,
        offload: OffloadPool,
        limits: Limits,
        safe_only: bool,
    ) -> Self {
        Self {
            memory: None,
            access,
            call,
            offload,
            limits,
            safe_only,
            futures: Futures::default(),
            documents: Documents::default(),
            answer: Answer::default(),
            console: Console::default(),
            tape: Tape::default(),
            place: None,
            used: (0, 0),
            first: 0,
        }
    }

    /// Takes the memory of the guest that ran before it in the same instance. `false` if that is more than this one
    /// may have.
    pub(crate) fn follow(&mut self, before: &Self) -> bool {
        let is_same = Arc::ptr_eq(&before.access, &self.access);
        if !is_same || before.used.0 > self.limits.size(Limit::Memory) {
            return false;
        }
        self.memory = before.memory;
        self.used = (before.used.0, 0);
        self.futures = Futures::after(&before.futures);
        true
    }

    /// What the run that is over leaves behind. Nothing of it stays but the memory, and which handles it had.
    pub(crate) fn rest(&mut self) -> (Answer, Console) {
        self.steps_aside();
        self.futures = Futures::after(&self.futures);
        self.documents = Documents::default();
        self.call.headers = None;
        self.call.payer = None;
        self.call.trace = Trace::default();
        (std::mem::take(&mut self.answer), std::mem::take(&mut self.console))
    }

    /// Bytes of linear memory.
    pub(crate) fn linear(&self) -> usize {
        self.used.0
    }

    /// Runs from now on.
    pub(crate) fn takes(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Lets others run.
    pub(crate) fn steps_aside(&mut self) {
        self.place = None;
    }

    /// A tick passed: one that has run for so many is heavy.
    pub(crate) fn ticked(&mut self) {
        if self.place.as_ref().is_some_and(Place::is_heavy) {
            self.steps_aside();
        }
    }

    /// Counts bytes that the host holds for the program from now on.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.used.1 = self.used.1.saturating_add(bytes);
        self.check_memory()
    }

    /// Bytes of memory that the run may still use.
    pub(crate) fn rest_memory(&self) -> usize {
        self.limits.size(Limit::Memory).saturating_sub(self.used.0.saturating_add(self.used.1))
    }

    /// The host let go of bytes.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.used.1 = self.used.1.saturating_sub(bytes);
    }

    fn check_memory(&self) -> Result<(), QueryError> {
        if self.used.0.saturating_add(self.used.1) > self.limits.size(Limit::Memory) {
            return Err(self.limits.exceeded(Limit::Memory));
        }
        Ok(())
    }
}

impl ResourceLimiter for Guest {
    /// Ends the program rather than refusing: few programs can go on without the memory they asked for,
    /// and its author should read which limit it was.
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> GuestResult<bool> {
        self.used.0 = desired;
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

impl Console {
    /// Adds a line, of which no more is looked at than is kept.
    pub(crate) fn add(&mut self, line: &[u8]) {
        let (_, mut end) = line.split_at(line.len().saturating_sub(CONSOLE));
        if end.len() < line.len() {
            // A character that was cut in two goes as a whole.
            let whole = end.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            end = end.get(whole..).unwrap_or_default();
        }
        self.0.push_str(&String::from_utf8_lossy(end));
        self.0.push('\n');
        let mut cut = self.0.len().saturating_sub(CONSOLE);
        while !self.0.is_char_boundary(cut) {
            cut += 1;
        }
        self.0.drain(..cut);
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// A checked view of the memory of a program that called a host function.
pub(crate) struct View<'a> {
    pub(crate) function: &'static str,
    pub(crate) bytes: &'a mut [u8],
    pub(crate) guest: &'a mut Guest,
}

impl<'a> View<'a> {
    /// The memory of the program that calls `function`.
    pub(crate) fn new(caller: &'a mut Caller<'_, Guest>, function: &'static str) -> GuestResult<Self> {
        // A start function runs before the instance, and with it its memory, is known.
        let exported = |caller: &mut Caller<'_, Guest>| caller.get_export("memory")?.into_memory();
        let memory = caller.data().memory.or_else(|| exported(caller));
        let memory =
            memory.ok_or_else(|| Trapped::new(QueryError::Gateway(format!("{function}: no memory"))))?;
        let (bytes, guest) = memory.data_and_store_mut(caller);
        Ok(Self { function, bytes, guest })
    }

    /// `len` bytes at `address`, if they are inside of the memory.
    pub(crate) fn slice(&self, address: u32, len: u32) -> GuestResult<&[u8]> {
        let range = address as usize..address as usize + len as usize;
        self.bytes.get(range).ok_or_else(|| self.bad_pointer(address, len))
    }

    /// The same, to be written.
    pub(crate) fn slice_mut(&mut self, address: u32, len: u32) -> GuestResult<&mut [u8]> {
        let bad = self.bad_pointer(address, len);
        let range = address as usize..address as usize + len as usize;
        self.bytes.get_mut(range).ok_or(bad)
    }

    /// The same, beside the state of the program that it is written for.
    pub(crate) fn slice_and_guest(&mut self, address: u32, len: u32) -> GuestResult<(&mut [u8], &mut Guest)> {
        let bad = self.bad_pointer(address, len);
        let range = address as usize..address as usize + len as usize;
        Ok((self.bytes.get_mut(range).ok_or(bad)?, self.guest))
    }

    /// As much of a text at `address` as a problem quotes.
    pub(crate) fn quote(&self, address: u32, len: u32) -> GuestResult<String> {
        let (quoted, _) = self.slice(address, len)?.split_at(len.min(QUOTED) as usize);
        Ok(short(&String::from_utf8_lossy(quoted)))
    }

    /// UTF-8 text at `address`.
    pub(crate) fn text(&self, address: u32, len: u32) -> GuestResult<&str> {
        let bad = || Trapped::new(QueryError::BadText { function: self.function });
        std::str::from_utf8(self.slice(address, len)?).map_err(|_| bad())
    }

    /// `COUNT` little-endian words at `address`.
    pub(crate) fn words<const COUNT: usize>(&self, address: u32) -> GuestResult<[u32; COUNT]> {
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
mod tests {
    use super::Console;

    #[test]
    fn the_console_keeps_its_end() {
        let mut console = Console::default();
        (0..1000).for_each(|number| console.add(format!("ä{number}").as_bytes()));
        let text = console.into_text();
        assert!(text.len() <= 4096 && text.ends_with("ä999\n"), "{text}");
    }

    #[test]
    fn a_long_line_is_cut_before_it_is_copied() {
        for (line, end) in
            [("ä".repeat(1 << 20), "ää\n"), ("x".repeat(4097), "xx\n"), ("\u{1f600}".repeat(9999), "\n")]
        {
            let mut console = Console::default();
            console.add(line.as_bytes());
            let text = console.into_text();
            assert!(text.len() <= 4096 && text.len() > 4088 && text.ends_with(end), "{}", text.len());
            assert!(!text.contains('\u{fffd}'), "no character is cut in two");
        }
        let mut console = Console::default();
        console.add(&[0xff; 1 << 20]);
        assert!(console.0.capacity() < 1 << 16, "what is no text is cut, too");
    }
}
