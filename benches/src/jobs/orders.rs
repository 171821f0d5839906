//! 50 orders, each with its posting and its freelancer.

use anyhow::Result;
use serde_json::Value;

use super::{PreparedCall, RestSession, as_items, distinct_values, join_ids};

const ORDERS: &str = "/order/orders?limit=50";

/// Reads the orders, then each posting and each freelancer in them once.
pub(super) async fn run_calls(session: &mut RestSession<'_>) -> Result<Value> {
    let orders = session.call(PreparedCall::get(ORDERS)).await?;
    let call = |path: &'static str| move |id: &Value| PreparedCall::get(format!("{path}/{id}"));
    let (postings, people) =
        (distinct_values(&orders, "catalog_id"), distinct_values(&orders, "freelancer_id"));
    let calls = postings.iter().map(call("/catalog/catalogs"));
    let calls = calls.chain(people.iter().map(call("/profile/freelancers")));
    let mut postings_and_people = session.call_all(calls.collect()).await?;
    let people = postings_and_people.split_off(postings.len());
    Ok(join_orders(&orders, &postings_and_people, &people))
}

/// Reads the orders, then all postings and freelancers in them with two calls.
pub(super) async fn run_bulk(session: &mut RestSession<'_>) -> Result<Value> {
    let orders = session.call(PreparedCall::get(ORDERS)).await?;
    let postings = PreparedCall::get(format!("/catalog/catalogs?ids={}", join_ids(&orders, "catalog_id")));
    let people =
        PreparedCall::get(format!("/profile/freelancers?ids={}", join_ids(&orders, "freelancer_id")));
    let (postings, people) = session.call_both(postings, people).await?;
    Ok(join_orders(&orders, as_items(&postings), as_items(&people)))
}

fn join_orders(orders: &Value, postings: &[Value], people: &[Value]) -> Value {
    let row = |order: &Value| {
        let mut row = order.clone();
        row["catalog"] = pick_fields(postings, &order["catalog_id"], &["id", "title", "price"]);
        row["freelancer"] = pick_fields(people, &order["freelancer_id"], &["id", "name"]);
        row
    };
    as_items(orders).iter().map(row).collect()
}

/// Selected fields of the row with this id, or null.
fn pick_fields(rows: &[Value], id: &Value, fields: &[&str]) -> Value {
    let row = rows.iter().find(|row| row["id"] == *id);
    row.map_or(Value::Null, |row| fields.iter().map(|field| (*field, row[*field].clone())).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_rows_are_null() {
        let orders = json!([{ "id": 1, "catalog_id": 2, "freelancer_id": 3 }]);
        let postings = [json!({ "id": 2, "title": "A", "price": 4, "open": true })];
        let joined = join_orders(&orders, &postings, &[]);
        assert_eq!(joined[0]["catalog"], json!({ "id": 2, "title": "A", "price": 4 }));
        assert_eq!(joined[0]["freelancer"], Value::Null);
    }
}
