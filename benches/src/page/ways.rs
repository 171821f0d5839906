//! What none of the documents has: the same questions in all ways that there are, ORFA's five and others'.

use super::results::{Results, Rows};
use super::table::{cell, missing, number, row, spread, table};

/// As the rows name them.
const PLACES: [&str; 3] = ["035", "093", "170"];

pub(super) fn section(results: &Results) -> String {
    let mut text = "## One job, all ways\n\nThree questions to the [marketplace](../examples/marketplace/README.md), from three \
        distances: by plain REST one by one, all at once, and as well as its API allows; by ORFA's five ways, a query by program \
        and by token, a script, GraphQL, and an aggregate, beside which REST itself is proxied by ORFA; by Cap'n Web, for which the \
        services are rewritten as RPC classes; and by programs on workerd. All answers are equal. CPU is that of all processes \
        between the client and the services. A way that is missing can't do that job in one request.\n\n"
        .to_owned();
    let rows = results.of("ways");
    if rows.is_empty() {
        text += &missing("ways");
    }
    for job in rows.names("job") {
        let rows = rows.with("job", job);
        let title = rows.names("title").first().copied().unwrap_or(job);
        text += &format!("### {title}\n\n");
        text += &table(
            &[
                "",
                "requests",
                "trips",
                "35 ms",
                "93 ms",
                "170 ms",
                "bytes",
                "gzipped",
                "calls to services",
                "CPU us",
            ],
            rows.names("way").into_iter().map(|way| line(way, &rows.with("way", way))),
        );
    }
    text
}

fn line(way: &str, rows: &Rows<'_>) -> Vec<String> {
    let whole = |field| cell(rows.median(field)).replace(".00", "").replace(".0", "");
    let ms = PLACES.map(|place| match rows.median(&format!("spread_ms/{place}")) {
        Some(spread) => format!("{} ({})", cell(rows.median(&format!("ms/{place}"))), number(spread)),
        None => cell(rows.median(&format!("ms/{place}"))),
    });
    let up = rows.median("bytes_up");
    let bytes =
        ["bytes_down", "gzip_down"].map(|down| cell(up.zip(rows.median(down)).map(|(up, down)| up + down)));
    let cells = [whole("requests"), whole("round_trips")].into_iter().chain(ms).chain(bytes);
    row(way, cells.chain([whole("upstream_calls"), spread(rows.figure("cpu_us"))]))
}
