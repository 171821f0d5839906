//! Helpers shared by the end-to-end tests: a gateway in front of a misbehaving service (`house.rs`), queries
//! (`query.rs`), load from many clients (`load.rs`), the admin listener (`admin.rs`), program modules from
//! WebAssembly text or C (`module.rs`), recordings of runs (`recorded.rs`) and OpenAPI documents
//! (`openapi.rs`).

mod admin;
mod house;
mod load;
mod module;
mod openapi;
mod query;
mod recorded;

pub(crate) use admin::{admin, metric, metrics};
pub(crate) use house::TestGateway;
pub(crate) use load::{ClientLoad, UnsentTestRequest};
pub(crate) use module::{beside, build, plain, request, wat};
pub(crate) use openapi::ITEMS_OPENAPI;
pub(crate) use query::{TestQuery, problem};
pub(crate) use recorded::{RecordedRun, replay, text, write};
