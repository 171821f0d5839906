//! `http` and the functions for its results: concurrent upstream calls and access to their responses.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use query_abi::{AbiCode, HEADER_BYTES, HOST_MODULE, ResponsePart};
use sandbox::{Caller, GuestResult, Linker, Trapped};
use serde_json::{Value, json};
use services::headers::{HeaderError, MAX_CALL_HEAD};
use services::{CallError, ProgramResponse, RequestTarget, ServiceRequest, UpstreamCallRecord};
use tokio::task::coop::consume_budget;

use super::documents::{PointerResult, pointer_value};
use super::futures::{HandleState, UnstoredCall};
use super::guest::{MemoryView, QueryGuest};
use super::steps::{PartOutcome, call_in_steps, copy_in, copy_out, copy_whole, run_in_steps};
use super::{MAX_TEXT_BYTES, call_host_function, record_call};
use crate::limits::LimitKind;
use crate::problem::{QueryError, short};
use crate::record::{HostCallMode, abi_code, header_len, header_text, note_bytes};

/// The maximum number of headers of a request: more than services accept.
pub(super) const MAX_HEADERS: u32 = 100;
/// The minimum length of the list of handles that `Future_wait` accepts, even if fewer calls are allowed.
/// Handles may occur several times.
const MIN_WAIT_LIST: u32 = 4096;

pub(super) fn add_to_linker(linker: &mut Linker<QueryGuest>) -> GuestResult<()> {
    linker.func_wrap_async(
        HOST_MODULE,
        "http",
        |mut caller: Caller<'_, QueryGuest>, (request,): (u32,)| {
            Box::new(async move {
                let long = MemoryView::new(&mut caller, "http")?.long_body(request);
                if let Some(body) = long {
                    Box::pin(record_long_body(&mut caller, request, body)).await?;
                } else {
                    let mut view = MemoryView::new(&mut caller, "http")?;
                    record_call(&mut view, |view| view.note_request(request)).map_err(Trapped::new)?;
                }
                let mut body = BytesMut::new();
                run_in_steps(&mut caller, "http", move |view| http(view, request, &mut body)).await
            })
        },
    )?;
    linker.func_wrap(HOST_MODULE, "Handle_del", |mut caller: Caller<'_, QueryGuest>, handle: i32| {
        call_host_function(
            &mut caller,
            "Handle_del",
            |_| Ok(json!({ "handle": handle })),
            |view| handle_del(view, handle),
        )
    })?;
    linker.func_wrap(HOST_MODULE, "Future_ready", |mut caller: Caller<'_, QueryGuest>, future: i32| {
        let with = |_: &mut MemoryView<'_>| Ok(json!({ "future": future }));
        call_host_function(&mut caller, "Future_ready", with, |view| future_ready(view, future))
    })?;
    linker.func_wrap(
        HOST_MODULE,
        "Response_get",
        |mut caller: Caller<'_, QueryGuest>, future: i32, out: u32| {
            let with = |_: &mut MemoryView<'_>| Ok(json!({ "future": future }));
            call_host_function(&mut caller, "Response_get", with, |view| response_get(view, future, out))
        },
    )?;
    linker.func_wrap_async(
        HOST_MODULE,
        "Response_read",
        |mut caller: Caller<'_, QueryGuest>, (future, part, data, len): (i32, i32, u32, u32)| {
            Box::new(async move {
                let with =
                    move |_: &mut MemoryView<'_>| Ok(json!({ "future": future, "part": part, "len": len }));
                call_in_steps(&mut caller, "Response_read", with, move |view| {
                    response_read(view, future, part, (data, len))
                })
                .await
            })
        },
    )?;
    linker.func_wrap_async(
        HOST_MODULE,
        "Response_json",
        |mut caller, (future, pointer, pointer_len, data, len): (i32, u32, u32, u32, u32)| {
            Box::new(async move {
                caller.data_mut().index_document(future).await.map_err(Trapped::new)?;
                let with = move |view: &mut MemoryView<'_>| {
                    Ok(json!({ "future": future, "pointer": view.note_text(pointer, pointer_len)?, "len": len }))
                };
                let pointer = (pointer, pointer_len);
                let text = pointer_text(&MemoryView::new(&mut caller, "Response_json")?, pointer)?;
                let followed = match text {
                    Some(text) => caller.data_mut().resolve_pointer(future, text).await.map_err(Trapped::new)?,
                    None => None,
                };
                call_in_steps(&mut caller, "Response_json", with, move |view| {
                    response_json(view, future, pointer, followed.as_ref(), (data, len))
                })
                .await
            })
        },
    )?;
    linker.func_wrap_async(
        HOST_MODULE,
        "Future_wait",
        |caller, (futures, count, all): (u32, u32, i32)| {
            Box::new(future_wait(caller, futures, count, all != 0))
        },
    )?;
    Ok(())
}

/// Records a call of `http` with a long body: copies the body in parts, and has it written in the pool.
async fn record_long_body(
    caller: &mut Caller<'_, QueryGuest>,
    request: u32,
    body: (u32, u32),
) -> GuestResult<()> {
    let with = MemoryView::new(caller, "http")?.note_request(request).map_err(Trapped::new)?;
    // A request whose head is too large is recorded as null, and its body was not checked against the limit.
    let body = if with.is_null() { Bytes::new() } else { copy_whole(caller, "http", body).await? };
    caller.data_mut().record_call_with_body("http", with, body).await.map_err(Trapped::new)
}

fn http(view: &mut MemoryView<'_>, request: u32, body: &mut BytesMut) -> GuestResult<PartOutcome<i32>> {
    let Some(request) = read_request(view, request, body)? else { return Ok(PartOutcome::Yield) };
    start_request(view.guest, request).map(PartOutcome::Done).map_err(Trapped::new)
}

/// An `orfa_request`, copied from guest memory.
struct GuestRequest {
    method: Method,
    target: RequestTarget,
    headers: HeaderMap,
    body: Bytes,
    /// The bytes that the host holds for the request.
    held_bytes: usize,
}

/// Reads the request at an address. Checks the size against the memory limit before copying, since a request
/// may refer to the same bytes many times. The head counts twice: as read and as sent. Returns `None` while
/// more of the body remains to be copied.
fn read_request(
    view: &MemoryView<'_>,
    address: u32,
    copied: &mut BytesMut,
) -> GuestResult<Option<GuestRequest>> {
    let words = view.read_words(address)?;
    let [method, method_len, url, url_len, headers, header_count, body, body_len] = words;
    let bad = || Trapped::new(QueryError::BadText { function: "http" });
    if header_count > MAX_HEADERS {
        return Err(bad());
    }
    let head = head_len(view, words)?;
    if head > MAX_CALL_HEAD {
        let url = view.quote(url, url_len)?;
        return Err(Trapped::new(refused_call_error(view.guest, &url, HeaderError::TooLarge.into())));
    }
    let taken = 2 * head + view.slice(body, body_len)?.len();
    if taken > view.guest.remaining_memory() {
        return Err(Trapped::new(QueryError::from(view.guest.limits.exceeded_error(LimitKind::Memory))));
    }
    if !copy_in(view, (body, body_len), copied)? {
        return Ok(None);
    }
    let method = Method::from_bytes(view.slice(method, method_len)?).map_err(|_| bad())?;
    let url = view.read_text(url, url_len)?;
    let headers = read_headers(view, headers, header_count)?;
    let target = services::parse_target(url);
    let target = target.map_err(|error| Trapped::new(refused_call_error(view.guest, url, error.into())))?;
    let body = std::mem::take(copied).freeze();
    Ok(Some(GuestRequest { method, target, headers, body, held_bytes: taken }))
}

/// Returns the size of an `orfa_request`'s head: its method, its URL, and its headers as lines.
pub(super) fn head_len(
    view: &MemoryView<'_>,
    [method, method_len, url, url_len, headers, count, ..]: [u32; 8],
) -> GuestResult<usize> {
    let mut len = view.slice(method, method_len)?.len() + view.slice(url, url_len)?.len();
    for index in 0..count.min(MAX_HEADERS) {
        let [name, name_len, value, value_len] = header_at(view, headers, index)?;
        len += view.slice(name, name_len)?.len() + view.slice(value, value_len)?.len() + ": \r\n".len();
    }
    Ok(len)
}

fn header_at(view: &MemoryView<'_>, address: u32, index: u32) -> GuestResult<[u32; 4]> {
    view.read_words(address.saturating_add(index * HEADER_BYTES))
}

fn read_headers(view: &MemoryView<'_>, address: u32, count: u32) -> GuestResult<HeaderMap> {
    let bad = || Trapped::new(QueryError::BadText { function: "http" });
    let mut headers = HeaderMap::with_capacity(count as usize);
    for index in 0..count {
        let [name, name_len, value, value_len] = header_at(view, address, index)?;
        let name = HeaderName::from_bytes(view.slice(name, name_len)?).map_err(|_| bad())?;
        let value = HeaderValue::from_bytes(view.slice(value, value_len)?).map_err(|_| bad())?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// The bytes that the host keeps of a call until the end of the run, in addition to its path: its handle, and
/// its entry in the list of calls.
const CALL_BYTES: usize = size_of::<HandleState>() + size_of::<UpstreamCallRecord>();

/// Checks a call against the rules of the route and starts it.
fn start_request(guest: &mut QueryGuest, guest_request: GuestRequest) -> Result<i32, QueryError> {
    let GuestRequest { method, target, headers, body, held_bytes: taken } = guest_request;
    let name = target.service.to_ascii_lowercase();
    let service =
        guest.access.services.get(&name).cloned().ok_or_else(|| QueryError::UnknownService(short(&name)))?;
    let safe = method.is_safe();
    if !guest.access.methods.contains(&method) || (guest.safe_only && !safe) {
        let method = short(method.as_str());
        return Err(QueryError::CallMethod { service: service.name().to_string(), method });
    }
    guest.hold_memory(taken + CALL_BYTES + target.path_and_query.as_str().len())?;
    let path_and_query = target.path_and_query.clone();
    let request = ServiceRequest { method, path_and_query, headers, body };
    let call = guest.access.all_services.start(&guest.call, &service, request).map_err(|source| {
        refused_call_error(guest, &format!("http://{}{}", target.service, target.path_and_query), source)
    })?;
    if guest.tape.is_replaying() {
        return Ok(guest.futures.start_call(safe, taken, std::future::pending()));
    }
    guest.hold_memory(size_of_val(&call))?;
    Ok(guest.futures.start_call(safe, taken + size_of_val(&call), call))
}

/// Returns the bytes that the host holds for a response.
fn response_size(response: &ProgramResponse) -> usize {
    header_len(&response.headers) + response.body.len()
}

/// Returns the error of a run that made a forbidden or invalid call.
fn refused_call_error(guest: &QueryGuest, url: &str, error: CallError) -> QueryError {
    guest.run_ending_error(&error).unwrap_or_else(|| QueryError::Call { url: short(url), reason: error })
}

impl QueryGuest {
    /// Stores all finished calls in their slots.
    fn store_finished_calls(&mut self) -> Result<(), QueryError> {
        while let Some(ended) = self.futures.try_next() {
            self.store_finished_call(ended)?;
        }
        Ok(())
    }

    /// Waits for the next call to finish and returns its handle. Fails if a recording has no further finished
    /// call; returns `None` if no call is in flight.
    pub(crate) async fn wait_for_call(&mut self) -> Result<Option<i32>, QueryError> {
        let ended = match self.futures.try_next() {
            None => {
                self.tape.check_can_wait()?;
                self.release_run_permit();
                self.futures.next().await
            }
            ended => ended,
        };
        let Some(ended) = ended else { return Ok(None) };
        let handle = self.futures.handle(ended.0);
        self.store_finished_call(ended)?;
        Ok(Some(handle))
    }

    /// Returns the run's error if a failed call ends the run: because of a limit of the run, or because the
    /// gateway had no time for the response.
    pub(crate) fn run_ending_error(&self, error: &CallError) -> Option<QueryError> {
        let limit = match error {
            CallError::Unfinished(unfinished) => return Some((*unfinished).into()),
            CallError::Limit("limit-calls") => LimitKind::Calls,
            CallError::Limit("limit-received") => LimitKind::Received,
            CallError::Limit(_) => LimitKind::Deadline,
            _ => return None,
        };
        Some(self.limits.exceeded_error(limit).into())
    }

    /// Stores a finished call. A call that met a limit of the run ends the run. Otherwise the response counts
    /// towards the run's memory, and the request does not count any more.
    fn store_finished_call(&mut self, ended: UnstoredCall) -> Result<(), QueryError> {
        if let Some(error) = ended.1.as_ref().err().and_then(|error| self.run_ending_error(error)) {
            return Err(error);
        }
        let received = ended.1.as_ref().map_or(0, response_size);
        if let Some(handle) = self.futures.pending_handle(ended.0) {
            self.tape.record_upstream_result(handle, &ended.1)?;
        }
        match self.futures.store_result(ended) {
            Some(sent) => {
                self.release_memory(sent);
                self.hold_memory(received)
            }
            None => Ok(()),
        }
    }

    /// Records a host call. In a replay, finishes the calls that had finished at this point in the recording.
    pub(crate) fn record_host_call(&mut self, function: &'static str, with: Value) -> Result<(), QueryError> {
        let ended = self.tape.record_call(function, with)?;
        ended.into_iter().for_each(|ended| self.futures.finish_recorded(ended));
        Ok(())
    }

    /// Records a call whose argument `body` is long. The pool writes it. If the run ends meanwhile, its
    /// recording ends with this call or before it.
    async fn record_call_with_body(
        &mut self,
        function: &'static str,
        mut with: Value,
        body: Bytes,
    ) -> Result<(), QueryError> {
        let Some(mut recorder) = self.tape.lend_recorder() else { return Ok(()) };
        let bytes = body.len();
        let write = move || {
            if let Some(with) = with.as_object_mut() {
                with.insert("body".to_owned(), note_bytes(body));
            }
            recorder.record_call(function, with)
        };
        let called = self.run_in_pool("recording", bytes, write).await?;
        if let Some(recorder) = std::mem::take(&mut self.tape).into_recorder().await {
            self.tape = HostCallMode::Recording(recorder);
        }
        called
    }

    /// Returns the body of a response, or no bytes if there is none yet.
    fn response_body(&self, handle: i32) -> Bytes {
        match self.futures.get(handle) {
            Some(HandleState::Ended(Ok(response))) => response.body.clone(),
            _ => Bytes::new(),
        }
    }

    /// Returns the slot of a handle, after storing all finished calls.
    pub(super) fn updated_slot(
        &mut self,
        function: &'static str,
        handle: i32,
    ) -> Result<&HandleState, QueryError> {
        self.store_finished_calls()?;
        self.futures.get(handle).ok_or(QueryError::BadHandle { function, handle })
    }
}

fn handle_del(view: &mut MemoryView<'_>, handle: i32) -> GuestResult<()> {
    let guest = &mut *view.guest;
    guest.store_finished_calls().map_err(Trapped::new)?;
    match guest.futures.delete(handle) {
        Some(HandleState::Ended(Ok(response))) => {
            let index = guest.documents.delete(handle);
            guest.release_memory(response_size(&response) + index);
        }
        Some(HandleState::Pending { request_bytes: sent, .. }) => guest.release_memory(sent),
        Some(_) => {}
        // A reused instance may drop a handle of an earlier run only now.
        None if guest.futures.is_stale(handle) => {}
        None => return Err(Trapped::new(QueryError::BadHandle { function: "Handle_del", handle })),
    }
    Ok(())
}

fn future_ready(view: &mut MemoryView<'_>, handle: i32) -> GuestResult<i32> {
    let slot = view.guest.updated_slot("Future_ready", handle).map_err(Trapped::new)?;
    Ok(i32::from(matches!(slot, HandleState::Ended(_))))
}

fn response_get(view: &mut MemoryView<'_>, handle: i32, response: u32) -> GuestResult<i32> {
    let (status, error, headers, body) = match view
        .guest
        .updated_slot("Response_get", handle)
        .map_err(Trapped::new)?
    {
        HandleState::Ended(Ok(response)) => {
            (response.status.as_u16().into(), AbiCode::Ok, header_len(&response.headers), response.body.len())
        }
        HandleState::Ended(Err(error)) => (0, abi_code(error), 0, 0),
        _ => return Ok(AbiCode::NotReady as i32),
    };
    let words = [status, (error as i32).cast_unsigned(), headers as u32, body as u32];
    let out = view.slice_mut(response, query_abi::RESPONSE_BYTES)?;
    out.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(out, word)| *out = word.to_le_bytes());
    Ok(AbiCode::Ok as i32)
}

fn response_read(
    view: &mut MemoryView<'_>,
    handle: i32,
    part: i32,
    out: (u32, u32),
) -> GuestResult<PartOutcome<i32>> {
    let response = match view.guest.updated_slot("Response_read", handle).map_err(Trapped::new)? {
        HandleState::Ended(Ok(response)) => response,
        HandleState::Ended(Err(error)) => return Ok(PartOutcome::Done(abi_code(error) as i32)),
        _ => return Ok(PartOutcome::Done(AbiCode::NotReady as i32)),
    };
    let bytes = match part {
        part if part == ResponsePart::Body as i32 => response.body.clone(),
        part if part == ResponsePart::Headers as i32 => header_text(&response.headers).into(),
        _ => return Ok(PartOutcome::Done(AbiCode::Invalid as i32)),
    };
    copy_out(view, &bytes, out)
}

/// Returns the text of a JSON Pointer, or `None` if it is too long.
fn pointer_text(view: &MemoryView<'_>, (pointer, len): (u32, u32)) -> GuestResult<Option<String>> {
    view.slice(pointer, len)?;
    if len > MAX_TEXT_BYTES {
        Ok(None)
    } else {
        view.read_text(pointer, len).map(|text| Some(text.to_owned()))
    }
}

/// Returns the value at a pointer. For long documents, the pool has already resolved it.
fn response_json(
    view: &mut MemoryView<'_>,
    handle: i32,
    pointer: (u32, u32),
    followed: Option<&PointerResult>,
    out: (u32, u32),
) -> GuestResult<PartOutcome<i32>> {
    let Some(text) = pointer_text(view, pointer)? else {
        return Ok(PartOutcome::Done(AbiCode::Invalid as i32));
    };
    let found = match view.guest.document("Response_json", handle)? {
        Ok(document) => followed.cloned().unwrap_or_else(|| pointer_value(document.document, &text)),
        Err(error) => return Ok(error.next_step()),
    };
    match found {
        Ok(Some(value)) => {
            let body = view.guest.response_body(handle);
            view.guest.tape.record_data(&value, &body).map_err(Trapped::new)?;
            copy_out(view, &value, out)
        }
        Ok(None) => Ok(PartOutcome::Done(AbiCode::Missing as i32)),
        Err(_) => Ok(PartOutcome::Done(AbiCode::Invalid as i32)),
    }
}

/// Waits for any or all of the futures.
async fn future_wait(
    mut caller: Caller<'_, QueryGuest>,
    futures: u32,
    count: u32,
    all: bool,
) -> GuestResult<i32> {
    let mut view = MemoryView::new(&mut caller, "Future_wait")?;
    let with =
        |view: &mut MemoryView<'_>| Ok(json!({ "futures": view.note_numbers(futures, count)?, "all": all }));
    record_call(&mut view, with).map_err(Trapped::new)?;
    let handles = read_handles(&view, futures, count)?;
    let held = size_of_val(&*handles);
    view.guest.hold_memory(held).map_err(Trapped::new)?;
    let index = wait_for_futures(caller.data_mut(), &handles, all).await.map_err(Trapped::new)?;
    caller.data_mut().release_memory(held);
    caller.data_mut().tape.record_result(Some(index.into())).map_err(Trapped::new)?;
    Ok(index)
}

async fn wait_for_futures(guest: &mut QueryGuest, handles: &[i32], all: bool) -> Result<i32, QueryError> {
    if handles.is_empty() {
        return Ok(AbiCode::Missing as i32);
    }
    guest.store_finished_calls()?;
    if all { wait_all(guest, handles).await } else { wait_any(guest, handles).await }
}

/// Waits for the first future and returns its index.
async fn wait_any(guest: &mut QueryGuest, handles: &[i32]) -> Result<i32, QueryError> {
    for (index, handle) in (0..).zip(handles) {
        if has_ended(guest, *handle)? {
            return Ok(index);
        }
    }
    while let Some(ended) = guest.wait_for_call().await? {
        let mut waited = (0..).zip(handles);
        if let Some((index, _)) = waited.find(|(_, handle)| **handle == ended) {
            return Ok(index);
        }
        consume_budget().await;
    }
    Ok(AbiCode::Missing as i32)
}

/// Waits for all futures. Returns the index of the first one that has ended, which is the first of the list.
async fn wait_all(guest: &mut QueryGuest, handles: &[i32]) -> Result<i32, QueryError> {
    for handle in handles {
        while !has_ended(guest, *handle)? {
            if guest.wait_for_call().await?.is_none() {
                return Ok(AbiCode::Missing as i32);
            }
            consume_budget().await;
        }
    }
    Ok(0)
}

fn has_ended(guest: &QueryGuest, handle: i32) -> Result<bool, QueryError> {
    let slot = guest.futures.get(handle).ok_or(QueryError::BadHandle { function: "Future_wait", handle })?;
    Ok(matches!(slot, HandleState::Ended(_)))
}

/// Returns the maximum number of handles in a call of `Future_wait`.
pub(super) fn max_waited_handles(guest: &QueryGuest) -> u64 {
    guest.limits.value(LimitKind::Calls).max(MIN_WAIT_LIST.into())
}

/// Reads a list of handles. Each is checked whenever a call ends, so the list's length is limited to the
/// number of calls that a run may make.
fn read_handles(view: &MemoryView<'_>, futures: u32, count: u32) -> GuestResult<Vec<i32>> {
    let most = max_waited_handles(view.guest);
    let len = count.checked_mul(4).filter(|_| u64::from(count) <= most).ok_or_else(|| {
        let len = count.saturating_mul(4);
        Trapped::new(QueryError::BadPointer { function: "Future_wait", address: futures, len })
    })?;
    let words = view.slice(futures, len)?.as_chunks::<4>().0;
    Ok(words.iter().map(|word| i32::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use futures_util::FutureExt;
    use http::StatusCode;
    use offload::{JobRequest, QuotaKey, SHORT_TEXT};
    use sandbox::{GuestClass, Sandbox, Store};
    use services::{RequestBudget, ToProblem};

    use super::*;
    use crate::host::guest::AnswerBuilder;
    use crate::record::{RunRecorder, RunRecording};

    /// Returns a guest with calls that have ended but are not stored in their slots, and their handles.
    fn guest_with_ended_calls(count: usize) -> (QueryGuest, Vec<i32>) {
        let mut guest = QueryGuest::new_isolated();
        let handles = (0..count).map(|_| guest.futures.start_call(true, 0, std::future::pending())).collect();
        for number in 0..count {
            guest.futures.finish_recorded((number, Ok(response("1".into()))));
        }
        (guest, handles)
    }

    fn response(body: Bytes) -> ProgramResponse {
        ProgramResponse { status: StatusCode::OK, headers: HeaderMap::new(), body }
    }

    /// Returns the output of a future, and the number of its polls.
    async fn count_polls<T>(future: impl Future<Output = T>) -> (T, usize) {
        let (mut future, mut polls) = (pin!(future), 0);
        let output = poll_fn(|context| {
            polls += 1;
            future.as_mut().poll(context)
        });
        let output = output.await;
        (output, polls)
    }

    #[tokio::test]
    async fn keeps_the_recording_if_the_deadline_passes_while_the_pool_writes() {
        let mut guest = QueryGuest::new_isolated();
        guest.tape = HostCallMode::Recording(Box::new(RunRecorder::for_tests(1 << 20)));
        guest.record_host_call("clock", Value::Null).unwrap();
        guest.tape.record_result(Some(1)).unwrap();
        let (release, released) = mpsc::channel::<()>();
        let deadline = Instant::now() + Duration::from_secs(3600);
        let (payer, estimate) = (QuotaKey::new(&1), Duration::ZERO);
        let pool = guest.offload.clone();
        let blocking = pool
            .run(JobRequest { kind: "test", payer, estimate, deadline }, move |_| released.recv().is_ok());
        let mut blocking = pin!(blocking);
        assert!(blocking.as_mut().now_or_never().is_none(), "the only thread is busy");
        let body = Bytes::from(vec![b'x'; SHORT_TEXT + 1]);
        let dropped = guest.record_call_with_body("http", json!({}), body.clone()).now_or_never();
        assert!(dropped.is_none(), "the run ends while the job is queued");
        guest.tape = HostCallMode::Recording(std::mem::take(&mut guest.tape).into_recorder().await.unwrap());
        guest.call.budget = Arc::new(RequestBudget::new(Duration::ZERO, 1, 1, 1));
        let late = guest.record_call_with_body("http", json!({}), body).await;
        assert_eq!(late.unwrap_err().code(), "limit-deadline");
        let recorder = std::mem::take(&mut guest.tape).into_recorder().await.unwrap();
        let document = recorder.finish(AnswerBuilder::default().to_run_end()).unwrap();
        let calls = RunRecording::parse(&document).unwrap().calls;
        assert!(matches!(&*calls, [call] if call.function == "clock"), "{calls:?}");
        drop(release);
    }

    #[tokio::test]
    async fn copies_a_long_body_only_if_its_call_can_be_recorded() {
        const ADDRESS: u32 = 1024;
        let module = r#"(module
            (import "orfa" "http" (func $http (param i32) (result i32)))
            (memory (export "memory") 64)
            (func (export "call") (param i32) (result i32) (call $http (local.get 0))))"#;
        let sandbox = Sandbox::unpooled(GuestClass::Plain).unwrap();
        let module = sandbox.compile(&wat::parse_str(module).unwrap()).unwrap();
        let mut linker = Linker::new(sandbox.engine());
        add_to_linker(&mut linker).unwrap();
        let too_large = MAX_CALL_HEAD as u32 + 1;
        for (url_len, size, code) in
            [(too_large, 4 << 20, "call-head-too-large"), (1, 1 << 20, "recording-too-large")]
        {
            let mut store = Store::new(sandbox.engine(), QueryGuest::new_isolated());
            store.set_epoch_deadline(1);
            let instance = linker.instantiate_async(&mut store, &module).await.unwrap();
            let memory = instance.get_memory(&mut store, "memory").unwrap();
            let words = [0, 0, 0, url_len, 0, 0, 0, 2 << 20].map(u32::to_le_bytes).concat();
            memory.data_mut(&mut store)[ADDRESS as usize..][..words.len()].copy_from_slice(&words);
            store.data_mut().memory = Some(memory);
            store.data_mut().tape = HostCallMode::Recording(Box::new(RunRecorder::for_tests(size)));
            let call = instance.get_typed_func::<u32, i32>(&mut store, "call").unwrap();
            let (called, polls) = count_polls(call.call_async(&mut store, ADDRESS)).await;
            let error: QueryError = called.unwrap_err().downcast().unwrap();
            assert_eq!((error.code(), polls), (code, 1));
        }
    }

    #[tokio::test]
    async fn waiting_for_many_calls_yields() {
        let (mut guest, handles) = guest_with_ended_calls(1000);
        let (index, count) = count_polls(wait_all(&mut guest, &handles)).await;
        assert!(index.unwrap() == 0 && count > 3, "{count} polls");
        let (mut guest, handles) = guest_with_ended_calls(1000);
        let (index, count) = count_polls(wait_any(&mut guest, &handles[999..])).await;
        assert!(index.unwrap() == 0 && count > 3, "{count} polls");
    }

    #[tokio::test]
    async fn returns_the_index_of_the_call_that_ended() {
        let (mut guest, handles) = guest_with_ended_calls(3);
        let pending = guest.futures.start_call(true, 0, std::future::pending());
        assert_eq!(wait_any(&mut guest, &[pending, handles[2]]).await.unwrap(), 1);
        assert_eq!(wait_for_futures(&mut guest, &[pending, handles[2], handles[0]], false).await.unwrap(), 1);
        assert_eq!(wait_for_futures(&mut guest, &handles, true).await.unwrap(), 0);
        assert_eq!(wait_for_futures(&mut guest, &[], true).await.unwrap(), AbiCode::Missing as i32);
        let unknown = wait_for_futures(&mut guest, &[pending, 77], false).await;
        assert!(matches!(unknown, Err(QueryError::BadHandle { handle: 77, .. })));
    }

    #[tokio::test]
    async fn yields_before_it_indexes_a_longer_response() {
        use crate::host::documents::NoDocument;
        for (bytes, is_due) in [(64 << 10, false), (65 << 10, true)] {
            let (mut guest, _) = guest_with_ended_calls(0);
            let handle = guest.futures.start_call(true, 0, std::future::pending());
            let body = format!("\"{}\"", "a".repeat(bytes - 2));
            guest.futures.finish_recorded((0, Ok(response(body.into()))));
            let first = guest.document("Json_text", handle).unwrap();
            assert_eq!(matches!(first, Err(NoDocument::IndexPending)), is_due, "{bytes} bytes");
            assert!(guest.document("Json_text", handle).unwrap().is_ok());
        }
    }
}
