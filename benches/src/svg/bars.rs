//! Bars in groups, in panels below each other that share a scale: each bar with its figure above it.

use std::fmt::Write;

use super::{COLOURS, GREY, file};

/// A panel.
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 14.0;
/// Above the highest bar: the panel's title, and the bar's own figure.
const TOP: f64 = 40.0;
const BOTTOM: f64 = 24.0;
const BAR: f64 = 24.0;
/// Between groups.
const GAP: f64 = 20.0;
/// Above all panels, where the key stands.
const KEY: f64 = 22.0;
const KEY_WIDTH: f64 = 100.0;

/// Bars of the same kinds in some panels.
#[derive(Debug)]
pub struct Bars {
    /// What the bars of each group are, from left to right.
    pub kinds: Vec<&'static str>,
    /// What stands above each panel, and its groups.
    pub panels: Vec<(String, Vec<Group>)>,
    /// How high a bar is.
    pub height: Height,
}

/// Its name, and a figure of each kind, where there is one.
type Group = (String, Vec<Option<f64>>);

/// How high a bar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Height {
    /// As its figure.
    Linear,
    /// As the figure's logarithm, where one is many times another: from a tenth of the smallest.
    Logarithmic,
}

impl Bars {
    /// An SVG file.
    #[must_use]
    pub fn draw(&self) -> String {
        let most = self.panels.iter().map(|(_, groups)| groups.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (place, kind) in self.kinds.iter().enumerate() {
            let (x, colour) = (LEFT + KEY_WIDTH * place as f64, colour(place));
            let _ = writeln!(text, "<text x=\"{x}\" y=\"16\" style=\"fill:{colour}\">{kind}</text>");
        }
        let (low, high) = self.range();
        for (place, (title, groups)) in self.panels.iter().enumerate() {
            let y = KEY + HEIGHT * place as f64;
            let _ = writeln!(text, "<g transform=\"translate(0,{y})\">");
            let _ = writeln!(text, "<text class=\"t\" x=\"{LEFT}\" y=\"16\">{title}</text>");
            for (place, (name, figures)) in groups.iter().enumerate() {
                let x = LEFT + self.group_width() * place as f64;
                for (place, figure) in figures.iter().enumerate() {
                    let Some(figure) = figure else { continue };
                    bar(&mut text, place, x, *figure, self.height.part(*figure, low, high));
                }
                let (x, y) = (x + BAR * self.kinds.len() as f64 / 2.0, HEIGHT - 8.0);
                let _ = writeln!(text, "<text class=\"m\" x=\"{x}\" y=\"{y}\">{name}</text>");
            }
            text += "</g>\n";
        }
        let keys = KEY_WIDTH * self.kinds.len() as f64;
        let width = LEFT + keys.max(self.group_width() * most as f64);
        file(width, KEY + HEIGHT * self.panels.len() as f64, &text)
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

impl Height {
    /// Of the highest bar.
    fn part(self, figure: f64, low: f64, high: f64) -> f64 {
        match self {
            Self::Linear => figure / high,
            Self::Logarithmic => {
                let ground = low.max(f64::MIN_POSITIVE).log10() - 1.0;
                (figure.log10() - ground) / (high.log10() - ground)
            }
        }
    }
}

/// A bar of a group that begins here, with its figure above it.
fn bar(text: &mut String, place: usize, group: f64, figure: f64, part: f64) {
    let height = (HEIGHT - TOP - BOTTOM) * part;
    let (x, y) = (group + BAR * place as f64, HEIGHT - BOTTOM - height);
    let (width, middle, above) = (BAR - 2.0, x + BAR / 2.0 - 1.0, y - 3.0);
    let _ = writeln!(
        text,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height:.1}\" fill=\"{}\"/>\n\
         <text class=\"m n\" x=\"{middle:.1}\" y=\"{above:.1}\">{}</text>",
        colour(place),
        short(figure)
    );
}

/// Grey is what the others are compared with.
fn colour(place: usize) -> &'static str {
    place.checked_sub(1).map_or(GREY, |place| COLOURS[place % COLOURS.len()])
}

/// Two or three digits, as many as stand above a bar.
fn short(figure: f64) -> String {
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

    fn bars(height: Height, figures: Vec<Option<f64>>) -> String {
        let groups = vec![("a group".to_owned(), figures)];
        Bars { kinds: vec!["one", "two", "three"], panels: vec![("A panel".to_owned(), groups)], height }
            .draw()
    }

    #[test]
    fn a_bar_is_as_high_as_its_figure_and_a_missing_one_is_none() {
        let drawn = bars(Height::Linear, vec![Some(100.0), None, Some(50.0)]);
        assert_eq!(drawn.matches("<rect x=").count(), 2, "{drawn}");
        assert!(drawn.contains("height=\"126.0\"") && drawn.contains("height=\"63.0\""), "{drawn}");
        assert!(drawn.contains(">100</text>") && drawn.contains(">three</text>"), "{drawn}");
    }

    #[test]
    fn by_logarithm_ten_times_as_much_is_a_step_higher() {
        let drawn = bars(Height::Logarithmic, vec![Some(10.0), Some(100.0), Some(1000.0)]);
        let heights = ["42.0", "84.0", "126.0"].map(|height| format!("height=\"{height}\""));
        assert!(heights.iter().all(|height| drawn.contains(height)), "{drawn}");
    }

    #[test]
    fn what_stands_above_a_bar_is_short() {
        let figures = [0.456, 1.23, 36.4, 854.4, 1_272.0, 430_757.0];
        assert_eq!(figures.map(short), ["0.46", "1.2", "36", "854", "1.3k", "431k"]);
    }
}
