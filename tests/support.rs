//! What the end-to-end tests share: a gateway in front of a service that misbehaves (`house.rs`), the
//! requests that are sent to it (`query.rs`, many at once: `load.rs`), what the operator sees of it (`admin.rs`), programs made of WebAssembly text or C (`module.rs`), recordings of
//! their runs (`recorded.rs`), and OpenAPI documents (`openapi.rs`).

mod admin;
mod house;
mod load;
mod module;
mod openapi;
mod query;
mod recorded;

pub(crate) use admin::{admin, metric, metrics};
pub(crate) use house::House;
pub(crate) use load::{Asked, Load};
pub(crate) use module::{beside, build, plain, request, wat};
pub(crate) use openapi::ITEMS_OPENAPI;
pub(crate) use query::{Query, problem};
pub(crate) use recorded::{Recorded, replay, text, write};
