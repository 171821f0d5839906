//! ORFA: one route and one service per case, with the filter on the route.
//!
//! All cases share one listener and are distinguished by path. A module's line is a line in the gateway's log
//! with the filter's name, which is the case's id.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::process::Command;

use super::{DynHost, HostProcess, ListeningHost, StartingHost};
use crate::case::ConformanceCase;
use crate::host_kind::HostKind;
use crate::log::LoggedLine;

pub(crate) struct OrfaHost {
    pub(crate) binary: PathBuf,
    pub(crate) verbose: bool,
}

impl DynHost for OrfaHost {
    fn kind(&self) -> HostKind {
        HostKind::Orfa
    }

    fn start<'a>(&'a self, cases: &'a [Arc<ConformanceCase>]) -> StartingHost<'a> {
        Box::pin(async move {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("orfa.yaml");
            // JSON is YAML.
            std::fs::write(&file, serde_json::to_string_pretty(&config(cases))?)?;
            let mut command = Command::new(&self.binary);
            command.args(["serve", "--config"]).arg(&file);
            let mut process = HostProcess::start(&mut command, cases, self.verbose, parse_log_line)?;
            let admin = match process.wait_for_line(|line| listen_address(line, "admin listening")).await {
                Ok(admin) => admin,
                Err(said) => return Ok(Err(said)),
            };
            let listening = match process.wait_for_line(|line| listen_address(line, "listening")).await {
                Ok(listening) => listening,
                Err(said) => return Ok(Err(said)),
            };
            Ok(Ok(ListeningHost {
                addresses: cases.iter().map(|case| (case.id.clone(), listening)).collect(),
                metrics: (admin, "/metrics"),
                _process: process,
            }))
        })
    }
}

fn config(cases: &[Arc<ConformanceCase>]) -> Value {
    let services: Map<String, Value> = cases.iter().map(|case| (case.id.clone(), service(case))).collect();
    let routes: Vec<Value> = cases.iter().map(|case| route(case)).collect();
    // Load shedding is off, because the machine may be busy and overload is not tested here.
    let shed = json!({ "automatic": false });
    json!({ "listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "shed": shed, "services": services, "routes": routes })
}

fn service(case: &ConformanceCase) -> Value {
    let protocol = if case.row.http2 { "http2" } else { "http1" };
    json!({ "url": format!("http://{}", case.service.address), "protocol": protocol, "timeout": "4s" })
}

fn route(case: &ConformanceCase) -> Value {
    let mut filter = json!({ "wasm": case.wasm, "name": case.id, "config": case.plugin_config() });
    if case.row.alone {
        filter["vm_id"] = json!(case.id);
    }
    if let Some(script) = &case.row.vm_script {
        filter["vm_config"] = json!(case.fill_placeholders(script));
    }
    json!({
        "path": format!("/{}/*", case.id),
        "proxy": { "service": case.id, "keep_prefix": true },
        "filters": [filter],
    })
}

/// Returns the fields of a log line, at the top level or below `fields`.
fn log_fields(line: &str) -> Option<Value> {
    let mut line: Value = serde_json::from_str(line).ok()?;
    Some(match line.get_mut("fields") {
        Some(fields) => fields.take(),
        None => line,
    })
}

fn listen_address(line: &str, message: &str) -> Option<SocketAddr> {
    let fields = log_fields(line)?;
    (fields["message"] == message).then(|| fields["address"].as_str()?.parse().ok())?
}

/// Parses `{"level":"INFO","message":"text","filter":"ID"}`. The log has no level above `ERROR` and uses
/// `severity` for it.
fn parse_log_line(line: &str) -> Option<(String, LoggedLine)> {
    let fields = log_fields(line)?;
    let level = match fields["severity"].as_str() {
        Some(severity) => severity.to_owned(),
        None => serde_json::from_str::<Value>(line).ok()?["level"].as_str()?.to_lowercase(),
    };
    let id = fields["filter"].as_str()?.to_owned();
    Some((id, LoggedLine { level, text: fields["message"].as_str()?.to_owned() }))
}
