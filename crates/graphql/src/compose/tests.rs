//! What composing has to keep, by small schemas.

use std::sync::Arc;

use super::{Part, compose};

fn both(parts: &[(&str, &str)]) -> Result<String, String> {
    let names: Vec<Arc<str>> = parts.iter().map(|(name, _)| Arc::from(*name)).collect();
    let parts: Vec<Part<'_>> = names.iter().zip(parts).map(|(name, (_, sdl))| Part { name, sdl }).collect();
    compose(&parts)
        .map(|supergraph| supergraph.sdl)
        .map_err(|errors| errors.iter().map(|error| format!("{error}\n")).collect())
}

#[test]
fn smoke() {
    let fed = "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.3\", import: [\"@key\", \"@shareable\"])\n";
    let out = both(&[
        (
            "profile",
            &format!(
                "{fed} type Query {{ buyers: [Buyer!]! }} \"A buyer.\" type Buyer @key(fields: \"id\") {{ id: ID! name(a: Int = 3): String @deprecated }}"
            ),
        ),
        (
            "catalog",
            &format!(
                "{fed} type Query {{ catalogs(first: Int): [Catalog!] }} type Catalog {{ id: ID! }} type Buyer @key(fields: \"id\") {{ id: ID! catalogs: [Catalog!]! }}"
            ),
        ),
    ]);
    println!("{}", out.unwrap_or_else(|e| e));
}
