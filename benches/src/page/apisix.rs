//! APISIX and Wasm: its only table, on fault injection in three ways, and the cost of plain proxying.

use super::results::{BenchResults, ratio};
use super::table::{format_number, format_ratio, missing_note, number_cell, spread_cell, table, table_row};

/// The document's requests per second, with the name of our corresponding case.
const FAULTS: [(&str, Option<f64>, &str); 4] = [
    ("the server's own (theirs: Lua)", Some(32_405.28), "native"),
    ("by Wasm (theirs: TinyGo; ours: hand-written)", Some(17_903.17), "fault"),
    ("by Wasm, the example in Go", None, "faultingo"),
    ("by an external program (ours: a service with that response)", Some(11_873.12), "plain"),
];

pub(super) fn section(results: &BenchResults) -> String {
    format!(
        "## APISIX and Wasm\n\nFault injection under wrk: by the gateway itself, by a Wasm plugin, by an external program.\n\n{}{}",
        fault_table(results),
        proxy_table(results)
    )
}

fn fault_table(results: &BenchResults) -> String {
    let rows = results.rows_of("filter");
    let of = |server: &str, case: &str| rows.with_value("server", server).with_value("case", case);
    let native = |server: &str| of(server, "native").median("per_cpu_second");
    let cells = |server: &str, case| {
        let rows = of(server, case);
        [
            spread_cell(rows.figure("per_cpu_second")),
            format_ratio(ratio(rows.median("per_cpu_second"), native(server))),
        ]
    };
    let lines = FAULTS.map(|(name, theirs, case)| {
        let paper = [number_cell(theirs), format_ratio(ratio(theirs, FAULTS[0].1))];
        table_row(name, paper.into_iter().chain(cells("orfa", case)).chain(cells("envoy", case)))
    });
    let head = [
        "",
        "APISIX: a second",
        "by its own",
        "ORFA: a CPU second",
        "by its own",
        "Envoy: a CPU second",
        "by its own",
    ];
    let text = if rows.is_empty() { missing_note("filter") } else { String::new() };
    let header = |server: &str| {
        let cost = |case| of(server, case).median("cpu_us");
        let added = cost("header").zip(cost("plain")).map(|(header, plain)| header - plain);
        format!("{} us by {server}", number_cell(added))
    };
    text + &table(&head, lines)
        + &format!(
            "A module that adds one header costs {} and {}, by the medians of all rounds; the scoreboard has the median of the differences \
             by round.\n\n",
            header("orfa"),
            header("envoy")
        )
}

/// Plain proxying, next to nginx and Envoy.
fn proxy_table(results: &BenchResults) -> String {
    let heading = "### Passing on, beside nginx and Envoy\n\nOne worker each, with an access log; requests per second of CPU. *Awake* uses a load \
        that never sleeps: otherwise a server pays for waking it, which it does not over a network.\n\n";
    let rows = results.rows_of("proxy");
    if rows.is_empty() {
        return heading.to_owned() + &missing_note("proxy");
    }
    let servers = rows.distinct_texts("server");
    let busy = rows.with_field("per_cpu_second");
    let mut lines = Vec::new();
    for asked in busy.distinct_texts("asked") {
        let rows = busy.with_value("asked", asked);
        lines.push(table_row(
            asked,
            servers
                .iter()
                .map(|server| spread_cell(rows.with_value("server", *server).figure("per_cpu_second"))),
        ));
    }
    for asked in rows.with_field("p99_ms").distinct_texts("asked") {
        let rows = rows.with_value("asked", asked);
        let cells = servers.iter().map(|server| {
            let of = rows.with_value("server", *server);
            let ms = |field| of.median(field).map_or_else(|| number_cell(None), format_number);
            format!("{} / {}", ms("p50_ms"), ms("p99_ms"))
        });
        lines.push(table_row(format!("{asked}: p50 / p99 in ms"), cells));
    }
    let head: Vec<&str> = std::iter::once("").chain(servers.iter().copied()).collect();
    heading.to_owned() + &table(&head, lines)
}
