//! Tests that plan documents on composed schemas and execute them against a table of responses.

mod aliases;
mod copied_objects;
mod federated;
mod fixture;
mod hidden_types;
mod large_responses;
mod nested;
mod nulls;
mod oracle_runs;
mod prefetch;
mod repeated_objects;
mod resolver;
mod simulated_services;
mod subgraph;
mod values;

/// Returns a planner of two REST services with links between them.
pub(crate) fn blog_planner() -> crate::plan::QueryPlanner {
    fixture::ExecutionFixture::with_rest_services(
        &[("blog", nested::BLOG), ("people", nested::PEOPLE)],
        nested::LINKS,
        &[],
    )
    .planner
}
