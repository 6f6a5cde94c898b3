//! One batch as one transaction: what is new is inserted, what is not is read back and compared.

use super::Trouble;
use crate::model::{Batch, Direction, Entry, Outcome, RunKey, Tally};
use crate::pot::{self, hex};
use std::collections::{BTreeMap, HashMap};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Transaction};

/// Sorted by key, so that two nodes that send the same batch wait for each other instead of for ever.
const INSERT: &str = "
    INSERT INTO macronode_ledger.transfers (key, fingerprint, run, asset, debit, credit, amount, is_taken_back)
    SELECT key, fingerprint, $1, $2,
           CASE WHEN is_taken_back THEN account ELSE $3 END,
           CASE WHEN is_taken_back THEN $3 ELSE account END,
           amount::numeric, is_taken_back
    FROM unnest($4::bytea[], $5::bytea[], $6::text[], $7::text[], $8::boolean[])
         AS sent (key, fingerprint, account, amount, is_taken_back)
    ON CONFLICT (key) DO NOTHING
    RETURNING key";
/// Whether only a run of before the table of pots can have paid from this one, and not this run: its name is not known
/// without reading every transfer.
const IS_STRANGERS: &str = "
    SELECT NOT EXISTS (SELECT FROM macronode_ledger.pots WHERE pot = $1)
       AND EXISTS (SELECT FROM macronode_ledger.balances WHERE account = $1)
       AND NOT EXISTS (SELECT FROM macronode_ledger.transfers WHERE run = $2)";
const CLAIM: &str = "INSERT INTO macronode_ledger.pots (pot, run, follows) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
/// A run that books and a correction of it that begins wait for each other: what the next statement reads is true.
const LOCK: &str = "
    SELECT 1 FROM macronode_ledger.pots WHERE pot = $1 OR run = $2 ORDER BY pot FOR UPDATE";
const WHO_PAYS: &str = "
    SELECT (SELECT run FROM macronode_ledger.pots WHERE pot = $1),
           (SELECT run FROM macronode_ledger.pots WHERE follows = $2),
           (SELECT run FROM macronode_ledger.pots WHERE follows = $3)";
const READ_BACK: &str = "SELECT key, fingerprint FROM macronode_ledger.transfers WHERE key = ANY($1::bytea[])";
/// The accounts are sorted too, for the same reason. Gives back those that gave more than they had.
const BALANCE: &str = "
    WITH changed AS (
        INSERT INTO macronode_ledger.balances AS kept (account, asset, debits, credits)
        SELECT account, $1, debits::numeric, credits::numeric
        FROM unnest($2::text[], $3::text[], $4::text[]) AS sent (account, debits, credits)
        ON CONFLICT (account, asset) DO UPDATE
            SET debits = kept.debits + excluded.debits, credits = kept.credits + excluded.credits
        RETURNING account, credits - debits AS net
    )
    SELECT account FROM changed WHERE net < 0 AND account = ANY($5::text[]) ORDER BY account LIMIT 1";
const TALLY: &str = "
    SELECT asset, count(*),
           coalesce(sum(amount) FILTER (WHERE NOT is_taken_back), 0)::text,
           coalesce(sum(amount) FILTER (WHERE is_taken_back), 0)::text
    FROM macronode_ledger.transfers WHERE run = $1 GROUP BY asset ORDER BY asset";

pub(super) async fn submit(client: &mut Client, batch: &Batch) -> Result<Vec<Outcome>, Trouble> {
    let fingerprints: Vec<[u8; 32]> = batch.entries.iter().map(|entry| batch.fingerprint(entry)).collect();
    let mut first_of: BTreeMap<&[u8; 32], usize> = BTreeMap::new();
    for (index, entry) in batch.entries.iter().enumerate() {
        first_of.entry(&entry.key).or_insert(index);
    }
    let transaction = client.transaction().await?;
    let run = &batch.run[..];
    let is_strangers: bool = transaction.query_one(IS_STRANGERS, &[&batch.pot, &run]).await?.try_get(0)?;
    let mut stored = insert(&transaction, batch, &fingerprints, &first_of).await?;
    let is_new = |index: usize| !stored.contains_key(&batch.entries[index].key);
    let new: Vec<usize> = first_of.values().copied().filter(|index| is_new(*index)).collect();
    if !new.is_empty() {
        if is_strangers {
            let (pot, run) = (&batch.pot, hex(&batch.run));
            return Err(Trouble::Refused(format!(
                "the pot {pot} is taken by another run: run {run} pays nothing from it"
            )));
        }
        claim_pot(&transaction, batch).await?;
        let entries: Vec<&Entry> = new.iter().map(|index| &batch.entries[*index]).collect();
        change_balances(&transaction, batch, &entries).await?;
    }
    transaction.commit().await?;
    let mut outcomes = vec![None; batch.entries.len()];
    for index in new {
        outcomes[index] = Some(Outcome::Accepted);
        stored.insert(batch.entries[index].key, fingerprints[index]);
    }
    let judge = |(index, outcome): (usize, Option<Outcome>)| {
        let is_same = stored.get(&batch.entries[index].key) == Some(&fingerprints[index]);
        outcome.unwrap_or(if is_same { Outcome::Duplicate } else { Outcome::Conflict })
    };
    Ok(outcomes.into_iter().enumerate().map(judge).collect())
}

/// Makes the run the one that pays from its pot, or refuses it. Who comes second waits here for the first to commit.
async fn claim_pot(transaction: &Transaction<'_>, batch: &Batch) -> Result<(), Trouble> {
    let (run, follows) = (&batch.run[..], batch.follows.as_ref().map(|run| &run[..]));
    transaction.execute(CLAIM, &[&batch.pot, &run, &follows]).await?;
    transaction.execute(LOCK, &[&batch.pot, &follows]).await?;
    let row = transaction.query_one(WHO_PAYS, &[&batch.pot, &run, &follows]).await?;
    let key = |index: usize| -> Result<Option<RunKey>, Trouble> {
        let stored: Option<&[u8]> = row.try_get(index)?;
        Ok(stored.and_then(|bytes| bytes.try_into().ok()))
    };
    let (payer, corrected_by, followed_by) = (key(0)?, key(1)?, key(2)?);
    pot::check(batch, payer, corrected_by, followed_by).map_err(Trouble::Refused)
}

/// Inserts what is not there; gives the fingerprints of what was.
async fn insert(
    transaction: &Transaction<'_>,
    batch: &Batch,
    fingerprints: &[[u8; 32]],
    first_of: &BTreeMap<&[u8; 32], usize>,
) -> Result<HashMap<[u8; 32], [u8; 32]>, Trouble> {
    let indices = || first_of.values().map(|index| (*index, &batch.entries[*index]));
    let keys: Vec<&[u8]> = first_of.keys().map(|key| &key[..]).collect();
    let prints: Vec<&[u8]> = indices().map(|(index, _)| &fingerprints[index][..]).collect();
    let accounts: Vec<&str> = indices().map(|(_, entry)| entry.account.as_str()).collect();
    let amounts: Vec<String> = indices().map(|(_, entry)| entry.amount.to_string()).collect();
    let backs: Vec<bool> = indices().map(|(_, entry)| entry.direction == Direction::TakeBack).collect();
    let statement = transaction.prepare(INSERT).await?;
    let (run, asset, pot) = (&batch.run[..], &batch.asset, &batch.pot);
    let parameters: [&(dyn ToSql + Sync); 8] = [&run, asset, pot, &keys, &prints, &accounts, &amounts, &backs];
    let inserted = transaction.query(&statement, &parameters).await?;
    if inserted.len() == keys.len() {
        return Ok(HashMap::new());
    }
    let mut is_there: BTreeMap<&[u8], bool> = keys.iter().map(|key| (*key, true)).collect();
    for row in &inserted {
        is_there.insert(row.try_get(0)?, false);
    }
    let missed: Vec<&[u8]> = is_there.iter().filter(|(_, is_there)| **is_there).map(|(key, _)| *key).collect();
    let mut stored = HashMap::new();
    for row in transaction.query(READ_BACK, &[&missed]).await? {
        let (key, fingerprint): (&[u8], &[u8]) = (row.try_get(0)?, row.try_get(1)?);
        let pair = key.try_into().ok().zip(fingerprint.try_into().ok());
        let (key, fingerprint) = pair.ok_or_else(|| Trouble::Ours("a key in PostgreSQL has a wrong length".into()))?;
        stored.insert(key, fingerprint);
    }
    if stored.len() == missed.len() {
        Ok(stored)
    } else {
        Err(Trouble::Ours("transfers vanished from PostgreSQL while they were looked at".into()))
    }
}

async fn change_balances(transaction: &Transaction<'_>, batch: &Batch, new: &[&Entry]) -> Result<(), Trouble> {
    // By account: units that leave it, units that come to it, whether it gave back.
    let mut changes: BTreeMap<&str, (u128, u128, bool)> = BTreeMap::new();
    let mut pot = (0_u128, 0_u128);
    let over = || Trouble::Refused("the batch is worth more than 2^128 units".into());
    for entry in new {
        let (debits, credits, gave_back) = changes.entry(&entry.account).or_default();
        let (own, other) = match entry.direction {
            Direction::Pay => (credits, &mut pot.0),
            Direction::TakeBack => {
                *gave_back = true;
                (debits, &mut pot.1)
            }
        };
        *own = own.checked_add(entry.amount).ok_or_else(over)?;
        *other = other.checked_add(entry.amount).ok_or_else(over)?;
    }
    changes.insert(&batch.pot, (pot.0, pot.1, false));
    let accounts: Vec<&str> = changes.keys().copied().collect();
    let debits: Vec<String> = changes.values().map(|(debits, ..)| debits.to_string()).collect();
    let credits: Vec<String> = changes.values().map(|(_, credits, _)| credits.to_string()).collect();
    let givers: Vec<&str> = changes.iter().filter(|(_, change)| change.2).map(|(account, _)| *account).collect();
    let statement = transaction.prepare(BALANCE).await?;
    let short = transaction.query_opt(&statement, &[&batch.asset, &accounts, &debits, &credits, &givers]).await?;
    let Some(row) = short else { return Ok(()) };
    let account: &str = row.try_get(0)?;
    Err(Trouble::Refused(format!("{account} does not have the units of {} that are taken back", batch.asset)))
}

pub(super) async fn tally(client: &mut Client, run: &RunKey) -> Result<Vec<Tally>, Trouble> {
    let mut tallies = Vec::new();
    for row in client.query(TALLY, &[&&run[..]]).await? {
        let (asset, count): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        let (paid, taken_back): (&str, &str) = (row.try_get(2)?, row.try_get(3)?);
        let sums = u64::try_from(count).ok().zip(paid.parse().ok()).zip(taken_back.parse().ok());
        let ((count, paid), taken_back) =
            sums.ok_or_else(|| Trouble::Refused(format!("the sums of {asset} do not fit 128 bits")))?;
        tallies.push(Tally { asset, count, paid, taken_back });
    }
    Ok(tallies)
}
