//! `orfa serve`: logs, config, runtime, build, announce, signal, drain, in this order.
//!
//! A bad config ends with exit code 64 before a port is bound.

use std::path::PathBuf;

use anyhow::Context;
use gateway::{Config, Gateway};

use crate::exit::{Complaint, Exit};
use crate::signal::Stop;
use crate::{check, logs, many_threads};

/// Serve as the config says, until SIGTERM or Ctrl-C.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The config.
    #[arg(long, value_name = "FILE", default_value = "orfa.yaml")]
    config: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    logs::json()?;
    match gateway::config::read(&arguments.config) {
        Ok(config) => many_threads(serve(config)),
        Err(mistakes) => Ok(check::refuse(&mistakes)),
    }
}

async fn serve(config: Config) -> anyhow::Result<Exit> {
    let gateway = match Gateway::build(config) {
        Ok(gateway) => gateway,
        Err(gateway::BuildError::Config(mistakes)) => return Ok(check::refuse(&mistakes)),
        Err(error) => return Err(error.into()),
    };
    let mut stop = Stop::listen().context("can't listen for signals")?;
    let listeners = gateway.bind().map_err(|error| not_bound(&error.name, &error.error))?;
    if let Some(admin) = gateway.admin().await.map_err(|error| not_bound("the admin address", &error))? {
        tokio::spawn(admin.serve());
    }
    gateway.serve(listeners, stop.wait()).await;
    Ok(Exit::Ok)
}

/// The address can't be had.
pub(crate) fn not_bound(address: &str, error: &std::io::Error) -> Complaint {
    let hint = match error.kind() {
        std::io::ErrorKind::AddrInUse => "another program listens there: end it, or listen elsewhere",
        std::io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege: take a higher one",
        std::io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
        _ => "",
    };
    Complaint::internal("not-listening", format!("can't listen on {address}: {error}"), hint)
}
