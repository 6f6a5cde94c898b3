//! The course of a lookup as lines of text: a bar for everybody who was asked, from the question to its end.

use super::words::{Ask, milliseconds, short};
use crate::commands::table::table;
use crate::commands::text::one_line;

/// Characters of the time line.
const WIDTH: usize = 40;
/// Asks that are drawn; the first are the ones that decide.
const DRAWN_MAX: usize = 64;

/// Draws the lookup behind an answer: where it came from, the milliseconds it took, and everybody who was asked.
pub fn draw(source: &str, took_ms: f64, course: &[Ask]) -> String {
    if course.is_empty() {
        return match source {
            "dht" => "  nobody was asked: the node knows nobody who could be\n".to_owned(),
            _ => format!("  nobody was asked: the answer was in the {}\n", one_line(source)),
        };
    }
    let asks = &course[..course.len().min(DRAWN_MAX)];
    let end = asks.iter().filter_map(|ask| ask.ended_ms).fold(took_ms, f64::max).max(0.001);
    let axis = axis(end);
    let mut rows = vec![vec!["target".to_owned(), axis, "ms".to_owned(), "end".to_owned(), "breaker".to_owned()]];
    rows.extend(asks.iter().map(|ask| vec![short(&ask.target), bar(ask, end), times(ask), how(ask), breaker(ask)]));
    let mut text = table(2, &rows);
    if asks.len() < course.len() {
        text += &format!("  and {} more\n", course.len() - asks.len());
    }
    text
}

/// The line above the bars, from nothing to the end.
fn axis(end: f64) -> String {
    let (from, to) = ("0", milliseconds(end));
    let line = WIDTH.saturating_sub(from.len() + to.chars().count() + 2);
    format!("{from} {} {to}", "─".repeat(line))
}

/// The time of one question on the time line; at least one character, however short it was.
fn bar(ask: &Ask, end: f64) -> String {
    let Some(ended) = ask.ended_ms else { return String::new() };
    let place = |time: f64| ((time / end).clamp(0.0, 1.0) * WIDTH as f64).round() as usize;
    let from = place(ask.asked_ms).min(WIDTH - 1);
    let to = place(ended).max(from + 1);
    let filled = match ask.end.as_str() {
        "won" => "█",
        "cancelled" => "░",
        "failed" | "timed_out" => "╳",
        _ => "▒",
    };
    " ".repeat(from) + &filled.repeat(to - from)
}

fn times(ask: &Ask) -> String {
    match ask.ended_ms {
        Some(ended) => format!("{:.1}-{ended:.1}", ask.asked_ms),
        None => "-".to_owned(),
    }
}

fn how(ask: &Ask) -> String {
    let hedge = if ask.hedge { "hedge, " } else { "" };
    let end = match ask.end.as_str() {
        "won" => "winner",
        "empty" => "answered without it",
        "timed_out" => "no answer in time",
        "skipped" => "not asked",
        other => other,
    };
    format!("{hedge}{end}")
}

fn breaker(ask: &Ask) -> String {
    if ask.breaker.is_empty() { "-".to_owned() } else { ask.breaker.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &str, hedge: bool, from: f64, to: Option<f64>, end: &str, breaker: &str) -> Ask {
        let (target, end, breaker) = (target.to_owned(), end.to_owned(), breaker.to_owned());
        Ask { target, class: "peer".to_owned(), hedge, asked_ms: from, ended_ms: to, end, breaker }
    }

    #[test]
    fn every_question_has_its_bar() {
        let course = vec![
            ask("one", false, 0.0, Some(200.0), "cancelled", "closed"),
            ask("two", false, 0.0, Some(50.0), "failed", "closed"),
            ask("three", true, 150.0, Some(200.0), "won", "half_open"),
            ask("four", false, 0.0, None, "skipped", "open"),
        ];
        let drawn = draw("dht", 200.0, &course);
        let line = format!("0 {} 200 ms", "─".repeat(31));
        let expected = format!(
            "  target  {line}  ms           end            breaker\n\
             \x20 one     {}  0.0-200.0    cancelled      closed\n\
             \x20 two     {:<40}  0.0-50.0     failed         closed\n\
             \x20 three   {:<40}  150.0-200.0  hedge, winner  half_open\n\
             \x20 four    {:<40}  -            not asked      open\n",
            "░".repeat(40),
            "╳".repeat(10),
            " ".repeat(30) + &"█".repeat(10),
            "",
        );
        assert_eq!(drawn, expected);
    }

    #[test]
    fn odd_times_stay_on_the_line() {
        for (from, to) in [(0.0, 0.0), (5.0, 1.0), (1e9, 2e9), (-3.0, f64::NAN)] {
            let text = bar(&ask("x", false, from, Some(to), "won", ""), 1.0);
            assert!((1..=WIDTH + 1).contains(&text.chars().count()), "{from} {to}: {text:?}");
        }
        assert_eq!(draw("cache", 0.1, &[]), "  nobody was asked: the answer was in the cache\n");
        assert_eq!(draw("dht", 0.1, &[]), "  nobody was asked: the node knows nobody who could be\n");
    }

    #[test]
    fn a_long_course_is_cut() {
        let course = vec![ask("x", false, 0.0, Some(1.0), "empty", "closed"); DRAWN_MAX + 3];
        assert!(draw("dht", 1.0, &course).ends_with("  and 3 more\n"));
    }
}
