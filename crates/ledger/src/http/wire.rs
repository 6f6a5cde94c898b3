//! The words of docs/ledger-http.md as JSON.

use crate::model::{Batch, Direction, Outcome, Tally};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Letters of an error's body that are told on.
const DETAIL_LETTERS_MAX: usize = 200;

#[derive(Serialize)]
struct BatchBody<'a> {
    run: String,
    asset: &'a str,
    pot: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<String>,
    entries: Vec<EntryBody<'a>>,
}

#[derive(Serialize)]
struct EntryBody<'a> {
    key: String,
    account: &'a str,
    amount: String,
    direction: &'static str,
}

#[derive(Deserialize)]
struct OutcomesBody {
    outcomes: Vec<OutcomeWord>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeWord {
    Accepted,
    Duplicate,
    Conflict,
}

#[derive(Deserialize)]
struct AboutBody {
    #[serde(default)]
    one_run_per_pot: bool,
}

#[derive(Deserialize)]
struct TallyBody {
    assets: Vec<TallyLine>,
}

#[derive(Deserialize)]
struct TallyLine {
    asset: String,
    count: String,
    paid: String,
    taken_back: String,
}

/// Body of a request; the same bytes for the same batch. What a run corrects is told only to a ledger that asks for it:
/// others may refuse a word that they do not know.
pub(super) fn batch(batch: &Batch, keeps_pots: bool) -> Bytes {
    let entries = batch.entries.iter().map(|entry| EntryBody {
        key: hex(&entry.key),
        account: &entry.account,
        amount: entry.amount.to_string(),
        direction: if entry.direction == Direction::Pay { "pay" } else { "take_back" },
    });
    let follows = batch.follows.as_ref().filter(|_| keeps_pots).map(hex);
    let (run, asset, pot) = (hex(&batch.run), &batch.asset, &batch.pot);
    let body = BatchBody { run, asset, pot, follows, entries: entries.collect() };
    serde_json::to_vec(&body).expect("strings and lists have a JSON").into()
}

/// One outcome for each entry, or why the answer is none.
pub(super) fn outcomes(body: &[u8], entries: usize) -> Result<Vec<Outcome>, String> {
    let OutcomesBody { outcomes } =
        serde_json::from_slice(body).map_err(|error| format!("its answer is not understood: {error}"))?;
    if outcomes.len() != entries {
        return Err(format!("it answered {} outcomes for {entries} entries", outcomes.len()));
    }
    let meaning = |word| match word {
        OutcomeWord::Accepted => Outcome::Accepted,
        OutcomeWord::Duplicate => Outcome::Duplicate,
        OutcomeWord::Conflict => Outcome::Conflict,
    };
    Ok(outcomes.into_iter().map(meaning).collect())
}

/// Whether the ledger says of itself that it keeps the rule of pots. Any other page than this answer says nothing.
pub(super) fn keeps_pots(body: &[u8]) -> bool {
    serde_json::from_slice::<AboutBody>(body).is_ok_and(|about| about.one_run_per_pot)
}

pub(super) fn tallies(body: &[u8]) -> Result<Vec<Tally>, String> {
    let strange = |what: String| format!("its answer is not understood: {what}");
    let TallyBody { assets } = serde_json::from_slice(body).map_err(|error| strange(error.to_string()))?;
    let mut tallies: Vec<Tally> = Vec::with_capacity(assets.len());
    for TallyLine { asset, count, paid, taken_back } in assets {
        let numbers = number(&count).and_then(|count| u64::try_from(count).ok()).zip(number(&paid));
        let numbers = numbers.zip(number(&taken_back));
        let ((count, paid), taken_back) = numbers.ok_or_else(|| strange(format!("a number of {asset}")))?;
        tallies.push(Tally { asset, count, paid, taken_back });
    }
    tallies.sort_by(|left, right| left.asset.cmp(&right.asset));
    let has_twins = tallies.windows(2).any(|pair| pair[0].asset == pair[1].asset);
    if has_twins { Err(strange("an asset is there twice".to_owned())) } else { Ok(tallies) }
}

/// Decimal digits and nothing else: no sign, no blank.
fn number(digits: &str) -> Option<u128> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// What an error's body says, short and on one line.
pub(super) fn detail(text: &str) -> String {
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let short: String = line.trim().chars().take(DETAIL_LETTERS_MAX).collect();
    if short.is_empty() { short } else { format!(": {short}") }
}

pub(super) fn hex(bytes: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*bytes).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Entry;

    #[test]
    fn a_batch_is_written_as_the_page_says() {
        let entry = Entry { key: [0xab; 32], account: "ålice".into(), amount: u128::MAX, direction: Direction::Pay };
        let (asset, pot, follows) = ("RON".into(), "epoch/1".into(), Some([2; 32]));
        let sent = Batch { run: [1; 32], asset, pot, follows, entries: vec![entry] };
        let value = |keeps_pots| serde_json::from_slice::<serde_json::Value>(&batch(&sent, keeps_pots)).unwrap();
        let mut expected = serde_json::json!({
            "run": "01".repeat(32), "asset": "RON", "pot": "epoch/1",
            "entries": [
                { "key": "ab".repeat(32), "account": "ålice", "amount": u128::MAX.to_string(), "direction": "pay" },
            ],
        });
        assert_eq!(value(false), expected);
        expected["follows"] = "02".repeat(32).into();
        assert_eq!(value(true), expected);
        for (body, keeps) in [(r#"{"one_run_per_pot":true,"name":"x"}"#, true), ("{}", false), ("<html>", false)] {
            assert_eq!(keeps_pots(body.as_bytes()), keeps, "{body}");
        }
    }

    #[test]
    fn an_answer_that_does_not_fit_the_question_is_none() {
        assert_eq!(
            outcomes(br#"{"outcomes":["accepted","duplicate","conflict"]}"#, 3),
            Ok(vec![Outcome::Accepted, Outcome::Duplicate, Outcome::Conflict])
        );
        let strange: [&[u8]; 6] =
            [b"", b"null", b"{}", br#"{"outcomes":["accepted"]}"#, br#"{"outcomes":["maybe","accepted"]}"#, b"<html>"];
        for body in strange {
            assert!(outcomes(body, 2).is_err());
        }
    }

    #[test]
    fn sums_are_digits() {
        let line = |count: &str, paid: &str| {
            let body = serde_json::json!({"assets": [{"asset": "A", "count": count, "paid": paid, "taken_back": "0"}]});
            tallies(body.to_string().as_bytes())
        };
        let tally = Tally { asset: "A".into(), count: 2, paid: u128::MAX, taken_back: 0 };
        assert_eq!(line("2", &u128::MAX.to_string()), Ok(vec![tally]));
        for (count, paid) in
            [("-1", "1"), ("1", "+1"), ("1", " 1"), ("1", "1.0"), ("1", ""), ("18446744073709551616", "1")]
        {
            assert!(line(count, paid).is_err(), "{count} {paid}");
        }
        assert_eq!(tallies(br#"{"assets":[]}"#), Ok(vec![]));
        let twins = br#"{"assets":[{"asset":"A","count":"1","paid":"1","taken_back":"0"},{"asset":"A","count":"1","paid":"1","taken_back":"0"}]}"#;
        assert!(tallies(twins).is_err());
    }

    #[test]
    fn what_is_told_on_is_one_short_line() {
        assert_eq!(detail(" no\r\nsuch asset\x1b[0m "), ": no  such asset [0m");
        assert_eq!(detail(""), "");
        assert_eq!(detail(&"å".repeat(1000)).chars().count(), DETAIL_LETTERS_MAX + 2);
    }
}
