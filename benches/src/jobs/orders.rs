//! 50 orders, each with its posting and its freelancer.

use anyhow::Result;
use serde_json::Value;

use super::{PreparedCall, RestSession, distinct, ids, items};

const ORDERS: &str = "/order/orders?limit=50";

/// Reads the orders, then each posting and each freelancer in them once.
pub(super) async fn calls(session: &mut RestSession<'_>) -> Result<Value> {
    let orders = session.one(PreparedCall::get(ORDERS)).await?;
    let call = |path: &'static str| move |id: &Value| PreparedCall::get(format!("{path}/{id}"));
    let (postings, people) = (distinct(&orders, "catalog_id"), distinct(&orders, "freelancer_id"));
    let calls = postings.iter().map(call("/catalog/catalogs"));
    let calls = calls.chain(people.iter().map(call("/profile/freelancers")));
    let mut postings_and_people = session.all(calls.collect()).await?;
    let people = postings_and_people.split_off(postings.len());
    Ok(join(&orders, &postings_and_people, &people))
}

/// Reads the orders, then all postings and freelancers in them with two calls.
pub(super) async fn bulk(session: &mut RestSession<'_>) -> Result<Value> {
    let orders = session.one(PreparedCall::get(ORDERS)).await?;
    let postings = PreparedCall::get(format!("/catalog/catalogs?ids={}", ids(&orders, "catalog_id")));
    let people = PreparedCall::get(format!("/profile/freelancers?ids={}", ids(&orders, "freelancer_id")));
    let (postings, people) = session.both(postings, people).await?;
    Ok(join(&orders, items(&postings), items(&people)))
}

fn join(orders: &Value, postings: &[Value], people: &[Value]) -> Value {
    let row = |order: &Value| {
        let mut row = order.clone();
        row["catalog"] = pick(postings, &order["catalog_id"], &["id", "title", "price"]);
        row["freelancer"] = pick(people, &order["freelancer_id"], &["id", "name"]);
        row
    };
    items(orders).iter().map(row).collect()
}

/// Selected fields of the row with this id, or null.
fn pick(rows: &[Value], id: &Value, fields: &[&str]) -> Value {
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
        let joined = join(&orders, &postings, &[]);
        assert_eq!(joined[0]["catalog"], json!({ "id": 2, "title": "A", "price": 4 }));
        assert_eq!(joined[0]["freelancer"], Value::Null);
    }
}
