//! Memory that the gateway takes for a program beside the program's own: it counts against the program's limit before it
//! is taken. The peak of the process is measured, from outside, against what that limit allows.

use std::fs;

use crate::support::{House, Query, plain, request};

const MIB: usize = 1 << 20;
/// The limit of the routes, of which the programs use 32 themselves.
const LIMIT: usize = 34 * MIB;
/// What a gateway may need beside that for the request, its connections and its log.
const SLACK: usize = 14 * MIB;
const ROUTES: &str = "
  - path: /query
    query:
      services: [up]
      methods: [GET, POST]
      limits: { memory: 34MiB, cpu: 20s, deadline: 60s, calls: 5000, received: 64MiB }
  - path: /recorded
    query:
      services: [up]
      methods: [GET, POST]
      recordings: { callers: [anyone] }
      limits: { memory: 34MiB, cpu: 20s, deadline: 60s }
";
/// Makes the memory 32 MiB larger and fills all behind the first two pages with a byte, in steps of a mebibyte: nothing else has
/// its turn during one instruction.
const GROWN: &str = "(drop (memory.grow (i32.const 512))) (local.set $i (i32.const 131072))
    (loop (memory.fill (local.get $i) (i32.const BYTE) (i32.const 1048576))
      (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1048576))) (i32.const 33685504))))";

fn filled(byte: u8) -> String {
    GROWN.replace("BYTE", &byte.to_string())
}

/// What the system says of the process under a name (proc_pid_status(5)).
fn status(house: &House, name: &str) -> String {
    let status = format!("/proc/{}/status", house.gateway.pid().expect("a process"));
    let status = fs::read_to_string(status).expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect(name).trim().to_owned()
}

/// The process's peak since [`House::reset`], in bytes.
fn peak(house: &House) -> usize {
    status(house, "VmHWM").trim_end_matches("kB").trim().parse::<usize>().expect("a number") * 1024
}

/// Sends a query, and says by how much the process grew for it at most.
async fn growth(house: &House, query: Query) -> (usize, String) {
    let clear = format!("/proc/{}/clear_refs", house.gateway.pid().expect("a process"));
    fs::write(clear, "5").expect("Linux");
    let before = peak(house);
    let answer = query.send(house).await;
    (peak(house).saturating_sub(before), answer.text().chars().take(300).collect())
}

/// Programs that would have the gateway take many times their own memory, by what they do.
fn greedy() -> Vec<(&'static str, Vec<u8>)> {
    let call = request(1024, "GET", "http://up/json?n=1", &[], "");
    let wait = "(i32.store (i32.const 16) (call $http (i32.const 1024)))
        (drop (call $Future_wait (i32.const 16) (i32.const 1) (i32.const 1)))";
    let same = format!(
        "(drop (memory.grow (i32.const 512))) {wait}
        (memory.fill (i32.const 131072) (i32.const 0) (i32.const 33554432)) (local.set $i (i32.const 131072))
        (loop (i32.store (local.get $i) (i32.const 1))
          (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 4))) (i32.const 33685504))))
        (drop (call $Future_wait (i32.const 131072) (i32.const 8388608) (i32.const 1)))"
    );
    // A hundred headers that name the same bytes: `orfa_request` at 1024, its headers at 2048.
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
        plain(fields, &format!("(local $i i32) {} {then}", filled(byte)))
    };
    vec![
        ("logs all", with("", 0xff, "(call $log (i32.const 131072) (i32.const 33554432))")),
        (
            "fails with all",
            with(
                "",
                0xff,
                "(call $fail (i32.const 0) (i32.const 131072) (i32.const 33554432) (i32.const 0) (i32.const 0))",
            ),
        ),
        (
            "names an answer's header by all",
            with(
                "",
                b'a',
                "(drop (call $header (i32.const 131072) (i32.const 33554432) (i32.const 0) (i32.const 0)))",
            ),
        ),
        ("answers with all", with("", b'a', "(call $done (i32.const 131072) (i32.const 4000000))")),
        ("waits for many", plain(&call, &format!("(local $i i32) {same}"))),
        ("sends headers that are the same bytes", with(&call, b'a', headers)),
        ("sends all as a URL", with(&call, b'a', &url)),
        ("sends all as a method", with(&call, b'A', &method)),
        ("sends all as a body", with(&call, b'a', &body)),
        (
            "asks by a pointer that is all",
            with(
                &call,
                b'/',
                &format!(
                    "{wait} (drop (call $Response_json (i32.const 1) (i32.const 131072) (i32.const 33554432) (i32.const 0) (i32.const 0)))"
                ),
            ),
        ),
        (
            "asks by a name that is all",
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
async fn what_a_host_function_takes_stays_within_the_programs_memory() {
    let house = House::own(ROUTES).await;
    house.still_answers("/query").await;
    for (what, module) in greedy() {
        let (grown, answer) = growth(&house, Query::module(module)).await;
        assert!(grown < LIMIT + SLACK, "{what}: {} MiB: {answer}", grown / MIB);
        house.still_answers("/query").await;
    }
}

/// A module that has a service send it a text of some MiB, of arrays within arrays, and asks for its root: the index of
/// that is eight times as large.
fn deeply_nested(texts: usize) -> Vec<u8> {
    let one = format!("{}\\22{}\\22{},", "[".repeat(1000), "x".repeat(64), "]".repeat(1000));
    let len = 2067 * texts;
    let call = request(1024, "POST", "http://up/body", &[], "");
    plain(
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
async fn the_index_of_an_answer_is_counted_while_it_is_made() {
    let house = House::own(ROUTES).await;
    house.still_answers("/query").await;
    // 2 MiB: 17 MiB of guest memory, the body, and an index of 16 MiB, which is too much.
    let (grown, answer) = growth(&house, Query::module(deeply_nested(1000))).await;
    assert!(answer.contains("limit-memory"), "{answer}");
    // 12 MiB of text have an index of 96.
    let (larger, answer) = growth(&house, Query::module(deeply_nested(6000))).await;
    assert!(answer.contains("limit-memory"), "{answer}");
    for grown in [grown, larger] {
        assert!(grown < LIMIT + 2 * SLACK, "{} MiB", grown / MIB);
    }
    let (_, answer) = growth(&house, Query::module(deeply_nested(100))).await;
    assert!(!answer.contains("limit"), "a smaller one is read: {answer}");
}

#[tokio::test]
async fn a_client_that_goes_away_gives_its_programs_memory_back_and_then_its_place() {
    let route = "  - { path: /query, query: { services: [up], methods: [GET, POST], limits: { memory: 34MiB, cpu: 20s, deadline: 60s } } }
runtime: { instances: 1 }";
    let house = House::own(route).await;
    let resident =
        || status(&house, "VmRSS").trim_end_matches("kB").trim().parse::<usize>().expect("a number");
    let call = request(1024, "GET", "http://up/hang", &[], "");
    let wait = "(i32.store (i32.const 16) (call $http (i32.const 1024)))
        (drop (call $Future_wait (i32.const 16) (i32.const 1) (i32.const 1)))";
    let full = Query::module(plain(&call, &format!("(local $i i32) {} {wait}", filled(7))));
    let done = plain("", "(call $done (i32.const 0) (i32.const 0))");
    house.answer(Query::module(done.clone())).await;
    let before = resident();
    for times in 1..=5 {
        tokio::select! {
            answer = full.send(&house) => panic!("{}", answer.text()),
            () = house.upstream.seen_times("/hang", times) => {}
        }
        // There is one place for all.
        house.answer(Query::module(done.clone())).await;
        let grown = resident().saturating_sub(before) * 1024;
        assert!(grown < SLACK, "{} MiB", grown / MIB);
    }
}

#[tokio::test]
async fn a_long_text_of_an_answer_is_counted_before_it_is_read() {
    let house = House::own(ROUTES).await;
    // The limit is 34 MiB: the answer, and twice its text.
    for (bytes, fits) in [(8_000_000, true), (12_000_000, false)] {
        let call = request(1024, "GET", &format!("http://up/json?n=1&text={bytes}"), &[], "");
        let module = plain(
            &format!("{call} (data (i32.const 96) \"text\")"),
            "(i32.store (i32.const 16) (call $http (i32.const 1024)))
            (drop (call $Future_wait (i32.const 16) (i32.const 1) (i32.const 1)))
            (drop (call $Json_root (i32.const 1) (i32.const 64) (i32.const 0) (i32.const 0)))
            (drop (call $Json_member (i32.const 1) (i32.const 1) (i32.const 96) (i32.const 4) (i32.const 0)
              (i32.const 64) (i32.const 0) (i32.const 0)))
            (call $done (i32.const 68) (i32.const 4))",
        );
        let answer = Query::module(module).send(&house).await;
        if fits {
            assert_eq!(answer.body[..], u32::to_le_bytes(bytes), "its length: {}", answer.text());
        } else {
            assert_eq!(answer.json()["code"], "limit-memory", "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_recording_takes_no_more_than_its_size() {
    let house = House::own(ROUTES).await;
    house.still_answers("/query").await;
    let call = request(1024, "GET", "http://up/json?n=1", &[], "");
    for (what, body) in [
        ("logs", "(call $log (i32.const 0) (i32.const 0))"),
        ("looks at the clock", "(drop (call $clock))"),
        ("asks whether a call has ended", "(drop (call $Future_ready (i32.const 1)))"),
    ] {
        let body = format!(
            "(local $i i32) (drop (call $http (i32.const 1024)))
            (loop {body}
              (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000000))))"
        );
        let module = plain(&call, &body);
        let query = Query::module(module).at("/recorded").header("orfa-debug", "?1");
        let (grown, answer) = growth(&house, query).await;
        assert!(answer.contains("recording-too-large"), "{what}: {answer}");
        assert!(grown < 30 * MIB, "{what}: {} MiB", grown / MIB);
    }
}

#[tokio::test]
async fn the_paths_of_calls_count_as_long_as_they_are_kept() {
    let house = House::own(ROUTES).await;
    let url = format!("http://up/json?n={}", "1".repeat(60_000));
    let call = request(1024, "GET", &url, &[], "");
    let hoard = "(local $i i32)
        (loop (call $Handle_del (call $http (i32.const 1024)))
          (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 4000))))";
    house.refuse(Query::module(plain(&call, hoard)), 422, "limit-memory").await;
}

/// The system would zero such a page while the serving thread that touched it first stands still.
#[tokio::test]
async fn the_gateway_has_no_pages_of_two_mebibytes() {
    let house = House::own(ROUTES).await;
    assert_eq!(status(&house, "THP_enabled"), "0");
}
