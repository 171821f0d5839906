//! `orfa serve`: sets up logs, config, runtime and gateway, announces readiness, and then handles signals.
//!
//! A config with mistakes ends the process with exit code 64 before a port is bound. `serve/reload.rs` reads
//! the config again, `serve/takeover.rs` gives the sockets to a new process, `serve/activation.rs` takes the
//! sockets that systemd has opened, and `serve/systemd.rs` notifies the service manager.

mod activation;
mod reload;
mod systemd;
mod takeover;

use std::path::{Path, PathBuf};
use std::pin::Pin;

use anyhow::Context;
use gateway::{BindError, DrainResult, Gateway, GatewayConfig, Listener, ListenerSet, ShutdownMode};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

use crate::commands::config;
use crate::output::exit::{CliError, CliExitCode};
use crate::process::signal::{self, TerminationSignal, TerminationSignals};
use crate::process::watch::FileWatcher;
use crate::process::{logs, runtime::run_multi_thread, worker};
use reload::ReloadHandle;
use takeover::{HandoverServer, ListeningSockets, request_handover};

/// Serve the config until SIGTERM or Ctrl-C. SIGHUP reads the config again.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArguments {
    /// The config file.
    #[arg(short, long, value_name = "FILE", default_value = "orfa.yaml")]
    config: PathBuf,
}

pub(crate) fn run(arguments: &ServeArguments) -> anyhow::Result<CliExitCode> {
    logs::init_json()?;
    // Before any file is opened that could get their descriptor numbers.
    let activated = activation::inherited_sockets();
    // Some systems lack transparent huge pages, so an error is ignored.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    allocator::purge_in_background().context("no thread that gives back memory")?;
    run_multi_thread(serve(&arguments.config, activated))
}

async fn serve(file: &Path, activated: Vec<Listener>) -> anyhow::Result<CliExitCode> {
    // Created before the config is read, so that changes in between are noticed.
    let mut watch = FileWatcher::new(vec![file.to_owned()]);
    let reading = gateway::config::read_watched(file);
    watch.set_files(reading.files);
    config::log_warnings(&reading.warnings);
    let config = match reading.config {
        Ok(config) => GatewayConfig { launcher: Some(worker::launcher()), ..config },
        Err(mistakes) => return Ok(config::report_mistakes(&mistakes)),
    };
    let takeover = config.takeover.as_ref().map(|path| config.source.folder().join(path));
    let gateway = match Gateway::build(config) {
        Ok(gateway) => gateway,
        Err(gateway::BuildError::Config(mistakes)) => return Ok(config::report_mistakes(&mistakes)),
        Err(error) => return Err(error.into()),
    };
    let signals = TerminationSignals::listen().context("can't listen for signals")?;
    let hangups = signal::hangups().context("can't listen for signals")?;
    let (sockets, connection) = takeover.as_deref().map_or(Ok(None), request_handover)?.unzip();
    let mut present = sockets.unwrap_or_default().into_vec();
    present.extend(activated);
    let listeners = gateway.adopt(&mut present).map_err(|error| bind_error(&error))?;
    let admin = gateway.adopt_admin(&mut present).map_err(|error| bind_error(&error))?;
    close_unused(present);
    let giver = match takeover {
        Some(path) => Some(HandoverServer::new(path, duplicate_sockets(&listeners, admin.as_ref())?)),
        None => None,
    };
    let admin = admin.map(|listener| gateway.admin(listener)).transpose()?;
    let admin = admin.map(|admin| tokio::spawn(admin.serve()).abort_handle());
    let reloader =
        ReloadHandle::start(gateway.clone(), file.to_owned(), watch).context("no thread for reloads")?;
    let (stop, stopped) = oneshot::channel();
    let stopped = async { stopped.await.unwrap_or(ShutdownMode::Promptly) };
    let steering = ServeControl {
        gateway: gateway.clone(),
        signals,
        hangups,
        reloader: Some(reloader),
        admin_task: admin,
    };
    // A separate task, since the code below waits for other events.
    let serving = tokio::spawn(gateway.serve(listeners, stopped));
    systemd::notify_serving();
    steering.run(serving, stop, giver.map(|giver| giver.serve_handover(connection))).await?;
    Ok(CliExitCode::Ok)
}

/// Closes the inherited sockets that the config does not name.
fn close_unused(sockets: Vec<Listener>) {
    for socket in sockets {
        tracing::info!(address = ?socket.address(), "the config does not name this socket; it is closed");
    }
}

/// Duplicates the listening sockets, for a takeover.
fn duplicate_sockets(listeners: &ListenerSet, admin: Option<&Listener>) -> std::io::Result<ListeningSockets> {
    Ok(ListeningSockets {
        listeners: listeners.try_clone()?.into_vec(),
        admin: admin.map(Listener::try_clone).transpose()?,
    })
}

/// Control of a serving gateway by signals and takeovers.
struct ServeControl {
    gateway: Gateway,
    signals: TerminationSignals,
    hangups: tokio::signal::unix::Signal,
    /// `None` once another process serves, since config changes then concern that process.
    reloader: Option<ReloadHandle>,
    admin_task: Option<AbortHandle>,
}

impl ServeControl {
    /// Runs until the gateway has ended.
    async fn run(
        mut self,
        mut serving: JoinHandle<DrainResult>,
        stop: oneshot::Sender<ShutdownMode>,
        giving: Option<impl Future<Output = Option<u32>>>,
    ) -> anyhow::Result<DrainResult> {
        let mut stop = Some(stop);
        let mut giving = giving.map(Box::pin);
        loop {
            tokio::select! {
                drained = &mut serving => return Ok(drained?),
                _ = self.hangups.recv() => self.reloader.iter().for_each(ReloadHandle::reload),
                end = self.signals.wait() => {
                    // A gateway that shuts down can't be taken over, and must not keep socket handles.
                    giving = None;
                    self.shut_down(end, stop.take());
                }
                pid = wait_for_handover(&mut giving) => {
                    giving = None;
                    self.reloader = None;
                    self.hand_over(pid, stop.take());
                }
            }
        }
    }

    /// Drains at the first signal, and cuts requests off at the second.
    fn shut_down(&self, end: TerminationSignal, stop: Option<oneshot::Sender<ShutdownMode>>) {
        let mode = match end {
            TerminationSignal::Terminate => ShutdownMode::Gracefully,
            TerminationSignal::Interrupt => ShutdownMode::Promptly,
        };
        tracing::info!(signal = ?end, first = stop.is_some(), "shutdown requested");
        match stop {
            Some(stop) => {
                systemd::notify_stopping();
                // The receiver lives as long as the gateway serves.
                let _ = stop.send(mode);
            }
            None => self.gateway.abort_requests(),
        }
    }

    /// Stops accepting on all sockets, since another process serves on them.
    fn hand_over(&self, pid: Option<u32>, stop: Option<oneshot::Sender<ShutdownMode>>) {
        tracing::info!(pid, "handed over to another process");
        self.admin_task.iter().for_each(AbortHandle::abort);
        stop.map(|stop| stop.send(ShutdownMode::HandedOver));
    }
}

/// Waits until another process has taken over; forever if takeovers are disabled.
async fn wait_for_handover(giving: &mut Option<Pin<Box<impl Future<Output = Option<u32>>>>>) -> Option<u32> {
    match giving {
        Some(giving) => giving.await,
        None => std::future::pending().await,
    }
}

/// Returns the error for an address that can't be bound.
pub(crate) fn bind_error(error: &BindError) -> CliError {
    let hint = match error.error.kind() {
        _ if error.by.is_some() => {
            "an address can't change hands for one that overlaps it: take another port, or end the gateway and \
             start it anew (`systemctl restart orfa`; a socket unit first: `systemctl restart orfa.socket`)"
        }
        std::io::ErrorKind::AddrInUse => "another program listens there: stop it, or use another address",
        std::io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege: use a higher one",
        std::io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
        _ => "",
    };
    CliError::internal("not-listening", error.to_string(), hint)
}
