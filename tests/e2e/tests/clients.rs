//! Clients of a gateway: the JavaScript client library in Node (`library.rs`) and on pages in a real browser
//! (`cross_origin.rs`), and GraphiQL (`graphiql.rs`). `page.rs` opens pages in Chromium.

mod cross_origin;
mod graphiql;
mod library;
mod page;
