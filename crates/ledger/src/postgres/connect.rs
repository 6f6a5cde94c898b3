//! The way to PostgreSQL: where it is, whom to believe, and a connection that is driven by whoever uses it.

use super::{Trouble, Work, schema};
use crate::tls;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What the server shows of our connections in its own tables.
const APPLICATION: &str = "macronode-ledger";

/// Where the ledger is, and how long it may take.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Address as PostgreSQL's own clients take it: `host=… user=… dbname=…`, or `postgresql://…`. Over a network the
    /// connection is always encrypted and the server's certificate and name are checked, unless the address says
    /// `sslmode=disable`.
    pub address: String,
    /// File that holds the password.
    pub password_file: Option<PathBuf>,
    /// File of root certificates in PEM; without it those of the system count.
    pub ca_file: Option<PathBuf>,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// Time one statement may take in the server.
    pub statement_timeout: Duration,
}

impl PostgresOptions {
    /// A ledger at this address, with the usual times.
    pub fn at(address: impl Into<String>) -> PostgresOptions {
        PostgresOptions {
            address: address.into(),
            password_file: None,
            ca_file: None,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
        }
    }
}

/// Options that were read and understood.
pub(super) struct Target {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    pub connect_timeout: Duration,
    pub statement_timeout: Duration,
}

impl Target {
    pub fn new(options: &PostgresOptions) -> Result<Target, String> {
        // Our `require` checks certificate and name, which is what others call this.
        let address = options.address.replace("sslmode=verify-full", "sslmode=require");
        let mut config: Config = address.parse().map_err(|error: Error| unreadable(&error))?;
        if let Some(path) = &options.password_file {
            let bytes = tls::read_small(path)?;
            config.password(bytes.trim_ascii_end());
        }
        let is_plain = match config.get_ssl_mode() {
            SslMode::Disable => true,
            SslMode::Prefer => is_on_this_machine(&config),
            _ => false,
        };
        config.ssl_mode(if is_plain { SslMode::Disable } else { SslMode::Require });
        config.application_name(APPLICATION).connect_timeout(options.connect_timeout);
        // A server that went away without a word is noticed, if late.
        config.tcp_user_timeout(options.connect_timeout + options.statement_timeout);
        let tls = match is_plain {
            true => None,
            false => Some(MakeRustlsConnect::new(tls::client_config(options.ca_file.as_deref())?)),
        };
        let PostgresOptions { connect_timeout, statement_timeout, .. } = *options;
        Ok(Target { config, tls, connect_timeout, statement_timeout })
    }

    /// The password that the server is shown.
    pub fn password(&self) -> Option<&[u8]> {
        self.config.get_password()
    }

    /// Connects, sets up the session and sees that the schema is there.
    pub async fn connect(&self) -> Result<Link, Trouble> {
        self.connect_for(&Setup { timeout_ms: self.statement_timeout.as_millis() }).await.map(|(link, ())| link)
    }

    /// Connects and does the first work on the connection.
    pub async fn connect_for<W: Work>(&self, first: &W) -> Result<(Link, W::Answer), Trouble> {
        let connecting = async {
            let mut link = match &self.tls {
                Some(tls) => {
                    let (client, connection) = self.config.connect(tls.clone()).await?;
                    Link { client, connection: Some(Box::pin(connection)) }
                }
                None => {
                    let (client, connection) = self.config.connect(NoTls).await?;
                    Link { client, connection: Some(Box::pin(connection)) }
                }
            };
            let answer = link.run(first).await?;
            Ok((link, answer))
        };
        let within = self.connect_timeout + self.statement_timeout;
        let connected = ron_kernel::deadline::within(within, "ledger_connect", connecting).await;
        connected.unwrap_or_else(|_| Err(Trouble::Ours("PostgreSQL does not let us in in time".into())))
    }
}

/// Why an address cannot be read. An option that is not known may be the rest of a password that was cut by a blank.
fn unreadable(error: &Error) -> String {
    let words = error.to_string();
    let known = std::error::Error::source(error).map_or_else(|| words.clone(), |cause| format!("{words}: {cause}"));
    if known.contains("unknown option") {
        return "the address: an option in it is not known".to_owned();
    }
    format!("the address: {known}")
}

/// What every new connection begins with.
struct Setup {
    timeout_ms: u128,
}

impl Work for Setup {
    type Answer = ();

    async fn perform(&self, client: &mut Client) -> Result<(), Trouble> {
        client.batch_execute(&session(self.timeout_ms)).await?;
        schema::ensure(client).await
    }
}

/// A commit that was answered must be durable, whatever the server does by default.
fn session(timeout_ms: u128) -> String {
    format!(
        "SET statement_timeout = {timeout_ms};
         SET lock_timeout = {timeout_ms};
         SET idle_in_transaction_session_timeout = {timeout_ms};
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"
    )
}

fn is_on_this_machine(config: &Config) -> bool {
    let is_local = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()),
    };
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let has_one = !hosts.is_empty() || !addresses.is_empty();
    has_one && hosts.iter().all(is_local) && addresses.iter().all(std::net::IpAddr::is_loopback)
}

/// An open connection; its bytes move only while somebody uses it.
pub(super) struct Link {
    client: Client,
    /// `None` once it has ended.
    connection: Option<Connection>,
}

type Connection = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

impl Link {
    pub fn is_closed(&self) -> bool {
        self.connection.is_none() || self.client.is_closed()
    }

    /// Does `work` while moving the bytes of the connection.
    pub async fn run<W: Work>(&mut self, work: &W) -> Result<W::Answer, Trouble> {
        let Link { client, connection } = self;
        let mut work = std::pin::pin!(work.perform(client));
        if let Some(moving) = connection {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ended = moving => {}
            }
        }
        // Those who wait for an answer are told that there will be none when the connection goes.
        *connection = None;
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_encrypted(address: &str) -> bool {
        let target = Target::new(&PostgresOptions::at(address)).expect("an address");
        assert_eq!(target.config.get_ssl_mode() == SslMode::Require, target.tls.is_some(), "{address}");
        target.tls.is_some()
    }

    #[test]
    fn only_this_machine_or_a_written_word_goes_without_encryption() {
        for (address, expected) in [
            ("host=127.0.0.1 user=u", false),
            ("host=localhost user=u", false),
            ("host=::1 user=u", false),
            ("host=/run/postgresql user=u", false),
            ("postgresql://u@localhost/db", false),
            ("host=localhost user=u sslmode=require", true),
            ("host=localhost user=u sslmode=verify-full", true),
            ("host=db.example user=u sslmode=disable", false),
        ] {
            assert_eq!(is_encrypted(address), expected, "{address}");
        }
        // Whether this machine has roots or not, it never goes without them.
        for address in [
            "host=db.example user=u",
            "host=localhost,db.example user=u",
            "host=localhost hostaddr=10.0.0.1 user=u",
            "host=10.0.0.1 user=u sslmode=prefer",
        ] {
            match Target::new(&PostgresOptions::at(address)) {
                Ok(target) => assert!(target.tls.is_some(), "{address}"),
                Err(why) => assert!(why.contains("root certificates"), "{why}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let refused = |options: PostgresOptions| Target::new(&options).map(|_| ()).expect_err("refused");
        assert!(refused(PostgresOptions::at("host=x nonsense=1")).contains("the address"));
        assert!(refused(PostgresOptions::at("host=x user=u sslmode=verify-ca")).contains("the address"));
        let nowhere = Some(PathBuf::from("/nowhere/file"));
        assert!(
            refused(PostgresOptions { ca_file: nowhere.clone(), ..PostgresOptions::at("host=x user=u") })
                .contains("/nowhere/file")
        );
        let options = PostgresOptions { password_file: nowhere, ..PostgresOptions::at("host=localhost user=u") };
        assert!(refused(options).contains("/nowhere/file"));
    }
}
