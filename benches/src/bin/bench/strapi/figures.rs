//! The output: the table, the rows of the results, and the headlines.

use std::collections::BTreeMap;

use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use serde::Serialize;

use super::cell::WorkflowCell;
use super::variant::{CallShape, OrfaCaching, ProgramHost, StrapiVariant};
use super::workflow::PaperWorkflow;
use super::{SIZES, StrapiRun, USUAL_MS};
use crate::print_line;

/// All measurements.
#[derive(Default)]
pub(super) struct StrapiFigures {
    figures: BTreeMap<(WorkflowCell, StrapiVariant), StrapiFigure>,
}

/// The measurements of a variant in a cell.
#[derive(Default)]
struct StrapiFigure {
    ms: Vec<f64>,
    /// The part of Strapi, if a host called it.
    strapi_ms: Vec<f64>,
    requests: usize,
    up: Vec<f64>,
    down: Vec<f64>,
    /// The value of `down` with gzipped response bodies.
    gzip_down: Vec<f64>,
}

/// A row of the results.
#[derive(Serialize)]
pub(super) struct StrapiFigureRow {
    workflow: &'static str,
    n: usize,
    way: String,
    requests: usize,
    bytes_up: f64,
    bytes_down: f64,
    gzip_down: f64,
    /// The latency in milliseconds by the round trip in milliseconds.
    ms: BTreeMap<String, f64>,
    spread_ms: BTreeMap<String, f64>,
    /// The part of `ms` for which a host waited for Strapi; 0 if the client called Strapi directly.
    strapi_ms: BTreeMap<String, f64>,
}

impl StrapiFigures {
    pub(super) fn add(&mut self, cell: WorkflowCell, variant: StrapiVariant, run: &StrapiRun) {
        let figure = self.figures.entry((cell, variant)).or_default();
        figure.requests = run.requests;
        figure.ms.push(run.ms);
        figure.strapi_ms.push(run.strapi_ms);
        figure.up.push(run.traffic.up as f64);
        figure.down.push(run.traffic.down as f64);
        figure.gzip_down.push((run.traffic.down - run.gzip_saves) as f64);
    }

    /// A summary of a cell: GraphQL as in the paper, the best variant without programs, and the slowest of
    /// ours.
    pub(super) fn summary_line(&self, cell: WorkflowCell) -> String {
        let ms = |variant| self.get(cell, variant).map_or(0.0, StrapiFigure::median_ms);
        let ours = self.orfa_figures(cell).map(|(_, _, figure)| figure.median_ms()).fold(0.0, f64::max);
        let WorkflowCell { workflow, size, round_trip_ms } = cell;
        let best = self.best_without_programs(cell).unwrap_or_default();
        let (name, graphql) = (workflow.name(), ms(StrapiVariant::Graphql));
        format!(
            "{name} N={size:<2} {round_trip_ms:>3} ms: graphql {graphql:.0} ms, best {best:.1} ms, orfa at most {ours:.1} ms"
        )
    }

    /// Prints the table of one distance.
    pub(super) fn print_table(&self) {
        let round_trip_ms = if self.figures.keys().any(|(cell, _)| cell.round_trip_ms == USUAL_MS) {
            USUAL_MS
        } else {
            self.figures.keys().map(|(cell, _)| cell.round_trip_ms).min().unwrap_or(0)
        };
        for workflow in PaperWorkflow::ALL {
            let sizes = SIZES.map(|size| format!("{:>13}", format!("N={size}"))).concat();
            print_line(&format!("  {} at {round_trip_ms} ms: ms/bytes{sizes}   with gzip", workflow.name()));
            for variant in self.variants(workflow) {
                let cells =
                    SIZES.map(|size| self.get(WorkflowCell { workflow, size, round_trip_ms }, variant));
                let ms = cells.map(|figure| {
                    figure.map_or_else(String::new, |figure| {
                        format!("{:.0}/{:.0}", figure.median_ms(), figure.total_bytes())
                    })
                });
                let gzip = cells.map(|figure| {
                    figure.map_or_else(String::new, |figure| format!("{:.0}", figure.total_gzip_bytes()))
                });
                let (ms, gzip) = (
                    ms.map(|text| format!("{text:>13}")).concat(),
                    gzip.map(|text| format!("{text:>7}")).concat(),
                );
                print_line(&format!("  {variant:<30}{ms}  {gzip}"));
            }
        }
    }

    pub(super) fn rows(&self) -> Vec<StrapiFigureRow> {
        let mut rows = Vec::new();
        for workflow in PaperWorkflow::ALL {
            for size in SIZES {
                rows.extend(
                    self.variants(workflow)
                        .into_iter()
                        .filter_map(|variant| self.row(workflow, size, variant)),
                );
            }
        }
        rows
    }

    fn row(&self, workflow: PaperWorkflow, n: usize, variant: StrapiVariant) -> Option<StrapiFigureRow> {
        let is_it = |cell: &WorkflowCell| cell.workflow == workflow && cell.size == n;
        let of: Vec<_> =
            self.figures.iter().filter(|((cell, of), _)| is_it(cell) && *of == variant).collect();
        let (_, figure) = of.first()?;
        let by_distance = |value: fn(&StrapiFigure) -> Option<f64>| {
            let cell = |((cell, _), figure): &(&(WorkflowCell, StrapiVariant), &StrapiFigure)| {
                Some((format!("{:03}", cell.round_trip_ms), (value(figure)? * 10.0).round() / 10.0))
            };
            of.iter().filter_map(cell).collect()
        };
        Some(StrapiFigureRow {
            workflow: workflow.name(),
            n,
            way: variant.to_string(),
            requests: figure.requests,
            bytes_up: median(&figure.up),
            bytes_down: median(&figure.down),
            gzip_down: median(&figure.gzip_down),
            ms: by_distance(|figure| Some(figure.median_ms())),
            spread_ms: by_distance(|figure| (figure.ms.len() > 1).then(|| spread(&figure.ms))),
            strapi_ms: by_distance(|figure| Some(median(&figure.strapi_ms))),
        })
    }

    /// The headlines. Ours are the programs that use Strapi's bulk queries.
    pub(super) fn scores(&self) -> Vec<(String, HeadlineScore)> {
        let against_graphql = "GraphQL as in the paper; the worst of 24 cells";
        let latency = self.cell_values(
            |_| true,
            |cell, _, ours| Some(ours.median_ms() / self.get(cell, StrapiVariant::Graphql)?.median_ms()),
        );
        let over_best = self.cell_values(
            |_| true,
            |cell, _, ours| Some(ours.median_ms() - self.best_without_programs(cell)?),
        );
        let workerd = self.cell_values(
            |_| true,
            |cell, mode, ours| {
                let usual = self.strapi_ms(cell);
                Some(ours.normalized_ms(usual) / self.workerd_figure(cell, mode)?.normalized_ms(usual))
            },
        );
        let bytes = |cell, _, ours: &StrapiFigure| {
            let graphql = self.get(cell, StrapiVariant::Graphql)?;
            Some(
                (ours.total_bytes() / graphql.total_bytes())
                    .max(ours.total_gzip_bytes() / graphql.total_gzip_bytes()),
            )
        };
        let base = self.cell_values(|mode| mode == OrfaCaching::Base, bytes);
        let code = self.cell_values(|mode| mode == OrfaCaching::Code, bytes);
        let scores = [
            ("strapi.latency_vs_graphql.worst", "ratio", 1.0, against_graphql, latency),
            (
                "strapi.latency_over_best_ms.worst",
                "ms",
                10.0,
                "the best way without programs; the worst of 24 cells",
                over_best,
            ),
            (
                "strapi.latency_vs_workerd.worst",
                "ratio",
                1.0,
                "workerd with the same program, base by program, the others by token, where Strapi takes as long for both; the worst of 24 cells",
                workerd,
            ),
            (
                "strapi.bytes_vs_graphql.base.worst",
                "ratio",
                1.0,
                "GraphQL as in the paper; the worse of plain and gzip, the worst of 24 cells",
                base,
            ),
            (
                "strapi.bytes_vs_graphql.code.worst",
                "ratio",
                1.0,
                "GraphQL as in the paper; the worse of plain and gzip, the worst of 24 cells",
                code,
            ),
        ];
        let scores = scores.into_iter().filter(|(.., values)| !values.is_empty());
        scores
            .map(|(name, unit, target, against, values)| {
                let score = HeadlineScore {
                    value: values.iter().copied().fold(f64::MIN, f64::max),
                    unit: unit.into(),
                    better: BetterDirection::Lower,
                    target: Some(target),
                    against: against.into(),
                    spread: spread(&values),
                };
                (name.to_owned(), score)
            })
            .collect()
    }

    /// A figure of each of our variants in each cell.
    fn cell_values(
        &self,
        wanted: impl Fn(OrfaCaching) -> bool,
        value: impl Fn(WorkflowCell, OrfaCaching, &StrapiFigure) -> Option<f64>,
    ) -> Vec<f64> {
        let ours = self.figures.iter().filter_map(|((cell, way), figure)| match *way {
            StrapiVariant::Program(ProgramHost::Orfa(mode, _), CallShape::Bulk) if wanted(mode) => {
                value(*cell, mode, figure)
            }
            _ => None,
        });
        ours.collect()
    }

    fn orfa_figures(
        &self,
        workflow_cell: WorkflowCell,
    ) -> impl Iterator<Item = (WorkflowCell, OrfaCaching, &StrapiFigure)> {
        self.figures.iter().filter_map(move |((cell, way), figure)| match *way {
            StrapiVariant::Program(ProgramHost::Orfa(mode, _), CallShape::Bulk) if *cell == workflow_cell => {
                Some((*cell, mode, figure))
            }
            _ => None,
        })
    }

    /// The latency of the fastest variant without programs.
    fn best_without_programs(&self, workflow_cell: WorkflowCell) -> Option<f64> {
        let without = self
            .figures
            .iter()
            .filter(|((cell, way), _)| *cell == workflow_cell && !matches!(way, StrapiVariant::Program(..)));
        without.map(|(_, figure)| figure.median_ms()).min_by(f64::total_cmp)
    }

    fn workerd_figure(&self, cell: WorkflowCell, mode: OrfaCaching) -> Option<&StrapiFigure> {
        let host = if mode == OrfaCaching::Base {
            ProgramHost::WorkerdByProgram
        } else {
            ProgramHost::WorkerdByToken
        };
        self.get(cell, StrapiVariant::Program(host, CallShape::Bulk))
    }

    /// The typical time of Strapi for the calls of programs in a cell.
    fn strapi_ms(&self, workflow_cell: WorkflowCell) -> f64 {
        let programs = self.figures.iter().filter(|((cell, way), _)| {
            *cell == workflow_cell && matches!(way, StrapiVariant::Program(_, CallShape::Bulk))
        });
        median(&programs.flat_map(|(_, figure)| figure.strapi_ms.iter().copied()).collect::<Vec<_>>())
    }

    fn get(&self, cell: WorkflowCell, variant: StrapiVariant) -> Option<&StrapiFigure> {
        self.figures.get(&(cell, variant))
    }

    /// The variants of a workflow, in the order of the table.
    fn variants(&self, workflow: PaperWorkflow) -> Vec<StrapiVariant> {
        let of = self.figures.keys().filter(|(cell, _)| cell.workflow == workflow).map(|(_, way)| *way);
        of.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }
}

impl StrapiFigure {
    fn median_ms(&self) -> f64 {
        median(&self.ms)
    }

    /// The latency, normalised to this time of Strapi: its response times vary by more than the hosts differ.
    fn normalized_ms(&self, strapi_ms: f64) -> f64 {
        let runs = self.ms.iter().zip(&self.strapi_ms).map(|(ms, strapis)| ms - strapis + strapi_ms);
        median(&runs.collect::<Vec<_>>())
    }

    fn total_bytes(&self) -> f64 {
        median(&self.up) + median(&self.down)
    }

    fn total_gzip_bytes(&self) -> f64 {
        median(&self.up) + median(&self.gzip_down)
    }
}

#[cfg(test)]
mod tests {
    use benches::delay::ProxyTraffic;

    use super::super::variant::StrapiLanguage;
    use super::*;

    const BASE: StrapiVariant =
        StrapiVariant::Program(ProgramHost::Orfa(OrfaCaching::Base, StrapiLanguage::C), CallShape::Bulk);

    fn run(ms: f64, down: u64, gzip_saves: u64) -> StrapiRun {
        let traffic = ProxyTraffic { up: 100, down };
        StrapiRun { answer: serde_json::Value::Null, requests: 1, ms, strapi_ms: 0.0, traffic, gzip_saves }
    }

    #[test]
    fn latency_comparison_excludes_the_time_of_strapi() {
        let mut figures = StrapiFigures::default();
        let cell = WorkflowCell { workflow: PaperWorkflow::Read, size: 2, round_trip_ms: 35 };
        let workerd = StrapiVariant::Program(ProgramHost::WorkerdByProgram, CallShape::Bulk);
        // Without Strapi's time: 41 of ours, 42 of workerd's.
        for (variant, ms, strapi_ms) in [(BASE, 51.0, 10.0), (BASE, 59.0, 18.0), (workerd, 52.0, 10.0)] {
            figures.add(cell, variant, &StrapiRun { strapi_ms, ..run(ms, 300, 0) });
        }
        let scores: BTreeMap<String, HeadlineScore> = figures.scores().into_iter().collect();
        assert_eq!(scores["strapi.latency_vs_workerd.worst"].value, 51.0 / 52.0);
        assert_eq!(
            figures.get(cell, BASE).map(StrapiFigure::median_ms),
            Some(55.0),
            "the table has the measured times"
        );
    }

    #[test]
    fn headlines_use_the_worst_cell_and_encoding() {
        let mut figures = StrapiFigures::default();
        for (size, ours) in [(2, run(50.0, 300, 0)), (4, run(60.0, 500, 100))] {
            let cell = WorkflowCell { workflow: PaperWorkflow::Read, size, round_trip_ms: 35 };
            figures.add(cell, StrapiVariant::Graphql, &run(100.0, 900, 500));
            figures.add(cell, StrapiVariant::FewestCalls, &run(55.0, 900, 0));
            figures.add(cell, BASE, &ours);
        }
        let scores: BTreeMap<String, HeadlineScore> = figures.scores().into_iter().collect();
        let value = |name: &str| scores.get(name).map(|score| score.value);
        assert_eq!(value("strapi.latency_vs_graphql.worst"), Some(0.6));
        assert_eq!(value("strapi.latency_over_best_ms.worst"), Some(5.0));
        assert_eq!(value("strapi.bytes_vs_graphql.base.worst"), Some(1.0), "500 of 500 with gzip");
        assert_eq!(value("strapi.bytes_vs_graphql.code.worst"), None, "there was no such run");
        assert_eq!(value("strapi.latency_vs_workerd.worst"), None);
    }

    #[test]
    fn distances_of_a_variant_share_one_row() {
        let mut figures = StrapiFigures::default();
        for (round_trip_ms, ms) in [(35, 40.0), (93, 100.04)] {
            figures.add(
                WorkflowCell { workflow: PaperWorkflow::Write, size: 2, round_trip_ms },
                BASE,
                &run(ms, 300, 0),
            );
        }
        let rows = figures.rows();
        let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
        assert_eq!((row.way.as_str(), row.bytes_up, row.bytes_down), ("orfa.base.c", 100.0, 300.0));
        assert_eq!(row.ms, BTreeMap::from([("035".to_owned(), 40.0), ("093".to_owned(), 100.0)]));
    }
}
