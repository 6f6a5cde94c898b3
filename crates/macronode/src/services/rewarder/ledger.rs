//! `macronode ledger`: the embedded book, read from its files while no node runs, and else by asking the node.

mod offline;
mod show;
mod words;

use clap::{Args, Subcommand};

use crate::cli::ApiArgs;
use crate::client::ApiClient;
use crate::commands::{Report, wait};
use crate::errors::{Code, Exit, Failure};
use words::{Account, AccountPage, Recount, Resent, StatementPage};

/// What to do with the embedded ledger.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Show what an account has.
    Balance(BalanceArgs),
    /// List the transfers of an account, newest first.
    Statement(StatementArgs),
    /// List accounts with their balances.
    Accounts(AccountsArgs),
    /// Count the whole book again from its log, and debits against credits.
    Verify(VerifyArgs),
    /// Send settled epochs again that the ledger lacks; no payout is booked twice.
    Resend(ResendArgs),
}

/// Whose balance.
#[derive(Args, Debug)]
pub struct BalanceArgs {
    /// The account: the id of a payee, or epoch/ID for the pot of an epoch
    pub account: String,
    /// Only this asset
    #[arg(long)]
    pub asset: Option<String>,
    /// The node to ask, or whose files to read.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Whose transfers.
#[derive(Args, Debug)]
pub struct StatementArgs {
    /// The account: the id of a payee, or epoch/ID for the pot of an epoch
    pub account: String,
    /// Maximum transfers to show
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Place to go on from, as the page before said
    #[arg(long, value_name = "PLACE")]
    pub from: Option<String>,
    /// The node to ask, or whose files to read.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Which accounts.
#[derive(Args, Debug)]
pub struct AccountsArgs {
    /// Maximum accounts to show
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Account to go on after, as the page before said
    #[arg(long, value_name = "ACCOUNT")]
    pub after: Option<String>,
    /// The node to ask, or whose files to read.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Which book.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The node to ask, or whose files to read.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to send again.
#[derive(Args, Debug)]
pub struct ResendArgs {
    /// Give up epochs whose artifacts are removed: nothing of them can be sent again, and they keep no payouts waiting
    #[arg(long)]
    pub give_up_removed: bool,
    /// The node to ask.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Carries out a `ledger` command.
pub fn ledger(command: &LedgerCommand) -> Result<Report, Failure> {
    match command {
        LedgerCommand::Balance(args) => balance(args),
        LedgerCommand::Statement(args) => statement(args),
        LedgerCommand::Accounts(args) => accounts(args),
        LedgerCommand::Verify(args) => verify(args),
        LedgerCommand::Resend(args) => resend(args),
    }
}

fn resend(args: &ResendArgs) -> Result<Report, Failure> {
    let sent: Resent = wait_for(async {
        let path = "/ledger/resend";
        let body = serde_json::json!({"give_up_removed": args.give_up_removed});
        ApiClient::find(&args.node)?.post(path, &body).await?.read(path)
    })?;
    Ok(report(&args.node, &sent, show::resent))
}

fn balance(args: &BalanceArgs) -> Result<Report, Failure> {
    let mut account: Account = match offline::read(&args.node)? {
        Some(book) => offline::account(&book, &args.account)?,
        None => ask(&args.node, &format!("/ledger/accounts/{}", percent(&args.account)))?,
    };
    if let Some(asset) = &args.asset {
        account.balances.retain(|balance| balance.asset == *asset);
    }
    Ok(report(&args.node, &account, show::account))
}

fn statement(args: &StatementArgs) -> Result<Report, Failure> {
    let page: StatementPage = match offline::read(&args.node)? {
        Some(book) => offline::statement(&book, &args.account, args.from.as_deref(), args.limit.into())?,
        None => {
            let from = args.from.as_ref().map_or_else(String::new, |from| format!("&from={}", percent(from)));
            let account = percent(&args.account);
            ask(&args.node, &format!("/ledger/accounts/{account}/statement?limit={}{from}", args.limit))?
        }
    };
    Ok(report(&args.node, &page, show::statement))
}

fn accounts(args: &AccountsArgs) -> Result<Report, Failure> {
    let page: AccountPage = match offline::read(&args.node)? {
        Some(book) => offline::accounts(&book, args.after.as_deref(), args.limit.into()),
        None => {
            let after = args.after.as_ref().map_or_else(String::new, |after| format!("&after={}", percent(after)));
            ask(&args.node, &format!("/ledger/accounts?limit={}{after}", args.limit))?
        }
    };
    Ok(report(&args.node, &page, show::accounts))
}

fn verify(args: &VerifyArgs) -> Result<Report, Failure> {
    let recount: Recount = match offline::read(&args.node)? {
        Some(book) => offline::recount(&args.node, &book),
        None => wait_for(async {
            let path = "/ledger/verify";
            let answer = ApiClient::find(&args.node)?.post(path, &serde_json::json!({})).await?;
            answer.read(path)
        })?,
    };
    let exit = if recount.is_clean { Exit::Clean } else { Exit::Failed };
    Ok(Report { exit, ..report(&args.node, &recount, show::recount) })
}

/// The same words whether a node gave them or the files did.
fn report<T: serde::Serialize>(node: &ApiArgs, found: &T, show: fn(&T) -> String) -> Report {
    let json = || serde_json::to_string(found).unwrap_or_default() + "\n";
    Report::clean(if node.json { json() } else { show(found) })
}

fn ask<T: for<'de> serde::Deserialize<'de>>(node: &ApiArgs, path: &str) -> Result<T, Failure> {
    wait_for(async { ApiClient::find(node)?.get(path).await?.read(path) })
}

/// Waits for a node's answer of any kind.
fn wait_for<T>(asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut answered = None;
    wait(async {
        answered = Some(asked.await?);
        Ok(Report::clean(""))
    })?;
    answered.ok_or_else(|| Failure::new(Code::NoNode, "the node gave no answer"))
}

/// A word of a path or a query: everything but letters and digits as `%xx`.
fn percent(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
