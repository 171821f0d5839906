//! `orfa types`: the TypeScript types of services, from their OpenAPI documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gateway::GatewayConfig;
use openapi::{CallableService, OpenApiDocument, OpenApiOperation};
use services::path::PathGlob;

use crate::commands::config;
use crate::output::exit::{CliError, CliExitCode};
use crate::output::{terminal, units};

/// Write the types of services for query programs, from their OpenAPI documents.
#[derive(Debug, clap::Args)]
pub(crate) struct TypesArguments {
    /// A config or its folder; or OpenAPI documents of services: `catalog=openapi.yaml`.
    #[arg(value_name = "CONFIG | SERVICE=FILE", default_value = "orfa.yaml")]
    from: Vec<String>,
    /// The output file [default: standard output]. Programs write `import type { Services } from "./orfa"`.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The document of a service, and the part of it that programs may call.
#[derive(Default)]
struct ServiceDescription {
    document: Option<Arc<OpenApiDocument>>,
    /// The permitted methods; `None` for all.
    methods: Option<BTreeSet<String>>,
    paths: Vec<PathGlob>,
}

pub(crate) fn run(arguments: &TypesArguments) -> anyhow::Result<CliExitCode> {
    let services = match arguments.from.as_slice() {
        [one] if !one.contains('=') => match read_config_services(Path::new(one)) {
            Ok(services) => services,
            Err(mistakes) => return Ok(config::report_mistakes(&mistakes)),
        },
        pairs => pairs.iter().map(|pair| parse_named_document(pair)).collect::<Result<_, _>>()?,
    };
    let callable_services: Vec<CallableService<'_>> =
        services.iter().map(|(name, known)| known.permitted_operations(name)).collect();
    let types = openapi::generate_types(&callable_services);
    let documents = services.iter().filter_map(|(name, known)| Some((&**name, known.document.as_deref()?)));
    terminal::write_stderr(&format_findings(documents));
    let Some(out) = &arguments.out else {
        terminal::write_stdout(&types);
        return Ok(CliExitCode::Ok);
    };
    std::fs::write(out, &types).map_err(|error| {
        let message = format!("{} can't be written: {error}", out.display());
        CliError::failed("types-not-written", message, "`-o FILE` writes it elsewhere")
    })?;
    let operations = callable_services.iter().map(|service| service.operations.len()).sum();
    let [services, operations] = [
        units::format_count(callable_services.len(), "service"),
        units::format_count(operations, "operation"),
    ];
    terminal::write_stderr(&format!("{}: {services}, {operations}\n", out.display()));
    Ok(CliExitCode::Ok)
}

/// Formats one line per finding in these documents.
pub(crate) fn format_findings<'a>(documents: impl Iterator<Item = (&'a str, &'a OpenApiDocument)>) -> String {
    let mut text = String::new();
    for (service, document) in documents {
        for warning in &document.warnings {
            let _ = writeln!(text, "{service}: #{}: {}", warning.location.pointer(), warning.message);
        }
    }
    text
}

/// The services that the query routes of a config permit, each with the union of the permissions.
fn read_config_services(
    path: &Path,
) -> Result<BTreeMap<String, ServiceDescription>, Vec<diagnostics::Diagnostic>> {
    let path = if path.is_dir() { path.join("orfa.yaml") } else { path.to_owned() };
    let config: GatewayConfig = gateway::config::read(&path)?;
    let documents = gateway::build::openapi_documents::read_documents(&config)?;
    let mut services: BTreeMap<String, ServiceDescription> = BTreeMap::new();
    for query in config.routes.iter().filter_map(|route| route.query.as_ref()) {
        for name in &query.services {
            let description = services.entry(name.clone()).or_default();
            description.methods.get_or_insert_default().extend(query.methods.iter().cloned());
            description.document = documents.get(name).cloned();
            let paths = config.services.get(name).into_iter().flat_map(|service| &service.paths);
            description.paths = paths.filter_map(|path| PathGlob::parse(path).ok()).collect();
        }
    }
    Ok(services)
}

/// A service given by its document alone.
fn parse_named_document(pair: &str) -> Result<(String, ServiceDescription), CliError> {
    let hint = "write `orfa types catalog=openapi.yaml`, or name a config";
    let wrong = |message: String| CliError::usage("bad-document", message, hint);
    let split = pair.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty());
    let (name, file) = split.ok_or_else(|| wrong(format!("`{pair}` is not SERVICE=FILE")))?;
    let document =
        OpenApiDocument::open(Path::new(file)).map_err(|error| wrong(format!("{file}: {error}")))?;
    let document = Some(Arc::new(document.relative_to("")));
    Ok((name.to_owned(), ServiceDescription { document, ..ServiceDescription::default() }))
}

impl ServiceDescription {
    fn permitted_operations<'a>(&'a self, name: &'a str) -> CallableService<'a> {
        let is_open = |operation: &&OpenApiOperation| {
            let path = operation.sample_path();
            self.methods.as_ref().is_none_or(|methods| methods.contains(operation.method))
                && (self.paths.is_empty() || self.paths.iter().any(|glob| glob.matches(&path)))
        };
        let document = self.document.as_deref();
        let operations = document.into_iter().flat_map(|document| &document.operations);
        CallableService { name, document, operations: operations.filter(is_open).collect() }
    }
}
