//! Generators of structured inputs: each writes a format from [`Choices`](crate::Choices), mostly well-formed, with the
//! mistakes that hostile peers make among it.

pub mod graphql;
pub mod http2;
pub mod json;
pub mod openapi;
pub mod worker;
