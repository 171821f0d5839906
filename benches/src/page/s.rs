//! The S paper: its figures 2 to 4, which it draws without numbers, and the same services on Node and Bun.

use super::results::{BenchResults, RowSelection, ratio};
use super::table::{chart_link, format_ratio, missing_note, number_cell, spread_cell, table, table_row};

pub(super) fn section(results: &BenchResults) -> String {
    let heading = "## S: a scripting language for web services\n\nThe paper's machine has 24 cores; this one has two, which the load \
        and the pages share with the workers.\n\n";
    [
        heading.to_owned(),
        figures_2_and_3(results),
        figure_4(results),
        handler_table(results),
        case_table(results),
    ]
    .concat()
}

/// Pages per second by the number of workers.
fn figures_2_and_3(results: &BenchResults) -> String {
    let heading = "### Figures 2 and 3: map-reduce and crawler by the number of workers\n\nTheirs: almost linear up to all 24 cores. \
        Here there are two, which the load shares: more than one worker can gain little, and the last column is the \
        speed-up of pure arithmetic with more threads. A crawl of depth 16, as in the paper, is run by `make bench ONLY=curves LONG=1`.\n\n";
    let rows = results.rows_of("curves");
    let measured = rows.with_field("case");
    if measured.is_empty() {
        return heading.to_owned() + &missing_note("curves");
    }
    let crawler = measured.with_value("case", "crawler");
    let depths = crawler.distinct("depth");
    let of = |rows: &RowSelection<'_>, workers: u64| {
        number_cell(rows.with_value("workers", workers).median("per_second"))
    };
    let lines =
        measured.distinct("workers").into_iter().filter_map(serde_json::Value::as_u64).map(|workers| {
            let mapreduce = of(&measured.with_value("case", "mapreduce"), workers);
            let crawls =
                depths.iter().map(|depth| of(&crawler.with_value("depth", (*depth).clone()), workers));
            let ceiling = format_ratio(rows.with_value("processes", workers).median("speed_up"));
            table_row(workers.to_string(), std::iter::once(mapreduce).chain(crawls).chain([ceiling]))
        });
    let mut head = vec!["workers".to_owned(), "map-reduce, pages/s".to_owned()];
    head.extend(depths.iter().map(|depth| format!("crawl of depth {depth}, pages/s")));
    head.push("arithmetic".to_owned());
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let plots = chart_link("script-mapreduce", "Map-reduce by workers")
        + &chart_link("script-crawler", "Crawler by workers");
    heading.to_owned() + &table(&head, lines) + &plots
}

/// Requests and responses of a crawl over time.
fn figure_4(results: &BenchResults) -> String {
    let heading = "### Figure 4: requests and answers of a crawl over time\n\nTheirs: with one worker, responses begin only when all \
        leaves have been visited; with more, they overlap with the requests.\n\n";
    let rows = results.rows_of("curves").with_field("seconds");
    if rows.is_empty() {
        return heading.to_owned() + &missing_note("curves");
    }
    let lines = rows.distinct("workers").into_iter().map(|workers| {
        let of = rows.with_value("workers", workers.clone());
        let [seconds, answers] = ["seconds", "answers"].map(|field| of.numbers(field));
        let all = seconds.last().copied();
        let first =
            seconds.iter().zip(&answers).find(|(_, answers)| **answers > 0.0).map(|(seconds, _)| *seconds);
        let pages = answers.last().copied();
        table_row(
            workers.to_string(),
            [number_cell(pages), number_cell(all), number_cell(ratio(first.map(|first| first * 100.0), all))],
        )
    });
    let head = ["workers", "pages", "seconds in all", "first response after, % of it"];
    heading.to_owned()
        + &table(&head, lines)
        + &chart_link("script-crawl-time", "Requests and answers over time")
}

/// Two handlers, compared with the same handlers on Fastify and Bun.
fn handler_table(results: &BenchResults) -> String {
    let heading = "### Handlers beside Fastify and Bun\n\nThe same handlers on each server: one calls two services, and one \
        searches a page of 100 KB. One core.\n\n";
    let rows = results.rows_of("script").with_field("handler");
    heading.to_owned() + &cost_table(&rows, "handler", "server", "script")
}

/// The case studies, compared with a cluster of Node processes.
fn case_table(results: &BenchResults) -> String {
    let heading =
        "### The case studies beside a cluster of Node\n\nA page is a request of the crawl, or a map.\n\n";
    let rows = results.rows_of("script").with_field("case");
    let workers = rows.distinct("workers");
    let text: String = workers
        .iter()
        .map(|workers| {
            let title = format!("Workers: {workers}.\n\n");
            title + &cost_table(&rows.with_value("workers", (*workers).clone()), "case", "server", "script")
        })
        .collect();
    heading.to_owned() + &if rows.is_empty() { missing_note("script") } else { text }
}

/// A table of the CPU time and throughput of each server, by request.
pub(super) fn cost_table(rows: &RowSelection<'_>, asked: &str, server: &str, bench: &str) -> String {
    if rows.is_empty() {
        return missing_note(bench);
    }
    let mut lines = Vec::new();
    for what in rows.distinct_texts(asked) {
        let rows = rows.with_value(asked, what);
        let first = rows
            .distinct_texts(server)
            .first()
            .and_then(|first| rows.with_value(server, *first).median("cpu_us"));
        for name in rows.distinct_texts(server) {
            let of = rows.with_value(server, name);
            let gain = format_ratio(ratio(of.median("cpu_us"), first));
            lines.push(table_row(
                format!("{what}: {name}"),
                [spread_cell(of.figure("per_second")), spread_cell(of.figure("cpu_us")), gain],
            ));
        }
    }
    table(&["", "per second", "CPU us each", "relative to the first"], lines)
}
