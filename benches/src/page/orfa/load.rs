//! The paper's table 5, under load, and the long JSON that explains its slowest workflow.

use super::{BENCHES, PAPER_VARIANTS};
use crate::page::results::{BenchResults, ratio};
use crate::page::table::{
    format_number, format_ratio, missing_note, number_cell, spread_cell, table, table_row,
};

/// The paper's table 5a: name, requests per second, milliseconds, percent of a CPU, and the name of our row.
const PAPER_TABLE_5A: [(&str, f64, f64, u32, &str); 4] = [
    ("GraphQL", 909.09, 1.1, 88, "graphql"),
    ("ORFA-base", 222.22, 4.5, 100, "query.c"),
    ("ORFA-code", 384.62, 2.6, 100, "query.c.code"),
    ("ORFA-inst", 1111.11, 0.9, 20, "query.c.instance"),
];
/// Our rows without a counterpart in the table.
const HELLO_RIVALS: [(&str, &str); 6] = [
    ("JavaScript, base", "query.js"),
    ("JavaScript, code", "query.js.code"),
    ("JavaScript, instance", "query.js.instance"),
    ("workerd, by program", "workerd.program"),
    ("workerd, by token", "workerd.token"),
    ("a bare server with a constant response", "floor"),
];
/// The paper's table 5b: workflows per second with REST, GraphQL, ORFA-base, -code and -inst.
const PAPER_TABLE_5B: [(&str, [f64; 5]); 3] = [
    ("memos.r", [260.2, 97.24, 77.48, 120.12, 130.52]),
    ("strapi.r", [42.1, 53.34, 18.9, 23.058, 23.352]),
    ("gitea.r", [3.88, 2.761, 2.379, 3.678, 4.017]),
];
/// The benches that measure workflows per second.
const IN_TABLE_5B: [&str; 3] = ["strapi", "workflows", "market"];
/// JSON readers with their display names, for the workflow in which the paper's ORFA is slower.
const READERS: [(&str, &str); 6] = [
    ("query.c", "ORFA, C"),
    ("query.js", "ORFA, JavaScript"),
    ("node", "Node, `JSON.parse`"),
    ("simd-json", "simd-json, native"),
    ("sonic-rs", "sonic-rs, native"),
    ("sonic-rs lazy", "sonic-rs, lazy"),
];

/// Table 5a, "hello world" under load.
pub(super) fn table_5a(results: &BenchResults) -> String {
    let rows = results.rows_of("query");
    let heading = "### Table 5a: \"hello world\" under load\n\nOne core for the server, 32 connections; ours in C, with log and limits.\n\n";
    let figure = |server: &str, place| rows.with_value("server", server).figure(place);
    let cpu = |server: &str| rows.with_value("server", server).median("cpu_us");
    let gain = |server: &str| format_ratio(ratio(cpu("graphql"), cpu(server)));
    let ours = |server| {
        [spread_cell(figure(server, "per_second")), spread_cell(figure(server, "cpu_us")), gain(server)]
    };
    let theirs = PAPER_TABLE_5A.map(|(name, tps, ms, percent, server)| {
        let theirs = [
            format_number(tps),
            format_number(ms),
            format!("{percent} %"),
            format_ratio(Some(tps / PAPER_TABLE_5A[0].1)),
        ];
        table_row(name, theirs.into_iter().chain(ours(server)))
    });
    let others = HELLO_RIVALS
        .map(|(name, server)| table_row(name, std::iter::repeat_n(number_cell(None), 4).chain(ours(server))));
    let head = [
        "",
        "theirs: per second",
        "ms",
        "CPU",
        "by GraphQL",
        "ours: per second",
        "CPU us per request",
        "less CPU than GraphQL",
    ];
    let text = if rows.is_empty() { missing_note("query") } else { String::new() };
    heading.to_owned() + &text + &table(&head, theirs.into_iter().chain(others)) + &kernel_table(results)
}

/// Page faults and system calls of the same requests.
fn kernel_table(results: &BenchResults) -> String {
    let rows = results.rows_of("query").with_field("page_faults");
    let heading = "Page faults and system calls per request, over 4 connections:\n\n";
    if rows.is_empty() {
        return heading.to_owned() + &missing_note("query");
    }
    let line = |name: &str| {
        let of = rows.with_value("server", name);
        table_row(
            format!("`{name}`"),
            ["page_faults", "system_calls"].map(|field| number_cell(of.median(field))),
        )
    };
    let head = ["", "page faults", "system calls"];
    heading.to_owned() + &table(&head, rows.distinct_texts("server").into_iter().map(line))
}

/// Table 5b, workflows per second where the gateway and the service share a core.
pub(super) fn table_5b(results: &BenchResults) -> String {
    let mut text = "### Table 5b: workflows a second, all on one machine\n\nREST alone, and the others together with the service that they \
        call, on one core; N = 4; ours in C, with Strapi itself, and with stand-ins for Memos and Gitea of minimal cost, \
        so that the servers in between dominate. The marketplace's services and databases share the load's core, and its \
        REST is proxied by ORFA. Each figure is also given relative to REST alone.\n\n".to_owned();
    let part = |value: String, part: f64| format!("{value}, {}×", format_number(part));
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (workflow, figures) in PAPER_TABLE_5B {
        lines.push(table_row(
            format!("{workflow}, theirs"),
            figures.map(|figure| part(format_number(figure), figure / figures[0])),
        ));
    }
    for (bench, _) in BENCHES {
        let rows = results.rows_of(bench).with_field("busy");
        if rows.is_empty() && IN_TABLE_5B.contains(&bench) {
            text += &missing_note(bench);
        }
        for workflow in rows.distinct_texts("busy") {
            let rows = rows.with_value("busy", workflow);
            let of = |way: &str| rows.with_value("way", way).figure("per_second");
            let rest = of(PAPER_VARIANTS[0].0);
            let cells = PAPER_VARIANTS.map(|(way, _)| match (of(way), rest) {
                (Some(ours), Some(rest)) => part(spread_cell(Some(ours)), ours.median / rest.median),
                _ => number_cell(None),
            });
            lines.push(table_row(format!("**{workflow}, ours**"), cells));
        }
    }
    lines.sort_by_key(|line| {
        PAPER_TABLE_5B.iter().position(|(name, _)| line[0].contains(name)).unwrap_or(PAPER_TABLE_5B.len())
    });
    let mut head = vec!["workflow"];
    head.extend(PAPER_VARIANTS.map(|(_, name)| name));
    text + &table(&head, lines)
}

/// Long JSON, the reason for the paper's result on gitea.r.
pub(super) fn json_table(results: &BenchResults) -> String {
    let rows = results.rows_of("json");
    let heading = "### Long JSON, the cause of the defeat in gitea.r\n\nMicroseconds of CPU for a megabyte of issues in Gitea's \
        format: to read three members of one issue in a hundred (rows), one member of each (column), the open issues (open), or \
        for parsing alone (parse).\n\n";
    if rows.is_empty() {
        return heading.to_owned() + &missing_note("json");
    }
    let reads = rows.distinct_texts("reads");
    let line = |(name, label): (&str, &str)| {
        let of = rows.with_value("name", name);
        table_row(label, reads.iter().map(|read| spread_cell(of.with_value("reads", *read).figure("cpu_us"))))
    };
    let head: Vec<&str> = std::iter::once("").chain(reads.iter().copied()).collect();
    heading.to_owned() + &table(&head, READERS.into_iter().map(line))
}
