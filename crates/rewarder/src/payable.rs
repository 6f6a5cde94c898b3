//! What no ledger takes is refused before anything is sealed: such an epoch could only be quarantined.

use ron_calculus::{Policy, Roster};
use ron_ledger::LedgerError;

use crate::job::RunError;

/// Letters of an asset that are shown when it is refused.
const SHOWN_CHARS: usize = 64;

/// Usage has no longer ids than a ledger has accounts, so that no id need be measured.
const _: () = assert!(ron_usage::ACTOR_BYTES_MAX <= ron_ledger::limits::ACCOUNT_BYTES_MAX);

/// Refuses ids and assets that no ledger takes.
pub(crate) fn check(roster: &Roster, policy: &Policy) -> Result<(), RunError> {
    for asset in &policy.assets {
        ron_ledger::check_asset(&asset.asset).map_err(|error| refusal(&asset.asset, &error))?;
    }
    // Nearly always all is well: then one search over all ids is all it takes.
    let is_empty = |roster: &Roster| !roster.is_empty() && roster.get(0).is_empty();
    if !roster.text().contains('\0') && !is_empty(roster) {
        return Ok(());
    }
    roster.iter().enumerate().try_for_each(|(index, actor)| {
        // Its place and not its id: whoever names a file learns nothing of what stands in it.
        let place = |error| RunError::Order(format!("actor {} in the order of ids: {error}", index + 1));
        ron_ledger::check_account(actor).map_err(place)
    })
}

fn refusal(asset: &str, error: &LedgerError) -> RunError {
    let shown: String = asset.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    RunError::Order(format!("asset `{shown}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_ledger_takes_is_refused_by_its_name_or_place() {
        let policy = |asset: &str| {
            let asset = serde_json::json!({"asset": asset, "pool": "1", "weights": {"usage": "1"}});
            let text = serde_json::json!({"id": "demo", "ruleset": 1, "assets": [asset]}).to_string();
            Policy::parse(text.as_bytes()).expect("a policy")
        };
        let roster = |actors: &[&str]| {
            let mut roster = Roster::default();
            assert!(actors.iter().all(|actor| roster.push(actor)));
            roster
        };
        let told =
            |actors: &[&str], asset: &str| check(&roster(actors), &policy(asset)).map_err(|error| error.to_string());
        assert_eq!(told(&["ann", "bob"], "RON"), Ok(()));
        assert_eq!(told(&[], &"x".repeat(128)), Ok(()));
        for (actors, asset, words) in [
            (&["ann", "b\0b"][..], "RON", "actor 2 in the order of ids"),
            (&["", "ann"], "RON", "actor 1 in the order of ids"),
            (&["ann"], &"x".repeat(129), "asset `xxx"),
        ] {
            assert!(told(actors, asset).is_err_and(|why| why.contains(words)), "{actors:?} {asset:?}");
        }
    }
}
