//! A background writer of log lines, for a slow sink and threads that must not block.
//!
//! Lines are appended to a buffer, and a dedicated thread takes the buffer and writes it. When the sink can't
//! keep up and the buffer is full, lines are dropped and counted, and the log reports their number.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Write;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use services::headers::write_address;

use super::clock::{self, write_digits};
use crate::telemetry::escape::escape;

/// The most bytes that may be buffered for the sink.
const MAX_PENDING: usize = 4 << 20;

/// The time for which lines are collected: waking a thread per line would cost more than the line.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);

/// A log that is written in the background. Dropping it writes the remaining lines.
pub(crate) struct LogWriter {
    shared: Arc<LogWriterShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct LogWriterShared {
    state: Mutex<LogWriterState>,
    changed: Condvar,
}

#[derive(Default)]
struct LogWriterState {
    pending: Vec<u8>,
    dropped: u64,
    is_stopped: bool,
}

impl LogWriter {
    /// Creates a log that writes to `sink`.
    pub(crate) fn new(sink: Box<dyn Write + Send>) -> std::io::Result<Self> {
        let shared = Arc::<LogWriterShared>::default();
        let writer_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer_shared.run(sink))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Writes the remaining lines. Later lines are discarded.
    pub(crate) fn finish(&self) {
        self.shared.lock().is_stopped = true;
        self.shared.changed.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Appends a line, which is formatted outside of the lock.
    pub(crate) fn write(&self, make: impl FnOnce(&mut Vec<u8>)) {
        thread_local!(static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
        LINE.with_borrow_mut(|line| {
            line.clear();
            make(line);
            self.shared.append(line);
        });
    }
}

impl LogWriterShared {
    fn lock(&self) -> MutexGuard<'_, LogWriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.pending.len() + line.len() > MAX_PENDING {
            state.dropped += 1;
            return;
        }
        let was_empty = state.pending.is_empty();
        state.pending.extend_from_slice(line);
        drop(state);
        if was_empty {
            self.changed.notify_one();
        }
    }

    fn run(&self, mut sink: Box<dyn Write + Send>) {
        let mut lines = Vec::new();
        loop {
            lines.clear();
            let is_stopped = self.take_lines(&mut lines);
            // A sink that fails (a closed pipe) is not a reason to stop answering requests.
            let _ = sink.write_all(&lines).and_then(|()| sink.flush());
            if is_stopped {
                return;
            }
        }
    }

    /// Waits for lines, then briefly for more of them, and takes them all.
    fn take_lines(&self, lines: &mut Vec<u8>) -> bool {
        let is_idle = |state: &mut LogWriterState| state.pending.is_empty() && !state.is_stopped;
        let state = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
        let collected = self.changed.wait_timeout_while(state, BATCH_INTERVAL, |state| !state.is_stopped);
        let (mut state, _) = collected.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(lines, &mut state.pending);
        if state.dropped > 0 {
            write_dropped_count(lines, std::mem::take(&mut state.dropped));
        }
        state.is_stopped
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.finish();
    }
}

fn write_dropped_count(line: &mut Vec<u8>, count: u64) {
    line.extend_from_slice(b"{\"time\":\"");
    clock::write_timestamp(line, SystemTime::now());
    line.extend_from_slice(b"\",\"level\":\"WARN\"");
    write_text_field(line, "message", "the sink of the access log is too slow, lines were dropped");
    write_number_field(line, "dropped", count);
    line.extend_from_slice(b"}\n");
}

/// Appends `,"name":"text"`.
#[inline(always)] // For a constant name, the bytes before the text become a single copy.
pub(super) fn write_text_field(line: &mut Vec<u8>, name: &str, text: &str) {
    write_field_name(line, name);
    write_quoted(line, text);
}

fn write_quoted(line: &mut Vec<u8>, text: &str) {
    let is_special = |byte: u8| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\');
    // Not `any`, which would branch at each byte.
    if text.bytes().fold(false, |is, byte| is | is_special(byte)) {
        let start = line.len();
        let _ = serde_json::to_writer(&mut *line, text);
        if let Cow::Owned(escaped) = escape(&line[start..]) {
            line.truncate(start);
            line.extend_from_slice(&escaped);
        }
        return;
    }
    line.reserve(text.len() + 2);
    line.push(b'"');
    line.extend_from_slice(text.as_bytes());
    line.push(b'"');
}

/// Appends `,"name":"192.0.2.1"`.
#[inline(always)]
pub(super) fn write_address_field(line: &mut Vec<u8>, name: &str, address: IpAddr) {
    write_field_name(line, name);
    line.push(b'"');
    write_address(line, address);
    line.push(b'"');
}

/// Appends `,"name":7`.
#[inline(always)]
pub(super) fn write_number_field(line: &mut Vec<u8>, name: &str, number: u64) {
    write_field_name(line, name);
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends `,"name":1.234`, in milliseconds.
#[inline(always)]
pub(super) fn write_millis_field(line: &mut Vec<u8>, name: &str, span: Duration) {
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    write_number_field(line, name, micros / 1000);
    line.push(b'.');
    write_digits::<3>(line, micros % 1000);
}

#[inline(always)]
fn write_field_name(line: &mut Vec<u8>, name: &str) {
    line.reserve(name.len() + 4);
    line.extend_from_slice(b",\"");
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(b"\":");
}

#[cfg(test)]
mod tests {
    use super::{
        LogWriter, MAX_PENDING, write_address_field, write_millis_field, write_number_field, write_text_field,
    };
    use proptest::prelude::*;
    use std::io::{Result, Write};
    use std::sync::{Arc, Mutex, mpsc};
    use std::time::Duration;

    #[derive(Clone, Default)]
    struct LogSink(Arc<Mutex<Vec<u8>>>);

    impl Write for LogSink {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    /// A sink that blocks until it is released.
    struct BlockingSink(mpsc::Receiver<()>, LogSink, mpsc::Sender<()>);

    impl Write for BlockingSink {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            let _ = self.2.send(());
            let _ = self.0.recv();
            self.1.write(bytes)
        }
        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn lines_are_json_of_their_values(
            value in any::<String>(), count: u64, micros in 0..1_u64 << 50, ip: std::net::IpAddr,
        ) {
            let mut line = Vec::new();
            write_text_field(&mut line, "text", &value);
            write_number_field(&mut line, "number", count);
            write_millis_field(&mut line, "millis", Duration::from_micros(micros));
            write_address_field(&mut line, "address", ip);
            let line = format!("{{{}}}", &std::str::from_utf8(&line).unwrap()[1..]);
            let read: serde_json::Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(&read["text"], &value);
            prop_assert_eq!(&read["number"], count);
            prop_assert_eq!(&read["millis"], &serde_json::json!(micros as f64 / 1000.0));
            prop_assert_eq!(&read["address"], &ip.to_string());
        }
    }

    #[test]
    fn finish_writes_pending_lines() {
        let sink = LogSink::default();
        let log = LogWriter::new(Box::new(sink.clone())).unwrap();
        (0..1000).for_each(|n| log.write(|line| line.extend_from_slice(format!("{n}\n").as_bytes())));
        drop(log);
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().map(|line| line.parse::<u32>().unwrap()).sum::<u32>(), 499_500);
    }

    #[test]
    fn counts_lines_dropped_by_a_stuck_sink() {
        let sink = LogSink::default();
        let ((go, wait), (tell, stuck)) = (mpsc::channel(), mpsc::channel());
        let log = LogWriter::new(Box::new(BlockingSink(wait, sink.clone(), tell))).unwrap();
        let line = [b'x'; 1024];
        log.write(|buffer| buffer.extend_from_slice(&line));
        stuck.recv().unwrap();
        let fits = MAX_PENDING / line.len();
        (0..fits + 7).for_each(|_| log.write(|buffer| buffer.extend_from_slice(&line)));
        drop(go);
        drop(log);
        let text = String::from_utf8_lossy(&sink.0.lock().unwrap()).into_owned();
        assert!(text.ends_with("lines were dropped\",\"dropped\":7}\n"), "{}", &text[text.len() - 200..]);
    }

    #[test]
    fn escapes_terminal_control_characters() {
        for (value, expected) in [
            ("plain \u{e9}", "plain \u{e9}"),
            ("\u{9b}31m\u{85}", r"\u009b31m\u0085"),
            ("a\u{7f}\u{202e}\u{2066}b\u{200f}", r"a\u007f\u202e\u2066b\u200f"),
            ("\u{1b}[0m\n\"", r#"\u001b[0m\n\""#),
        ] {
            let mut line = Vec::new();
            write_text_field(&mut line, "text", value);
            assert_eq!(String::from_utf8(line).unwrap(), format!(",\"text\":\"{expected}\""));
        }
    }
}
