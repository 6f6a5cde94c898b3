//! Sections of the configuration that belong to services: the service declares the type, the binary composes them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

/// One section, as its owner declares it.
#[derive(Clone, Copy)]
pub struct Section {
    /// Heading of the section in the file.
    pub name: &'static str,
    /// Schema of the keys, with their meaning, bounds and reload class.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// Reads what was set; what was not set has its default.
    pub read: fn(Table) -> Result<SectionValue, toml::de::Error>,
}

/// The values of one section.
#[derive(Clone)]
pub struct SectionValue {
    /// Value of the owner's Options type.
    value: Arc<dyn Any + Send + Sync>,
    /// The values in the shape of the file, for comparisons and for printing.
    pub table: Table,
}

impl Section {
    /// A section whose keys are the fields of this type.
    pub const fn of<T>(name: &'static str) -> Section
    where
        T: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
    {
        Section { name, schema: T::json_schema, read: read::<T> }
    }

    /// Section with the default of every key.
    pub fn defaults(&self) -> SectionValue {
        (self.read)(Table::new()).expect("every key of a section has a default")
    }
}

fn read<T>(table: Table) -> Result<SectionValue, toml::de::Error>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let value: T = table.try_into()?;
    let table = Table::try_from(&value).expect("every value of a configuration can be written as TOML");
    Ok(SectionValue { value: Arc::new(value), table })
}

impl SectionValue {
    /// The values, if the section is of this type.
    pub fn get<T: 'static>(&self) -> Option<&T> {
        self.value.downcast_ref()
    }
}

impl fmt::Debug for SectionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

/// Compares the tables: two sections that print alike are alike.
impl PartialEq for SectionValue {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table
    }
}
