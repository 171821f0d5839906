//! The profile service: buyers, freelancers, logins, and notices to users.

use axum::http::Method;
use rusqlite::{Connection, Transaction, params};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::graphql::RootField;
use crate::http::{HandlerInput, HandlerOutput, Route};
use crate::problem::ErrorResponse;
use crate::seed;
use crate::select::{Select, one};

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/buyers", &["limit", "offset", "ids"], buyers),
    Route::get("/buyers/{id}", &[], buyer),
    Route::write(Method::PUT, "/buyers/{id}", update_buyer),
    Route::get("/freelancers", &["limit", "offset", "ids"], freelancers),
    Route::get("/freelancers/{id}", &[], freelancer),
    Route::ask("/login", login),
    Route::get("/users", &["limit", "offset", "role"], users),
    Route::get("/users/{id}", &[], user),
    Route::get("/users/{id}/notices", &[], notices),
    Route::write(Method::POST, "/users/{id}/notices", notify),
];

/// The handlers of the fields of `Query` and `Mutation`.
pub(crate) const FIELDS: &[RootField] = &[
    ("buyers", buyers),
    ("buyer", buyer),
    ("freelancers", freelancers),
    ("freelancer", freelancer),
    ("users", users),
    ("user", user),
    ("notices", notices),
    ("login", login),
    ("updateBuyer", update_buyer),
    ("createNotice", notify),
];

const BUYER: &str = "json_object('id', id, 'name', name, 'company', title, 'email', email, 'phone', phone, \
    'city', city, 'country', country, 'about', about, 'joined', joined)";
const FREELANCER: &str = "json_object('id', id, 'name', name, 'title', title, 'email', email, 'city', city, \
    'country', country, 'hourly_rate', hourly_rate, 'currency', 'EUR', 'skills', json(skills), 'about', about, \
    'joined', joined)";
const USER: &str = "json_object('id', id, 'name', name, 'kind', kind)";
const USER_DETAILS: &str = "json_object('id', id, 'name', name, 'kind', kind, 'email', email, \
    'city', city, 'country', country, 'joined', joined, 'roles', json(iif(admin, '[\"admin\"]', '[]')))";
const NOTICE: &str = "json_object('id', id, 'user_id', user_id, 'text', text, 'created', created)";

/// The editable fields of a buyer, which are updated together.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BuyerUpdate {
    name: String,
    company: String,
    email: String,
    phone: String,
    city: String,
    country: String,
    about: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    email: String,
    password: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewNotice {
    text: String,
}

fn buyers(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let ids = request.parameters.numbers("ids")?;
    Select::new(BUYER, "users").only("kind = 'buyer'").with_any("id", ids).answer(db, request)
}

fn buyer(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let id = request.id()?;
    let sql = format!("SELECT {BUYER} FROM users WHERE id = ? AND kind = 'buyer'");
    HandlerOutput::found(one(db, &sql, [id])?, "buyer", id)
}

fn update_buyer(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let (id, new) = (request.id()?, request.body::<BuyerUpdate>()?);
    if new.name.is_empty() {
        return Err(ErrorResponse::field("name", "a text that is not empty"));
    }
    if !new.email.contains('@') {
        return Err(ErrorResponse::field("email", "an email address"));
    }
    let sql = format!(
        "UPDATE users SET name = ?, title = ?, email = ?, phone = ?, city = ?, country = ?, about = ? \
         WHERE id = ? AND kind = 'buyer' RETURNING {BUYER}"
    );
    let values = params![new.name, new.company, new.email, new.phone, new.city, new.country, new.about, id];
    HandlerOutput::found(one(db, &sql, values)?, "buyer", id)
}

fn freelancers(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let ids = request.parameters.numbers("ids")?;
    Select::new(FREELANCER, "users").only("kind = 'freelancer'").with_any("id", ids).answer(db, request)
}

fn freelancer(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let id = request.id()?;
    let sql = format!("SELECT {FREELANCER} FROM users WHERE id = ? AND kind = 'freelancer'");
    HandlerOutput::found(one(db, &sql, [id])?, "freelancer", id)
}

fn login(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let Login { email, password } = request.body()?;
    let sql = "SELECT json_object('user_id', id, 'name', name, 'kind', kind, 'message', 'welcome') \
               FROM users WHERE email = ? AND password = ?";
    let user = one(db, sql, params![email, hashed(&email, &password)])?;
    user.map(HandlerOutput::ok).ok_or_else(ErrorResponse::login)
}

fn users(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let role = request.parameters.choice("role", &[("admin", 1)])?;
    Select::new(USER, "users").with("admin", role).answer(db, request)
}

fn user(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let id = request.id()?;
    let sql = format!("SELECT {USER_DETAILS} FROM users WHERE id = ?");
    HandlerOutput::found(one(db, &sql, [id])?, "user", id)
}

fn notices(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    user(db, request)?;
    Select::new(NOTICE, "notices").with("user_id", Some(request.id()?)).answer(db, request)
}

fn notify(db: &Connection, request: &HandlerInput) -> Result<HandlerOutput, ErrorResponse> {
    let (id, NewNotice { text }) = (request.id()?, request.body()?);
    if text.is_empty() {
        return Err(ErrorResponse::field("text", "a text that is not empty"));
    }
    let sql = format!(
        "INSERT INTO notices (user_id, text, created) \
         SELECT id, ?, strftime('%Y-%m-%dT%H:%M:%SZ', 'now') FROM users WHERE id = ? RETURNING {NOTICE}"
    );
    let notice = one(db, &sql, params![text, id])?.ok_or_else(|| ErrorResponse::not_found("user", id))?;
    Ok(HandlerOutput::created(notice, format!("/users/{id}/notices")))
}

/// Hashes a password. The hash is fast on purpose: this is an example, and its passwords are in its README. A
/// real service needs a slow hash, such as Argon2.
fn hashed(email: &str, password: &str) -> Vec<u8> {
    Sha256::new().chain_update(email).chain_update([0]).chain_update(password).finalize().to_vec()
}

pub(crate) fn seed(db: &Transaction<'_>) -> rusqlite::Result<()> {
    db.execute_batch(
        "CREATE TABLE users (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, admin INTEGER NOT NULL,
            name TEXT NOT NULL, title TEXT NOT NULL, email TEXT NOT NULL UNIQUE, password BLOB NOT NULL,
            phone TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL, about TEXT NOT NULL,
            hourly_rate INTEGER NOT NULL, skills TEXT NOT NULL, joined TEXT NOT NULL) STRICT;
         CREATE INDEX users_by_kind ON users (kind, id);
         CREATE INDEX admins ON users (id) WHERE admin = 1;
         CREATE TABLE notices (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users,
            text TEXT NOT NULL, created TEXT NOT NULL) STRICT;
         CREATE INDEX notices_by_user ON notices (user_id, id);",
    )?;
    let mut insert = db.prepare(
        "INSERT INTO users VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
            strftime('%Y-%m-%dT%H:%M:%SZ', ?, 'unixepoch'))",
    )?;
    for user in seed::users() {
        let kind = if user.buyer { "buyer" } else { "freelancer" };
        let password = hashed(&user.email, &format!("password-{}", user.id));
        let skills = serde_json::json!(user.skills).to_string();
        #[rustfmt::skip]
        insert.execute(params![
            user.id, kind, user.admin, user.name, user.title, user.email, password, user.phone, user.city,
            user.country, user.about, user.hourly_rate, skills, user.joined,
        ])?;
    }
    Ok(())
}
