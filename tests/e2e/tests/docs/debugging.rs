//! Runs the walkthrough docs/debugging.md: every command in it is run, and its output is compared.

use std::path::Path;
use std::process::Stdio;

use marketplace::{DatabaseFolder, Marketplace, MarketplaceService};
use testkit::{GatewayProcess, with_timeout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::orfa_binary;

const PAGE: &str = include_str!("../../../../docs/debugging.md");
const CONFIG: &str = include_str!("../../../../examples/debugging/orfa.yaml");
/// The page's commands for starting the services; the test starts them in this process on free ports.
const START_COMMANDS: &str = "```sh\ncargo run -p marketplace -- all\norfa serve --config orfa.yaml\n```\n";
/// The prompts of the debuggers.
const PROMPTS: [&str; 2] = ["(gdb) ", "debug> "];

/// A line that the page's reader types.
#[derive(Debug)]
enum TypedLine<'a> {
    Shell(&'a str),
    /// A command at a debugger's prompt, with the prompt.
    Debugger(&'a str, &'a str),
}

/// Splits a block into commands, each with its output lines.
fn split_commands(block: &str) -> Vec<(TypedLine<'_>, Vec<&str>)> {
    let mut steps = Vec::new();
    for line in block.lines() {
        let prompt = PROMPTS.iter().find_map(|prompt| Some((*prompt, line.strip_prefix(prompt)?)));
        match (line.strip_prefix("$ "), prompt) {
            (Some(command), _) => steps.push((TypedLine::Shell(command), Vec::new())),
            (None, Some((prompt, command))) => steps.push((TypedLine::Debugger(prompt, command), Vec::new())),
            (None, None) => steps.last_mut().expect("a command above").1.push(line.trim()),
        }
    }
    steps
}

/// A running command and its output so far.
struct DebugSession {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    output_text: String,
    matched_end: usize,
}

impl DebugSession {
    fn start(command: &str, folder: &Path, url: &str) -> Self {
        let beside = orfa_binary().parent().expect("a folder").display();
        let path = format!("{beside}:{}", std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec 2>&1; {command}")).current_dir(folder).env("PATH", path);
        shell.env("ORFA_URL", url).env("NO_COLOR", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.kill_on_drop(true).spawn().expect("a shell");
        let (input, output) = (child.stdin.take().expect("input"), child.stdout.take().expect("output"));
        Self { child, input, output, output_text: String::new(), matched_end: 0 }
    }

    /// Waits for this text in the output, after the last text that was waited for.
    async fn wait_for_output(&mut self, words: &str) {
        let said = async {
            while !self.output_text[self.matched_end..].contains(words) {
                let mut bytes = [0; 4096];
                let count = self.output.read(&mut bytes).await.expect("output");
                assert!(count > 0, "no `{words}` in\n{}", &self.output_text[self.matched_end..]);
                self.output_text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        };
        with_timeout(words, said).await;
        let at = self.output_text[self.matched_end..].find(words).expect("the text");
        self.matched_end += at + words.len();
    }

    async fn type_line(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.expect("an open input");
    }

    async fn wait_for_exit(mut self) {
        drop(self.input);
        let end = async {
            let mut rest = Vec::new();
            let _ = self.output.read_to_end(&mut rest).await;
            self.child.wait().await
        };
        with_timeout("the end of a command", end).await.expect("an end");
    }
}

#[tokio::test]
async fn the_debugging_walkthrough_works_as_described() {
    let marketplace =
        Marketplace::start(DatabaseFolder::fresh().expect("data")).await.expect("a marketplace");
    assert!(PAGE.contains(START_COMMANDS), "the page begins differently");
    let mut config = CONFIG.replace("127.0.0.1:8080", "127.0.0.1:0");
    for service in [MarketplaceService::Profile, MarketplaceService::Catalog, MarketplaceService::Order] {
        config = config.replace(&format!("http://127.0.0.1:{}", service.port()), &marketplace.url(service));
    }
    let gateway = GatewayProcess::start(orfa_binary(), &config).await;
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("stars.c", include_str!("../../../../examples/debugging/stars.c")),
        ("stars.ts", include_str!("../../../../examples/debugging/stars.ts")),
    ] {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let url = format!("{}/query", gateway.url);
    let blocks: Vec<_> =
        PAGE.split("```console\n").skip(1).filter_map(|part| part.split("```").next()).collect();
    assert!(blocks.len() > 5, "the page shows no commands");
    for block in blocks {
        run_block(block, folder.path(), &url).await;
    }
}

async fn run_block(block: &str, folder: &Path, url: &str) {
    let mut session: Option<DebugSession> = None;
    for (typed, shown) in split_commands(block) {
        match (typed, &mut session) {
            (TypedLine::Debugger(prompt, command), Some(session)) => {
                session.wait_for_output(prompt).await;
                session.type_line(command).await;
            }
            (TypedLine::Shell(command), _) => {
                if let Some(over) = session.take() {
                    over.wait_for_exit().await;
                }
                session = Some(DebugSession::start(command, folder, url));
            }
            (typed, None) => panic!("{typed:?} comes before any command"),
        }
        for line in shown {
            session.as_mut().expect("a session").wait_for_output(line).await;
        }
    }
    if let Some(over) = session {
        over.wait_for_exit().await;
    }
}
