//! What modules hand in: lists of headers, paths of properties. See `fuzz/src/lib.rs`.
