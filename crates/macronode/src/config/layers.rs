//! Loading: defaults, then the file, then the environment, then the flags; each value remembers its layer.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ron_types::settings::ValueKind;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::error::{ConfigError, ConfigErrors, Origin, Setting};
use super::keys::{Key, keys, sections};
use super::kind::{Checks as _, Fault};
use super::nearest::nearest;
use super::rules;
use super::{Config, PERMITS_SECTION, Permits, SectionValue};
use crate::services;

/// The file that is read when none is named, if it exists.
pub const FILE_DEFAULT: &str = "macronode.toml";

/// Variables of the tests and tools, which are not configuration.
const ENV_IGNORED: [&str; 3] = ["MACRO_SOAK", "MACRO_DOCGEN", "MACRO_TOKEN"];
const ENV_IGNORED_PREFIX: &str = "MACRO_TEST_";
/// The variable that the family of nodes this one belongs to has in common, without a prefix, and its key here.
const ENV_SHARED: (&str, &str) = ("AMNESIA", "amnesia");

/// From where a configuration is loaded; kept, so that a reload can load again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sources {
    /// Path of the configuration file, if any.
    pub file: Option<PathBuf>,
    /// Whether the operator named the file: then it must exist.
    pub explicit_file: bool,
    /// The environment; variables that do not begin with `MACRO_` are ignored.
    pub env: Vec<(String, String)>,
    /// Values of the command line flags, in the shape of the file.
    pub flags: Table,
}

/// Sources of all values that are not defaults, by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origins(pub BTreeMap<String, Origin>);

/// A configuration that passed every check.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Effective values.
    pub config: Config,
    /// Source of each value.
    pub origins: Origins,
    /// Path of the file that was read, if any.
    pub file: Option<PathBuf>,
    /// What was read.
    pub reading: Reading,
}

impl Origins {
    /// Source of the value of a key.
    pub fn of(&self, key: &str) -> Origin {
        self.0.get(key).cloned().unwrap_or_default()
    }
}

/// The configuration file at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Its whole text.
    Text(String),
    /// There is none, in the words of the system.
    Missing(String),
    /// It is there and cannot be read, with the cause.
    Unreadable(String),
}

impl Reading {
    /// Whether it says nothing at all: as every file does between being cut short and being written.
    pub fn is_blank(&self) -> bool {
        match self {
            Reading::Text(text) => text.trim().is_empty(),
            Reading::Missing(_) => true,
            Reading::Unreadable(_) => false,
        }
    }
}

impl Sources {
    /// The file as it is now.
    pub fn read(&self) -> Reading {
        let Some(path) = &self.file else { return Reading::Missing(String::new()) };
        match std::fs::read_to_string(path) {
            Ok(text) => Reading::Text(text),
            Err(error) if error.kind() == ErrorKind::NotFound => Reading::Missing(error.to_string()),
            Err(error) => Reading::Unreadable(error.to_string()),
        }
    }

    /// The usual sources: the named file or `./macronode.toml`, the environment of this process, and these flags.
    pub fn of_process(file: Option<PathBuf>, flags: Table) -> Self {
        let explicit_file = file.is_some();
        let file = Some(file.unwrap_or_else(|| PathBuf::from(FILE_DEFAULT)));
        let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        let env = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        Sources { file, explicit_file, env: env.filter(|(name, _)| is_ours(name)).collect(), flags }
    }
}

/// Loads, checks everything, and reports all problems at once.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigErrors> {
    load_read(sources, &sources.read())
}

/// The same, with a file that was read before.
pub fn load_read(sources: &Sources, reading: &Reading) -> Result<Loaded, ConfigErrors> {
    let mut layers = Layers::default();
    let file = layers.add_file(sources, reading);
    layers.add_env(&sources.env);
    layers.add_flags(&sources.flags);
    layers.finish(file, reading)
}

/// Values of the layers read so far, and their mistakes.
#[derive(Default)]
struct Layers {
    merged: Table,
    origins: Origins,
    errors: Vec<ConfigError>,
}

impl Layers {
    /// Adds the file; returns its path if it was read.
    fn add_file(&mut self, sources: &Sources, reading: &Reading) -> Option<PathBuf> {
        let path = sources.file.as_ref()?;
        match reading {
            Reading::Text(text) => {
                self.add_file_text(path, text);
                Some(path.clone())
            }
            Reading::Missing(_) if !sources.explicit_file => None,
            Reading::Missing(cause) | Reading::Unreadable(cause) => {
                self.errors.push(ConfigError::Unreadable { path: path.clone(), cause: cause.clone() });
                None
            }
        }
    }

    fn add_file_text(&mut self, path: &Path, text: &str) {
        let parsed = text.parse::<Table>().and_then(|table| Ok((table, DeTable::parse(text)?)));
        let (table, spans) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                let line = error.span().map(|span| line_of(text, span.start));
                let place = Origin::File { path: path.to_owned(), line };
                self.errors.push(ConfigError::Syntax { place, cause: error.message().to_owned() });
                return;
            }
        };
        let mut lines = BTreeMap::new();
        note_lines("", spans.get_ref(), text, &mut lines);
        self.add_table(&table, &|name| {
            let line = lines.get(name).copied();
            Origin::File { path: path.to_owned(), line }
        });
    }

    fn add_env(&mut self, env: &[(String, String)]) {
        let ignored = |name: &str| ENV_IGNORED.contains(&name) || name.starts_with(ENV_IGNORED_PREFIX);
        let (shared, shared_key) = ENV_SHARED;
        // The shared name first: the node's own says more.
        let (all, own) =
            env.iter().filter(|(name, _)| is_ours(name)).partition::<Vec<_>, _>(|(name, _)| name == shared);
        for (name, text) in all.into_iter().chain(own).filter(|(name, _)| !ignored(name)) {
            let origin = Origin::Env(name.clone());
            let is_meant = |key: &&Key| key.env_name() == *name || name == shared && key.path == shared_key;
            match keys().iter().find(is_meant) {
                Some(key) => self.set(key, key.kind.read_text(text), origin),
                None => {
                    let known: Vec<String> = keys().iter().map(Key::env_name).collect();
                    let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
                    self.errors.push(ConfigError::Unknown { what: "variable", name: name.clone(), origin, nearest });
                }
            }
        }
    }

    fn add_flags(&mut self, flags: &Table) {
        self.add_table(flags, &|name| {
            let flag = Key::find(name).and_then(|key| key.flag.as_deref()).unwrap_or(name);
            Origin::Flag(flag.to_owned())
        });
    }

    fn add_table(&mut self, table: &Table, origin: &dyn Fn(&str) -> Origin) {
        for (name, value) in table {
            match value {
                Value::Table(section) if sections().contains(name) => {
                    for (inner, value) in section {
                        self.add_value(&format!("{name}.{inner}"), value, origin);
                    }
                }
                _ => self.add_value(name, value, origin),
            }
        }
    }

    fn add_value(&mut self, name: &str, value: &Value, origin: &dyn Fn(&str) -> Origin) {
        if let Some(key) = Key::find(name) {
            return self.set(key, value.clone(), origin(name));
        }
        let origin = origin(name);
        self.errors.push(if sections().iter().any(|section| section == name) {
            let setting = Setting { key: name.to_owned(), value: value.to_string(), origin };
            let allowed = format!("a heading [{name}] with its keys on the lines below");
            ConfigError::WrongType { setting, noun: "a section", allowed }
        } else if value.is_table() {
            let nearest = nearest(name, sections().iter().map(String::as_str)).map(str::to_owned);
            ConfigError::Unknown { what: "section", name: name.to_owned(), origin, nearest }
        } else {
            let nearest = nearest_key(name).map(str::to_owned);
            ConfigError::Unknown { what: "key", name: name.to_owned(), origin, nearest }
        });
    }

    fn set(&mut self, key: &Key, value: Value, origin: Origin) {
        match key.kind.check(&value) {
            Ok(()) => {
                self.origins.0.insert(key.path.clone(), origin);
                key.put(&mut self.merged, value);
            }
            Err(fault) => self.errors.push(refusal(key, &value, origin, fault)),
        }
    }

    fn finish(mut self, file: Option<PathBuf>, reading: &Reading) -> Result<Loaded, ConfigErrors> {
        let config = match compose(self.merged.clone()) {
            Ok(config) => config,
            Err(error) => {
                let place = Origin::File { path: file.unwrap_or_default(), line: None };
                self.errors.push(ConfigError::Syntax { place, cause: error.to_string() });
                return Err(ConfigErrors(self.errors));
            }
        };
        // A rule that looks at a value already refused would only repeat the complaint.
        let refused = |key: &str| self.errors.iter().any(|error| error.keys().contains(&key));
        let broken = rules::broken(&config, &self.origins);
        let broken: Vec<ConfigError> =
            broken.into_iter().filter(|error| !error.keys().iter().any(|key| refused(key))).collect();
        self.errors.extend(broken);
        match self.errors.is_empty() {
            true => Ok(Loaded { config, origins: self.origins, file, reading: reading.clone() }),
            false => Err(ConfigErrors(self.errors)),
        }
    }
}

/// The node's own part of the table as one type, and each section of a service as the type of its owner.
pub(super) fn compose(mut merged: Table) -> Result<Config, toml::de::Error> {
    let take = |merged: &mut Table, name: &str| match merged.remove(name) {
        Some(Value::Table(section)) => section,
        _ => Table::new(),
    };
    let mut sections: BTreeMap<&'static str, SectionValue> = BTreeMap::new();
    for section in services::sections() {
        sections.insert(section.name, (section.read)(take(&mut merged, section.name))?);
    }
    let permits: BTreeMap<String, Permits> = take(&mut merged, PERMITS_SECTION).try_into()?;
    let mut config: Config = merged.try_into()?;
    config.permits.extend(permits);
    Ok(Config { sections, ..config })
}

fn refusal(key: &Key, value: &Value, origin: Origin, fault: Fault) -> ConfigError {
    let setting = Setting { key: key.path.clone(), value: value.to_string(), origin };
    let allowed = key.kind.allowed();
    match fault {
        Fault::WrongType => ConfigError::WrongType { setting, noun: key.kind.noun(), allowed },
        Fault::OutOfRange => ConfigError::OutOfRange { setting, allowed, nearest: nearest_word(&key.kind, value) },
    }
}

/// Whether a variable of the environment concerns this node.
fn is_ours(name: &str) -> bool {
    name.starts_with("MACRO_") || name == ENV_SHARED.0
}

/// The word that was probably meant, for kinds that take words.
fn nearest_word(kind: &ValueKind, value: &Value) -> Option<String> {
    let known = match kind {
        ValueKind::Choice(words) | ValueKind::Names(words) => words,
        _ => return None,
    };
    let list = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
    let stranger = list.iter().filter_map(Value::as_str).find(|word| !known.iter().any(|known| known == word))?;
    nearest(stranger, known.iter().map(String::as_str)).map(str::to_owned)
}

/// A key spelled nearly like this one, or a key of the same name in another section.
fn nearest_key(name: &str) -> Option<&'static str> {
    let last = name.rsplit('.').next().unwrap_or(name);
    let elsewhere = keys().iter().find(|key| key.name() == last);
    elsewhere.map(|key| key.path.as_str()).or_else(|| nearest(name, keys().iter().map(|key| key.path.as_str())))
}

/// Notes the line of every key, by its path.
fn note_lines(prefix: &str, table: &DeTable<'_>, text: &str, lines: &mut BTreeMap<String, usize>) {
    for (name, value) in table {
        let path = if prefix.is_empty() { name.get_ref().to_string() } else { format!("{prefix}.{}", name.get_ref()) };
        lines.insert(path.clone(), line_of(text, name.span().start));
        if let DeValue::Table(inner) = value.get_ref() {
            note_lines(&path, inner, text, lines);
        }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}
