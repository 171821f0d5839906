//! Programs and how they are sent, to ORFA and to workerd. The programs in JavaScript are the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use benches::client::{Answer, Client};
use benches::programs::{build_file, token};
use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http_body_util::Full;

use super::way::{Host, Language, Mode, Shape};
use super::workflow::Workflow;

/// Where the first answer has the token: at workerd the name of a header, at ORFA it is in `ORFA-Cache`.
const WORKERD_TOKEN: &str = "token";
const ORFA_CACHE: &str = "orfa-cache";

/// The programs, as they are sent, and the tokens of those that a host has.
pub(super) struct Programs {
    texts: BTreeMap<(Workflow, Shape, Language), Bytes>,
    tokens: BTreeMap<(Workflow, Shape, Host), HeaderValue>,
}

impl Programs {
    /// Those of `examples/strapi/queries`, C built as its author would.
    pub(super) fn build(orfa: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut texts = BTreeMap::new();
        for workflow in Workflow::ALL {
            for shape in [Shape::Bulk, Shape::Calls] {
                let module = build_file(orfa, &source(workflow, shape, "c"), folder.path())?;
                texts.insert((workflow, shape, Language::C), std::fs::read(module)?.into());
                let script = std::fs::read(source(workflow, shape, "js"))?;
                texts.insert((workflow, shape, Language::Javascript), script.into());
            }
        }
        Ok(Self { texts, tokens: BTreeMap::new() })
    }

    /// Sends a program for the first time, and keeps the token that its answer has.
    pub(super) async fn learn(
        &mut self,
        client: &Client,
        authorization: &HeaderValue,
        (workflow, shape, host): (Workflow, Shape, Host),
        input: &str,
    ) -> Result<()> {
        let mut request = self.by_program(workflow, shape, host, input)?;
        if let Host::Orfa(mode @ (Mode::Code | Mode::Instance), _) = host {
            request.headers_mut().insert(ORFA_CACHE, HeaderValue::from_static(mode.name()));
        }
        let answer = send(client, authorization, request).await?;
        if host.has_token() {
            let token = match host {
                Host::Orfa(mode, _) => HeaderValue::try_from(token(&answer.headers, mode.name())?)?,
                _ => answer.headers.get(WORKERD_TOKEN).context("workerd gave no token")?.clone(),
            };
            self.tokens.insert((workflow, shape, host), token);
        }
        Ok(())
    }

    /// Runs a program.
    pub(super) async fn run(
        &self,
        client: &Client,
        authorization: &HeaderValue,
        (workflow, shape, host): (Workflow, Shape, Host),
        input: &str,
    ) -> Result<Bytes> {
        let request = match self.tokens.get(&(workflow, shape, host)) {
            Some(token) => by_token(host, token, input)?,
            None => self.by_program(workflow, shape, host, input)?,
        };
        Ok(send(client, authorization, request).await?.body)
    }

    fn by_program(
        &self,
        workflow: Workflow,
        shape: Shape,
        host: Host,
        input: &str,
    ) -> Result<Request<Full<Bytes>>> {
        let language = host.language();
        let text = self.texts.get(&(workflow, shape, language)).context("there is no such program")?;
        let body = Full::new(Bytes::from([input.as_bytes(), text].concat()));
        let request = match host {
            Host::WorkerdByProgram | Host::WorkerdByToken => Request::post("/").header("input", input.len()),
            Host::Orfa(..) => Request::post("/query")
                .header(CONTENT_TYPE, language.content_type())
                .header("orfa-input", input.len()),
        };
        Ok(request.body(body)?)
    }
}

fn by_token(host: Host, token: &HeaderValue, input: &str) -> Result<Request<Full<Bytes>>> {
    let request = match host {
        Host::WorkerdByProgram | Host::WorkerdByToken => Request::post("/").header(WORKERD_TOKEN, token),
        Host::Orfa(_, language) => {
            Request::post("/query").header(CONTENT_TYPE, language.content_type()).header(ORFA_CACHE, token)
        }
    };
    Ok(request.body(Full::new(Bytes::from(input.to_owned())))?)
}

async fn send(
    client: &Client,
    authorization: &HeaderValue,
    mut request: Request<Full<Bytes>>,
) -> Result<Answer> {
    request.headers_mut().insert(AUTHORIZATION, authorization.clone());
    let answer = client.send(request).await?;
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(answer.status.is_success(), "the program failed: {} {text}", answer.status);
    Ok(answer)
}

/// `examples/strapi/queries/r_calls.js`
fn source(workflow: Workflow, shape: Shape, extension: &str) -> PathBuf {
    let name = match (workflow, shape) {
        (Workflow::Read, Shape::Bulk) => "r",
        (Workflow::Read, Shape::Calls) => "r_calls",
        (Workflow::Write, Shape::Bulk) => "w",
        (Workflow::Write, Shape::Calls) => "w_calls",
    };
    let queries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/strapi/queries");
    queries.join(name).with_extension(extension)
}
