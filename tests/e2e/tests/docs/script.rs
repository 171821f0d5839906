//! Runs the tutorial docs/s.md: writes its files, runs its commands and compares their output. A code block
//! is a file, named in its first line. A block `sh` starts or restarts the gateway, `console` has commands
//! with their output, and `log` has lines of the gateway's log.

use std::cell::Cell;
use std::path::PathBuf;

use http::Method;
use marketplace::{DatabaseFolder, Marketplace, MarketplaceService};
use testkit::http::{self as client, TestResponse};
use testkit::{GatewayProcess, with_timeout};
use tokio::process::Command;

use crate::support::orfa_binary;

const PAGE: &str = include_str!("../../../../docs/s.md");
/// The address of the page's gateway.
const GATEWAY_ADDRESS: &str = "localhost:8080";

/// Returns the code blocks of the page with their languages.
fn code_blocks() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGE.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

/// Splits a block into commands, each with its output lines.
fn split_commands(block: &'static str) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command, Vec::new())),
            None => commands.last_mut().expect("a command above").1.push(line),
        }
    }
    commands
}

/// Splits a command into words like a shell.
fn split_words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (index, part) in command.split('\'').enumerate() {
        let is_quoted = index % 2 == 1;
        for (number, word) in part.split(|c: char| !is_quoted && c == ' ').enumerate() {
            if number > 0 {
                words.push(String::new());
            }
            words.last_mut().expect("a word").push_str(word);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the first line of `shown` that is missing from `said`, where lines must come in order. Whitespace
/// and line breaks are ignored.
fn missing_line<'l>(said: &str, shown: &[&'l str]) -> Option<&'l str> {
    let (said, mut at) = (collapse_whitespace(said), 0);
    shown.iter().copied().find(|line| {
        let line = collapse_whitespace(line);
        let found = said[at..].find(&line);
        at += found.map_or(0, |found| found + line.len());
        found.is_none()
    })
}

fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A reader of the page, with a gateway.
struct DocsReader {
    marketplace: Marketplace,
    folder: tempfile::TempDir,
    config: String,
    gateway: Option<GatewayProcess>,
    /// The number of times that a script has come into force.
    deployment_count: usize,
}

impl DocsReader {
    async fn new() -> Self {
        let marketplace =
            Marketplace::start(DatabaseFolder::fresh().expect("data")).await.expect("a marketplace");
        let folder = tempfile::tempdir().expect("a folder");
        Self { marketplace, folder, config: String::new(), gateway: None, deployment_count: 0 }
    }

    fn working_folder(&self) -> PathBuf {
        self.gateway.as_ref().map_or(self.folder.path().to_owned(), GatewayProcess::directory)
    }

    /// Sets the config, with fixed ports replaced.
    fn write_config(&mut self, config: &str) {
        let mut config = config.replace("127.0.0.1:8080", "127.0.0.1:0");
        for service in [MarketplaceService::Profile, MarketplaceService::Catalog, MarketplaceService::Order] {
            let url = format!("http://127.0.0.1:{}", service.port());
            config = config.replace(&url, &self.marketplace.url(service));
        }
        self.config = format!("{config}\ndrain: {{ delay: 0s }}\n");
    }

    async fn write_script(&mut self, text: &str) {
        let (name, _) = text.strip_prefix("// ").and_then(|text| text.split_once('\n')).expect("a name");
        let Some(gateway) = &self.gateway else {
            return std::fs::write(self.folder.path().join(name), text).expect("written");
        };
        gateway.replace_file(name, text);
        if name == "shop.sjs" {
            self.wait_for_script().await;
        }
    }

    /// Waits until the next script is in force.
    async fn wait_for_script(&mut self) {
        let gateway = self.gateway.as_ref().expect("a started gateway");
        let seen = Cell::new(0);
        let is_next = |line: &str| {
            seen.set(seen.get() + usize::from(line.contains("the script is active")));
            seen.get() > self.deployment_count
        };
        gateway.wait_for_log(is_next).await.expect("a line");
        self.deployment_count += 1;
    }

    async fn start_gateway(&mut self) {
        self.gateway = Some(match self.gateway.take() {
            Some(mut before) => {
                assert!(before.terminate().await.success());
                before.start_successor(orfa_binary()).await
            }
            None => {
                let script = std::fs::read_to_string(self.folder.path().join("shop.sjs")).expect("a script");
                GatewayProcess::start_with(orfa_binary(), &self.config, &[("shop.sjs", &script)]).await
            }
        });
        self.deployment_count = 0;
        self.wait_for_script().await;
    }

    async fn run_command(&self, command: &str, shown: &[&str]) {
        let words = split_words(command.split("  #").next().expect("the command"));
        if words[0] == "orfa" {
            let (mut run, folder) = (Command::new(orfa_binary()), self.working_folder());
            let output = run.args(&words[1..]).env("NO_COLOR", "1").current_dir(folder).output().await;
            let output = output.expect("orfa runs");
            let said = [output.stderr, output.stdout].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            assert_eq!(missing_line(&said, shown), None, "{command}:\n{said}");
            return;
        }
        assert_eq!(words[0], "curl", "{command}");
        let mut last = String::new();
        // Work that continues after an answer takes a moment.
        let asked = async {
            loop {
                last = self.run_curl(&words[1..]).await;
                let is_safe = !words.iter().any(|word| word == "-X" || word == "--json");
                if missing_line(&last, shown).is_none() || !(is_safe && command.contains("  #")) {
                    return;
                }
            }
        };
        with_timeout(command, asked).await;
        assert_eq!(missing_line(&last, shown), None, "{command}:\n{last}");
    }

    /// Sends the request of a `curl` command and returns its output.
    async fn run_curl(&self, words: &[String]) -> String {
        let (mut method, mut body, mut url, mut headers) = (None, String::new(), "", Vec::new());
        let mut has_head = false;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-i" => has_head = true,
                "-X" => method = words.next().map(String::as_str),
                "--json" => {
                    body = words.next().expect("data").clone();
                    headers.push(("content-type", "application/json"));
                }
                word => url = word,
            }
        }
        let method =
            method.unwrap_or(if body.is_empty() { Method::GET.as_str() } else { Method::POST.as_str() });
        let gateway = &self.gateway.as_ref().expect("a started gateway").url;
        let url = format!("{gateway}{}", url.strip_prefix(GATEWAY_ADDRESS).expect("the gateway's address"));
        let answer = client::request(method, &url, &headers, body).await.expect("an answer");
        if has_head { response_head(&answer) + &answer.text() } else { answer.text() }
    }

    async fn assert_logged(&self, words: &str) {
        let gateway = self.gateway.as_ref().expect("a started gateway");
        assert!(gateway.wait_for_log(|line| line.contains(words)).await.is_some(), "no `{words}` in the log");
    }
}

fn response_head(answer: &TestResponse) -> String {
    let reason = answer.status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\n", answer.status.as_u16());
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {}\n", value.to_str().expect("text")));
    }
    head
}

#[tokio::test]
async fn the_s_tutorial_works_as_described() {
    let mut reader = DocsReader::new().await;
    for (language, block) in code_blocks() {
        match language {
            "yaml" if reader.gateway.is_none() => reader.write_config(block),
            // This config is about production; `configs.rs` checks it.
            "yaml" => {}
            "js" => reader.write_script(block).await,
            "sh" => reader.start_gateway().await,
            "console" => {
                for (command, shown) in split_commands(block) {
                    reader.run_command(command, &shown).await;
                }
            }
            "log" => {
                for line in block.lines() {
                    reader.assert_logged(line).await;
                }
            }
            other => panic!("unexpected language `{other}`"),
        }
    }
    assert!(reader.gateway.is_some(), "the page starts no gateway");
}
