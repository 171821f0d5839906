//! The timeline of upstream calls, as it is drawn.

use super::*;

fn call_bar(name: &str, outcome: &str, start: u64, end: Option<u64>) -> CallBar {
    let time = Duration::from_millis;
    CallBar {
        name: name.into(),
        outcome: CallBarOutcome::parse(outcome),
        start: time(start),
        end: end.map(time),
    }
}

fn draw_plain(calls: &[CallBar], total: u64, width: usize) -> String {
    anstream::adapter::strip_str(&draw_timeline(calls, Duration::from_millis(total), width)).to_string()
}

#[test]
fn draws_calls_on_a_common_axis() {
    let calls = [
        call_bar("profile GET /buyers?limit=2", "200", 0, Some(4)),
        call_bar("catalog GET /catalogs?buyer=1", "200", 4, Some(10)),
        call_bar("catalog GET /catalogs?buyer=2", "503", 4, Some(8)),
    ];
    let expected = "
  profile GET /buyers?limit=2    200  |========            |    4.0 ms
  catalog GET /catalogs?buyer=1  200  |        ============|    6.0 ms
  catalog GET /catalogs?buyer=2  503  |        ========    |    4.0 ms
";
    assert_eq!(draw_plain(&calls, 10, 70), expected.trim_start_matches('\n'));
}

#[test]
fn dots_unfinished_calls_up_to_the_end() {
    let calls = [call_bar("slow GET /", "no answer", 5, None), call_bar("slow GET /", "not sent", 10, None)];
    let expected = "
  slow GET /  no answer  |     .....|
  slow GET /  not sent   |         .|
";
    assert_eq!(draw_plain(&calls, 10, 47), expected.trim_start_matches('\n'));
}

#[test]
fn shortens_long_names_in_the_middle() {
    let name = "catalog GET /catalogs?buyer=1&sort=-created&limit=2";
    assert_eq!(shorten(name, 32), "catalog GET /catalog..ed&limit=2");
    assert_eq!(shorten(name, 200), name);
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let long = "x".repeat(300);
    let calls = [call_bar(&long, "not sent", 0, None), call_bar("profile GET /", "200", 1, Some(1))];
    for width in [50, 80, 160] {
        let longest = draw_plain(&calls, 2, width).lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= width), "{longest:?} of {width}");
    }
}

#[test]
fn summarises_excess_calls() {
    let calls: Vec<CallBar> = (0..100).map(|n| call_bar("s GET /", "200", n, Some(n + 1))).collect();
    let text = draw_plain(&calls, 100, 80);
    assert_eq!(text.lines().count(), 41);
    assert!(text.ends_with("  ... and 60 more\n"));
}

#[test]
fn draws_requests_of_zero_duration() {
    assert!(draw_plain(&[call_bar("s GET /", "200", 0, Some(0))], 0, 60).contains("|="));
}
