//! A worker reaches its own files and no network. The test is its own launcher, as `orfa` is: a process that confines
//! itself and becomes the engine. So it has a `main` of its own.
#![allow(missing_docs)]

use std::fs;
use std::sync::Arc;

use http::Request;
use http_body_util::BodyExt;
use script::{Options, compile};
use script_runtime::{Deployed, Ground, Launcher, Script, ScriptConfig, Scripts, ScriptsConfig, confined};
use services::{Call, Services, body};
use testkit::patiently;

/// A package of the script's, which tries to connect when it is loaded.
const PACKAGE: &str = "
import { connect } from 'node:net'
export const reached = await new Promise((done) => {
  connect(PORT, '127.0.0.1', () => done('reached')).on('error', (error) => done(error.code))
})";

const SCRIPT: &str = "
import { readFileSync, writeFileSync } from 'node:fs'
import { reached } from 'word'
function tried(what) { try { return what() } catch (error) { return error.code } }
service confined {
  res '/read' on GET { respond tried(() => readFileSync(query.file, 'utf8')) }
  res '/write' on GET { respond tried(() => writeFileSync(query.file, '')) || 'written' }
  res '/connect' on GET { respond reached }
  res '/environment' on GET { respond Object.keys(process.env) }
}";

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == "become-a-worker") {
        panic!("{}", confined(arguments));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(a_worker_reaches_its_own_files_and_neither_the_state_nor_the_network());
}

async fn a_worker_reaches_its_own_files_and_neither_the_state_nor_the_network() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own");
    fs::create_dir_all(own.join("node_modules/word")).expect("a folder");
    fs::write(own.join("own.txt"), "own").expect("a file");
    fs::create_dir_all(own.join("kept")).expect("a folder");
    fs::write(own.join("kept/beside.txt"), "beside").expect("a file");
    fs::write(own.join("node_modules/word/package.json"), r#"{"name": "word", "type": "module"}"#)
        .expect("a file");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let package = PACKAGE.replace("PORT", &port.to_string());
    fs::write(own.join("node_modules/word/index.js"), package).expect("a file");
    fs::write(folder.path().join("other.txt"), "other").expect("a file");
    let launcher = Launcher {
        program: std::env::current_exe().expect("a path"),
        arguments: vec!["become-a-worker".into()],
    };
    let config = ScriptsConfig { state: "own/kept/state".into(), ..ScriptsConfig::default() };
    let scripts = Scripts::new(&config, folder.path(), Some(launcher)).expect("Node.js");
    let (services, deployed) = (Services::new(&[].into()).expect("none"), Deployed::default());
    let ground = Ground {
        path: "/*",
        services: &services,
        scripts: &scripts,
        deployed: &deployed,
        folder: folder.path(),
    };
    let options = ScriptConfig::File("own/confined.sjs".into()).options();
    let program = compile(SCRIPT, "confined.sjs", &Options::default()).expect("a script");
    let script = Script::of(program, SCRIPT.into(), options, &ground)
        .unwrap_or_else(|problems| panic!("{problems:?}"));
    script.activate();
    let script = Arc::new(script);
    let ask = async |path: String| {
        let request = Request::get(path).body(body::empty()).expect("a request");
        let answer = patiently("an answer", script.handle(request, Call::unlimited())).await;
        let body =
            answer.unwrap_or_else(|problem| panic!("{problem}")).into_body().collect().await.expect("a body");
        String::from_utf8(body.to_bytes().to_vec()).expect("text")
    };
    let state = folder.path().join("own/kept/state");
    assert!(state.join("state.db").is_file());
    std::os::unix::fs::symlink(&state, own.join("link")).expect("a link");
    let own = own.display();
    assert_eq!(ask(format!("/read?file={own}/own.txt")).await, "own");
    assert_eq!(ask(format!("/read?file={own}/kept/beside.txt")).await, "beside");
    assert_eq!(ask(format!("/read?file={own}/../other.txt")).await, "EACCES");
    for state in ["kept/state", "link"] {
        assert_eq!(
            ask(format!("/read?file={own}/{state}/state.db")).await,
            "EACCES",
            "the state is nobody's to read"
        );
    }
    assert_eq!(ask(format!("/write?file={own}/new.txt")).await, "EACCES");
    assert_eq!(ask(format!("/read?file=/proc/{}/environ", std::process::id())).await, "EACCES");
    assert_eq!(ask("/connect".into()).await, "EACCES");
    assert_eq!(ask("/environment".into()).await, r#"["HOME"]"#);
}
