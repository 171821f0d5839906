//! REST and GraphQL gateways in front of a marketplace: the study's figures 6 and 7, for which its text has
//! only some ratios, and gateways that are in use today.

use super::NamedPlot;
use super::results::{BenchResults, RowSelection, ratio};
use super::s::cost_table;
use super::table::{chart_link, format_number, format_ratio, missing_note, number_cell, table, table_row};
use crate::page::svg::{BarChart, BarScale};

/// The number of users, and of requests per user.
const CASES: [(u64, u64); 3] = [(100, 5), (250, 2), (500, 1)];
const QUERIES: [(&str, &str); 5] = [
    ("q1", "log in"),
    ("q2", "change a buyer"),
    ("q3", "all freelancers"),
    ("q4", "all buyers with their postings"),
    ("q5", "all orders with posting and freelancer"),
];
/// The ratio of the study's GraphQL to its REST, by case, where its text has it. The times in seconds are
/// only in the figure.
const STUDY_RATIOS: [(&str, [Option<f64>; 3]); 2] =
    [("q4", [Some(2.25), Some(1.6), Some(2.5)]), ("q5", [Some(5.8), Some(5.8), Some(4.3)])];
const VARIANTS: [(&str, &str); 3] =
    [("aggregate", "aggregate"), ("graphql", "GraphQL"), ("stitched", "stitched")];

/// The figures: file, title, unit, and field of the rows.
const FIGURES: [(&str, &str, &str, &str); 2] = [
    ("graphql-figure-6", "Figure 6: response time", "ms on average", "mean_ms"),
    ("graphql-figure-7", "Figure 7: throughput", "requests answered a second", "per_second"),
];

pub(super) fn section(results: &BenchResults) -> String {
    let heading = "## REST and GraphQL gateways before a marketplace\n\nThe study sends five queries through Ocelot (REST, aggregated) and \
        HotChocolate (GraphQL, stitched): from 100 users five times each, from 250 twice, from 500 once, who start within five seconds. \
        Its marketplace is recreated here with the same numbers of rows. The study's REST corresponds to ORFA's aggregate; *GraphQL* is ORFA's over the \
        services' REST, and *stitched*, as in the study, is ORFA's over a GraphQL server of each service.\n\n";
    [heading.to_owned(), figures(results), joins(results), graphql(results)].concat()
}

/// Figures 6 and 7 as a table.
fn figures(results: &BenchResults) -> String {
    let heading = "### Figures 6 and 7: response time and throughput\n\nTheirs: q1 and q2 take the same time with both; q3 takes 5.2 s with GraphQL \
        in the first case, 0.2 s less than with REST; in the second and third case GraphQL no longer answers q5, and in the third \
        neither does REST.\n\n";
    let graphql = results.rows_of("graphql");
    let rows = graphql.with_field("users");
    let (rows, text) = match rows.is_empty() {
        true => (results.rows_of("aggregate"), missing_note("graphql")),
        false => (rows, String::new()),
    };
    let rows = rows.with_field("users");
    let mut lines = Vec::new();
    for (case, (users, each)) in CASES.into_iter().enumerate() {
        for (query, what) in QUERIES {
            let rows = rows.with_value("query", query).with_value("users", users);
            let theirs =
                STUDY_RATIOS.iter().find(|(name, _)| *name == query).and_then(|(_, ratios)| ratios[case]);
            let of = |way: &str| rows.with_value("way", way);
            let ms = |way| of(way).median("mean_ms");
            let mean = VARIANTS.map(|(way, _)| number_cell(ms(way)));
            let rate = VARIANTS.map(|(way, _)| number_cell(of(way).median("per_second")));
            let by = [
                format_ratio(theirs),
                format_ratio(ratio(ms("graphql"), ms("aggregate"))),
                format_ratio(ratio(ms("stitched"), ms("aggregate"))),
                errors(&rows),
            ];
            let name = format!("{users} users, {each} each: {query}, {what}");
            lines.push(table_row(name, mean.into_iter().chain(by).chain(rate)));
        }
    }
    let head = [
        "",
        "aggregate, ms",
        "GraphQL, ms",
        "stitched, ms",
        "GraphQL by REST: theirs",
        "ours",
        "ours, stitched",
        "errors",
        "aggregate, per second",
        "GraphQL, per second",
        "stitched, per second",
    ];
    let plots = FIGURES.map(|(name, what, ..)| chart_link(name, what)).concat();
    let plots = if text.is_empty() { plots } else { String::new() };
    heading.to_owned() + &text + &table(&head, lines) + &plots
}

/// Figures 6 and 7 in the study's layout: a panel per case.
pub(super) fn plots(results: &BenchResults) -> Vec<NamedPlot> {
    let rows = results.rows_of("graphql").with_field("users");
    if rows.is_empty() {
        return Vec::new();
    }
    let group = |rows: &RowSelection<'_>, query: &str, field: &str| {
        let rows = rows.with_value("query", query);
        (query.to_uppercase(), VARIANTS.map(|(way, _)| rows.with_value("way", way).median(field)).to_vec())
    };
    let plot = |(name, _, what, field): (&'static str, &str, &str, &str)| {
        let panels = CASES.map(|(users, each)| {
            let rows = rows.with_value("users", users);
            let groups = QUERIES.map(|(query, _)| group(&rows, query, field));
            (format!("{users} users, {each} each: {what}"), groups.to_vec())
        });
        let kinds = VARIANTS.map(|(_, name)| name).to_vec();
        (name, BarChart { kinds, panels: panels.to_vec(), height: BarScale::Linear }.draw())
    };
    FIGURES.map(plot).to_vec()
}

fn errors(rows: &RowSelection<'_>) -> String {
    let errors = rows.numbers("errors");
    if errors.is_empty() { number_cell(None) } else { format_number(errors.iter().sum()).replace(".00", "") }
}

/// q4 and q5 next to handwritten servers.
fn joins(results: &BenchResults) -> String {
    let heading = "### The joins beside the same by hand\n\nq4 and q5 in Rust with serde (*handwritten*), and on Fastify with undici; \
        *orfa.dedup* is the aggregate with a deduplicated response.\n\n";
    heading.to_owned()
        + &cost_table(&results.rows_of("aggregate").with_field("server"), "query", "server", "aggregate")
}

/// The comparison with tailcall and Hive, and with the aggregates.
fn graphql(results: &BenchResults) -> String {
    let heading = "### GraphQL over REST beside tailcall and Hive Gateway\n\n100 posts, with and without their users' names, modelled on \
        tailcall's own benchmark. One core. *Coalescing* and *dedupe* combine equal concurrent calls of several requests, which an \
        operator has to enable; the others make calls for each request.\n\n";
    let rows = results.rows_of("graphql");
    let posts = cost_table(&rows.with_field("server"), "query", "server", "graphql");
    let beside = "### GraphQL beside the aggregate of the same gateway\n\n";
    let market = rows.with_field("way").with_field("bytes");
    heading.to_owned() + &posts + beside + &cost_table(&market, "query", "way", "graphql")
}
