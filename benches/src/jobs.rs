//! The questions of the demo, and the way a REST client answers them: with the calls that a page would make,
//! or with bulk calls where the services have them. The query programs are in `examples/marketplace/queries/`
//! and `sdk/c/examples/`.

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

use crate::call::PreparedCall;
use crate::client::BenchClient;
use crate::programs::build_program_file;

pub use gateway::{gateway_config, upstream_calls};
pub use session::RestSession;

/// The CPU limit of a program at the gateway.
pub const CPU_LIMIT_MS: u32 = 50;

/// The maximum number of concurrent calls of a client in any job.
pub const MAX_CONCURRENCY: usize = 100;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchJob {
    /// An item of each child list: the paper's example.
    Second,
    /// A list, a condition, a write for each match: the paper's figure 2.
    Notify,
    /// A join of three services: the fifth query of the marketplace's study.
    Orders,
}

impl BenchJob {
    /// All jobs.
    pub const ALL: [Self; 3] = [Self::Second, Self::Notify, Self::Orders];

    /// The name of the program files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Notify => "notify_admins",
            Self::Orders => "orders",
        }
    }

    /// The question in words.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Second => "The second newest posting of each of 8 buyers",
            Self::Notify => "A notice to each admin among 16 users",
            Self::Orders => "50 orders, each with its posting and its freelancer",
        }
    }

    /// The input of a program.
    #[must_use]
    pub fn input(self) -> Value {
        match self {
            Self::Second => json!({ "n": 8 }),
            Self::Notify => json!({ "n": 16 }),
            Self::Orders => json!({ "limit": 50 }),
        }
    }

    /// The program in TypeScript.
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

    /// The path of its script, if it has one: `examples/marketplace/scripts/`.
    #[must_use]
    pub fn script(self) -> Option<&'static str> {
        match self {
            Self::Orders => Some("/shop/orders?limit=50"),
            Self::Second | Self::Notify => None,
        }
    }

    /// The path of its aggregate, if it has one: `examples/marketplace/aggregates/`.
    #[must_use]
    pub fn aggregate(self) -> Option<&'static str> {
        match self {
            Self::Orders => Some("/market/orders?limit=50"),
            Self::Second | Self::Notify => None,
        }
    }

    /// The GraphQL request, if one request can express it: `examples/marketplace/documents/`. GraphQL can't
    /// express a condition on data that was read, or a write that depends on it.
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

    /// Converts the data of a GraphQL response into the answer.
    #[must_use]
    pub fn answer_from_graphql(self, mut data: Value) -> Value {
        match self {
            Self::Second => second::answer_from_graphql(&data),
            Self::Orders => data["orders"].take(),
            Self::Notify => data,
        }
    }

    /// Answers with one call per item.
    ///
    /// # Errors
    /// Fails if a call fails.
    pub async fn run_calls(self, session: &mut RestSession<'_>) -> Result<Value> {
        match self {
            Self::Second => second::run_calls(session).await,
            Self::Notify => notify::run_calls(session).await,
            Self::Orders => orders::run_calls(session).await,
        }
    }

    /// Answers with the fewest calls that the services allow.
    ///
    /// # Errors
    /// Fails if a call fails.
    pub async fn run_bulk(self, session: &mut RestSession<'_>) -> Result<Value> {
        match self {
            Self::Second => second::run_bulk(session).await,
            Self::Notify => notify::run_bulk(session).await,
            Self::Orders => orders::run_bulk(session).await,
        }
    }

    /// Checks the effects of this many runs at the services.
    ///
    /// # Errors
    /// Fails if they differ from the expected effects.
    pub async fn check_effects(self, client: &BenchClient, answer: &Value, runs: usize) -> Result<()> {
        match self {
            Self::Notify => notify::check_notices(client, answer, runs).await,
            Self::Second | Self::Orders => Ok(()),
        }
    }
}

/// Builds the C program of every job as its author would, by job name.
///
/// # Errors
/// Fails as `orfa query build` does.
pub fn build_modules(orfa: &Path) -> Result<BTreeMap<&'static str, Bytes>> {
    let folder = tempfile::tempdir()?;
    let module = |job: BenchJob| {
        let module = build_program_file(orfa, &job.c_source(), folder.path())?;
        Ok((job.name(), std::fs::read(module)?.into()))
    };
    BenchJob::ALL.into_iter().map(module).collect()
}

/// The elements of an array. Any other value gives none, which the comparison of answers then reports.
fn as_items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The distinct ids in a field of the rows, formatted for a URL's query.
fn join_ids(rows: &Value, field: &str) -> String {
    let ids: Vec<String> = distinct_values(rows, field).iter().map(Value::to_string).collect();
    ids.join(",")
}

/// The distinct values in a field of the rows.
fn distinct_values(rows: &Value, field: &str) -> Vec<Value> {
    let mut values = Vec::new();
    for row in as_items(rows) {
        if !values.contains(&row[field]) {
            values.push(row[field].clone());
        }
    }
    values
}
