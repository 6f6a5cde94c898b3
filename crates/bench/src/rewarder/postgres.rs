//! PostgreSQL as a peer: the same rows in a table, added up and divided in SQL.

use std::cell::RefCell;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use testkit::{Postgres, PostgresStart};

use super::data::{self, Epoch};
use super::{Job, POOL, Sample};

/// What a server for such work is given: room to hash and sort in memory, and every core.
const SETTINGS: [&str; 6] = [
    "shared_buffers=1GB",
    "work_mem=1GB",
    "maintenance_work_mem=512MB",
    "max_wal_size=8GB",
    "max_parallel_workers_per_gather=8",
    "min_parallel_table_scan_size=0",
];
const TOTALS: &str =
    "CREATE UNLOGGED TABLE totals AS SELECT actor, sum(quantity)::numeric AS score FROM usage GROUP BY actor;";
const PAID: &str = "
    CREATE UNLOGGED TABLE paid AS
    WITH whole AS (SELECT sum(score) AS score FROM totals),
    shares AS (
        SELECT actor, div(POOL * totals.score, whole.score) AS share, mod(POOL * totals.score, whole.score) AS rest
        FROM totals, whole
    ),
    missing AS (SELECT POOL - sum(share) AS units FROM shares),
    ranked AS (SELECT actor, share, row_number() OVER (ORDER BY rest DESC, actor) AS place FROM shares)
    SELECT actor, share + CASE WHEN place <= units THEN 1 ELSE 0 END AS amount FROM ranked, missing;";
const NOW: &str = "SELECT extract(epoch FROM clock_timestamp());";

/// A server with the rows of one epoch at a time.
pub struct PostgresPeer {
    server: Postgres,
    psql: PathBuf,
    /// The epoch whose rows are in the table.
    loaded: RefCell<Option<Epoch>>,
}

impl std::fmt::Debug for PostgresPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresPeer").field("address", &self.server.address).finish_non_exhaustive()
    }
}

impl PostgresPeer {
    /// Starts a server whose data is in this folder.
    pub fn start(folder: &Path) -> anyhow::Result<PostgresPeer> {
        let psql = Postgres::program().context("PostgreSQL is not installed")?.with_file_name("psql");
        let settings = SETTINGS.map(str::to_owned).to_vec();
        let server = Postgres::start_in(folder, &PostgresStart { settings, identity: None })?;
        Ok(PostgresPeer { server, psql, loaded: RefCell::new(None) })
    }

    /// Version of the server.
    pub fn version(&self) -> anyhow::Result<String> {
        let told = self.ask("SHOW server_version;")?;
        Ok(told.split_whitespace().next().unwrap_or_default().to_owned())
    }

    /// Does the job once. The rows are put into the table before, which is not measured.
    pub fn run(&self, job: Job, epoch: Epoch, folder: &Path) -> anyhow::Result<Sample> {
        self.load(epoch, folder)?;
        let (more, table, column) = match job {
            Job::Aggregate => (String::new(), "totals", "score"),
            _ => (PAID.replace("POOL", &POOL.to_string()), "paid", "amount"),
        };
        self.ask("DROP TABLE IF EXISTS totals, paid; CHECKPOINT;")?;
        let sums = format!("SELECT count(*), sum({column}) FROM {table};");
        let told = self.ask(&[NOW, TOTALS, &more, NOW, &sums].join("\n"))?;
        let lines: Vec<&str> = told.lines().collect();
        let [begin, end, sums] = lines[..] else { anyhow::bail!("psql said {told:?}") };
        let (actors, sum) = sums.split_once('|').context("two columns")?;
        let seconds = end.parse::<f64>()? - begin.parse::<f64>()?;
        // Its memory is that of many processes which share most of it.
        Ok(Sample { seconds, actors: actors.parse()?, sum: sum.to_owned(), peak_mib: 0.0, booking_peak_mib: 0.0 })
    }

    fn load(&self, epoch: Epoch, folder: &Path) -> anyhow::Result<()> {
        if *self.loaded.borrow() == Some(epoch) {
            return Ok(());
        }
        let file = folder.join("usage.csv");
        data::write_csv(epoch, std::fs::File::create(&file)?)?;
        let make =
            "DROP TABLE IF EXISTS usage; CREATE UNLOGGED TABLE usage (actor text COLLATE \"C\", quantity bigint);";
        let copy = format!("\\copy usage FROM '{}' WITH (FORMAT csv, HEADER)", file.display());
        self.ask(&format!("{make}\n{copy}\nVACUUM ANALYZE usage;"))?;
        std::fs::remove_file(&file)?;
        *self.loaded.borrow_mut() = Some(epoch);
        Ok(())
    }

    /// What psql prints, line by line, columns divided by a bar.
    fn ask(&self, text: &str) -> anyhow::Result<String> {
        let mut command = Command::new(&self.psql);
        command.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", &self.server.over_tcp(), "-f", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("stdin is a pipe")?.write_all(text.as_bytes())?;
        let output = child.wait_with_output()?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        anyhow::ensure!(output.status.success(), "psql: {}", said(&output.stderr));
        Ok(said(&output.stdout))
    }
}
