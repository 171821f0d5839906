//! `orfa dev`: its output and its reloads.

use std::process::Stdio;
use std::time::Duration;

use testkit::{http, misbehaving_upstream};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::create_folder;
use crate::support::orfa_binary;

/// The time limit for an expected line.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `orfa dev`, killed on drop.
struct DevProcess {
    url: String,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl DevProcess {
    /// Starts `orfa dev` and reads its URL from the output.
    async fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(orfa_binary())
            .args(["dev", "--port", "0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("orfa starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut dev = Self { url: String::new(), lines, _child: child };
        let greeting = dev.wait_for_line("POST http").await;
        dev.url = greeting.split_whitespace().nth(1).expect("a URL").to_owned();
        dev
    }

    /// Waits for a line that starts with this text.
    async fn wait_for_line(&mut self, start: &str) -> String {
        let line = tokio::time::timeout(PATIENCE, self.find_line(start)).await;
        line.unwrap_or_else(|_| panic!("orfa dev did not print a line with `{start}`"))
    }

    async fn find_line(&mut self, start: &str) -> String {
        while let Some(line) = self.lines.next_line().await.expect("text") {
            if line.starts_with(start) {
                return line;
            }
        }
        panic!("orfa dev ended before a line with `{start}`");
    }
}

fn config(upstream: &str, path: &str) -> String {
    format!("services: {{ up: {{ url: '{upstream}' }} }}\nroutes: [{{ path: '{path}', proxy: up }}]\n")
}

#[tokio::test]
async fn draws_calls_and_reloads_a_changed_config() {
    let upstream = misbehaving_upstream::start().await;
    let folder = create_folder(&[("orfa.yaml", &config(&upstream.url(), "/one/*"))]);
    let mut dev = DevProcess::start(&[folder.path().to_str().expect("UTF-8")]).await;
    let base = dev.url.trim_end_matches('/').to_owned();

    let answer = http::request("GET", &format!("{base}/one/echo"), &[], "").await.expect("an answer");
    assert_eq!(answer.status, 200);
    assert!(dev.wait_for_line("GET /one/echo 200").await.ends_with("1 call"));
    assert!(dev.wait_for_line("  up GET /echo  200  |").await.ends_with("ms"));

    std::fs::write(folder.path().join("orfa.yaml"), config(&upstream.url(), "/another/*")).expect("written");
    dev.wait_for_line("the config has changed and is active").await;
    let answer = http::request("GET", &format!("{base}/another/echo"), &[], "").await.expect("an answer");
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn keeps_the_previous_config_when_the_new_one_is_invalid() {
    let upstream = misbehaving_upstream::start().await;
    let folder = create_folder(&[("orfa.yaml", &config(&upstream.url(), "/one/*"))]);
    let mut dev = DevProcess::start(&[folder.path().to_str().expect("UTF-8")]).await;
    let base = dev.url.trim_end_matches('/').to_owned();

    std::fs::write(folder.path().join("orfa.yaml"), "routes: nonsense\n").expect("written");
    dev.wait_for_line("the previous config stays active").await;
    let answer = http::request("GET", &format!("{base}/one/echo"), &[], "").await.expect("an answer");
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn reloads_a_first_query_route_and_lists_settings_that_need_a_restart() {
    let upstream = misbehaving_upstream::start().await;
    let folder = create_folder(&[("orfa.yaml", &config(&upstream.url(), "/one/*"))]);
    let mut dev = DevProcess::start(&[folder.path().to_str().expect("UTF-8")]).await;
    let base = dev.url.trim_end_matches('/').to_owned();

    let file = folder.path().join("orfa.yaml");
    let query = "routes: [{ path: /query, query: { services: [up], limits: { cpu: 777ms } } }]";
    let query = format!("services: {{ up: {{ url: '{}' }} }}\n{query}\n", upstream.url());
    std::fs::write(&file, &query).expect("written");
    dev.wait_for_line("the config has changed and is active").await;
    let typed = [("content-type", "text/javascript")];
    let program = "export default async (_, { up }) => (await up.get('/json')).length";
    let answer = http::request("POST", &format!("{base}/query"), &typed, program).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let line = dev.wait_for_line("POST /query 200").await;
    assert!(line.contains(" of 777"), "{line}");

    std::fs::write(&file, format!("{query}runtime: {{ instances: 7 }}\n")).expect("written");
    dev.wait_for_line("the config has changed and is active").await;
    assert!(dev.wait_for_line("  except ").await.contains("`runtime`"));
}
