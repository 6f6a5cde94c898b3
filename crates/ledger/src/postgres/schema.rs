//! The tables of the ledger, made by us, and the count that tells whether they agree with each other.

use super::Trouble;
use tokio_postgres::{Client, Error};

/// Version of the tables below; a newer one is not touched.
const VERSION: i32 = 1;

/// Text is compared by bytes, as everywhere; amounts end where 128 bits end. A pot may owe, a payee that gave back may
/// not: that is asked when it gives back, because the tables do not know who is which.
const TABLES: &str = "
    CREATE SCHEMA IF NOT EXISTS macronode_ledger;
    CREATE TABLE macronode_ledger.version (version integer NOT NULL);
    CREATE TABLE macronode_ledger.transfers (
        key bytea PRIMARY KEY CHECK (length(key) = 32),
        fingerprint bytea NOT NULL CHECK (length(fingerprint) = 32),
        run bytea NOT NULL CHECK (length(run) = 32),
        asset text COLLATE \"C\" NOT NULL,
        debit text COLLATE \"C\" NOT NULL,
        credit text COLLATE \"C\" NOT NULL,
        amount numeric(39,0) NOT NULL
            CHECK (amount >= 0 AND amount < 340282366920938463463374607431768211456),
        is_taken_back boolean NOT NULL,
        booked_at timestamptz NOT NULL DEFAULT now(),
        CHECK (debit <> credit)
    );
    CREATE INDEX transfers_run ON macronode_ledger.transfers (run);
    CREATE TABLE macronode_ledger.balances (
        account text COLLATE \"C\" NOT NULL,
        asset text COLLATE \"C\" NOT NULL,
        debits numeric(39,0) NOT NULL
            CHECK (debits >= 0 AND debits < 340282366920938463463374607431768211456),
        credits numeric(39,0) NOT NULL
            CHECK (credits >= 0 AND credits < 340282366920938463463374607431768211456),
        PRIMARY KEY (account, asset)
    ) WITH (fillfactor = 80);
    INSERT INTO macronode_ledger.version VALUES (1);";

/// Who pays from which pot; made beside the tables of before that have none. A pot that is not in it and has a balance
/// was paid from before it was made: see `submit`.
const POTS: &str = "
    CREATE TABLE IF NOT EXISTS macronode_ledger.pots (
        pot text COLLATE \"C\" PRIMARY KEY,
        run bytea NOT NULL CHECK (length(run) = 32),
        follows bytea UNIQUE CHECK (length(follows) = 32)
    );
    CREATE INDEX IF NOT EXISTS pots_run ON macronode_ledger.pots (run);";

/// Several nodes may come at once to an empty database: one makes the tables, the others wait for it.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(5571043160934117632)";
const IS_THERE: &str = "SELECT to_regclass('macronode_ledger.version') IS NOT NULL";
const HAS_POTS: &str = "SELECT to_regclass('macronode_ledger.pots') IS NOT NULL";

/// Whether the tables are there, without making any; refuses those of a newer version.
pub(super) async fn is_there(client: &mut Client) -> Result<bool, Trouble> {
    if !client.query_one(IS_THERE, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(false);
    }
    let found: i32 = client.query_one("SELECT max(version) FROM macronode_ledger.version", &[]).await?.try_get(0)?;
    if found == VERSION {
        return Ok(true);
    }
    Err(Trouble::Ours(format!("the tables in PostgreSQL are of version {found}; this version knows {VERSION}")))
}

/// Makes the tables if there are none; refuses those of a newer version.
pub(super) async fn ensure(client: &mut Client) -> Result<(), Trouble> {
    if !is_there(client).await? || !client.query_one(HAS_POTS, &[]).await?.try_get::<_, bool>(0)? {
        let transaction = client.transaction().await?;
        transaction.batch_execute(ONE_AT_A_TIME).await?;
        let is_made: bool = transaction.query_one(IS_THERE, &[]).await?.try_get(0)?;
        if !is_made {
            transaction.batch_execute(TABLES).await?;
        }
        transaction.batch_execute(POTS).await?;
        transaction.commit().await?;
        // Another node may have made them, of a newer version.
        is_there(client).await?;
    }
    Ok(())
}

/// Balances that the transfers do not give, of either kind.
const DISAGREEING: &str = "
    WITH moved AS (
        SELECT debit AS account, asset, amount AS debits, 0 AS credits FROM macronode_ledger.transfers
        UNION ALL
        SELECT credit, asset, 0, amount FROM macronode_ledger.transfers
    ), counted AS (
        SELECT account, asset, sum(debits) AS debits, sum(credits) AS credits FROM moved GROUP BY account, asset
    )
    SELECT account, asset FROM counted FULL JOIN macronode_ledger.balances AS kept USING (account, asset)
    WHERE counted.debits IS DISTINCT FROM kept.debits OR counted.credits IS DISTINCT FROM kept.credits
    ORDER BY account, asset LIMIT 100";
const UNBALANCED: &str = "
    SELECT asset, sum(debits)::text, sum(credits)::text FROM macronode_ledger.balances
    GROUP BY asset HAVING sum(debits) <> sum(credits) ORDER BY asset LIMIT 100";

pub(super) async fn faults(client: &mut Client) -> Result<Vec<String>, Error> {
    let mut faults = Vec::new();
    // Both look at the same moment, or a batch between them would look like a fault.
    let transaction =
        client.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).read_only(true);
    let transaction = transaction.start().await?;
    for row in transaction.query(DISAGREEING, &[]).await? {
        let (account, asset): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        faults.push(format!("{account}: the balance in {asset} is not the sum of its transfers"));
    }
    for row in transaction.query(UNBALANCED, &[]).await? {
        let (asset, debits, credits): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        faults.push(format!("{asset}: {debits} units debited, {credits} credited"));
    }
    transaction.commit().await?;
    Ok(faults)
}
