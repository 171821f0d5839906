//! The gateway as a systemd service: notifications (`sd_notify(3)`) and socket activation
//! (`sd_listen_fds(3)`). Both protocols can be tested without systemd.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use testkit::{GatewayProcess, http, misbehaving_upstream, with_timeout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixDatagram};
use tokio::process::Command;

use crate::support::orfa_binary;

const CONFIG: &str = "
listen: LISTEN
admin: off
takeover: takeover.sock
drain: { delay: 0s }
services: { up: { url: 'UPSTREAM' } }
routes: [{ path: '/up/*', proxy: up }]
";

async fn config(listen: &str) -> (String, misbehaving_upstream::MisbehavingUpstream) {
    let upstream = misbehaving_upstream::start().await;
    (CONFIG.replace("LISTEN", listen).replace("UPSTREAM", &upstream.url()), upstream)
}

/// A service manager that receives the gateway's notifications.
struct ServiceManager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl ServiceManager {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        Self { folder, socket }
    }

    /// Returns a command that starts a gateway as this manager's service.
    fn command(&self) -> Command {
        let mut command = Command::new(orfa_binary());
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command
    }

    /// Receives the next message.
    async fn receive_notification(&self) -> String {
        let mut message = [0; 4096];
        let length = with_timeout("a message to the service manager", self.socket.recv(&mut message)).await;
        String::from_utf8_lossy(&message[..length.expect("a message")]).into_owned()
    }
}

fn serving_notification(gateway: &GatewayProcess) -> String {
    format!("MAINPID={}\nREADY=1\nSTATUS=serving", gateway.pid().expect("a process"))
}

#[tokio::test]
async fn notifies_the_service_manager_of_start_reload_and_stop() {
    let (config, _upstream) = config("127.0.0.1:0").await;
    let manager = ServiceManager::new();
    let mut gateway = GatewayProcess::start_with_command(manager.command(), &config).await;
    assert_eq!(manager.receive_notification().await, serving_notification(&gateway));
    gateway.request_reload();
    let reloading = manager.receive_notification().await;
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a message about the reload");
    assert!(since.parse::<u64>().is_ok(), "{reloading}");
    assert_eq!(manager.receive_notification().await, "READY=1\nSTATUS=serving");
    gateway.request_shutdown();
    assert_eq!(manager.receive_notification().await, "STOPPING=1\nSTATUS=draining");
    assert!(gateway.wait_for_exit().await.success());
}

#[tokio::test]
async fn a_successor_becomes_the_main_process_and_the_old_one_sends_nothing_more() {
    let (config, _upstream) = config("127.0.0.1:0").await;
    let manager = ServiceManager::new();
    let mut gateway = GatewayProcess::start_with_command(manager.command(), &config).await;
    assert_eq!(manager.receive_notification().await, serving_notification(&gateway));
    gateway.wait_for_log(|line| line.contains("can be taken over")).await.expect("a takeover socket");
    let mut next = gateway.start_successor_with(manager.command()).await;
    assert_eq!(manager.receive_notification().await, serving_notification(&next));
    assert!(gateway.wait_for_exit().await.success());
    next.request_shutdown();
    assert_eq!(manager.receive_notification().await, "STOPPING=1\nSTATUS=draining");
    assert!(next.wait_for_exit().await.success());
}

/// The command for `ExecReload=` in docs/operating.md: it exits at once and leaves a gateway running.
#[tokio::test]
async fn a_command_that_ends_at_once_can_start_the_new_binary() {
    let (config, _upstream) = config("127.0.0.1:0").await;
    let manager = ServiceManager::new();
    let mut gateway = GatewayProcess::start_with_command(manager.command(), &config).await;
    assert_eq!(manager.receive_notification().await, serving_notification(&gateway));
    gateway.wait_for_log(|line| line.contains("can be taken over")).await.expect("a takeover socket");
    let mut reload = Command::new("sh");
    reload.env("NOTIFY_SOCKET", manager.folder.path().join("notify")).stderr(Stdio::null());
    reload
        .args(["-c", r#""$0" serve --config "$1" &"#])
        .arg(orfa_binary())
        .arg(gateway.directory().join("orfa.yaml"));
    assert!(reload.status().await.expect("an end").success());
    let said = manager.receive_notification().await;
    let main = said.strip_prefix("MAINPID=").and_then(|rest| rest.lines().next()?.parse().ok());
    let main = main.and_then(rustix::process::Pid::from_raw).expect("the new process");
    let ended = gateway.wait_for_exit().await;
    rustix::process::kill_process(main, rustix::process::Signal::TERM).expect("asked to end");
    assert!(ended.success());
    assert_eq!(manager.receive_notification().await, "STOPPING=1\nSTATUS=draining");
}

/// Returns a command that passes the socket as systemd does: as file descriptor 3, announced in the
/// environment.
fn activated_command(socket: &TcpListener) -> Command {
    command_with_socket("$$", socket)
}

/// Like `activated`, with this number as `LISTEN_PID`.
fn command_with_socket(process: &str, socket: &TcpListener) -> Command {
    let told = format!("LISTEN_PID={process} LISTEN_FDS=1 LISTEN_FDNAMES=orfa.socket");
    let script = format!(r#"exec 3>&1 >/dev/null; {told} exec "$0" "$@""#);
    let handle = OwnedFd::from(socket.try_clone().expect("a handle"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(orfa_binary()).stdout(Stdio::from(handle));
    command
}

#[tokio::test]
async fn uses_the_service_managers_sockets_and_refuses_no_connections_between_two_gateways() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address");
    let (config, _upstream) = config(&address.to_string()).await;
    let mut gateway = GatewayProcess::start_with_command(activated_command(&socket), &config).await;
    assert_eq!(gateway.address, address);
    let answer = http::request("GET", &format!("{}/up/json", gateway.url), &[], "").await;
    assert_eq!(answer.expect("an answer").status, 200);
    assert!(gateway.terminate().await.success());
    let mut waiting = TcpStream::connect(address).await.expect("a connection while no gateway is running");
    let request = "GET /up/json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    waiting.write_all(request.as_bytes()).await.expect("sent");
    let _next = GatewayProcess::start_with_command(activated_command(&socket), &config).await;
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn warns_about_passed_sockets_that_the_config_does_not_list() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let (config, _upstream) = config("127.0.0.1:0").await;
    let gateway = GatewayProcess::start_with_command(activated_command(&socket), &config).await;
    assert_ne!(gateway.address, socket.local_addr().expect("an address"));
    gateway
        .wait_for_log(|line| line.contains("does not name this socket"))
        .await
        .expect("a log line about it");
}

#[tokio::test]
async fn ignores_sockets_for_another_process() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let (config, _upstream) = config(&socket.local_addr().expect("an address").to_string()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("orfa.yaml");
    std::fs::write(&file, config).expect("written");
    let mut command = command_with_socket("1", &socket);
    let ended = command.args(["serve", "--config"]).arg(file).stderr(Stdio::piped()).spawn();
    let output = ended.expect("a process").wait_with_output().await.expect("an end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(70), "{said}");
    assert!(said.contains("not-listening"), "{said}");
}
