//! The questions, and how a REST client answers them: by the calls that a page would make, or by the bulk
//! calls that these services happen to have. What a query does stands in the programs that are sent,
//! `examples/marketplace/queries/` and `sdk/c/examples/`.

mod gateway;
mod notify;
mod orders;
mod second;
mod session;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::call::Call;
use crate::client::Client;
use crate::programs::build_file;

pub use gateway::{gateway, upstream_calls};
pub use session::Session;

/// What a program may use of the gateway's CPU.
pub const CPU_LIMIT_MS: u32 = 50;

/// As many calls as a client has under way at once in any job.
pub const MOST_AT_ONCE: usize = 100;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// An item of each child list: the paper's example.
    Second,
    /// A list, a condition, a write for each: the paper's figure 2.
    Notify,
    /// A join of three services: the fifth query of the marketplace's study.
    Orders,
}

impl Job {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Second, Self::Notify, Self::Orders];

    /// The name of its programs' files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Notify => "notify_admins",
            Self::Orders => "orders",
        }
    }

    /// What is asked.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Second => "The second newest posting of each of 8 buyers",
            Self::Notify => "A notice to each admin among 16 users",
            Self::Orders => "50 orders, each with its posting and its freelancer",
        }
    }

    /// What a program gets as its input.
    #[must_use]
    pub fn input(self) -> Value {
        match self {
            Self::Second => json!({ "n": 8 }),
            Self::Notify => json!({ "n": 16 }),
            Self::Orders => json!({ "limit": 50 }),
        }
    }

    /// The program in TypeScript, as its file has it.
    #[must_use]
    pub fn typescript(self) -> &'static str {
        macro_rules! query {
            ($name:literal) => {
                include_str!(concat!("../../examples/marketplace/queries/", $name))
            };
        }
        match self {
            Self::Second => query!("second.ts"),
            Self::Notify => query!("notify_admins.ts"),
            Self::Orders => query!("orders.ts"),
        }
    }

    /// The program in C.
    #[must_use]
    pub fn c_source(self) -> PathBuf {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/c/examples");
        examples.join(self.name()).with_extension("c")
    }

    /// What is asked of its script, where there is one: `examples/marketplace/scripts/`.
    #[must_use]
    pub fn script(self) -> Option<&'static str> {
        match self {
            Self::Orders => Some("/shop/orders?limit=50"),
            Self::Second | Self::Notify => None,
        }
    }

    /// What is asked of its aggregate, where there is one: `examples/marketplace/aggregates/`.
    #[must_use]
    pub fn aggregate(self) -> Option<&'static str> {
        match self {
            Self::Orders => Some("/market/orders?limit=50"),
            Self::Second | Self::Notify => None,
        }
    }

    /// What is asked by GraphQL, where that can be said in one request: `examples/marketplace/documents/`. A condition on what
    /// was read, and a write that depends on it, can't.
    #[must_use]
    pub fn graphql(self) -> Option<Value> {
        macro_rules! document {
            ($name:literal) => {
                include_str!(concat!("../../examples/marketplace/documents/", $name))
            };
        }
        match self {
            Self::Second => Some(json!({ "query": document!("second.graphql"), "variables": { "n": 8 } })),
            Self::Orders => Some(json!({ "query": document!("q5.graphql"), "variables": { "limit": 50 } })),
            Self::Notify => None,
        }
    }

    /// What the client makes of the data of that.
    #[must_use]
    pub fn of_graphql(self, mut data: Value) -> Value {
        match self {
            Self::Second => second::of_graphql(&data),
            Self::Orders => data["orders"].take(),
            Self::Notify => data,
        }
    }

    /// Answers with a call for each item.
    ///
    /// # Errors
    /// If a call fails.
    pub async fn calls(self, session: &mut Session<'_>) -> Result<Value> {
        match self {
            Self::Second => second::calls(session).await,
            Self::Notify => notify::calls(session).await,
            Self::Orders => orders::calls(session).await,
        }
    }

    /// Answers with the fewest calls that the services allow.
    ///
    /// # Errors
    /// If a call fails.
    pub async fn bulk(self, session: &mut Session<'_>) -> Result<Value> {
        match self {
            Self::Second => second::bulk(session).await,
            Self::Notify => notify::bulk(session).await,
            Self::Orders => orders::bulk(session).await,
        }
    }

    /// Checks what so many runs have left behind at the services.
    ///
    /// # Errors
    /// If it is not what it should be.
    pub async fn check_effects(self, client: &Client, answer: &Value, runs: usize) -> Result<()> {
        match self {
            Self::Notify => notify::check(client, answer, runs).await,
            Self::Second | Self::Orders => Ok(()),
        }
    }
}

/// Every job's program in C, built as its author would, by the job's name.
///
/// # Errors
/// Those of `orfa query build`.
pub fn modules(orfa: &Path) -> Result<BTreeMap<&'static str, Bytes>> {
    let folder = tempfile::tempdir()?;
    let module = |job: Job| {
        let module = build_file(orfa, &job.c_source(), folder.path())?;
        Ok((job.name(), std::fs::read(module)?.into()))
    };
    Job::ALL.into_iter().map(module).collect()
}

/// The elements of an array; none where it is something else, which the comparison will tell.
fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The ids of another list's rows, each once, as a URL's query has them.
fn ids(rows: &Value, field: &str) -> String {
    let ids: Vec<String> = distinct(rows, field).iter().map(Value::to_string).collect();
    ids.join(",")
}

/// What stands in a field of the rows, each once.
fn distinct(rows: &Value, field: &str) -> Vec<Value> {
    let mut seen = Vec::new();
    for row in items(rows) {
        if !seen.contains(&row[field]) {
            seen.push(row[field].clone());
        }
    }
    seen
}
