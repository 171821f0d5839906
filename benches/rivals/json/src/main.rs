//! `json-rivals FILE`: what the two queries of `benches/programs/issues-*` do, natively, over each parser. A
//! line for each: its name, what it does, and the CPU time that it takes, the median of many, in
//! microseconds.

use std::fmt::Write;
use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use simd_json::prelude::*;
use sonic_rs::{JsonContainerTrait, JsonValueTrait};

const TIMES: usize = 61;
/// Which rows are read: one in a hundred.
const STEP: usize = 100;

fn main() {
    let path = std::env::args().nth(1).expect("the file to read");
    if path == "--version" {
        println!("version: sonic-rs 0.5.10, simd-json 0.19.0");
        return;
    }
    let text = std::fs::read(path).expect("a file");
    let rivals: [(&str, &str, fn(&[u8]) -> String); 5] = [
        ("sonic-rs", "rows", sonic_rows),
        ("sonic-rs", "column", sonic_column),
        ("sonic-rs lazy", "column", sonic_lazy_column),
        ("simd-json", "rows", simd_rows),
        ("simd-json", "column", simd_column),
    ];
    for (name, kind, run) in rivals {
        let mut times: Vec<f64> = (0..TIMES).map(|_| timed(|| run(black_box(&text)))).collect();
        times.sort_by(f64::total_cmp);
        println!("{name}\t{kind}\t{:.1}\t{}", times[TIMES / 2], run(&text).len());
    }
}

fn timed(run: impl FnOnce() -> String) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    };
    let before = now();
    black_box(run());
    now() - before
}

fn sonic_rows(text: &[u8]) -> String {
    let issues: sonic_rs::Value = sonic_rs::from_slice(text).expect("JSON");
    let rows = issues.as_array().expect("a list").iter().skip(7).step_by(STEP);
    let row = |issue: &sonic_rs::Value| {
        let (number, title, by) = (&issue["number"], &issue["title"], &issue["user"]["login"]);
        format!(r#"{{"number":{number},"title":{title},"by":{by}}}"#)
    };
    format!("[{}]", rows.map(row).collect::<Vec<_>>().join(","))
}

fn sonic_column(text: &[u8]) -> String {
    let issues: sonic_rs::Value = sonic_rs::from_slice(text).expect("JSON");
    let comments =
        issues.as_array().expect("a list").iter().map(|issue| issue["comments"].as_u64().unwrap_or(0));
    format!(r#"{{"comments":{}}}"#, comments.sum::<u64>())
}

fn sonic_lazy_column(text: &[u8]) -> String {
    let comment = |issue: sonic_rs::Result<sonic_rs::LazyValue<'_>>| {
        issue.expect("JSON").get("comments").as_u64().unwrap_or(0)
    };
    format!(r#"{{"comments":{}}}"#, sonic_rs::to_array_iter(text).map(comment).sum::<u64>())
}

/// It works in place, on a copy.
fn simd_rows(text: &[u8]) -> String {
    let mut text = text.to_vec();
    let tape = simd_json::to_tape(&mut text).expect("JSON");
    let issues = tape.as_value().as_array().expect("a list");
    let mut out = String::from("[");
    for issue in issues.iter().skip(7).step_by(STEP) {
        let get = |name: &str| issue.get(name).expect("a member");
        let user = get("user").as_object().and_then(|user| user.get("login")).expect("a login");
        let [title, by] = [get("title").as_str(), user.as_str()]
            .map(|text| sonic_rs::to_string(text.unwrap_or_default()).expect("JSON"));
        let comma = if out.len() > 1 { "," } else { "" };
        let number = get("number").as_u64().unwrap_or(0);
        let _ = write!(out, r#"{comma}{{"number":{number},"title":{title},"by":{by}}}"#);
    }
    out + "]"
}

fn simd_column(text: &[u8]) -> String {
    let mut text = text.to_vec();
    let tape = simd_json::to_tape(&mut text).expect("JSON");
    let issues = tape.as_value().as_array().expect("a list");
    let comments =
        issues.iter().map(|issue| issue.get("comments").and_then(|count| count.as_u64()).unwrap_or(0));
    format!(r#"{{"comments":{}}}"#, comments.sum::<u64>())
}
