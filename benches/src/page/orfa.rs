//! The ORFA paper: its figures 7 to 9, by distance and by size, and its table 5, under load. Figures 7 to 9 are drawn without
//! numbers; what its text says of them stands beside ours.

use super::results::{Results, Rows, ratio};
use super::table::{cell, missing, number, plot, row, spread, table, times};

/// The benches whose rows are workflows, and what asks in them.
const BENCHES: [(&str, &str); 2] = [
    ("strapi", "Strapi 5 on SQLite, as the paper has it"),
    (
        "workflows",
        "stand-ins for Memos and Gitea, which can't be had here: services made up to answer the same calls, a branch's commits with 106 KB",
    ),
];
/// In milliseconds, as the rows name them, and where the paper's client stood.
const PLACES: [(&str, &str); 3] = [("035", "35 ms"), ("093", "93 ms"), ("170", "170 ms")];
const USUAL_PLACE: &str = "093";
const SIZES: [u64; 4] = [2, 4, 8, 16];
const USUAL_SIZE: u64 = 4;
const GRAPHQL: &str = "graphql.paper";
/// ORFA as in the paper's figures 8 and 9: C, the instance kept; a call for each row as there, and with what the API itself
/// can do for many rows.
const OURS: [(&str, &str); 2] =
    [("orfa.instance.c.calls", "a call for each row"), ("orfa.instance.c", "the API's best")];

/// The paper's table 5a: its name, requests a second, milliseconds, percent of a CPU; and our row.
const HELLO: [(&str, f64, f64, u32, &str); 4] = [
    ("GraphQL", 909.09, 1.1, 88, "graphql"),
    ("ORFA-base", 222.22, 4.5, 100, "query.c"),
    ("ORFA-code", 384.62, 2.6, 100, "query.c.code"),
    ("ORFA-inst", 1111.11, 0.9, 20, "query.c.instance"),
];
/// What it has no row for.
const HELLO_RIVALS: [(&str, &str); 6] = [
    ("JavaScript, base", "query.js"),
    ("JavaScript, code", "query.js.code"),
    ("JavaScript, instance", "query.js.instance"),
    ("workerd, by program", "workerd.program"),
    ("workerd, by token", "workerd.token"),
    ("a bare server that answers a constant", "floor"),
];
/// The paper's table 5b: workflows a second by REST, GraphQL, ORFA-base, -code and -inst.
const BESIDE: [(&str, [f64; 5]); 3] = [
    ("memos.r", [260.2, 97.24, 77.48, 120.12, 130.52]),
    ("strapi.r", [42.1, 53.34, 18.9, 23.058, 23.352]),
    ("gitea.r", [3.88, 2.761, 2.379, 3.678, 4.017]),
];
const BESIDE_WAYS: [(&str, &str); 5] = [
    ("rest.parallel", "REST"),
    (GRAPHQL, "GraphQL"),
    ("orfa.base.c.calls", "ORFA-base"),
    ("orfa.code.c.calls", "ORFA-code"),
    ("orfa.instance.c.calls", "ORFA-inst"),
];
/// Who reads JSON, and what of it: the paper's defeat in gitea.r.
const READERS: [(&str, &str); 6] = [
    ("query.c", "ORFA, C"),
    ("query.js", "ORFA, JavaScript"),
    ("node", "Node, `JSON.parse`"),
    ("simd-json", "simd-json, native"),
    ("sonic-rs", "sonic-rs, native"),
    ("sonic-rs lazy", "sonic-rs, lazy"),
];

pub(super) fn section(results: &Results) -> String {
    let heading = "## ORFA: a query language of WebAssembly\n\nThe paper asks Memos, Strapi and Gitea in six workflows from three \
        places, and answers \"hello world\" under load.\n\n";
    [
        heading.to_owned(),
        figure_7(results),
        figure_8(results),
        figure_9(results),
        table_5a(results),
        table_5b(results),
        json(results),
    ]
    .concat()
}

/// Latency from three places, and bytes, with a typical N.
fn figure_7(results: &Results) -> String {
    let mut text = format!(
        "### Figure 7: latency and traffic, N = {USUAL_SIZE}\n\nTheirs, over all six workflows: ORFA-inst answers 18.4 % sooner than \
         GraphQL on average and 52 % at most (memos.r); traffic is 24.5 % less with the program in every request, 72.4 % less \
         without it. One defeat: **gitea.r**, where ORFA is slower than GraphQL, since the interpreter reads long JSON slowly.\n\n"
    );
    for (bench, what) in BENCHES {
        text += &format!("Ours, {what}:\n\n");
        let rows = results.of(bench).with("n", USUAL_SIZE);
        if rows.is_empty() {
            text += &missing(bench);
        }
        for workflow in rows.names("workflow") {
            let rows = rows.with("workflow", workflow);
            let line = |way: &str| {
                let of = rows.with("way", way);
                let ms = PLACES.map(|(place, _)| latency(&of, place));
                let [up, down, gzip] = ["bytes_up", "bytes_down", "gzip_down"].map(|field| of.median(field));
                let sum = |down: Option<f64>| cell(up.zip(down).map(|(up, down)| up + down));
                row(
                    label(way),
                    [
                        cell(of.median("requests").map(f64::round)).replace(".00", ""),
                        ms[0].clone(),
                        ms[1].clone(),
                        ms[2].clone(),
                        sum(down),
                        sum(gzip),
                    ],
                )
            };
            let head = [
                workflow,
                "requests",
                PLACES[0].1,
                PLACES[1].1,
                PLACES[2].1,
                "bytes",
                "bytes, answers gzipped",
            ];
            text += &table(&head, rows.names("way").into_iter().map(line));
        }
    }
    text
}

/// Its median and, where the row has it, its spread.
fn latency(rows: &Rows<'_>, place: &str) -> String {
    let ms = rows.median(&format!("ms/{place}"));
    match rows.median(&format!("spread_ms/{place}")) {
        Some(spread) => format!("{} ({})", cell(ms), number(spread)),
        None => cell(ms),
    }
}

/// `orfa.code.js.calls` in words.
fn label(way: &str) -> String {
    let (way, calls) = way.strip_suffix(".calls").map_or((way, ""), |way| (way, ", a call for each row"));
    let name = match way {
        "rest.sequential" => "REST, one by one",
        "rest.parallel" => "REST, all at once",
        "rest.best" => "REST, the API's best",
        GRAPHQL => "GraphQL as in the paper",
        "graphql.nested" => "GraphQL, one nested query",
        "workerd.program" => "workerd, by program",
        "workerd.token" => "workerd, by token",
        "orfa.base.c" => "**ORFA-base, C**",
        "orfa.base.js" => "**ORFA-base, JavaScript**",
        "orfa.code.c" => "**ORFA-code, C**",
        "orfa.code.js" => "**ORFA-code, JavaScript**",
        "orfa.instance.c" => "**ORFA-inst, C**",
        "orfa.instance.js" => "**ORFA-inst, JavaScript**",
        other => other,
    };
    format!("{name}{calls}")
}

/// By distance, as a part of GraphQL's latency.
fn figure_8(results: &Results) -> String {
    let heading = format!(
        "### Figure 8: ORFA-inst by GraphQL, by distance, N = {USUAL_SIZE}\n\nTheirs: below 1 in almost all cells, lower the farther \
         the client is.\n\n"
    );
    let head = ["workflow", PLACES[0].1, PLACES[1].1, PLACES[2].1];
    let rows = each_workflow(results, |rows, ours| {
        let rows = rows.with("n", USUAL_SIZE);
        PLACES.map(|(place, _)| by_graphql(&rows, ours, |of| of.median(&format!("ms/{place}")))).to_vec()
    });
    heading + &or_missing(&head, rows)
}

/// By N, as a part of GraphQL's latency and traffic.
fn figure_9(results: &Results) -> String {
    let heading = "### Figure 9: ORFA-inst by GraphQL, by N, at 93 ms\n\nTheirs: below 1 in most cells, traffic in all; strapi's \
        latency grows with N, since its answers are long.\n\n";
    let names = SIZES.map(|size| format!("N={size}"));
    let mut head = vec!["workflow".to_owned()];
    head.extend(names.iter().map(|name| format!("latency, {name}")));
    head.extend(names.iter().map(|name| format!("bytes, {name}")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let rows = each_workflow(results, |rows, ours| {
        let latency =
            |size| by_graphql(&rows.with("n", size), ours, |of| of.median(&format!("ms/{USUAL_PLACE}")));
        let bytes = |size: u64| {
            by_graphql(&rows.with("n", size), ours, |of| {
                Some(of.median("bytes_up")? + of.median("bytes_down")?)
            })
        };
        SIZES.map(latency).into_iter().chain(SIZES.map(bytes)).collect()
    });
    heading.to_owned()
        + &or_missing(&head, rows)
        + &plot("orfa-figure-9", "Latency and bytes by N, ORFA-inst by GraphQL")
}

/// What our way has of a figure, as a part of what GraphQL has of it.
fn by_graphql(rows: &Rows<'_>, ours: &str, of: impl Fn(&Rows<'_>) -> Option<f64>) -> Option<f64> {
    ratio(of(&rows.with("way", ours)), of(&rows.with("way", GRAPHQL)))
}

/// A row for each workflow and each of our ways.
fn each_workflow(results: &Results, cells: impl Fn(&Rows<'_>, &str) -> Vec<Option<f64>>) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for (bench, _) in BENCHES {
        let rows = results.of(bench);
        for workflow in rows.names("workflow") {
            let rows = rows.with("workflow", workflow);
            for (way, what) in OURS.into_iter().filter(|(way, _)| !rows.with("way", *way).is_empty()) {
                lines.push(row(format!("{workflow}, {what}"), cells(&rows, way).into_iter().map(cell)));
            }
        }
    }
    lines
}

fn or_missing(head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() { missing("strapi,workflows") } else { table(head, rows) }
}

/// "Hello world" under load.
fn table_5a(results: &Results) -> String {
    let rows = results.of("query");
    let heading = "### Table 5a: \"hello world\" under load\n\nOne core for the server, 32 connections; ours in C, log and limits on.\n\n";
    let figure = |server: &str, place| rows.with("server", server).figure(place);
    let cpu = |server: &str| rows.with("server", server).median("cpu_us");
    let gain = |server: &str| times(ratio(cpu("graphql"), cpu(server)));
    let ours =
        |server| [spread(figure(server, "per_second")), spread(figure(server, "cpu_us")), gain(server)];
    let theirs = HELLO.map(|(name, tps, ms, percent, server)| {
        let theirs = [number(tps), number(ms), format!("{percent} %"), times(Some(tps / HELLO[0].1))];
        row(name, theirs.into_iter().chain(ours(server)))
    });
    let others =
        HELLO_RIVALS.map(|(name, server)| row(name, std::iter::repeat_n(cell(None), 4).chain(ours(server))));
    let head = [
        "",
        "theirs: a second",
        "ms",
        "CPU",
        "by GraphQL",
        "ours: a second",
        "CPU us a request",
        "less CPU than GraphQL",
    ];
    let text = if rows.is_empty() { missing("query") } else { String::new() };
    heading.to_owned() + &text + &table(&head, theirs.into_iter().chain(others)) + &kernel(results)
}

/// Page faults and system calls of the same.
fn kernel(results: &Results) -> String {
    let rows = results.of("query").having("page_faults");
    let heading = "What the same takes of the system, for each request:\n\n";
    if rows.is_empty() {
        return heading.to_owned() + &missing("query");
    }
    let line = |name: &str| {
        let of = rows.with("server", name);
        row(format!("`{name}`"), ["page_faults", "system_calls"].map(|field| cell(of.median(field))))
    };
    let head = ["", "page faults", "system calls"];
    heading.to_owned() + &table(&head, rows.names("server").into_iter().map(line))
}

/// Workflows a second where gateway and service share a core.
fn table_5b(results: &Results) -> String {
    let rows = results.of("workflows").having("busy");
    let mut text = "### Table 5b: workflows a second, all on one machine\n\nREST alone, and the others beside the service that they \
        call, on one core; N = 4; ours with the stand-ins, in C. In parentheses as a part of REST alone.\n\n".to_owned();
    if rows.is_empty() {
        text += &missing("workflows");
    }
    let part = |value: f64, rest: f64| format!("{} ({})", number(value), number(value / rest));
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (workflow, figures) in BESIDE {
        lines.push(row(format!("{workflow}, theirs"), figures.map(|figure| part(figure, figures[0]))));
    }
    for workflow in rows.names("busy") {
        let rows = rows.with("busy", workflow);
        let of = |way: &str| rows.with("way", way).median("per_second");
        let rest = of("rest");
        let cells = BESIDE_WAYS
            .map(|(way, _)| of(way).zip(rest).map_or_else(|| cell(None), |(value, rest)| part(value, rest)));
        lines.push(row(format!("**{workflow}, ours**"), cells));
    }
    lines.sort_by_key(|line| {
        BESIDE.iter().position(|(name, _)| line[0].contains(name)).unwrap_or(BESIDE.len())
    });
    let mut head = vec!["workflow"];
    head.extend(BESIDE_WAYS.map(|(_, name)| name));
    text + &table(&head, lines)
}

/// Long JSON, which lost the paper gitea.r.
fn json(results: &Results) -> String {
    let rows = results.of("json");
    let heading = "### Long JSON, the cause of the defeat in gitea.r\n\nMicroseconds of CPU for a megabyte of issues, as Gitea \
        answers them: to read three members of one in a hundred (rows), one member of each (column), the open ones (open), or \
        the text alone (parse).\n\n";
    if rows.is_empty() {
        return heading.to_owned() + &missing("json");
    }
    let reads = rows.names("reads");
    let line = |(name, label): (&str, &str)| {
        let of = rows.with("name", name);
        row(label, reads.iter().map(|read| spread(of.with("reads", *read).figure("cpu_us"))))
    };
    let head: Vec<&str> = std::iter::once("").chain(reads.iter().copied()).collect();
    heading.to_owned() + &table(&head, READERS.into_iter().map(line))
}
