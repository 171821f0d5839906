//! `orfa dev`: a gateway on one's own machine, its upstream calls drawn as they were timed.
//!
//! Where the services come from is a [`Plan`]. A running gateway is a task on a copy of the listening
//! sockets; when a watched file changes, the next one starts on another copy and the old one drains, so
//! that no request finds the door closed. A config with mistakes leaves the old gateway in force.
//! `plan.rs` is what to serve, `screen.rs` what is seen, `again.rs` a program that
//! is sent again whenever it is saved.

mod again;
mod plan;
mod screen;

use std::path::PathBuf;

use anyhow::Context;
use gateway::{BuildError, Config, Gateway, Listeners, Seen, Stop};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::exit::Exit;
use crate::signal::Signals;
use crate::watch::Watch;
use crate::{check, logs, serve, terminal};
use plan::Plan;
use screen::Shown;

/// Serve on this machine with no config, safe limits, and every upstream call drawn.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The services, NAME=URL each; or one folder with an orfa.yaml.
    #[arg(value_name = "NAME=URL", required_unless_present = "config")]
    services: Vec<String>,
    /// A config, instead of services.
    #[arg(long, value_name = "FILE", conflicts_with = "services")]
    config: Option<PathBuf>,
    /// The port on this machine [default: that of the config, else 8080].
    #[arg(long)]
    port: Option<u16>,
    /// A program to send now, and again whenever it is saved.
    #[arg(long, value_name = "PROGRAM")]
    run: Option<PathBuf>,
    /// The input of that program.
    #[arg(long, value_name = "JSON", requires = "run")]
    input: Option<String>,
}

pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    logs::plain()?;
    let plan = Plan::new(arguments)?;
    let watch = Watch::new(plan.config_file());
    let config = match plan.config() {
        Ok(config) => config,
        Err(mistakes) => return Ok(check::refuse(&mistakes)),
    };
    let mut stop = Signals::listen().context("can't listen for signals")?;
    let Some(mut dev) = Dev::start(plan, watch, config).await? else { return Ok(Exit::Usage) };
    terminal::say(&dev.greeting(arguments.run.as_deref()));
    let url = dev.query_url();
    tokio::select! {
        _ = stop.wait() => {}
        () = dev.keep_fresh() => {}
        () = again::send(arguments.run.clone(), arguments.input.clone(), url) => {}
    }
    dev.running.stop().await;
    Ok(Exit::Ok)
}

/// All that lives as long as the command.
struct Dev {
    plan: Plan,
    watch: Watch,
    config: Config,
    listeners: Listeners,
    running: Running,
    seen: mpsc::UnboundedSender<Shown>,
}

/// A gateway that serves in a task of its own.
struct Running {
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Dev {
    /// Builds and serves; `None` if the config has mistakes, which were told.
    async fn start(plan: Plan, mut watch: Watch, config: Config) -> anyhow::Result<Option<Self>> {
        let (seen, shown) = mpsc::unbounded_channel();
        let Some(gateway) = build(config.clone(), &seen)? else { return Ok(None) };
        let bound = gateway.bind().map_err(|error| serve::not_bound(&error));
        let listeners = bound?;
        let running = Running::start(gateway, &listeners)?;
        tokio::spawn(screen::show(shown));
        watch.set(plan.files(&config));
        Ok(Some(Self { plan, watch, config, listeners, running, seen }))
    }

    /// Rebuilds the gateway whenever a file of its config changes.
    async fn keep_fresh(&mut self) {
        loop {
            self.watch.change().await;
            match self.reload().await {
                Ok(true) => self.watch.set(self.plan.files(&self.config)),
                Ok(false) => terminal::say("the gateway before it stays in force\n"),
                Err(error) => terminal::complain(&crate::exit::describe(&error)),
            }
        }
    }

    /// Puts the config as it is now in force; `false` if it has mistakes, which were told.
    async fn reload(&mut self) -> anyhow::Result<bool> {
        let config = match self.plan.config() {
            Ok(config) => config,
            Err(mistakes) => {
                check::refuse(&mistakes);
                return Ok(false);
            }
        };
        let Some(gateway) = build(config.clone(), &self.seen)? else { return Ok(false) };
        let old = std::mem::replace(&mut self.running, Running::start(gateway, &self.listeners)?);
        self.config = config;
        // Until it has stopped, the old one may still take a request.
        old.stop().await;
        terminal::say("the config has changed and is in force\n");
        Ok(true)
    }

    fn greeting(&self, program: Option<&std::path::Path>) -> String {
        let names: Vec<&str> = self.config.services.keys().map(String::as_str).collect();
        let files = self.plan.files(&self.config);
        screen::greeting(&self.query_url(), &names, &files, program)
    }

    /// Where programs go: the first query route.
    fn query_url(&self) -> String {
        let port = self.listeners.addresses().first().map_or(0, std::net::SocketAddr::port);
        let route = self.config.routes.iter().find(|route| route.query.is_some());
        format!("http://localhost:{port}{}", route.map_or("/", |route| &route.path))
    }
}

impl Running {
    /// Must be called within the runtime.
    fn start(gateway: Gateway, listeners: &Listeners) -> std::io::Result<Self> {
        let listeners = listeners.try_clone()?;
        let (shutdown, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let stop = async {
                drop(stopped.await);
                Stop::Promptly
            };
            gateway.serve(listeners, stop).await;
        });
        Ok(Self { shutdown, task })
    }

    async fn stop(self) {
        drop(self.shutdown);
        let _ = self.task.await;
    }
}

/// A gateway whose requests are drawn; `None` if its config has mistakes, which are told.
fn build(config: Config, seen: &mpsc::UnboundedSender<Shown>) -> anyhow::Result<Option<Gateway>> {
    let (seen, caps) = (seen.clone(), plan::cpu_caps(&config));
    let show = move |request: Seen| {
        let cap = caps.get(&request.path).copied();
        // Nobody looks any longer: the command ends.
        let _ = seen.send(Shown { request, cap });
    };
    match Gateway::build(config) {
        Ok(gateway) => Ok(Some(gateway.on_request(show))),
        Err(BuildError::Config(mistakes)) => {
            check::refuse(&mistakes);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
