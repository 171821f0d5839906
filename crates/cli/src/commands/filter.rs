//! `orfa filter`: creation and testing of Proxy-Wasm filters.

mod new;
pub(crate) mod test;

use std::path::PathBuf;

use crate::output::exit::CliExitCode;
use crate::output::terminal;
use new::TemplateLanguage;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum FilterCommand {
    New(FilterNewArguments),
    Test(Box<test::FilterTestArguments>),
}

/// Create a filter project that builds, in a folder of its name.
#[derive(Debug, clap::Args)]
pub(crate) struct FilterNewArguments {
    /// The name of the filter and its folder.
    name: String,
    /// The language.
    #[arg(short, long, value_enum)]
    lang: TemplateLanguage,
    /// The parent folder [default: the current one].
    #[arg(long, value_name = "FOLDER")]
    r#in: Option<PathBuf>,
}

pub(crate) fn create_filter(arguments: &FilterNewArguments) -> anyhow::Result<CliExitCode> {
    let FilterNewArguments { name, lang, r#in } = arguments;
    let folder = r#in.clone().unwrap_or_default().join(name);
    new::write_project(&folder, name, *lang)?;
    terminal::write_stdout(&format!(
        "{}: a filter; its README.md describes how to build it\n",
        folder.display()
    ));
    Ok(CliExitCode::Ok)
}
