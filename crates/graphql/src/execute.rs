//! Plan execution: each step starts once its inputs are available, and the response is cut out of the
//! services' responses.
//!
//! No value tree is built from the services' responses. An object is represented by the document locations of
//! its slots (`slot_value.rs`, `slot_lists.rs`), and the result that a step fetched for it is looked up by
//! those locations (`step_results.rs`, `object_index.rs`, `object_reader.rs`). `run.rs` executes the steps
//! through a `StepExecutor`, `gather.rs` collects the objects that a step is executed for, and
//! `response_writer.rs` walks the client's selection once and copies text, with `leaf.rs` for scalars and
//! `introspect.rs` for fields of the schema.

mod gather;
mod introspect;
mod leaf;
mod object_index;
mod object_reader;
mod response_writer;
mod run;
mod slot_lists;
mod slot_value;
mod step_executor;
mod step_results;
mod variables;

use std::sync::Arc;

use bytes::Bytes;
use json::JsonTree;

use crate::error::GraphqlError;
use crate::error::GraphqlErrorKind;
use crate::plan::QueryPlan;
pub(crate) use introspect::{IntrospectionLimits, introspection_values as introspected};
use object_reader::ObjectReader;
use response_writer::DataWriter;
use run::ExecutionRun;
pub(crate) use step_executor::StepExecutor;
pub(crate) use variables::CoercedVariables;

/// The complete GraphQL response to a client.
#[derive(Clone, Debug)]
pub(crate) struct ExecutionResponse {
    pub(crate) tree: JsonTree,
    pub(crate) has_errors: bool,
}

/// The limits of a response, and the introspection values for it.
#[derive(Clone, Debug)]
pub(crate) struct AnswerRules {
    /// The maximum size of the response in bytes.
    pub(crate) max_bytes: usize,
    /// Whether error messages may contain names that occur only in the schema.
    pub(crate) exposes_schema: bool,
    /// The precomputed values of introspection fields, by response key. Fields that are missing here are
    /// evaluated while the response is written.
    pub(crate) introspection_values: Vec<(Arc<str>, Bytes)>,
}

/// Executes a plan.
pub(crate) async fn run(
    plan: &QueryPlan,
    schema: &graphql_tools::static_graphql::schema::Document,
    variables: Arc<CoercedVariables>,
    source: &dyn StepExecutor,
    rules: &AnswerRules,
) -> ExecutionResponse {
    let mut execution = ExecutionRun::new(plan, &variables);
    execution.execute_steps(source).await;
    let results = execution.into_results();
    DataWriter::write_response(ObjectReader { plan, results: &results }, &variables, schema, rules)
        .await
        .unwrap_or_else(|| ExecutionResponse::too_large(rules.max_bytes))
}

impl ExecutionResponse {
    /// Returns the error response that replaces one above the size limit.
    pub(crate) fn too_large(most: usize) -> Self {
        let message = format!("the answer has more than {most} bytes: ask for less of it at once");
        let error = GraphqlError::new(GraphqlErrorKind::ResponseSize, message).to_json();
        let text = serde_json::json!({ "data": null, "errors": [error] }).to_string();
        Self { tree: JsonTree::Text(text.into()), has_errors: true }
    }
}

#[cfg(test)]
pub(crate) mod tests;
