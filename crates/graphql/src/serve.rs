//! GraphQL over HTTP: from a request to what is asked, and from what came of it to a response.
//!
//! `ask.rs` reads (GET and POST, by the GraphQL-over-HTTP specification), `persisted.rs` and `listed.rs` have documents that
//! are named and not sent, `media.rs` says in which media type the answer leaves, `answer.rs` makes it. `problem.rs` and
//! `refusal.rs` hold all that can go wrong before a document is looked at; `page.rs` is GraphiQL.

mod answer;
mod ask;
mod listed;
mod media;
mod page;
mod persisted;
mod problem;
mod refusal;

pub(crate) use answer::{errors, not_kept, response};
pub(crate) use ask::{Asked, Hash, Unread};
pub use listed::DocumentFile;
pub(crate) use listed::{Listed, hash};
pub(crate) use media::{Media, asks_for_page};
pub(crate) use page::page;
pub(crate) use persisted::{Owner, Persisted};
pub(crate) use problem::{HttpError, METHODS};
pub(crate) use refusal::{Refusal, status_of_document};
