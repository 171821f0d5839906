//! Tests that plan documents on composed schemas and execute them against a table of responses.

mod ahead;
mod aliases;
mod copied;
mod federated;
mod hidden;
mod large;
mod nested;
mod nulls;
mod played;
mod repeated;
mod resolver;
mod rig;
mod runs;
mod subgraph;
mod values;

/// Returns a planner of two REST services with links between them.
pub(crate) fn blog() -> crate::plan::QueryPlanner {
    rig::ExecutionFixture::rest(&[("blog", nested::BLOG), ("people", nested::PEOPLE)], nested::LINKS, &[])
        .planner
}
