//! `orfa graphql`: prints the schema of a route, and explains documents without executing them.

use std::path::{Path, PathBuf};

use gateway::build::graphql_routes::{self, InspectableGraphqlRoute};
use graphql::PlanExplanation;
use script::{DependenceGraph, DependenceNode, TextPosition};

use crate::commands::config;
use crate::output::exit::{CliError, CliExitCode};
use crate::output::{file, terminal};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum GraphqlCommand {
    Schema(SchemaArguments),
    Explain(ExplainArguments),
}

/// Write the schema of a route, and report the parts of the services' documents that it omits.
#[derive(Debug, clap::Args)]
pub(crate) struct SchemaArguments {
    #[command(flatten)]
    from: RouteSelection,
    /// The output file [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Show which calls a document makes, in which order, and for which fields.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArguments {
    /// The document, or a file that contains it.
    #[arg(value_name = "QUERY | FILE")]
    document: String,
    /// The name of the operation, if the document has several.
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    #[command(flatten)]
    from: RouteSelection,
    /// Write a diagram to this file: SVG, or a Mermaid flowchart if its name ends in `.mmd`.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Selects a route.
#[derive(Debug, clap::Args)]
struct RouteSelection {
    /// The path of the route, if the config has several.
    #[arg(long, value_name = "PATH")]
    route: Option<String>,
    /// The config with its services.
    #[arg(short, long, value_name = "FILE", default_value = "orfa.yaml")]
    config: PathBuf,
}

pub(crate) async fn write_schema(arguments: &SchemaArguments) -> anyhow::Result<CliExitCode> {
    let ready = match arguments.from.find_route().await? {
        Ok(ready) => ready,
        Err(mistakes) => return Ok(config::report_mistakes(&mistakes)),
    };
    let schema = ready.graphql.schema().unwrap_or_default();
    match &arguments.out {
        None => terminal::write_stdout(&schema),
        Some(out) => file::write_and_report(out, &schema)?,
    }
    terminal::write_stderr(&format_findings(&ready));
    Ok(CliExitCode::Ok)
}

pub(crate) async fn explain(arguments: &ExplainArguments) -> anyhow::Result<CliExitCode> {
    let document = read_document(&arguments.document)?;
    let ready = match arguments.from.find_route().await? {
        Ok(ready) => ready,
        Err(mistakes) => return Ok(config::report_mistakes(&mistakes)),
    };
    let explained = ready.graphql.explain(&document, arguments.operation.as_deref());
    let explanation = match explained {
        Some(Ok(explanation)) => explanation,
        Some(Err(errors)) => {
            let lines = errors.iter().map(|error| {
                let place = error.locations.first().map(|(line, column)| format!("{line}:{column}: "));
                format!("{}{} ({})\n", place.unwrap_or_default(), error.message, error.code)
            });
            terminal::write_stderr(&lines.collect::<String>());
            return Ok(CliExitCode::Failed);
        }
        None => return Ok(CliExitCode::Internal),
    };
    match &arguments.out {
        None => terminal::write_stdout(&explanation.to_string()),
        Some(out) if out.extension().is_some_and(|end| end == "mmd") => {
            file::write_and_report(out, &explanation.mermaid())?
        }
        Some(out) => file::write_and_report(out, &render_graph(&explanation))?,
    }
    Ok(CliExitCode::Ok)
}

/// Formats one line per finding of a schema.
pub(crate) fn format_findings(ready: &InspectableGraphqlRoute) -> String {
    ready.graphql.warnings().iter().map(|finding| format!("{}: {finding:#}\n", ready.path)).collect()
}

impl RouteSelection {
    /// Finds the selected route, or returns the mistakes in the config.
    async fn find_route(
        &self,
    ) -> anyhow::Result<Result<InspectableGraphqlRoute, Vec<diagnostics::Diagnostic>>> {
        let config = match gateway::config::read(&self.config) {
            Ok(config) => config,
            Err(mistakes) => return Ok(Err(mistakes)),
        };
        let ready = match graphql_routes::fetch_inspectable(&config).await {
            Ok(ready) => ready,
            Err(mistakes) => return Ok(Err(mistakes)),
        };
        let paths: Vec<String> = ready.iter().map(|ready| ready.path.clone()).collect();
        let is_it =
            |ready: &InspectableGraphqlRoute| self.route.as_ref().is_none_or(|route| ready.path == *route);
        let mut routes: Vec<InspectableGraphqlRoute> = ready.into_iter().filter(is_it).collect();
        match (routes.pop(), routes.is_empty()) {
            (Some(only), true) => Ok(Ok(only)),
            (Some(_), false) => {
                let hint = format!("name one by `--route`: {}", paths.join(", "));
                Err(CliError::usage("several-routes", "the config has several GraphQL routes", hint).into())
            }
            (None, _) => {
                let (message, hint) = match paths.is_empty() {
                    true => (
                        "the config has no GraphQL route",
                        "write `graphql: { services: [...] }` in a route".to_owned(),
                    ),
                    false => {
                        ("there is no GraphQL route at this path", format!("known: {}", paths.join(", ")))
                    }
                };
                Err(CliError::usage("no-such-graphql", message, hint).into())
            }
        }
    }
}

/// Returns the document itself, or reads it from a file.
fn read_document(argument: &str) -> Result<String, CliError> {
    let is_document = argument.contains('{');
    if is_document {
        return Ok(argument.to_owned());
    }
    std::fs::read_to_string(Path::new(argument)).map_err(|error| {
        let message = format!("{argument} is neither a document nor a file that can be read: {error}");
        CliError::usage("no-such-document", message, "write `{ ... }`, or name a file")
    })
}

/// Renders the graph of dependencies.
fn render_graph(explanation: &PlanExplanation) -> String {
    let position = TextPosition { line: 1, column: 1 };
    let nodes = explanation.steps.iter().map(|step| DependenceNode {
        label: step.label.clone(),
        position,
        io: 1,
        barrier: false,
    });
    let edges = explanation.steps.iter().enumerate();
    let edges =
        edges.flat_map(|(to, step)| step.dependencies.iter().map(move |from| (*from, to, String::new())));
    DependenceGraph { position, nodes: nodes.collect(), edges: edges.collect() }.to_svg()
}
