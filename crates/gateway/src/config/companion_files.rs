//! Companion files of the config: YAML of a struct, with all mistakes reported at their positions.

use std::path::{Path, PathBuf};

use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::renamed_keys::{self, RenamedIn};
use super::source::FieldPositions;
use super::{deserialisation_mistake, read_file, schema, yaml};

/// Parses a companion file with a table of its renamed keys, and returns the positions of its fields too.
///
/// # Errors
/// All its mistakes, in the order of the file.
pub(crate) fn read_companion<T: DeserializeOwned + JsonSchema>(
    text: &str,
    file: &Path,
    table: &[RenamedIn],
) -> Result<(T, FieldPositions), Vec<Diagnostic>> {
    let yaml::YamlDocument { mut value, mut source, mut mistakes } = yaml::read(text, file)?;
    mistakes.extend(renamed_keys::apply_renames(table, &mut value, &mut source));
    mistakes.extend(schema::validate(&value, &source, &schema::schema_for::<T>()));
    let read = deserialise(value, &source, mistakes)?;
    Ok((read, source))
}

/// Returns the files that a companion file consists of, itself first.
pub(crate) fn list_files(file: &Path) -> Vec<PathBuf> {
    inspect(file, &[]).files().to_vec()
}

/// Returns the files that a companion file consists of, and the warnings about its renamed keys.
pub(super) fn inspect(file: &Path, table: &[RenamedIn]) -> FieldPositions {
    let document = read_file(file).ok().and_then(|text| yaml::read(&text, file).ok());
    let Some(yaml::YamlDocument { mut value, mut source, .. }) = document else {
        return FieldPositions::new(file);
    };
    // Its mistakes are reported when it is parsed.
    renamed_keys::apply_renames(table, &mut value, &mut source);
    source
}

/// Deserialises a value if it has no mistakes so far.
pub(super) fn deserialise<T: DeserializeOwned>(
    value: Value,
    source: &FieldPositions,
    mut mistakes: Vec<Diagnostic>,
) -> Result<T, Vec<Diagnostic>> {
    if mistakes.is_empty() {
        match serde_path_to_error::deserialize(value) {
            Ok(read) => return Ok(read),
            Err(error) => mistakes.push(deserialisation_mistake(&error, source)),
        }
    }
    mistakes.sort_by_key(|mistake| mistake.location.line_and_column());
    mistakes.dedup();
    Err(mistakes)
}
