//! Reading the embedded ledger: accounts, balances, statements, and a recount of the whole book.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use http::StatusCode;
use ron_ledger::{AccountLine, Balance, BookError, BookReport, LedgerError, Side, StatementLine};
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_rewarder::capabilities::{LEDGER, RELEASE};
use svc_rewarder::store::EpochRow;
use utoipa::ToSchema;

use super::{App, READ_DEADLINE, Routes, page_limit};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Json, Path, Payload, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

const LINES_DEFAULT: u64 = 100;
const LINES_MAX: u64 = ron_ledger::limits::PAGE_LINES_MAX as u64;

static ACCOUNTS: Operation =
    Operation::get("/ledger/accounts", "ledger", "lists accounts with their balances, oldest first")
        .allows(LEDGER)
        .query::<AccountsQuery>()
        .answers::<AccountsAnswer>()
        .errors(&[Kind::NotFound, Kind::Degraded]);

static ACCOUNT: Operation = Operation::get("/ledger/accounts/{account}", "ledger", "shows what an account has")
    .allows(LEDGER)
    .answers::<AccountAnswer>()
    .errors(&[Kind::NotFound, Kind::Degraded]);

static STATEMENT: Operation =
    Operation::get("/ledger/accounts/{account}/statement", "ledger", "lists transfers of an account, newest first")
        .allows(LEDGER)
        .deadline(READ_DEADLINE)
        .query::<StatementQuery>()
        .answers::<StatementAnswer>()
        .errors(&[Kind::NotFound, Kind::Degraded, Kind::Integrity]);

static VERIFY: Operation = Operation::post(
    "/ledger/verify",
    "ledger",
    "counts the whole book again from its log; a book that does not verify books nothing more",
)
.allows(LEDGER)
.deadline(READ_DEADLINE)
.answers::<VerifyAnswer>()
.errors(&[Kind::NotFound, Kind::Degraded]);

static RESEND: Operation = Operation::post(
    "/ledger/resend",
    "ledger",
    "has settled epochs that the ledger lacks sent again: what is there of them is not booked twice",
)
.allows(RELEASE)
.body::<ResendBody>(r#"{"give_up_removed":false}"#)
.answers::<ResendAnswer>()
.errors(&[Kind::Degraded]);

/// How to send again.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResendBody {
    /// Epochs whose artifacts are removed cannot be sent again: they are given up, and keep nothing waiting any more.
    #[serde(default)]
    give_up_removed: bool,
}

/// Settled epochs that the ledger lacks.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResendAnswer {
    /// Epochs that are sent again now.
    epochs: Vec<String>,
    /// Epochs that cannot be sent again, because their artifacts are removed.
    removed: Vec<String>,
}

/// Which accounts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountsQuery {
    /// The account after which to go on: `next` of the page before.
    after: Option<String>,
    /// Maximum accounts in one page.
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// A page of accounts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AccountsAnswer {
    accounts: Vec<AccountAnswer>,
    /// Where to go on, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// An account and what it has.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AccountAnswer {
    account: String,
    balances: Vec<BalanceAnswer>,
}

/// What an account has of one asset; units as decimal strings.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BalanceAnswer {
    asset: String,
    /// Units that left the account.
    debits: String,
    /// Units that came to the account.
    credits: String,
    /// Credits less debits; negative for the pot of an epoch.
    balance: String,
}

/// Which transfers.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StatementQuery {
    /// The place to go on from: `next` of the page before.
    from: Option<String>,
    /// Maximum transfers in one page.
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// A page of transfers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StatementAnswer {
    account: String,
    lines: Vec<StatementLineAnswer>,
    /// Where to go on, if there are older ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// One transfer, seen from the account.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StatementLineAnswer {
    /// Number of the transfer in the book, from 1.
    transfer: u64,
    /// Wall clock when it was booked, in milliseconds since 1970.
    booked_at_ms: u64,
    /// Key of the run.
    run: String,
    /// Key of the transfer.
    key: String,
    asset: String,
    /// The account on the other side.
    counterparty: String,
    /// `debit`: units left the account. `credit`: units came to it.
    side: &'static str,
    /// Units, as a decimal string.
    amount: String,
}

/// Findings of a recount.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct VerifyAnswer {
    /// Nothing is wrong.
    is_clean: bool,
    batches: u64,
    transfers: u64,
    accounts: u64,
    /// Sums over all accounts; debits and credits are equal in a good book.
    assets: Vec<AssetSumsAnswer>,
    /// Hash over all batches in their order.
    hash: String,
    /// Everything that is wrong, in words.
    faults: Vec<String>,
}

/// Sums of one asset; units as decimal strings.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AssetSumsAnswer {
    asset: String,
    debits: String,
    credits: String,
}

pub(super) const OPERATIONS: &[&Operation] = &[&ACCOUNTS, &ACCOUNT, &STATEMENT, &VERIFY, &RESEND];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&ACCOUNTS, with!(app, accounts(call, bearer, query)))
        .add(&ACCOUNT, with!(app, account(call, bearer, name)))
        .add(&STATEMENT, with!(app, statement(call, bearer, account, query)))
        .add(&VERIFY, with!(app, verify(call, bearer)))
        .add(&RESEND, with!(app, resend(call, bearer, body)))
}

async fn accounts(app: Arc<App>, call: Call, bearer: Bearer, query: Query<AccountsQuery>) -> HandlerResult {
    // All accounts are in it, so it is for those who may read every one.
    app.allow(&bearer, LEDGER, "")?;
    let limit = page_limit(query.0.limit, LINES_DEFAULT, LINES_MAX)?;
    let book = app.rewarder.book(call.deadline).await?;
    let asked = book.accounts(query.0.after.as_deref(), limit);
    let page = call.deadline.run("ledger_read", asked).await?.map_err(unavailable)?;
    let accounts = page.accounts.into_iter().map(|AccountLine { account, balances }| answer(account, balances));
    Ok(Json(AccountsAnswer { accounts: accounts.collect(), next: page.next }).into_response())
}

async fn account(app: Arc<App>, call: Call, bearer: Bearer, account: Path<String>) -> HandlerResult {
    let account = account.0;
    app.allow(&bearer, LEDGER, &account)?;
    let book = app.rewarder.book(call.deadline).await?;
    let balances = call.deadline.run("ledger_read", book.balances(&account)).await?.map_err(unavailable)?;
    if balances.is_empty() {
        return Err(Error::new(Kind::NotFound, "the ledger does not know this account").into());
    }
    Ok(Json(answer(account, balances)).into_response())
}

async fn statement(
    app: Arc<App>,
    call: Call,
    bearer: Bearer,
    account: Path<String>,
    query: Query<StatementQuery>,
) -> HandlerResult {
    let account = account.0;
    app.allow(&bearer, LEDGER, &account)?;
    let limit = page_limit(query.0.limit, LINES_DEFAULT, LINES_MAX)?;
    let book = app.rewarder.book(call.deadline).await?;
    let asked = book.statement(&account, query.0.from.as_deref(), limit);
    let page = call.deadline.run("ledger_read", asked).await?.map_err(told)?;
    let lines = page.lines.into_iter().map(StatementLineAnswer::from);
    Ok(Json(StatementAnswer { account, lines: lines.collect(), next: page.next }).into_response())
}

async fn verify(app: Arc<App>, call: Call, bearer: Bearer) -> HandlerResult {
    app.allow(&bearer, LEDGER, "")?;
    let book = app.rewarder.book(call.deadline).await?;
    let mut report = call.deadline.run("ledger_verify", book.verify()).await?.map_err(told)?;
    let lacks = |row: &Arc<EpochRow>| format!("epoch {} is settled, and payouts of it are missing", row.epoch);
    report.faults.extend(app.rewarder.missing().iter().map(lacks));
    Ok(Json(VerifyAnswer::from(report)).into_response())
}

async fn resend(app: Arc<App>, call: Call, bearer: Bearer, body: Payload) -> HandlerResult {
    // It pays whatever epoch the ledger lacks, so it is for those who may release every one.
    let subject = app.allow(&bearer, RELEASE, "")?;
    // Nothing at all asks for nothing special.
    let asked = if body.0.is_empty() { ResendBody::default() } else { crate::extract::parse(&body.0)? };
    let missing = app.rewarder.resend(&subject.name, asked.give_up_removed, call.deadline).await?;
    let (removed, sent): (Vec<_>, Vec<_>) = missing.iter().partition(|row| row.removed_by.is_some());
    let names = |rows: Vec<&Arc<EpochRow>>| rows.iter().map(|row| row.epoch.clone()).collect();
    Ok(Json(ResendAnswer { epochs: names(sent), removed: names(removed) }).into_response())
}

fn answer(account: String, balances: Vec<Balance>) -> AccountAnswer {
    let balance = |balance: Balance| BalanceAnswer {
        balance: balance.net(),
        asset: balance.asset,
        debits: balance.debits.to_string(),
        credits: balance.credits.to_string(),
    };
    AccountAnswer { account, balances: balances.into_iter().map(balance).collect() }
}

impl From<StatementLine> for StatementLineAnswer {
    fn from(line: StatementLine) -> StatementLineAnswer {
        StatementLineAnswer {
            transfer: line.transfer,
            booked_at_ms: line.booked_at_ms,
            run: svc_rewarder::hashing::b3(&line.run),
            key: svc_rewarder::hashing::b3(&line.key),
            asset: line.asset,
            counterparty: line.counterparty,
            side: match line.side {
                Side::Debit => "debit",
                Side::Credit => "credit",
            },
            amount: line.amount.to_string(),
        }
    }
}

impl From<BookReport> for VerifyAnswer {
    fn from(report: BookReport) -> VerifyAnswer {
        let is_clean = report.is_clean();
        let BookReport { batches, transfers, accounts, assets, hash, faults } = report;
        let sums = |sums: ron_ledger::AssetSums| AssetSumsAnswer {
            asset: sums.asset,
            debits: sums.debits.to_string(),
            credits: sums.credits.to_string(),
        };
        let assets = assets.into_iter().map(sums).collect();
        VerifyAnswer { is_clean, batches, transfers, accounts, assets, hash: svc_rewarder::hashing::b3(&hash), faults }
    }
}

fn unavailable(error: LedgerError) -> Error {
    Error::new(Kind::Degraded, error.to_string())
}

fn told(error: BookError) -> Problem {
    match error {
        BookError::BadCursor => Problem::schema(StatusCode::BAD_REQUEST, format!("from: {error}")),
        BookError::Damaged(_) => Error::new(Kind::Integrity, error.to_string()).into(),
        error => Error::new(Kind::Degraded, error.to_string()).into(),
    }
}
