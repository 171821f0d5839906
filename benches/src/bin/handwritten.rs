//! The counterpart of aggregates: the marketplace's Q4 and Q5 as a Rust developer would write them by hand
//! for exactly these shapes. It uses typed structs that borrow their texts from the responses, joins by hash
//! tables, and the same concurrent calls over kept connections. It is a plain release build, whereas ORFA's
//! code layout is optimised.
//!
//! `handwritten 127.0.0.1:4000 PROFILE CATALOG ORDER`, each the address of a service.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use benches::client::BenchClient;
use bytes::Bytes;
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

type Text<'a> = Cow<'a, str>;

struct ServiceUrls {
    profile: BenchClient,
    catalog: BenchClient,
    order: BenchClient,
}

#[derive(Deserialize, Serialize)]
struct Buyer<'a> {
    id: u64,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    company: Text<'a>,
    #[serde(borrow)]
    email: Text<'a>,
    #[serde(borrow)]
    phone: Text<'a>,
    #[serde(borrow)]
    city: Text<'a>,
    #[serde(borrow)]
    country: Text<'a>,
    #[serde(borrow)]
    about: Text<'a>,
    #[serde(borrow)]
    joined: Text<'a>,
    #[serde(skip_deserializing)]
    catalogs: Vec<Posting<'a>>,
}

#[derive(Deserialize, Serialize)]
struct Posting<'a> {
    id: u64,
    buyer_id: u64,
    #[serde(borrow)]
    title: Text<'a>,
    #[serde(borrow)]
    description: Text<'a>,
    #[serde(borrow)]
    category: Text<'a>,
    price: u64,
    #[serde(borrow)]
    currency: Text<'a>,
    #[serde(borrow)]
    skills: Vec<Text<'a>>,
    #[serde(borrow)]
    created: Text<'a>,
    open: bool,
}

#[derive(Deserialize, Serialize)]
struct OrderRecord<'a> {
    id: u64,
    catalog_id: u64,
    freelancer_id: u64,
    buyer_id: u64,
    #[serde(borrow)]
    status: Text<'a>,
    #[serde(borrow)]
    created: Text<'a>,
    #[serde(borrow)]
    payment: Payment<'a>,
    #[serde(borrow)]
    review: Option<Review<'a>>,
    #[serde(skip_deserializing)]
    catalog: Option<Offer<'a>>,
    #[serde(skip_deserializing)]
    freelancer: Option<Person<'a>>,
}

#[derive(Deserialize, Serialize)]
struct Payment<'a> {
    amount: u64,
    #[serde(borrow)]
    currency: Text<'a>,
    #[serde(borrow)]
    method: Text<'a>,
    #[serde(borrow)]
    paid_at: Option<Text<'a>>,
}

#[derive(Deserialize, Serialize)]
struct Review<'a> {
    stars: u8,
    #[serde(borrow)]
    text: Text<'a>,
}

/// The part of a posting in an order.
#[derive(Clone, Deserialize, Serialize)]
struct Offer<'a> {
    id: u64,
    #[serde(borrow)]
    title: Text<'a>,
    price: u64,
}

/// The part of a freelancer in an order.
#[derive(Clone, Deserialize, Serialize)]
struct Person<'a> {
    id: u64,
    #[serde(borrow)]
    name: Text<'a>,
}

#[derive(Deserialize)]
struct PostingsPage {
    limit: usize,
}

/// An error of an upstream service.
struct BadGateway(anyhow::Error);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, profile, catalog, order] = arguments.as_slice() else {
        anyhow::bail!("handwritten ADDRESS PROFILE CATALOG ORDER");
    };
    let services = ServiceUrls {
        profile: BenchClient::new(profile.parse()?),
        catalog: BenchClient::new(catalog.parse()?),
        order: BenchClient::new(order.parse()?),
    };
    let router = Router::new().route("/q4", get(q4)).route("/q5", get(q5)).with_state(Arc::new(services));
    let listener = TcpListener::bind(address).await?.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, router).await?)
}

/// All buyers, each with its postings.
async fn q4(State(services): State<Arc<ServiceUrls>>) -> Result<Response, BadGateway> {
    let ServiceUrls { profile, catalog, .. } = services.as_ref();
    let (buyers, postings) = tokio::try_join!(fetch(profile, "/buyers"), fetch(catalog, "/catalogs"))?;
    let mut buyers: Vec<Buyer<'_>> = parse_rows(&buyers)?;
    let places: HashMap<u64, usize> =
        buyers.iter().enumerate().map(|(place, buyer)| (buyer.id, place)).collect();
    for posting in parse_rows::<Vec<Posting<'_>>>(&postings)? {
        if let Some(buyer) = places.get(&posting.buyer_id).and_then(|place| buyers.get_mut(*place)) {
            buyer.catalogs.push(posting);
        }
    }
    json_response(&buyers)
}

/// Orders, each with its posting and its freelancer.
async fn q5(
    State(services): State<Arc<ServiceUrls>>,
    Query(PostingsPage { limit }): Query<PostingsPage>,
) -> Result<Response, BadGateway> {
    let ServiceUrls { profile, catalog, order } = services.as_ref();
    let orders = fetch(order, &format!("/orders?limit={limit}")).await?;
    let mut orders: Vec<OrderRecord<'_>> = parse_rows(&orders)?;
    let postings = format!("/catalogs?ids={}", join_ids(orders.iter().map(|order| order.catalog_id)));
    let people = format!("/freelancers?ids={}", join_ids(orders.iter().map(|order| order.freelancer_id)));
    let (postings, people) = tokio::try_join!(fetch(catalog, &postings), fetch(profile, &people))?;
    let postings: HashMap<u64, Offer<'_>> =
        parse_rows::<Vec<_>>(&postings)?.into_iter().map(|row: Offer<'_>| (row.id, row)).collect();
    let people: HashMap<u64, Person<'_>> =
        parse_rows::<Vec<_>>(&people)?.into_iter().map(|row: Person<'_>| (row.id, row)).collect();
    for order in &mut orders {
        order.catalog = postings.get(&order.catalog_id).cloned();
        order.freelancer = people.get(&order.freelancer_id).cloned();
    }
    json_response(&orders)
}

/// The distinct ids in order, separated by commas.
fn join_ids(ids: impl Iterator<Item = u64>) -> String {
    let mut seen = HashSet::new();
    let ids: Vec<String> = ids.filter(|id| seen.insert(*id)).map(|id| id.to_string()).collect();
    ids.join(",")
}

async fn fetch(service: &BenchClient, path: &str) -> Result<Bytes> {
    let answer = service.send(Request::get(path).body(Full::default())?).await?;
    ensure!(answer.status == 200, "{path}: {}", answer.status);
    Ok(answer.body)
}

fn parse_rows<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T> {
    serde_json::from_slice(text).context("a service's response has an unexpected format")
}

fn json_response(rows: &impl Serialize) -> Result<Response, BadGateway> {
    let text = serde_json::to_vec(rows).map_err(anyhow::Error::from)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

impl From<anyhow::Error> for BadGateway {
    fn from(error: anyhow::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for BadGateway {
    fn into_response(self) -> Response {
        (StatusCode::BAD_GATEWAY, format!("{:#}", self.0)).into_response()
    }
}
