//! GraphQL documents and variables that are expensive to parse, validate, plan or answer.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use super::HeldRows;
use super::http2::{BLOCKED_COMPOSED_ANSWERS, ENHANCE_YOUR_CALM};
use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::http2::{DATA, END_HEADERS, END_STREAM, HEADERS, frame, request_fields, reset_blocked_streams};
use crate::target::AttackTarget;
use crate::wire;

const LIMIT: AttackEnding = AttackEnding::errors("graphql-limit");
const INVALID: AttackEnding = AttackEnding::errors("graphql-invalid");
const SYNTAX: AttackEnding = AttackEnding::errors("graphql-syntax");
const OPERATION: AttackEnding = AttackEnding::errors("graphql-operation");
const VARIABLES: AttackEnding = AttackEnding::errors("graphql-variables");
/// The body did not arrive in time.
const LATE_BODY: AttackEnding = AttackEnding::problem(422, "limit-deadline");
/// The gateway holds too many bodies of the client's address.
const OVERLOADED: AttackEnding = AttackEnding::problem(503, "gateway-overloaded");
/// The attacker has used up its budget for planning.
const PLAN_RATE: AttackEnding = AttackEnding::problem(429, "plan-rate");

/// The memory of a body: twice while it is received, and again for its parsed form.
const BODY: HeldRows = &[("GraphQL body", 4)];
/// The memory of a document while it is planned, and the cached plans.
const PLANNED_DOCUMENT: HeldRows =
    &[("GraphQL body", 4), ("GraphQL document being planned", 1), ("GraphQL plans", 1)];
/// The memory of responses from services and of the answer composed from them.
const ANSWER: HeldRows = &[
    ("GraphQL document being planned", 1),
    ("GraphQL plans", 1),
    ("bytes received by GraphQL", 1),
    ("answer of GraphQL", 2),
];

pub(super) const CASES: &[AttackCase] = &[
    case!(
        "graphql/bodies that never end",
        |it| unfinished_bodies(&it),
        [OVERLOADED, AttackEnding::Closed],
        &[("request bodies of an address", 2)]
    ),
    case!(
        "graphql/chain of fragments that ends in an undefined one",
        |it| query_rest(&it, fragment_chain(30, false)),
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/chain of fragments",
        |it| query_rest(&it, fragment_chain(30, true)),
        [LIMIT, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/chain of fragments in an operation that is not chosen",
        |it| query_rest(
            &it,
            format!(
                "{} query Chosen {{ __typename }}",
                fragment_chain(26, true).replace("query", "query Other")
            )
        ),
        [OPERATION, LIMIT, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/chain of fragments beside a chosen operation",
        |it| query_operation(
            &it,
            format!(
                "{} query Chosen {{ __typename }}",
                fragment_chain(26, true).replace("query", "query Other")
            ),
            "Chosen"
        ),
        [LIMIT, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/chain of fragments that nobody spreads",
        |it| query_rest(
            &it,
            format!(
                "{{ __typename }} {}",
                fragment_chain(26, true)
                    .split_once('}')
                    .map_or("", |(_, rest)| rest.split_once('}').map_or("", |(_, rest)| rest))
            )
        ),
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/fragments in a circle",
        |it| {
            query_rest(
        &it, "{ items(n: 1) { ...a } } fragment a on Item { parent { ...b } } fragment b on Item { parent { ...a } }".into())
        },
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/fragment that spreads itself",
        |it| query_rest(&it, "{ items(n: 1) { ...a } } fragment a on Item { ...a }".into()),
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/conflicting aliases in an operation that is not chosen",
        |it| query_operation(
            &it,
            format!(
                "query Chosen {{ __typename }} query Other {{ {} }}",
                repeat_text(1_600, |n| format!("x: items(n: {n}) {{ id }} "))
            ),
            "Chosen"
        ),
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/conflicting aliases",
        |it| query_rest(
            &it,
            format!("{{ {} }}", repeat_text(400, |n| format!("x: items(n: {n}) {{ id }} ")))
        ),
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/undefined spreads",
        |it| query_rest(
            &it,
            format!("{{ items(n: 1) {{ {} }} }}", repeat_text(2_400, |n| format!("...u{n} ")))
        ),
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/unused fragments",
        |it| query_rest(
            &it,
            format!(
                "{{ __typename }} {}",
                repeat_text(1_000, |n| format!("fragment f{n} on Item {{ id }} "))
            )
        ),
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/unused variables",
        |it| query_rest(
            &it,
            format!("query({}) {{ __typename }}", repeat_text(1_000, |n| format!("$v{n}: Int ")))
        ),
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/deep selections",
        |it| query_rest(&it, format!("{{ items(n: 1) {} id {} }}", "{ parent ".repeat(500), "}".repeat(500))),
        [LIMIT, SYNTAX],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/deep brackets",
        |it| query_rest(&it, "{".repeat(10_000)),
        [LIMIT, SYNTAX],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/deep literal",
        |it| query_rest(&it, format!("{{ items(n: {}1{}) {{ id }} }}", "[".repeat(5_000), "]".repeat(5_000))),
        [LIMIT, SYNTAX, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/deep type of a variable",
        |it| query_rest(
            &it,
            format!("query($v: {}Int{}) {{ __typename }}", "[".repeat(5_000), "]".repeat(5_000))
        ),
        [LIMIT, SYNTAX, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/many tokens",
        |it| query_rest(&it, format!("{{ {} }}", "__typename ".repeat(50_000))),
        [LIMIT, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/many aliases",
        |it| query_rest(&it, format!("{{ {} }}", repeat_text(2_000, |n| format!("a{n}: __typename ")))),
        [LIMIT, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/many root fields",
        |it| query_rest(
            &it,
            format!("{{ {} }}", repeat_text(300, |n| format!("a{n}: items(n: 1) {{ id }} ")))
        ),
        [LIMIT, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/many directives on one field",
        |it| query_rest(&it, format!("{{ __typename {} }}", "@include(if: true) ".repeat(2_000))),
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/many arguments of one name",
        |it| query_rest(&it, format!("{{ items({}) {{ id }} }}", "n: 1 ".repeat(2_000))),
        [LIMIT, INVALID, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/many operations",
        |it| query_operation(
            &it,
            repeat_text(1_000, |n| format!("query q{n} {{ items(n: 1) {{ id }} }} ")),
            "q7"
        ),
        [LIMIT, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/operations of one name",
        |it| query_rest(&it, "query a { __typename } ".repeat(500)),
        [LIMIT, INVALID, OPERATION, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/aliases below a long list",
        |it| query_rest(
            &it,
            format!("{{ items(n: 50000) {{ {} }} }}", repeat_text(80, |n| format!("a{n}: name ")))
        ),
        [AttackEnding::errors("graphql-output"), PLAN_RATE],
        ANSWER
    ),
    case!(
        "graphql/introspection that nests",
        |it| query_rest(
            &it,
            format!("{{ __schema {{ types {} name {} }} }}", "{ fields { type ".repeat(6), "} }".repeat(6))
        ),
        [LIMIT, PLAN_RATE],
        ANSWER
    ),
    case!(
        "graphql/introspection where it is off",
        |it| query_federated(&it, "{ __schema { types { name } } }".into()),
        [AttackEnding::errors("introspection-off")]
    ),
    case!(
        "graphql/plan over recursive types",
        |it| query_federated(&it, recursive_document(6)),
        [
            LIMIT,
            PLAN_RATE,
            AttackEnding::errors("upstream-not-graphql"),
            AttackEnding::errors("upstream-status")
        ],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/plan over many keys",
        |it| query_federated(
            &it,
            format!("{{ nodes {{ {} }} }}", repeat_text(60, |n| format!("a{n}: next {{ weight name }} ")))
        ),
        [
            LIMIT,
            PLAN_RATE,
            AttackEnding::errors("upstream-not-graphql"),
            AttackEnding::errors("upstream-status")
        ],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/operations that share a large expansion",
        |it| query_operation(&it, uncached_document(&shared_expansion()), "Chosen"),
        [AttackEnding::Answer(200), PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/short documents over entities",
        |it| query_federated(
            &it,
            uncached_document(
                "{ node(id: 1) { weight name next { weight name all { weight name id code all { weight } } } } }"
            )
        ),
        [PLAN_RATE, AttackEnding::errors("upstream-not-graphql"), AttackEnding::errors("upstream-status")],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/few aliases of an entity",
        |it| query_federated(
            &it,
            uncached_document(&format!(
                "{{ nodes {{ {} }} }}",
                repeat_text(12, |n| format!("a{n}: next {{ weight }} "))
            ))
        ),
        [PLAN_RATE, AttackEnding::errors("upstream-not-graphql"), AttackEnding::errors("upstream-status")],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/long name of an operation",
        |it| post_body(
            &it,
            format!(r#"{{"query":"{{ __typename }}","operationName":"{}"}}"#, r#"\""#.repeat(400_000))
        ),
        [OPERATION],
        BODY
    ),
    case!(
        "graphql/introspection in fifty fields",
        |it| query_rest(
            &it,
            format!(
                "{{ {} }}",
                repeat_text(50, |n| format!(
                    "a{n}: __type(name: \"Item\") {{ fields {{ name type {{ name }} }} }} "
                ))
            )
        ),
        [AttackEnding::Answer(200), PLAN_RATE],
        ANSWER
    ),
    case!(
        "graphql/variable of another type",
        |it| query_with_variables(&it, "query($n: Int) { items(n: $n) { id } }", json!({ "n": { "a": [] } })),
        [VARIABLES]
    ),
    case!(
        "graphql/variable that nests",
        |it| post_body(
            &it,
            format!(
                r#"{{"query":"query($n: Int) {{ items(n: $n) {{ id }} }}","variables":{{"n":{}1{}}}}}"#,
                "[".repeat(20_000),
                "]".repeat(20_000)
            )
        ),
        [AttackEnding::errors("graphql-json"), VARIABLES],
        BODY
    ),
    case!(
        "graphql/many variables that are not declared",
        |it| post_body(
            &it,
            format!(
                r#"{{"query":"{{ __typename }}","variables":{{{}"z":1}}}}"#,
                repeat_text(50_000, |n| format!("\"v{n}\":{n},"))
            )
        ),
        [AttackEnding::Answer(200), AttackEnding::problem(413, "body-too-large")],
        BODY
    ),
    case!(
        "graphql/long text of escapes for a number",
        |it| post_body(
            &it,
            format!(
                r#"{{"query":"query($n: Int) {{ items(n: $n) {{ id }} }}","variables":{{"n":"{}"}}}}"#,
                r"\u0041".repeat(150_000)
            )
        ),
        [VARIABLES],
        BODY
    ),
    case!(
        "graphql/fifty fields with one long variable",
        |it| query_with_variables(
            &it,
            &format!(
                "query($ids: [Int!]) {{ {} }}",
                repeat_text(50, |n| format!("a{n}: items(n: 1, ids: $ids) {{ id }} "))
            ),
            json!({ "ids": vec![7; 2_000] })
        ),
        [AttackEnding::Answer(200), PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/conditions of many variables below a list",
        |it| query_rest(
            &it,
            format!(
                "query({}) {{ items(n: 1000) {{ id {} }} }}",
                repeat_text(200, |n| format!("$v{n}: Boolean = false ")),
                repeat_text(200, |n| format!("name @include(if: $v{n}) "))
            )
        ),
        [AttackEnding::Answer(200), LIMIT, PLAN_RATE],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/query of many parameters",
        |it| it.request_ending(
            "GET",
            &format!("/graphql?query=%7B__typename%7D{}", "&a".repeat(30_000)),
            &[],
            ""
        ),
        [AttackEnding::Answer(200)],
        PLANNED_DOCUMENT
    ),
    case!(
        "graphql/page without an encoding",
        |it| it.request_ending("GET", "/graphql", &[("accept", "text/html")], ""),
        [AttackEnding::Answer(200)],
        &[("answer of GraphQL", 1)]
    ),
    case!(
        "graphql/long answer that may be shared",
        |it| it.graphql("/shared", "{ items(n: 16, text: 100000) { text } }", json!({})),
        [AttackEnding::Answer(200)],
        ANSWER
    ),
    case!(
        "graphql/body of a list",
        |it| post_body(&it, format!("[{}1]", "1,".repeat(1_000))),
        [AttackEnding::errors("graphql-batch")],
        BODY
    ),
    case!(
        "graphql/body of nested lists",
        |it| post_body(&it, "[".repeat(100_000)),
        [AttackEnding::errors("graphql-json"), AttackEnding::errors("graphql-batch")],
        BODY
    ),
    case!(
        "graphql/number that is too large",
        |it| query_with_variables(&it, "query($n: Int) { items(n: $n) { id } }", json!({ "n": 1e300 })),
        [VARIABLES]
    ),
    case!(
        "graphql/empty list in a path",
        |it| it.graphql("/graphql", "mutation { deleteItems(ids: []) }", json!({})),
        [AttackEnding::errors("argument-unfit"), AttackEnding::errors("argument-missing"), INVALID, LIMIT]
    ),
    case!(
        "graphql/mutation by GET",
        |it| it.request_ending("GET", "/graphql?query=mutation%7BdeleteItems(ids:%5B%221%22%5D)%7D", &[], ""),
        [AttackEnding::problem(405, "method-not-allowed")]
    ),
    case!(
        "graphql/hash of another document",
        |it| post_body(
            &it,
            json!({ "query": "{ __typename }",
        "extensions": { "persistedQuery": { "version": 1, "sha256Hash": "0".repeat(64) } } })
            .to_string()
        ),
        [AttackEnding::errors("persisted-mismatch")]
    ),
    case!(
        "graphql/document of no characters",
        |it| query_rest(&it, String::new()),
        [SYNTAX, OPERATION, INVALID, AttackEnding::errors("graphql-parameter")]
    ),
    case!(
        "graphql/document of control characters",
        |it| query_rest(&it, "\u{0}\u{1}{ __typename }".into()),
        [SYNTAX]
    ),
    case!(
        "graphql/forty long answers that are not taken",
        |it| reset_blocked_streams(&it, long_texts),
        [AttackEnding::StreamReset(ENHANCE_YOUR_CALM)],
        BLOCKED_COMPOSED_ANSWERS
    ),
];

/// Sends a document to the route over REST.
async fn query_rest(target: &AttackTarget, document: String) -> Result<AttackEnding> {
    target.graphql("/graphql", &document, json!({})).await
}

/// Sends a document to the route over a supergraph.
async fn query_federated(target: &AttackTarget, document: String) -> Result<AttackEnding> {
    target.graphql("/federated", &document, json!({})).await
}

async fn query_operation(target: &AttackTarget, document: String, operation: &str) -> Result<AttackEnding> {
    post_body(target, json!({ "query": document, "operationName": operation }).to_string()).await
}

async fn query_with_variables(
    target: &AttackTarget,
    document: &str,
    variables: Value,
) -> Result<AttackEnding> {
    target.graphql("/graphql", document, variables).await
}

/// Sends a request with this body.
async fn post_body(target: &AttackTarget, body: String) -> Result<AttackEnding> {
    target.request_ending("POST", "/graphql", &[("content-type", "application/json")], body).await
}

/// Sends bodies of a mebibyte that lack a byte, more than the gateway holds for one address. Returns the
/// ending of one that was refused before the deadline.
async fn unfinished_bodies(target: &AttackTarget) -> Result<AttackEnding> {
    const LENGTH: usize = 1 << 20;
    let head = format!(
        "POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {LENGTH}\r\n\r\n"
    );
    let begun = Bytes::from(head + &" ".repeat(LENGTH - 1));
    let requests = (0..80).map(|_| {
        let begun = begun.clone();
        async move {
            // An address of its own, since the bodies of other cases need room.
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from(([127, 0, 0, 3], 0)))?;
            let mut stream = socket.connect(target.gateway.address).await?;
            // A gateway that refuses early may close the connection during the write.
            let _ = stream.write_all(&begun).await;
            anyhow::Ok(wire::response_ending(&wire::read_all(&mut stream).await))
        }
    });
    let endings: Vec<AttackEnding> = join_all(requests).await.into_iter().collect::<Result<_>>()?;
    let held = endings.iter().filter(|ending| **ending == LATE_BODY).count();
    ensure!(held <= 64, "the gateway holds {held} bodies of one address");
    endings.into_iter().find(|ending| *ending != LATE_BODY).context("no body was refused")
}

fn repeat_text(times: usize, make: impl Fn(usize) -> String) -> String {
    (0..times).map(make).collect()
}

/// Returns a document that differs from all others by a comment, so that its plan is not cached.
fn uncached_document(document: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{document} # {}", NUMBER.fetch_add(1, Relaxed))
}

/// Returns a document of a kilobyte in which sixty operations expand to 2,500 selections each, and one to a
/// single selection.
fn shared_expansion() -> String {
    let operations = repeat_text(60, |n| format!("query q{n}{{...Z}}"));
    let doubled = repeat_text(8, |level| format!("fragment f{level} on Item{{...f{0}...f{0}}}", level + 1));
    format!(
        "query Chosen{{__typename}}{operations}fragment Z on Query{{items(n:1){{...f0}}}}{doubled}\
         fragment f8 on Item{{id name parent{{id name parent{{id name}}}}}}"
    )
}

/// Returns an operation with an answer of 1.6 MB that differs from those of other streams, because equal
/// operations would share theirs. All have one document, which is planned once.
fn long_texts(stream: u32) -> Vec<u8> {
    let document = "query($text: Int) { items(n: 16, text: $text) { text } }";
    let body = json!({ "query": document, "variables": { "text": 100_000 + stream } }).to_string();
    let head = request_fields("POST", "/graphql", &[("content-type", "application/json")]);
    [frame(HEADERS, END_HEADERS, stream, &head), frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
}

/// Returns a chain of fragments that each spread the next one twice; the last one is defined only if
/// `is_closed`.
fn fragment_chain(levels: usize, is_closed: bool) -> String {
    let link = |level: usize| {
        let next = level + 1;
        format!("fragment f{level} on Item {{ a: parent {{ ...f{next} }} b: parent {{ ...f{next} }} }} ")
    };
    let last = if is_closed { format!("fragment f{levels} on Item {{ id }} ") } else { String::new() };
    format!("query {{ items(n: 1) {{ ...f0 }} }} {}{last}", repeat_text(levels, link))
}

/// Returns fields of two subgraphs at every level of a type that refers to itself twice.
fn recursive_document(levels: usize) -> String {
    let inner = (0..levels)
        .fold("weight".to_owned(), |inner, _| format!("name weight next {{ {inner} }} all {{ {inner} }}"));
    format!("{{ nodes {{ {inner} }} }}")
}
