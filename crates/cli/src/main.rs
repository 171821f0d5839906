//! `orfa`, all of ORFA in one binary.
//!
//! From the lowest level up: [`output`] prints and defines the exit codes, [`process`] has the logs, signals
//! and workers of a server, [`build`] compiles C to query modules, and [`commands`] has a module for each
//! verb.
//!
//! Exit codes: 0 for success, 1 for a failed call or build, 64 for mistakes in the command line or the
//! config, 70 for internal errors.

mod build;
mod commands;
mod output;
mod process;

use std::process::ExitCode;

use allocator::GlobalAllocator;
use clap::Parser;

use commands::{aggregate, call, check, config, dev, filter, graphql, keys, query, script, serve, types};
use output::exit::{self, CliExitCode};
use process::runtime::{run_current_thread, run_multi_thread};
use process::worker;

#[global_allocator]
static ALLOCATOR: GlobalAllocator = GlobalAllocator;

/// An API gateway that runs programs of clients next to its services: one request instead of many.
#[derive(Debug, Parser)]
#[command(name = "orfa", version, propagate_version = true, arg_required_else_help = true)]
struct CliArguments {
    #[command(subcommand)]
    verb: CliCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CliCommand {
    Dev(dev::DevArguments),
    Call(call::CallArguments),
    Serve(serve::ServeArguments),
    Check(check::CheckConfigArguments),
    Types(types::TypesArguments),
    /// Explain aggregates, which combine responses of several services.
    #[command(subcommand)]
    Aggregate(aggregate::AggregateCommand),
    /// Inspect the config file.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Create and test filters, which are Proxy-Wasm modules.
    #[command(subcommand)]
    Filter(filter::FilterCommand),
    /// Inspect GraphQL over services.
    #[command(subcommand)]
    Graphql(graphql::GraphqlCommand),
    /// Manage developers' signing keys.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Build, debug and sign query programs.
    #[command(subcommand)]
    Query(query::QueryCommand),
    /// Check and build services written in S.
    #[command(subcommand)]
    Script(script::ScriptCommand),
}

fn main() -> ExitCode {
    if let Some(code) = worker::run_worker() {
        return code;
    }
    #[cfg(feature = "heap-count")]
    gateway::observe_heap(|| {
        let usage = allocator::take_usage();
        (usage.live, usage.peak)
    });
    match CliArguments::try_parse() {
        Ok(arguments) => exit::report_result(run(&arguments.verb)),
        Err(error) => report_usage(&error),
    }
}

fn run(verb: &CliCommand) -> anyhow::Result<CliExitCode> {
    match verb {
        CliCommand::Dev(arguments) => run_multi_thread(dev::run(arguments)),
        CliCommand::Call(arguments) => run_current_thread(call::run(arguments)),
        CliCommand::Serve(arguments) => serve::run(arguments),
        CliCommand::Check(arguments) => run_multi_thread(check::run(arguments)),
        CliCommand::Types(arguments) => types::run(arguments),
        CliCommand::Aggregate(aggregate::AggregateCommand::Explain(arguments)) => {
            aggregate::explain(arguments)
        }
        CliCommand::Config(config::ConfigCommand::Schema) => config::print_schema(),
        CliCommand::Filter(filter::FilterCommand::New(arguments)) => filter::create_filter(arguments),
        CliCommand::Filter(filter::FilterCommand::Test(arguments)) => {
            run_current_thread(filter::test::run(arguments))
        }
        CliCommand::Graphql(graphql::GraphqlCommand::Schema(arguments)) => {
            run_current_thread(graphql::write_schema(arguments))
        }
        CliCommand::Graphql(graphql::GraphqlCommand::Explain(arguments)) => {
            run_current_thread(graphql::explain(arguments))
        }
        CliCommand::Keys(keys::KeysCommand::New(arguments)) => keys::create_key(arguments),
        CliCommand::Query(query::QueryCommand::Build(arguments)) => query::build(arguments),
        CliCommand::Query(query::QueryCommand::Replay(arguments)) => {
            run_current_thread(query::replay::run(arguments))
        }
        CliCommand::Query(query::QueryCommand::Debug(arguments)) => {
            run_current_thread(query::debug::run(arguments))
        }
        CliCommand::Query(query::QueryCommand::Sign(arguments)) => query::sign::run(arguments),
        CliCommand::Script(script::ScriptCommand::Check(arguments)) => script::check(arguments),
        CliCommand::Script(script::ScriptCommand::Build(arguments)) => script::build(arguments),
        CliCommand::Script(script::ScriptCommand::Graph(arguments)) => script::graph(arguments),
    }
}

/// Help and version are successes; any other result of clap is a mistake in the command line.
fn report_usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { CliExitCode::Usage.into() } else { CliExitCode::Ok.into() }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_is_well_formed() {
        super::CliArguments::command().debug_assert();
    }
}
