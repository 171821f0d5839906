//! The docs as their readers use them: configs and manifests (`configs.rs`), and the pages whose commands and
//! queries are run (`debugging.rs`, `graphql.rs`, `script.rs`).

mod configs;
mod debugging;
mod graphql;
mod script;
