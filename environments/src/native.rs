//! The sources of the C environment, for native compilation: `orfa query debug` compiles them together with a
//! query, so that its author steps through the same functions that the query calls in a gateway.

/// A source file: its name and its text.
pub type SourceText = (&'static str, &'static str);

/// The sources to compile.
pub const SOURCES: &[SourceText] = &[
    ("text.c", include_str!("../c/text.c")),
    ("format.c", include_str!("../c/format.c")),
    ("json.c", include_str!("../c/json.c")),
    ("lazy.c", include_str!("../c/lazy.c")),
    ("call.c", include_str!("../c/call.c")),
    ("answer.c", include_str!("../c/answer.c")),
    ("host.c", include_str!("../c/host.c")),
    ("yyjson.c", include_str!(concat!(env!("OUT_DIR"), "/yyjson.c"))),
];

/// The headers that they include, besides those of `sdk/c`.
pub const HEADERS: &[SourceText] = &[
    ("environment.h", include_str!("../c/environment.h")),
    ("yyjson.h", include_str!(concat!(env!("OUT_DIR"), "/yyjson.h"))),
];
