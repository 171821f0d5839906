//! Numbers and names that host and modules agree on: those of the specification.

/// What a host function answers. Modules built with the Rust SDK panic at one that they don't expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok = 0,
    NotFound = 1,
    BadArgument = 2,
    SerializationFailure = 3,
    InvalidMemoryAccess = 6,
    Empty = 7,
    CasMismatch = 8,
    InternalFailure = 10,
    Unimplemented = 12,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::NotFound => "NOT_FOUND",
            Self::BadArgument => "BAD_ARGUMENT",
            Self::SerializationFailure => "SERIALIZATION_FAILURE",
            Self::InvalidMemoryAccess => "INVALID_MEMORY_ACCESS",
            Self::Empty => "EMPTY",
            Self::CasMismatch => "CAS_MISMATCH",
            Self::InternalFailure => "INTERNAL_FAILURE",
            Self::Unimplemented => "UNIMPLEMENTED",
        }
    }
}

/// Which version a module was built for; its marker export says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Abi {
    V0_1_0,
    V0_2_0,
    V0_2_1,
}

impl Abi {
    /// Newest first: a module may have several markers.
    pub(crate) const MARKERS: [(&str, Self); 3] = [
        ("proxy_abi_version_0_2_1", Self::V0_2_1),
        ("proxy_abi_version_0_2_0", Self::V0_2_0),
        ("proxy_abi_version_0_1_0", Self::V0_1_0),
    ];
}

/// What a callback for headers, body or trailers wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Continue,
    Pause,
}

impl Action {
    /// Envoy's own further values all stop in some way.
    pub(crate) fn of(value: u32) -> Self {
        if value == 0 { Self::Continue } else { Self::Pause }
    }
}

/// Which of the two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Request = 0,
    Response = 1,
}

/// A map of headers, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapType {
    RequestHeaders,
    RequestTrailers,
    ResponseHeaders,
    ResponseTrailers,
    GrpcInitialMetadata,
    GrpcTrailingMetadata,
    CallHeaders,
    CallTrailers,
}

impl MapType {
    pub(crate) fn of(number: u32) -> Result<Self, Status> {
        Ok(match number {
            0 => Self::RequestHeaders,
            1 => Self::RequestTrailers,
            2 => Self::ResponseHeaders,
            3 => Self::ResponseTrailers,
            4 => Self::GrpcInitialMetadata,
            5 => Self::GrpcTrailingMetadata,
            6 => Self::CallHeaders,
            7 => Self::CallTrailers,
            _ => return Err(Status::BadArgument),
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RequestHeaders => "request headers",
            Self::RequestTrailers => "request trailers",
            Self::ResponseHeaders => "response headers",
            Self::ResponseTrailers => "response trailers",
            Self::GrpcInitialMetadata => "gRPC initial metadata",
            Self::GrpcTrailingMetadata => "gRPC trailing metadata",
            Self::CallHeaders => "call headers",
            Self::CallTrailers => "call trailers",
        }
    }
}

/// A buffer, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferType {
    RequestBody,
    ResponseBody,
    /// Those of TCP, which is not there.
    Tcp,
    CallBody,
    GrpcMessage,
    VmConfiguration,
    PluginConfiguration,
    ForeignArguments,
}

impl BufferType {
    pub(crate) fn of(number: u32) -> Result<Self, Status> {
        Ok(match number {
            0 => Self::RequestBody,
            1 => Self::ResponseBody,
            2 | 3 => Self::Tcp,
            4 => Self::CallBody,
            5 => Self::GrpcMessage,
            6 => Self::VmConfiguration,
            7 => Self::PluginConfiguration,
            8 => Self::ForeignArguments,
            _ => return Err(Status::BadArgument),
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RequestBody => "request body",
            Self::ResponseBody => "response body",
            Self::Tcp => "TCP data",
            Self::CallBody => "call body",
            Self::GrpcMessage => "gRPC message",
            Self::VmConfiguration => "VM configuration",
            Self::PluginConfiguration => "plugin configuration",
            Self::ForeignArguments => "foreign function arguments",
        }
    }
}
