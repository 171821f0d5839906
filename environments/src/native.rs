//! The sources of the C environment, for a machine that is no gateway: `orfa query debug` compiles them beside a
//! query, so that its author steps through the very functions that it calls in a gateway.

/// A source: its file name and its text.
pub type Source = (&'static str, &'static str);

/// What is compiled.
pub const SOURCES: &[Source] = &[
    ("text.c", include_str!("../c/text.c")),
    ("format.c", include_str!("../c/format.c")),
    ("json.c", include_str!("../c/json.c")),
    ("lazy.c", include_str!("../c/lazy.c")),
    ("call.c", include_str!("../c/call.c")),
    ("answer.c", include_str!("../c/answer.c")),
    ("host.c", include_str!("../c/host.c")),
    ("yyjson.c", include_str!(concat!(env!("OUT_DIR"), "/yyjson.c"))),
];

/// What they include, beside the headers of `sdk/c`.
pub const HEADERS: &[Source] = &[
    ("environment.h", include_str!("../c/environment.h")),
    ("yyjson.h", include_str!(concat!(env!("OUT_DIR"), "/yyjson.h"))),
];
