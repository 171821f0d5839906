//! The errors of query routes, with code, status and fault of each.
//!
//! Wrong requests are the client's fault (4xx). Errors of a running program are the program's fault (422), so
//! that an untrusted program never pages the operator. `module_refusal.rs` and `replay_stop.rs` define errors
//! that are wrapped here, and `failed_run.rs` adds the console, calls and timing of a run.

mod failed_run;
mod module_refusal;
mod replay_stop;

use http::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use offload::OffloadError;
use query_abi::FailureKind;
use serde_json::{Map, Value};
use services::{
    DecompressError, FaultParty, GatewayOverloaded, RequestBodyError, ToProblem, UnfinishedResponse,
};

use crate::limits::{ClientLimitsError, LimitExceededError, LimitKind};

pub(crate) use failed_run::failed_run_problem;
pub(crate) use module_refusal::ModuleRefusal;
pub(crate) use replay_stop::ReplayStop;

/// An error of a query request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    #[error("the method {method} is not allowed here")]
    Method { method: http::Method, allowed: &'static str },
    #[error("the request has no Content-Type")]
    NoContentType,
    #[error("the Content-Type `{0}` is not a program's")]
    ContentType(String),
    #[error("the header {header}: {detail}")]
    Header { header: &'static str, detail: String },
    #[error("ORFA-Input is {input}, but the body has only {body} bytes")]
    InputLength { input: usize, body: usize },
    #[error("the request has input where it is not read: {0}")]
    InputMisplaced(&'static str),
    #[error("the form: {0}")]
    Form(String),
    #[error("the Content-Encoding `{0}` is unknown")]
    Encoding(String),
    #[error("the body does not match its Content-Encoding")]
    BrokenEncoding,
    #[error(transparent)]
    Body(RequestBodyError),
    #[error("the request has no program")]
    NoProgram,
    #[error("the program has {size} bytes, more than {limit}")]
    ProgramSize { size: usize, limit: u64 },
    #[error("the token was not issued by this gateway, or its key is gone")]
    TokenUnknown,
    #[error("the token has expired")]
    TokenExpired,
    #[error("the token belongs to another caller")]
    TokenCaller,
    #[error("the key that signed the token's program is not trusted any more")]
    TokenRevoked,
    #[error("the named program is not cached, or not any more")]
    ProgramUnknown(Box<str>),
    #[error("the key `{0}` is not trusted here")]
    KeyUnknown(String),
    #[error("the key `{0}` has expired")]
    KeyExpired(String),
    #[error("the signature is not valid for this program and the key `{0}`")]
    SignatureWrong(String),
    #[error("too many invalid signatures")]
    SignatureRate { wait: std::time::Duration },
    #[error("this route runs only signed programs")]
    Unsigned,
    #[error("this route runs only stored programs")]
    NotStored,
    #[error("the operator has blocked this program")]
    ProgramBlocked,
    #[error("there is no stored program `{0}`")]
    StoredUnknown(String),
    #[error("too many new programs or encoded bodies: the quota for compiling and decoding them is used up")]
    CompileRate { wait: std::time::Duration },
    #[error("the program is not UTF-8")]
    NotText,
    #[error("{0}")]
    Module(#[from] ModuleRefusal),
    #[error("{message}")]
    Syntax { message: String, hint: Option<String>, line: u32, column: u32 },
    #[error("the program needs more than {}, {}", .limit.show(*.value), whose(*.granted))]
    Limit { limit: LimitKind, value: u64, granted: bool },
    /// The request's deadline passed before the pool had done the work. The route adds the limit's value.
    #[error("the request's deadline has passed")]
    DeadlineExceeded,
    #[error("{text}")]
    Failed { kind: FailureKind, text: String, line: u32, column: u32 },
    #[error("the program trapped: {0}")]
    Trapped(String),
    #[error("the program ended without an answer")]
    NoAnswer,
    #[error("the program called `done` a second time")]
    DoneTwice,
    #[error("`{function}` was called with handle {handle}, which does not exist")]
    BadHandle { function: &'static str, handle: i32 },
    #[error("`{function}` was called with {len} bytes at address {address}, outside of the memory")]
    BadPointer { function: &'static str, address: u32, len: u32 },
    #[error(
        "`{function}` was called with text that is not UTF-8, or not the method, header or URL that it has to be"
    )]
    BadText { function: &'static str },
    #[error("the program may not send {method} to `{service}`")]
    CallMethod { service: String, method: String },
    #[error("the program called {url}: {}", short(&.reason.to_string()))]
    Call { url: String, reason: services::CallError },
    #[error("there is no service `{0}` on this route")]
    UnknownService(String),
    #[error("an answer may not have the header `{0}`")]
    AnswerHeader(String),
    #[error("this route does not record runs")]
    RecordingOff,
    #[error("this route does not record this caller's runs")]
    RecordingCaller,
    #[error("the program belongs to another caller, and its runs are not recorded")]
    RecordingProgram,
    #[error("the recording needs more than {0} bytes, which is the cap of this route")]
    RecordingSize(u64),
    #[error("{0}")]
    Replay(#[from] ReplayStop),
    #[error(transparent)]
    Overloaded(#[from] GatewayOverloaded),
    #[error(transparent)]
    Unfinished(#[from] UnfinishedResponse),
    #[error("the gateway could not run the program: {0}")]
    Gateway(String),
}

/// Cuts a program's text to the length that problems quote. Problems are not bound by the answer's size
/// limit.
pub(crate) fn short(text: &str) -> String {
    truncate_chars(text, 4096)
}

/// Returns the first `chars` characters of a text, with an ellipsis if it was cut.
pub(crate) fn truncate_chars(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn whose(granted: bool) -> &'static str {
    if granted { "which is the limit of ORFA-Limit" } else { "which is the cap of this route" }
}

impl QueryError {
    /// Whether the client only has to send the program again.
    fn wants_program(&self) -> bool {
        matches!(
            self,
            Self::TokenUnknown
                | Self::TokenExpired
                | Self::TokenCaller
                | Self::TokenRevoked
                | Self::ProgramUnknown(_)
        )
    }
}

impl From<ClientLimitsError> for QueryError {
    fn from(ClientLimitsError(detail): ClientLimitsError) -> Self {
        Self::Header { header: "ORFA-Limit", detail }
    }
}

impl From<LimitExceededError> for QueryError {
    fn from(LimitExceededError { limit, effective }: LimitExceededError) -> Self {
        Self::Limit { limit, value: effective.value, granted: effective.is_from_client }
    }
}

impl From<RequestBodyError> for QueryError {
    fn from(error: RequestBodyError) -> Self {
        match error {
            RequestBodyError::DeadlineExceeded => Self::DeadlineExceeded,
            error => Self::Body(error),
        }
    }
}

impl From<DecompressError> for QueryError {
    fn from(error: DecompressError) -> Self {
        match error {
            DecompressError::UnknownCoding(coding) => Self::Encoding(coding),
            DecompressError::Malformed => Self::BrokenEncoding,
            DecompressError::TooLarge(limit) => RequestBodyError::TooLarge(limit).into(),
            DecompressError::Refused(error) => error.into(),
        }
    }
}

impl From<OffloadError> for QueryError {
    fn from(error: OffloadError) -> Self {
        match error {
            OffloadError::QuotaExceeded { retry_after } => Self::CompileRate { wait: retry_after },
            OffloadError::QueueFull => GatewayOverloaded.into(),
            OffloadError::DeadlineExceeded => Self::DeadlineExceeded,
            OffloadError::Panicked => Self::Gateway("a program or a body could not be read".into()),
        }
    }
}

impl ToProblem for QueryError {
    fn code(&self) -> &'static str {
        match self {
            Self::Method { .. } => "method-not-allowed",
            Self::NoContentType => "content-type-missing",
            Self::ContentType(_) => "content-type-unknown",
            Self::Header { .. } => "header-malformed",
            Self::InputLength { .. } => "input-length",
            Self::InputMisplaced(_) => "input-misplaced",
            Self::Form(_) => "form-malformed",
            Self::Encoding(_) => "content-encoding-unknown",
            Self::BrokenEncoding => "content-encoding-broken",
            Self::Body(error) => error.code(),
            Self::NoProgram => "program-missing",
            Self::ProgramSize { .. } => "program-too-large",
            Self::TokenUnknown => "program-token-unknown",
            Self::TokenExpired => "program-token-expired",
            Self::TokenCaller => "program-token-caller",
            Self::TokenRevoked => "program-token-revoked",
            Self::ProgramUnknown(_) => "program-unknown",
            Self::KeyUnknown(_) => "trust-key-unknown",
            Self::KeyExpired(_) => "trust-key-expired",
            Self::SignatureWrong(_) => "trust-signature-wrong",
            Self::SignatureRate { .. } => "trust-rate",
            Self::Unsigned => "program-unsigned",
            Self::ProgramBlocked => "program-blocked",
            Self::NotStored => "program-not-stored",
            Self::StoredUnknown(_) => "stored-unknown",
            Self::CompileRate { .. } => "compile-rate",
            Self::NotText => "program-not-text",
            Self::Module(refusal) => refusal.code(),
            Self::Syntax { .. } => "program-syntax",
            Self::Limit { limit, .. } => limit.code(),
            Self::DeadlineExceeded => LimitKind::Deadline.code(),
            Self::Failed { kind, .. } => failure_code(*kind),
            Self::Trapped(_) => "program-trapped",
            Self::NoAnswer => "program-no-answer",
            Self::DoneTwice => "program-done-twice",
            Self::BadHandle { .. } => "program-bad-handle",
            Self::BadPointer { .. } => "program-bad-pointer",
            Self::BadText { .. } => "program-bad-text",
            Self::CallMethod { .. } => "call-method",
            Self::Call { reason, .. } => reason.code(),
            Self::UnknownService(_) => "call-unknown-service",
            Self::AnswerHeader(_) => "answer-header",
            Self::RecordingOff => "recording-off",
            Self::RecordingCaller => "recording-forbidden",
            Self::RecordingProgram => "recording-not-yours",
            Self::RecordingSize(_) => "recording-too-large",
            Self::Overloaded(overloaded) => overloaded.code(),
            Self::Unfinished(unfinished) => unfinished.code(),
            Self::Gateway(_) | Self::Replay(_) => "gateway-failed",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            _ if self.wants_program() => StatusCode::CONFLICT,
            Self::KeyUnknown(_)
            | Self::KeyExpired(_)
            | Self::SignatureWrong(_)
            | Self::Unsigned
            | Self::ProgramBlocked
            | Self::NotStored => StatusCode::FORBIDDEN,
            Self::StoredUnknown(_) => StatusCode::NOT_FOUND,
            Self::CompileRate { .. } | Self::SignatureRate { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::ContentType(_) | Self::Encoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::ProgramSize { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(error) => error.status(),
            Self::Overloaded(overloaded) => overloaded.status(),
            Self::Unfinished(unfinished) => unfinished.status(),
            Self::RecordingOff | Self::RecordingCaller | Self::RecordingProgram => StatusCode::FORBIDDEN,
            Self::Gateway(_) | Self::Replay(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Call { reason, .. } if reason.fault() == FaultParty::Client => reason.status(),
            _ if self.fault() == FaultParty::Program => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    fn fault(&self) -> FaultParty {
        match self {
            Self::Body(error) => error.fault(),
            Self::Overloaded(overloaded) => overloaded.fault(),
            Self::Unfinished(unfinished) => unfinished.fault(),
            Self::Gateway(_) | Self::Replay(_) => FaultParty::Gateway,
            Self::Call { reason, .. } if reason.fault() == FaultParty::Client => FaultParty::Client,
            Self::Method { .. }
            | Self::TokenUnknown
            | Self::TokenExpired
            | Self::TokenCaller
            | Self::TokenRevoked
            | Self::ProgramUnknown(_)
            | Self::KeyUnknown(_)
            | Self::KeyExpired(_)
            | Self::SignatureWrong(_)
            | Self::SignatureRate { .. }
            | Self::Unsigned
            | Self::ProgramBlocked
            | Self::NotStored
            | Self::StoredUnknown(_)
            | Self::CompileRate { .. }
            | Self::NoContentType
            | Self::ContentType(_)
            | Self::Header { .. }
            | Self::InputLength { .. }
            | Self::InputMisplaced(_)
            | Self::Form(_)
            | Self::Encoding(_)
            | Self::BrokenEncoding
            | Self::NoProgram
            | Self::ProgramSize { .. }
            | Self::NotText
            | Self::RecordingOff
            | Self::RecordingCaller
            | Self::RecordingProgram => FaultParty::Client,
            _ => FaultParty::Program,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Method { .. } => "send a program with POST, or with QUERY if it makes only safe calls".into(),
            _ if self.wants_program() => "send the program again; the answer brings a new token".into(),
            Self::KeyUnknown(_) | Self::KeyExpired(_) => "sign it with a key under `trust`".into(),
            Self::SignatureWrong(_) => {
                "`orfa query sign` prints the header for a program; it is valid only for these bytes and this Content-Type"
                    .into()
            }
            Self::SignatureRate { .. } => "send it again after Retry-After, signed by `orfa query sign`".into(),
            Self::Unsigned => "send `ORFA-Trust` with the program: `orfa query sign` prints it".into(),
            Self::ProgramBlocked => "sending it again does not help: its hash is in `programs.blocked` of the gateway's config".into(),
            Self::NotStored => "call one of the stored programs by its name, below this path".into(),
            Self::StoredUnknown(_) => "versions that the route does not list any more are not kept".into(),
            Self::CompileRate { .. } => "send it again after Retry-After; programs that were compiled before still run".into(),
            Self::NoContentType | Self::ContentType(_) => "use application/wasm, text/javascript, text/typescript, or \
                 multipart/form-data with the parts `program` and `input`"
                .into(),
            Self::InputLength { .. } => {
                "the body is the input followed by the program; ORFA-Input is the length of the input in bytes".into()
            }
            Self::InputMisplaced(_) => "the input is the URL's parameters with GET and HEAD, the part `input` of a form, and \
                 else the body, where ORFA-Input is its length if the program follows it"
                .into(),
            Self::Module(refusal) => refusal.hint().into(),
            Self::Syntax { hint, .. } => hint.clone().unwrap_or_default(),
            Self::Limit { limit, granted: true, .. } => {
                format!("grant more with `ORFA-Limit: {}=...`, up to the route's own cap", limit.word())
            }
            Self::UnknownService(_) => "a URL's host has to be the name of one of the route's services".into(),
            Self::Call { reason, .. } => reason.hint(),
            Self::Overloaded(overloaded) => overloaded.hint(),
            Self::Unfinished(unfinished) => unfinished.hint(),
            Self::RecordingOff | Self::RecordingCaller | Self::RecordingProgram => {
                "the operator configures under `recordings` which callers' runs are recorded".into()
            }
            Self::RecordingSize(_) => {
                "ask for less, or have the operator raise the route's `recordings.size`".into()
            }
            Self::NoAnswer => "call `done`, with no bytes for an empty answer".into(),
            _ => String::new(),
        }
    }

    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        if self.wants_program() {
            members.insert("send_program".into(), true.into());
        }
        if let Self::ProgramUnknown(gateway) = self {
            members.insert("gateway".into(), (&**gateway).into());
        }
        if let Self::Failed { line: line @ 1.., column, .. } | Self::Syntax { line: line @ 1.., column, .. } =
            self
        {
            members.insert("line".into(), (*line).into());
            members.insert("column".into(), (*column).into());
        }
        members
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = match self {
            Self::Overloaded(overloaded) => overloaded.headers(),
            _ => HeaderMap::new(),
        };
        if let Self::Method { allowed, .. } = self {
            headers.insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if let Self::CompileRate { wait } | Self::SignatureRate { wait } = self {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
        if matches!(self, Self::Method { .. } | Self::NoContentType | Self::ContentType(_)) {
            headers.insert(ACCEPT_QUERY, HeaderValue::from_static(ACCEPTED_TYPES));
        }
        headers
    }
}

/// The header that lists the media types that a resource accepts with the method QUERY (RFC 10008).
pub(crate) const ACCEPT_QUERY: HeaderName = HeaderName::from_static("accept-query");
/// The media types of programs.
pub(crate) const ACCEPTED_TYPES: &str =
    "application/wasm, text/javascript, text/typescript, multipart/form-data";

fn failure_code(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Refused => "program-refused",
        FailureKind::Threw => "program-threw",
        FailureKind::Syntax => "program-syntax",
        FailureKind::Stalled => "program-stalled",
        FailureKind::BadAnswer => "program-bad-answer",
        FailureKind::Memory => "limit-memory",
    }
}
