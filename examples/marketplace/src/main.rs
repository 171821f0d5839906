//! `marketplace profile|catalog|order` runs one service, `marketplace all` runs all three in a process each.
//!
//! A service prints its address (`profile http://127.0.0.1:3001`) as soon as it accepts requests. `all`
//! starts itself three times. The children end with their parent, even if it is killed, because their
//! standard input is a pipe of the parent.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use marketplace::{DatabaseFolder, MarketplaceService};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;

/// The services of a freelance marketplace, as an example for the gateway.
#[derive(Parser)]
#[command(version)]
struct MarketplaceArguments {
    /// The service to run.
    what: ServedServices,
    /// The address to listen on; port 0 means any free port. `all` uses three consecutive ports
    /// [default: 127.0.0.1 and 3001, 3002, 3003]
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// The folder of the databases, which are created if they don't exist
    /// [default: `orfa-marketplace` in the system's folder for temporary files]
    #[arg(long)]
    data: Option<PathBuf>,
    /// End when the standard input ends.
    #[arg(long, hide = true)]
    attached: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ServedServices {
    Profile,
    Catalog,
    Order,
    All,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = MarketplaceArguments::parse();
    match arguments.what {
        ServedServices::Profile => one(MarketplaceService::Profile, &arguments).await,
        ServedServices::Catalog => one(MarketplaceService::Catalog, &arguments).await,
        ServedServices::Order => one(MarketplaceService::Order, &arguments).await,
        ServedServices::All => all(&arguments).await,
    }
}

async fn one(service: MarketplaceService, arguments: &MarketplaceArguments) -> Result<()> {
    let address = arguments.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, service.port())));
    let listener = TcpListener::bind(address).await.with_context(|| format!("can't listen on {address}"))?;
    let data = arguments.data.clone().map_or_else(DatabaseFolder::default, DatabaseFolder::folder);
    writeln!(io::stdout(), "{} http://{}", service.name(), listener.local_addr()?)?;
    tokio::select! {
        served = marketplace::serve(service, listener, data) => Ok(served?),
        ended = end(arguments.attached) => Ok(ended?),
    }
}

async fn all(arguments: &MarketplaceArguments) -> Result<()> {
    let (mut profile, _profile) = child(MarketplaceService::Profile, arguments)?;
    let (mut catalog, _catalog) = child(MarketplaceService::Catalog, arguments)?;
    let (mut order, _order) = child(MarketplaceService::Order, arguments)?;
    let service = tokio::select! {
        ended = end(arguments.attached) => return Ok(ended?),
        _ = profile.wait() => MarketplaceService::Profile,
        _ = catalog.wait() => MarketplaceService::Catalog,
        _ = order.wait() => MarketplaceService::Order,
    };
    bail!("the {} service ended, so the others end too", service.name())
}

/// Starts a service as a process. Returns our end of the pipe separately, since waiting for a child closes
/// its `stdin`.
fn child(
    service: MarketplaceService,
    arguments: &MarketplaceArguments,
) -> Result<(Child, Option<ChildStdin>)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(service.name()).arg("--attached");
    command.arg("--listen").arg(place(service, arguments.listen).to_string());
    if let Some(data) = &arguments.data {
        command.arg("--data").arg(data);
    }
    let child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn();
    let mut child = child.with_context(|| format!("can't start the {} service", service.name()))?;
    let pipe = child.stdin.take();
    Ok((child, pipe))
}

/// Returns the address of a service: the three ports are consecutive, unless they are any free ports.
fn place(service: MarketplaceService, first: Option<SocketAddr>) -> SocketAddr {
    let usual = MarketplaceService::Profile.port();
    let mut address = first.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, usual)));
    if address.port() != 0 {
        address.set_port(address.port().saturating_add(service.port() - usual));
    }
    address
}

/// Waits for Ctrl-C, SIGTERM, or the end of the process that started this one.
async fn end(attached: bool) -> io::Result<()> {
    tokio::select! {
        signal = tokio::signal::ctrl_c() => signal,
        () = terminated() => Ok(()),
        () = input_ended(), if attached => Ok(()),
    }
}

/// Waits for the end of the standard input. Reading it blocks a thread, which ends with the process.
async fn input_ended() {
    let (open, closed) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(open);
    });
    let _ = closed.await;
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
