//! Running a plan: steps are made as soon as what they need is there, and the answer is cut out of what came.
//!
//! Nothing is built of the services' answers. An object is the places in documents that its slots are at; what a step
//! found for it is looked up by those places (`val`, `numbers`, `find`). `run` makes the steps, `gather` finds whom they are
//! made for, `answer` walks the client's selection once and copies texts.

mod answer;
mod find;
mod gather;
mod introspect;
mod leaf;
mod numbers;
mod run;
mod source;
mod val;
mod variables;

use bytes::Bytes;
use json::Tree;

use crate::plan::Plan;
use answer::Writer;
use run::Run;
pub(crate) use source::Source;
use variables::Variables;

/// What a client gets.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The whole response.
    pub(crate) tree: Tree,
    /// Whether the request was wrong, so that nothing was run and there is no `data`.
    pub(crate) is_before_execution: bool,
}

/// Runs a plan. The variables are a JSON object, which was checked.
pub(crate) async fn run(
    plan: &Plan,
    schema: &graphql_tools::static_graphql::schema::Document,
    variables: Bytes,
    source: &dyn Source,
) -> Answer {
    let variables = match Variables::coerce(plan, variables) {
        Ok(variables) => variables,
        Err(errors) => return Answer::refused(&errors),
    };
    let mut run = Run::new(plan, variables);
    run.drive(source).await;
    let tree = Writer::new(&run, schema).write().await;
    Answer { tree, is_before_execution: false }
}

impl Answer {
    /// The answer to a request that is not run.
    pub(crate) fn refused(errors: &[crate::GraphqlError]) -> Self {
        let errors: Vec<_> = errors.iter().map(crate::GraphqlError::json).collect();
        let text = serde_json::json!({ "errors": errors }).to_string();
        Self { tree: Tree::Text(text.into()), is_before_execution: true }
    }
}

#[cfg(test)]
pub(crate) mod tests;
