//! The query ABI, shared by query modules, their environments and the gateway.
//!
//! This crate contains no code to run, only the names, codes and layouts of docs/query.md. They are used by
//! the host (`crates/query`), the post-link step (`orfa query build`) and the guests: `sdk/c/orfa_abi.h` is
//! generated from [`HOST_FUNCTIONS`] and [`AbiCode`] by `cargo xtask generate`.
//!
//! Source: the ORFA paper, tables 1 and 2 and sections 3.2 and 3.3.
#![no_std]
#![forbid(unsafe_code)]

/// The import module of the host functions.
pub const HOST_MODULE: &str = "orfa";
/// The linker's name for the module of all unresolved symbols. The post-link step replaces it with the name
/// of an environment.
pub const LINKER_MODULE: &str = "env";
/// The C environment: libc, memory, strings, yyjson. The names, signatures and layout of a version never
/// change.
pub const ENVIRONMENT_C: &str = "env:c@1";
/// The JavaScript environment: QuickJS and the `services` object.
pub const ENVIRONMENT_JAVASCRIPT: &str = "env:javascript@1";

/// The entry point of a query: `orfa(ptr: i32, len: i32)`, with the address and length of the input.
pub const ENTRY: &str = "orfa";
/// The constructors of a query module, called once before [`ENTRY`].
pub const CONSTRUCTORS: &str = "__wasm_call_ctors";
/// The global that both modules share for the stack in linear memory.
pub const STACK_POINTER: &str = "__stack_pointer";
/// The memory that an environment or a plain module exports.
pub const MEMORY: &str = "memory";
/// The table that an environment exports.
pub const TABLE: &str = "__indirect_function_table";
/// The export of an environment (or a plain module) by which the host allocates the input: `orfa_alloc(len:
/// i32) -> i32`, an address of `len` bytes aligned to 16, or 0.
pub const ALLOC: &str = "orfa_alloc";
/// The custom section that carries a module's metadata.
pub const SECTION: &str = "orfa";
/// The largest query module that is accepted by default, in bytes.
pub const MODULE_BYTES: usize = 64 * 1024;

/// The fixed regions of memory and table (paper, figure 6), in bytes and table slots.
pub mod layout {
    use core::ops::Range;

    /// The stack of both modules. It grows downwards, and an overflow below 0 traps.
    pub const STACK: Range<u32> = 0..256 * 1024;
    /// The region for the data segments and zeroed data of a query.
    pub const QUERY_DATA: Range<u32> = 256 * 1024..320 * 1024;
    /// The start of the environment's data, followed by its heap.
    pub const ENVIRONMENT_DATA: u32 = 320 * 1024;
    /// The table slots of a query's functions. Slot 0 stays empty, since it is C's null pointer.
    pub const QUERY_TABLE: Range<u32> = 1..256;
    /// The first table slot of the environment's functions.
    pub const ENVIRONMENT_TABLE: u32 = 256;
}

/// A value type of the WebAssembly core specification that the ABI uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbiType {
    /// `i32`: an address, a length, a handle or a code.
    I32,
    /// `i64`: a point in time.
    I64,
}

/// A function that the host provides in [`HOST_MODULE`].
#[derive(Clone, Copy, Debug)]
pub struct HostFunction {
    /// The import name.
    pub name: &'static str,
    /// The parameters: name, C type and core type.
    pub params: &'static [(&'static str, &'static str, AbiType)],
    /// The result: C type and core type.
    pub result: Option<(&'static str, AbiType)>,
    /// The documentation: effect, memory access and errors.
    pub doc: &'static str,
}

use AbiType::{I32, I64};

/// All host functions. The first five are those of table 2 of the paper.
pub const HOST_FUNCTIONS: &[HostFunction] = &[
    HostFunction {
        name: "done",
        params: &[("data", "const void *", I32), ("len", "uint32_t", I32)],
        result: None,
        doc: "Submits the response body. The bytes are copied. A second call ends the run with `program-done-twice`; a run that returns without a call ends with `program-no-answer`.",
    },
    HostFunction {
        name: "Handle_del",
        params: &[("handle", "orfa_handle", I32)],
        result: None,
        doc: "Deletes a future or the response it became, and frees what the host held for it. A call that is still in progress is cancelled. A handle that does not exist traps, `program-bad-handle`.",
    },
    HostFunction {
        name: "Future_ready",
        params: &[("future", "orfa_handle", I32)],
        result: Some(("int32_t", I32)),
        doc: "1 if the call has ended, successfully or not, 0 if it is in progress.",
    },
    HostFunction {
        name: "http",
        params: &[("request", "const orfa_request *", I32)],
        result: Some(("orfa_handle", I32)),
        doc: "Sends a request to a registered service and returns at once. The request is copied. The result is a handle above 0. A request that may not be sent (an unknown service, a method, path or header against the rules) ends the run with a problem that contains the reason.",
    },
    HostFunction {
        name: "Response_get",
        params: &[("future", "orfa_handle", I32), ("response", "orfa_response *", I32)],
        result: Some(("int32_t", I32)),
        doc: "Fills `response` if the call has ended and returns ORFA_OK; ORFA_NOT_READY if it has not. If there is no response, `status` is 0 and `error` is the reason.",
    },
    HostFunction {
        name: "Response_read",
        params: &[
            ("future", "orfa_handle", I32),
            ("part", "int32_t", I32),
            ("data", "void *", I32),
            ("len", "uint32_t", I32),
        ],
        result: Some(("int32_t", I32)),
        doc: "Copies a part of a response (ORFA_BODY or ORFA_HEADERS, the latter as `name: value` lines ending in CR LF) to `data`, `len` bytes at most, and returns the whole length of the part, or an `orfa_code` below 0.",
    },
    HostFunction {
        name: "Response_json",
        params: &[
            ("future", "orfa_handle", I32),
            ("pointer", "const char *", I32),
            ("pointer_len", "uint32_t", I32),
            ("data", "void *", I32),
            ("len", "uint32_t", I32),
        ],
        result: Some(("int32_t", I32)),
        doc: "Copies the JSON text of the value at a JSON Pointer (RFC 6901) in the body to `data`, `len` bytes at most, and returns the whole length of the text; ORFA_MISSING if the value does not exist, ORFA_NOT_JSON if the body is not JSON.",
    },
    HostFunction {
        name: "Json_root",
        params: &[
            ("future", "orfa_handle", I32),
            ("value", "orfa_json_value *", I32),
            ("data", "void *", I32),
            ("len", "uint32_t", I32),
        ],
        result: Some(("int32_t", I32)),
        doc: "Fills `value` with the JSON value of the whole body, and returns ORFA_OK. The first call validates the body and builds an index of it, which counts towards the run's memory until `Handle_del`. For a response of more than 128 KiB it has to precede the functions below, which return ORFA_NOT_READY until then. With ORFA_NOT_JSON and ORFA_TOO_DEEP, `node` of `value` is the position in bytes. A text is copied to `data` if `len` bytes can hold it and a trailing NUL.",
    },
    HostFunction {
        name: "Json_member",
        params: &[
            ("future", "orfa_handle", I32),
            ("node", "uint32_t", I32),
            ("name", "const char *", I32),
            ("name_len", "uint32_t", I32),
            ("last", "int32_t", I32),
            ("value", "orfa_json_value *", I32),
            ("data", "void *", I32),
            ("len", "uint32_t", I32),
        ],
        result: Some(("int32_t", I32)),
        doc: "Like `Json_root`, for a member of the object at `node`. Of members with equal names it uses the first, or the last if `last` is not 0. ORFA_MISSING if there is none.",
    },
    HostFunction {
        name: "Json_column",
        params: &[
            ("future", "orfa_handle", I32),
            ("node", "uint32_t", I32),
            ("name", "const char *", I32),
            ("name_len", "uint32_t", I32),
            ("last", "int32_t", I32),
            ("values", "orfa_json_value *", I32),
            ("count", "uint32_t", I32),
            ("data", "void *", I32),
            ("len", "uint32_t", I32),
        ],
        result: Some(("int32_t", I32)),
        doc: "Like `Json_member`, for the array item at `node` and those after it, `count` at most, and 1024: fills a value for each, ORFA_JSON_MISSING if an item has no such member, and returns their number. It stops at the end of the array, or before the first text that does not fit into `data`.",
    },
    HostFunction {
        name: "Json_children",
        params: &[
            ("future", "orfa_handle", I32),
            ("node", "uint32_t", I32),
            ("data", "void *", I32),
            ("len", "uint32_t", I32),
        ],
        result: Some(("int32_t", I32)),
        doc: "Writes an `orfa_json_value` for each item of the array at `node`, or two for each member of the object, its name and its value, followed by their texts, each with a NUL. Returns the number of bytes needed; if it is more than `len`, the bytes written have no meaning. `data` is aligned to 8.",
    },
    HostFunction {
        name: "Json_text",
        params: &[
            ("future", "orfa_handle", I32),
            ("node", "uint32_t", I32),
            ("data", "void *", I32),
            ("len", "uint32_t", I32),
        ],
        result: Some(("int32_t", I32)),
        doc: "Copies the text of the value at `node`, as the body contains it, to `data`, `len` bytes at most, and returns its whole length.",
    },
    HostFunction {
        name: "Future_wait",
        params: &[
            ("futures", "const orfa_handle *", I32),
            ("count", "uint32_t", I32),
            ("all", "int32_t", I32),
        ],
        result: Some(("int32_t", I32)),
        doc: "Waits until one (`all` = 0) or all of the futures have ended. Returns the index of the first that has ended, or ORFA_MISSING for no futures.",
    },
    HostFunction {
        name: "status",
        params: &[("code", "int32_t", I32)],
        result: Some(("int32_t", I32)),
        doc: "Sets the response's status, 200 to 599. ORFA_INVALID for any other.",
    },
    HostFunction {
        name: "header",
        params: &[
            ("name", "const char *", I32),
            ("name_len", "uint32_t", I32),
            ("value", "const char *", I32),
            ("value_len", "uint32_t", I32),
        ],
        result: Some(("int32_t", I32)),
        doc: "Sets a header of the response. ORFA_INVALID for an invalid header; a name that is not on the allow-list ends the run with `answer-header`.",
    },
    HostFunction {
        name: "clock",
        params: &[],
        result: Some(("int64_t", I64)),
        doc: "Milliseconds since 1970-01-01 UTC, deliberately coarse.",
    },
    HostFunction {
        name: "random",
        params: &[("data", "void *", I32), ("len", "uint32_t", I32)],
        result: None,
        doc: "Fills `data` with random bytes, different in every run.",
    },
    HostFunction {
        name: "log",
        params: &[("text", "const char *", I32), ("len", "uint32_t", I32)],
        result: None,
        doc: "Adds a line to the console: a run that fails includes the last 4 KB of it in its problem.",
    },
    HostFunction {
        name: "fail",
        params: &[
            ("kind", "int32_t", I32),
            ("text", "const char *", I32),
            ("len", "uint32_t", I32),
            ("line", "uint32_t", I32),
            ("column", "uint32_t", I32),
        ],
        result: None,
        doc: "Ends the run as failed by the program itself: `kind` is an `orfa_failure`. `line` and `column` count from 1, or are 0 if unknown. Does not return.",
    },
];

/// The result of a host function, or the reason a call has no response. 0 and above is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum AbiCode {
    /// Success.
    Ok = 0,
    /// The call is still in progress.
    NotReady = -1,
    /// The value does not exist.
    Missing = -2,
    /// The arguments are invalid: bad UTF-8, a status out of range, a malformed URL.
    Invalid = -3,
    /// The gateway's rules forbid it: a header, a method, a path.
    Forbidden = -4,
    /// The host part of the URL is not the name of a service that this route may use.
    UnknownService = -5,
    /// The body is not JSON.
    NotJson = -6,
    /// The gateway could not connect to the service.
    Unreachable = -7,
    /// The service did not respond in time.
    Timeout = -8,
    /// The service broke off the response, or the response was not HTTP.
    Broken = -9,
    /// The body is nested too deeply.
    TooDeep = -10,
}

impl AbiCode {
    /// Every code with its name in C and its meaning.
    pub const ALL: &[(Self, &'static str, &'static str)] = &[
        (Self::Ok, "ORFA_OK", "success"),
        (Self::NotReady, "ORFA_NOT_READY", "the call is still in progress"),
        (Self::Missing, "ORFA_MISSING", "the value does not exist"),
        (Self::Invalid, "ORFA_INVALID", "the arguments are invalid"),
        (Self::Forbidden, "ORFA_FORBIDDEN", "the gateway's rules forbid it"),
        (Self::UnknownService, "ORFA_UNKNOWN_SERVICE", "no such service on this route"),
        (Self::NotJson, "ORFA_NOT_JSON", "the body is not JSON"),
        (Self::Unreachable, "ORFA_UNREACHABLE", "no connection to the service"),
        (Self::Timeout, "ORFA_TIMEOUT", "the service did not respond in time"),
        (Self::Broken, "ORFA_BROKEN", "the service broke off the response, or it was not HTTP"),
        (Self::TooDeep, "ORFA_TOO_DEEP", "the JSON is nested too deeply"),
    ];
}

/// The `part` of `Response_read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ResponsePart {
    /// The body, after content decoding.
    Body = 0,
    /// The headers as `name: value` lines, each ending in CR LF.
    Headers = 1,
}

/// The `kind` of an `orfa_json_value`, which determines the meaning of its other words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum JsonKind {
    /// `null`
    Null = 0,
    /// `false`
    False = 1,
    /// `true`
    True = 2,
    /// A whole number of at least 0, as `u64`.
    Unsigned = 3,
    /// A whole number below 0, as `i64`.
    Negative = 4,
    /// Another number, as `f64`.
    Real = 5,
    /// A number outside of these ranges, as text with its original spelling.
    Big = 6,
    /// A string, in UTF-8 without escapes.
    String = 7,
    /// A string in which an unpaired surrogate was replaced by U+FFFD.
    Unpaired = 8,
    /// An array.
    Array = 9,
    /// An object.
    Object = 10,
    /// No value: the member does not exist.
    Missing = 11,
}

impl JsonKind {
    /// Every kind with its name in C and its meaning.
    pub const ALL: &[(Self, &'static str, &'static str)] = &[
        (Self::Null, "ORFA_JSON_NULL", "null"),
        (Self::False, "ORFA_JSON_FALSE", "false"),
        (Self::True, "ORFA_JSON_TRUE", "true"),
        (Self::Unsigned, "ORFA_JSON_UNSIGNED", "a whole number of at least 0, in `whole`"),
        (Self::Negative, "ORFA_JSON_NEGATIVE", "a whole number below 0, in `whole`"),
        (Self::Real, "ORFA_JSON_REAL", "another number, in `real`"),
        (Self::Big, "ORFA_JSON_BIG", "a number outside of these ranges, as text with its original spelling"),
        (Self::String, "ORFA_JSON_STRING", "a text, in UTF-8 without escapes"),
        (
            Self::Unpaired,
            "ORFA_JSON_UNPAIRED",
            "a text in which an unpaired surrogate was replaced by U+FFFD",
        ),
        (Self::Array, "ORFA_JSON_ARRAY", "an array of `len` items"),
        (Self::Object, "ORFA_JSON_OBJECT", "an object of `len` members"),
        (Self::Missing, "ORFA_JSON_MISSING", "no value: the member does not exist"),
    ];
}

/// The `kind` of `fail`: the way in which a program ended itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum FailureKind {
    /// The program gave up on purpose (`orfa_fail`).
    Refused = 0,
    /// An exception that was not caught.
    Threw = 1,
    /// The source does not parse.
    Syntax = 2,
    /// The program's promise can never settle, since nothing is in progress.
    Stalled = 3,
    /// The returned value can't be a response.
    BadAnswer = 4,
    /// The environment ran out of memory.
    Memory = 5,
}

impl FailureKind {
    /// Every kind with its name in C and its meaning.
    pub const ALL: &[(Self, &'static str, &'static str)] = &[
        (Self::Refused, "ORFA_REFUSED", "the program gave up on purpose"),
        (Self::Threw, "ORFA_THREW", "an exception that was not caught"),
        (Self::Syntax, "ORFA_SYNTAX", "the source does not parse"),
        (Self::Stalled, "ORFA_STALLED", "its promise can never settle"),
        (Self::BadAnswer, "ORFA_BAD_ANSWER", "the returned value can't be a response"),
        (Self::Memory, "ORFA_MEMORY", "the environment ran out of memory"),
    ];

    /// Returns the kind with this number.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.iter().find(|(kind, ..)| *kind as i32 == number).map(|(kind, ..)| *kind)
    }
}

/// The size of `orfa_request` in guest memory: eight little-endian words, `method, method_len, url, url_len,
/// headers, header_count, body, body_len`. Each address is followed by a length in bytes (for `headers`, by
/// the number of `orfa_header`).
pub const REQUEST_BYTES: u32 = 32;
/// The size of `orfa_header` in guest memory: `name, name_len, value, value_len`.
pub const HEADER_BYTES: u32 = 16;
/// The size of `orfa_response` in guest memory: `status, error, headers_len, body_len`.
pub const RESPONSE_BYTES: u32 = 16;
/// The size of `orfa_json_value` in guest memory: `kind`, `len`, then 8 bytes: a number, or the address of a
/// text in guest memory (0 if it did not fit) or the length of a container's text, followed by the value's
/// node, the position in the document where it starts.
pub const JSON_VALUE_BYTES: u32 = 16;
