//! The response to a GraphQL query for the history of a repository, in GitHub's format.

use serde_json::{Value, json};

/// A history with this number of commits, by the authors in turn.
pub(super) fn history(nodes: usize, authors: usize) -> Value {
    let edges: Vec<Value> = (0..nodes).map(|node| json!({ "node": commit(node, node % authors) })).collect();
    let history = json!({ "edges": edges });
    json!({ "data": { "repository": {
        "__typename": "Repository",
        "id": "MDEwOlJlcG9zaXRvcnkxMzM3",
        "name": "graphql-proxy",
        "defaultBranchRef": { "target": { "history": history } },
    }}})
}

fn commit(node: usize, author: usize) -> Value {
    let word = ["parser", "cache", "router", "style"].get(node % 4).copied().unwrap_or_default();
    json!({
        "__typename": "Commit",
        "abbreviatedOid": format!("{:07x}", (node + 1) * 2_654_435 % 0xfff_ffff),
        "message": format!("Fix the {word} ({node})"),
        "author": { "__typename": "GitActor", "user": user(author) },
    })
}

fn user(author: usize) -> Value {
    json!({
        "__typename": "User",
        "id": format!("MDQ6VXNlcjM2MjE{author:04}"),
        "login": format!("somebody{author}"),
        "name": "Some Body",
        "email": "",
        "bio": "Student and Software Engineer\r\n",
        "company": null,
        "location": "Yogyakarta, Indonesia",
        "avatarUrl": format!("https://avatars.githubusercontent.com/u/3621{author:04}?v=4"),
        "url": format!("https://github.com/somebody{author}"),
        "hasSponsorsListing": false,
        "isBountyHunter": false,
        "isCampusExpert": false,
        "isDeveloperProgramMember": true,
        "isEmployee": false,
        "isHireable": false,
        "createdAt": "2018-02-13T07:33:41Z",
        "status": {
            "__typename": "UserStatus",
            "id": format!("MDEwOlVzZXJTdGF0dXMyMzAzMjE{author:04}"),
            "emoji": ":house:",
            "message": "Working from home",
            "indicatesLimitedAvailability": false,
            "organization": null,
        },
    })
}
