//! Durability of state when processes end: by a clean stop, by a takeover, and by SIGKILL at any moment.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::{Pid, Signal, kill_process};
use testkit::http::{self, TestResponse};
use testkit::{GatewayProcess, with_timeout};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ScriptTestGateway;
use super::ledger::{EventLedger, FinalState, LedgerEvent};
use crate::support::orfa_binary;

const LISTING_1: &str = include_str!("../../../../crates/script/tests/listings/1.sjs");

const DURABLE_SCRIPT: &str = r"service kept {
  res '/counter' {
    state n = 0
    on POST { n++; respond n }
    on GET { respond n }
  }
  res '/list' {
    state list = []
    on POST { list.push(Number(query.id)); respond list.length }
    on GET { respond list }
  }
  res '/made' on POST {
    res '/made/' + query.id on GET { respond 'here' }
    respond { 201: { Location: '/made/' + query.id } }
  }
}
";

const CONFIG: &str = "listen: 127.0.0.1:0\nlog: { access: false }\nshed: { automatic: false }\n\
    drain: { delay: 0s }\nroutes:\n  - { path: '/*', script: kept.sjs }\n";

#[tokio::test]
async fn state_survives_a_restart() {
    let mut served = ScriptTestGateway::start(LISTING_1).await;
    assert_eq!(served.request("PUT", "/data?value=S").await.status, 204);
    served.gateway.terminate().await;
    served.gateway = served.gateway.start_successor(orfa_binary()).await;
    assert_eq!(served.get("/data").await, "Hello S");
}

#[tokio::test]
async fn a_killed_worker_is_replaced_without_loss_of_state() {
    let served = ScriptTestGateway::start(LISTING_1).await;
    assert_eq!(served.request("PUT", "/data?value=S").await.status, 204);
    for _ in 0..3 {
        send_sigkill(worker_ids(&served.gateway)[0]);
        served.wait_for_text("/data", "Hello S").await;
    }
}

#[tokio::test]
async fn workers_start_from_the_running_binary_even_if_its_file_was_replaced() {
    let folder = tempfile::tempdir_in(orfa_binary().parent().expect("a folder")).expect("a folder");
    let (binary, other) = (folder.path().join("orfa"), folder.path().join("other"));
    std::fs::hard_link(orfa_binary(), &binary).expect("a second name");
    let gateway = GatewayProcess::start_with(&binary, CONFIG, &[("kept.sjs", DURABLE_SCRIPT)]).await;
    let counter = format!("{}/counter", gateway.url);
    let asked = async |method| http::request(method, &counter, &[], "").await.expect("an answer").text();
    assert_eq!(asked("POST").await, "1");
    std::fs::write(&other, "#!/bin/sh\necho 'this is another binary' >&2; exit 1\n").expect("written");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).expect("executable");
    std::fs::rename(&other, &binary).expect("replaced");
    send_sigkill(worker_ids(&gateway)[0]);
    assert_eq!(asked("GET").await, "1", "{:?}", gateway.log_lines());
}

#[tokio::test]
async fn a_gateway_hands_its_state_over_to_the_next_one() {
    let more = "takeover: takeover.sock";
    let mut served =
        ScriptTestGateway::start_with_routes(LISTING_1, "  - { path: '/s/*', script: shop.sjs }\n", more)
            .await;
    assert_eq!(served.request("PUT", "/data?value=before").await.status, 204);
    let next = served.gateway.start_successor(orfa_binary()).await;
    let mut before = std::mem::replace(&mut served.gateway, next);
    assert_eq!(served.get("/data").await, "Hello before");
    assert_eq!(served.request("PUT", "/data?value=after").await.status, 204);
    assert!(before.wait_for_exit().await.success());
    assert_eq!(served.get("/data").await, "Hello after");
}

#[tokio::test]
async fn shutdown_waits_for_handlers_that_continue_after_their_answer() {
    let script = "service s {\n  state done = 'no'\n  res '/work' on POST {\n    respond 'begun'\n    \
                  res slow = 'http://up/slow?ms=300'\n    slow.get()\n    res '/done' on GET { respond 'yes' }\n  }\n}\n";
    let mut gateway = ScriptTestGateway::start(script).await;
    assert_eq!(gateway.request("POST", "/work").await.text(), "begun");
    assert!(gateway.gateway.terminate().await.success());
    gateway.gateway = gateway.gateway.start_successor(orfa_binary()).await;
    assert_eq!(gateway.get("/done").await, "yes");
}

#[tokio::test]
async fn a_second_signal_does_not_wait_for_handlers() {
    let script =
        "service s { res '/work' on POST { respond 'begun'; res never = 'http://up/hang'; never.get() } }";
    let mut gateway = ScriptTestGateway::start_with_options(script, "limits: { timeout: 10m }", "").await;
    assert_eq!(gateway.request("POST", "/work").await.text(), "begun");
    gateway.gateway.request_shutdown();
    gateway.gateway.wait_for_log(|line| line.contains("draining")).await.expect("a line");
    gateway.gateway.request_shutdown();
    assert!(gateway.gateway.wait_for_exit().await.success());
}

#[tokio::test]
async fn acknowledged_writes_survive_kills_of_workers_and_the_gateway() {
    assert_eq!(SoakGateway::new(orfa_binary(), AcknowledgementSource::Gateway).run(8).await, [""; 0]);
}

#[tokio::test]
async fn the_checker_notices_writes_that_are_acknowledged_before_they_are_committed() {
    let found = SoakGateway::new(orfa_binary(), AcknowledgementSource::Intermediary).run(8).await;
    assert!(found.iter().any(|found| found.contains("is lost")), "{found:?}");
}

#[tokio::test]
#[ignore = "takes minutes: `make soak`"]
async fn nothing_is_lost_in_two_hundred_kills() {
    assert_eq!(SoakGateway::new(orfa_binary(), AcknowledgementSource::Gateway).run(200).await, [""; 0]);
}

/// The source of a client's acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AcknowledgementSource {
    /// The gateway's answer.
    Gateway,
    /// An intermediary that forwards the write and does not wait for the answer.
    Intermediary,
}

/// A gateway that is killed repeatedly under load.
struct SoakGateway<'b> {
    binary: &'b Path,
    acknowledgement: AcknowledgementSource,
    ledger: Arc<EventLedger>,
}

/// A client that sends requests until `is_over` is set.
#[derive(Clone)]
struct SoakClient {
    url: watch::Receiver<String>,
    acknowledgement: AcknowledgementSource,
    ledger: Arc<EventLedger>,
    is_over: Arc<AtomicBool>,
    /// The first of this client's ids.
    first_id: u64,
}

impl<'b> SoakGateway<'b> {
    fn new(binary: &'b Path, acknowledgement: AcknowledgementSource) -> Self {
        Self { binary, acknowledgement, ledger: Arc::default() }
    }

    /// Kills processes this many times, and returns the contradictions between the clients' events and the
    /// final state.
    async fn run(&self, kills: usize) -> Vec<String> {
        let mut gateway =
            GatewayProcess::start_with(self.binary, CONFIG, &[("kept.sjs", DURABLE_SCRIPT)]).await;
        let (url, urls) = watch::channel(gateway.url.clone());
        let is_over = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for first in (0..3).map(|client| client * 1_000_000) {
            let (url, ledger, is_over) = (urls.clone(), Arc::clone(&self.ledger), Arc::clone(&is_over));
            let client =
                SoakClient { url, acknowledgement: self.acknowledgement, ledger, is_over, first_id: first };
            clients.spawn(client.clone().increment_counter());
            clients.spawn(client.clone().append_entries());
            clients.spawn(client.clone().create_resources());
            clients.spawn(client.read_repeatedly());
        }
        let mut workers_killed = 0;
        for kill in 0..kills {
            self.wait_for_writes().await;
            match worker_ids(&gateway).as_slice() {
                // Every third kill is of the gateway; the others are of a worker, if there is one.
                there @ [_, ..] if kill % 3 > 0 => {
                    self::send_sigkill(random_element(there));
                    workers_killed += 1;
                }
                _ => {
                    gateway.pid().into_iter().for_each(self::send_sigkill);
                    gateway.wait_for_exit().await;
                    gateway = gateway.start_successor(self.binary).await;
                    url.send_replace(gateway.url.clone());
                }
            }
        }
        assert!(workers_killed > kills / 3, "only {workers_killed} of {kills} kills were of workers");
        self.wait_for_writes().await;
        is_over.store(true, Relaxed);
        while clients.join_next().await.is_some_and(|ended| ended.map(|()| true).expect("a client ends")) {}
        self.ledger.contradictions(&read_final_state(&gateway.url, &self.ledger).await)
    }

    /// Waits for a random number of acknowledged writes, so that kills come at unpredictable moments.
    async fn wait_for_writes(&self) {
        let enough = self.ledger.acknowledged_count() + 1 + usize::from(random_byte()) % 40;
        let wait = async {
            while self.ledger.acknowledged_count() < enough {
                tokio::task::yield_now().await;
            }
        };
        with_timeout("acknowledged writes", wait).await;
    }
}

impl SoakClient {
    async fn increment_counter(self) {
        while !self.is_over.load(Relaxed) {
            let sent = self.ledger.now();
            let answer = self.request("POST", "/counter").await;
            let value = answer.filter(|answer| answer.status == 200).map(|answer| answer.text());
            let value = value.map(|value| value.parse().expect("a number"));
            self.ledger.record(sent, LedgerEvent::Incremented(value));
        }
    }

    async fn append_entries(self) {
        for id in self.ids() {
            let sent = self.ledger.now();
            let is_acknowledged = self.send_write(&format!("/list?id={id}")).await;
            self.ledger.record(sent, LedgerEvent::Appended { id, is_acknowledged });
        }
    }

    async fn create_resources(self) {
        for id in self.ids() {
            let sent = self.ledger.now();
            let is_acknowledged = self.send_write(&format!("/made?id={id}")).await;
            self.ledger.record(sent, LedgerEvent::Created { id, is_acknowledged });
        }
    }

    async fn read_repeatedly(self) {
        while !self.is_over.load(Relaxed) {
            let sent = self.ledger.now();
            if let Some(answer) = self.request("GET", "/counter").await.filter(|answer| answer.status == 200)
            {
                self.ledger.record(sent, LedgerEvent::Read(answer.text().parse().expect("a number")));
            }
            let sent = self.ledger.now();
            if let Some(answer) = self.request("GET", "/list").await.filter(|answer| answer.status == 200) {
                self.ledger.record(sent, LedgerEvent::Listed(parse_numbers(&answer)));
            }
        }
    }

    /// Returns the client's ids until `is_over` is set.
    fn ids(&self) -> impl Iterator<Item = u64> + use<> {
        let is_over = Arc::clone(&self.is_over);
        (self.first_id..).take_while(move |_| !is_over.load(Relaxed))
    }

    /// Sends a write. Returns whether it was acknowledged.
    async fn send_write(&self, path: &str) -> bool {
        match self.acknowledgement {
            AcknowledgementSource::Gateway => {
                self.request("POST", path).await.is_some_and(|answer| answer.status.is_success())
            }
            AcknowledgementSource::Intermediary => {
                let (client, path) = (self.clone(), path.to_owned());
                let passed = tokio::spawn(async move { client.request("POST", &path).await });
                // Requests of its own slow it down, so that it does not send at unlimited speed.
                tokio::select! {
                    _ = passed => {}
                    _ = self.request("GET", "/counter") => {}
                }
                true
            }
        }
    }

    /// Sends a request and returns the answer, if one arrives.
    async fn request(&self, method: &str, path: &str) -> Option<TestResponse> {
        let url = format!("{}{path}", *self.url.borrow());
        http::request(method, &url, &[], "").await.ok()
    }
}

/// Reads the final state, after all writes have ended.
async fn read_final_state(url: &str, ledger: &EventLedger) -> FinalState {
    let get = async |path: String| {
        let answer = http::request("GET", &format!("{url}{path}"), &[], "").await.expect("an answer");
        assert!(answer.status == 200 || path.starts_with("/made/"), "{path}: {}", answer.text());
        answer
    };
    let counter = get("/counter".to_owned()).await.text().parse().expect("a number");
    let list = parse_numbers(&get("/list".to_owned()).await);
    let mut left = FinalState { counter, list, ..FinalState::default() };
    for id in ledger.attempted_resources() {
        if get(format!("/made/{id}")).await.text() == "here" {
            left.resources.insert(id);
        }
    }
    left
}

fn parse_numbers(answer: &TestResponse) -> Vec<u64> {
    serde_json::from_slice(&answer.body).expect("a list of numbers")
}

/// Returns the ids of the gateway's child processes.
fn worker_ids(gateway: &GatewayProcess) -> Vec<u32> {
    let Some(parent) = gateway.pid() else { return Vec::new() };
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| parent_id(*id) == Some(parent)).collect()
}

fn parent_id(id: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn send_sigkill(id: u32) {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process");
    // The process may have ended already.
    let _ = kill_process(pid, Signal::KILL);
}

fn random_element(of: &[u32]) -> u32 {
    of[usize::from(random_byte()) % of.len()]
}

/// Returns a random byte.
fn random_byte() -> u8 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()).to_le_bytes()[0]
}
