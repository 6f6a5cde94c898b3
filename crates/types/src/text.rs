//! Text of others, as it is shown.

/// Text without line breaks and other characters that command a terminal or break a line of the log: these are written
/// out, as `\n` is here.
pub fn one_line(text: &str) -> String {
    escaped(text, |_| false)
}

/// The same, but for control characters that do no harm where the text is shown.
pub fn escaped(text: &str, is_harmless: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && !is_harmless(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_is_one_line_and_commands_nothing() {
        let said = "busy\r\n2026-01-01 ERROR all is lost \u{1b}[2J\u{9b}31m\u{7f}";
        assert_eq!(one_line(said), "busy\\r\\n2026-01-01 ERROR all is lost \\u{1b}[2J\\u{9b}31m\\u{7f}");
        assert_eq!(one_line("Grüße, 平安"), "Grüße, 平安");
    }
}
