//! `reward policy`: policies are made, signed and checked with files alone.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use svc_rewarder::envelope::Envelope;
use svc_rewarder::hashing::b3;
use svc_rewarder::policy_document::canonical_policy;
use svc_rewarder::{PolicyDocument, PublicKey, SigningKey, Trust, TrustedKeys};

use super::args::{CheckArgs, KeyArgs, NewPolicyArgs, PolicyCommand, SignArgs};
use super::folders::{document, one_line, refused, replace, trusted_keys, write_new};
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::errors::Failure;

/// Carries out a `policy` command.
pub fn policy(command: &PolicyCommand) -> Result<Report, Failure> {
    match command {
        PolicyCommand::New(args) => new(args),
        PolicyCommand::Sign(args) => sign(args),
        PolicyCommand::Check(args) => check(args),
        PolicyCommand::Key(args) => key(args),
    }
}

fn new(args: &NewPolicyArgs) -> Result<Report, Failure> {
    let mut weights: BTreeMap<&str, &str> =
        args.weights.iter().map(|(metric, weight)| (metric.as_str(), weight.as_str())).collect();
    if weights.is_empty() {
        weights.insert("usage", "1");
    }
    let asset = json!({"asset": args.asset, "pool": args.pool, "weights": weights});
    let text = format!("{:#}\n", json!({"id": args.id, "ruleset": 1, "assets": [asset]}));
    PolicyDocument::draft(text.as_bytes()).map_err(|error| refused(error.to_string()))?;
    put(args.out.as_deref(), None, &text, "the policy")
}

fn sign(args: &SignArgs) -> Result<Report, Failure> {
    let bytes = document(&args.file, "policy")?;
    let told = |error: &dyn std::fmt::Display| refused(format!("the policy {}: {error}", args.file.display()));
    // What is not a policy is not signed, by mistake or otherwise.
    PolicyDocument::draft(&bytes).map_err(|error| told(&error))?;
    let key = read_key(&args.key)?;
    let mut envelope = if Envelope::is_one(&bytes) {
        Envelope::parse(&bytes).map_err(|error| told(&error))?
    } else {
        Envelope::around(&bytes)
    };
    envelope.sign(&key).map_err(|error| told(&error))?;
    put(args.out.as_deref(), Some(&args.file), &envelope.to_text(), "the signed policy")
}

fn check(args: &CheckArgs) -> Result<Report, Failure> {
    let bytes = document(&args.file, "policy")?;
    let told = |error: &dyn std::fmt::Display| refused(format!("the policy {}: {error}", args.file.display()));
    let is_signed = Envelope::is_one(&bytes);
    let (checked, signers) = match (&args.keys, is_signed) {
        (Some(path), _) => {
            let keys = trusted_keys(path)?;
            let trust = Trust { keys: Some(&keys), allows_unsigned: false };
            let read = PolicyDocument::read(&bytes, trust).map_err(|error| told(&error))?;
            let signers = read.signers.clone();
            (read, Some(signers))
        }
        (None, _) => (PolicyDocument::draft(&bytes).map_err(|error| told(&error))?, None),
    };
    let hash = b3(&canonical_policy(&checked.policy).map_err(|error| told(&error))?.1);
    if args.json {
        let body = json!({
            "id": checked.policy.id, "ruleset": checked.policy.ruleset, "hash": hash,
            "in_envelope": is_signed, "signers": signers,
        });
        return Ok(Report::clean(format!("{body}\n")));
    }
    let mut rows = vec![row(["policy", &one_line(&checked.policy.id)]), row(["hash", &hash])];
    for asset in &checked.policy.assets {
        let pool = asset.pool.map_or_else(|| "given with the run".to_owned(), |pool| pool.to_string());
        rows.push(row(["pool", &format!("{} {pool}", one_line(&asset.asset))]));
    }
    rows.extend(signers.iter().flatten().map(|key: &PublicKey| row(["signed by", &key.to_string()])));
    let verdict = match (&signers, is_signed) {
        (Some(signers), _) => format!("ok: a policy that {} trusted keys have signed", signers.len()),
        (None, true) => {
            "ok: a policy in an envelope; its signatures were not checked, for that takes --keys".to_owned()
        }
        (None, false) => "ok: a policy that nobody has signed".to_owned(),
    };
    Ok(Report::clean(format!("{}\n{verdict}\n", table(0, &rows))))
}

fn key(args: &KeyArgs) -> Result<Report, Failure> {
    let is_new = !args.file.exists();
    let key = if is_new { make_key(&args.file)? } else { read_key(&args.file)? };
    let public = key.public();
    if let Some(path) = &args.trust {
        trust(path, public)?;
    }
    if args.json {
        let body: Value = json!({"public": public, "keyid": public.id(), "new": is_new});
        return Ok(Report::clean(format!("{body}\n")));
    }
    Ok(Report::clean(format!("{public}\n")))
}

fn make_key(path: &Path) -> Result<SigningKey, Failure> {
    let made = SigningKey::generate().and_then(|key| key.write(path).map(|()| key));
    made.map_err(|error| refused(format!("cannot make the key {}: {error}", path.display())))
}

/// A private key in a file.
pub fn read_key(path: &Path) -> Result<SigningKey, Failure> {
    SigningKey::read(path).map_err(|error| refused(format!("cannot read the key {}: {error}", path.display())))
}

/// Adds a key to a list; the threshold stays as it is.
fn trust(path: &Path, key: PublicKey) -> Result<(), Failure> {
    let mut trusted = TrustedKeys { threshold: 1, keys: Vec::new() };
    if path.exists() {
        trusted = trusted_keys(path)?;
    }
    if !trusted.keys.contains(&key) {
        trusted.keys.push(key);
    }
    let text = serde_json::to_string_pretty(&trusted).unwrap_or_default() + "\n";
    put_again(path, &text, "the list of keys").map(drop)
}

/// Writes a text to a new file, or to standard output. A file that is there with another content is the user's, unless
/// it is the very one that the text was made from.
fn put(path: Option<&Path>, made_from: Option<&Path>, text: &str, what: &str) -> Result<Report, Failure> {
    let Some(path) = path else { return Ok(Report::clean(text)) };
    let same_file = |other: &Path| Ok::<_, std::io::Error>(other.canonicalize()? == path.canonicalize()?);
    let is_own = made_from.is_some_and(|other| same_file(other).unwrap_or(false));
    let written = if is_own { replace(path, text) } else { write_new(path, text) };
    told(path, written, what)
}

/// Writes a text in the place of a file that is known to be the command's own.
pub fn put_again(path: &Path, text: &str, what: &str) -> Result<Report, Failure> {
    told(path, replace(path, text), what)
}

fn told(path: &Path, written: std::io::Result<()>, what: &str) -> Result<Report, Failure> {
    written.map_err(|error| refused(format!("cannot write {what} {}: {error}", path.display())))?;
    Ok(Report::clean(format!("{what} is in {}\n", path.display())))
}
