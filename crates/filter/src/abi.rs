//! Numbers and names of the ABI between host and modules, from the Proxy-Wasm specification.

mod features;

pub(crate) use features::ModuleFeatures;

/// The status that a host function returns. Modules built with the Rust SDK panic on one that they do not
/// expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostStatus {
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

impl HostStatus {
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

/// The ABI version that a module was built for, which its marker export names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AbiVersion {
    V0_1_0,
    V0_2_0,
    V0_2_1,
}

impl AbiVersion {
    /// The marker exports, newest first: a module may have several.
    pub(crate) const MARKERS: [(&str, Self); 3] = [
        ("proxy_abi_version_0_2_1", Self::V0_2_1),
        ("proxy_abi_version_0_2_0", Self::V0_2_0),
        ("proxy_abi_version_0_1_0", Self::V0_1_0),
    ];
}

/// The action that a callback for headers, body or trailers returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterAction {
    Continue,
    Pause,
}

impl FilterAction {
    /// Converts the returned number. Envoy's additional values all pause in some way.
    pub(crate) fn from_number(value: u32) -> Self {
        if value == 0 { Self::Continue } else { Self::Pause }
    }
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageSide {
    Request = 0,
    Response = 1,
}

impl MessageSide {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// A header map of the ABI.
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
    pub(crate) fn from_number(number: u32) -> Result<Self, HostStatus> {
        Ok(match number {
            0 => Self::RequestHeaders,
            1 => Self::RequestTrailers,
            2 => Self::ResponseHeaders,
            3 => Self::ResponseTrailers,
            4 => Self::GrpcInitialMetadata,
            5 => Self::GrpcTrailingMetadata,
            6 => Self::CallHeaders,
            7 => Self::CallTrailers,
            _ => return Err(HostStatus::BadArgument),
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

/// A buffer of the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferType {
    RequestBody,
    ResponseBody,
    /// Downstream or upstream data of a TCP connection, which is not supported.
    Tcp,
    CallBody,
    GrpcMessage,
    VmConfiguration,
    PluginConfiguration,
    ForeignArguments,
}

impl BufferType {
    pub(crate) fn from_number(number: u32) -> Result<Self, HostStatus> {
        Ok(match number {
            0 => Self::RequestBody,
            1 => Self::ResponseBody,
            2 | 3 => Self::Tcp,
            4 => Self::CallBody,
            5 => Self::GrpcMessage,
            6 => Self::VmConfiguration,
            7 => Self::PluginConfiguration,
            8 => Self::ForeignArguments,
            _ => return Err(HostStatus::BadArgument),
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
