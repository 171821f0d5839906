//! A notice to each admin among 16 users.
//!
//! Every run writes its notices anew; the answer, who got one, stays the same.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::{Call, Session, items};
use crate::client::Client;

const USERS: &str = "/profile/users?limit=16";

/// The users, the details of each, and a notice to those who are admins.
pub(super) async fn calls(session: &mut Session<'_>) -> Result<Value> {
    let users = session.one(Call::get(USERS)).await?;
    let details = |user: &Value| Call::get(format!("/profile/users/{}", user["id"]));
    let details = session.all(items(&users).iter().map(details).collect()).await?;
    let is_admin = |user: &&Value| items(&user["roles"]).contains(&json!("admin"));
    notify(session, details.iter().filter(is_admin).map(|user| user["id"].clone()).collect()).await
}

/// The admins are asked for, beside the list that says who is among the first 16.
pub(super) async fn bulk(session: &mut Session<'_>) -> Result<Value> {
    let admins = "/profile/users?role=admin&limit=16";
    let (users, admins) = session.both(Call::get(USERS), Call::get(admins)).await?;
    let listed = |admin: &&Value| items(&users).iter().any(|user| user["id"] == admin["id"]);
    notify(session, items(&admins).iter().filter(listed).map(|user| user["id"].clone()).collect()).await
}

async fn notify(session: &mut Session<'_>, admins: Vec<Value>) -> Result<Value> {
    let text = json!({ "text": "Maintenance tonight at 22:00 UTC." });
    let notice = |id: &Value| Call::json(Method::POST, format!("/profile/users/{id}/notices"), &text);
    session.all(admins.iter().map(notice).collect()).await?;
    Ok(admins.into())
}

/// Each admin has got a notice from each run.
pub(super) async fn check(client: &Client, admins: &Value, runs: usize) -> Result<()> {
    ensure!(!items(admins).is_empty(), "there is no admin among the 16 users");
    for id in items(admins) {
        let notices = Call::get(format!("/profile/users/{id}/notices")).send(client).await?;
        let got = items(&serde_json::from_slice(&notices.body)?).len();
        ensure!(got == runs, "user {id} got {got} notices of {runs} runs");
    }
    Ok(())
}
