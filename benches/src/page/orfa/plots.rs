//! The paper's figures 7 to 9 in its layout, for our rows: bars for each workflow, for our programs with a
//! call for each row.

use super::{BENCHES, INSTANCE, KINDS, PLACES, SIZES, USUAL_SIZE, bytes, distances, latencies, traffic};
use crate::page::NamedPlot;
use crate::page::results::{BenchResults, RowSelection};
use crate::svg::{BarChart, BarScale};

pub(in crate::page) fn plots(results: &BenchResults) -> Vec<NamedPlot> {
    let kinds = KINDS.map(|(_, name)| name).to_vec();
    let by_way = |of: &dyn Fn(&RowSelection<'_>) -> Option<f64>| {
        by_workflow(results, |rows| {
            let rows = rows.with("n", USUAL_SIZE);
            KINDS.map(|(way, _)| of(&rows.with("way", way))).to_vec()
        })
    };
    let latency = PLACES.map(|(place, name)| {
        let title = format!("Milliseconds from {name} away, N = {USUAL_SIZE}");
        (title, by_way(&|rows| rows.median(&format!("ms/{place}"))))
    });
    let traffic = (format!("Bytes up and down, N = {USUAL_SIZE}, by logarithm"), by_way(&traffic));
    let ours = |figures: fn(&RowSelection<'_>, &str) -> Vec<Option<f64>>| {
        by_workflow(results, move |rows| figures(rows, INSTANCE))
    };
    let by_distance = (format!("Latency of ORFA-inst by GraphQL's, N = {USUAL_SIZE}"), ours(distances));
    let by_size = [
        ("Latency of ORFA-inst by GraphQL's, from 93 ms away".to_owned(), ours(latencies)),
        ("Bytes of ORFA-inst by GraphQL's".to_owned(), ours(bytes)),
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
fn by_workflow(
    results: &BenchResults,
    figures: impl Fn(&RowSelection<'_>) -> Vec<Option<f64>>,
) -> Vec<(String, Vec<Option<f64>>)> {
    let mut groups = Vec::new();
    for (bench, _) in BENCHES {
        let rows = results.of(bench);
        let names = rows.names("workflow").into_iter();
        groups.extend(names.map(|name| (name.to_owned(), figures(&rows.with("workflow", name)))));
    }
    groups
}
