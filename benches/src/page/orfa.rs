//! The ORFA paper: its figures 7 to 9, by distance and by size, and its table 5, under load (`load.rs`). The
//! paper draws figures 7 to 9 without numbers. Its text on them is next to our results, and `plots.rs` draws
//! our charts.

mod load;
mod plots;

use super::results::{BenchResults, RowSelection, ratio};
use super::table::{chart_link, format_number, missing_note, number_cell, table, table_row};

pub(super) use plots::plots;

/// The benches with workflow rows, and their services.
const BENCHES: [(&str, &str); 3] = [
    ("strapi", "Strapi 5 on SQLite, as in the paper"),
    (
        "workflows",
        "stand-ins for Memos and Gitea, which are not available here: services with generated responses to the same calls, 106 KB for a branch's commits",
    ),
    (
        "market",
        "two workflows of the same kind on the [marketplace](../examples/marketplace/README.md), REST proxied by ORFA and GraphQL \
         by ORFA itself",
    ),
];
/// The distances of the paper's client: the name in the rows, and the displayed name.
const PLACES: [(&str, &str); 3] = [("035", "35 ms"), ("093", "93 ms"), ("170", "170 ms")];
const USUAL_PLACE: &str = "093";
const SIZES: [u64; 4] = [2, 4, 8, 16];
const USUAL_SIZE: u64 = 4;
const GRAPHQL: &str = "graphql.paper";
/// The variants that the paper compares, with their names. Ours are programs in C with a call for each row.
const PAPER_VARIANTS: [(&str, &str); 5] = [
    ("rest.parallel", "REST"),
    (GRAPHQL, "GraphQL"),
    ("orfa.base.c.calls", "ORFA-base"),
    ("orfa.code.c.calls", "ORFA-code"),
    (INSTANCE, "ORFA-inst"),
];
const INSTANCE: &str = "orfa.instance.c.calls";
/// ORFA as in the paper's figures 8 and 9: in C, with the instance kept; once with a call for each row, as
/// there, and once with the bulk calls of the API.
const ORFA_VARIANTS: [(&str, &str); 2] =
    [(INSTANCE, "a call for each row"), ("orfa.instance.c", "the API's best")];

pub(super) fn section(results: &BenchResults) -> String {
    let heading = "## ORFA: a query language of WebAssembly\n\nThe paper runs six workflows on Memos, Strapi and Gitea from three \
        places, and measures \"hello world\" under load.\n\n";
    [
        heading.to_owned(),
        figure_7(results),
        figure_8(results),
        figure_9(results),
        load::table_5a(results),
        load::table_5b(results),
        load::json_table(results),
    ]
    .concat()
}

/// Latency from three places, and traffic, with a typical N.
fn figure_7(results: &BenchResults) -> String {
    let mut text = format!(
        "### Figure 7: latency and traffic, N = {USUAL_SIZE}\n\nTheirs, over all six workflows: ORFA-inst is 18.4 % faster than \
         GraphQL on average and 52 % at most (memos.r); traffic is 24.5 % less with the program in every request, 72.4 % less \
         without it. ORFA is slower than GraphQL in **gitea.r**, since its interpreter parses long JSON slowly. ORFA-base \
         sends slightly more than GraphQL in **memos.w**, where the program is most of the \
         traffic.\n\n{}",
        exceptions(results)
    );
    for (bench, what) in BENCHES {
        text += &format!("Ours, {what}:\n\n");
        let rows = results.rows_of(bench).with_value("n", USUAL_SIZE);
        if rows.is_empty() {
            text += &missing_note(bench);
        }
        for workflow in rows.distinct_texts("workflow") {
            let rows = rows.with_value("workflow", workflow);
            let line = |way: &str| {
                let of = rows.with_value("way", way);
                let ms = PLACES.map(|(place, _)| latency_cell(&of, place));
                let [up, down, gzip] = ["bytes_up", "bytes_down", "gzip_down"].map(|field| of.median(field));
                let sum = |down: Option<f64>| number_cell(up.zip(down).map(|(up, down)| up + down));
                table_row(
                    variant_label(way),
                    [
                        number_cell(of.median("requests").map(f64::round)).replace(".00", ""),
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
            text += &table(&head, rows.distinct_texts("way").into_iter().map(line));
        }
    }
    text + &chart_link("orfa-figure-7a", "Figure 7a: latency from three places")
        + &chart_link("orfa-figure-7b", "Figure 7b: bytes, up and down")
}

/// The cases in which ours is behind GraphQL where the paper names exceptions.
fn exceptions(results: &BenchResults) -> String {
    let mut behind = Vec::new();
    for (bench, _) in BENCHES {
        let rows = results.rows_of(bench).with_value("n", USUAL_SIZE);
        for workflow in rows.distinct_texts("workflow") {
            let rows = rows.with_value("workflow", workflow);
            let of = |way: &str| traffic(&rows.with_value("way", way));
            if let (Some(ours), Some(theirs)) = (of("orfa.base.c.calls"), of(GRAPHQL))
                && ours > theirs
            {
                behind.push(format!(
                    "{workflow} ({} and {} bytes)",
                    format_number(ours),
                    format_number(theirs)
                ));
            }
        }
    }
    let gitea = results.rows_of("workflows").with_value("n", USUAL_SIZE).with_value("workflow", "gitea.r");
    let latency = |way: &str| gitea.with_value("way", way).median("ms/093");
    let Some(gitea) = ratio(latency(INSTANCE), latency(GRAPHQL)) else { return String::new() };
    let traffic = match &behind[..] {
        [] => "sends less everywhere".to_owned(),
        _ => format!("sends more in {}, by a program in C", behind.join(", ")),
    };
    format!(
        "Ours: gitea.r takes {} of GraphQL's time from {USUAL_PLACE} ms away; ORFA-base {traffic}.\n\n",
        format_number(gitea)
    )
    .replace("from 093", "from 93")
}

/// The median with the spread, if the row has one.
fn latency_cell(rows: &RowSelection<'_>, place: &str) -> String {
    let ms = rows.median(&format!("ms/{place}"));
    match rows.median(&format!("spread_ms/{place}")) {
        Some(spread) => format!("{} ({})", number_cell(ms), format_number(spread)),
        None => number_cell(ms),
    }
}

/// The display name of a variant such as `orfa.code.js.calls`.
fn variant_label(way: &str) -> String {
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

/// Latency relative to GraphQL's, by distance.
fn figure_8(results: &BenchResults) -> String {
    let heading = format!(
        "### Figure 8: ORFA-inst by GraphQL, by distance, N = {USUAL_SIZE}\n\nTheirs: below 1 in almost all cells, and lower for more \
         distant clients.\n\n"
    );
    let head = ["workflow", PLACES[0].1, PLACES[1].1, PLACES[2].1];
    heading
        + &workflow_table(results, &head, latencies_by_distance)
        + &chart_link("orfa-figure-8", "Figure 8: latency by GraphQL's")
}

/// Our latency relative to GraphQL's from each place.
fn latencies_by_distance(rows: &RowSelection<'_>, ours: &str) -> Vec<Option<f64>> {
    let rows = rows.with_value("n", USUAL_SIZE);
    PLACES.map(|(place, _)| ratio_to_graphql(&rows, ours, |of| of.median(&format!("ms/{place}")))).to_vec()
}

/// Latency and traffic relative to GraphQL's, by N.
fn figure_9(results: &BenchResults) -> String {
    let heading = "### Figure 9: ORFA-inst by GraphQL, by N, at 93 ms\n\nTheirs: below 1 in most cells, and for traffic in all; the latency of \
        strapi grows with N, since its responses are long.\n\n";
    let names = SIZES.map(|size| format!("N={size}"));
    let mut head = vec!["workflow".to_owned()];
    head.extend(names.iter().map(|name| format!("latency, {name}")));
    head.extend(names.iter().map(|name| format!("bytes, {name}")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let both = |rows: &RowSelection<'_>, ours: &str| {
        [latencies_by_size(rows, ours), traffic_by_size(rows, ours)].concat()
    };
    let plot = chart_link("orfa-figure-9", "Figure 9: latency and bytes by GraphQL's");
    heading.to_owned() + &workflow_table(results, &head, both) + &plot
}

/// Our latency relative to GraphQL's, by N.
fn latencies_by_size(rows: &RowSelection<'_>, ours: &str) -> Vec<Option<f64>> {
    let latency = |of: &RowSelection<'_>| of.median(&format!("ms/{USUAL_PLACE}"));
    SIZES.map(|size| ratio_to_graphql(&rows.with_value("n", size), ours, latency)).to_vec()
}

/// Our traffic relative to GraphQL's, by N.
fn traffic_by_size(rows: &RowSelection<'_>, ours: &str) -> Vec<Option<f64>> {
    SIZES.map(|size| ratio_to_graphql(&rows.with_value("n", size), ours, traffic)).to_vec()
}

/// The bytes in both directions.
fn traffic(rows: &RowSelection<'_>) -> Option<f64> {
    Some(rows.median("bytes_up")? + rows.median("bytes_down")?)
}

/// A figure of ours relative to GraphQL's.
fn ratio_to_graphql(
    rows: &RowSelection<'_>,
    ours: &str,
    of: impl Fn(&RowSelection<'_>) -> Option<f64>,
) -> Option<f64> {
    ratio(of(&rows.with_value("way", ours)), of(&rows.with_value("way", GRAPHQL)))
}

/// A table with a row for each workflow and each of our variants.
fn workflow_table(
    results: &BenchResults,
    head: &[&str],
    figures: impl Fn(&RowSelection<'_>, &str) -> Vec<Option<f64>>,
) -> String {
    let (mut text, mut lines) = (String::new(), Vec::new());
    for (bench, _) in BENCHES {
        let rows = results.rows_of(bench);
        if rows.is_empty() {
            text += &missing_note(bench);
        }
        for workflow in rows.distinct_texts("workflow") {
            let rows = rows.with_value("workflow", workflow);
            for (way, what) in
                ORFA_VARIANTS.into_iter().filter(|(way, _)| !rows.with_value("way", *way).is_empty())
            {
                lines.push(table_row(
                    format!("{workflow}, {what}"),
                    figures(&rows, way).into_iter().map(number_cell),
                ));
            }
        }
    }
    text + &if lines.is_empty() { String::new() } else { table(head, lines) }
}
