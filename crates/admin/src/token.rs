//! The operator token: kept out of logs, wiped from memory, compared in constant time.

use std::fmt;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Hex digits of a token: 256 random bits.
const DIGITS: usize = 64;

/// Token that allows control of the node.
pub struct OperatorToken(Zeroizing<String>);

/// Why a text is no operator token; never quotes the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an operator token is {DIGITS} hex digits")]
pub struct TokenError;

impl OperatorToken {
    /// Reads a token; white space around it, as at the end of a file, is ignored.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let is_token = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_token.then(|| OperatorToken(Zeroizing::new(text.to_owned()))).ok_or(TokenError)
    }

    /// True if `shown` is this token; takes as long for a near miss as for a far one.
    pub fn matches(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }

    /// The token itself, to be written where its owner finds it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for OperatorToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorToken(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn only_sixty_four_hex_digits_are_a_token() {
        let not_hex = TEXT.replace('f', "g");
        let cases = [(TEXT, true), (&format!("{TEXT}\n"), true), ("", false), (&TEXT[1..], false), (&not_hex, false)];
        for (text, expected) in cases {
            assert_eq!(OperatorToken::parse(text).is_ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_token_matches_itself_alone_and_does_not_show_itself() {
        let token = OperatorToken::parse(TEXT).expect("valid");
        for (shown, expected) in [(TEXT, true), (&TEXT[..63], false), ("", false), (&TEXT.replace('0', "1"), false)] {
            assert_eq!(token.matches(shown), expected, "{shown:?}");
        }
        assert_eq!(token.expose(), TEXT);
        assert!(!format!("{token:?}").contains("0011"));
    }
}
