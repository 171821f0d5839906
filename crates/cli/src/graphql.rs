//! `orfa graphql`: the schema that a route has, and what a document will do, told before it does it.

use std::path::{Path, PathBuf};

use gateway::graphqls::{self, Ready};
use graphql::Explanation;
use script::{Graph, Node, Position};

use crate::exit::{Complaint, Exit};
use crate::{config, file, terminal};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    Schema(Schema),
    Explain(Explain),
}

/// Write the schema of a route, and tell what of the services' documents has no place in it.
#[derive(Debug, clap::Args)]
pub(crate) struct Schema {
    #[command(flatten)]
    from: From,
    /// Where it goes [default: the standard output].
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Tell which calls a document will make, in which order, and what for.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The document, or a file with it.
    #[arg(value_name = "QUERY | FILE")]
    document: String,
    /// Which of its operations.
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    #[command(flatten)]
    from: From,
    /// Draw it, as SVG; as a flowchart of Mermaid if the file's name ends in `.mmd`.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Which route is meant.
#[derive(Debug, clap::Args)]
struct From {
    /// The path of the route, where the config has several.
    #[arg(long, value_name = "PATH")]
    route: Option<String>,
    /// The config with its services.
    #[arg(short, long, value_name = "FILE", default_value = "orfa.yaml")]
    config: PathBuf,
}

pub(crate) async fn schema(arguments: &Schema) -> anyhow::Result<Exit> {
    let ready = match arguments.from.find().await? {
        Ok(ready) => ready,
        Err(mistakes) => return Ok(config::refuse(&mistakes)),
    };
    let schema = ready.graphql.schema().unwrap_or_default();
    match &arguments.out {
        None => terminal::say(&schema),
        Some(out) => file::write(out, &schema)?,
    }
    terminal::complain(&findings(&ready));
    Ok(Exit::Ok)
}

pub(crate) async fn explain(arguments: &Explain) -> anyhow::Result<Exit> {
    let document = document(&arguments.document)?;
    let ready = match arguments.from.find().await? {
        Ok(ready) => ready,
        Err(mistakes) => return Ok(config::refuse(&mistakes)),
    };
    let explained = ready.graphql.explain(&document, arguments.operation.as_deref());
    let explanation = match explained {
        Some(Ok(explanation)) => explanation,
        Some(Err(errors)) => {
            let lines = errors.iter().map(|error| {
                let place = error.locations.first().map(|(line, column)| format!("{line}:{column}: "));
                format!("{}{} ({})\n", place.unwrap_or_default(), error.message, error.code)
            });
            terminal::complain(&lines.collect::<String>());
            return Ok(Exit::Failed);
        }
        None => return Ok(Exit::Internal),
    };
    match &arguments.out {
        None => terminal::say(&explanation.to_string()),
        Some(out) if out.extension().is_some_and(|end| end == "mmd") => {
            file::write(out, &explanation.mermaid())?
        }
        Some(out) => file::write(out, &picture(&explanation))?,
    }
    Ok(Exit::Ok)
}

/// A line for each thing that has no place in a schema.
pub(crate) fn findings(ready: &Ready) -> String {
    ready.graphql.findings().iter().map(|finding| format!("{}: {finding}\n", ready.path)).collect()
}

impl From {
    /// The route that is meant, or what is wrong with the config.
    async fn find(&self) -> anyhow::Result<Result<Ready, Vec<gateway::Mistake>>> {
        let config = match gateway::config::read(&self.config) {
            Ok(config) => config,
            Err(mistakes) => return Ok(Err(mistakes)),
        };
        let ready = match graphqls::ready(&config).await {
            Ok(ready) => ready,
            Err(mistakes) => return Ok(Err(mistakes)),
        };
        let paths: Vec<String> = ready.iter().map(|ready| ready.path.clone()).collect();
        let is_it = |ready: &Ready| self.route.as_ref().is_none_or(|route| ready.path == *route);
        let mut found: Vec<Ready> = ready.into_iter().filter(is_it).collect();
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Ok(Ok(only)),
            (Some(_), false) => {
                let hint = format!("name one by `--route`: {}", paths.join(", "));
                Err(Complaint::usage("several-routes", "the config has several GraphQL routes", hint).into())
            }
            (None, _) => {
                let (message, hint) = match paths.is_empty() {
                    true => (
                        "no route of the config answers GraphQL",
                        "write `graphql: { services: [...] }` in one".to_owned(),
                    ),
                    false => ("no such route answers GraphQL", format!("those do: {}", paths.join(", "))),
                };
                Err(Complaint::usage("no-such-graphql", message, hint).into())
            }
        }
    }
}

/// A document as it is written, or that of a file.
fn document(argument: &str) -> Result<String, Complaint> {
    let is_document = argument.contains('{');
    if is_document {
        return Ok(argument.to_owned());
    }
    std::fs::read_to_string(Path::new(argument)).map_err(|error| {
        let message = format!("{argument} is neither a document nor a file that can be read: {error}");
        Complaint::usage("no-such-document", message, "write `{ ... }`, or name a file with it")
    })
}

/// What waits for what.
fn picture(explanation: &Explanation) -> String {
    let position = Position { line: 1, column: 1 };
    let nodes = explanation.steps.iter().map(|step| Node {
        label: step.label.clone(),
        position,
        io: 1,
        barrier: false,
    });
    let edges = explanation.steps.iter().enumerate();
    let edges = edges.flat_map(|(to, step)| step.needs.iter().map(move |from| (*from, to, String::new())));
    Graph { position, nodes: nodes.collect(), edges: edges.collect() }.svg()
}
