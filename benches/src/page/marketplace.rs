//! REST and GraphQL gateways before a marketplace: the study's figures 6 and 7, of which its text tells some ratios, and the
//! gateways that people would take today.

use super::Plot;
use super::results::{Results, Rows, ratio};
use super::s::cost;
use super::table::{cell, missing, number, plot, row, table, times};
use crate::svg::{Bars, Height};

/// Users, and requests of each.
const CASES: [(u64, u64); 3] = [(100, 5), (250, 2), (500, 1)];
const QUERIES: [(&str, &str); 5] = [
    ("q1", "log in"),
    ("q2", "change a buyer"),
    ("q3", "all freelancers"),
    ("q4", "all buyers with their postings"),
    ("q5", "all orders with posting and freelancer"),
];
/// How much longer their GraphQL takes than their REST, by case, where the text says it: seconds are in the figure only.
const THEIRS: [(&str, [Option<f64>; 3]); 2] =
    [("q4", [Some(2.25), Some(1.6), Some(2.5)]), ("q5", [Some(5.8), Some(5.8), Some(4.3)])];
const WAYS: [(&str, &str); 3] =
    [("aggregate", "aggregate"), ("graphql", "GraphQL"), ("stitched", "stitched")];

/// The figures: their files, what they are, what they count, and where that stands.
const FIGURES: [(&str, &str, &str, &str); 2] = [
    ("graphql-figure-6", "Figure 6: response time", "ms on average", "mean_ms"),
    ("graphql-figure-7", "Figure 7: throughput", "requests answered a second", "per_second"),
];

pub(super) fn section(results: &Results) -> String {
    let heading = "## REST and GraphQL gateways before a marketplace\n\nThe study asks five questions by Ocelot (REST, aggregated) and \
        by HotChocolate (GraphQL, stitched): by 100 users five times each, by 250 twice, by 500 once, who begin within five seconds. \
        Its marketplace is made up here with the same counts of rows. What it calls REST is ORFA's aggregate; *GraphQL* is ORFA's over the \
        services' REST, and *stitched*, which is how the study has it, ORFA's over a GraphQL of each service.\n\n";
    [heading.to_owned(), figures(results), joins(results), graphql(results)].concat()
}

/// Figures 6 and 7.
fn figures(results: &Results) -> String {
    let heading = "### Figures 6 and 7: response time and throughput\n\nTheirs: in q1 and q2 both are alike; q3 takes 5.2 s by GraphQL \
        in the first case, 0.2 s less than by REST; in the second and third case GraphQL no longer answers q5, and in the third \
        neither does REST.\n\n";
    let graphql = results.of("graphql");
    let rows = graphql.having("users");
    let (rows, text) = match rows.is_empty() {
        true => (results.of("aggregate"), missing("graphql")),
        false => (rows, String::new()),
    };
    let rows = rows.having("users");
    let mut lines = Vec::new();
    for (case, (users, each)) in CASES.into_iter().enumerate() {
        for (query, what) in QUERIES {
            let rows = rows.with("query", query).with("users", users);
            let theirs = THEIRS.iter().find(|(name, _)| *name == query).and_then(|(_, ratios)| ratios[case]);
            let of = |way: &str| rows.with("way", way);
            let ms = |way| of(way).median("mean_ms");
            let mean = WAYS.map(|(way, _)| cell(ms(way)));
            let rate = WAYS.map(|(way, _)| cell(of(way).median("per_second")));
            let by = [
                times(theirs),
                times(ratio(ms("graphql"), ms("aggregate"))),
                times(ratio(ms("stitched"), ms("aggregate"))),
                errors(&rows),
            ];
            let name = format!("{users} users, {each} each: {query}, {what}");
            lines.push(row(name, mean.into_iter().chain(by).chain(rate)));
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
        "aggregate, a second",
        "GraphQL, a second",
        "stitched, a second",
    ];
    let plots = FIGURES.map(|(name, what, ..)| plot(name, what)).concat();
    let plots = if text.is_empty() { plots } else { String::new() };
    heading.to_owned() + &text + &table(&head, lines) + &plots
}

/// Figures 6 and 7 as the study draws them: a panel for each case.
pub(super) fn plots(results: &Results) -> Vec<Plot> {
    let rows = results.of("graphql").having("users");
    if rows.is_empty() {
        return Vec::new();
    }
    let group = |rows: &Rows<'_>, query: &str, field: &str| {
        let rows = rows.with("query", query);
        (query.to_uppercase(), WAYS.map(|(way, _)| rows.with("way", way).median(field)).to_vec())
    };
    let plot = |(name, _, what, field): (&'static str, &str, &str, &str)| {
        let panels = CASES.map(|(users, each)| {
            let rows = rows.with("users", users);
            let groups = QUERIES.map(|(query, _)| group(&rows, query, field));
            (format!("{users} users, {each} each: {what}"), groups.to_vec())
        });
        let kinds = WAYS.map(|(_, name)| name).to_vec();
        (name, Bars { kinds, panels: panels.to_vec(), height: Height::Linear }.draw())
    };
    FIGURES.map(plot).to_vec()
}

fn errors(rows: &Rows<'_>) -> String {
    let errors = rows.numbers("errors");
    if errors.is_empty() { cell(None) } else { number(errors.iter().sum()).replace(".00", "") }
}

/// q4 and q5 beside the same by hand.
fn joins(results: &Results) -> String {
    let heading = "### The joins beside the same by hand\n\nq4 and q5 in Rust with serde (*handwritten*), and on Fastify with undici; \
        *orfa.dedup* is the aggregate with its answer deduplicated.\n\n";
    heading.to_owned() + &cost(&results.of("aggregate").having("server"), "query", "server", "aggregate")
}

/// Beside tailcall and Hive, and beside the aggregates.
fn graphql(results: &Results) -> String {
    let heading = "### GraphQL over REST beside tailcall and Hive Gateway\n\n100 posts, with and without their users' names, after \
        tailcall's own benchmark. One core. *Coalescing* and *dedupe* make the same call of several requests at a time once, which an \
        operator has to ask for; the others call for each request.\n\n";
    let rows = results.of("graphql");
    let posts = cost(&rows.having("server"), "query", "server", "graphql");
    let beside = "### GraphQL beside the aggregate of the same gateway\n\n";
    let market = rows.having("way").having("bytes");
    heading.to_owned() + &posts + beside + &cost(&market, "query", "way", "graphql")
}
