//! A bar chart with a logarithmic scale, as SVG by hand.

use std::fmt::Write as _;

use super::target::Promise;

const WIDTH: f64 = 960.0;
const LABEL_WIDTH: f64 = 350.0;
const RIGHT: f64 = 80.0;
const BAR: f64 = 18.0;
const GAP: f64 = 6.0;
const TOP: f64 = 64.0;
const GROUP_HEAD: f64 = 30.0;

/// One bar of a chart.
pub struct Bar {
    /// Text left of the bar.
    pub label: String,
    /// Value that the bar's length shows; values below one have no length.
    pub value: f64,
    /// Whether the bar is of this project.
    pub is_ours: bool,
    /// Promise of the system, which decides the colour.
    pub promise: Promise,
}

/// Bars under one title.
pub struct Group {
    /// Title above the bars.
    pub title: String,
    /// Bars, longest first.
    pub bars: Vec<Bar>,
}

/// Powers of ten that enclose all values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    least: i32,
    most: i32,
}

impl Axis {
    fn of(groups: &[Group]) -> Axis {
        let values = || groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value).filter(|value| *value >= 1.0);
        let least = values().fold(f64::INFINITY, f64::min).log10().floor();
        let most = values().fold(0.0, f64::max).log10().ceil();
        if least.is_finite() {
            Axis { least: least as i32, most: (most as i32).max(least as i32 + 1) }
        } else {
            Axis { least: 0, most: 1 }
        }
    }

    /// Length of a bar with this value, in the units of the picture.
    fn length(self, value: f64) -> f64 {
        let room = WIDTH - LABEL_WIDTH - RIGHT;
        let part = (value.max(1.0).log10() - f64::from(self.least)) / f64::from(self.most - self.least);
        part.clamp(0.0, 1.0) * room
    }
}

/// The whole chart as SVG.
pub fn svg(title: &str, groups: &[Group]) -> String {
    let axis = Axis::of(groups);
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    let bottom = TOP + groups.len() as f64 * GROUP_HEAD + bars as f64 * (BAR + GAP);
    let height = bottom + 34.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"16\" font-weight=\"bold\" fill=\"#222222\">{}</text>\n",
        escaped(title)
    );
    legend(&mut text);
    scale(&mut text, axis, bottom);
    let mut y = TOP;
    for group in groups {
        let head = y + GROUP_HEAD - 10.0;
        let _ = writeln!(
            text,
            "<text x=\"12\" y=\"{head}\" font-weight=\"bold\" fill=\"#222222\">{}</text>",
            escaped(&group.title)
        );
        y += GROUP_HEAD;
        let mut bars: Vec<&Bar> = group.bars.iter().collect();
        bars.sort_by(|a, b| b.value.total_cmp(&a.value));
        for bar in bars {
            one(&mut text, bar, axis, y);
            y += BAR + GAP;
        }
    }
    text.push_str("</svg>\n");
    text
}

fn one(text: &mut String, bar: &Bar, axis: Axis, y: f64) {
    let (length, baseline) = (axis.length(bar.value), y + BAR - 5.0);
    let weight = if bar.is_ours { "bold" } else { "normal" };
    let colour = colour(bar.promise, bar.is_ours);
    let end = LABEL_WIDTH + length + 6.0;
    let _ = writeln!(
        text,
        "<text x=\"{x}\" y=\"{baseline}\" text-anchor=\"end\" font-weight=\"{weight}\" fill=\"#222222\">{label}</text>\n\
         <rect x=\"{LABEL_WIDTH}\" y=\"{y}\" width=\"{length:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\n\
         <text x=\"{end:.1}\" y=\"{baseline}\" font-weight=\"{weight}\" fill=\"#222222\">{value}</text>",
        x = LABEL_WIDTH - 8.0,
        label = escaped(&bar.label),
        value = thousands(bar.value),
    );
}

fn scale(text: &mut String, axis: Axis, bottom: f64) {
    for power in axis.least..=axis.most {
        let x = LABEL_WIDTH + axis.length(10_f64.powi(power));
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#666666\">{label}</text>",
            y = bottom + 18.0,
            label = thousands(10_f64.powi(power)),
        );
    }
}

fn legend(text: &mut String) {
    let entries = [
        (colour(Promise::Synced, true), "macronode, synced"),
        (colour(Promise::Ram, true), "macronode, memory"),
        (colour(Promise::Synced, false), "peer, synced"),
        (colour(Promise::Written, false), "peer, not synced"),
        (colour(Promise::Ceiling, false), "ceiling"),
    ];
    for (position, (colour, words)) in entries.into_iter().enumerate() {
        let x = 12.0 + position as f64 * 150.0;
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"38\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n\
             <text x=\"{}\" y=\"48\" fill=\"#444444\">{words}</text>",
            x + 18.0
        );
    }
}

fn colour(promise: Promise, is_ours: bool) -> &'static str {
    match (promise, is_ours) {
        (Promise::Synced | Promise::Written, true) => "#0b6e4f",
        (Promise::Ram, true) => "#8fd0b5",
        (Promise::Synced, false) => "#3d5a80",
        (Promise::Written | Promise::Ram, false) => "#a9bcd6",
        (Promise::Ceiling | Promise::Unknown, _) => "#cccccc",
    }
}

/// A number with commas: 12345 as `12,345`.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(values: &[f64]) -> Group {
        let bar = |&value: &f64| Bar { label: format!("v<{value}>"), value, is_ours: false, promise: Promise::Synced };
        Group { title: "a & b".to_owned(), bars: values.iter().map(bar).collect() }
    }

    #[test]
    fn the_axis_encloses_all_values_in_powers_of_ten() {
        for (values, least, most) in [
            (&[630.0, 41_000.0][..], 2, 5),
            (&[100.0], 2, 3),
            (&[0.0, 5.0], 0, 1),
            (&[], 0, 1),
            (&[1_000.0, 1_000_000.0], 3, 6),
        ] {
            assert_eq!(Axis::of(&[group(values)]), Axis { least, most }, "{values:?}");
        }
    }

    #[test]
    fn lengths_grow_with_the_logarithm() {
        let axis = Axis { least: 2, most: 4 };
        let room = WIDTH - LABEL_WIDTH - RIGHT;
        for (value, part) in [(100.0, 0.0), (1_000.0, 0.5), (10_000.0, 1.0), (0.0, 0.0), (1e9, 1.0)] {
            assert!((axis.length(value) - part * room).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn the_picture_is_sorted_closed_and_escaped() {
        let picture = svg("t", &[group(&[10.0, 2_000.0, 300.0])]);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("a &amp; b") && !picture.contains("v<"), "{picture}");
        let at = |value: &str| picture.find(&format!("v&lt;{value}&gt;")).expect("a label");
        assert!(at("2000") < at("300") && at("300") < at("10"));
        assert_eq!(picture.matches("<text").count(), picture.matches("</text>").count());
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        for (value, text) in [(0.0, "0"), (999.4, "999"), (1_000.0, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(thousands(value), text);
        }
    }
}
