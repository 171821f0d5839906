//! A notice to each admin among 16 users.
//!
//! Every run writes its notices again; the answer, the list of admins, stays the same.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::{PreparedCall, RestSession, as_items};
use crate::client::BenchClient;

const USERS: &str = "/profile/users?limit=16";

/// Reads the users and the details of each, and sends a notice to the admins.
pub(super) async fn run_calls(session: &mut RestSession<'_>) -> Result<Value> {
    let users = session.call(PreparedCall::get(USERS)).await?;
    let details = |user: &Value| PreparedCall::get(format!("/profile/users/{}", user["id"]));
    let details = session.call_all(as_items(&users).iter().map(details).collect()).await?;
    let is_admin = |user: &&Value| as_items(&user["roles"]).contains(&json!("admin"));
    send_notices(session, details.iter().filter(is_admin).map(|user| user["id"].clone()).collect()).await
}

/// Requests the admins, together with the list of the first 16 users.
pub(super) async fn run_bulk(session: &mut RestSession<'_>) -> Result<Value> {
    let admins = "/profile/users?role=admin&limit=16";
    let (users, admins) = session.call_both(PreparedCall::get(USERS), PreparedCall::get(admins)).await?;
    let listed = |admin: &&Value| as_items(&users).iter().any(|user| user["id"] == admin["id"]);
    send_notices(session, as_items(&admins).iter().filter(listed).map(|user| user["id"].clone()).collect())
        .await
}

async fn send_notices(session: &mut RestSession<'_>, admins: Vec<Value>) -> Result<Value> {
    let text = json!({ "text": "Maintenance tonight at 22:00 UTC." });
    let notice = |id: &Value| PreparedCall::json(Method::POST, format!("/profile/users/{id}/notices"), &text);
    session.call_all(admins.iter().map(notice).collect()).await?;
    Ok(admins.into())
}

/// Checks that each admin has got a notice from each run.
pub(super) async fn check_notices(client: &BenchClient, admins: &Value, runs: usize) -> Result<()> {
    ensure!(!as_items(admins).is_empty(), "the 16 users include no admin");
    for id in as_items(admins) {
        let notices = PreparedCall::get(format!("/profile/users/{id}/notices")).send(client).await?;
        let got = as_items(&serde_json::from_slice(&notices.body)?).len();
        ensure!(got == runs, "user {id} got {got} notices of {runs} runs");
    }
    Ok(())
}
