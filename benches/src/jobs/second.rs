//! The second newest posting of each of 8 buyers.

use anyhow::Result;
use serde_json::{Value, json};

use super::{PreparedCall, RestSession, as_items, join_ids};

const BUYERS: &str = "/profile/buyers?limit=8";

/// Reads the buyers, then makes one call per buyer.
pub(super) async fn run_calls(session: &mut RestSession<'_>) -> Result<Value> {
    let buyers = session.call(PreparedCall::get(BUYERS)).await?;
    let newest = |buyer: &Value| {
        PreparedCall::get(format!("/catalog/catalogs?buyer={}&sort=-created&limit=2", buyer["id"]))
    };
    let lists = session.call_all(as_items(&buyers).iter().map(newest).collect()).await?;
    Ok(as_items(&buyers).iter().zip(&lists).map(|(buyer, list)| posting_row(buyer, &list[1])).collect())
}

/// Reads the buyers, then the two newest postings of all of them, and assigns these.
pub(super) async fn run_bulk(session: &mut RestSession<'_>) -> Result<Value> {
    let buyers = session.call(PreparedCall::get(BUYERS)).await?;
    let ids = join_ids(&buyers, "id");
    let newest = format!("/catalog/catalogs?buyers={ids}&per_buyer=2&sort=-created");
    let postings = session.call(PreparedCall::get(newest)).await?;
    let second = |buyer: &Value| {
        let mut theirs = as_items(&postings).iter().filter(|posting| posting["buyer_id"] == buyer["id"]);
        posting_row(buyer, theirs.nth(1).unwrap_or(&Value::Null))
    };
    Ok(as_items(&buyers).iter().map(second).collect())
}

/// Converts a GraphQL response, which has the two newest postings of each buyer.
pub(super) fn answer_from_graphql(data: &Value) -> Value {
    as_items(&data["buyers"]).iter().map(|buyer| posting_row(buyer, &buyer["newest"][1])).collect()
}

fn posting_row(buyer: &Value, posting: &Value) -> Value {
    json!({ "buyer": buyer["name"], "second": posting["title"] })
}
