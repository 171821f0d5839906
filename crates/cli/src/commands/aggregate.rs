//! `orfa aggregate`: explains a declared aggregate without executing it.

use std::path::{Path, PathBuf};

use aggregate::AggregateExplanation;
use diagnostics::Diagnostic;
use gateway::GatewayConfig;
use gateway::build::aggregate_routes::{self, InspectableAggregate};
use script::{DependenceGraph, DependenceNode, TextPosition};

use crate::commands::config;
use crate::output::exit::{CliError, CliExitCode};
use crate::output::{file, terminal};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum AggregateCommand {
    Explain(AggregateExplainArguments),
}

/// Show which calls an aggregate makes, in which order, and how their responses are combined.
#[derive(Debug, clap::Args)]
pub(crate) struct AggregateExplainArguments {
    /// The path of a route, or a declaration file, even if no route names it yet.
    #[arg(value_name = "ROUTE | FILE")]
    what: String,
    /// The config with its services.
    #[arg(short, long, value_name = "FILE", default_value = "orfa.yaml")]
    config: PathBuf,
    /// Write a diagram to this file: SVG, or a Mermaid flowchart if its name ends in `.mmd`.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn explain(arguments: &AggregateExplainArguments) -> anyhow::Result<CliExitCode> {
    let AggregateExplainArguments { what, config, out } = arguments;
    let ready = match find_aggregate(what, config)? {
        Ok(ready) => ready,
        Err(mistakes) => return Ok(config::report_mistakes(&mistakes)),
    };
    let explanation = ready.aggregate.explain();
    match out {
        None => terminal::write_stdout(&explanation.to_string()),
        Some(out) if out.extension().is_some_and(|end| end == "mmd") => {
            file::write_and_report(out, &explanation.to_mermaid())?
        }
        Some(out) => file::write_and_report(out, &dependency_graph(&explanation).to_svg())?,
    }
    Ok(CliExitCode::Ok)
}

/// Finds the requested aggregate, or returns the mistakes in the config or in a declaration.
fn find_aggregate(
    what: &str,
    config: &Path,
) -> anyhow::Result<Result<InspectableAggregate, Vec<Diagnostic>>> {
    let config = match gateway::config::read(config) {
        Ok(config) => config,
        Err(mistakes) => return Ok(Err(mistakes)),
    };
    let (config, path) = match find_route_path(&config, what) {
        Some(path) => (config, path),
        None => with_declaration_route(config, Path::new(what))?,
    };
    config::print_warnings(config.source.warnings());
    Ok(aggregate_routes::build_inspectable(&config).and_then(|all| select_aggregate(all, &path)))
}

/// Finds the path of the route, given by its path or by its file.
fn find_route_path(config: &GatewayConfig, what: &str) -> Option<String> {
    let here = Path::new(what).canonicalize().ok();
    let is_it = |path: &str, file: &Path| {
        path == what || (here.is_some() && config.source.folder().join(file).canonicalize().ok() == here)
    };
    let mut routes = config.routes.iter().filter_map(|route| Some((&route.path, route.aggregate.as_ref()?)));
    routes.find(|(path, aggregate)| is_it(path, aggregate.file())).map(|(path, _)| path.clone())
}

/// Adds a temporary route for a declaration that no route of the config names, and returns its path too.
fn with_declaration_route(mut config: GatewayConfig, file: &Path) -> anyhow::Result<(GatewayConfig, String)> {
    let Ok(here) = file.canonicalize() else {
        let message = format!("{} is neither the path of an aggregate's route nor a file", file.display());
        let hint = "name a route of the config with `aggregate:`, or its declaration";
        return Err(CliError::usage("no-such-aggregate", message, hint).into());
    };
    let path = format!("/{}", here.file_stem().unwrap_or_default().to_string_lossy());
    config.routes.retain(|route| route.aggregate.is_none());
    Ok((config.with_aggregate(&path, &here)?, path))
}

fn select_aggregate(
    all: Vec<InspectableAggregate>,
    path: &str,
) -> Result<InspectableAggregate, Vec<Diagnostic>> {
    all.into_iter().find(|ready| ready.path == path).ok_or_else(Vec::new)
}

/// The graph of dependencies between the steps, and of the insertions of their responses.
fn dependency_graph(explanation: &AggregateExplanation) -> DependenceGraph {
    let number = |part: &str| explanation.steps.iter().position(|step| step.part == part);
    let position = TextPosition { line: 1, column: 1 };
    let nodes = explanation.steps.iter().map(|step| {
        let label = format!("{}: {}", step.part, step.call);
        DependenceNode { label, position, io: 1, barrier: false }
    });
    let edges = explanation.steps.iter().enumerate().flat_map(|(to, step)| {
        step.dependencies.iter().filter_map(move |need| {
            let why = if step.target_part.as_ref() == Some(need) { "goes into it" } else { "" };
            Some((number(need)?, to, why.to_owned()))
        })
    });
    DependenceGraph { position, nodes: nodes.collect(), edges: edges.collect() }
}
