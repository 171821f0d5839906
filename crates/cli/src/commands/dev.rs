//! `orfa dev`: a gateway for local development that draws its upstream calls on a time axis.
//!
//! A [`DevConfigSource`] defines the services. When a watched file changes, the running gateway is
//! reconfigured as by `orfa serve`, and keeps its state and compiled programs. A config with mistakes leaves
//! the previous one active. `config_source.rs` is the config, `screen.rs` the output, and `rerun.rs` sends a
//! program again whenever it is saved.

mod config_source;
mod rerun;
mod screen;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use gateway::{BuildError, CompletedRequest, DrainResult, Gateway, GatewayConfig, ShutdownMode};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::commands::{config, serve};
use crate::output::exit::CliExitCode;
use crate::output::terminal;
use crate::process::logs;
use crate::process::signal::TerminationSignals;
use crate::process::watch::FileWatcher;
use config_source::DevConfigSource;
use screen::DisplayedRequest;

/// Serve on this machine without a config file, with safe limits, and draw every upstream call.
#[derive(Debug, clap::Args)]
pub(crate) struct DevArguments {
    /// The services, each as NAME=URL; or one folder with an orfa.yaml.
    #[arg(value_name = "NAME=URL", required_unless_present = "config")]
    services: Vec<String>,
    /// A config file, instead of services.
    #[arg(short, long, value_name = "FILE", conflicts_with = "services")]
    config: Option<PathBuf>,
    /// The port on this machine [default: that of the config, or else 8080].
    #[arg(long)]
    port: Option<u16>,
    /// A program to send now, and again whenever it is saved.
    #[arg(long, value_name = "PROGRAM")]
    run: Option<PathBuf>,
    /// The input of that program.
    #[arg(long, value_name = "JSON", requires = "run")]
    input: Option<String>,
}

pub(crate) async fn run(arguments: &DevArguments) -> anyhow::Result<CliExitCode> {
    logs::init_plain()?;
    let plan = DevConfigSource::new(arguments)?;
    let watch = FileWatcher::new(plan.config_file());
    let config = match plan.read_config() {
        Ok(config) => config,
        Err(mistakes) => return Ok(config::report_mistakes(&mistakes)),
    };
    let mut stop = TerminationSignals::listen().context("can't listen for signals")?;
    let Some(mut dev) = DevServer::start(plan, watch, config).await? else { return Ok(CliExitCode::Usage) };
    terminal::write_stdout(&dev.greeting(arguments.run.as_deref()));
    let url = dev.query_url();
    tokio::select! {
        _ = stop.wait() => {}
        () = dev.reload_on_change() => {}
        () = rerun::send_on_change(arguments.run.clone(), arguments.input.clone(), url) => {}
    }
    dev.stop().await;
    Ok(CliExitCode::Ok)
}

/// The state of the running command.
struct DevServer {
    config_source: DevConfigSource,
    watcher: FileWatcher,
    config: GatewayConfig,
    gateway: Gateway,
    port: u16,
    cpu_limits: CpuLimitsByRoute,
    shutdown: oneshot::Sender<ShutdownMode>,
    server_task: JoinHandle<DrainResult>,
}

/// The CPU limits of programs by the path of their route, from the active config.
type CpuLimitsByRoute = Arc<Mutex<BTreeMap<String, Duration>>>;

impl DevServer {
    /// Builds and serves; `None` if the config has mistakes, which have been reported.
    async fn start(
        plan: DevConfigSource,
        mut watch: FileWatcher,
        config: GatewayConfig,
    ) -> anyhow::Result<Option<Self>> {
        let (seen, shown) = mpsc::unbounded_channel();
        let caps = CpuLimitsByRoute::new(Mutex::new(config_source::cpu_limits(&config)));
        let gateway = match Gateway::build(config.clone()) {
            Ok(gateway) => gateway.on_request(request_observer(seen, Arc::clone(&caps))),
            Err(error) => return report_build_error(error).map(|()| None),
        };
        let listeners = gateway.bind().map_err(|error| serve::bind_error(&error))?;
        let port = listeners.addresses().first().map_or(0, std::net::SocketAddr::port);
        let (shutdown, stopped) = oneshot::channel();
        let stopped = async { stopped.await.unwrap_or(ShutdownMode::Promptly) };
        let serving = tokio::spawn(gateway.clone().serve(listeners, stopped));
        tokio::spawn(screen::draw_requests(shown));
        watch.set_files(plan.files(&config));
        Ok(Some(Self {
            config_source: plan,
            watcher: watch,
            config,
            gateway,
            port,
            cpu_limits: caps,
            shutdown,
            server_task: serving,
        }))
    }

    /// Reads the config again whenever one of its files changes.
    async fn reload_on_change(&mut self) {
        loop {
            self.watcher.wait_for_change().await;
            match self.reload().await {
                Ok(true) => self.watcher.set_files(self.config_source.files(&self.config)),
                Ok(false) => terminal::write_stdout("the previous config stays active\n"),
                Err(error) => terminal::write_stderr(&crate::output::exit::describe_error(&error)),
            }
        }
    }

    /// Activates the current config; `false` if it has mistakes, which have been reported.
    async fn reload(&mut self) -> anyhow::Result<bool> {
        let config = match self.config_source.read_config() {
            Ok(config) => config,
            Err(mistakes) => {
                config::report_mistakes(&mistakes);
                return Ok(false);
            }
        };
        let (gateway, next) = (self.gateway.clone(), config.clone());
        let waiting = match spawn_blocking(move || gateway.reload(&next)).await? {
            Ok(waiting) => waiting,
            Err(error) => return report_build_error(error).map(|()| false),
        };
        *lock(&self.cpu_limits) = config_source::cpu_limits(&config);
        self.config = config;
        terminal::write_stdout("the config has changed and is active\n");
        // The admin listener and takeovers are irrelevant to this command.
        for field in waiting.iter().filter(|field| ["listen", "runtime"].contains(*field)) {
            terminal::write_stdout(&format!("  except `{field}`, which needs a restart\n"));
        }
        Ok(true)
    }

    async fn stop(self) {
        // It only fails if the gateway has ended already.
        let _ = self.shutdown.send(ShutdownMode::Promptly);
        let _ = self.server_task.await;
    }

    fn greeting(&self, program: Option<&std::path::Path>) -> String {
        let names: Vec<&str> = self.config.services.keys().map(String::as_str).collect();
        let files = self.config_source.files(&self.config);
        screen::greeting(&self.query_url(), &names, &files, program)
    }

    /// The URL for programs: the first query route.
    fn query_url(&self) -> String {
        let route = self.config.routes.iter().find(|route| route.query.is_some());
        format!("http://localhost:{}{}", self.port, route.map_or("/", |route| &route.path))
    }
}

/// Returns the observer that draws each request with its CPU limit.
fn request_observer(
    seen: mpsc::UnboundedSender<DisplayedRequest>,
    caps: CpuLimitsByRoute,
) -> impl Fn(CompletedRequest) + Send + Sync + 'static {
    move |request: CompletedRequest| {
        let cap = lock(&caps).get(&request.path).copied();
        // The send fails only while the command exits.
        let _ = seen.send(DisplayedRequest { request, cpu_limit: cap });
    }
}

/// Reports the mistakes in a config; other errors are errors of the command.
fn report_build_error(error: BuildError) -> anyhow::Result<()> {
    match error {
        BuildError::Config(mistakes) => {
            config::report_mistakes(&mistakes);
            Ok(())
        }
        error => Err(error.into()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
