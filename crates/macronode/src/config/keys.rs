//! The table of keys, made from the types that declare them: the node's own sections, those of services, and the
//! permits of gates.

use std::sync::OnceLock;

use ron_types::settings::{Reload, SCHEMA_PROPERTY, Setting, ValueKind, process};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{Config, PERMITS_SECTION, known_services};
use crate::services;

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Section and name with a dot between, or just the name.
    pub path: String,
    /// Values the key takes.
    pub kind: ValueKind,
    /// What must happen before a new value takes effect.
    pub reload: Reload,
    /// The flag of `macronode run` that sets it.
    pub flag: Option<String>,
}

/// Every key, in the order of the documentation.
pub fn keys() -> &'static [Key] {
    static KEYS: OnceLock<Vec<Key>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let schema = declared_schema();
        let properties = |of: &Value| of["properties"].as_object().cloned().unwrap_or_default();
        let mut keys: Vec<Key> = Vec::new();
        let top = properties(&schema);
        keys.extend(top.iter().filter_map(|(name, property)| Key::read(name.clone(), property)));
        for section in sections().iter().filter(|name| !name.is_empty()) {
            let inside = properties(&schema["properties"][section]);
            keys.extend(inside.iter().filter_map(|(name, property)| Key::read(format!("{section}.{name}"), property)));
        }
        keys
    })
}

/// The names of the sections, in the order of the documentation; the top is the empty name.
pub fn sections() -> &'static [String] {
    static SECTIONS: OnceLock<Vec<String>> = OnceLock::new();
    SECTIONS.get_or_init(|| {
        let own = own_schema();
        let own = own["properties"].as_object().into_iter().flatten();
        let own = own.filter(|(_, property)| property.get("properties").is_some()).map(|(name, _)| name.clone());
        let of_services = services::sections().map(|section| section.name.to_owned());
        let permits = services::gates().next().map(|_| PERMITS_SECTION.to_owned());
        std::iter::once(String::new()).chain(own).chain(of_services).chain(permits).collect()
    })
}

/// The schema with the settings of each key still inside.
pub fn declared_schema() -> Value {
    let mut schema = own_schema();
    let Some(properties) = schema["properties"].as_object_mut() else { return schema };
    let mut generator = settings().into_generator();
    for section in services::sections() {
        properties.insert(section.name.to_owned(), (section.schema)(&mut generator).to_value());
    }
    if services::gates().next().is_some() {
        properties.insert(PERMITS_SECTION.to_owned(), permits_schema());
    }
    schema
}

fn own_schema() -> Value {
    settings().into_generator().into_root_schema_for::<Config>().to_value()
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true)
}

/// A key for each gate: what it bounds is said by its spec.
fn permits_schema() -> Value {
    let mut properties = Map::new();
    for gate in services::gates() {
        let mut property = schemars::schema_for!(ron_types::Permits).to_value();
        let mut does = gate.does.to_owned();
        does[..1].make_ascii_uppercase();
        property["description"] = json!(format!("{does}."));
        property[SCHEMA_PROPERTY] = json!(process(ValueKind::Permits));
        for word in ["$schema", "title"] {
            property.as_object_mut().map(|property| property.remove(word));
        }
        properties.insert(gate.name.to_owned(), property);
    }
    json!({
        "type": "object", "description": "Permits of the gates.", "additionalProperties": false,
        "properties": properties,
    })
}

impl Key {
    /// The key a property of the schema declares; none for a section.
    fn read(path: String, property: &Value) -> Option<Key> {
        let setting: Setting = serde_json::from_value(property.get(SCHEMA_PROPERTY)?.clone()).ok()?;
        let kind = match setting.kind {
            ValueKind::Names(_) => ValueKind::Names(known_services().map(str::to_owned).collect()),
            kind => kind,
        };
        Some(Key { path, kind, reload: setting.reload, flag: setting.flag })
    }

    /// The key with this path.
    pub fn find(path: &str) -> Option<&'static Key> {
        keys().iter().find(|key| key.path == path)
    }

    /// The environment variable that sets it.
    pub fn env_name(&self) -> String {
        format!("MACRO_{}", self.path.replace('.', "__").to_uppercase())
    }

    /// Section of the key; empty for the keys at the top.
    pub fn section(&self) -> &str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// Name of the key within its section.
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// The value at this key's path in a table.
    pub fn value_in<'a>(&self, table: &'a toml::Table) -> Option<&'a toml::Value> {
        match self.section() {
            "" => table.get(&self.path),
            section => table.get(section)?.as_table()?.get(self.name()),
        }
    }

    /// Puts a value at this key's path, or takes away the one that is there.
    pub fn replace(&self, table: &mut toml::Table, value: Option<toml::Value>) {
        match (value, self.section()) {
            (Some(value), _) => self.put(table, value),
            (None, "") => drop(table.remove(&self.path)),
            (None, section) => {
                let section = table.get_mut(section).and_then(toml::Value::as_table_mut);
                section.map(|section| section.remove(self.name()));
            }
        }
    }

    /// Puts a value at this key's path.
    pub fn put(&self, table: &mut toml::Table, value: toml::Value) {
        let target = match self.section() {
            "" => Some(table),
            section => table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new())).as_table_mut(),
        };
        if let Some(target) = target {
            target.insert(self.name().to_owned(), value);
        }
    }
}
