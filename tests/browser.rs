//! Pages in a real browser: what `cors:` means to them, and not what we think that it means.

mod page;

use serde_json::{Value, json};

use crate::support::House;
use page::Page;

/// A gateway for pages of this origin.
async fn house(origin: &str) -> House {
    let routes = format!(
        "
  - {{ path: /query, query: {{ services: [up] }} }}
  - {{ path: /echo, proxy: up }}
  - {{ path: /anonymous, proxy: up, cors: {{ origins: ['{origin}'], credentials: false }} }}
  - {{ path: /dead, proxy: dead }}
cors: {{ origins: ['{origin}'], headers: [x-shop], max_age: 1h }}
"
    );
    House::own(&routes).await
}

fn document(answer: &Value) -> Value {
    serde_json::from_str(answer["text"].as_str().unwrap_or_default()).unwrap_or_default()
}

#[tokio::test]
async fn a_page_of_a_listed_origin_asks_and_reads_answers_times_and_errors() {
    let page = Page::new().await;
    let house = house(&page.origin()).await;
    let report = page.open(house.gateway.address).await;

    for case in ["query", "method"] {
        let answer = &report[case];
        assert_eq!((&answer["status"], &answer["text"]), (&json!(200), &json!("3")), "{case}: {report:#}");
        assert!(answer["timing"].as_str().is_some_and(|timing| timing.contains("total;dur=")), "{answer}");
    }
    for (case, status, code) in [
        ("threw", 422, "program-threw"),
        ("nowhere", 404, "route-not-found"),
        ("dead", 502, "upstream-unreachable"),
    ] {
        let answer = &report[case];
        assert_eq!(
            (&answer["status"], &document(answer)["code"]),
            (&json!(status), &json!(code)),
            "{answer}"
        );
    }
    assert!(
        report["threw"]["timing"].as_str().is_some_and(|timing| timing.contains("total;dur=")),
        "{report:#}"
    );

    let cookie = |case: &str| document(&report[case])["headers"]["cookie"].clone();
    assert_eq!(cookie("cookies"), "visitor=seven", "{report:#}");
    assert_eq!((&report["plain"]["status"], cookie("plain")), (&json!(200), Value::Null));
    assert_eq!(report["cookiesUnwanted"], json!({ "refused": "TypeError" }));
    assert_eq!(report["anonymous"]["status"], 404, "the service's own answer");
    assert_eq!(document(&report["header"])["headers"]["x-shop"], "7");
    assert_eq!(report["headerUnlisted"], json!({ "refused": "TypeError" }));
}

#[tokio::test]
async fn a_page_of_another_origin_reads_nothing_and_runs_nothing() {
    let (listed, page) = (Page::new().await, Page::new().await);
    let house = house(&listed.origin()).await;
    let report = page.open(house.gateway.address).await;
    let cases = report.as_object().expect("a report");
    assert_eq!(cases.len(), 11, "{report:#}");
    for (case, answer) in cases {
        assert_eq!(answer, &json!({ "refused": "TypeError" }), "{case}");
    }
    assert_eq!(house.upstream.hits("/json"), 0, "a program ran");
}
