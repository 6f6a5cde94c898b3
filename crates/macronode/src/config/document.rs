//! The configuration described: as JSON schema, and as the tables of docs/config.md.

use std::fmt::Write as _;

use ron_types::settings::{SCHEMA_PROPERTY, ValueKind};
use serde_json::{Value, json};

use super::Config;
use super::keys::{Key, declared_schema, keys, sections};
use super::kind::Checks as _;

/// The JSON schema of the file; `x-reload` says what a change of a key takes, `x-env` names its variable.
pub fn schema() -> Value {
    let mut schema = declared_schema();
    for key in keys() {
        let Some(property) = schema.pointer_mut(&pointer(key)).and_then(Value::as_object_mut) else { continue };
        property.remove(SCHEMA_PROPERTY);
        property.insert("x-reload".to_owned(), Value::String(key.reload.words()));
        property.insert("x-env".to_owned(), Value::String(key.env_name()));
        property.insert("x-allowed".to_owned(), Value::String(key.kind.allowed()));
        property.remove("format");
        for (word, bound) in bounds(&key.kind) {
            property.insert(word.to_owned(), bound);
        }
    }
    schema
}

/// The text of docs/config.md. It is the same on every machine.
pub fn markdown() -> String {
    let schema = schema();
    let defaults = Config::default().to_table();
    let mut text = String::from(INTRODUCTION);
    for section in sections() {
        let (title, about) = match section.as_str() {
            "" => ("Top of the file".to_owned(), "Before the first section."),
            section => (format!("[{section}]"), described(&schema, &format!("/properties/{section}"))),
        };
        let _ = write!(text, "\n## {title}\n\n{about}\n\n{TABLE_HEAD}");
        for key in keys().iter().filter(|key| key.section() == section) {
            let default = match (&key.kind, key.value_in(&defaults)) {
                (ValueKind::WholeOrAuto { auto, .. }, _) => format!("0: {auto}"),
                (_, Some(value)) => format!("`{value}`"),
                (_, None) => "not set".to_owned(),
            };
            let cells = [
                format!("`{}`", key.path),
                format!("`{}`", key.env_name()),
                key.kind.noun().to_owned(),
                default,
                key.kind.allowed(),
                key.reload.words(),
                described(&schema, &pointer(key)).to_owned(),
            ];
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
    text
}

const INTRODUCTION: &str = "\
# Configuration

This page is generated from the code: a key is stated once, in the Options type of its owner.

A value is taken from the first of these that has it: a flag, the environment, the file, the default. The file is the one
named by `--config`, else `macronode.toml` in the working directory if there is one. `macronode config print --sources`
shows where each value came from, `macronode config validate FILE` checks a file, `macronode config schema` prints the
JSON schema for editors.

In the environment, lists are written with commas and switches as `1` or `0`. `AMNESIA=1`, the name that nodes of this family
share, is `MACRO_AMNESIA=1`. A key or variable that is not known is an error. Durations are written like `\"5s\"`, `\"150ms\"` or
`\"2m\"`, sizes as a number of bytes or like `\"4MiB\"`.

A file that has changed is taken up once it was read twice alike, a second apart: one that is still being written changes
nothing. One that is empty or gone and was not before is refused; SIGHUP and `POST /reload` read at once.

On a reload, a key marked *live* has effect at once, *restarts X* restarts just that service, and *needs a process
restart* is reported and keeps its old value until the process is started anew.
";

const TABLE_HEAD: &str = "\
| key | variable | type | default | allowed | on reload | meaning |
|---|---|---|---|---|---|---|
";

fn pointer(key: &Key) -> String {
    match key.section() {
        "" => format!("/properties/{}", key.path),
        section => format!("/properties/{section}/properties/{}", key.name()),
    }
}

fn described<'a>(schema: &'a Value, pointer: &str) -> &'a str {
    schema.pointer(pointer).and_then(|property| property["description"].as_str()).unwrap_or_default()
}

/// What JSON schema can say about the range of a kind.
fn bounds(kind: &ValueKind) -> Vec<(&'static str, Value)> {
    match kind {
        ValueKind::Whole { min, max } => vec![("minimum", json!(min)), ("maximum", json!(max))],
        ValueKind::WholeOrAuto { max, .. } => vec![("minimum", json!(0)), ("maximum", json!(max))],
        ValueKind::Size { min, max } => vec![("minimum", json!(min)), ("maximum", json!(max))],
        ValueKind::Path => vec![("minLength", json!(1))],
        ValueKind::Names(names) => {
            vec![("items", json!({"enum": names})), ("minItems", json!(1)), ("uniqueItems", json!(true))]
        }
        ValueKind::Window { max_ms } => vec![("items", json!({"type": "integer", "minimum": 1, "maximum": max_ms}))],
        ValueKind::Digits { count } => vec![("pattern", json!(format!("^[0-9]{{{count}}}$")))],
        ValueKind::Word { bytes_max } => vec![("pattern", json!(format!("^[a-z0-9-]{{0,{bytes_max}}}$")))],
        ValueKind::Nodes { count_max } | ValueKind::LaneWords { count_max, .. } => {
            vec![("items", json!({"type": "string"})), ("maxItems", json!(count_max))]
        }
        ValueKind::Texts { count_max, bytes_max } => {
            let item = json!({"type": "string", "minLength": 1, "maxLength": bytes_max});
            vec![("items", item), ("maxItems", json!(count_max))]
        }
        ValueKind::Origin => vec![("pattern", json!("^https?://[^/?#@]+/?$"))],
        ValueKind::Switch
        | ValueKind::Time { .. }
        | ValueKind::Address
        | ValueKind::Choice(_)
        | ValueKind::Permits
        | ValueKind::Filter => Vec::new(),
    }
}
