//! Helpers shared by the end-to-end tests: the binary under test (`binary.rs`), a gateway in front of a
//! misbehaving service (`test_gateway.rs`), queries (`query.rs`), load from many clients (`load.rs`), the
//! admin listener (`admin.rs`), program modules from WebAssembly text or C (`module.rs`), recordings of runs
//! (`recorded_run.rs`) and OpenAPI documents (`openapi.rs`).

mod admin;
mod binary;
mod load;
mod module;
mod openapi;
mod query;
mod recorded_run;
mod test_gateway;

pub(crate) use admin::{admin_url, fetch_metrics, metric_value};
pub(crate) use binary::orfa_binary;
pub(crate) use load::{ClientLoad, UnsentTestRequest};
pub(crate) use module::{build_c_program, c_environment_module, compile_wat, plain_module, request_segment};
pub(crate) use openapi::ITEMS_OPENAPI;
pub(crate) use query::{TestQuery, assert_problem};
pub(crate) use recorded_run::{RecordedRun, lossy_text, replay, write_file};
pub(crate) use test_gateway::TestGateway;
