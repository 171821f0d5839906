//! `orfa filter test`: runs a module on one exchange from the command line, and prints all callbacks and host
//! calls. No gateway runs; with `--service` or `--host` the module's calls are really sent.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use filter::{ExchangeInfo, FilterChain, FilterConfig, FilterEvent, FilterObserver, FilterRuntime};
use handler::{HandlerRequest, HandlerResponse};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use services::{RequestCall, ServiceConfig, ServiceSet, StreamedServiceBody, ToProblem, body};

use crate::commands::call::parse_header;
use crate::output::exit::{CliError, CliExitCode};
use crate::output::terminal;

/// Run a module on one exchange, and print each callback and each host call.
#[derive(Debug, clap::Args)]
pub(crate) struct FilterTestArguments {
    /// The module.
    module: String,
    /// The plugin configuration, unchanged.
    #[arg(long, value_name = "TEXT")]
    config: Option<String>,
    /// The configuration of its virtual machine.
    #[arg(long, value_name = "TEXT")]
    vm_config: Option<String>,
    /// The ID of its root context.
    #[arg(long, value_name = "ID", default_value = "")]
    root_id: String,
    /// Reject everything that Envoy rejects.
    #[arg(long)]
    strict: bool,
    /// The request: method and path.
    #[arg(long, value_name = "METHOD PATH", default_value = "GET /")]
    request: String,
    /// A header of the request: 'Accept: text/html'.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The request body.
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// The status of the service's response.
    #[arg(long, value_name = "STATUS", default_value_t = 200)]
    response: u16,
    /// A header of the response.
    #[arg(long, value_name = "NAME: VALUE")]
    response_header: Vec<String>,
    /// The response body.
    #[arg(long, value_name = "TEXT", default_value = "")]
    response_body: String,
    /// A service that the module may call: 'auth=http://localhost:9000'.
    #[arg(long = "service", value_name = "NAME=URL")]
    services: Vec<String>,
    /// Further hosts that the module may call: 'localhost:9000', '*.example.org'.
    #[arg(long = "host", value_name = "PATTERN")]
    hosts: Vec<String>,
}

/// The output, as lines.
#[derive(Default)]
struct OutputLines(Mutex<String>);

pub(crate) async fn run(arguments: &FilterTestArguments) -> anyhow::Result<CliExitCode> {
    let lines = Arc::<OutputLines>::default();
    let exit = run_exchange(arguments, &lines).await;
    terminal::write_stdout(&lines.take());
    exit
}

async fn run_exchange(
    arguments: &FilterTestArguments,
    lines: &Arc<OutputLines>,
) -> anyhow::Result<CliExitCode> {
    let (request, response) = (build_request(arguments)?, build_response(arguments)?);
    let services = parse_services(&arguments.services)?;
    let filters = FilterRuntime::with_observer(Arc::clone(lines) as Arc<dyn FilterObserver>)?;
    let chain = FilterChain::new(&filters, &[filter_config(arguments)], Path::new(""), &services)
        .map_err(refusal_error)?;
    let chain = Arc::new(chain);
    chain.start();
    let handle = |request: HandlerRequest| async move {
        lines.append(&format!("\n  the service receives: {} {}\n\n", request.head.method, request.head.uri));
        // Reading the body is what passes all of it through the module.
        let _ = request.body.collect().await;
        HandlerResponse::from(response)
    };
    let request = HandlerRequest::new(request, RequestCall::unlimited());
    match chain.run_exchange(request, fixed_facts(), handle).await {
        Ok(HandlerResponse { response, .. }) => {
            let (head, body) = response.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes());
            lines.append(&format!("\n{}\n", head.status));
            for (name, value) in &head.headers {
                lines.append(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
            }
            match body {
                Ok(body) => lines.append(&format!("\n{}\n", String::from_utf8_lossy(&body))),
                Err(error) => lines.append(&format!("\nthe body is incomplete: {error}\n")),
            }
            Ok(CliExitCode::Ok)
        }
        Err(failed) => Err(CliError::failed(failed.code(), failed.to_string(), failed.hint()).into()),
    }
}

fn filter_config(arguments: &FilterTestArguments) -> FilterConfig {
    let text = |text: &Option<String>| text.clone().map_or(serde_json::Value::Null, Into::into);
    FilterConfig {
        config: text(&arguments.config),
        vm_config: text(&arguments.vm_config),
        root_id: arguments.root_id.clone(),
        hosts: arguments.hosts.clone(),
        dialect: if arguments.strict { filter::HostDialect::Strict } else { filter::HostDialect::Lenient },
        ..FilterConfig::from_module(&arguments.module)
    }
}

fn build_request(arguments: &FilterTestArguments) -> anyhow::Result<Request<StreamedServiceBody>> {
    let wrong = || {
        let message = format!("`{}` is not a request", arguments.request);
        CliError::usage("bad-request", message, "write it as 'GET /path'")
    };
    let (method, path) = arguments.request.trim().split_once(' ').ok_or_else(wrong)?;
    let mut headers = parse_headers(&arguments.headers)?;
    headers.entry("host").or_insert(http::HeaderValue::from_static("localhost"));
    let body = arguments.body.clone().map_or_else(body::empty, body::full);
    let mut request = Request::builder().method(method).uri(path.trim()).body(body).map_err(|_| wrong())?;
    *request.headers_mut() = headers;
    Ok(request)
}

fn build_response(arguments: &FilterTestArguments) -> anyhow::Result<Response<StreamedServiceBody>> {
    let status = StatusCode::from_u16(arguments.response).map_err(|_| {
        CliError::usage("bad-status", format!("{} is not a status", arguments.response), "take 200 to 599")
    })?;
    let mut response = Response::new(body::full(arguments.response_body.clone()));
    *response.status_mut() = status;
    *response.headers_mut() = parse_headers(&arguments.response_header)?;
    Ok(response)
}

fn parse_headers(lines: &[String]) -> anyhow::Result<HeaderMap> {
    lines.iter().map(|line| parse_header(line)).collect()
}

fn parse_services(said: &[String]) -> anyhow::Result<ServiceSet> {
    let mut config = BTreeMap::new();
    for said in said {
        let wrong = |_| {
            let hint = "write it as 'name=http://host:port'";
            CliError::usage("bad-service", format!("`{said}` is not a service"), hint)
        };
        let (name, url) = said.split_once('=').ok_or(()).map_err(wrong)?;
        let service: ServiceConfig =
            serde_json::from_value(serde_json::json!({ "url": url })).map_err(|_| ()).map_err(wrong)?;
        config.insert(name.to_owned(), service);
    }
    ServiceSet::load(&config, Path::new("")).map_err(|problems| {
        let told: Vec<String> = problems.iter().map(|problem| problem.message.clone()).collect();
        CliError::usage("bad-service", told.join("; "), "write it as 'name=http://host:port'").into()
    })
}

fn fixed_facts() -> ExchangeInfo {
    let address = |port| ([127, 0, 0, 1], port).into();
    ExchangeInfo {
        route: "/*".into(),
        service: None,
        source: address(50_000),
        destination: Some(address(8080)),
        connection: 1,
        tls: None,
        started_at: (Instant::now(), SystemTime::now()),
    }
}

fn refusal_error(refused: Vec<filter::RefusedFilter>) -> anyhow::Error {
    match refused.into_iter().next() {
        Some(filter::RefusedFilter { reason, .. }) => {
            CliError::failed(reason.code(), reason.to_string(), reason.hint()).into()
        }
        None => anyhow::anyhow!("the module was rejected"),
    }
}

impl OutputLines {
    fn append(&self, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }

    fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl FilterObserver for OutputLines {
    fn on_event(&self, event: &FilterEvent<'_>) {
        match event {
            FilterEvent::Callback { name, arguments, .. } => {
                let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
                self.append(&format!("{name}({})\n", arguments.join(", ")));
            }
            FilterEvent::HostCall { name, description: about, returned_data: gave, status } => {
                let gave = if gave.is_empty() { String::new() } else { format!(" {gave:?}") };
                self.append(&format!("    {name}({about}) = {status}{gave}\n"));
            }
            FilterEvent::Log { level, message, .. } => self.append(&format!("    {level}: {message}\n")),
            FilterEvent::Returned { value, .. } => self.append(&format!("  = {value}\n")),
            FilterEvent::Trapped { reason, .. } => self.append(&format!("  trapped: {reason}\n")),
        }
    }
}
