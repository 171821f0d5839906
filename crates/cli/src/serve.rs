//! `orfa serve`: logs, config, runtime, build, announce, then signals until it ends, in this order.
//!
//! A bad config ends with exit code 64 before a port is bound. `serve/reload.rs` reads the config again,
//! `serve/systemd.rs` tells a service manager how things are.

mod reload;
mod systemd;

use std::path::{Path, PathBuf};

use anyhow::Context;
use gateway::{Drained, Gateway, Stop};
use tokio::sync::oneshot;

use crate::exit::{Complaint, Exit};
use crate::signal::{self, End, Signals};
use crate::watch::Watch;
use crate::{check, logs, many_threads};
use reload::Reloader;

/// Serve as the config says, until SIGTERM or Ctrl-C. SIGHUP reads the config again.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The config.
    #[arg(long, value_name = "FILE", default_value = "orfa.yaml")]
    config: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    logs::json()?;
    many_threads(serve(&arguments.config))
}

async fn serve(file: &Path) -> anyhow::Result<Exit> {
    // From before it is read: what changes meanwhile is a change.
    let mut watch = Watch::new(vec![file.to_owned()]);
    let reading = gateway::config::read_watched(file);
    watch.set(reading.files);
    let config = match reading.config {
        Ok(config) => config,
        Err(mistakes) => return Ok(check::refuse(&mistakes)),
    };
    let gateway = match Gateway::build(config) {
        Ok(gateway) => gateway,
        Err(gateway::BuildError::Config(mistakes)) => return Ok(check::refuse(&mistakes)),
        Err(error) => return Err(error.into()),
    };
    let signals = Signals::listen().context("can't listen for signals")?;
    let hangups = signal::hangups().context("can't listen for signals")?;
    let listeners = gateway.bind().map_err(|error| not_bound(&error.name, &error.error))?;
    if let Some(admin) = gateway.admin().await.map_err(|error| not_bound("the admin address", &error))? {
        tokio::spawn(admin.serve());
    }
    let reloader =
        Reloader::start(gateway.clone(), file.to_owned(), watch).context("no thread for reloads")?;
    let (stop, stopped) = oneshot::channel();
    let stopped = async { stopped.await.unwrap_or(Stop::Promptly) };
    let steering = Steering { gateway: gateway.clone(), signals, hangups, reloader };
    let serving = gateway.serve(listeners, stopped);
    systemd::ready();
    steering.run(serving, stop).await;
    Ok(Exit::Ok)
}

/// What a gateway that serves is told from outside.
struct Steering {
    gateway: Gateway,
    signals: Signals,
    hangups: tokio::signal::unix::Signal,
    reloader: Reloader,
}

impl Steering {
    /// Until the gateway has ended.
    async fn run(mut self, serving: impl Future<Output = Drained>, stop: oneshot::Sender<Stop>) -> Drained {
        let mut serving = std::pin::pin!(serving);
        let mut stop = Some(stop);
        loop {
            tokio::select! {
                drained = &mut serving => return drained,
                _ = self.hangups.recv() => self.reloader.reload(),
                end = self.signals.wait() => self.end(end, stop.take()),
            }
        }
    }

    /// The first time it drains, the second time it just ends.
    fn end(&self, end: End, stop: Option<oneshot::Sender<Stop>>) {
        let how = match end {
            End::Terminate => Stop::Gracefully,
            End::Interrupt => Stop::Promptly,
        };
        tracing::info!(signal = ?end, first = stop.is_some(), "asked to end");
        match stop {
            Some(stop) => {
                systemd::stopping();
                // It listens as long as it serves.
                let _ = stop.send(how);
            }
            None => self.gateway.cut_off(),
        }
    }
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
