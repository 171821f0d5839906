//! The config of `orfa dev`: services from the command line, or a config file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use diagnostics::Diagnostic;
use gateway::GatewayConfig;
use gateway::config::{CorsConfig, ListenConfig, RouteConfig};

use super::DevArguments;
use crate::commands::config;
use crate::output::exit::CliError;
use crate::process::worker;

const DEFAULT_PORT: u16 = 8080;

/// The drain timeout after Ctrl-C, for an interactive terminal.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The origins of a front end that is developed on this machine.
const LOCAL_PAGES: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "https://localhost:*"];

/// The source of the config.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DevConfigSource {
    Services { services: Vec<(String, String)>, port: u16 },
    File { path: PathBuf, port: Option<u16> },
}

impl DevConfigSource {
    pub(super) fn new(arguments: &DevArguments) -> Result<Self, CliError> {
        let DevArguments { services, config, port, .. } = arguments;
        let file = |path| Self::File { path, port: *port };
        match (config, services.as_slice()) {
            (Some(path), _) => Ok(file(path.clone())),
            (None, [folder]) if Path::new(folder).is_dir() => Ok(file(Path::new(folder).join("orfa.yaml"))),
            (None, services) => Ok(Self::Services {
                services: services.iter().map(|text| parse_service(text)).collect::<Result<_, _>>()?,
                port: port.unwrap_or(DEFAULT_PORT),
            }),
        }
    }

    /// Reads the current config, and logs the warnings about it.
    pub(super) fn read_config(&self) -> Result<GatewayConfig, Vec<Diagnostic>> {
        let mut config = match self {
            Self::Services { services, port } => GatewayConfig::dev(services, *port)?,
            Self::File { path, .. } => {
                let reading = gateway::config::read_watched(path);
                config::log_warnings(&reading.warnings);
                reading.config?
            }
        };
        if let Self::File { port: Some(port), .. } = self {
            config.listen = ListenConfig::from_address(format!("127.0.0.1:{port}"));
        }
        let local = || CorsConfig::with_origins(LOCAL_PAGES);
        config.cors.get_or_insert_with(local);
        config.log.access = false;
        config.launcher = Some(worker::launcher());
        config.drain.timeout = services::DurationConfig(DRAIN_TIMEOUT);
        Ok(config)
    }

    /// The config file, if there is one.
    pub(super) fn config_file(&self) -> Vec<PathBuf> {
        match self {
            Self::Services { .. } => Vec::new(),
            Self::File { path, .. } => vec![path.clone()],
        }
    }

    /// The files to watch: the config file and those that it names.
    pub(super) fn files(&self, config: &GatewayConfig) -> Vec<PathBuf> {
        let documents = config.services.values().filter_map(|service| service.openapi.as_ref());
        let documents = documents.map(|document| config.source.folder().join(document));
        let scripts = config.routes.iter().filter_map(|route| route.script.as_ref());
        let scripts = scripts.map(|script| config.source.folder().join(script.options().file));
        let aggregates = config.routes.iter().filter_map(|route| route.aggregate.as_ref());
        let aggregates = aggregates.map(|aggregate| config.source.folder().join(aggregate.file()));
        let graphqls = gateway::config::watched_graphql_files(config);
        let files = self.config_file().into_iter().chain(documents).chain(scripts);
        files.chain(aggregates).chain(graphqls).collect()
    }
}

/// The CPU limits of programs, by the path of their route.
pub(super) fn cpu_limits(config: &GatewayConfig) -> BTreeMap<String, Duration> {
    let cap = |route: &RouteConfig| Some((route.path.clone(), route.query.as_ref()?.limits.cpu.0));
    config.routes.iter().filter_map(cap).collect()
}

fn parse_service(text: &str) -> Result<(String, String), CliError> {
    let wrong = || {
        let hint = "write `orfa dev profile=http://localhost:3001`, or name a folder with an orfa.yaml";
        CliError::usage("bad-service", format!("`{text}` is neither NAME=URL nor a folder"), hint)
    };
    let (name, url) = text.split_once('=').ok_or_else(wrong)?;
    if name.is_empty() || url.is_empty() { Err(wrong()) } else { Ok((name.to_owned(), url.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_source(services: &[&str]) -> Result<DevConfigSource, CliError> {
        let services = services.iter().map(|&text| text.to_owned()).collect();
        DevConfigSource::new(&DevArguments { services, config: None, port: None, run: None, input: None })
    }

    #[test]
    fn services_are_named_on_the_command_line() {
        let services = vec![("a".to_owned(), "http://localhost:1/?x=y".to_owned())];
        let expected = DevConfigSource::Services { services, port: 8080 };
        assert_eq!(parse_source(&["a=http://localhost:1/?x=y"]).ok(), Some(expected));
        for wrong in ["a", "=http://localhost", "a=", "no/such/folder"] {
            assert_eq!(parse_source(&[wrong]).expect_err(wrong).code, "bad-service");
        }
    }

    #[test]
    fn accepts_the_folder_of_a_config() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("orfa.yaml");
        let plan = parse_source(&[&folder.path().display().to_string()]).ok();
        assert_eq!(plan, Some(DevConfigSource::File { path, port: None }));
    }
}
