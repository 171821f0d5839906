//! Logs on standard error: JSON for a server, plain text for a developer. Control characters of untrusted
//! origin are escaped.
//!
//! `ORFA_LOG` filters by level and module: `debug`, `warn,services=debug`. By default, warnings of the HTTP/2
//! library are left out, since any client can cause them.

use std::io::Stderr;

use gateway::EscapingWriter;
use tracing_subscriber::EnvFilter;

use crate::output::exit::CliError;

/// Logs one JSON object per line.
pub(crate) fn init_json() -> Result<(), CliError> {
    let logs = tracing_subscriber::fmt().json().flatten_event(true).with_current_span(false);
    logs.with_span_list(false)
        .with_writer(escaped_stderr)
        .with_env_filter(env_filter("info,h2=error")?)
        .init();
    Ok(())
}

/// Logs plain text for a developer, from warnings on.
pub(crate) fn init_plain() -> Result<(), CliError> {
    let logs = tracing_subscriber::fmt().compact().without_time().with_target(false);
    logs.with_writer(escaped_stderr).with_env_filter(env_filter("warn,h2=error")?).init();
    Ok(())
}

fn escaped_stderr() -> EscapingWriter<Stderr> {
    EscapingWriter(std::io::stderr())
}

fn env_filter(default: &str) -> Result<EnvFilter, CliError> {
    let wanted = std::env::var("ORFA_LOG").unwrap_or_else(|_| default.to_owned());
    EnvFilter::try_new(&wanted).map_err(|error| {
        let message = format!("ORFA_LOG is `{wanted}`, which is not a filter: {error}");
        CliError::usage("bad-log-filter", message, "write a level, or `level,module=level`")
    })
}
