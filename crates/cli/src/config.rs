//! `orfa config`: the JSON Schema, for editors and for other tools.

use crate::exit::Exit;
use crate::terminal;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Print the JSON Schema of orfa.yaml.
    Schema,
}

pub(crate) fn schema() -> anyhow::Result<Exit> {
    let schema = serde_json::to_string_pretty(&gateway::config::schema())?;
    terminal::say(&format!("{schema}\n"));
    Ok(Exit::Ok)
}
