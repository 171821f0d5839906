//! The queries of `examples/strapi` without Strapi. A fake service answers exactly the requests in
//! `strapi/answers.json` with recorded answers of Strapi 5, and no others.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use testkit::GatewayProcess;
use tokio::net::TcpListener;

use crate::support::{build_c_program, orfa_binary};

const ANSWERS: &str = include_str!("strapi/answers.json");
const CONFIG: &str = include_str!("../../../../examples/strapi/orfa.yaml");

/// The indexes of the answers that were requested.
type RequestedAnswers = Arc<Mutex<BTreeSet<usize>>>;

fn recorded_answers() -> Vec<Value> {
    serde_json::from_str(ANSWERS).expect("JSON")
}

/// Decodes a path and its parameters as Strapi does.
fn decode_path(path: &str) -> String {
    let parts = path.split('%').enumerate().map(|(place, part)| {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) if place > 0 => format!("{}{}", char::from(byte), &part[2..]),
            _ => part.to_owned(),
        }
    });
    parts.collect()
}

async fn handle_request(
    request: Request<Incoming>,
    asked: RequestedAnswers,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let path = decode_path(head.uri.path_and_query().map_or("", |path| path.as_str()));
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let is_known = |value: &Value| {
        value["method"] == *head.method.as_str() && value["path"] == *path && value["body"] == body
    };
    let known = recorded_answers().into_iter().enumerate().find(|(_, known)| is_known(known));
    let (status, answer) = match known {
        Some((place, known)) => {
            asked.lock().expect("no panic").insert(place);
            (200, known["answer"].clone())
        }
        None => (404, json!(format!("{} {path} {body}", head.method))),
    };
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::from(answer.to_string())).expect("a response"))
}

/// Starts the fake Strapi.
async fn start_service(asked: RequestedAnswers) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let asked = asked.clone();
            let answers = service_fn(move |request| handle_request(request, asked.clone()));
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), answers),
            );
        }
    });
    address
}

#[tokio::test]
async fn the_strapi_examples_queries_match_recorded_answers() {
    let asked = RequestedAnswers::default();
    let service = start_service(asked.clone()).await;
    let config = CONFIG
        .replace("listen: 127.0.0.1:8080", "listen: 127.0.0.1:0")
        .replace("127.0.0.1:1337", &service.to_string())
        .replace("cpu: 50ms", "cpu: 10s")
        .replace("timeout: 10s", "timeout: 30s");
    let gateway = GatewayProcess::start(orfa_binary(), &config).await;
    let values = recorded_answers();
    let titles = |list: &Value| -> Vec<Value> {
        list.as_array().into_iter().flatten().map(|article| article["title"].clone()).collect()
    };
    let categories = values[0]["answer"]["data"].as_array().expect("categories").iter();
    let categories: Vec<_> = categories
        .map(|category| json!({ "name": category["name"], "articles": titles(&category["articles"]) }))
        .collect();
    let value = values.iter().find(|known| known["method"] == "PUT").expect("a write");
    let tag = value["path"].as_str().and_then(|path| path.strip_prefix("/api/tags/")).expect("a tag");
    let input = json!({ "n": 2, "tag": tag }).to_string();
    let articles = values
        .iter()
        .find(|known| known["path"].as_str().is_some_and(|path| path.contains("sort=published")));
    let tagged = titles(&articles.expect("articles")["answer"]["data"]);
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/strapi/queries");
    for (query, expected) in
        [("r", &categories), ("r_calls", &categories), ("w", &tagged), ("w_calls", &tagged)]
    {
        let read = |ending: &str| {
            std::fs::read_to_string(folder.join(format!("{query}.{ending}"))).expect("a query")
        };
        let programs = [
            ("text/javascript", read("js").into_bytes()),
            ("application/wasm", build_c_program(&read("c")).await),
        ];
        for (content_type, program) in programs {
            let body = [input.as_bytes(), &program].concat();
            let length = input.len().to_string();
            let headers = [("content-type", content_type), ("orfa-input", &*length)];
            let answer =
                testkit::http::request("POST", &format!("{}/query", gateway.url), &headers, body).await;
            let answer = answer.expect("an answer");
            assert_eq!(answer.json(), json!(expected), "{query}, {content_type}: {}", answer.text());
        }
    }
    let asked = asked.lock().expect("no panic");
    assert_eq!(asked.len(), values.len(), "unused answers; requested: {asked:?}");
}
