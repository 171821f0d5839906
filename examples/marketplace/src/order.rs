//! The order service: the freelancers' orders of postings, with payments and reviews.
//!
//! Payment and review are columns of the order's own row: there is at most one of each, and they are never
//! read without the order.

use axum::http::Method;
use rusqlite::{Connection, Transaction, params};
use serde::{Deserialize, Deserializer};

use crate::catalog::{SORTS, check_currency};
use crate::graphql::RootField;
use crate::http::{HandlerInput, HandlerOutput, Route};
use crate::problem::ErrorResponse;
use crate::seed;
use crate::select::{Select, one};

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/orders", &["limit", "offset", "ids", "catalog", "freelancer", "status", "sort"], orders),
    Route::write(Method::POST, "/orders", create),
    Route::get("/orders/{id}", &[], order),
    Route::write(Method::PATCH, "/orders/{id}", change),
    Route::write(Method::DELETE, "/orders/{id}", delete),
    Route::get("/buyers/{id}/rating", &[], rating),
];

/// The handlers of the fields of `Query` and `Mutation`.
pub(crate) const FIELDS: &[RootField] = &[
    ("orders", orders),
    ("order", order),
    ("buyerRating", rating),
    ("createOrder", create),
    ("changeOrder", change),
    ("deleteOrder", delete),
];

const ORDER: &str = "json_object('id', id, 'catalog_id', catalog_id, 'freelancer_id', freelancer_id, \
    'buyer_id', buyer_id, 'status', status, 'created', created, \
    'payment', json_object('amount', amount, 'currency', currency, 'method', method, 'paid_at', paid_at), \
    'review', json(iif(stars IS NULL, 'null', json_object('stars', stars, 'text', text))))";

const STATUSES: [&str; 5] = ["open", "in_progress", "delivered", "completed", "cancelled"];
const METHODS: [&str; 3] = ["card", "transfer", "wallet"];

/// A new order. Its initial status is `open`, and it is unpaid.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewOrder {
    catalog_id: i64,
    freelancer_id: i64,
    buyer_id: i64,
    payment: NewPayment,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPayment {
    amount: u32,
    currency: String,
    method: String,
}

/// A change as a JSON merge patch: absent members stay unchanged, `null` removes a value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderChange {
    status: Option<String>,
    #[serde(default)]
    payment: PaymentChange,
    #[serde(default, deserialize_with = "given")]
    review: Option<Option<Review>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaymentChange {
    method: Option<String>,
    #[serde(default, deserialize_with = "given")]
    paid_at: Option<Option<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Review {
    stars: i64,
    text: String,
}

/// Deserialises `null` to `Some(None)`, to distinguish it from an absent member.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

impl OrderChange {
    fn of(request: &HandlerInput) -> Result<Self, ErrorResponse> {
        let change: Self = request.body()?;
        check_word("status", change.status.as_deref(), &STATUSES)?;
        check_word("payment.method", change.payment.method.as_deref(), &METHODS)?;
        let stars = change.review.iter().flatten().map(|review| review.stars);
        if stars.into_iter().any(|stars| !(1..=5).contains(&stars)) {
            return Err(ErrorResponse::field("review.stars", "a whole number from 1 to 5"));
        }
        Ok(change)
    }
}

fn check_word(field: &str, word: Option<&str>, words: &[&str]) -> Result<(), ErrorResponse> {
    match word {
        Some(word) if !words.contains(&word) => {
            Err(ErrorResponse::field(field, &format!("one of {}", words.join(", "))))
        }
        _ => Ok(()),
    }
}

fn check_time(db: &Connection, field: &str, time: &str) -> Result<(), ErrorResponse> {
    let sql = "SELECT ?1 GLOB '????-??-??T*' AND julianday(?1) IS NOT NULL";
    let fits = db.prepare_cached(sql)?.query_row([time], |row| row.get(0))?;
    if fits { Ok(()) } else { Err(ErrorResponse::field(field, "a time as in RFC 3339, or null")) }
}

fn orders(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let asked = &request.parameters;
    let status = asked.choice("status", &STATUSES.map(|status| (status, status)))?;
    Select::new(ORDER, "orders")
        .with("catalog_id", asked.number("catalog")?)
        .with("freelancer_id", asked.number("freelancer")?)
        .with("status", status.map(String::from))
        .with_any("id", asked.numbers("ids")?)
        .order(asked.choice("sort", SORTS)?)
        .answer(db, request)
}

fn order(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let id = request.id()?;
    let sql = format!("SELECT {ORDER} FROM orders WHERE id = ?");
    HandlerOutput::found(one(db, &sql, [id])?, "order", id)
}

fn create(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let NewOrder { catalog_id, freelancer_id, buyer_id, payment } = request.body()?;
    check_currency("payment.currency", &payment.currency)?;
    check_word("payment.method", Some(&payment.method), &METHODS)?;
    let sql = format!(
        "INSERT INTO orders (catalog_id, freelancer_id, buyer_id, status, created, amount, currency, method) \
         VALUES (?, ?, ?, 'open', strftime('%Y-%m-%dT%H:%M:%SZ', 'now'), ?, ?, ?) RETURNING {ORDER}"
    );
    let values =
        params![catalog_id, freelancer_id, buyer_id, payment.amount, payment.currency, payment.method];
    let row = one(db, &sql, values)?.ok_or_else(ErrorResponse::internal)?;
    Ok(HandlerOutput::created(row, format!("/orders/{}", db.last_insert_rowid())))
}

fn change(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let (id, OrderChange { status, payment, review }) = (request.id()?, OrderChange::of(request)?);
    let sql = format!(
        "UPDATE orders SET status = ifnull(?, status), method = ifnull(?, method), \
         paid_at = iif(?, ?, paid_at), stars = iif(?, ?, stars), text = iif(?, ?, text) \
         WHERE id = ? RETURNING {ORDER}"
    );
    if let Some(Some(time)) = &payment.paid_at {
        check_time(db, "payment.paid_at", time)?;
    }
    let (paid, reviewed) = (payment.paid_at.is_some(), review.is_some());
    let review = review.flatten();
    let (stars, text) =
        (review.as_ref().map(|review| review.stars), review.as_ref().map(|review| &review.text));
    let paid_at = payment.paid_at.flatten();
    let values = params![status, payment.method, paid, paid_at, reviewed, stars, reviewed, text, id];
    HandlerOutput::found(one(db, &sql, values)?, "order", id)
}

fn delete(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let id = request.id()?;
    let rows = db.prepare_cached("DELETE FROM orders WHERE id = ?")?.execute([id])?;
    HandlerOutput::deleted(rows, "order", id)
}

/// Returns the rating of a buyer, `null` without reviews. Only the profile service knows whether the buyer
/// exists.
fn rating(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let id = request.id()?;
    let sql = "SELECT json_object('buyer_id', ?, 'stars', round(avg(stars), 2), 'reviews', count(stars)) \
               FROM orders WHERE buyer_id = ?";
    HandlerOutput::found(one(db, sql, [id, id])?, "buyer", id)
}

pub(crate) fn seed(db: &Transaction<'_>) -> rusqlite::Result<()> {
    db.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, catalog_id INTEGER NOT NULL,
            freelancer_id INTEGER NOT NULL, buyer_id INTEGER NOT NULL, status TEXT NOT NULL,
            created TEXT NOT NULL, amount INTEGER NOT NULL, currency TEXT NOT NULL, method TEXT NOT NULL,
            paid_at TEXT, stars INTEGER, text TEXT) STRICT;
         CREATE INDEX orders_by_catalog ON orders (catalog_id);
         CREATE INDEX orders_by_freelancer ON orders (freelancer_id);
         CREATE INDEX orders_by_buyer ON orders (buyer_id, stars);
         CREATE INDEX orders_by_status ON orders (status);
         CREATE INDEX orders_by_time ON orders (created, id);",
    )?;
    let mut insert = db.prepare(
        "INSERT INTO orders VALUES (?, ?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%SZ', ?, 'unixepoch'), ?, ?, ?,
            strftime('%Y-%m-%dT%H:%M:%SZ', ?, 'unixepoch'), ?, ?)",
    )?;
    for row in seed::orders() {
        let (stars, text) = row.review.unzip();
        #[rustfmt::skip]
        insert.execute(params![
            row.id, row.catalog, row.freelancer, row.buyer, row.status, row.created, row.amount, row.currency,
            row.method, row.paid, stars, text,
        ])?;
    }
    Ok(())
}
