//! A PostgreSQL server of one's own: started in a folder, ended with its owner.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::address::own_address;

/// User the server runs as: it refuses to run as root.
const USER: &str = "postgres";
/// Where the packages of Debian put the programs, by version.
const LIBRARY: &str = "/usr/lib/postgresql";
const PATIENCE: Duration = Duration::from_secs(60);
const POLITE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a server is started with.
#[derive(Clone, Debug, Default)]
pub struct PostgresStart {
    /// Settings as `name=value`.
    pub settings: Vec<String>,
    /// Certificate and key of the server in PEM; without them it speaks no TLS.
    pub identity: Option<(String, String)>,
}

/// A running server. Dropping it ends the process.
pub struct Postgres {
    /// Address on which it listens.
    pub address: SocketAddr,
    child: Child,
    folder: PathBuf,
    /// Removed with everything in it after the process has ended.
    _scratch: Option<tempfile::TempDir>,
}

impl Postgres {
    /// The newest server that is installed. `None` if there is none.
    pub fn program() -> Option<PathBuf> {
        let versions = fs::read_dir(LIBRARY).ok()?.flatten().map(|entry| entry.path().join("bin/postgres"));
        versions.filter(|path| path.is_file()).max()
    }

    /// Starts a server in a folder of its own.
    pub fn start(start: &PostgresStart) -> anyhow::Result<Postgres> {
        let scratch = tempfile::Builder::new().prefix("postgres-").tempdir()?;
        let mut server = Postgres::start_in(scratch.path(), start)?;
        server._scratch = Some(scratch);
        Ok(server)
    }

    /// Starts a server whose data and socket are in this folder.
    pub fn start_in(folder: &Path, start: &PostgresStart) -> anyhow::Result<Postgres> {
        let program = Postgres::program().context("PostgreSQL is not installed; apt-get install postgresql")?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        give_to_user(folder)?;
        let data = folder.join("data");
        let mut initialise = as_user(&program.with_file_name("initdb"));
        initialise.args(["-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8", "--locale", "C", "-D"]).arg(&data);
        let initialised = initialise.current_dir(folder).stdin(Stdio::null()).output().context("initdb")?;
        anyhow::ensure!(initialised.status.success(), "initdb: {}", String::from_utf8_lossy(&initialised.stderr));
        let address = own_address();
        let mut settings = vec![
            format!("listen_addresses={}", address.ip()),
            format!("port={}", address.port()),
            format!("unix_socket_directories={}", folder.display()),
        ];
        settings.extend(start.settings.iter().cloned());
        if let Some(identity) = &start.identity {
            settings.extend(write_identity(folder, identity)?);
        }
        let log = File::create(folder.join("log"))?;
        let mut command = as_user(&program);
        command.arg("-D").arg(&data);
        command.args(settings.iter().flat_map(|setting| ["-c", setting.as_str()]));
        command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("postgres cannot be started")?;
        let mut server = Postgres { address, child, folder: folder.to_owned(), _scratch: None };
        server.wait(&program)?;
        Ok(server)
    }

    fn wait(&mut self, program: &Path) -> anyhow::Result<()> {
        let (host, port) = (self.address.ip().to_string(), self.address.port().to_string());
        let began = Instant::now();
        loop {
            let mut ask = Command::new(program.with_file_name("pg_isready"));
            let asked = ask.args(["-q", "-h", &host, "-p", &port]).stdin(Stdio::null()).status()?;
            if asked.success() {
                return Ok(());
            }
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("postgres ended ({status}): {}", log());
            }
            anyhow::ensure!(began.elapsed() < PATIENCE, "postgres does not answer: {}", log());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// How a client finds it over TCP.
    pub fn over_tcp(&self) -> String {
        format!("host={} port={} user={USER} dbname=postgres", self.address.ip(), self.address.port())
    }

    /// How a client finds it by its socket.
    pub fn over_socket(&self) -> String {
        format!("host={} port={} user={USER} dbname=postgres", self.folder.display(), self.address.port())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Not reaped yet, so the number is still its own. INT ends it without waiting for its clients.
            let _ = kill_process(pid, Signal::INT);
        }
        let began = Instant::now();
        while began.elapsed() < POLITE && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command as the user that may run the server, tied to the life of this process.
fn as_user(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if is_root() {
        // Changing the user forgets the tie, so it is made after it.
        command.args(["--reuid", USER, "--regid", USER, "--init-groups", "--", "setpriv"]);
    }
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

fn give_to_user(path: &Path) -> anyhow::Result<()> {
    if is_root() {
        let status = Command::new("chown").arg(USER).arg(path).status()?;
        anyhow::ensure!(status.success(), "{} cannot be given to {USER}", path.display());
    }
    Ok(())
}

fn write_identity(folder: &Path, identity: &(String, String)) -> anyhow::Result<[String; 3]> {
    let files = [("server.crt", &identity.0), ("server.key", &identity.1)];
    for (name, pem) in files {
        let path = folder.join(name);
        fs::write(&path, pem)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        give_to_user(&path)?;
    }
    let at = |name: &str| folder.join(name).display().to_string();
    Ok(["ssl=on".into(), format!("ssl_cert_file={}", at("server.crt")), format!("ssl_key_file={}", at("server.key"))])
}
