//! The programs, and sending them to ORFA and to workerd. Both run the same programs in JavaScript.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use benches::call::PreparedCall;
use benches::client::BenchClient;
use benches::programs::{build_program_file, cache_token};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};

use super::variant::{CallShape, OrfaCaching, ProgramHost, StrapiLanguage};
use super::workflow::PaperWorkflow;

/// The response headers with the token: workerd's own, and `ORFA-Cache` of ORFA.
const WORKERD_TOKEN: HeaderName = HeaderName::from_static("token");
const ORFA_CACHE: HeaderName = HeaderName::from_static("orfa-cache");

/// The programs, and the tokens of those that a host has cached.
pub(super) struct StrapiPrograms {
    texts: BTreeMap<(PaperWorkflow, CallShape, StrapiLanguage), Bytes>,
    tokens: BTreeMap<(PaperWorkflow, CallShape, ProgramHost), HeaderValue>,
}

impl StrapiPrograms {
    /// Loads the programs of `examples/strapi/queries`, with C built as its author would.
    pub(super) fn build(orfa: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut texts = BTreeMap::new();
        for workflow in PaperWorkflow::ALL {
            for shape in [CallShape::Bulk, CallShape::Calls] {
                let module = build_program_file(orfa, &source_path(workflow, shape, "c"), folder.path())?;
                texts.insert((workflow, shape, StrapiLanguage::C), std::fs::read(module)?.into());
                let script = std::fs::read(source_path(workflow, shape, "js"))?;
                texts.insert((workflow, shape, StrapiLanguage::Javascript), script.into());
            }
        }
        Ok(Self { texts, tokens: BTreeMap::new() })
    }

    /// Sends a program for the first time, and stores the token in the response.
    pub(super) async fn cache_program(
        &mut self,
        client: &BenchClient,
        authorization: &HeaderValue,
        program @ (_, _, host): (PaperWorkflow, CallShape, ProgramHost),
        input: &str,
    ) -> Result<()> {
        let mut call = self.call_by_program(program, input)?;
        if let ProgramHost::Orfa(mode @ (OrfaCaching::Code | OrfaCaching::Instance), _) = host {
            call = call.with_header(ORFA_CACHE, HeaderValue::from_static(mode.name()));
        }
        let answer = call.with_header(AUTHORIZATION, authorization.clone()).send(client).await?;
        if host.has_token() {
            let token = match host {
                ProgramHost::Orfa(mode, _) => {
                    HeaderValue::try_from(cache_token(&answer.headers, mode.name())?)?
                }
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
        program: (PaperWorkflow, CallShape, ProgramHost),
        input: &str,
    ) -> Result<PreparedCall> {
        let call = match self.tokens.get(&program) {
            Some(token) => call_by_token(program.2, token, input),
            None => self.call_by_program(program, input)?,
        };
        Ok(call.with_header(AUTHORIZATION, authorization.clone()))
    }

    fn call_by_program(
        &self,
        (workflow, shape, host): (PaperWorkflow, CallShape, ProgramHost),
        input: &str,
    ) -> Result<PreparedCall> {
        let language = host.language();
        let text = self.texts.get(&(workflow, shape, language)).context("the program does not exist")?;
        let (body, length) = ([input.as_bytes(), text].concat(), input.len().into());
        Ok(match host {
            ProgramHost::WorkerdByProgram | ProgramHost::WorkerdByToken => {
                PreparedCall::post("/", body).with_header(HeaderName::from_static("input"), length)
            }
            ProgramHost::Orfa(..) => {
                query_call(language, body).with_header(HeaderName::from_static("orfa-input"), length)
            }
        })
    }
}

fn call_by_token(host: ProgramHost, token: &HeaderValue, input: &str) -> PreparedCall {
    match host {
        ProgramHost::WorkerdByProgram | ProgramHost::WorkerdByToken => {
            PreparedCall::post("/", input.to_owned()).with_header(WORKERD_TOKEN, token.clone())
        }
        ProgramHost::Orfa(_, language) => {
            query_call(language, input.to_owned()).with_header(ORFA_CACHE, token.clone())
        }
    }
}

fn query_call(language: StrapiLanguage, body: impl Into<Bytes>) -> PreparedCall {
    PreparedCall::post("/query", body)
        .with_header(CONTENT_TYPE, HeaderValue::from_static(language.content_type()))
}

/// The path of a source such as `examples/strapi/queries/r_calls.js`.
fn source_path(workflow: PaperWorkflow, shape: CallShape, extension: &str) -> PathBuf {
    let name = match (workflow, shape) {
        (PaperWorkflow::Read, CallShape::Bulk) => "r",
        (PaperWorkflow::Read, CallShape::Calls) => "r_calls",
        (PaperWorkflow::Write, CallShape::Bulk) => "w",
        (PaperWorkflow::Write, CallShape::Calls) => "w_calls",
    };
    let queries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/strapi/queries");
    queries.join(name).with_extension(extension)
}
