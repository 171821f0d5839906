//! Memory that the gateway allocates for a program outside the sandbox. It counts against the program's limit
//! before it is allocated. The tests compare the peak memory of the process with the allowance of that limit.

use std::fs;

use crate::support::{TestGateway, TestQuery, plain_module, request_segment};

const MIB: usize = 1 << 20;
/// The memory limit of the routes; the programs use 32 MiB of it themselves.
const LIMIT: usize = 34 * MIB;
/// The gateway's own memory for the request, its connections and its log.
const SLACK: usize = 14 * MIB;
const ROUTES: &str = "
  - path: /query
    query:
      services: [up]
      methods: [GET, POST]
      limits: { memory: 34MiB, cpu: 20s, timeout: 60s, calls: 5000, upstream_bytes: 64MiB }
  - path: /recorded
    query:
      services: [up]
      methods: [GET, POST]
      recordings: { callers: [anyone] }
      limits: { memory: 34MiB, cpu: 20s, timeout: 60s }
";
/// Grows the memory by 32 MiB and fills everything behind the first two pages with a byte. Each step fills
/// one mebibyte, because other tasks have no turn during a single instruction.
const GROW_AND_FILL: &str = "(drop (memory.grow (i32.const 512))) (local.set $i (i32.const 131072))
    (loop (memory.fill (local.get $i) (i32.const BYTE) (i32.const 1048576))
      (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1048576))) (i32.const 33685504))))";

fn grow_and_fill(byte: u8) -> String {
    GROW_AND_FILL.replace("BYTE", &byte.to_string())
}

/// Returns a field of the process's status (proc_pid_status(5)).
fn process_status(gateway: &TestGateway, name: &str) -> String {
    let status = format!("/proc/{}/status", gateway.gateway.pid().expect("a process"));
    let status = fs::read_to_string(status).expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect(name).trim().to_owned()
}

/// Returns the peak resident size since the last reset, in bytes.
fn peak_resident_bytes(gateway: &TestGateway) -> usize {
    process_status(gateway, "VmHWM").trim_end_matches("kB").trim().parse::<usize>().expect("a number") * 1024
}

/// Sends a query and returns the growth of the process's peak memory, in bytes, with the start of the answer.
async fn peak_growth(gateway: &TestGateway, query: TestQuery) -> (usize, String) {
    let clear = format!("/proc/{}/clear_refs", gateway.gateway.pid().expect("a process"));
    fs::write(clear, "5").expect("Linux");
    let before = peak_resident_bytes(gateway);
    let answer = query.send(gateway).await;
    (peak_resident_bytes(gateway).saturating_sub(before), answer.text().chars().take(300).collect())
}

/// Returns modules that ask the host for a multiple of their own memory, each with a name.
fn greedy_modules() -> Vec<(&'static str, Vec<u8>)> {
    let call = request_segment(1024, "GET", "http://up/json?n=1", &[], "");
    let wait = "(i32.store (i32.const 16) (call $http (i32.const 1024)))
        (drop (call $Future_wait (i32.const 16) (i32.const 1) (i32.const 1)))";
    let same = format!(
        "(drop (memory.grow (i32.const 512))) {wait}
        (memory.fill (i32.const 131072) (i32.const 0) (i32.const 33554432)) (local.set $i (i32.const 131072))
        (loop (i32.store (local.get $i) (i32.const 1))
          (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 4))) (i32.const 33685504))))
        (drop (call $Future_wait (i32.const 131072) (i32.const 8388608) (i32.const 1)))"
    );
    // A hundred headers that refer to the same bytes: `orfa_request` at 1024, its headers at 2048.
    let headers = "(local.set $i (i32.const 0))
        (loop (i32.store (i32.add (i32.const 2048) (i32.mul (local.get $i) (i32.const 16))) (i32.const 1000))
          (i32.store (i32.add (i32.const 2052) (i32.mul (local.get $i) (i32.const 16))) (i32.const 1))
          (i32.store (i32.add (i32.const 2056) (i32.mul (local.get $i) (i32.const 16))) (i32.const 131072))
          (i32.store (i32.add (i32.const 2060) (i32.mul (local.get $i) (i32.const 16))) (i32.const 1000000))
          (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 100))))
        (i32.store8 (i32.const 1000) (i32.const 97))
        (i32.store (i32.const 1040) (i32.const 2048)) (i32.store (i32.const 1044) (i32.const 100))
        (drop (call $http (i32.const 1024)))";
    let field = |at: u32, address: u32, len: u32| {
        format!(
            "(i32.store (i32.const {at}) (i32.const {address})) (i32.store (i32.const {}) (i32.const {len}))",
            at + 4
        )
    };
    let url = format!("{} (drop (call $http (i32.const 1024)))", field(1032, 131_072, 33_554_432));
    let method = format!("{} (drop (call $http (i32.const 1024)))", field(1024, 131_072, 33_554_432));
    let body = format!("{} (drop (call $http (i32.const 1024)))", field(1048, 131_072, 33_554_432));
    let with = |fields: &str, byte: u8, then: &str| {
        plain_module(fields, &format!("(local $i i32) {} {then}", grow_and_fill(byte)))
    };
    vec![
        ("logs its whole memory", with("", 0xff, "(call $log (i32.const 131072) (i32.const 33554432))")),
        (
            "fails with its whole memory as text",
            with(
                "",
                0xff,
                "(call $fail (i32.const 0) (i32.const 131072) (i32.const 33554432) (i32.const 0) (i32.const 0))",
            ),
        ),
        (
            "sets a header with its whole memory as the name",
            with(
                "",
                b'a',
                "(drop (call $header (i32.const 131072) (i32.const 33554432) (i32.const 0) (i32.const 0)))",
            ),
        ),
        (
            "answers with 4 MB of its memory",
            with("", b'a', "(call $done (i32.const 131072) (i32.const 4000000))"),
        ),
        ("waits for many handles", plain_module(&call, &format!("(local $i i32) {same}"))),
        ("sends many headers that share bytes", with(&call, b'a', headers)),
        ("sends its whole memory as a URL", with(&call, b'a', &url)),
        ("sends its whole memory as a method", with(&call, b'A', &method)),
        ("sends its whole memory as a body", with(&call, b'a', &body)),
        (
            "reads JSON by a pointer of its whole memory",
            with(
                &call,
                b'/',
                &format!(
                    "{wait} (drop (call $Response_json (i32.const 1) (i32.const 131072) (i32.const 33554432) (i32.const 0) (i32.const 0)))"
                ),
            ),
        ),
        (
            "reads JSON by a name of its whole memory",
            with(
                &call,
                b'a',
                &format!(
                    "{wait} (drop (call $Json_column (i32.const 1) (i32.const 1) (i32.const 131072) (i32.const 33554432) (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 0) (i32.const 0)))"
                ),
            ),
        ),
    ]
}

#[tokio::test]
async fn host_functions_allocate_within_the_programs_memory_limit() {
    let gateway = TestGateway::start(ROUTES).await;
    gateway.assert_responsive("/query").await;
    for (what, module) in greedy_modules() {
        let (grown, answer) = peak_growth(&gateway, TestQuery::module(module)).await;
        assert!(grown < LIMIT + SLACK, "{what}: {} MiB: {answer}", grown / MIB);
        gateway.assert_responsive("/query").await;
    }
}

/// Returns a module that receives a text of some MiB of nested arrays from a service and reads its root. The
/// index of such a text is eight times as large.
fn deeply_nested_module(texts: usize) -> Vec<u8> {
    let one = format!("{}\\22{}\\22{},", "[".repeat(1000), "x".repeat(64), "]".repeat(1000));
    let len = 2067 * texts;
    let call = request_segment(1024, "POST", "http://up/body", &[], "");
    plain_module(
        &format!("{call} (data (i32.const 8192) \"{one}\")"),
        &format!(
            "(local $i i32) (drop (memory.grow (i32.const 256))) (local.set $i (i32.const 131073))
            (i32.store8 (i32.const 131072) (i32.const 91))
            (loop (memory.copy (local.get $i) (i32.const 8192) (i32.const 2067))
              (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 2067))) (i32.const {end}))))
            (i32.store8 (i32.const {last}) (i32.const 93))
            (i32.store (i32.const 1048) (i32.const 131072)) (i32.store (i32.const 1052) (i32.const {body}))
            (i32.store (i32.const 16) (call $http (i32.const 1024)))
            (drop (call $Future_wait (i32.const 16) (i32.const 1) (i32.const 1)))
            (drop (call $Json_root (i32.const 1) (i32.const 64) (i32.const 0) (i32.const 0)))
            (call $done (i32.const 64) (i32.const 4))",
            end = 131_073 + len,
            last = 131_072 + len,
            body = len + 1,
        ),
    )
}

#[tokio::test]
async fn the_index_of_a_response_is_counted_while_it_is_built() {
    let gateway = TestGateway::start(ROUTES).await;
    gateway.assert_responsive("/query").await;
    // 2 MiB of text: 17 MiB of guest memory, the body, and an index of 16 MiB exceed the limit.
    let (grown, answer) = peak_growth(&gateway, TestQuery::module(deeply_nested_module(1000))).await;
    assert!(answer.contains("limit-memory"), "{answer}");
    // 12 MiB of text have an index of 96 MiB.
    let (larger, answer) = peak_growth(&gateway, TestQuery::module(deeply_nested_module(6000))).await;
    assert!(answer.contains("limit-memory"), "{answer}");
    for grown in [grown, larger] {
        assert!(grown < LIMIT + 2 * SLACK, "{} MiB", grown / MIB);
    }
    let (_, answer) = peak_growth(&gateway, TestQuery::module(deeply_nested_module(100))).await;
    assert!(!answer.contains("limit"), "a smaller body must be accepted: {answer}");
}

#[tokio::test]
async fn a_disconnect_frees_the_programs_memory_and_then_its_instance() {
    let route = "  - { path: /query, query: { services: [up], methods: [GET, POST], limits: { memory: 34MiB, cpu: 20s, timeout: 60s } } }
runtime: { instances: 1 }";
    let gateway = TestGateway::start(route).await;
    let resident = || {
        process_status(&gateway, "VmRSS").trim_end_matches("kB").trim().parse::<usize>().expect("a number")
    };
    let call = request_segment(1024, "GET", "http://up/hang", &[], "");
    let wait = "(i32.store (i32.const 16) (call $http (i32.const 1024)))
        (drop (call $Future_wait (i32.const 16) (i32.const 1) (i32.const 1)))";
    let full = TestQuery::module(plain_module(&call, &format!("(local $i i32) {} {wait}", grow_and_fill(7))));
    let done = plain_module("", "(call $done (i32.const 0) (i32.const 0))");
    gateway.expect_text(TestQuery::module(done.clone())).await;
    let before = resident();
    for times in 1..=5 {
        tokio::select! {
            answer = full.send(&gateway) => panic!("{}", answer.text()),
            () = gateway.upstream.wait_for_requests("/hang", times) => {}
        }
        // The pool has a single instance.
        gateway.expect_text(TestQuery::module(done.clone())).await;
        let grown = resident().saturating_sub(before) * 1024;
        assert!(grown < SLACK, "{} MiB", grown / MIB);
    }
}

#[tokio::test]
async fn a_long_text_of_a_response_is_counted_before_it_is_read() {
    let gateway = TestGateway::start(ROUTES).await;
    // The limit of 34 MiB has to cover the response and two copies of its text.
    for (bytes, fits) in [(8_000_000, true), (12_000_000, false)] {
        let call = request_segment(1024, "GET", &format!("http://up/json?n=1&text={bytes}"), &[], "");
        let module = plain_module(
            &format!("{call} (data (i32.const 96) \"text\")"),
            "(i32.store (i32.const 16) (call $http (i32.const 1024)))
            (drop (call $Future_wait (i32.const 16) (i32.const 1) (i32.const 1)))
            (drop (call $Json_root (i32.const 1) (i32.const 64) (i32.const 0) (i32.const 0)))
            (drop (call $Json_member (i32.const 1) (i32.const 1) (i32.const 96) (i32.const 4) (i32.const 0)
              (i32.const 64) (i32.const 0) (i32.const 0)))
            (call $done (i32.const 68) (i32.const 4))",
        );
        let answer = TestQuery::module(module).send(&gateway).await;
        if fits {
            assert_eq!(answer.body[..], u32::to_le_bytes(bytes), "the text's length: {}", answer.text());
        } else {
            assert_eq!(answer.json()["code"], "limit-memory", "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn recordings_stay_within_their_size_limit_in_memory() {
    let gateway = TestGateway::start(ROUTES).await;
    gateway.assert_responsive("/query").await;
    let call = request_segment(1024, "GET", "http://up/json?n=1", &[], "");
    for (what, body) in [
        ("logs", "(call $log (i32.const 0) (i32.const 0))"),
        ("reads the clock", "(drop (call $clock))"),
        ("polls a call", "(drop (call $Future_ready (i32.const 1)))"),
    ] {
        let body = format!(
            "(local $i i32) (drop (call $http (i32.const 1024)))
            (loop {body}
              (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000000))))"
        );
        let module = plain_module(&call, &body);
        let query = TestQuery::module(module).with_path("/recorded").header("orfa-debug", "?1");
        let (grown, answer) = peak_growth(&gateway, query).await;
        assert!(answer.contains("recording-too-large"), "{what}: {answer}");
        assert!(grown < 30 * MIB, "{what}: {} MiB", grown / MIB);
    }
}

#[tokio::test]
async fn the_paths_of_calls_count_against_the_memory_limit() {
    let gateway = TestGateway::start(ROUTES).await;
    let url = format!("http://up/json?n={}", "1".repeat(60_000));
    let call = request_segment(1024, "GET", &url, &[], "");
    let hoard = "(local $i i32)
        (loop (call $Handle_del (call $http (i32.const 1024)))
          (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 4000))))";
    gateway.expect_problem(TestQuery::module(plain_module(&call, hoard)), 422, "limit-memory").await;
}

/// Transparent huge pages are off: the kernel would zero two mebibytes on a serving thread's first access.
#[tokio::test]
async fn the_gateway_disables_transparent_huge_pages() {
    let gateway = TestGateway::start(ROUTES).await;
    assert_eq!(process_status(&gateway, "THP_enabled"), "0");
}
