//! What a ledger says, before it is told on: a ledger that sends our own secret back, or another, must not have it
//! written into logs, seals and answers.

/// What stands in the place of a secret.
pub(crate) const HIDDEN: &str = "[hidden]";
/// Words that a secret follows.
const SCHEMES: [&str; 2] = ["bearer", "basic"];
/// Ends of names that a secret follows behind a colon or an equals sign.
const NAMES: [&str; 9] =
    ["token", "secret", "password", "passwd", "apikey", "api_key", "api-key", "authorization", "cookie"];

/// The words without our own secret, and without what is called one.
pub(crate) fn redacted(words: &str, own: Option<&[u8]>) -> String {
    let own = own.and_then(|own| str::from_utf8(own).ok()).map(str::trim).filter(|own| !own.is_empty());
    let words = own.map_or_else(|| words.to_owned(), |own| words.replace(own, HIDDEN));
    let mut text = String::with_capacity(words.len());
    let mut rest = words.as_str();
    let mut before = Before::Nothing;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(|letter| !is_of_word(letter)).unwrap_or(rest.len()));
        let (between, next) = after.split_at(after.find(is_of_word).unwrap_or(after.len()));
        let is_name = before == Before::Nothing || word.is_empty() || is_scheme(word);
        text.push_str(if is_name { word } else { HIDDEN });
        text.push_str(between);
        before = Before::of(if is_name { word } else { "" }, between);
        rest = next;
    }
    text
}

/// What the next word is, by the one before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Secret,
}

impl Before {
    fn of(word: &str, between: &str) -> Before {
        let lower = word.to_ascii_lowercase();
        let is_assigned = between.contains([':', '=']);
        let is_named = is_assigned && NAMES.iter().any(|name| lower.ends_with(name));
        if is_scheme(word) || is_named { Before::Secret } else { Before::Nothing }
    }
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Letters of tokens and of names; an equals sign stands between a name and its value.
fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || "-._~+/".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_the_rest_is_told() {
        for (words, expected) in [
            ("no such account: alice", "no such account: alice"),
            ("the token is not known", "the token is not known"),
            ("you sent our-own.secret~1", "you sent [hidden]"),
            ("Authorization: Bearer abc.def-1 is old", "Authorization: Bearer [hidden] is old"),
            (
                r#"{"error":"x","token":"s3cr/t+=","account":"bob"}"#,
                r#"{"error":"x","token":"[hidden]=","account":"bob"}"#,
            ),
            ("host=db password=hunter2 user=u", "host=db password=[hidden] user=u"),
            ("Set-Cookie: sid_8", "Set-Cookie: [hidden]"),
            ("basic dXNlcjpwYXNz=", "basic [hidden]="),
            ("ends with token:", "ends with token:"),
            ("", ""),
        ] {
            assert_eq!(redacted(words, Some(b"our-own.secret~1\n")), expected);
        }
    }
}
