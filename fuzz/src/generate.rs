//! Generators of structured inputs. Each writes a format from [`ByteChoices`](crate::ByteChoices), mostly
//! well-formed, with the mistakes that hostile peers make.

pub mod graphql;
pub mod http2;
pub mod json;
pub mod openapi;
pub mod worker;
