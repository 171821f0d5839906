//! Figures 6 and 7 of the study, from our runs: what a query takes on average in each test case, and how many are answered a
//! second, by each way.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use benches::scoreboard;

use crate::study::{CASES, Row};

const QUERIES: [&str; 5] = ["q1", "q2", "q3", "q4", "q5"];
const WAYS: [(&str, &str); 3] = [("aggregate", "#8c959f"), ("graphql", "#0969da"), ("stitched", "#bf3989")];
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 14.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 24.0;
const BAR: f64 = 22.0;
const STYLE: &str = "text{font:11px sans-serif;fill:#57606a;text-anchor:middle}.t{font-weight:bold;fill:#24292f}\
    .t,.k{text-anchor:start}.n{font-size:9px}";

/// A figure: its file, what it shows, and of which row.
type Figure = (&'static str, &'static str, fn(&Row) -> f64);

const FIGURES: [Figure; 2] = [
    ("graphql-figure-6", "ms on average", |row| row.mean_ms),
    ("graphql-figure-7", "requests answered a second", |row| row.per_second),
];

pub(super) fn write(rows: &[Row]) -> Result<()> {
    for (name, what, of) in FIGURES {
        let file = scoreboard::folder().join(Path::new(name)).with_extension("svg");
        std::fs::write(file, draw(rows, what, of))?;
    }
    Ok(())
}

/// A chart for each test case, side by side, with one scale.
fn draw(rows: &[Row], what: &str, of: fn(&Row) -> f64) -> String {
    let most = rows.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let width = WIDTH * CASES.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" \
         height=\"{HEIGHT}\"><style>{STYLE}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (place, (users, each)) in CASES.into_iter().enumerate() {
        let _ = writeln!(
            text,
            "<g transform=\"translate({},0)\">\n<text class=\"t\" x=\"{LEFT}\" y=\"16\">{users} users, {each} each: {what}</text>",
            WIDTH * place as f64
        );
        for (place, (way, colour)) in WAYS.into_iter().enumerate() {
            let x = LEFT + 90.0 * place as f64;
            let _ =
                writeln!(text, "<text class=\"k\" x=\"{x}\" y=\"32\" style=\"fill:{colour}\">{way}</text>");
        }
        let bars = rows.iter().filter(|row| row.users == users).filter_map(|row| bar(row, of(row), most));
        text.extend(bars);
        for (place, query) in QUERIES.into_iter().enumerate() {
            let x = group(place) + BAR * WAYS.len() as f64 / 2.0;
            let _ = writeln!(text, "<text x=\"{x}\" y=\"{}\">{}</text>", HEIGHT - 8.0, query.to_uppercase());
        }
        text += "</g>\n";
    }
    text + "</svg>\n"
}

/// Where the bars of a query begin.
fn group(place: usize) -> f64 {
    LEFT + place as f64 * (WIDTH - LEFT) / QUERIES.len() as f64
}

/// A bar with its figure above it.
fn bar(row: &Row, figure: f64, most: f64) -> Option<String> {
    let query = QUERIES.iter().position(|query| *query == row.query)?;
    let way = WAYS.iter().position(|(way, _)| *way == row.way)?;
    let height = (HEIGHT - TOP - BOTTOM) * figure / most;
    let (x, y) = (group(query) + BAR * way as f64, HEIGHT - BOTTOM - height);
    let (width, middle, above) = (BAR - 2.0, x + BAR / 2.0 - 1.0, y - 3.0);
    let colour = WAYS[way].1;
    Some(format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height:.1}\" fill=\"{colour}\"/>\n\
         <text class=\"n\" x=\"{middle:.1}\" y=\"{above:.1}\">{figure:.0}</text>\n"
    ))
}
