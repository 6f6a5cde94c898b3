//! One pot, one run: whoever asks, the pot of an epoch is paid from by one run, and a run is corrected by one other.
//!
//! Keys of payouts contain the run, so that two runs of one epoch have no key in common: without this rule a ledger
//! would book both. A node remembers what it paid in its seals; a ledger that outlives the node has to know it too.

use crate::model::{Batch, RunKey};

/// Whether something new of a batch may be booked, or why not. Asked with what the ledger knows: the run that pays from
/// its pot, the run that corrects this run, and the run that corrects the one that this run corrects.
pub(crate) fn check(
    batch: &Batch,
    payer: Option<RunKey>,
    corrected_by: Option<RunKey>,
    followed_by: Option<RunKey>,
) -> Result<(), String> {
    let Batch { run, pot, .. } = batch;
    if let Some(payer) = payer.filter(|payer| payer != run) {
        let (payer, run) = (hex(&payer), hex(run));
        return Err(format!("the pot {pot} is taken by run {payer}: run {run} pays nothing from it"));
    }
    if let Some(by) = corrected_by {
        let (run, by) = (hex(run), hex(&by));
        return Err(format!("run {run} is corrected by run {by}, and nothing more is booked of it"));
    }
    match (batch.follows, followed_by.filter(|by| by != run)) {
        (Some(corrected), Some(by)) => {
            let (corrected, by, run) = (hex(&corrected), hex(&by), hex(run));
            Err(format!("run {corrected} is corrected by run {by} already, and not by run {run}"))
        }
        _ => Ok(()),
    }
}

/// A run in the words of the manifest and of the statements.
pub(crate) fn hex(run: &RunKey) -> String {
    format!("b3:{}", blake3::Hash::from_bytes(*run).to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pot_has_one_run_and_a_run_one_correction() {
        let batch = |run: u8, follows: Option<u8>| Batch {
            run: [run; 32],
            asset: "RON".into(),
            pot: "epoch/1".into(),
            follows: follows.map(|run| [run; 32]),
            entries: vec![],
        };
        let key = |run: u8| Some([run; 32]);
        for (batch, payer, corrected_by, followed_by, refusal) in [
            (batch(1, None), None, None, None, None),
            (batch(1, None), key(1), None, None, None),
            (batch(2, None), key(1), None, None, Some("taken by run b3:0101")),
            (batch(1, None), key(1), key(3), None, Some("corrected by run b3:0303")),
            (batch(3, Some(1)), None, None, None, None),
            (batch(3, Some(1)), key(3), None, key(3), None),
            (batch(4, Some(1)), None, None, key(3), Some("corrected by run b3:0303")),
        ] {
            let found = check(&batch, payer, corrected_by, followed_by);
            match refusal {
                None => assert_eq!(found, Ok(()), "{batch:?}"),
                Some(words) => assert!(found.as_ref().is_err_and(|why| why.contains(words)), "{found:?}"),
            }
        }
    }
}
