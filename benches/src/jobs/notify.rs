//! A notice to each admin among 16 users.
//!
//! Every run writes its notices again; the answer, the list of admins, stays the same.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::{PreparedCall, RestSession, items};
use crate::client::BenchClient;

const USERS: &str = "/profile/users?limit=16";

/// Reads the users and the details of each, and sends a notice to the admins.
pub(super) async fn calls(session: &mut RestSession<'_>) -> Result<Value> {
    let users = session.one(PreparedCall::get(USERS)).await?;
    let details = |user: &Value| PreparedCall::get(format!("/profile/users/{}", user["id"]));
    let details = session.all(items(&users).iter().map(details).collect()).await?;
    let is_admin = |user: &&Value| items(&user["roles"]).contains(&json!("admin"));
    notify(session, details.iter().filter(is_admin).map(|user| user["id"].clone()).collect()).await
}

/// Requests the admins, together with the list of the first 16 users.
pub(super) async fn bulk(session: &mut RestSession<'_>) -> Result<Value> {
    let admins = "/profile/users?role=admin&limit=16";
    let (users, admins) = session.both(PreparedCall::get(USERS), PreparedCall::get(admins)).await?;
    let listed = |admin: &&Value| items(&users).iter().any(|user| user["id"] == admin["id"]);
    notify(session, items(&admins).iter().filter(listed).map(|user| user["id"].clone()).collect()).await
}

async fn notify(session: &mut RestSession<'_>, admins: Vec<Value>) -> Result<Value> {
    let text = json!({ "text": "Maintenance tonight at 22:00 UTC." });
    let notice = |id: &Value| PreparedCall::json(Method::POST, format!("/profile/users/{id}/notices"), &text);
    session.all(admins.iter().map(notice).collect()).await?;
    Ok(admins.into())
}

/// Checks that each admin has got a notice from each run.
pub(super) async fn check(client: &BenchClient, admins: &Value, runs: usize) -> Result<()> {
    ensure!(!items(admins).is_empty(), "the 16 users include no admin");
    for id in items(admins) {
        let notices = PreparedCall::get(format!("/profile/users/{id}/notices")).send(client).await?;
        let got = items(&serde_json::from_slice(&notices.body)?).len();
        ensure!(got == runs, "user {id} got {got} notices of {runs} runs");
    }
    Ok(())
}
