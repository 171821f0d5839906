//! The paper's figures 7 to 9 in its layout, for our rows: bars for each workflow, for our programs with a
//! call for each row.

use super::{
    BENCHES, INSTANCE, PAPER_VARIANTS, PLACES, SIZES, USUAL_SIZE, latencies_by_distance, latencies_by_size,
    traffic, traffic_by_size,
};
use crate::page::NamedPlot;
use crate::page::results::{BenchResults, RowSelection};
use crate::page::svg::{BarChart, BarScale};

pub(in crate::page) fn plots(results: &BenchResults) -> Vec<NamedPlot> {
    let kinds = PAPER_VARIANTS.map(|(_, name)| name).to_vec();
    let by_way = |of: &dyn Fn(&RowSelection<'_>) -> Option<f64>| {
        workflow_groups(results, |rows| {
            let rows = rows.with_value("n", USUAL_SIZE);
            PAPER_VARIANTS.map(|(way, _)| of(&rows.with_value("way", way))).to_vec()
        })
    };
    let latency = PLACES.map(|(place, name)| {
        let title = format!("Milliseconds from {name} away, N = {USUAL_SIZE}");
        (title, by_way(&|rows| rows.median(&format!("ms/{place}"))))
    });
    let traffic = (format!("Bytes up and down, N = {USUAL_SIZE}, by logarithm"), by_way(&traffic));
    let ours = |figures: fn(&RowSelection<'_>, &str) -> Vec<Option<f64>>| {
        workflow_groups(results, move |rows| figures(rows, INSTANCE))
    };
    let by_distance =
        (format!("Latency of ORFA-inst by GraphQL's, N = {USUAL_SIZE}"), ours(latencies_by_distance));
    let by_size = [
        ("Latency of ORFA-inst by GraphQL's, from 93 ms away".to_owned(), ours(latencies_by_size)),
        ("Bytes of ORFA-inst by GraphQL's".to_owned(), ours(traffic_by_size)),
    ];
    let sizes = SIZES.map(|size| match size {
        2 => "N = 2",
        4 => "N = 4",
        8 => "N = 8",
        _ => "N = 16",
    });
    let plots = [
        ("orfa-figure-7a", kinds.clone(), latency.to_vec(), BarScale::Linear),
        ("orfa-figure-7b", kinds, vec![traffic], BarScale::Logarithmic),
        ("orfa-figure-8", PLACES.map(|(_, name)| name).to_vec(), vec![by_distance], BarScale::Linear),
        ("orfa-figure-9", sizes.to_vec(), by_size.to_vec(), BarScale::Linear),
    ];
    let plots =
        plots.into_iter().filter(|(_, _, panels, _)| panels.iter().any(|(_, groups)| !groups.is_empty()));
    plots.map(|(name, kinds, panels, height)| (name, BarChart { kinds, panels, height }.draw())).collect()
}

/// The figures of each workflow.
fn workflow_groups(
    results: &BenchResults,
    figures: impl Fn(&RowSelection<'_>) -> Vec<Option<f64>>,
) -> Vec<(String, Vec<Option<f64>>)> {
    let mut groups = Vec::new();
    for (bench, _) in BENCHES {
        let rows = results.rows_of(bench);
        let names = rows.distinct_texts("workflow").into_iter();
        groups.extend(names.map(|name| (name.to_owned(), figures(&rows.with_value("workflow", name)))));
    }
    groups
}
