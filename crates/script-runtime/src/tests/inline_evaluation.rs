//! Handlers that are executed by their recipes: the responses and calls are the same as those of their
//! JavaScript.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use script::{CompileOptions, compile};
use services::ServiceConfig;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::fixture::{FixtureSettings, ScriptFixture, default_settings};

/// An upstream service with configurable responses, which records the requests.
#[derive(Clone, Default)]
struct ConfigurableUpstream {
    answers: Arc<Mutex<HashMap<&'static str, String>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

const NOT_FOUND_RESPONSE: &str = "HTTP/1.1 404 Nothing\r\ncontent-length: 0\r\n\r\n";
const RESOURCES: [&str; 3] = ["a", "b", "c"];

impl ConfigurableUpstream {
    async fn start() -> (Self, FixtureSettings) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut wish = default_settings();
        let address = listener.local_addr().expect("an address");
        wish.services =
            BTreeMap::from([("up".to_owned(), ServiceConfig::with_url(format!("http://{address}")))]);
        let upstream = Self::default();
        let here = upstream.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(here.clone().serve(stream));
            }
        });
        (upstream, wish)
    }

    async fn serve(self, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                (stream.read_until(b'\n', &mut head).await.ok()? > 0).then_some(())?;
            }
            let target = String::from_utf8(head).ok()?.split(' ').nth(1)?.to_owned();
            let answer = self.answers.lock().ok()?.get(target.get(1..2)?).cloned();
            self.requests.lock().ok()?.push(target);
            stream.write_all(answer.as_deref().unwrap_or(NOT_FOUND_RESPONSE).as_bytes()).await.ok()?;
        }
    }

    fn set_response(&self, resource: &'static str, status: u16, media: &str, body: &str) {
        let answer = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.answers.lock().expect("answers").insert(resource, answer);
    }

    /// Returns the requests since the last call, sorted.
    fn take_requests(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.requests.lock().expect("the requests"));
        asked.sort();
        asked
    }
}

/// Starts the same script twice: with recipes, and without them.
async fn start_both(handlers: &str) -> (ScriptFixture, ScriptFixture, ConfigurableUpstream) {
    let text = format!(
        "service test {{\n\
         res '/again' on POST {{ respond [JSON.parse(query.$body)] }}\n\
         res a = 'http://up/a?n=@', b = 'http://up/b'\n{handlers}\n}}"
    );
    let program = || {
        compile(&text, "test.sjs", &CompileOptions::default()).unwrap_or_else(|it| panic!("{text}\n{it:#?}"))
    };
    let (upstream, first) = ConfigurableUpstream::start().await;
    let second = FixtureSettings { services: first.services.clone(), ..default_settings() };
    let mut plain = program();
    for handler in &mut plain.services[0].handlers {
        assert!(handler.recipe.is_some() || handler.method == script::HandlerMethod::Post, "{text}");
        handler.recipe = None;
    }
    (
        ScriptFixture::from_program(program(), text.clone(), first).await,
        ScriptFixture::from_program(plain, text.clone(), second).await,
        upstream,
    )
}

/// Returns JSON as serialised by JavaScript.
async fn reserialise(fixture: &ScriptFixture, json: &str) -> String {
    let request = http::Request::post("/again").header("content-type", "text/plain");
    let answer = fixture.send(request.body(services::body::full(json.to_owned())).expect("a request")).await;
    let body =
        http_body_util::BodyExt::collect(answer.expect("an answer").into_body()).await.expect("a body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

fn pick_random<'t>(rng: &mut Rng, all: &[&'t str]) -> &'t str {
    all[rng.usize(..all.len())]
}

/// Generates a random handler, with calls assigned to its variables `u`, `v`, `w`.
fn random_handler(rng: &mut Rng, number: usize) -> String {
    let mut text = format!("res '/{number}' on GET {{\n  res c = 'http://up/c/' + query.p + '?x=@&y=@'\n");
    let is_par = rng.bool();
    if is_par {
        text += "  par {\n";
    }
    let mut known: Vec<&str> = Vec::new();
    for name in ["u", "v", "w"].into_iter().take(rng.usize(..4)) {
        let call = random_call(rng, &known);
        let member = pick_random(rng, &["", "", "", "", "", "", ".in", ".id"]);
        text += &format!("  var {name} = {call}{member}\n");
        known.push(name);
    }
    text += &format!("  respond {}\n", random_response(rng, &known, 0));
    text + if is_par { "  }\n}\n" } else { "}\n" }
}

fn random_value(rng: &mut Rng, known: &[&str]) -> String {
    match rng.u8(..8) {
        0 => pick_random(rng, &["'x \\n\"ä'", "7", "true", "null", "0"]).to_owned(),
        1 => pick_random(rng, &["query.q", "query.p", "query.none"]).to_owned(),
        2..=5 if !known.is_empty() => {
            format!(
                "{}{}",
                pick_random(rng, known),
                pick_random(rng, &["", "", "", ".id", ".in", ".in.id", ".name"])
            )
        }
        _ => random_call(rng, known),
    }
}

fn random_call(rng: &mut Rng, known: &[&str]) -> String {
    let mut argument = || match rng.u8(..3) {
        0 => random_value(rng, known),
        _ => pick_random(rng, &["query.p", "'é/ü'", "3", "query.q", "query.none", "null"]).to_owned(),
    };
    let (one, other) = (argument(), argument());
    match rng.u8(..3) {
        0 => format!("a.get({one})"),
        1 => "b.get()".to_owned(),
        _ => format!("c.get({one}, {other})"),
    }
}

fn random_response(rng: &mut Rng, known: &[&str], depth: usize) -> String {
    if depth == 2 || (depth == 0 && rng.u8(..8) == 0) {
        return random_value(rng, known);
    }
    if rng.u8(..4) == 0 {
        let items: Vec<_> = (0..rng.usize(..3)).map(|_| random_response(rng, known, depth + 1)).collect();
        return format!("[{}]", items.join(", "));
    }
    let entries = (0..rng.usize(..5)).map(|_| match rng.u8(..3) {
        0 if !known.is_empty() => format!("...{}", pick_random(rng, known)),
        0 => format!("...{}", random_call(rng, known)),
        _ => format!(
            "{}: {}",
            pick_random(rng, &["id", "name", "in", "'é'", "z", "constructor"]),
            random_response(rng, known, depth + 1)
        ),
    });
    let entries: Vec<_> = entries.collect();
    format!("{{ {} }}", entries.join(", "))
}

/// Generates random JSON, either in the spelling of JavaScript or in unusual ones.
fn random_json(rng: &mut Rng, is_usual: bool, depth: usize) -> String {
    let usual = ["1", "-7", "1.5", "true", "false", "null", "\"x\"", "\"a b/ä\\n\"", "\"\"", "[]", "{}"];
    let odd =
        ["1.0", "-0", "1e400", "12345678901234567890", "\"\\u0061\\/\"", "\"\\ud800\"", "[ 1 ,2]", "0.1E1"];
    if depth == 3 || (depth > 0 && rng.bool()) {
        return if is_usual || rng.bool() { pick_random(rng, &usual) } else { pick_random(rng, &odd) }
            .to_owned();
    }
    let space = if is_usual { "" } else { pick_random(rng, &["", "", " ", "\n"]) };
    if rng.u8(..if depth == 0 { 12 } else { 5 }) == 0 {
        let items: Vec<_> = (0..rng.usize(..3)).map(|_| random_json(rng, is_usual, depth + 1)).collect();
        return format!("[{space}{}{space}]", items.join(","));
    }
    let mut names = vec!["id", "in", "name", "é", "constructor", "-1", "__proto__", "toJSON"];
    rng.shuffle(&mut names);
    names.truncate(rng.usize(..6));
    if rng.u8(..4) == 0 {
        names.splice(..0, ["2", "10"]); // The order of JavaScript.
    }
    if !is_usual && rng.bool() {
        names.push(pick_random(
            rng,
            &["id", "__proto__", "toJSON", "10", "2", "-1", "\\u0069d", "a\\\"b", "", "01"],
        ));
    }
    let members = names
        .iter()
        .map(|name| format!("{space}\"{name}\"{space}:{space}{}", random_json(rng, is_usual, depth + 1)));
    let members: Vec<_> = members.collect();
    format!("{space}{{{}{space}}}{space}", members.join(","))
}

#[tokio::test]
async fn a_recipe_is_equivalent_to_its_javascript() {
    let mut rng = Rng::with_seed(2026);
    let handlers: Vec<String> = (0..60).map(|number| random_handler(&mut rng, number)).collect();
    let (composed, worker, upstream) = start_both(&handlers.concat()).await;
    let mut answered = 0;
    for case in 0..600 {
        let is_usual = rng.bool();
        let mut told = Vec::new();
        for resource in RESOURCES {
            let (status, media, body) = match rng.u8(..if is_usual { 8 } else { 14 }) {
                ..11 => (200, "application/json", random_json(&mut rng, is_usual, 0)),
                11 => (200, "text/plain", pick_random(&mut rng, &["", "some \"text\" é", "7"]).to_owned()),
                12 => (
                    200,
                    "application/json",
                    pick_random(&mut rng, &["{", "\u{feff}{}", "", "1", "\"t\""]).to_owned(),
                ),
                _ => (rng.choice([204, 404, 500]).expect("one"), "application/octet-stream", String::new()),
            };
            upstream.set_response(resource, status, media, &body);
            told.push((resource, status, media, body));
        }
        let number = rng.usize(..handlers.len());
        let path = format!(
            "/{number}?p={}{}",
            pick_random(&mut rng, &["1", "a", "x%20y"]),
            pick_random(&mut rng, &["", "&q=q%22%26", "&q=7", "&q=1&q=2"])
        );
        let here = composed.request("GET", &path).await;
        let asked = upstream.take_requests();
        let there = worker.request("GET", &path).await;
        let expected = upstream.take_requests();
        let what = || format!("case {case}: {path}\n{}{told:#?}\n{here:?}\n{there:?}", handlers[number]);
        assert_eq!(here.0, there.0, "{}", what());
        if here.0 == 200 {
            answered += 1;
            assert_eq!(asked, expected, "{}", what());
        }
        if here.1 != there.1 {
            assert!(!is_usual && here.0 == 200, "{}", what());
            assert_eq!(
                reserialise(&worker, &here.1).await,
                reserialise(&worker, &there.1).await,
                "{}",
                what()
            );
        }
    }
    let without = composed.script.stats().inline_runs;
    assert!(answered > 200 && without > 200, "{answered} answers, {without} without a worker");
    assert_eq!(worker.script.stats().inline_runs, 0);
}

#[tokio::test]
async fn a_recipe_is_subject_to_the_limit_of_calls() {
    let (upstream, mut wish) = ConfigurableUpstream::start().await;
    upstream.set_response("a", 200, "application/json", "{}");
    wish.options.limits.calls = 1;
    let text = "service test { res a = 'http://up/a?n=@'
      res '/1' on GET { respond { ...a.get(1) } }
      res '/2' on GET { par { respond { ...a.get(1), b: a.get(2) } } } }";
    let fixture = ScriptFixture::from_source(text, wish).await;
    assert_eq!(fixture.request("GET", "/1").await, (200, "{}".into()));
    assert_eq!(fixture.request("GET", "/2").await, (500, "script-calls".into()));
}
