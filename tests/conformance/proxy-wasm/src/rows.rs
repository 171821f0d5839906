//! The table of rows, and its parser for YAML.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, bail};
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::host_kind::HostKind;

/// One behaviour that modules rely on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConformanceRow {
    /// The unique name of the row, in kebab-case.
    pub(crate) id: String,
    /// The behaviour that modules may rely on, in a sentence.
    #[serde(rename = "rule")]
    pub(crate) _rule: String,
    /// The modules that run the row; by default every module that supports the common script language.
    #[serde(default = "RowModule::common")]
    pub(crate) modules: Vec<RowModule>,
    /// The plugin's configuration.
    #[serde(default)]
    pub(crate) script: String,
    /// The VM's configuration.
    pub(crate) vm_script: Option<String>,
    /// Whether the row needs its own VM where a host shares VMs: because it traps, or depends on one-time
    /// events.
    #[serde(default)]
    pub(crate) alone: bool,
    /// Whether the filter receives bodies while headers are paused (Envoy:
    /// `allow_on_headers_stop_iteration`).
    #[serde(default)]
    pub(crate) body_while_paused: bool,
    /// Whether both sides use HTTP/2, as trailers and gRPC require.
    #[serde(default)]
    pub(crate) http2: bool,
    /// The service's answers by path; any other path gets 200 and `hello`.
    #[serde(default)]
    pub(crate) service: BTreeMap<String, ServiceAnswer>,
    /// Whether the host has to accept the configuration.
    #[serde(default = "yes")]
    pub(crate) starts: bool,
    #[serde(flatten)]
    pub(crate) expected: ExpectedResults,
    /// Envoy's known difference.
    pub(crate) envoy: Option<KnownDifference>,
    /// ORFA's known difference.
    pub(crate) orfa: Option<KnownDifference>,
}

/// The expected results.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ExpectedResults {
    /// The requests, one after another, each with its answer; by default one plain GET.
    pub(crate) exchange: Option<Vec<RowExchange>>,
    /// Requests that must have reached the service.
    pub(crate) seen: Option<Vec<ExpectedRequest>>,
    /// Paths of requests that must not reach the service.
    pub(crate) unseen: Option<Vec<String>>,
    /// Lines that the module must log in this order, with other lines allowed in between. `*` matches any
    /// text, and `[warn]` before a line requires that level.
    pub(crate) log: Option<Vec<String>>,
    /// Lines that must not be logged.
    pub(crate) never: Option<Vec<String>>,
    /// Metrics that the host must show.
    pub(crate) metrics: Option<BTreeMap<String, i64>>,
}

/// A known difference of a host.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct KnownDifference {
    /// A description of the difference, and the reason why one of the two is right.
    pub(crate) why: String,
    /// The modules with this difference; by default all.
    #[serde(default)]
    pub(crate) modules: Vec<RowModule>,
    /// Whether the host accepts the configuration, if that differs from the row.
    pub(crate) starts: Option<bool>,
    #[serde(flatten)]
    pub(crate) expected: ExpectedResults,
}

/// A request and its answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RowExchange {
    /// The log line after which the request is sent.
    pub(crate) after: Option<String>,
    pub(crate) method: Option<String>,
    /// The path after the case's own prefix.
    pub(crate) path: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<RowBodyChunk>,
    pub(crate) trailers: BTreeMap<String, String>,
    pub(crate) answer: ExpectedAnswer,
}

/// A chunk of a body.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum RowBodyChunk {
    /// A text.
    Text(String),
    /// Waits until the module has logged this line.
    Until { until: String },
    /// This number of bytes.
    Bytes { bytes: usize },
}

/// The answer that the client must receive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExpectedAnswer {
    pub(crate) status: u16,
    /// Headers that must have a value, or must be absent (`null`).
    pub(crate) headers: BTreeMap<String, Option<String>>,
    pub(crate) body: Option<String>,
    pub(crate) trailers: BTreeMap<String, String>,
    /// Whether the connection or the stream must end before the answer is complete.
    pub(crate) broken: bool,
    /// Whether there must be no answer for two seconds.
    pub(crate) hangs: bool,
}

impl Default for ExpectedAnswer {
    fn default() -> Self {
        let (headers, trailers) = (BTreeMap::new(), BTreeMap::new());
        Self { status: 200, headers, body: None, trailers, broken: false, hangs: false }
    }
}

/// An answer of the service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServiceAnswer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<RowBodyChunk>,
    pub(crate) trailers: BTreeMap<String, String>,
    /// Whether the request's body is echoed as it arrives.
    pub(crate) echo: bool,
    /// Whether the service accepts the request and never answers.
    pub(crate) silent: bool,
    /// Whether the service accepts the request and closes the connection.
    pub(crate) gone: bool,
}

impl Default for ServiceAnswer {
    fn default() -> Self {
        let (headers, trailers) = (BTreeMap::new(), BTreeMap::new());
        Self { status: 200, headers, body: vec![], trailers, echo: false, silent: false, gone: false }
    }
}

/// A request that the service must have received.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedRequest {
    pub(crate) path: String,
    pub(crate) method: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Option<String>>,
    pub(crate) body: Option<String>,
    #[serde(default)]
    pub(crate) trailers: BTreeMap<String, String>,
}

/// The modules.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowModule {
    #[serde(rename = "go")]
    Go,
    #[serde(rename = "assemblyscript")]
    AssemblyScript,
    #[serde(rename = "c-0.1.0")]
    C010,
    #[serde(rename = "c-0.2.0")]
    C020,
    #[serde(rename = "c-0.2.1")]
    C021,
    #[serde(rename = "bare")]
    Bare,
    #[serde(rename = "fault-injection")]
    FaultInjection,
    #[serde(rename = "new-go")]
    NewGo,
    #[serde(rename = "new-assemblyscript")]
    NewAssemblyScript,
}

impl ConformanceRow {
    /// Returns the known difference of a host, if it applies to this module.
    pub(crate) fn difference(&self, host: HostKind, module: RowModule) -> Option<&KnownDifference> {
        let difference = match host {
            HostKind::Envoy => self.envoy.as_ref()?,
            HostKind::Orfa => self.orfa.as_ref()?,
        };
        (difference.modules.is_empty() || difference.modules.contains(&module)).then_some(difference)
    }
}

impl RowModule {
    fn common() -> Vec<Self> {
        vec![Self::Go, Self::AssemblyScript, Self::C021]
    }
}

impl fmt::Display for RowModule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Go => "go",
            Self::AssemblyScript => "assemblyscript",
            Self::C010 => "c-0.1.0",
            Self::C020 => "c-0.2.0",
            Self::C021 => "c-0.2.1",
            Self::Bare => "bare",
            Self::FaultInjection => "fault-injection",
            Self::NewGo => "new-go",
            Self::NewAssemblyScript => "new-assemblyscript",
        })
    }
}

fn yes() -> bool {
    true
}

/// Reads all rows of the files in a folder, in the order of the files' names.
pub(crate) fn read_rows(folder: &Path) -> anyhow::Result<Vec<ConformanceRow>> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    let mut rows: Vec<ConformanceRow> = Vec::new();
    for file in files {
        let read = read_file(&file).with_context(|| file.display().to_string())?;
        for row in read {
            if rows.iter().any(|other| other.id == row.id) {
                bail!("two rows have the id {}", row.id);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

fn read_file(file: &Path) -> anyhow::Result<Vec<ConformanceRow>> {
    let text = std::fs::read_to_string(file)?;
    let documents = Yaml::load_from_str(&text)?;
    let Some(Value::Array(rows)) = documents.first().map(yaml_to_json) else { bail!("not a list of rows") };
    let row = |row: Value| {
        let id = row["id"].as_str().unwrap_or("a row without an id").to_owned();
        serde_json::from_value(row).context(id)
    };
    rows.into_iter().map(row).collect()
}

/// Converts YAML to JSON, which serde can read.
fn yaml_to_json(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Boolean(is)) => Value::Bool(*is),
        Yaml::Value(Scalar::Integer(number)) => Value::from(*number),
        Yaml::Value(Scalar::String(text)) => Value::from(text.as_ref()),
        Yaml::Value(Scalar::FloatingPoint(number)) => Value::from(number.into_inner()),
        Yaml::Sequence(items) => items.iter().map(yaml_to_json).collect(),
        Yaml::Mapping(fields) => {
            let field = |(name, field): (&Yaml<'_>, &Yaml<'_>)| {
                Some((name.as_str().map(str::to_owned)?, yaml_to_json(field)))
            };
            Value::Object(fields.iter().filter_map(field).collect::<Map<_, _>>())
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_valid_and_expects_something() {
        let rows = read_rows(&Path::new(env!("CARGO_MANIFEST_DIR")).join("rows")).expect("a table");
        assert!(rows.len() > 150);
        for row in &rows {
            let ExpectedResults { exchange, seen, unseen, log, never, metrics } = &row.expected;
            let lists =
                [seen.is_some(), unseen.is_some(), log.is_some(), never.is_some(), exchange.is_some()];
            assert!(!row.starts || metrics.is_some() || lists.contains(&true), "{} expects nothing", row.id);
        }
    }

    #[test]
    fn rejects_unknown_fields() {
        let folder = tempfile::tempdir().expect("a folder");
        for row in ["- { id: a, rule: b, exchange: [{ answr: {} }] }", "- { id: a, rule: b, lgo: [] }"] {
            std::fs::write(folder.path().join("a.yaml"), row).expect("written");
            assert!(read_rows(folder.path()).is_err(), "{row}");
        }
    }
}
