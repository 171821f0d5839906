//! The table: what a row has, and how it is read from YAML.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, bail};
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::host::Kind;

/// One behaviour that modules rely on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// Its name, unique, in kebab-case.
    pub(crate) id: String,
    /// What a module may rely on, in a sentence.
    #[serde(rename = "rule")]
    pub(crate) _rule: String,
    /// What runs it; by default every module that speaks the common language.
    #[serde(default = "Module::common")]
    pub(crate) modules: Vec<Module>,
    /// The plugin's configuration.
    #[serde(default)]
    pub(crate) script: String,
    /// The VM's configuration.
    pub(crate) vm_script: Option<String>,
    /// It runs in a VM of its own, where a host shares VMs: it traps, or looks at what starts once.
    #[serde(default)]
    pub(crate) alone: bool,
    /// The filter asks to see bodies while headers are paused (Envoy: `allow_on_headers_stop_iteration`).
    #[serde(default)]
    pub(crate) body_while_paused: bool,
    /// HTTP/2 towards both sides, as trailers and gRPC need.
    #[serde(default)]
    pub(crate) http2: bool,
    /// What the service answers, by path; anything else gets 200 and `hello`.
    #[serde(default)]
    pub(crate) service: BTreeMap<String, Answer>,
    /// Whether the host takes the configuration at all.
    #[serde(default = "yes")]
    pub(crate) starts: bool,
    #[serde(flatten)]
    pub(crate) expected: Expected,
    /// What Envoy does instead.
    pub(crate) envoy: Option<Difference>,
    /// What ORFA does instead.
    pub(crate) orfa: Option<Difference>,
}

/// What must come out.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Expected {
    /// The requests, one after another, each with its answer; one plain GET by default.
    pub(crate) exchange: Option<Vec<Exchange>>,
    /// Requests that must have reached the service.
    pub(crate) seen: Option<Vec<Seen>>,
    /// Paths of requests that must not have.
    pub(crate) unseen: Option<Vec<String>>,
    /// Lines that the module must log, in this order; others may stand between them. `*` stands for anything, and
    /// `[warn]` before a line for its level.
    pub(crate) log: Option<Vec<String>>,
    /// Lines that must not come.
    pub(crate) never: Option<Vec<String>>,
    /// What metrics the host must show.
    pub(crate) metrics: Option<BTreeMap<String, i64>>,
}

/// Where a host differs.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Difference {
    /// How, and who is right for what reason.
    pub(crate) why: String,
    /// Which modules see it; all by default.
    #[serde(default)]
    pub(crate) modules: Vec<Module>,
    /// It takes or refuses the configuration where the row says the opposite.
    pub(crate) starts: Option<bool>,
    #[serde(flatten)]
    pub(crate) expected: Expected,
}

/// A request and its answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Exchange {
    /// It is sent once the module has logged this.
    pub(crate) after: Option<String>,
    pub(crate) method: Option<String>,
    /// After the case's own prefix.
    pub(crate) path: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<Chunk>,
    pub(crate) trailers: BTreeMap<String, String>,
    pub(crate) answer: Expect,
}

/// A piece of a body.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Chunk {
    /// Some text.
    Text(String),
    /// Nothing goes on before the module has logged this.
    Until { until: String },
    /// So many bytes.
    Bytes { bytes: usize },
}

/// What the client must get.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expect {
    pub(crate) status: u16,
    /// A header that must be there with this value, or must not be there (`null`).
    pub(crate) headers: BTreeMap<String, Option<String>>,
    pub(crate) body: Option<String>,
    pub(crate) trailers: BTreeMap<String, String>,
    /// No whole answer: the connection or the stream ends before.
    pub(crate) broken: bool,
    /// No answer at all for two seconds.
    pub(crate) hangs: bool,
}

impl Default for Expect {
    fn default() -> Self {
        let (headers, trailers) = (BTreeMap::new(), BTreeMap::new());
        Self { status: 200, headers, body: None, trailers, broken: false, hangs: false }
    }
}

/// What the service answers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<Chunk>,
    pub(crate) trailers: BTreeMap<String, String>,
    /// The body of the request comes back as it comes in.
    pub(crate) echo: bool,
    /// It takes the request and never answers.
    pub(crate) silent: bool,
    /// It takes the request and ends the connection.
    pub(crate) gone: bool,
}

impl Default for Answer {
    fn default() -> Self {
        let (headers, trailers) = (BTreeMap::new(), BTreeMap::new());
        Self { status: 200, headers, body: vec![], trailers, echo: false, silent: false, gone: false }
    }
}

/// A request as the service must have seen it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) method: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Option<String>>,
    pub(crate) body: Option<String>,
    #[serde(default)]
    pub(crate) trailers: BTreeMap<String, String>,
}

/// The modules that there are.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Module {
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

impl Row {
    /// What a host is known to do instead, as far as this module sees it.
    pub(crate) fn difference(&self, host: Kind, module: Module) -> Option<&Difference> {
        let difference = match host {
            Kind::Envoy => self.envoy.as_ref()?,
            Kind::Orfa => self.orfa.as_ref()?,
        };
        (difference.modules.is_empty() || difference.modules.contains(&module)).then_some(difference)
    }
}

impl Module {
    fn common() -> Vec<Self> {
        vec![Self::Go, Self::AssemblyScript, Self::C021]
    }
}

impl fmt::Display for Module {
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

/// All rows of the files in a folder, in the order of the files' names.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Vec<Row>> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    let mut rows: Vec<Row> = Vec::new();
    for file in files {
        let read = read_file(&file).with_context(|| file.display().to_string())?;
        for row in read {
            if rows.iter().any(|other| other.id == row.id) {
                bail!("two rows are called {}", row.id);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

fn read_file(file: &Path) -> anyhow::Result<Vec<Row>> {
    let text = std::fs::read_to_string(file)?;
    let documents = Yaml::load_from_str(&text)?;
    let Some(Value::Array(rows)) = documents.first().map(value) else { bail!("not a list of rows") };
    let row = |row: Value| {
        let id = row["id"].as_str().unwrap_or("a row without an id").to_owned();
        serde_json::from_value(row).context(id)
    };
    rows.into_iter().map(row).collect()
}

/// YAML as JSON, which serde knows.
fn value(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Boolean(is)) => Value::Bool(*is),
        Yaml::Value(Scalar::Integer(number)) => Value::from(*number),
        Yaml::Value(Scalar::String(text)) => Value::from(text.as_ref()),
        Yaml::Value(Scalar::FloatingPoint(number)) => Value::from(number.into_inner()),
        Yaml::Sequence(items) => items.iter().map(value).collect(),
        Yaml::Mapping(fields) => {
            let field = |(name, field): (&Yaml<'_>, &Yaml<'_>)| {
                Some((name.as_str().map(str::to_owned)?, value(field)))
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
    fn every_row_can_be_read_and_expects_something() {
        let rows = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("rows")).expect("a table");
        assert!(rows.len() > 150);
        for row in &rows {
            let Expected { exchange, seen, unseen, log, never, metrics } = &row.expected;
            let lists =
                [seen.is_some(), unseen.is_some(), log.is_some(), never.is_some(), exchange.is_some()];
            assert!(!row.starts || metrics.is_some() || lists.contains(&true), "{} expects nothing", row.id);
        }
    }

    #[test]
    fn a_field_that_there_is_not_is_a_mistake() {
        let folder = tempfile::tempdir().expect("a folder");
        for row in ["- { id: a, rule: b, exchange: [{ answr: {} }] }", "- { id: a, rule: b, lgo: [] }"] {
            std::fs::write(folder.path().join("a.yaml"), row).expect("written");
            assert!(read(folder.path()).is_err(), "{row}");
        }
    }
}
