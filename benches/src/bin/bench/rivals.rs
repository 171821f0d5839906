//! The rivals that `scripts/rivals` has installed, each with the config in `benches/rivals/`: proxies, with
//! ORFA as one of them, and alternatives to queries. Those of S services are in `script/servers.rs`.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::process::{SERVER_CORE, ServerProcess, UNUSED_ADDRESS, pinned_command};
use crate::{BenchTools, print_line};

/// The start timeout of a gateway on Node.
const SLOW_START: Duration = Duration::from_secs(60);

/// A reverse proxy with one worker in front of one service, which writes an access log to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RivalProxy {
    Orfa,
    Nginx,
    Envoy,
}

/// The treatment of requests by a server besides proxying.
#[derive(Clone, Copy)]
pub(crate) enum RivalTreatment<'a> {
    /// No treatment.
    None,
    /// A response of the server itself.
    Answer,
    /// A Proxy-Wasm module with its configuration.
    Module(&'a Path, &'a str),
}

/// The protocol of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    Http1,
    Http2,
}

impl RivalProxy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Orfa => "orfa",
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
        }
    }

    /// All installed proxies. Reports missing ones.
    pub(crate) fn installed(tools: &BenchTools) -> Vec<Self> {
        let is_there = |rival: &Self| *rival == Self::Orfa || installed_path(tools, rival.name()).is_some();
        [Self::Orfa, Self::Nginx, Self::Envoy].into_iter().filter(is_there).collect()
    }

    /// Starts the proxy on the servers' core.
    pub(crate) fn start(
        self,
        tools: &BenchTools,
        upstream: SocketAddr,
        speaks: ClientProtocol,
    ) -> Result<ServerProcess> {
        self.start_with(tools, upstream, speaks, RivalTreatment::None)
    }

    /// Like `start`, with a filter.
    pub(crate) fn start_with(
        self,
        tools: &BenchTools,
        upstream: SocketAddr,
        speaks: ClientProtocol,
        filter: RivalTreatment<'_>,
    ) -> Result<ServerProcess> {
        match self {
            Self::Orfa => {
                ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &orfa_config(upstream, filter))
            }
            Self::Nginx => {
                let http2 = if speaks == ClientProtocol::Http2 { "http2" } else { "" };
                ServerProcess::start(|address, folder| {
                    // The worker runs as `nobody` and has to access the folder.
                    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
                    let config =
                        write_config("nginx.conf", folder, address, upstream, &[("@HTTP2@", http2)])?;
                    let mut command = pinned_command(SERVER_CORE, &tools.rivals.join("nginx"));
                    command.arg("-p").arg(folder).args(["-e", "stderr"]).arg("-c").arg(config);
                    Ok(command)
                })
            }
            Self::Envoy => ServerProcess::start(|address, folder| {
                let more = [
                    ("@HOST@", address.ip().to_string()),
                    ("@PORT@", address.port().to_string()),
                    ("@UPSTREAM_HOST@", upstream.ip().to_string()),
                    ("@UPSTREAM_PORT@", upstream.port().to_string()),
                    ("@FILTER@", envoy_filter(filter)),
                    ("@ROUTE@", envoy_route(filter).to_owned()),
                ];
                let more: Vec<_> = more.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let config = write_config("envoy.yaml", folder, address, upstream, &more)?;
                let mut command = pinned_command(SERVER_CORE, &tools.rivals.join("envoy"));
                command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c"]);
                command.arg(config);
                Ok(command)
            }),
        }
    }
}

/// The gateway's config of one route, which proxies everything to a service, or answers itself.
fn orfa_config(upstream: SocketAddr, filter: RivalTreatment<'_>) -> String {
    let path = if let RivalTreatment::Answer = filter { "/elsewhere" } else { "/*" };
    let mut yaml = format!(
        "services: {{ service: {{ url: 'http://{upstream}' }} }}\n\
         routes:\n  - path: {path}\n    proxy: service\n"
    );
    if let RivalTreatment::Module(module, config) = filter {
        yaml += &format!("    filters: [{{ wasm: '{}', config: '{config}' }}]\n", module.display());
    }
    yaml
}

/// Envoy's entry of a Wasm filter as a line of YAML; empty without one.
fn envoy_filter(filter: RivalTreatment<'_>) -> String {
    let RivalTreatment::Module(module, config) = filter else { return String::new() };
    let kind = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
    let entry = serde_json::json!({
        "name": "envoy.filters.http.wasm",
        "typed_config": { "@type": kind, "config": {
            "name": "filter",
            "configuration": { "@type": "type.googleapis.com/google.protobuf.StringValue", "value": config },
            "vm_config": {
                "vm_id": "filter",
                "runtime": "envoy.wasm.runtime.v8",
                "code": { "local": { "filename": module } },
            },
        }},
    });
    format!("- {entry}")
}

/// Envoy's action for a request.
fn envoy_route(filter: RivalTreatment<'_>) -> &'static str {
    match filter {
        RivalTreatment::Answer => {
            "direct_response: { status: 503, body: { inline_string: fault injection } }"
        }
        _ => "route: { cluster: service }",
    }
}

/// Writes a config of `benches/rivals/` with its placeholders replaced.
fn write_config(
    name: &str,
    folder: &Path,
    address: SocketAddr,
    upstream: SocketAddr,
    more: &[(&str, &str)],
) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rivals").join(name);
    let mut text = std::fs::read_to_string(&source)?
        .replace("@LISTEN@", &address.to_string())
        .replace("@UPSTREAM@", &upstream.to_string())
        .replace("@FOLDER@", &folder.display().to_string());
    for (place, value) in more {
        text = text.replace(place, value);
    }
    let path = folder.join(source.file_name().unwrap_or_default());
    std::fs::write(&path, text)?;
    Ok(path)
}

/// Starts workerd, which runs the programs that it receives. They access these services by name. Returns
/// `None` if it is not installed.
pub(crate) fn start_workerd(
    tools: &BenchTools,
    cores: &str,
    services: &[(&str, SocketAddr)],
) -> Result<Option<ServerProcess>> {
    let Some(binary) = installed_path(tools, "workerd") else { return Ok(None) };
    let each = |line: fn(&str, SocketAddr) -> String| {
        services.iter().map(|(name, at)| line(name, *at)).collect::<String>()
    };
    let external =
        each(|name, at| format!(", (name = \"{name}\", external = (address = \"{at}\", http = ()))"));
    let bindings = each(|name, _| format!(", (name = \"{name}\", service = \"{name}\")"));
    let more = [("@SERVICES@", external.as_str()), ("@BINDINGS@", &bindings)];
    let server = ServerProcess::start(|address, folder| {
        for module in ["workerd/host.js", "workerd/prelude.js"] {
            write_config(module, folder, address, UNUSED_ADDRESS, &[])?;
        }
        let config = write_config("workerd/workerd.capnp", folder, address, UNUSED_ADDRESS, &more)?;
        let mut command = pinned_command(cores, &binary);
        command.args(["serve", "--experimental"]).arg(config);
        Ok(command)
    })?;
    Ok(Some(server))
}

/// Starts the marketplace's services as RPC classes of Cap'n Web, in front of the services at these
/// addresses. Returns `None` if it is not installed.
pub(crate) fn start_capnweb(tools: &BenchTools, services: [SocketAddr; 3]) -> Result<Option<ServerProcess>> {
    let Some(script) = installed_path(tools, "capnweb") else { return Ok(None) };
    let server = ServerProcess::start(|address, _| {
        let mut command = pinned_command(SERVER_CORE, &PathBuf::from("node"));
        command.arg(script).args(["serve", &address.ip().to_string(), &address.port().to_string()]);
        command.args(services.map(|at| format!("http://{at}"))).env("NODE_ENV", "production");
        Ok(command)
    })?;
    Ok(Some(server))
}

/// Starts openapi-to-graphql over the stand-ins for Memos and Gitea at this address. Returns `None` if it is
/// not installed.
pub(crate) fn start_openapi_to_graphql(
    tools: &BenchTools,
    upstream: SocketAddr,
) -> Result<Option<ServerProcess>> {
    let Some(script) = installed_path(tools, "openapi-to-graphql") else { return Ok(None) };
    let server = ServerProcess::start_within(SLOW_START, |address, _| {
        let mut command = pinned_command(SERVER_CORE, &PathBuf::from("node"));
        command.arg(script).args([
            address.ip().to_string(),
            address.port().to_string(),
            upstream.to_string(),
        ]);
        command.env("NODE_ENV", "production");
        Ok(command)
    })?;
    Ok(Some(server))
}

/// Starts a GraphQL server that answers "hello world". Returns `None` if it is not installed.
pub(crate) fn start_graphql(tools: &BenchTools) -> Result<Option<ServerProcess>> {
    let Some(script) = installed_path(tools, "graphql") else { return Ok(None) };
    let server = ServerProcess::start(|address, _| {
        let mut command = pinned_command(SERVER_CORE, &PathBuf::from("node"));
        command.arg(script).arg(address.ip().to_string()).arg(address.port().to_string());
        command.env("NODE_ENV", "production");
        Ok(command)
    })?;
    Ok(Some(server))
}

/// Starts tailcall in front of a service of posts and users, with or without deduplication of concurrent
/// calls. Returns `None` if it is not installed.
pub(crate) fn start_tailcall(
    tools: &BenchTools,
    upstream: SocketAddr,
    dedupes: bool,
) -> Result<Option<ServerProcess>> {
    let Some(binary) = installed_path(tools, "tailcall") else { return Ok(None) };
    let server = ServerProcess::start(|address, folder| {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let dedupe = format!("dedupe: {dedupes}");
        let more = [("@HOST@", host.as_str()), ("@PORT@", &port), ("@DEDUPE@", &dedupe)];
        let config = write_config("gateways/tailcall.graphql", folder, address, upstream, &more)?;
        let mut command = pinned_command(SERVER_CORE, &binary);
        command.arg("start").arg(config).env("TAILCALL_LOG_LEVEL", "error").env("TAILCALL_TRACKER", "false");
        Ok(command)
    });
    server.map(Some)
}

/// Starts Hive Gateway with one worker and the supergraph that Mesh composed of the same service. Returns
/// `None` if it is not installed.
pub(crate) fn start_hive(tools: &BenchTools, upstream: SocketAddr) -> Result<Option<ServerProcess>> {
    let Some(binary) = installed_path(tools, "hive") else { return Ok(None) };
    let supergraph = std::fs::read_to_string(tools.rivals.join("gateways/supergraph.graphql"))?;
    let supergraph = supergraph.replace("@UPSTREAM@", &upstream.to_string());
    let server = ServerProcess::start_within(SLOW_START, |address, folder| {
        let file = folder.join("supergraph.graphql");
        std::fs::write(&file, supergraph)?;
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let mut command = pinned_command(SERVER_CORE, &binary);
        command.arg("supergraph").arg(file).args(["--host", &host, "--port", &port, "--fork", "1"]);
        command.current_dir(folder).env("NODE_ENV", "production");
        Ok(command)
    });
    server.map(Some)
}

/// A rival that `scripts/rivals` looked for, with its version if it was available.
#[derive(Serialize)]
pub(crate) struct InstalledRival {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

/// All rivals, from the lines `name<TAB>version` that the script writes; `None` if it never ran.
pub(crate) fn rival_versions(tools: &BenchTools) -> Option<Vec<InstalledRival>> {
    let text = std::fs::read_to_string(tools.rivals.join("versions")).ok()?;
    let rival = |line: &str| {
        let (name, version) = line.split_once('\t').unwrap_or((line, ""));
        InstalledRival {
            name: name.to_owned(),
            version: Some(version.to_owned()).filter(|version| !version.is_empty()),
        }
    };
    Some(text.lines().map(rival).collect())
}

/// The path of a rival. Reports a missing one.
pub(crate) fn installed_path(tools: &BenchTools, name: &str) -> Option<PathBuf> {
    let path = tools.rivals.join(name);
    if !path.exists() {
        print_line(&format!("  {name} is not installed and left out: run `scripts/rivals` for the reason"));
        return None;
    }
    Some(path)
}
