//! `orfa check`: reports every mistake of a config, without binding a port.

use std::path::PathBuf;

use anyhow::Context;
use gateway::{BuildError, Gateway, GatewayConfig};

use crate::commands::{config, graphql, script, types};
use crate::output::exit::CliExitCode;
use crate::output::{terminal, units};

/// Report every error in a config with file, line, column, field and hint.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckConfigArguments {
    /// The config file.
    #[arg(value_name = "FILE", default_value = "orfa.yaml")]
    config: PathBuf,
}

pub(crate) async fn run(arguments: &CheckConfigArguments) -> anyhow::Result<CliExitCode> {
    let reading = gateway::config::read_watched(&arguments.config);
    config::print_warnings(&reading.warnings);
    let mut config = match reading.config {
        Ok(config) => config,
        Err(mistakes) => return Ok(config::report_mistakes(&mistakes)),
    };
    let praise = config_summary(&config);
    let documents = gateway::build::openapi_documents::read_documents(&config).unwrap_or_default();
    let scripts = gateway::build::script_routes::read_scripts(&config).unwrap_or_default();
    let graphqls = gateway::build::graphql_routes::build_inspectable(&config).unwrap_or_default();
    // Isolates the check from the state of a running gateway.
    let aside = tempfile::tempdir().context("no folder for state that is never used")?;
    config.scripts.state_dir = aside.path().to_owned();
    match Gateway::build(config) {
        Ok(_) => {
            // These findings are not mistakes of the config: it works, and affected parts are untyped.
            terminal::write_stderr(&types::format_findings(
                documents.iter().map(|(name, document)| (&**name, &**document)),
            ));
            scripts.iter().for_each(script::print_warnings);
            terminal::write_stderr(&graphqls.iter().map(graphql::format_findings).collect::<String>());
            terminal::write_stdout(&praise);
        }
        Err(BuildError::Config(mistakes)) => return Ok(config::report_mistakes(&mistakes)),
        Err(error) => return Err(error.into()),
    }
    Ok(CliExitCode::Ok)
}

fn config_summary(config: &GatewayConfig) -> String {
    let services = units::format_count(config.services.len(), "service");
    format!("ok: {services}, {}\n", units::format_count(config.routes.len(), "route"))
}
