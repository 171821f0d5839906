//! A comparison that none of the documents has: the same questions with every approach, ORFA's five and
//! others.

use super::results::{BenchResults, RowSelection};
use super::table::{format_number, missing_note, number_cell, table, table_row};

/// The names of the distances in the rows.
const PLACES: [&str; 3] = ["035", "093", "170"];

pub(super) fn section(results: &BenchResults) -> String {
    let mut text = "## One job, all ways\n\nThree questions to the [marketplace](../examples/marketplace/README.md), from three \
        distances: with plain REST one by one, all at once, and with bulk calls of the API; with ORFA's handlers, a query by program \
        and by token, a script, GraphQL, and an aggregate, while REST itself is proxied by ORFA; with Cap'n Web, for which the \
        services are rewritten as RPC classes; and with programs on workerd. All responses are equal. CPU is that of all processes \
        between the client and the services. Latencies are over existing connections; *cold* is over new ones, which take a round trip to set up. The first two jobs have no \
        script and no aggregate, and no GraphQL if a write depends on a condition. Only ORFA reports the number of calls that it \
        makes.\n\n"
        .to_owned();
    let rows = results.rows_of("ways");
    if rows.is_empty() {
        text += &missing_note("ways");
    }
    for job in rows.distinct_texts("job") {
        let rows = rows.with_value("job", job);
        let title = rows.distinct_texts("title").first().copied().unwrap_or(job);
        text += &format!("### {title}\n\n");
        text += &table(
            &[
                "",
                "requests",
                "trips",
                "35 ms",
                "93 ms",
                "170 ms",
                "93 ms, cold",
                "bytes",
                "gzipped",
                "calls to services",
                "CPU us",
            ],
            rows.distinct_texts("way").into_iter().map(|way| variant_row(way, &rows.with_value("way", way))),
        );
    }
    text
}

fn variant_row(way: &str, rows: &RowSelection<'_>) -> Vec<String> {
    let whole = |field| number_cell(rows.median(field)).replace(".00", "").replace(".0", "");
    let ms = PLACES.map(|place| match rows.median(&format!("spread_ms/{place}")) {
        Some(spread) => {
            format!("{} ({})", number_cell(rows.median(&format!("ms/{place}"))), format_number(spread))
        }
        None => number_cell(rows.median(&format!("ms/{place}"))),
    });
    let up = rows.median("bytes_up");
    let bytes = ["bytes_down", "gzip_down"]
        .map(|down| number_cell(up.zip(rows.median(down)).map(|(up, down)| up + down)));
    let cold = number_cell(rows.median("cold_ms"));
    let cpu = match rows.median("spread_cpu_us") {
        Some(spread) => format!("{} ({})", number_cell(rows.median("cpu_us")), format_number(spread)),
        None => number_cell(rows.median("cpu_us")),
    };
    let cells = [whole("requests"), whole("round_trips")].into_iter().chain(ms).chain([cold]).chain(bytes);
    table_row(way, cells.chain([whole("upstream_calls"), cpu]))
}
