//! `orfa`, all of ORFA in one binary, with a file per verb and the noun first (`orfa query build`).
//!
//! Exit codes: 0 for success, 1 for a failed call or build, 64 for mistakes in the command line or the
//! config, 70 for internal errors. `exit.rs` defines them, `terminal.rs` prints.

mod aggregate;
mod build;
mod call;
mod check;
mod config;
mod dev;
mod draw;
mod exit;
mod file;
mod filter;
mod graphql;
mod keys;
mod logs;
mod query;
mod script;
mod serve;
mod signal;
mod terminal;
mod types;
mod units;
mod watch;
mod worker;

use std::process::ExitCode;

use allocator::GlobalAllocator;
use clap::Parser;

use exit::Exit;

#[global_allocator]
static ALLOCATOR: GlobalAllocator = GlobalAllocator;

/// An API gateway that runs programs of clients next to its services: one request instead of many.
#[derive(Debug, Parser)]
#[command(name = "orfa", version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Dev(dev::Arguments),
    Call(call::Arguments),
    Serve(serve::Arguments),
    Check(check::Arguments),
    Types(types::Arguments),
    /// Explain aggregates, which combine responses of several services.
    #[command(subcommand)]
    Aggregate(aggregate::Verb),
    /// Inspect the config file.
    #[command(subcommand)]
    Config(config::Verb),
    /// Create and test filters, which are Proxy-Wasm modules.
    #[command(subcommand)]
    Filter(filter::Verb),
    /// Inspect GraphQL over services.
    #[command(subcommand)]
    Graphql(graphql::Verb),
    /// Manage developers' signing keys.
    #[command(subcommand)]
    Keys(keys::Verb),
    /// Build, debug and sign query programs.
    #[command(subcommand)]
    Query(query::Verb),
    /// Check and build services written in S.
    #[command(subcommand)]
    Script(script::Verb),
}

fn main() -> ExitCode {
    if let Some(code) = worker::become_one() {
        return code;
    }
    #[cfg(feature = "heap-count")]
    gateway::observe_heap(|| {
        let usage = allocator::take_usage();
        (usage.live, usage.peak)
    });
    match Arguments::try_parse() {
        Ok(arguments) => exit::finish(run(&arguments.verb)),
        Err(error) => usage(&error),
    }
}

fn run(verb: &Verb) -> anyhow::Result<Exit> {
    match verb {
        Verb::Dev(arguments) => many_threads(dev::run(arguments)),
        Verb::Call(arguments) => one_thread(call::run(arguments)),
        Verb::Serve(arguments) => serve::run(arguments),
        Verb::Check(arguments) => many_threads(check::run(arguments)),
        Verb::Types(arguments) => types::run(arguments),
        Verb::Aggregate(aggregate::Verb::Explain(arguments)) => aggregate::explain(arguments),
        Verb::Config(config::Verb::Schema) => config::schema(),
        Verb::Filter(filter::Verb::New(arguments)) => filter::new(arguments),
        Verb::Filter(filter::Verb::Test(arguments)) => one_thread(filter::test::run(arguments)),
        Verb::Graphql(graphql::Verb::Schema(arguments)) => one_thread(graphql::schema(arguments)),
        Verb::Graphql(graphql::Verb::Explain(arguments)) => one_thread(graphql::explain(arguments)),
        Verb::Keys(keys::Verb::New(arguments)) => keys::new(arguments),
        Verb::Query(query::Verb::Build(arguments)) => query::build(arguments),
        Verb::Query(query::Verb::Replay(arguments)) => one_thread(query::replay::run(arguments)),
        Verb::Query(query::Verb::Debug(arguments)) => one_thread(query::debug::run(arguments)),
        Verb::Query(query::Verb::Sign(arguments)) => query::sign::run(arguments),
        Verb::Script(script::Verb::Check(arguments)) => script::check(arguments),
        Verb::Script(script::Verb::Build(arguments)) => script::build(arguments),
        Verb::Script(script::Verb::Graph(arguments)) => script::graph(arguments),
    }
}

/// Help and version are successes; any other result of clap is a mistake in the command line.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() }
}

/// The number of tasks after which a thread looks for events of sockets, if it has further tasks. Each takes
/// up to 0.1 ms while many clients send long bodies, and the requests of others wait meanwhile. tokio's
/// default is 61.
const EVENT_INTERVAL: u32 = 16;

/// Runs a server, on all cores.
fn many_threads<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .on_thread_start(offload::shorten_slice)
        .build()?
        .block_on(work)
}

/// Runs a client, on the current thread.
fn one_thread<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_is_well_formed() {
        super::Arguments::command().debug_assert();
    }
}
