//! Bar charts: groups of bars with their figures above them, in panels that share a scale.

use std::fmt::Write;

use super::{COLOURS, GREY, svg_file};

/// The height of a panel.
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 14.0;
/// The space above the highest bar, for the panel's title and the bar's figure.
const TOP: f64 = 40.0;
const BOTTOM: f64 = 24.0;
const BAR: f64 = 24.0;
/// The gap between groups.
const GAP: f64 = 20.0;
/// The space above all panels, for the legend.
const LEGEND_HEIGHT: f64 = 22.0;
const LEGEND_WIDTH: f64 = 100.0;

/// Bars of the same kinds in several panels.
#[derive(Debug)]
pub struct BarChart {
    /// The names of the bars in each group, from left to right.
    pub kinds: Vec<&'static str>,
    /// The title of each panel, with its groups.
    pub panels: Vec<(String, Vec<BarGroup>)>,
    /// The scale of the bars.
    pub height: BarScale,
}

/// The name of a group, and an optional figure of each kind.
type BarGroup = (String, Vec<Option<f64>>);

/// The scale of bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarScale {
    /// Proportional to the figure.
    Linear,
    /// Proportional to the logarithm of the figure, starting at a tenth of the smallest one.
    Logarithmic,
}

impl BarChart {
    /// Draws an SVG file.
    #[must_use]
    pub fn draw(&self) -> String {
        let most = self.panels.iter().map(|(_, groups)| groups.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (place, kind) in self.kinds.iter().enumerate() {
            let (x, colour) = (LEFT + LEGEND_WIDTH * place as f64, bar_colour(place));
            let _ = writeln!(text, "<text x=\"{x}\" y=\"16\" style=\"fill:{colour}\">{kind}</text>");
        }
        let (low, high) = self.range();
        for (place, (title, groups)) in self.panels.iter().enumerate() {
            let y = LEGEND_HEIGHT + HEIGHT * place as f64;
            let _ = writeln!(text, "<g transform=\"translate(0,{y})\">");
            let _ = writeln!(text, "<text class=\"t\" x=\"{LEFT}\" y=\"16\">{title}</text>");
            for (place, (name, figures)) in groups.iter().enumerate() {
                let x = LEFT + self.group_width() * place as f64;
                for (place, figure) in figures.iter().enumerate() {
                    let Some(figure) = figure else { continue };
                    draw_bar(&mut text, place, x, *figure, self.height.relative_height(*figure, low, high));
                }
                let (x, y) = (x + BAR * self.kinds.len() as f64 / 2.0, HEIGHT - 8.0);
                let _ = writeln!(text, "<text class=\"m\" x=\"{x}\" y=\"{y}\">{name}</text>");
            }
            text += "</g>\n";
        }
        let keys = LEGEND_WIDTH * self.kinds.len() as f64;
        let width = LEFT + keys.max(self.group_width() * most as f64);
        svg_file(width, LEGEND_HEIGHT + HEIGHT * self.panels.len() as f64, &text)
    }

    fn group_width(&self) -> f64 {
        BAR * self.kinds.len() as f64 + GAP
    }

    /// The smallest and the largest figure.
    fn range(&self) -> (f64, f64) {
        let figures = self.panels.iter().flat_map(|(_, groups)| groups).flat_map(|(_, figures)| figures);
        let figures = figures.flatten().copied();
        figures.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), figure| (low.min(figure), high.max(figure)))
    }
}

impl BarScale {
    /// The height relative to the highest bar.
    fn relative_height(self, figure: f64, low: f64, high: f64) -> f64 {
        match self {
            Self::Linear => figure / high,
            Self::Logarithmic => {
                let ground = low.max(f64::MIN_POSITIVE).log10() - 1.0;
                (figure.log10() - ground) / (high.log10() - ground)
            }
        }
    }
}

/// Draws a bar of the group that starts at this position, with its figure above it.
fn draw_bar(text: &mut String, place: usize, group: f64, figure: f64, part: f64) {
    let height = (HEIGHT - TOP - BOTTOM) * part;
    let (x, y) = (group + BAR * place as f64, HEIGHT - BOTTOM - height);
    let (width, middle, above) = (BAR - 2.0, x + BAR / 2.0 - 1.0, y - 3.0);
    let _ = writeln!(
        text,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height:.1}\" fill=\"{}\"/>\n\
         <text class=\"m n\" x=\"{middle:.1}\" y=\"{above:.1}\">{}</text>",
        bar_colour(place),
        format_short(figure)
    );
}

/// Grey for the first kind, the baseline of the comparison.
fn bar_colour(place: usize) -> &'static str {
    place.checked_sub(1).map_or(GREY, |place| COLOURS[place % COLOURS.len()])
}

/// Formats a figure with two or three digits, to fit above a bar.
fn format_short(figure: f64) -> String {
    match figure {
        _ if figure >= 9_950.0 => format!("{:.0}k", figure / 1e3),
        _ if figure >= 995.0 => format!("{:.1}k", figure / 1e3),
        _ if figure >= 9.95 => format!("{figure:.0}"),
        _ if figure >= 0.995 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(height: BarScale, figures: Vec<Option<f64>>) -> String {
        let groups = vec![("a group".to_owned(), figures)];
        BarChart { kinds: vec!["one", "two", "three"], panels: vec![("A panel".to_owned(), groups)], height }
            .draw()
    }

    #[test]
    fn bar_heights_match_figures_and_missing_ones_are_skipped() {
        let drawn = bars(BarScale::Linear, vec![Some(100.0), None, Some(50.0)]);
        assert_eq!(drawn.matches("<rect x=").count(), 2, "{drawn}");
        assert!(drawn.contains("height=\"126.0\"") && drawn.contains("height=\"63.0\""), "{drawn}");
        assert!(drawn.contains(">100</text>") && drawn.contains(">three</text>"), "{drawn}");
    }

    #[test]
    fn logarithmic_bars_grow_one_step_per_factor_of_ten() {
        let drawn = bars(BarScale::Logarithmic, vec![Some(10.0), Some(100.0), Some(1000.0)]);
        let heights = ["42.0", "84.0", "126.0"].map(|height| format!("height=\"{height}\""));
        assert!(heights.iter().all(|height| drawn.contains(height)), "{drawn}");
    }

    #[test]
    fn figures_above_bars_are_short() {
        let figures = [0.456, 1.23, 36.4, 854.4, 1_272.0, 430_757.0];
        assert_eq!(figures.map(format_short), ["0.46", "1.2", "36", "854", "1.3k", "431k"]);
    }
}
