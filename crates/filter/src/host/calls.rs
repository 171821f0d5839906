//! Calls to services. Each is made by a task outside of the instance, which delivers the response. If the
//! context that made the call is gone by then, the response is dropped.
//!
//! A call on behalf of a request shares the request's budget and trace. It is made in the name of the
//! gateway's operator, so the rights of the caller do not restrict it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use offload::polls::{PollSite, watch_polls};
use sandbox::GuestResult;
use services::body::BodyBuffer;
use services::coop::ByteTurn;
use services::headers;
use services::{CallError, RequestCall, StreamedServiceBody, ToProblem, UpstreamService, body};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::grpc::GrpcOutbox;
use super::refusals::{CallRefusal, log_failure};
use super::{FilterHost, GuestModule, HostResult};
use crate::context::{CallResponse, ContextEvent, InstanceHandle, ModuleContext, PluginSpec, ReceivedData};
use crate::exchange::message::{self, ClientScheme, HeadOverrides, MessageHead};
use crate::telemetry::increment;

/// The maximum number of calls of one instance that are in flight although their requests are over.
pub(crate) const MAX_DETACHED: usize = 1024;

/// The calls of an instance that are in flight.
#[derive(Default)]
pub(crate) struct PendingCalls {
    pending: HashMap<u32, PendingCall>,
    /// The contexts that made the calls, each with its call's token. A context's calls are found without a
    /// look at those of all other requests.
    by_context: BTreeSet<(u32, u32)>,
    /// The number of detached calls.
    detached_count: usize,
    last_token: u32,
}

/// A call in flight.
#[derive(Clone)]
pub(crate) struct PendingCall {
    /// The context that made the call.
    pub(crate) context: u32,
    /// The root context that receives the response.
    pub(crate) root: u32,
    task: AbortHandle,
    /// Whether the call was made after the exchange, so that it outlives its stream.
    is_detached: bool,
    /// The stream's `resume_count` when the call was made, if the stream waits for the call. Streams do not
    /// wait for gRPC streams.
    pub(crate) resume_count: Option<u32>,
    /// Whether the call was made in a callback about the response.
    pub(crate) in_response: bool,
    /// The queue of messages to send on a gRPC stream.
    pub(super) messages: Option<GrpcOutbox>,
}

/// The origin of a call and the destination of its response.
pub(super) struct CallOrigin {
    pub(super) call: RequestCall,
    pub(super) instance: InstanceHandle,
    pub(super) token: u32,
    runtime: Handle,
    context: u32,
    root: u32,
    is_detached: bool,
    resume_count: Option<u32>,
    in_response: bool,
}

/// The reason for which a call that was made has no response.
#[derive(Debug, thiserror::Error)]
enum CallFailure {
    #[error("{0}")]
    Call(#[from] CallError),
    #[error("its response broke off: {0}")]
    Broken(body::BodyError),
    #[error("its response is larger than the filter's `limits.buffer`")]
    TooLarge,
    #[error("it took longer than its timeout of {0:?}")]
    TimedOut(Duration),
}

impl CallFailure {
    fn code(&self) -> &'static str {
        match self {
            Self::Call(error) => error.code(),
            Self::Broken(_) => "upstream-broken",
            Self::TooLarge => "filter-response-too-large",
            Self::TimedOut(_) => "upstream-timeout",
        }
    }

    /// The status that Envoy gives such a call.
    fn status(&self) -> StatusCode {
        match self {
            Self::TimedOut(_) | Self::Call(CallError::Timeout { .. }) => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl PendingCalls {
    fn next_token(&mut self) -> u32 {
        loop {
            self.last_token = self.last_token.checked_add(1).unwrap_or(1);
            if !self.pending.contains_key(&self.last_token) {
                return self.last_token;
            }
        }
    }

    fn insert(&mut self, token: u32, pending: PendingCall) {
        self.by_context.insert((pending.context, token));
        self.detached_count += usize::from(pending.is_detached);
        self.pending.insert(token, pending);
    }

    /// Removes a call that has ended. Returns `None` if it was cancelled.
    pub(crate) fn remove(&mut self, token: u32) -> Option<PendingCall> {
        let pending = self.pending.remove(&token)?;
        self.by_context.remove(&(pending.context, token));
        self.detached_count -= usize::from(pending.is_detached);
        Some(pending)
    }

    /// A copy of the entry of a call that continues.
    pub(crate) fn get(&self, token: u32) -> Option<PendingCall> {
        self.pending.get(&token).cloned()
    }

    pub(super) fn get_mut(&mut self, token: u32) -> Option<&mut PendingCall> {
        self.pending.get_mut(&token)
    }

    /// Cancels a call.
    pub(super) fn cancel(&mut self, token: u32) -> Option<PendingCall> {
        let pending = self.remove(token)?;
        pending.task.abort();
        Some(pending)
    }

    /// Cancels the calls of a context, except detached ones.
    pub(crate) fn cancel_attached(&mut self, context: u32) {
        let is_attached = |token: &u32| self.pending.get(token).is_some_and(|pending| !pending.is_detached);
        let tokens: Vec<u32> = self.context_tokens(context).filter(is_attached).collect();
        for token in tokens {
            self.cancel(token);
        }
    }

    /// Cancels at most `most` calls, detached ones too. Returns whether any are left.
    pub(crate) fn cancel_batch(&mut self, most: usize) -> bool {
        let tokens: Vec<u32> = self.by_context.iter().take(most).map(|(_, token)| *token).collect();
        for token in tokens {
            self.cancel(token);
        }
        !self.pending.is_empty()
    }

    /// The tokens of the calls of a context.
    fn context_tokens(&self, context: u32) -> impl Iterator<Item = u32> {
        self.by_context.range((context, 0)..=(context, u32::MAX)).map(|(_, token)| *token)
    }
}

/// Tasks must not outlive the instance, however it ends.
impl Drop for PendingCalls {
    fn drop(&mut self) {
        self.cancel_batch(usize::MAX);
    }
}

/// The parameters of `proxy_http_call`: pointer and length of the upstream, the headers, the body and the
/// trailers, the timeout, and the address to which the token is written.
type HttpCallParameters = (u32, u32, u32, u32, u32, u32, u32, u32, u32, u32);

/// `proxy_http_call`
///
/// # Errors
/// Traps if the callback's time limit is exceeded.
pub(super) async fn http_call(
    guest: &mut GuestModule<'_>,
    (
        upstream_at,
        upstream_length,
        headers,
        headers_length,
        body,
        body_length,
        trailers,
        trailers_length,
        timeout,
        to,
    ): HttpCallParameters,
) -> GuestResult<HostResult> {
    let upstream = guest.memory_text((upstream_at, upstream_length)).unwrap_or_default();
    guest.describe_call(|| upstream.clone());
    let spans = [(upstream_at, upstream_length), (headers, headers_length), (trailers, trailers_length)];
    let body = match check_payload(guest, (body, body_length)) {
        Ok(()) => guest.copy_bytes((body, body_length)).await?.map_err(CallRefusal::from),
        Err(refusal) => Err(refusal),
    };
    let made = body.and_then(|body| start_http_call(guest, &upstream, spans, body, timeout, to));
    Ok(guest.host().note_call("proxy_http_call", &upstream, made))
}

fn start_http_call(
    guest: &mut GuestModule<'_>,
    upstream: &str,
    [named, headers, trailers]: [(u32, u32); 3],
    body: Bytes,
    timeout: u32,
    to: u32,
) -> Result<(), CallRefusal> {
    guest.short_bytes(named)?;
    let is_lenient = guest.host().is_lenient();
    let CallHead { mut head, authority, scheme } =
        build_request_head(guest.memory_bytes(headers)?, target_address(upstream), is_lenient)?;
    let trailers = parse_trailers(guest.memory_bytes(trailers)?)?;
    let timeout = i32::try_from(timeout).map_err(|_| CallRefusal::Timeout)?.unsigned_abs();
    // Written before anything is sent, since the module has to learn the token.
    guest.write_u32(to, 0)?;
    let service = resolve_target(guest.host(), upstream, scheme)?;
    let maker = CallOrigin::new(guest.host_mut(), false)?;
    maker.set_hop_count(&mut head.headers);
    let token = maker.token;
    let time = if timeout == 0 { service.timeout() } else { Duration::from_millis(timeout.into()) };
    let spec = Arc::clone(guest.host().spec().ok_or(CallRefusal::Unavailable)?);
    let request = Request::from_parts(head, payload_body(body, trailers));
    let answer = spec.services.forward(&maker.call, &service, request, authority);
    let (instance, payer) = (maker.instance.clone(), maker.call.quota_key());
    let upstream = upstream.to_owned();
    maker.spawn(guest.host_mut(), None, async move {
        let whole = async { read_response(answer.await?, spec.limits.buffer.0).await };
        let result = tokio::time::timeout(time, whole).await.unwrap_or(Err(CallFailure::TimedOut(time)));
        let received = result.unwrap_or_else(|failure| {
            log_failure(&spec, "proxy_http_call", &upstream, failure.code(), &failure);
            ReceivedData::failure(failure.status())
        });
        let response = CallResponse { token, payer, received };
        instance.deliver(ContextEvent::CallResponse(response)).await;
    });
    Ok(guest.write_u32(to, token)?)
}

/// Checks that the payload of a call is within the filter's buffer limit.
pub(super) fn check_payload(guest: &GuestModule<'_>, span: (u32, u32)) -> Result<(), CallRefusal> {
    let limit = guest.host().spec().map_or(0, |spec| spec.limits.buffer.0);
    if guest.memory_bytes(span)?.len() as u64 > limit { Err(CallRefusal::TooLarge) } else { Ok(()) }
}

impl CallOrigin {
    /// Registers a call of the effective context and checks its limits. A request waits for the end of a
    /// call, but not of a gRPC stream.
    pub(super) fn new(host: &mut FilterHost, is_stream: bool) -> Result<Self, CallRefusal> {
        let runtime = Handle::try_current().map_err(|_| CallRefusal::NoRuntime)?;
        let (context, current) = host.effective_context.clone().ok_or(CallRefusal::Unavailable)?;
        let spec = Arc::clone(current.spec());
        let (root, call, detached, era, in_response) = match &current {
            ModuleContext::Root(_)
                if host.calls.context_tokens(context).count() >= spec.limits.calls as usize =>
            {
                return Err(CallRefusal::TooMany);
            }
            ModuleContext::Root(root) => (root.id, RequestCall::unlimited(), false, None, false),
            ModuleContext::Stream(stream) => {
                let is_over = stream.exchange.messages().is_over;
                let mut state = stream.state();
                let is_full = is_over && host.calls.detached_count >= MAX_DETACHED;
                if is_full || state.call_count >= spec.limits.calls {
                    return Err(CallRefusal::TooMany);
                }
                state.call_count += 1;
                state.awaited_calls += u32::from(!is_stream);
                let (era, in_response) = ((!is_stream).then_some(state.resume_count), state.in_response);
                drop(state);
                let call = &stream.exchange.call;
                // A finished exchange has no budget any more, but keeps its hop count.
                let call = if is_over {
                    RequestCall { hops: call.hops, ..RequestCall::unlimited() }
                } else {
                    call.clone()
                };
                (stream.root, call, is_over, era, in_response)
            }
        };
        increment(&spec.stats.calls);
        let token = host.calls.next_token();
        let instance = host.instance.clone();
        let call = RequestCall { rights: None, payer: None, ..call };
        Ok(Self {
            call,
            instance,
            token,
            runtime,
            context,
            root,
            is_detached: detached,
            resume_count: era,
            in_response,
        })
    }

    /// Copies the request's hop count to a call. Otherwise a call that reaches the same filter again could
    /// loop forever.
    pub(super) fn set_hop_count(&self, headers: &mut HeaderMap) {
        for _ in headers::count_hops(headers)..self.call.hops {
            headers.append(headers::CDN_LOOP, HeaderValue::from_static("orfa"));
        }
    }

    /// Starts the task.
    pub(super) fn spawn(
        self,
        host: &mut FilterHost,
        messages: Option<GrpcOutbox>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.runtime.spawn(watch_polls(PollSite::Filters, task)).abort_handle();
        let Self { context, root, is_detached: detached, resume_count: era, in_response, token, .. } = self;
        host.calls.insert(
            token,
            PendingCall {
                context,
                root,
                task,
                is_detached: detached,
                resume_count: era,
                in_response,
                messages,
            },
        );
    }
}

/// The cluster in Envoy's `GrpcService` message, which its modules pass as the upstream of gRPC calls: the
/// field `cluster_name` of the field `envoy_grpc`, both field number 1.
fn grpc_cluster_name(upstream: &str) -> Option<&str> {
    let field = |bytes: &'_ str| -> Option<std::ops::Range<usize>> {
        let [b'\n', length @ ..=127, ..] = bytes.as_bytes() else { return None };
        Some(2..2 + usize::from(*length))
    };
    let service = upstream.get(field(upstream)?)?;
    service.get(field(service)?)
}

/// Resolves the service that a module names. Envoy's modules pass a cluster name, Istio's modules a cluster
/// name that ends with the host, and nginx's modules a host and a port.
pub(super) fn resolve_service(
    host: &FilterHost,
    upstream: &str,
) -> Result<Arc<UpstreamService>, CallRefusal> {
    let spec = host.spec().ok_or(CallRefusal::Unavailable)?;
    let upstream = grpc_cluster_name(upstream).unwrap_or(upstream);
    find_registered_service(host, spec, upstream).ok_or(CallRefusal::Target)
}

/// Resolves the target of an HTTP call: a service, or a host that matches one of the filter's patterns. A
/// host is called with TLS if the module passes `https`, as part of the target or as `:scheme`.
fn resolve_target(
    host: &FilterHost,
    upstream: &str,
    scheme: ClientScheme,
) -> Result<Arc<UpstreamService>, CallRefusal> {
    let spec = host.spec().ok_or(CallRefusal::Unavailable)?;
    let unregistered = || {
        let said = upstream.split_once("://").map(|(scheme, _)| scheme);
        let is_secure = said.map_or(scheme.0, |said| said.eq_ignore_ascii_case("https"));
        spec.hosts.find_service(target_address(upstream), is_secure)
    };
    find_registered_service(host, spec, upstream).or_else(unregistered).ok_or(CallRefusal::Target)
}

fn find_registered_service(
    host: &FilterHost,
    spec: &PluginSpec,
    upstream: &str,
) -> Option<Arc<UpstreamService>> {
    let upstream_service = spec.services.get(upstream).or_else(|| {
        let address = target_address(upstream);
        let address = address.rsplit_once('|').map_or(address, |(_, host)| host);
        let lenient = host.is_lenient().then_some(address)?;
        let host = lenient.rsplit_once(':').map_or(lenient, |(host, _)| host);
        spec.services
            .find_by_authority(lenient)
            .or_else(|| spec.services.get(lenient))
            .or_else(|| spec.services.get(host))
    });
    upstream_service.filter(|service| spec.can_call_service(service.name())).cloned()
}

/// Strips the scheme and the path of a target.
fn target_address(upstream: &str) -> &str {
    upstream.rsplit_once("://").map_or(upstream, |(_, rest)| rest).trim_end_matches('/')
}

/// The head of a module's call.
struct CallHead {
    head: http::request::Parts,
    /// The `Host` of the call; `None` for the service's own name.
    authority: Option<Authority>,
    scheme: ClientScheme,
}

/// Builds the head of a call. In the strict dialect, method, path and authority are
/// required, as in Envoy. In the lenient dialect they have nginx's defaults: `GET`, `/`, and the name of the
/// target; a path is made to start with `/`.
fn build_request_head(pairs: &[u8], target: &str, is_lenient: bool) -> Result<CallHead, CallRefusal> {
    let mut pairs = message::decode_pairs(pairs).map_err(|_| CallRefusal::Headers)?;
    let value = |name: &[u8]| pairs.iter().find(|(known, value)| *known == name && !value.is_empty());
    let value = |name: &[u8]| value(name).map(|(_, value)| *value);
    let [method, path, authority] = [b":method".as_slice(), b":path", b":authority"].map(value);
    if !is_lenient {
        for (value, name) in [(method, ":method"), (path, ":path"), (authority, ":authority")] {
            value.ok_or(CallRefusal::Missing(name))?;
        }
    }
    let path = path.unwrap_or(b"/");
    let rooted = (!path.starts_with(b"/")).then(|| [b"/", path].concat());
    let target = target.rsplit_once('|').map_or(target, |(_, host)| host);
    pairs.retain(|(name, _)| ![b":method".as_slice(), b":path", b":authority"].contains(name));
    pairs.push((b":method", method.unwrap_or(b"GET")));
    pairs.push((b":path", rooted.as_deref().filter(|_| is_lenient).unwrap_or(path)));
    // A target that is not a valid authority is ignored: then the service's own name is used.
    let named =
        authority.or_else(|| http::uri::Authority::try_from(target).is_ok().then_some(target.as_bytes()));
    pairs.extend(named.map(|named| (b":authority".as_slice(), named)));
    let mut request = Request::new(());
    *request.uri_mut() = PathAndQuery::from_static("/").into();
    let (mut head, ()) = request.into_parts();
    let mut aside = HeadOverrides::new(ClientScheme(false));
    MessageHead::Request(&mut head, &mut aside).set_all(&pairs).map_err(|_| CallRefusal::Headers)?;
    // A filter that forwards a request's headers for a check must not request an upgrade with them.
    for name in [HOST, CONNECTION, UPGRADE] {
        head.headers.remove(name);
    }
    Ok(CallHead { head, authority: aside.authority, scheme: aside.scheme })
}

fn parse_trailers(pairs: &[u8]) -> Result<HeaderMap, CallRefusal> {
    let mut trailers = HeaderMap::new();
    let pairs = message::decode_pairs(pairs).map_err(|_| CallRefusal::Headers)?;
    MessageHead::Plain(&mut trailers).set_all(&pairs).map_err(|_| CallRefusal::Headers)?;
    Ok(trailers)
}

fn payload_body(body: Bytes, trailers: HeaderMap) -> StreamedServiceBody {
    if trailers.is_empty() {
        return body::full(body);
    }
    body::full(body).with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync()
}

/// Reads a whole response. Fails if it is too large or breaks off.
async fn read_response(
    answer: http::Response<StreamedServiceBody>,
    limit: u64,
) -> Result<ReceivedData, CallFailure> {
    let (head, mut body) = answer.into_parts();
    let (mut data, mut turn) = (BodyBuffer::default(), ByteTurn::default());
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        match frame.map_err(CallFailure::Broken)?.into_data() {
            Ok(piece) => {
                turn.consume_bytes(piece.len()).await;
                if (data.len() + piece.len()) as u64 > limit {
                    return Err(CallFailure::TooLarge);
                }
                data.put(piece);
            }
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    Ok(ReceivedData { head: Some(head), trailers, body: data.finish().await, ..ReceivedData::default() })
}
