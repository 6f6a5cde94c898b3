//! Just enough of Rust's lexical grammar to tell code from comments and literals.

/// The text with every comment and the inside of every literal blanked; lines and columns stay where they were.
pub fn code_only(text: &str) -> String {
    let mut masker = Masker { chars: text.chars().collect(), position: 0, masked: String::with_capacity(text.len()) };
    masker.run();
    masker.masked
}

/// Whether `word` stands at byte `start` of `text` with no identifier character on either side.
pub fn is_word_at(text: &str, start: usize, word: &str) -> bool {
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    let end = start + word.len();
    !text[..start].chars().next_back().is_some_and(is_ident) && !text[end..].chars().next().is_some_and(is_ident)
}

/// The line number, from 1, of a byte offset.
pub fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

struct Masker {
    chars: Vec<char>,
    position: usize,
    masked: String,
}

impl Masker {
    fn run(&mut self) {
        while let Some(current) = self.peek(0) {
            match (current, self.peek(1)) {
                ('/', Some('/')) => self.blank_while(|masker| masker.peek(0) != Some('\n')),
                ('/', Some('*')) => self.block_comment(),
                ('r', _) if !self.after_ident() && self.raw_hashes(1).is_some() => self.raw_string(1),
                ('b' | 'c', Some('r')) if !self.after_ident() && self.raw_hashes(2).is_some() => self.raw_string(2),
                ('"', _) => self.quoted('"'),
                ('\'', _) if self.is_char_literal() => self.quoted('\''),
                _ => self.keep(),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.position + ahead).copied()
    }

    fn keep(&mut self) {
        self.masked.extend(self.peek(0));
        self.position += 1;
    }

    /// A blank has the width of what it hides, so that byte offsets agree with the original.
    fn blank(&mut self) {
        match self.peek(0) {
            Some('\n') => self.masked.push('\n'),
            Some(hidden) => self.masked.extend(std::iter::repeat_n(' ', hidden.len_utf8())),
            None => {}
        }
        self.position += 1;
    }

    fn blank_while(&mut self, go_on: impl Fn(&Self) -> bool) {
        while self.peek(0).is_some() && go_on(self) {
            self.blank();
        }
    }

    fn after_ident(&self) -> bool {
        let before = self.position.checked_sub(1).and_then(|index| self.chars.get(index));
        before.is_some_and(|c| c.is_alphanumeric() || *c == '_')
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                (None, _) => return,
                _ => {
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                return;
            }
        }
    }

    /// How many `#` follow a raw string's prefix, if a quote follows them.
    fn raw_hashes(&self, prefix: usize) -> Option<usize> {
        let hashes = (prefix..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        (self.peek(prefix + hashes) == Some('"')).then_some(hashes)
    }

    fn raw_string(&mut self, prefix: usize) {
        let hashes = self.raw_hashes(prefix).unwrap_or(0);
        for _ in 0..=prefix + hashes {
            self.keep();
        }
        let closes =
            |masker: &Self| masker.peek(0) == Some('"') && (1..=hashes).all(|ahead| masker.peek(ahead) == Some('#'));
        self.blank_while(|masker| !closes(masker));
        for _ in 0..=hashes {
            self.keep();
        }
    }

    /// A quote that opens a character, not a lifetime: `'x'` or `'\…'`.
    fn is_char_literal(&self) -> bool {
        self.peek(1) == Some('\\') || (self.peek(2) == Some('\'') && self.peek(1) != Some('\''))
    }

    fn quoted(&mut self, quote: char) {
        self.keep();
        while let Some(current) = self.peek(0) {
            if current == quote {
                return self.keep();
            }
            if current == '\\' {
                self.blank();
            }
            self.blank();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_is_kept() {
        for (text, expected) in [
            ("a // {\nb", "a     \nb"),
            ("a /* { /* } */ { */ b", "a                   b"),
            (r#"f("}\"{") }"#, r#"f("    ") }"#),
            ("f(r#\"a\"{\"#) }", "f(r#\"   \"#) }"),
            ("f(br\"{\\\") }", "f(br\"  \") }"),
            ("g('{', '\\'', b'}') }", "g(' ', '  ', b' ') }"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("var\"x\"", "var\" \""),
            ("\"é\" }", "\"  \" }"),
        ] {
            assert_eq!(code_only(text), expected, "{text}");
            assert_eq!(code_only(text).len(), text.len(), "offsets agree: {text}");
        }
    }

    #[test]
    fn a_word_has_no_identifier_beside_it() {
        assert!(is_word_at("a fn b", 2, "fn"));
        assert!(!is_word_at("a fnb", 2, "fn"));
        assert!(!is_word_at("a_fn b", 2, "fn"));
    }
}
