//! Charts as SVG: line charts here, bar charts in `bars.rs`.

mod bars;

use std::fmt::Write;

pub use bars::{BarChart, BarScale};

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const COLOURS: [&str; 4] = ["#0969da", "#bf3989", "#1a7f37", "#bc4c00"];
const GREY: &str = "#8c959f";
const STYLE: &str = "text{font:11px sans-serif;fill:#57606a}.t{font-weight:bold;fill:#24292f}\
    .m{text-anchor:middle}.n{font-size:9px}.a{stroke:#8c959f;fill:none}.l{fill:none;stroke-width:1.8}";

/// A line chart.
#[derive(Debug)]
pub struct LineChart {
    /// The title above the chart.
    pub title: String,
    /// The horizontal axis.
    pub x: HorizontalAxis,
    /// The unit of the vertical axis.
    pub y: &'static str,
    /// The lines.
    pub lines: Vec<ChartLine>,
}

/// The horizontal axis.
#[derive(Debug)]
pub struct HorizontalAxis {
    /// The unit.
    pub name: &'static str,
    /// The positions of the marks; `None` for round numbers.
    pub marks: Option<Vec<f64>>,
}

/// A line through points.
#[derive(Debug)]
pub struct ChartLine {
    /// The text in the legend.
    pub name: String,
    /// The points from left to right.
    pub points: Vec<(f64, f64)>,
    /// Whether the line is a theoretical maximum of the machine and not a measurement.
    pub is_ceiling: bool,
}

/// Draws charts side by side as an SVG file.
#[must_use]
pub fn draw(charts: &[LineChart]) -> String {
    let mut text = String::new();
    for (place, chart) in charts.iter().enumerate() {
        let _ = writeln!(text, "<g transform=\"translate({},0)\">", WIDTH * place as f64);
        chart.draw(&mut text);
        text += "</g>\n";
    }
    svg_file(WIDTH * charts.len() as f64, HEIGHT, &text)
}

/// Wraps a drawing in an SVG file of this size.
fn svg_file(width: f64, height: f64, drawn: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\"><style>{STYLE}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{drawn}</svg>\n"
    )
}

impl LineChart {
    fn draw(&self, text: &mut String) {
        let points = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let across = ChartScale::fit(points().map(|(x, _)| x).fold(0.0, f64::max), LEFT, WIDTH - RIGHT);
        let up = ChartScale::fit(points().map(|(_, y)| y).fold(0.0, f64::max), HEIGHT - BOTTOM, TOP);
        let _ = writeln!(text, "<text class=\"t\" x=\"{LEFT}\" y=\"16\">{}</text>", self.title);
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let _ = writeln!(text, "<path class=\"a\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>");
        for mark in self.x.marks.clone().unwrap_or_else(|| across.marks()) {
            let at = across.position(mark);
            let _ = writeln!(
                text,
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{mark}</text>",
                bottom + 15.0
            );
        }
        for mark in up.marks() {
            let at = up.position(mark) + 4.0;
            let _ =
                writeln!(text, "<text x=\"{}\" y=\"{at:.1}\" text-anchor=\"end\">{mark}</text>", LEFT - 6.0);
        }
        let (middle, below) = (f64::midpoint(LEFT, right), HEIGHT - 10.0);
        let _ = writeln!(
            text,
            "<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{}</text>",
            self.x.name
        );
        let _ = writeln!(text, "<text x=\"4\" y=\"{}\">{}</text>", TOP - 6.0, self.y);
        for (place, line) in self.lines.iter().enumerate() {
            let (colour, dashes) = match line.is_ceiling {
                true => (GREY, " stroke-dasharray=\"5 4\""),
                false => (COLOURS[place % COLOURS.len()], ""),
            };
            let path: Vec<String> = line
                .points
                .iter()
                .map(|(x, y)| format!("{:.1} {:.1}", across.position(*x), up.position(*y)))
                .collect();
            let _ =
                writeln!(text, "<path class=\"l\" stroke=\"{colour}\"{dashes} d=\"M{}\"/>", path.join("L"));
            let key = TOP + 13.0 * (place as f64 + 1.0);
            let (name, x) = (&line.name, right - 4.0);
            let _ = writeln!(
                text,
                "<text x=\"{x}\" y=\"{key}\" text-anchor=\"end\" style=\"fill:{colour}\">{name}</text>"
            );
        }
    }
}

/// A mapping from figures to positions, starting at 0.
struct ChartScale {
    end: f64,
    step: f64,
    from: f64,
    to: f64,
}

impl ChartScale {
    /// Creates a scale that ends at a round number of at least the largest figure.
    fn fit(largest: f64, from: f64, to: f64) -> Self {
        let largest = largest.max(f64::MIN_POSITIVE);
        let power = 10_f64.powf((largest / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = step.into_iter().find(|step| step * 5.0 >= largest).unwrap_or(largest);
        Self { end: (largest / step).ceil() * step, step, from, to }
    }

    fn position(&self, figure: f64) -> f64 {
        self.from + (self.to - self.from) * figure / self.end
    }

    fn marks(&self) -> Vec<f64> {
        let count = (self.end / self.step).round() as u32;
        // Repeated addition of tenths would give 0.30000000000000004.
        (0..=count).map(|mark| (f64::from(mark) * self.step * 1e6).round() / 1e6).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_a_round_number_above_all_figures() {
        for (largest, end) in [(8.0, 8.0), (4.3, 5.0), (21.0, 25.0), (7_421.0, 8_000.0), (0.31, 0.4)] {
            let scale = ChartScale::fit(largest, 0.0, 100.0);
            assert_eq!(scale.marks().last(), Some(&end), "{largest}");
            assert!((scale.position(end) - 100.0).abs() < 1e-9);
        }
    }

    #[test]
    fn draws_charts_side_by_side() {
        let chart = || LineChart {
            title: "A title".into(),
            x: HorizontalAxis { name: "workers", marks: Some(vec![1.0, 2.0]) },
            y: "pages/s",
            lines: vec![ChartLine {
                name: "a line".into(),
                points: vec![(1.0, 10.0), (2.0, 20.0)],
                is_ceiling: false,
            }],
        };
        let drawn = draw(&[chart(), chart()]);
        assert_eq!(drawn.matches("a line</text>").count(), 2);
        assert!(drawn.contains("viewBox=\"0 0 840 260\"") && drawn.contains("d=\"M"), "{drawn}");
    }
}
