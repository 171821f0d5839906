//! Checks the object file for errors that the linker would ignore: undefined data would silently be at
//! address 0, since the linker has to import unknown symbols.
use wasmparser::{KnownCustom, Linking, Parser, Payload, SymbolFlags, SymbolInfo};

use query_abi::ENTRY;

use super::error::BuildError;

/// Data symbols that the linker itself defines.
const LINKER_SYMBOLS: &[&str] = &["__data_end", "__global_base", "__dso_handle"];

/// Facts about an object file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectFileInfo {
    /// Whether functions have to be called before the entry point.
    pub(super) has_constructors: bool,
    has_entry: bool,
    undefined_data: Vec<String>,
}

/// Reads the facts of an object file, and rejects one that can't become a query.
pub(super) fn inspect(object: &[u8]) -> Result<ObjectFileInfo, BuildError> {
    let facts = read_info(object)?;
    if !facts.undefined_data.is_empty() {
        let names = facts.undefined_data;
        let hint = undefined_data_hint(&names);
        return Err(BuildError::UndefinedData { names: names.join(", "), hint });
    }
    if !facts.has_entry {
        return Err(BuildError::NoEntry);
    }
    Ok(facts)
}

fn read_info(object: &[u8]) -> Result<ObjectFileInfo, BuildError> {
    let mut facts = ObjectFileInfo::default();
    let mut is_object = false;
    for payload in Parser::new(0).parse_all(object) {
        let Payload::CustomSection(section) = payload? else { continue };
        let KnownCustom::Linking(linking) = section.as_known() else { continue };
        is_object = true;
        for subsection in linking.subsections() {
            match subsection? {
                Linking::InitFuncs(functions) => facts.has_constructors = functions.count() > 0,
                Linking::SymbolTable(symbols) => {
                    symbols
                        .into_iter()
                        .try_for_each(|symbol| symbol.map(|symbol| facts.add_symbol(&symbol)))?;
                }
                _ => {}
            }
        }
    }
    if is_object { Ok(facts) } else { Err(BuildError::Malformed("it is not an object file".into())) }
}

impl ObjectFileInfo {
    fn add_symbol(&mut self, symbol: &SymbolInfo<'_>) {
        match symbol {
            SymbolInfo::Func { flags, name: Some(ENTRY), .. } => {
                self.has_entry |= !flags.contains(SymbolFlags::UNDEFINED);
            }
            SymbolInfo::Data { flags, name, symbol: None } => {
                let may_be_absent = flags.contains(SymbolFlags::BINDING_WEAK);
                if !may_be_absent && !LINKER_SYMBOLS.contains(name) {
                    self.undefined_data.push((*name).to_owned());
                }
            }
            _ => {}
        }
    }
}

/// Returns a hint for undefined data of the C library.
fn undefined_data_hint(names: &[String]) -> &'static str {
    let any = |known: &[&str]| names.iter().any(|name| known.contains(&name.as_str()));
    if any(&["stdout", "stderr", "stdin"]) {
        " (to print, use orfa_log())"
    } else if any(&["errno"]) {
        " (there is no errno: check the end pointer of strtol() and similar functions)"
    } else {
        ""
    }
}
