//! APISIX and Wasm: its only table, on fault injection in three ways, and the cost of plain proxying.

use super::results::{BenchResults, ratio};
use super::table::{cell, missing, number, row, spread, table, times};

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
        faults(results),
        proxies(results)
    )
}

fn faults(results: &BenchResults) -> String {
    let rows = results.of("filter");
    let of = |server: &str, case: &str| rows.with("server", server).with("case", case);
    let native = |server: &str| of(server, "native").median("per_cpu_second");
    let cells = |server: &str, case| {
        let rows = of(server, case);
        [spread(rows.figure("per_cpu_second")), times(ratio(rows.median("per_cpu_second"), native(server)))]
    };
    let lines = FAULTS.map(|(name, theirs, case)| {
        let paper = [cell(theirs), times(ratio(theirs, FAULTS[0].1))];
        row(name, paper.into_iter().chain(cells("orfa", case)).chain(cells("envoy", case)))
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
    let text = if rows.is_empty() { missing("filter") } else { String::new() };
    let header = |server: &str| {
        let cost = |case| of(server, case).median("cpu_us");
        let added = cost("header").zip(cost("plain")).map(|(header, plain)| header - plain);
        format!("{} us by {server}", cell(added))
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
fn proxies(results: &BenchResults) -> String {
    let heading = "### Passing on, beside nginx and Envoy\n\nOne worker each, with an access log; requests per second of CPU. *Awake* uses a load \
        that never sleeps: otherwise a server pays for waking it, which it does not over a network.\n\n";
    let rows = results.of("proxy");
    if rows.is_empty() {
        return heading.to_owned() + &missing("proxy");
    }
    let servers = rows.names("server");
    let busy = rows.having("per_cpu_second");
    let mut lines = Vec::new();
    for asked in busy.names("asked") {
        let rows = busy.with("asked", asked);
        lines.push(row(
            asked,
            servers.iter().map(|server| spread(rows.with("server", *server).figure("per_cpu_second"))),
        ));
    }
    for asked in rows.having("p99_ms").names("asked") {
        let rows = rows.with("asked", asked);
        let cells = servers.iter().map(|server| {
            let of = rows.with("server", *server);
            let ms = |field| of.median(field).map_or_else(|| cell(None), number);
            format!("{} / {}", ms("p50_ms"), ms("p99_ms"))
        });
        lines.push(row(format!("{asked}: p50 / p99 in ms"), cells));
    }
    let head: Vec<&str> = std::iter::once("").chain(servers.iter().copied()).collect();
    heading.to_owned() + &table(&head, lines)
}
