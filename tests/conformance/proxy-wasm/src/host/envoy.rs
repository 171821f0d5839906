//! Envoy: one listener and one cluster per case, all in one process with one worker.
//!
//! Filters of the same module share a VM, as Envoy recommends; a case that is `alone` has its own. Listeners
//! get any free port, which the admin interface reports.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{DynHost, HostProcess, ListeningHost, StartingHost, fetch_body};
use crate::case::ConformanceCase;
use crate::host_kind::HostKind;
use crate::log::LoggedLine;
use crate::rows::RowModule;

pub(crate) struct EnvoyHost {
    pub(crate) binary: PathBuf,
    pub(crate) verbose: bool,
}

impl DynHost for EnvoyHost {
    fn kind(&self) -> HostKind {
        HostKind::Envoy
    }

    fn start<'a>(&'a self, cases: &'a [Arc<ConformanceCase>]) -> StartingHost<'a> {
        Box::pin(async move {
            let folder = tempfile::tempdir()?;
            let (file, admin) = (folder.path().join("envoy.json"), folder.path().join("admin"));
            std::fs::write(&file, serde_json::to_string_pretty(&config(cases))?)?;
            let mut command = Command::new(&self.binary);
            command.arg("-c").arg(&file).arg("--admin-address-path").arg(&admin);
            command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]);
            command.args(["--component-log-level", "wasm:info,main:info", "--log-format", "%l %v"]);
            let mut process = HostProcess::start(&mut command, cases, self.verbose, parse_log_line)?;
            let ready = |line: &str| line.contains("starting main dispatch loop").then_some(());
            if let Err(said) = process.wait_for_line(ready).await {
                return Ok(Err(said));
            }
            let admin = read_address(&admin)?;
            let listeners: Value = serde_json::from_str(&fetch_body(admin, "/listeners?format=json").await?)?;
            let addresses = listeners["listener_statuses"]
                .as_array()
                .context("no listeners")?
                .iter()
                .filter_map(listener_address);
            Ok(Ok(ListeningHost {
                addresses: addresses.collect(),
                metrics: (admin, "/stats?filter=wasmcustom"),
                _process: process,
            }))
        })
    }
}

fn read_address(file: &Path) -> anyhow::Result<SocketAddr> {
    Ok(std::fs::read_to_string(file).context("the address of the admin interface")?.trim().parse()?)
}

fn listener_address(listener: &Value) -> Option<(String, SocketAddr)> {
    let address = &listener["local_address"]["socket_address"];
    let port = u16::try_from(address["port_value"].as_u64()?).ok()?;
    Some((listener["name"].as_str()?.to_owned(), SocketAddr::from(([127, 0, 0, 1], port))))
}

/// Parses `info wasm log ID VM: text`, or `info wasm log ID: text` where the case has its own VM.
fn parse_log_line(line: &str) -> Option<(String, LoggedLine)> {
    let (level, rest) = line.split_once(" wasm log ")?;
    let (names, text) = rest.split_once(": ")?;
    let id = names.split(' ').next()?;
    let level = if level == "warning" { "warn" } else { level };
    Some((id.to_owned(), LoggedLine { level: level.to_owned(), text: text.to_owned() }))
}

fn config(cases: &[Arc<ConformanceCase>]) -> Value {
    let listeners: Vec<Value> = cases.iter().map(|case| listener(case)).collect();
    let clusters: Vec<Value> = cases.iter().map(|case| cluster(case)).collect();
    json!({
        "admin": { "address": socket_address(SocketAddr::from(([127, 0, 0, 1], 0))) },
        "static_resources": { "listeners": listeners, "clusters": clusters },
    })
}

fn socket_address(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

fn listener(case: &ConformanceCase) -> Value {
    let route = json!({
        "name": format!("route_{}", case.id),
        "match": { "prefix": "/" },
        "route": { "cluster": case.id, "timeout": "4s" },
    });
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
    });
    json!({
        "name": case.id,
        "address": socket_address(SocketAddr::from(([127, 0, 0, 1], 0))),
        "traffic_direction": "INBOUND",
        "filter_chains": [{ "filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": "rows",
                "codec_type": "AUTO",
                "route_config": {
                    "name": "all",
                    "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }],
                },
                "http_filters": [filter(case), router],
            },
        }] }],
    })
}

/// Log lines start with the root id and the VM id. The AssemblyScript SDK supports only root ids known at
/// build time, so each of its modules has its own VM.
fn filter(case: &ConformanceCase) -> Value {
    let text =
        |text: &str| json!({ "@type": "type.googleapis.com/google.protobuf.StringValue", "value": text });
    let in_assemblyscript = matches!(case.module, RowModule::AssemblyScript | RowModule::NewAssemblyScript);
    let alone = case.row.alone || case.row.vm_script.is_some() || in_assemblyscript;
    let (root_id, vm_id) = if alone { ("", case.id.clone()) } else { (&*case.id, case.module.to_string()) };
    let mut vm = json!({
        "vm_id": vm_id,
        "runtime": "envoy.wasm.runtime.v8",
        "code": { "local": { "filename": case.wasm } },
    });
    if let Some(script) = &case.row.vm_script {
        vm["configuration"] = text(&case.fill_placeholders(script));
    }
    json!({
        "name": "envoy.filters.http.wasm",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": case.id,
                "root_id": root_id,
                "configuration": text(&case.plugin_config()),
                "vm_config": vm,
                "allow_on_headers_stop_iteration": case.row.body_while_paused,
            },
        },
    })
}

fn cluster(case: &ConformanceCase) -> Value {
    let mut cluster = json!({
        "name": case.id,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": case.id,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": socket_address(case.service.address) } }] }],
        },
    });
    if case.row.http2 {
        cluster["typed_extension_protocol_options"] = json!({
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        });
    }
    cluster
}
