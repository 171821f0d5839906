//! The program itself: one command starts three processes, and they end with it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use marketplace::{DatabaseFolder, Marketplace, MarketplaceService};

/// `marketplace all` on free ports.
struct All {
    process: Child,
    addresses: BTreeMap<String, String>,
    output: BufReader<std::process::ChildStdout>,
    _data: DatabaseFolder,
}

impl All {
    fn start() -> Self {
        let data = DatabaseFolder::fresh().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_marketplace"));
        command.args(["all", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let addresses = (0..3).map(|_| address(&mut output)).collect();
        Self { process, addresses, output, _data: data }
    }
}

/// Parses the next line, such as `profile http://127.0.0.1:3001`.
fn address(output: &mut impl BufRead) -> (String, String) {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let (name, url) = line.trim().split_once(" http://").unwrap();
    (name.into(), url.into())
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn command_runs_all_services_and_ends_them_when_killed() {
    let mut all = All::start();
    for (service, path) in [("profile", "/users/1"), ("catalog", "/catalogs/1"), ("order", "/orders/1")] {
        let answer = get(&all.addresses[service], path);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    all.process.kill().unwrap();
    all.process.wait().unwrap();
    // The children inherited this pipe: it is closed when the last of them ends.
    all.output.read_to_string(&mut String::new()).unwrap();
    assert!(all.addresses.values().all(|address| TcpStream::connect(address).is_err()));
}

#[tokio::test]
async fn runs_all_services_in_process() {
    let marketplace = Marketplace::start(DatabaseFolder::fresh().unwrap()).await.unwrap();
    let address = marketplace.address(MarketplaceService::Order).to_string();
    assert_eq!(marketplace.url(MarketplaceService::Order), format!("http://{address}"));
    let answer = tokio::task::spawn_blocking(move || get(&address, "/orders?limit=1")).await.unwrap();
    assert!(answer.contains("x-total-count: 1509"), "{answer}");
}

#[test]
fn port_in_use_ends_all_services() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let data = DatabaseFolder::fresh().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_marketplace"));
    command.args(["all", "--data"]).arg(data.path());
    command.args(["--listen", &taken.local_addr().unwrap().to_string()]);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("can't listen on"));
}
