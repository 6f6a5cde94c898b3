//! The distribution of one asset as a picture: a small SVG without script, to be looked at and not to be hashed.

use std::fmt::Write as _;

use ron_calculus::{AssetAllocation, Units};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const PANEL: f64 = 300.0;
const TOP: f64 = 80.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 560.0;
/// Points of a curve: more cannot be seen.
const POINTS: usize = 240;

/// An SVG with two panels: amounts by rank (both axes logarithmic), and the share of the pool that the smallest have.
pub fn svg(epoch: &str, allocation: &AssetAllocation) -> String {
    let mut amounts: Vec<u128> = allocation.amounts.iter().copied().filter(|amount| *amount > 0).collect();
    amounts.sort_unstable();
    let (epoch, asset) = (escaped(epoch), escaped(&allocation.asset));
    let mut text = String::new();
    let style = "text{font:13px sans-serif;fill:#222}.t{font-size:17px}.a{stroke:#222;fill:none}\
                 .g{stroke:#ddd;fill:none}.c{stroke:#0a66c2;fill:none;stroke-width:2}.e{text-anchor:end}";
    let _ = write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <title>Payouts of {asset} in {epoch}</title>\n<style>{style}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text class=\"t\" x=\"20\" y=\"28\">{epoch}: {paid} of {pool} {asset} to {payees} payees</text>\n",
        paid = Units(allocation.paid),
        pool = Units(allocation.pool),
        payees = amounts.len(),
    );
    if amounts.is_empty() {
        text.push_str("<text x=\"20\" y=\"60\">nobody is paid</text>\n");
    } else {
        let _ = writeln!(text, "<text x=\"20\" y=\"50\">{}</text>", summary(&amounts));
        rank_panel(&mut text, &amounts);
        share_panel(&mut text, &amounts);
    }
    text.push_str("</svg>\n");
    text
}

fn summary(sorted: &[u128]) -> String {
    let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
    let middle = sorted[sorted.len() / 2];
    let top = sorted.len().div_ceil(100);
    let share = share_of(&sorted[sorted.len() - top..], sorted);
    format!("smallest {least}, median {middle}, largest {most}; the top 1 % ({top}) get {:.1} %", 100.0 * share)
}

/// Share of some amounts in all. A picture may round.
fn share_of(some: &[u128], all: &[u128]) -> f64 {
    let sum = |amounts: &[u128]| amounts.iter().map(|amount| *amount as f64).sum::<f64>();
    sum(some) / sum(all)
}

/// Amounts from the largest on, by rank.
fn rank_panel(text: &mut String, sorted: &[u128]) {
    let ranks = (sorted.len() as f64).log10().max(1.0);
    let (low, high) = decades(sorted[0], sorted[sorted.len() - 1]);
    frame(text, LEFT, "rank of the payee", "amount");
    for decade in 0..=(ranks.floor() as u32) {
        let x = LEFT + PANEL * f64::from(decade) / ranks;
        grid(text, (x, TOP), (x, TOP + PANEL), (x, TOP + PANEL + 16.0), &format!("1e{decade}"), false);
    }
    let every = ((high - low) / 8.0).ceil().max(1.0) as u32;
    for decade in (low as u32..=high as u32).step_by(every as usize) {
        let y = TOP + PANEL * (1.0 - (f64::from(decade) - low) / (high - low));
        grid(text, (LEFT, y), (LEFT + PANEL, y), (LEFT - 6.0, y + 4.0), &format!("1e{decade}"), true);
    }
    let count = sorted.len();
    let points = (0..=POINTS).map(|step| {
        let rank = 10_f64.powf(ranks * step as f64 / POINTS as f64).min(count as f64);
        let amount = sorted[count - (rank as usize).clamp(1, count)];
        let height = ((amount as f64).log10() - low) / (high - low);
        (LEFT + PANEL * rank.log10() / ranks, TOP + PANEL * (1.0 - height))
    });
    curve(text, points);
}

/// Powers of ten below the smallest and above the largest amount.
fn decades(least: u128, most: u128) -> (f64, f64) {
    let (low, high) = (f64::from(least.ilog10()), f64::from(most.ilog10() + 1));
    (low, high)
}

/// Share of the pool that the smallest payees have together (the curve of Lorenz).
fn share_panel(text: &mut String, sorted: &[u128]) {
    frame(text, RIGHT, "share of the payees, smallest first", "share of the units");
    for percent in [0_u32, 25, 50, 75, 100] {
        let part = f64::from(percent) / 100.0;
        let (x, y) = (RIGHT + PANEL * part, TOP + PANEL * (1.0 - part));
        grid(text, (x, TOP), (x, TOP + PANEL), (x, TOP + PANEL + 16.0), &format!("{percent} %"), false);
        grid(text, (RIGHT, y), (RIGHT + PANEL, y), (RIGHT - 6.0, y + 4.0), &format!("{percent} %"), true);
    }
    let total: f64 = sorted.iter().map(|amount| *amount as f64).sum();
    let step = sorted.len().div_ceil(POINTS);
    let mut sum = 0.0;
    let mut points = vec![(RIGHT, TOP + PANEL)];
    for (index, piece) in sorted.chunks(step).enumerate() {
        sum += piece.iter().map(|amount| *amount as f64).sum::<f64>();
        let part = ((index + 1) * step).min(sorted.len()) as f64 / sorted.len() as f64;
        points.push((RIGHT + PANEL * part, TOP + PANEL * (1.0 - sum / total)));
    }
    curve(text, points.into_iter());
    let (end_x, end_y) = (RIGHT + PANEL, TOP + PANEL);
    let _ = writeln!(text, "<path class=\"g\" d=\"M{RIGHT} {end_y}L{end_x} {TOP}\"/>");
}

fn frame(text: &mut String, left: f64, below: &str, above: &str) {
    let (label_x, label_y) = (left + PANEL / 2.0, TOP + PANEL + 34.0);
    let above_y = TOP - 8.0;
    let _ = writeln!(
        text,
        "<rect class=\"a\" x=\"{left}\" y=\"{TOP}\" width=\"{PANEL}\" height=\"{PANEL}\"/>\
         <text x=\"{label_x}\" y=\"{label_y}\" text-anchor=\"middle\">{below}</text>\
         <text x=\"{left}\" y=\"{above_y}\">{above}</text>"
    );
}

fn grid(text: &mut String, from: (f64, f64), to: (f64, f64), label_at: (f64, f64), label: &str, is_left: bool) {
    let anchor = if is_left { "end" } else { "middle" };
    let _ = writeln!(
        text,
        "<path class=\"g\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>",
        from.0, from.1, to.0, to.1, label_at.0, label_at.1
    );
}

fn curve(text: &mut String, points: impl Iterator<Item = (f64, f64)>) {
    text.push_str("<path class=\"c\" d=\"");
    for (index, (x, y)) in points.enumerate() {
        let _ = write!(text, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
    }
    text.push_str("\"/>\n");
}

/// Text as it may stand between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(amounts: Vec<u128>) -> String {
        let paid = amounts.iter().sum();
        svg("2026-11", &AssetAllocation { asset: "A<B>&".into(), pool: paid, paid, amounts })
    }

    #[test]
    fn a_picture_says_what_it_shows_and_runs_nothing() {
        let text = drawn((1..=1000).map(|rank| 1_000_000_000_000_000_000_000 / rank).collect());
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{text}");
        assert!(text.contains("A&lt;B&gt;&amp; to 1000 payees") && text.contains("the top 1 % (10) get"), "{text}");
        assert!(!text.contains("script") && !text.contains("NaN") && !text.contains("inf"), "{text}");
        assert!(text.len() < 32 << 10, "{}", text.len());
    }

    #[test]
    fn few_payees_are_drawn_too() {
        for amounts in [vec![], vec![0], vec![1], vec![7, 7], vec![u128::MAX, 0, 1 << 100]] {
            let text = drawn_saturating(amounts.clone());
            assert!(!text.contains("NaN") && !text.contains("inf"), "{amounts:?}: {text}");
        }
    }

    fn drawn_saturating(amounts: Vec<u128>) -> String {
        let paid = amounts.iter().fold(0_u128, |sum, amount| sum.saturating_add(*amount));
        svg("e", &AssetAllocation { asset: "RON".into(), pool: paid, paid, amounts })
    }
}
