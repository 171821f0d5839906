//! Native replays of recorded programs: C compiled for this machine and JavaScript in Node, with host calls
//! answered from the recording.

use std::path::Path;

use tokio::process::Command;

use crate::support::{RecordedRun, TestQuery, build_c_program, lossy_text, orfa_binary, write_file};

use super::recordings::JAVASCRIPT;

#[tokio::test]
async fn javascript_in_node_produces_the_recorded_bytes() {
    let recorded = RecordedRun::record(TestQuery::javascript(JAVASCRIPT).input(r#"{"n":3}"#)).await;
    let output = recorded.run_natively("q.js", JAVASCRIPT.as_bytes()).await;
    assert!(recorded.matches_answer(&output.stdout), "{}", lossy_text(&output.stderr));
    assert_eq!(lossy_text(&output.stderr), "so far 3\norfa: status 200, as the recorded run\n");
}

#[tokio::test]
async fn every_kind_of_call_behaves_the_same_in_node() {
    let program = r#"
export const input = "text";
export default async function (input, { up, impatient }) {
  const failed = (error) => [error instanceof ServiceError, error.message, error.status, error.reason ?? null, error.body];
  const params = { n: 2, "ä b": "ü/&=?#", list: [1, "a,b", true], date: new Date(0), none: null, big: 7n, "~-._*": "'()" };
  const post = await up.post("/echo?x=1", { deep: [input] }, { q: "1 2" });
  const bytes = await up.post("/echo", new Uint8Array([1, 2, 3]));
  const form = await up.post("/echo", new URLSearchParams({ a: "b c" }));
  const status = await Promise.all([404, 500, 204].map((code) => up.get("/status/{code}", { code }).catch(failed)));
  const head = await up.head("/json", { n: 1 });
  const fetched = await up.fetch("/json?n=1");
  const late = await impatient.get("/slow", { ms: 20000 }).catch(failed);
  const wrong = await Promise.all([() => up.get("json"), () => up.get("/{n}"), () => up.get("/{n}", { n: ".." }), () => up.get("/", { n: {} }),
    () => up.get("/{n}", { n: ["a", ""] }), () => up.get("/", new Map()), () => up.get("/{n}", new URLSearchParams({ n: "a" })), () => up.delete("/", { n: [] }),
    () => up.delete("/", { n: ["a", ""] }), () => up.delete("/", { n: null }), () => up.post("/", 1, { n: undefined })]
    .map(async (call) => call()).map((promise) => promise.catch((error) => [error.name, error.message])));
  const unknown = (() => { try { services.nobody } catch (error) { return error.name } })();
  return Response.json({ path: (await up.get("/echo", params)).path, search: (await up.get("/echo?a=1", new URLSearchParams({ b: "1 2" }))).path, post: post.body, query: post.path, form: [form.body, bytes.method], status,
    head: head.get("content-type"), fetched: [fetched.status, fetched.headers.get("content-type"), await fetched.json()], late, wrong, unknown },
    { status: 201 });
}"#;
    let recorded = RecordedRun::record(TestQuery::javascript(program).input("plain text")).await;
    assert_eq!(recorded.outcome(), 201, "{}", recorded.json["end"]);
    let again = recorded.assert_replays("q.js", program.as_bytes()).await;
    let output = recorded.run_natively("q.js", program.as_bytes()).await;
    assert_eq!(lossy_text(&output.stdout), lossy_text(&again.stdout), "{}", lossy_text(&output.stderr));
    assert_eq!(lossy_text(&output.stderr), "orfa: status 201, as the recorded run\n");
}

#[tokio::test]
async fn writes_that_were_not_awaited_end_the_same_in_node() {
    let program = "export default (_, { up }) => {
        const save = async () => { await up.post('/echo', 1); await up.post('/echo', 2) };
        save();
        return 'done';
    }";
    let recorded = RecordedRun::record(TestQuery::javascript(program)).await;
    let again = recorded.assert_replays("q.js", program.as_bytes()).await;
    let output = recorded.run_natively("q.js", program.as_bytes()).await;
    assert_eq!(lossy_text(&output.stdout), lossy_text(&again.stdout), "{}", lossy_text(&output.stderr));
    assert_eq!(lossy_text(&output.stderr), "orfa: status 200, as the recorded run\n");
}

#[tokio::test]
async fn javascript_in_node_reports_where_it_diverges() {
    let program = "export default async (_, { up }) => (await up.get('/json', { n: 3 })).length";
    let recorded = RecordedRun::record(TestQuery::javascript(program)).await;
    let asks_more = program.replace(".length", ".map((one) => up.get('/json', { n: 4 }))");
    let throws = program.replace("(await", "nobody + (await");
    for (changed, told) in [
        (
            program.replace("n: 3", "n: 4"),
            "the program calls GET http://up/json?n=4, where the recording has GET http://up/json?n=3",
        ),
        (asks_more, "the recorded run made no more calls"),
        (throws, "nobody is not defined"),
        ("export default () => new Promise(() => {})".to_owned(), "can never settle"),
    ] {
        let output = recorded.run_natively("q.js", changed.as_bytes()).await;
        assert!(lossy_text(&output.stderr).contains(told), "{told}: {}", lossy_text(&output.stderr));
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    }
}

/// A C program that uses every host function, with bytes that are not valid text.
const C_PROGRAM: &str = r#"#include <orfa.h>
#include <string.h>
void orfa(const void *input, int len) {
    unsigned char out[600];
    orfa_future one = orfa_get("http://up/encoded?with=gzip"), gone = orfa_get("http://dead/");
    orfa_with("x-mine", "1");
    orfa_future post = orfa_post("http://up/echo", "{a:%d,b:%s}", 7, "\xc3\xa4");
    int at = 0;
    out[at++] = orfa_Future_ready(one) == 0 || orfa_Future_ready(one) == 1;
    orfa_wait_all((orfa_future[]){one, gone, post}, 3);
    out[at++] = orfa_error_of(gone) == ORFA_UNREACHABLE;
    out[at++] = orfa_status_of(post) == 200;
    out[at++] = strlen(orfa_header_of(post, "Content-Type"));
    char part[40] = {0};
    out[at++] = orfa_Response_json(post, "/body", 5, part, sizeof part);
    out[at++] = (unsigned char)orfa_Response_json(post, "/nothing", 8, part, sizeof part);
    out[at++] = (unsigned char)orfa_Response_json(gone, "/body", 5, part, sizeof part);
    memcpy(out + at, part, sizeof part), at += sizeof part;
    memcpy(out + at, input, len), at += len;
    orfa_random(out + at, 64), at += 64;
    int64_t now = orfa_clock();
    memcpy(out + at, &now, sizeof now), at += sizeof now;
    orfa_Handle_del(one);
    out[at++] = orfa_status(99) == ORFA_INVALID && orfa_status(203) == ORFA_OK;
    out[at++] = orfa_header("etag", "\"1\"") == ORFA_OK;
    orfa_log("%d bytes", at);
    orfa_done(out, at);
}"#;

#[tokio::test]
async fn native_host_functions_return_the_recorded_results() {
    let module = build_c_program(C_PROGRAM).await;
    let mut query = TestQuery::new("application/wasm", [&[0xff, 0, 0xfe][..], &module].concat());
    query = query.header("orfa-input", "3");
    let recorded = RecordedRun::record(query).await;
    assert_eq!(recorded.outcome(), 203, "{}", recorded.json["end"]);
    let again = recorded.assert_replays("q.wasm", &module).await;
    let natively = recorded.run_natively("q.c", C_PROGRAM.as_bytes()).await;
    assert_eq!(natively.stdout, again.stdout, "{}", lossy_text(&natively.stderr));
}

#[tokio::test]
async fn native_programs_report_where_they_diverge() {
    let source = "#include <orfa.h>\nvoid orfa(const void *in, int len) { orfa_done_as(\"{a:%v}\", orfa_get_json(\"http://up/json?n=1\")); }";
    let module = build_c_program(source).await;
    let recorded = RecordedRun::record(TestQuery::module(module)).await;
    let another = source.replace("orfa_done_as", "orfa_clock(); orfa_done_as");
    let more = source.replace("); }", "); orfa_clock(); }");
    for (changed, told) in [
        (
            source.replace("n=1", "n=2"),
            "host call 1: http is called with url http://up/json?n=2, where the recording has http://up/json?n=1",
        ),
        (another, "host call 1: the program calls clock, where the recording has http"),
        (more, "the program calls clock, where the recording has return"),
        ("#include <orfa.h>\nvoid orfa(const void *in, int len) {}".to_owned(), "ended without an answer"),
        ("#include <orfa.h>\nvoid orfa(const void *in, int len) { nonsense }".to_owned(), "(compile-failed)"),
    ] {
        let output = recorded.run_natively("q.c", changed.as_bytes()).await;
        assert!(lossy_text(&output.stderr).contains(told), "{told}: {}", lossy_text(&output.stderr));
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{told}");
    }
}

#[tokio::test]
async fn native_runs_end_at_the_recorded_limit() {
    let source = "#include <orfa.h>\nvoid orfa(const void *in, int len) { orfa_log(\"so far\"); orfa_wait_ok(orfa_get(\"http://up/hang\")); }";
    let recorded =
        RecordedRun::record(TestQuery::module(build_c_program(source).await).limit("deadline=300")).await;
    let script = "export default async (_, { up }) => { console.log('so far'); await up.get('/hang'); }";
    let in_node = RecordedRun::record(TestQuery::javascript(script).limit("deadline=300")).await;
    for output in [
        recorded.run_natively("q.c", source.as_bytes()).await,
        in_node.run_natively("q.js", script.as_bytes()).await,
    ] {
        let told = lossy_text(&output.stderr);
        assert!(
            told.starts_with("so far\norfa: the recorded run ended here: the program needs more than 300 ms"),
            "{told}"
        );
        assert!(told.ends_with("(limit-deadline)\n") && output.status.code() == Some(1), "{told}");
    }
}

/// Runs `orfa query debug run.json` with these arguments. Returns the exit code and the standard error
/// output.
async fn run_debug(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(orfa_binary());
    let command = command.args(["query", "debug", "run.json"]).args(arguments).current_dir(folder);
    let output = command.env("ORFA_RECORDING", "").output().await.expect("orfa runs");
    (output.status.code(), lossy_text(&output.stderr))
}

#[tokio::test]
async fn native_programs_run_alone_and_reject_invalid_recordings() {
    let source = "#include <orfa.h>\nvoid orfa(const void *in, int len) { orfa_done(in, len); }";
    let recorded = RecordedRun::record(TestQuery::module(build_c_program(source).await).input("in")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut newer = recorded.json.clone();
    newer["version"] = 2.into();
    write_file(folder.path(), "q.c", source.as_bytes());
    write_file(folder.path(), "run.json", &recorded.bytes);
    write_file(folder.path(), "short.json", &recorded.bytes[..recorded.bytes.len() - 9]);
    write_file(folder.path(), "newer.json", newer.to_string().as_bytes());
    write_file(folder.path(), "other.json", b"{}");
    assert_eq!(run_debug(folder.path(), &["--program", "q.c", "--out", "q"]).await, (Some(0), String::new()));
    for (recording, told) in [
        (&["run.json"][..], ""),
        (&["short.json"], "short.json is not a recording: "),
        (&["newer.json"], "newer.json has version 2; this supports version 1"),
        (&["other.json"], "other.json is not a recording: it has no `version`"),
        (&["gone.json"], "gone.json is not a recording: "),
        (&[], "no recording: run `"),
    ] {
        let mut command = Command::new(folder.path().join("q"));
        let output = command.args(recording).current_dir(folder.path()).env_remove("ORFA_RECORDING").output();
        let output = output.await.expect("it runs");
        let (code, answer) = if told.is_empty() { (0, "in") } else { (1, "") };
        assert_eq!(
            (output.status.code(), &*lossy_text(&output.stdout)),
            (Some(code), answer),
            "{recording:?}"
        );
        assert!(lossy_text(&output.stderr).contains(told), "{recording:?}: {}", lossy_text(&output.stderr));
    }
}

#[tokio::test]
async fn debug_reports_unusable_programs_and_arguments() {
    let recorded = RecordedRun::record(TestQuery::javascript("export default () => 1")).await;
    let folder = tempfile::tempdir().expect("a folder");
    write_file(folder.path(), "run.json", &recorded.bytes);
    write_file(folder.path(), "q.js", b"export default () => 1");
    write_file(folder.path(), "q.wasm", b"\0asm");
    write_file(folder.path(), "bad.ts", b"enum E { A }");
    for (arguments, exit, code) in [
        (&["--program", "q.js", "--out", "q"][..], 64, "nothing-to-write"),
        (&["--program", "q.wasm", "--no-debugger"], 64, "unknown-program"),
        (&["--program", "gone.js", "--no-debugger"], 64, "no-such-file"),
        (&["--program", "gone.c", "--no-debugger"], 64, "no-such-file"),
        (&["--program", "bad.ts", "--no-debugger"], 1, "program-syntax"),
        // The flag's name in version 0.1.
        (&["--program", "bad.ts", "--plain"], 1, "program-syntax"),
        (&["--program", "q.js", "--", "no-such-debugger"], 1, "debugger-missing"),
    ] {
        let (status, told) = run_debug(folder.path(), arguments).await;
        assert!(status == Some(exit) && told.contains(&format!("({code})")), "{arguments:?}: {told}");
    }
}
