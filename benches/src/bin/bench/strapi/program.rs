//! The programs, and sending them to ORFA and to workerd. Both run the same programs in JavaScript.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use benches::call::Call;
use benches::client::Client;
use benches::programs::{build_file, token};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};

use super::way::{Host, Language, Mode, Shape};
use super::workflow::Workflow;

/// The response headers with the token: workerd's own, and `ORFA-Cache` of ORFA.
const WORKERD_TOKEN: HeaderName = HeaderName::from_static("token");
const ORFA_CACHE: HeaderName = HeaderName::from_static("orfa-cache");

/// The programs, and the tokens of those that a host has cached.
pub(super) struct Programs {
    texts: BTreeMap<(Workflow, Shape, Language), Bytes>,
    tokens: BTreeMap<(Workflow, Shape, Host), HeaderValue>,
}

impl Programs {
    /// Loads the programs of `examples/strapi/queries`, with C built as its author would.
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

    /// Sends a program for the first time, and stores the token in the response.
    pub(super) async fn learn(
        &mut self,
        client: &Client,
        authorization: &HeaderValue,
        program @ (_, _, host): (Workflow, Shape, Host),
        input: &str,
    ) -> Result<()> {
        let mut call = self.by_program(program, input)?;
        if let Host::Orfa(mode @ (Mode::Code | Mode::Instance), _) = host {
            call = call.with(ORFA_CACHE, HeaderValue::from_static(mode.name()));
        }
        let answer = call.with(AUTHORIZATION, authorization.clone()).send(client).await?;
        if host.has_token() {
            let token = match host {
                Host::Orfa(mode, _) => HeaderValue::try_from(token(&answer.headers, mode.name())?)?,
                _ => answer.headers.get(WORKERD_TOKEN).context("workerd gave no token")?.clone(),
            };
            self.tokens.insert(program, token);
        }
        Ok(())
    }

    /// The request that runs a program.
    pub(super) fn call(
        &self,
        authorization: &HeaderValue,
        program: (Workflow, Shape, Host),
        input: &str,
    ) -> Result<Call> {
        let call = match self.tokens.get(&program) {
            Some(token) => by_token(program.2, token, input),
            None => self.by_program(program, input)?,
        };
        Ok(call.with(AUTHORIZATION, authorization.clone()))
    }

    fn by_program(&self, (workflow, shape, host): (Workflow, Shape, Host), input: &str) -> Result<Call> {
        let language = host.language();
        let text = self.texts.get(&(workflow, shape, language)).context("the program does not exist")?;
        let (body, length) = ([input.as_bytes(), text].concat(), input.len().into());
        Ok(match host {
            Host::WorkerdByProgram | Host::WorkerdByToken => {
                Call::post("/", body).with(HeaderName::from_static("input"), length)
            }
            Host::Orfa(..) => query(language, body).with(HeaderName::from_static("orfa-input"), length),
        })
    }
}

fn by_token(host: Host, token: &HeaderValue, input: &str) -> Call {
    match host {
        Host::WorkerdByProgram | Host::WorkerdByToken => {
            Call::post("/", input.to_owned()).with(WORKERD_TOKEN, token.clone())
        }
        Host::Orfa(_, language) => query(language, input.to_owned()).with(ORFA_CACHE, token.clone()),
    }
}

fn query(language: Language, body: impl Into<Bytes>) -> Call {
    Call::post("/query", body).with(CONTENT_TYPE, HeaderValue::from_static(language.content_type()))
}

/// The path of a source such as `examples/strapi/queries/r_calls.js`.
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
