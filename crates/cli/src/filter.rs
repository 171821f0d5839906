//! `orfa filter`: creation and testing of Proxy-Wasm filters.

mod new;
pub(crate) mod test;

use std::path::PathBuf;

use crate::exit::Exit;
use crate::terminal;
use new::Language;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    New(Arguments),
    Test(Box<test::Arguments>),
}

/// Create a filter project that builds, in a folder of its name.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The name of the filter and its folder.
    name: String,
    /// The language.
    #[arg(short, long, value_enum)]
    lang: Language,
    /// The parent folder [default: the current one].
    #[arg(long, value_name = "FOLDER")]
    r#in: Option<PathBuf>,
}

pub(crate) fn new(arguments: &Arguments) -> anyhow::Result<Exit> {
    let Arguments { name, lang, r#in } = arguments;
    let folder = r#in.clone().unwrap_or_default().join(name);
    new::write(&folder, name, *lang)?;
    terminal::say(&format!("{}: a filter; its README.md describes how to build it\n", folder.display()));
    Ok(Exit::Ok)
}
