//! A worker can access its own files, but neither the network nor other processes; tested on each installed
//! engine. Like `orfa`, the test is its own launcher: a process that sandboxes itself and executes the
//! engine. It therefore has its own `main`.
#![allow(missing_docs)]

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use handler::HandlerRequest;
use http::Request;
use http_body_util::BodyExt;
use offload::{OffloadConfig, OffloadPool};
use script::{CompileOptions, compile};
use script_runtime::{
    DeployedNames, EngineConfig, ScriptConfig, ScriptRoute, ScriptRouteContext, ScriptRuntime, ScriptsConfig,
    WorkerLauncher, exec_sandboxed,
};
use serde_json::Value;
use services::{RequestCall, ServiceSet, body};
use tempfile::TempDir;
use testkit::with_timeout;

mod confined {
    pub(crate) mod probe;
}

const LAUNCH: &str = "become-a-worker";

/// The words for a refused operation in the errors of engines.
const REFUSALS: &[&str] =
    &["EACCES", "EPERM", "EXDEV", "ermission", "denied", "FailedToOpenSocket", "Requires"];

/// A package of the script that tries forbidden operations. The result of each is reported by its name.
const PACKAGE: &str = r"
import { connect } from 'node:net'
import { spawnSync } from 'node:child_process'
import * as fs from 'node:fs'
import * as os from 'node:os'
import { dirname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
const found = (error) => `${error.code} ${error.message}`
const tried = (what) => { try { return what() ?? 'done' } catch (error) { return found(error) } }
const joined = (where) => new Promise((done) => {
  try { connect(where, () => done('reached')).on('error', (error) => done(found(error))) } catch (error) { done(found(error)) }
})
// The thread's process object is not the guarded one.
const thread = (code) => new Promise((done) => {
  try {
    new Worker(`(async () => {
      const { default: process } = await import('node:process')
      const { parentPort } = await import('node:worker_threads')
      let said
      try { said = ${code} } catch (error) { said = [error.code, error.message].join(' ') }
      parentPort.postMessage(String(said))
    })()`, { eval: true }).on('message', done).on('error', (error) => done(found(error)))
  } catch (error) { done(found(error)) }
})
const code = dirname(process.argv[1])
const home = os.homedir()
export const attempts = {
  tcp: await joined({ port: PORT, host: '127.0.0.1' }),
  takeover: await joined({ path: 'FOLDER/takeover.sock' }),
  abstract: await joined({ path: '\0NAME' }),
  rewrites: tried(() => fs.writeFileSync(join(code, 'worker.js'), '')),
  adds: tried(() => fs.writeFileSync(join(code, 'more.js'), '')),
  renames: tried(() => fs.renameSync(join(code, 'run.js'), join(home, 'run.js'))),
  removes: tried(() => fs.unlinkSync(join(code, 'run.js'))),
  lists: tried(() => fs.readdirSync(dirname(home)) && 'listed'),
  runs: tried(() => { const { error, status } = spawnSync('/bin/true'); return error ? found(error) : `exit ${status}` }),
  kills: await thread('process.kill(process.ppid, 0)'),
  renices: tried(() => os.setPriority(process.ppid, 19)),
  environment: tried(() => fs.readFileSync(`/proc/${process.ppid}/environ`) && 'read'),
  memory: tried(() => fs.readFileSync(`/proc/${process.ppid}/mem`) && 'read'),
  shared: tried(() => fs.readdirSync('/dev/shm') && 'listed'),
  temporary: tried(() => fs.writeFileSync(join(os.tmpdir(), 'orfa-confined'), '')),
  inherited: tried(() => fs.fstatSync(INHERITED) && 'open'),
  own: tried(() => fs.writeFileSync(join(home, 'own.txt'), 'own')),
}";

const SCRIPT: &str = "
import { readFileSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { attempts } from 'word'
function tried(what) { try { return what() } catch (error) { return error.code + ' ' + error.message } }
service NAME {
  res '/read' on GET { respond tried(() => readFileSync(query.file, 'utf8')) }
  res '/write' on GET { respond tried(() => writeFileSync(query.file, '')) || 'written' }
  res '/attempts' on GET { respond attempts }
  res '/environment' on GET { respond tried(() => Object.keys(process.env)) || 'refused' }
  res '/home' on GET { respond homedir() }
}";

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|first| first.to_str()) {
        Some(LAUNCH) => panic!("{}", exec_sandboxed(arguments)),
        Some(confined::probe::NAME) => return confined::probe::run_probe(arguments.next()),
        _ => {}
    }
    confined::probe::system_calls_that_no_engine_needs_are_refused(LAUNCH);
    for (_, engine) in installed_engines() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(a_worker_reaches_its_own_files_and_nothing_else(engine));
    }
}

/// Returns Node.js, and the engines that `scripts/setup script` has installed.
fn installed_engines() -> Vec<(&'static str, EngineConfig)> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/engines/node_modules/.bin");
    let command = |name: &str, arguments: &str| {
        let program = tools.join(name);
        let words = arguments.split_whitespace().map(str::to_owned);
        program.is_file().then(|| {
            EngineConfig::Command([program.display().to_string()].into_iter().chain(words).collect())
        })
    };
    let deno = "run --no-prompt --allow-read --allow-write --allow-net --allow-sys --allow-run";
    let others = [("bun", command("bun", "--no-install")), ("deno", command("deno", deno))];
    let node = ("node", ScriptsConfig::default().engine);
    [node].into_iter().chain(others.into_iter().filter_map(|(name, it)| Some((name, it?)))).collect()
}

/// Scripts in a folder, next to files that they must not access.
struct ScriptFolder {
    folder: TempDir,
    scripts: Arc<ScriptRuntime>,
}

impl ScriptFolder {
    fn new(engine: EngineConfig) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let launcher = WorkerLauncher {
            program: std::env::current_exe().expect("a path"),
            arguments: vec![LAUNCH.into()],
        };
        let config = ScriptsConfig { state_dir: "own/kept/state".into(), engine, ..ScriptsConfig::default() };
        fs::create_dir_all(folder.path().join("own/kept")).expect("a folder");
        let offload = OffloadPool::start(OffloadConfig::default()).expect("threads");
        let scripts = ScriptRuntime::new(&config, folder.path(), Some(launcher), offload).expect("an engine");
        Self { folder, scripts }
    }

    fn own_folder(&self) -> PathBuf {
        self.folder.path().join("own")
    }

    /// Starts a script of this name.
    fn start_script(&self, name: &str) -> Arc<ScriptRoute> {
        let (services, names) = (ServiceSet::new(&[].into()).expect("none"), DeployedNames::default());
        let context = ScriptRouteContext {
            path: "/*",
            services: &services,
            scripts: &self.scripts,
            deployed: &names,
            folder: self.folder.path(),
        };
        let file = format!("own/{name}.sjs");
        let options = ScriptConfig::File(file.clone().into()).options();
        let source = SCRIPT.replace("NAME", name);
        let program = compile(&source, &file, &CompileOptions::default()).expect("a script");
        let script = ScriptRoute::build(program, source, options, &context)
            .unwrap_or_else(|problems| panic!("{problems:?}"));
        script.activate();
        Arc::new(script)
    }
}

async fn send_request(script: &Arc<ScriptRoute>, path: String) -> String {
    let request = Request::get(path).body(body::empty()).expect("a request");
    let answer =
        with_timeout("an answer", script.handle(HandlerRequest::new(request, RequestCall::unlimited())))
            .await;
    let body = answer
        .unwrap_or_else(|problem| panic!("{problem}"))
        .response
        .into_body()
        .collect()
        .await
        .expect("a body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

async fn a_worker_reaches_its_own_files_and_nothing_else(engine: EngineConfig) {
    let site = ScriptFolder::new(engine);
    let (folder, own) = (site.folder.path(), site.own_folder());
    fs::create_dir_all(own.join("node_modules/word")).expect("a folder");
    fs::write(own.join("own.txt"), "own").expect("a file");
    fs::write(own.join("kept/beside.txt"), "beside").expect("a file");
    fs::write(own.join("node_modules/word/package.json"), r#"{"name": "word", "type": "module"}"#)
        .expect("a file");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let _takeover = UnixListener::bind(folder.join("takeover.sock")).expect("a socket");
    let name = format!("orfa-confined-{port}");
    let address =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&name);
    let _abstract = UnixListener::bind_addr(&address.expect("a name")).expect("a socket");
    // An inherited descriptor, as systemd passes one.
    let inherited = fs::File::open("/etc/passwd").expect("a file");
    let inherited = rustix::io::fcntl_dupfd_cloexec(&inherited, 500).expect("a number that no engine uses");
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).expect("set");
    let package = PACKAGE
        .replace("PORT", &port.to_string())
        .replace("FOLDER", &folder.display().to_string())
        .replace("NAME", &name)
        .replace("INHERITED", &inherited.as_raw_fd().to_string());
    fs::write(own.join("node_modules/word/index.js"), package).expect("a file");
    fs::write(folder.join("other.txt"), "other").expect("a file");
    let (script, other) = (site.start_script("first"), site.start_script("second"));

    let attempts: Value =
        serde_json::from_str(&send_request(&script, "/attempts".into()).await).expect("JSON");
    for (attempt, outcome) in attempts.as_object().expect("an object") {
        let outcome = outcome.as_str().unwrap_or_default();
        match &**attempt {
            "own" => assert_eq!(outcome, "done"),
            "inherited" => assert!(outcome.contains("EBADF") || outcome.contains("os error 9"), "{outcome}"),
            _ => assert!(REFUSALS.iter().any(|word| outcome.contains(word)), "{attempt}: {outcome}"),
        }
    }
    let homes = (send_request(&script, "/home".into()).await, send_request(&other, "/home".into()).await);
    assert_ne!(homes.0, homes.1, "each script has its own home");
    assert_eq!(send_request(&script, format!("/read?file={}/own.txt", homes.0)).await, "own");
    assert_eq!(
        normalise_refusal(send_request(&script, format!("/read?file={}/own.txt", homes.1)).await),
        "EACCES"
    );
    assert_eq!(
        normalise_refusal(send_request(&script, format!("/write?file={}/own.txt", homes.1)).await),
        "EACCES"
    );

    let state = own.join("kept/state");
    assert!(state.join("state.db").is_file());
    std::os::unix::fs::symlink(&state, own.join("link")).expect("a link");
    let own = own.display();
    assert_eq!(send_request(&script, format!("/read?file={own}/own.txt")).await, "own");
    assert_eq!(send_request(&script, format!("/read?file={own}/kept/beside.txt")).await, "beside");
    assert_eq!(
        normalise_refusal(send_request(&script, format!("/read?file={own}/../other.txt")).await),
        "EACCES"
    );
    for state in ["kept/state", "link"] {
        let read = send_request(&script, format!("/read?file={own}/{state}/state.db")).await;
        assert_eq!(normalise_refusal(read), "EACCES", "workers can't read the state");
    }
    assert_eq!(
        normalise_refusal(send_request(&script, format!("/write?file={own}/new.txt")).await),
        "EACCES"
    );
    assert_eq!(
        normalise_refusal(
            send_request(&script, format!("/read?file=/proc/{}/environ", std::process::id())).await
        ),
        "EACCES"
    );
    // Deno returns no environment at all.
    let environment = normalise_refusal(send_request(&script, "/environment".into()).await);
    assert!([r#"["HOME"]"#, "EACCES"].contains(&&*environment), "{environment}");
}

/// Maps the different errors of engines to one.
fn normalise_refusal(outcome: String) -> String {
    if REFUSALS.iter().any(|word| outcome.contains(word)) { "EACCES".to_owned() } else { outcome }
}

/// Runs this binary as a worker whose engine is this binary again.
pub(crate) fn run_as_worker(launch: &str, what: &str) -> std::process::Output {
    let folder = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("a path");
    let mut command = Command::new(&own);
    command
        .arg(launch)
        .args([folder.path(); 4])
        .args(["100", "101"])
        .arg(&own)
        .args([confined::probe::NAME, what]);
    command.output().expect("a process")
}
