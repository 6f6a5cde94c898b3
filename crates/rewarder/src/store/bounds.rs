//! What a row may weigh: words and comparisons that come from a ledger are cut to a bound, so that every row fits into
//! a record for as long as it lives, and none keeps others from being written.

use serde_json::{Value, json};

use super::row::{EpochRow, Quarantine, SealRecord};

/// Bytes that a comparison with a ledger takes at most, as JSON.
const RECONCILIATION_BYTES_MAX: usize = 20 << 10;
/// Bytes that the words of one reason take at most, as JSON.
const REASON_BYTES_MAX: usize = 2 << 10;
/// Bytes that a row may grow by after it is sealed: a comparison, a reason, who did what, and numbers.
pub(super) const GROWTH_BYTES_MAX: usize = RECONCILIATION_BYTES_MAX + REASON_BYTES_MAX + (4 << 10);
/// What stands for the end of a text that was cut.
const CUT: char = '…';

impl SealRecord {
    /// The record with everything in it cut to its bound.
    pub(super) fn bounded(self) -> SealRecord {
        match self {
            SealRecord::Row(row) => SealRecord::Row(Box::new(row.bounded())),
            SealRecord::Settled { epoch, settled_as, at_ms, reconciliation } => {
                SealRecord::Settled { epoch, settled_as, at_ms, reconciliation: bounded_comparison(reconciliation) }
            }
            SealRecord::Quarantined { epoch, quarantine, reconciliation } => SealRecord::Quarantined {
                epoch,
                quarantine: quarantine.bounded(),
                reconciliation: reconciliation.map(bounded_comparison),
            },
            SealRecord::Released { epoch, by } => SealRecord::Released { epoch, by: bounded_text(by) },
            SealRecord::Lifted { epoch, by } => SealRecord::Lifted { epoch, by: bounded_text(by) },
            SealRecord::Removed { epoch, by } => SealRecord::Removed { epoch, by: bounded_text(by) },
            record @ (SealRecord::Sent { .. } | SealRecord::Seen { .. } | SealRecord::Forgotten { .. }) => record,
        }
    }
}

impl EpochRow {
    fn bounded(self) -> EpochRow {
        EpochRow {
            held_because: self.held_because.map(bounded_text),
            released_by: self.released_by.map(bounded_text),
            removed_by: self.removed_by.map(bounded_text),
            reconciliation: self.reconciliation.map(bounded_comparison),
            quarantine: self.quarantine.map(Quarantine::bounded),
            ..self
        }
    }
}

impl Quarantine {
    fn bounded(self) -> Quarantine {
        Quarantine { detail: bounded_text(self.detail), ..self }
    }
}

/// As much of a text as its bound holds.
fn bounded_text(text: String) -> String {
    if json_bytes(&text.as_str().into()) <= REASON_BYTES_MAX {
        return text;
    }
    // A letter that JSON writes with an escape takes six bytes at most.
    let weight = |letter: char| if letter.is_control() || "\"\\".contains(letter) { 6 } else { letter.len_utf8() };
    let mut room = REASON_BYTES_MAX - 2 - CUT.len_utf8();
    let kept = text.chars().take_while(|letter| {
        let fits = weight(*letter) <= room;
        room = room.saturating_sub(weight(*letter));
        fits
    });
    kept.chain([CUT]).collect()
}

/// A comparison with a ledger, of which the assets that do not agree are kept first, and what does not fit is counted.
fn bounded_comparison(comparison: Value) -> Value {
    if json_bytes(&comparison) <= RECONCILIATION_BYTES_MAX {
        return comparison;
    }
    let mut assets = comparison["assets"].as_array().cloned().unwrap_or_default();
    assets.sort_by_key(|asset| asset["verdict"] == "agrees");
    let (all, mut room) = (assets.len(), RECONCILIATION_BYTES_MAX - 128);
    assets.retain(|asset| {
        let bytes = json_bytes(asset) + 1;
        let fits = bytes <= room;
        room -= if fits { bytes } else { 0 };
        fits
    });
    json!({"agrees": comparison["agrees"] == true, "omitted": all - assets.len(), "assets": assets})
}

fn json_bytes(value: &Value) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ledger_says_is_cut_to_its_bound_and_the_judgement_stays() {
        for text in ["a".repeat(100_000), "\u{0}\"".repeat(50_000), "é".repeat(3_000), "short".to_owned()] {
            let cut = bounded_text(text.clone());
            assert!(json_bytes(&cut.as_str().into()) <= REASON_BYTES_MAX);
            assert!(cut == text || text.starts_with(cut.trim_end_matches(CUT)) && cut.len() > 300);
        }
        let asset = |number: usize, verdict: &str| json!({"asset": format!("{number}").repeat(99), "verdict": verdict});
        let mut assets: Vec<Value> = (0..500).map(|number| asset(number, "agrees")).collect();
        assets.push(asset(500, "missing"));
        assets.push(json!({"asset": "x".repeat(1 << 20), "verdict": "surplus"}));
        let cut = bounded_comparison(json!({"agrees": false, "assets": assets}));
        assert!(json_bytes(&cut) <= RECONCILIATION_BYTES_MAX);
        let kept = cut["assets"].as_array().expect("a list");
        assert_eq!((&cut["agrees"], &kept[0]["verdict"]), (&json!(false), &json!("missing")));
        assert_eq!(cut["omitted"], 502 - kept.len());
        let small = json!({"agrees": true, "assets": [asset(1, "agrees")]});
        assert_eq!(bounded_comparison(small.clone()), small);
    }
}
