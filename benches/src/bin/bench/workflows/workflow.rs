//! The workflows, which all consist of a list and a call for some of its rows: those of the paper's table 4,
//! and two similar ones on the marketplace.

use http::Method;
use serde_json::Value;

use super::standins::ACTIVE_ACCOUNTS;

/// A workflow.
pub(super) struct BenchWorkflow {
    pub(super) name: &'static str,
    /// The path of the list, by N.
    pub(super) list: fn(usize) -> String,
    /// The key for the call of a row; `None` to skip the row.
    pub(super) key: fn(&Value) -> Option<String>,
    pub(super) method: Method,
    pub(super) call: fn(&str) -> String,
    pub(super) body: Option<&'static str>,
    /// The part of a response that belongs to the result, by the row's key.
    pub(super) result_part: fn(&str, &Value) -> Value,
    pub(super) document: GraphqlDocuments,
}

/// The list and a call in GraphQL.
type GraphqlDocuments = (fn(usize) -> String, fn(&str) -> String);

/// The workflows of Memos and Gitea.
pub(super) const PAPER_WORKFLOWS: [BenchWorkflow; 4] = [
    BenchWorkflow {
        name: "memos.r",
        list: |size| format!("/api/v1/users?limit={size}"),
        key: |row| Some(row["id"].to_string()),
        method: Method::GET,
        call: |id| format!("/api/v1/memos?creator={id}&limit=5"),
        body: None,
        result_part: |_, notes| notes[1]["uid"].clone(),
        document: (
            |size| format!("{{list:users(limit:{size}){{id}}}}"),
            |id| format!("memos(creator:{id},limit:5){{uid}}"),
        ),
    },
    BenchWorkflow {
        name: "memos.w",
        list: |size| format!("/api/v1/memos?creator=1&limit={size}"),
        key: |row| Some(row["id"].to_string()),
        method: Method::PATCH,
        call: |id| format!("/api/v1/memos/{id}"),
        body: Some(r#"{"visibility":"PRIVATE"}"#),
        result_part: |_, note| note["uid"].clone(),
        document: (
            |size| format!("{{list:memos(creator:1,limit:{size}){{id}}}}"),
            |id| format!("updateMemo(id:{id},changeInput:{{visibility:\"PRIVATE\"}}){{uid}}"),
        ),
    },
    BenchWorkflow {
        name: "gitea.r",
        list: |size| format!("/api/v1/repos/o/r/branches?limit={size}"),
        key: |row| row["name"].as_str().map(str::to_owned),
        method: Method::GET,
        call: |name| format!("/api/v1/repos/o/r/commits?sha={name}"),
        body: None,
        result_part: |_, commits| commits[1]["sha"].clone(),
        document: (
            |size| format!("{{list:branches(limit:{size}){{name}}}}"),
            |name| format!("commits(sha:\"{name}\"){{sha}}"),
        ),
    },
    BenchWorkflow {
        name: "gitea.w",
        list: |size| format!("/api/v1/admin/users?limit={}", size + ACTIVE_ACCOUNTS),
        key: |row| row["login"].as_str().filter(|login| login.starts_with("bot")).map(str::to_owned),
        method: Method::DELETE,
        call: |login| format!("/api/v1/admin/users/{login}"),
        body: None,
        result_part: |login, _| login.into(),
        document: (
            |size| format!("{{list:accounts(limit:{}){{login}}}}", size + ACTIVE_ACCOUNTS),
            |login| format!("deleteAccount(login:\"{login}\"){{deleted}}"),
        ),
    },
];

/// The workflows through the gateway, which has a route for each service. The reading one lists rows of one
/// service and calls another one.
pub(super) const MARKET_WORKFLOWS: [BenchWorkflow; 2] = [
    BenchWorkflow {
        name: "market.r",
        list: |size| format!("/profile/buyers?limit={size}"),
        key: |row| Some(row["id"].to_string()),
        method: Method::GET,
        call: |id| format!("/catalog/catalogs?buyer={id}&sort=-created&limit=2"),
        body: None,
        result_part: |_, postings| postings[1]["title"].clone(),
        document: (
            |size| format!("{{list:buyers(limit:{size}){{id}}}}"),
            |id| format!("catalogs(buyer:{id},sort:_created,limit:2){{title}}"),
        ),
    },
    BenchWorkflow {
        name: "market.w",
        list: |size| format!("/profile/users?limit={size}"),
        key: |row| Some(row["id"].to_string()),
        method: Method::POST,
        call: |id| format!("/profile/users/{id}/notices"),
        body: Some(r#"{"text":"Maintenance tonight"}"#),
        result_part: |_, notice| notice["user_id"].clone(),
        document: (
            |size| format!("{{list:users(limit:{size}){{id}}}}"),
            |id| format!("createNotice(id:{id},input:{{text:\"Maintenance tonight\"}}){{user_id}}"),
        ),
    },
];
