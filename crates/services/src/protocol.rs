//! HTTP/1.1 and HTTP/2 on the wire, as far as clients and servers share it.
//!
//! `transport` is the client built on it; the server is in `gateway`.

pub mod http1;
pub mod http2;
