//! Stand-ins for Memos and Gitea, with made-up responses to the calls of the workflows. A branch's commits
//! are 30 of about 3.5 KB each, with trees, signatures, statistics and files, which is Gitea's default
//! response and the long JSON of the paper's slowest workflow.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use benches::upstream::PlayedTexts;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::CELLS;
use crate::service::{BenchService, text_response};

/// The number of accounts that are not deleted.
pub(super) const ACTIVE_ACCOUNTS: usize = 4;
const NOTES: usize = 5;
const COMMITS: usize = 30;

/// Starts both as one in-process service.
pub(super) fn start() -> Result<BenchService> {
    let mut played = PlayedTexts::new();
    for (_, size) in CELLS {
        played.extend(read_responses(size));
    }
    let played = Arc::new(played);
    BenchService::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), move |request| {
        let played = Arc::clone(&played);
        async move {
            let (head, body) = request.into_parts();
            // The body has to be read before the response is sent.
            let _ = body.collect().await;
            let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
            let answered = match head.method {
                Method::GET => played.get(path).cloned(),
                Method::PATCH => {
                    head.uri.path().rsplit('/').next().and_then(|id| id.parse().ok()).map(changed_note)
                }
                Method::DELETE => Some(json!({ "deleted": true }).to_string()),
                _ => None,
            };
            let is_there = answered.is_some();
            let mut answer = text_response(answered.unwrap_or_default());
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            if !is_there {
                *answer.status_mut() = StatusCode::NOT_FOUND;
            }
            answer
        }
    })
}

/// The responses to all GET requests of the workflows for this size.
pub(super) fn read_responses(size: usize) -> PlayedTexts {
    let mut played = PlayedTexts::new();
    let mut play = |path: String, value: Value| played.insert(path, value.to_string());
    play(format!("/api/v1/users?limit={size}"), (1..=size).map(user).collect());
    for creator in 1..=size {
        play(
            format!("/api/v1/memos?creator={creator}&limit={NOTES}"),
            (0..NOTES).map(|place| note(creator * 10 + place)).collect(),
        );
    }
    play(format!("/api/v1/memos?creator=1&limit={size}"), (0..size).map(|place| note(10 + place)).collect());
    play(format!("/api/v1/repos/o/r/branches?limit={size}"), (1..=size).map(branch).collect());
    for number in 1..=size {
        let commits = (0..COMMITS).map(|place| commit(number * 100 + place)).collect();
        play(format!("/api/v1/repos/o/r/commits?sha=topic-{number}"), commits);
    }
    let accounts =
        (0..size + ACTIVE_ACCOUNTS).map(|place| account(place, place >= ACTIVE_ACCOUNTS)).collect();
    play(format!("/api/v1/admin/users?limit={}", size + ACTIVE_ACCOUNTS), accounts);
    played
}

fn user(id: usize) -> Value {
    json!({
        "id": id, "name": format!("users/{id}"), "role": "USER", "username": format!("user{id}"),
        "email": format!("user{id}@example.org"), "nickname": format!("User {id}"), "avatarUrl": "", "description": "",
        "rowStatus": "ACTIVE", "createTime": "2024-05-01T10:00:00Z", "updateTime": "2024-06-01T10:00:00Z",
    })
}

fn note(id: usize) -> Value {
    let content =
        format!("Note {id}: what was said, by whom, and what is to be done until next week. #work #todo")
            .repeat(3);
    json!({
        "name": format!("memos/{id}"), "id": id, "uid": format!("uid{id:06}"), "creator": "users/1", "rowStatus": "ACTIVE",
        "createTime": "2024-05-01T10:00:00Z", "updateTime": "2024-06-01T10:00:00Z", "displayTime": "2024-05-01T10:00:00Z",
        "content": content, "visibility": "PUBLIC", "tags": ["work", "todo"], "pinned": false, "resources": [],
        "relations": [], "reactions": [],
    })
}

/// The response to a change of a note.
fn changed_note(id: usize) -> String {
    let mut note = note(id);
    note["visibility"] = "PRIVATE".into();
    note.to_string()
}

fn commit_hash(number: usize) -> String {
    format!("{:040x}", (number as u128 + 1) * 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced)
}

fn person(number: usize) -> Value {
    json!({
        "id": number % 7, "login": format!("dev{}", number % 7), "full_name": "Some Body",
        "email": "dev@example.org", "avatar_url": "https://git.example.org/avatars/0123456789abcdef0123456789abcdef",
        "language": "", "is_admin": false, "last_login": "0001-01-01T00:00:00Z", "created": "2020-01-01T00:00:00Z",
        "restricted": false, "active": false, "prohibit_login": false, "location": "", "website": "", "description": "",
        "visibility": "public", "followers_count": 0, "following_count": 0, "starred_repos_count": 0, "username": "dev",
    })
}

fn branch(number: usize) -> Value {
    let author = json!({ "name": "Some Body", "email": "dev@example.org", "username": "dev" });
    json!({
        "name": format!("topic-{number}"),
        "commit": {
            "id": commit_hash(number), "message": "Mend what was broken\n", "url": "https://git.example.org/o/r/commit/0",
            "author": author, "committer": author, "verification": verification(), "timestamp": "2024-05-01T10:00:00Z",
            "added": null, "removed": null, "modified": null,
        },
        "protected": false, "required_approvals": 0, "enable_status_check": false, "status_check_contexts": [],
        "user_can_push": true, "user_can_merge": true, "effective_branch_protection_name": "",
    })
}

fn verification() -> Value {
    let signature = "-----BEGIN PGP SIGNATURE-----\n\n".to_owned()
        + &"iQIzBAABCAAdFiEEAbCdEfGhIjKlMnOpQrStUvWxYz0FAmYw\n".repeat(12);
    json!({ "verified": true, "reason": "dev / 0123456789ABCDEF", "signature": signature, "signer": null, "payload": "tree 0\n" })
}

fn commit(number: usize) -> Value {
    let url = format!("https://git.example.org/api/v1/repos/o/r/git/commits/{}", commit_hash(number));
    let signer = json!({ "name": "Some Body", "email": "dev@example.org", "date": "2024-05-01T10:00:00Z" });
    let files: Vec<Value> = (0..12).map(|file| json!({ "filename": format!("modules/part{file}/file_{number}.go"), "status": "modified" })).collect();
    json!({
        "url": url, "sha": commit_hash(number), "created": "2024-05-01T10:00:00Z",
        "html_url": format!("https://git.example.org/o/r/commit/{}", commit_hash(number)),
        "commit": {
            "url": url, "author": signer, "committer": signer,
            "message": format!("Mend number {number}\n\nWhat was wrong, since when, and why it is right now, in some words.\n"),
            "tree": { "url": url, "sha": commit_hash(number + 1), "created": "2024-05-01T10:00:00Z" },
            "verification": verification(),
        },
        "author": person(number), "committer": person(number + 1),
        "parents": [{ "url": url, "sha": commit_hash(number + 2), "created": "0001-01-01T00:00:00Z" }],
        "files": files, "stats": { "total": 120, "additions": 80, "deletions": 40 },
    })
}

fn account(place: usize, is_bot: bool) -> Value {
    let login = if is_bot { format!("bot{place:03}") } else { format!("person{place:03}") };
    let mut account = person(place);
    account["login"] = login.into();
    account
}
