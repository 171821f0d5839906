//! The case studies of the paper, compiled and executed. Their pages are resources of the same service, so
//! that no other server is needed: an infinite binary tree to crawl, and texts in which a word is counted.

use futures_util::future::join_all;
use http::header::LOCATION;
use http::{HeaderValue, Request};
use serde_json::{Value, json};
use services::body;

use super::fixture::{FixtureSettings, ScriptFixture, default_settings};

const HELLO: &str = "
service hello {
  state shared = 'World'
  res '/data' on GET { respond 'Hello ' + shared }
  res '/data' on PUT { shared = query.value }
  res '/oops' on GET {
    respond missing.name
  }
}";

const CRAWLER: &str = r"
service crawler {
  res '/page' on GET { respond '<a href=/page?n=' + (2 * query.n) + '> <a href=/page?n=' + (2 * query.n + 1) + '>' }
  res '/crawl' on PUT {
    function scan(page) { return page.match(/[/]page[?]n=[0-9]+/g) || [] }
    res url = query.startFrom
    var list = scan(url.get())
    if(query.depth>1)
      pfor(var i in list) {
        par {
          res crawl = '/crawl?startFrom=@&depth=@'
          res discovered = '/urlsDiscovered?val=@'
          crawl.put(list[i],query.depth-1)
          discovered.put(list[i])
        }
      }
    res '/urlsDiscovered' {
      state urls = new Array()
      on PUT { urls.push(query.val) }
      on GET { respond urls }
    }
  }
}";

const MAP_REDUCE: &str = r"
service mapred {
  res '/page' on GET { respond 'the word and the other word ' + query.n + ' word' }
  res '/start' on POST {
    state id = 0; id++
    res '/red/'+id {
      state s = 0
      on GET { respond s }
      on PUT { s += query.count }
    }
    respond { 302 : { Location : '/red/'+id } }
    pfor(var i in query.urls) {
      res scan = '/map?url=@&key=@&id=@'
      scan.put(query.urls[i], query.key, id)
    }
  }
  res '/map' on PUT {
    function scan(page,key) { return page.split(key).length - 1 }
    res url = query.url
    var page = url.get()
    res reduce = '/red/'+query.id+'?count=@'
    reduce.put(scan(page, query.key))
  }
}";

#[tokio::test]
async fn listing_1_stores_the_value_of_a_put() {
    let fixture = ScriptFixture::from_source(HELLO, default_settings()).await;
    assert_eq!(fixture.get("/data").await, "Hello World");
    assert_eq!(fixture.request("PUT", "/data?value=universe").await, (204, String::new()));
    assert_eq!(fixture.get("/data").await, "Hello universe");
}

#[tokio::test]
async fn an_error_contains_its_position_in_the_s_file() {
    let fixture = ScriptFixture::from_source(HELLO, default_settings()).await;
    let request = Request::get("/oops").body(body::empty()).expect("a request");
    let problem = fixture.send(request).await.expect_err("a problem");
    assert_eq!(problem.code(), "script-threw");
    let text = problem.to_string();
    assert!(text.starts_with("test.sjs:7:13: ") && text.contains("missing"), "{text}");
}

#[tokio::test]
async fn listing_6_crawls_a_tree_by_calling_itself() {
    let fixture = ScriptFixture::from_source(CRAWLER, FixtureSettings { ..default_settings() }).await;
    let (status, text) = fixture.request("PUT", "/crawl?startFrom=/page%3Fn%3D1&depth=6").await;
    assert_eq!(status, 204, "{text}");
    let urls = fixture.json("/urlsDiscovered").await;
    let mut urls: Vec<u32> = urls
        .as_array()
        .expect("a list")
        .iter()
        .map(|url| url.as_str().expect("a URL").trim_start_matches("/page?n=").parse().expect("a number"))
        .collect();
    urls.sort_unstable();
    assert_eq!(urls, (2..64).collect::<Vec<u32>>(), "each page below the root, once");
}

#[tokio::test]
async fn listing_7_counts_in_parallel_with_a_separate_result_for_each_client() {
    let fixture = ScriptFixture::from_source(MAP_REDUCE, default_settings()).await;
    let urls: Vec<String> = (0..10).map(|n| format!("/page?n={n}")).collect();
    let start = async |key: &str| {
        let text = json!({ "urls": urls, "key": key }).to_string();
        let request = Request::post("/start").header("content-type", "application/json");
        let response =
            fixture.send(request.body(body::full(text)).expect("a request")).await.expect("an answer");
        assert_eq!(response.status(), 302);
        response.headers().get(LOCATION).cloned().unwrap_or(HeaderValue::from_static("none"))
    };
    let places = join_all([start("word"), start("other")]).await;
    fixture.wait_idle().await;
    let mut counts = Vec::new();
    for place in places {
        counts.push(fixture.json(place.to_str().expect("a path")).await);
    }
    assert_eq!(counts, [Value::from(30), Value::from(10)]);
}

#[tokio::test]
async fn blocks_may_declare_the_same_names() {
    let text = "service test {
      const n = 0, own = '/none'
      res '/n' on GET { respond n }
      res '/a' {
        res own = '/n'
        var n = 1
        function sum() { return n }
        on GET { respond [sum(), own.get()] }
      }
      res '/b' {
        res own = '/a'
        var n = 2
        function sum() { return n }
        on GET { respond [sum(), own.get()] }
        on POST {
          res '/made/' + query.id {
            res own = '/n'
            on GET { respond ['made', own.get()] }
          }
          res '/more/' + query.id {
            res own = '/a'
            on GET { respond ['more', own.get()] }
          }
        }
      }
    }";
    let fixture = ScriptFixture::from_source(text, default_settings()).await;
    assert_eq!(fixture.request("GET", "/n").await, (200, "0".into()));
    assert_eq!(fixture.request("GET", "/a").await, (200, "[1,0]".into()));
    assert_eq!(fixture.request("GET", "/b").await, (200, "[2,[1,0]]".into()));
    assert_eq!(fixture.request("POST", "/b?id=1").await.0, 204);
    assert_eq!(fixture.request("GET", "/made/1").await, (200, r#"["made",0]"#.into()));
    assert_eq!(fixture.request("GET", "/more/1").await, (200, r#"["more",[1,0]]"#.into()));
}

#[tokio::test]
async fn functions_of_a_resource_call_resources_and_use_its_state() {
    let text = "service test {
      res own = '/next?n=@'
      res '/next' on GET { respond Number(query.n) + 1 }
      res '/a' {
        state total = 0
        function next(k) { return own.get(k) }
        const twice = (k) => next(next(k))
        function add(k) { total += k }
        on GET { respond [next(1), twice(1), total] }
        on POST {
          add(5)
          var made = total
          res '/made/' + query.id {
            function load() { return own.get(made) }
            on GET { respond [load()] }
          }
        }
      }
    }";
    let fixture = ScriptFixture::from_source(text, default_settings()).await;
    assert_eq!(fixture.request("GET", "/a").await, (200, "[2,3,0]".into()));
    assert_eq!(fixture.request("POST", "/a?id=1").await.0, 204);
    assert_eq!(fixture.request("GET", "/a").await, (200, "[2,3,5]".into()));
    assert_eq!(fixture.request("GET", "/made/1").await, (200, "[6]".into()));
}
