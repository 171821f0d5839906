//! `orfa filter`: what is done to Proxy-Wasm filters before a gateway has them.

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

/// Begin a filter: a project that builds, in a folder of its name.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Its name, and that of the folder.
    name: String,
    /// What it is written in.
    #[arg(short, long, value_enum)]
    lang: Language,
    /// Where the folder is made [default: here].
    #[arg(long, value_name = "FOLDER")]
    r#in: Option<PathBuf>,
}

pub(crate) fn new(arguments: &Arguments) -> anyhow::Result<Exit> {
    let Arguments { name, lang, r#in } = arguments;
    let folder = r#in.clone().unwrap_or_default().join(name);
    new::write(&folder, name, *lang)?;
    terminal::say(&format!("{}: a filter; README.md in it says how to build it\n", folder.display()));
    Ok(Exit::Ok)
}
