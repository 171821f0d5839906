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

use std::sync::Arc;

use bytes::Bytes;
use json::Tree;

use crate::GraphqlError;
use crate::error::Code;
use crate::plan::Plan;
use answer::Writer;
pub(crate) use introspect::{IntrospectionLimits, values as introspected};
use run::Run;
pub(crate) use source::Source;
pub(crate) use variables::{Variables, is_short};

/// What a client gets: the whole response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) tree: Tree,
    pub(crate) has_errors: bool,
}

/// What an answer may have.
#[derive(Clone, Debug)]
pub(crate) struct AnswerRules {
    /// The most bytes.
    pub(crate) most: usize,
    /// Whether errors may name what only the schema names.
    pub(crate) tells_schema: bool,
    /// What fields that ask for the schema are answered, by their keys: those that are not there are answered with the rest.
    pub(crate) introspected: Vec<(Arc<str>, Bytes)>,
}

/// Runs a plan.
pub(crate) async fn run(
    plan: &Plan,
    schema: &graphql_tools::static_graphql::schema::Document,
    variables: Arc<Variables>,
    source: &dyn Source,
    rules: &AnswerRules,
) -> Answer {
    let mut run = Run::new(plan, variables);
    run.drive(source).await;
    Writer::write(&run, schema, rules).await.unwrap_or_else(|| Answer::too_large(rules.most))
}

impl Answer {
    /// The answer in place of one that has more bytes than it may have.
    pub(crate) fn too_large(most: usize) -> Self {
        let message = format!("the answer has more than {most} bytes: ask for less of it at once");
        let error = GraphqlError::new(Code::AnswerSize, message).json();
        let text = serde_json::json!({ "data": null, "errors": [error] }).to_string();
        Self { tree: Tree::Text(text.into()), has_errors: true }
    }
}

#[cfg(test)]
pub(crate) mod tests;
