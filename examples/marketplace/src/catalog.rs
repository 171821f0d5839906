//! The catalog service: the job postings of the buyers.

use axum::http::Method;
use rusqlite::{Connection, Transaction, params};
use serde::Deserialize;

use crate::graphql::RootField;
use crate::http::{HandlerInput, HandlerOutput, Route};
use crate::problem::ErrorResponse;
use crate::seed;
use crate::select::{Select, one};

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/catalogs", &["limit", "offset", "ids", "buyer", "buyers", "per_buyer", "sort"], catalogs),
    Route::write(Method::POST, "/catalogs", create),
    Route::get("/catalogs/{id}", &[], catalog),
    Route::write(Method::PUT, "/catalogs/{id}", replace),
    Route::write(Method::DELETE, "/catalogs/{id}", delete),
];

/// The handlers of the fields of `Query` and `Mutation`.
pub(crate) const FIELDS: &[RootField] = &[
    ("catalogs", catalogs),
    ("catalog", catalog),
    ("createCatalog", create),
    ("replaceCatalog", replace),
    ("deleteCatalog", delete),
];

const CATALOG: &str = "json_object('id', id, 'buyer_id', buyer_id, 'title', title, \
    'description', description, 'category', category, 'price', price, 'currency', currency, \
    'skills', json(skills), 'created', created, 'open', json(iif(open, 'true', 'false')))";

/// The sort orders of a list. Rows of equal time are sorted by ID.
pub(crate) const SORTS: &[(&str, &str)] =
    &[("id", "id"), ("created", "created, id"), ("-created", "created DESC, id DESC")];

/// The body of a request that writes a posting.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewCatalog {
    buyer_id: i64,
    title: String,
    description: String,
    category: String,
    price: u32,
    currency: String,
    skills: Vec<String>,
    #[serde(default = "yes")]
    open: bool,
}

fn yes() -> bool {
    true
}

impl NewCatalog {
    fn of(request: &HandlerInput) -> Result<Self, ErrorResponse> {
        let new: Self = request.body()?;
        if new.title.is_empty() {
            return Err(ErrorResponse::field("title", "a text that is not empty"));
        }
        check_currency("currency", &new.currency)?;
        Ok(new)
    }

    fn skills(&self) -> String {
        serde_json::json!(self.skills).to_string()
    }
}

/// Checks that a currency is three capital letters, as in ISO 4217.
pub(crate) fn check_currency(field: &str, currency: &str) -> Result<(), ErrorResponse> {
    let fits = currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase());
    if fits { Ok(()) } else { Err(ErrorResponse::field(field, "three capital letters, such as EUR")) }
}

fn catalogs(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let asked = &request.parameters;
    Select::new(CATALOG, "catalogs")
        .with("buyer_id", asked.number("buyer")?)
        .with_any("buyer_id", asked.numbers("buyers")?)
        .with_any("id", asked.numbers("ids")?)
        .order(asked.choice("sort", SORTS)?)
        .each("buyer_id", asked.number("per_buyer")?)
        .answer(db, request)
}

fn catalog(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let id = request.id()?;
    let sql = format!("SELECT {CATALOG} FROM catalogs WHERE id = ?");
    HandlerOutput::found(one(db, &sql, [id])?, "catalog", id)
}

fn create(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let new = NewCatalog::of(request)?;
    let sql = format!(
        "INSERT INTO catalogs (buyer_id, title, description, category, price, currency, skills, open, created) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%SZ', 'now')) RETURNING {CATALOG}"
    );
    #[rustfmt::skip]
    let values = params![
        new.buyer_id, new.title, new.description, new.category, new.price, new.currency, new.skills(), new.open,
    ];
    let row = one(db, &sql, values)?.ok_or_else(ErrorResponse::internal)?;
    Ok(HandlerOutput::created(row, format!("/catalogs/{}", db.last_insert_rowid())))
}

fn replace(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let (id, new) = (request.id()?, NewCatalog::of(request)?);
    let sql = format!(
        "UPDATE catalogs SET buyer_id = ?, title = ?, description = ?, category = ?, price = ?, currency = ?, \
         skills = ?, open = ? WHERE id = ? RETURNING {CATALOG}"
    );
    #[rustfmt::skip]
    let values = params![
        new.buyer_id, new.title, new.description, new.category, new.price, new.currency, new.skills(), new.open,
        id,
    ];
    HandlerOutput::found(one(db, &sql, values)?, "catalog", id)
}

fn delete(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let id = request.id()?;
    let rows = db.prepare_cached("DELETE FROM catalogs WHERE id = ?")?.execute([id])?;
    HandlerOutput::deleted(rows, "catalog", id)
}

pub(crate) fn seed(db: &Transaction<'_>) -> rusqlite::Result<()> {
    db.execute_batch(
        "CREATE TABLE catalogs (id INTEGER PRIMARY KEY AUTOINCREMENT, buyer_id INTEGER NOT NULL,
            title TEXT NOT NULL, description TEXT NOT NULL, category TEXT NOT NULL, price INTEGER NOT NULL,
            currency TEXT NOT NULL, skills TEXT NOT NULL, created TEXT NOT NULL, open INTEGER NOT NULL) STRICT;
         CREATE INDEX catalogs_by_buyer ON catalogs (buyer_id, created, id);
         CREATE INDEX catalogs_by_time ON catalogs (created, id);",
    )?;
    let mut insert = db.prepare(
        "INSERT INTO catalogs VALUES (?, ?, ?, ?, ?, ?, ?, ?,
            strftime('%Y-%m-%dT%H:%M:%SZ', ?, 'unixepoch'), ?)",
    )?;
    for row in seed::catalogs() {
        let skills = serde_json::json!(row.skills).to_string();
        #[rustfmt::skip]
        insert.execute(params![
            row.id, row.buyer, row.title, row.description, row.category, row.price, row.currency, skills,
            row.created, row.open,
        ])?;
    }
    Ok(())
}
