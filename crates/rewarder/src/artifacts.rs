//! The files of a run: written under temporary names, synced, renamed, and the manifest last.

mod leftovers;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use rayon::prelude::*;
use ron_calculus::{AssetAllocation, Roster};
use ron_log::{Disk, DiskFile};

pub use leftovers::{foreign_file, remove_leftovers};

use crate::canonical::to_canonical;
use crate::correct::write_paid;
use crate::envelope::Envelope;
use crate::hashing::b3;
use crate::intents::Intents;
use crate::job::{Computed, RunError, Stage, Watch};
use crate::manifest::{FORMAT_WITH_NAMES, InputFacts, Manifest, PolicyFacts, RunStatus, commitment};
use crate::policy_document::PolicyDocumentError;

/// The manifest; where it is, the run is whole.
pub const MANIFEST: &str = "run.json";
/// Hash of the manifest's bytes, as `b3:` and hexadecimal digits.
pub const COMMITMENT: &str = "commitment";
/// Canonical JSON of the policy in force.
pub const POLICY: &str = "policy.json";
/// The envelope that the policy came in, as canonical JSON; byte for byte in runs of the first format.
pub const ENVELOPE: &str = "policy.dsse.json";
/// The usage, added up.
pub const USAGE: &str = "usage.parquet";
/// A line for each actor and asset.
pub const ALLOCATIONS_NDJSON: &str = "allocations.ndjson";
/// The same as a table.
pub const ALLOCATIONS_PARQUET: &str = "allocations.parquet";
/// What was paid before a correction.
pub const PAID: &str = "paid.ndjson";
/// The manifest of the run that a correction corrects, byte for byte.
pub const CORRECTED: &str = "corrected.json";

/// Names that the inputs had: beside the run and not part of it, so that a commitment follows from content alone.
pub const INPUT_NAMES: &str = "inputs.json";

/// Signatures under a correction: beside the run and not part of it, since what they are under is its commitment.
pub const SIGNATURES: &str = "correction.dsse.json";

/// Every file that a run may have.
pub const ALL: [&str; 10] = [
    MANIFEST,
    COMMITMENT,
    POLICY,
    ENVELOPE,
    USAGE,
    ALLOCATIONS_NDJSON,
    ALLOCATIONS_PARQUET,
    PAID,
    CORRECTED,
    INPUT_NAMES,
];

/// Beginning of the names of files that are not whole yet.
pub const TEMPORARY: &str = "tmp-";
/// Bytes gathered for one write.
const BUFFER_BYTES: usize = 1 << 20;
/// Actors whose lines one thread writes in one go.
const CHUNK_ACTORS: usize = 4096;

/// A run that is written.
#[derive(Clone, Debug)]
pub struct Seal {
    /// The manifest.
    pub manifest: Manifest,
    /// Bytes of `run.json`.
    pub bytes: Vec<u8>,
    /// Hash of them.
    pub commitment: [u8; 32],
}

/// Writes every file of a run to a folder. A crash at any moment leaves either no manifest or a whole run.
pub fn write(computed: &Computed, disk: &dyn Disk, threads: usize, watch: &dyn Watch) -> Result<Seal, RunError> {
    let mut sink = DiskSink { disk, written: Vec::new() };
    let seal = seal(computed, threads, watch, &mut sink)?;
    sink.put(COMMITMENT, &mut |to| to.write_all(&leftovers::commitment_text(&seal.bytes)))?;
    if let Some(names) = input_names(computed)? {
        sink.put(INPUT_NAMES, &mut |to| to.write_all(&names))?;
    }
    sink.put(MANIFEST, &mut |to| to.write_all(&seal.bytes))?;
    // Whoever finds a file of the run finds the manifest that it belongs to, unfinished or not.
    disk.sync_dir()?;
    // The manifest is the last name to appear, and only after all others are sure to stay.
    let reveal = |name: &str| disk.rename(&format!("{TEMPORARY}{name}"), name);
    let artifacts = sink.written.iter().filter(|name| *name != MANIFEST);
    artifacts.map(String::as_str).try_for_each(reveal)?;
    disk.sync_dir()?;
    reveal(MANIFEST)?;
    disk.sync_dir()?;
    Ok(seal)
}

/// Keeps the signatures under a correction beside it, once the run is written.
pub fn write_signatures(signatures: &[u8], disk: &dyn Disk) -> io::Result<()> {
    let mut sink = DiskSink { disk, written: Vec::new() };
    sink.put(SIGNATURES, &mut |to| to.write_all(signatures))?;
    disk.rename(&format!("{TEMPORARY}{SIGNATURES}"), SIGNATURES)?;
    disk.sync_dir()
}

/// Canonical JSON of the inputs that have a name of their own; none if all are known by their hashes.
fn input_names(computed: &Computed) -> Result<Option<Vec<u8>>, RunError> {
    let is_named = |facts: &&InputFacts| facts.name.as_ref().is_some_and(|name| *name != facts.b3);
    let named: Vec<&InputFacts> = computed.basis.inputs.iter().filter(is_named).collect();
    let has_them_inside = computed.basis.format == FORMAT_WITH_NAMES;
    if named.is_empty() || has_them_inside { Ok(None) } else { Ok(Some(to_canonical(&named)?)) }
}

/// The seal that a run would have, with nothing written: for those who recompute it.
pub fn seal_of(computed: &Computed, threads: usize, watch: &dyn Watch) -> Result<Seal, RunError> {
    seal(computed, threads, watch, &mut HashSink)
}

fn seal(computed: &Computed, threads: usize, watch: &dyn Watch, sink: &mut dyn Sink) -> Result<Seal, RunError> {
    let artifacts = put_all(computed, threads, watch, sink)?;
    let manifest = manifest_of(computed, artifacts);
    let bytes = manifest.to_bytes()?;
    let commitment = commitment(&bytes);
    Ok(Seal { manifest, bytes, commitment })
}

/// Where artifacts go.
trait Sink {
    /// Takes one file; gives the hash of its bytes.
    fn put(&mut self, name: &str, content: &mut Content<'_>) -> io::Result<[u8; 32]>;
}

/// Writes the content of one file.
type Content<'a> = dyn FnMut(&mut (dyn Write + Send)) -> io::Result<()> + 'a;

fn put_all(
    computed: &Computed,
    threads: usize,
    watch: &dyn Watch,
    sink: &mut dyn Sink,
) -> Result<BTreeMap<String, String>, RunError> {
    let basis = &computed.basis;
    let (roster, paying) = computed.paying();
    let is_paying = computed.outcome.is_ok();
    let corrected = computed.outcome.as_ref().ok().and_then(|payouts| payouts.corrected.as_ref());
    let mut artifacts = BTreeMap::new();
    let mut put = |name: &str, content: &mut Content<'_>| -> Result<(), RunError> {
        // Eight files at most; which of them there are is not worth counting ahead.
        if !watch.at(Stage::Writing, artifacts.len() as u64, 8) {
            return Err(RunError::Stopped);
        }
        artifacts.insert(name.to_owned(), b3(&sink.put(name, content)?));
        Ok(())
    };
    put(POLICY, &mut |to| to.write_all(&computed.policy_bytes))?;
    if let Some(envelope) = &basis.document.envelope {
        // The same policy comes with other spaces from a file than within a request.
        let canonical = match basis.format {
            FORMAT_WITH_NAMES => envelope.clone(),
            _ => to_canonical(&Envelope::parse(envelope).map_err(PolicyDocumentError::Envelope)?)?,
        };
        put(ENVELOPE, &mut |to| to.write_all(&canonical))?;
    }
    put(USAGE, &mut |to| ron_usage::write_totals(&basis.totals, to))?;
    if is_paying {
        let lines = Lines { roster, paying, take_back: corrected.map_or(&[], |corrected| &corrected.take_back) };
        put(ALLOCATIONS_NDJSON, &mut |to| lines.write(threads, to))?;
        put(ALLOCATIONS_PARQUET, &mut |to| ron_usage::write_allocations(roster, paying, to))?;
    }
    if let Some(correction) = &basis.correction {
        put(PAID, &mut |to| write_paid(correction, to))?;
        if let Some(manifest) = &correction.manifest {
            put(CORRECTED, &mut |to| to.write_all(manifest))?;
        }
    }
    Ok(artifacts)
}

fn manifest_of(computed: &Computed, artifacts: BTreeMap<String, String>) -> Manifest {
    let basis = &computed.basis;
    let outcome = computed.outcome.as_ref();
    let corrects = basis.correction.as_ref().map(|correction| {
        let corrected = outcome.ok().and_then(|payouts| payouts.corrected.as_ref());
        let assets = corrected.map(|corrected| corrected.facts.clone()).unwrap_or_default();
        crate::manifest::CorrectsFacts { assets, ..correction.facts() }
    });
    Manifest {
        format: basis.format,
        epoch: basis.epoch.clone(),
        run_key: b3(&computed.run_key),
        status: if outcome.is_ok() { RunStatus::Computed } else { RunStatus::Quarantined },
        reason: outcome.err().map(ToString::to_string),
        ruleset: basis.policy.ruleset,
        policy: PolicyFacts {
            id: basis.policy.id.clone(),
            hash: b3(&computed.policy_hash),
            signed: !basis.document.signers.is_empty(),
            signers: basis.document.signers.clone(),
            pools_overridden: basis.pools.clone(),
        },
        inputs: match basis.format {
            FORMAT_WITH_NAMES => basis.inputs.clone(),
            _ => basis.inputs.iter().map(InputFacts::nameless).collect(),
        },
        content: b3(&computed.content),
        rows: basis.rows,
        actors: basis.totals.roster().len() as u64,
        carry: basis.carry.clone(),
        carry_from: basis.carry_from.clone(),
        assets: outcome.map(|payouts| payouts.facts.clone()).unwrap_or_default(),
        artifacts,
        intents: Intents::of(computed).facts(),
        corrects,
        proof: None,
    }
}

/// The lines of `allocations.ndjson`.
struct Lines<'a> {
    roster: &'a Roster,
    paying: &'a [AssetAllocation],
    /// Units taken back, by asset and actor; empty unless the run is a correction.
    take_back: &'a [Vec<u128>],
}

impl Lines<'_> {
    /// Writes all lines; threads make pieces at the same time, which leave in order.
    fn write(&self, threads: usize, to: &mut (dyn Write + Send)) -> io::Result<()> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build().map_err(io::Error::other)?;
        let assets = self.paying.iter().map(|allocation| serde_json::to_string(&allocation.asset));
        let assets = assets.collect::<Result<Vec<String>, _>>()?;
        let chunks = self.roster.len().div_ceil(CHUNK_ACTORS);
        // As many pieces at once as keep all threads busy: memory stays bounded however long the roster is.
        let at_once = 4 * threads.max(1);
        for first in (0..chunks).step_by(at_once) {
            let range = first..chunks.min(first + at_once);
            let pieces: Vec<io::Result<Vec<u8>>> =
                pool.install(|| range.into_par_iter().map(|chunk| self.chunk(chunk, &assets)).collect());
            for piece in pieces {
                to.write_all(&piece?)?;
            }
        }
        Ok(())
    }

    fn chunk(&self, chunk: usize, assets: &[String]) -> io::Result<Vec<u8>> {
        let end = self.roster.len().min((chunk + 1) * CHUNK_ACTORS);
        let mut text = Vec::with_capacity(64 * CHUNK_ACTORS);
        for index in chunk * CHUNK_ACTORS..end {
            let actor = serde_json::to_string(self.roster.get(index))?;
            for (place, (allocation, asset)) in self.paying.iter().zip(assets).enumerate() {
                let amount = allocation.amounts[index];
                write!(text, "{{\"actor\":{actor},\"asset\":{asset},\"amount\":\"{amount}\"")?;
                if let Some(take_back) = self.take_back.get(place).map(|take_back| take_back[index]) {
                    write!(text, ",\"take_back\":\"{take_back}\"")?;
                }
                text.extend_from_slice(b"}\n");
            }
        }
        Ok(text)
    }
}

/// Hashes and forgets.
struct HashSink;

impl Sink for HashSink {
    fn put(&mut self, _name: &str, content: &mut Content<'_>) -> io::Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        let mut buffered = io::BufWriter::with_capacity(BUFFER_BYTES, &mut hasher);
        content(&mut buffered)?;
        buffered.flush()?;
        drop(buffered);
        Ok(*hasher.finalize().as_bytes())
    }
}

/// Writes files under temporary names, and syncs each.
struct DiskSink<'a> {
    disk: &'a dyn Disk,
    /// Names without the temporary beginning, in order.
    written: Vec<String>,
}

impl Sink for DiskSink<'_> {
    fn put(&mut self, name: &str, content: &mut Content<'_>) -> io::Result<[u8; 32]> {
        let file = self.disk.create(&format!("{TEMPORARY}{name}"))?;
        let mut hashing = HashingFile { file, offset: 0, hasher: blake3::Hasher::new() };
        let mut buffered = io::BufWriter::with_capacity(BUFFER_BYTES, &mut hashing);
        content(&mut buffered)?;
        buffered.flush()?;
        drop(buffered);
        hashing.file.sync()?;
        self.written.push(name.to_owned());
        Ok(*hashing.hasher.finalize().as_bytes())
    }
}

/// Appends to a file and hashes on the way.
struct HashingFile {
    file: Arc<dyn DiskFile>,
    offset: u64,
    hasher: blake3::Hasher,
}

impl Write for HashingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(self.offset, bytes)?;
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
