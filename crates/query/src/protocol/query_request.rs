//! Parses an HTTP request into a program, its input and its limits.
//!
//! The body has one of three layouts: the input followed by the program, with the input's length in
//! `ORFA-Input`; a form with the parts `program` and `input`; or only the input, if the headers name the
//! program. Nothing runs before the whole request is read and parsed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use http::Uri;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use http::request::Parts;
use http_body::Body as _;
use offload::{JobRequest, SHORT_TEXT};
use services::headers::list_contains;
use services::{DecoderPool, RequestBodyError, StreamedServiceBody, read_request_body};

use super::cache_header::parse_cache;
use super::fields::{RequestFields, SingleField};
use super::trust_header::parse_signature;
use crate::config::QueryLimitsConfig;
use crate::limits::RunLimits;
use crate::problem::QueryError;
use crate::program::{ProgramLanguage, ProgramSource};

/// The media type of a form, which may contain a program.
pub(crate) const FORM_MEDIA_TYPE: &str = "multipart/form-data";

/// The parameters of a run.
#[derive(Debug)]
pub(crate) struct QueryRequest {
    pub(crate) input: Bytes,
    /// The client's limits, the text of `ORFA-Limit`.
    pub(crate) client_limits: Option<String>,
    /// Whether the request's method is safe, so that the program may make only safe calls.
    pub(crate) safe_only: bool,
    /// `Prefer: calls` (RFC 7240): list the upstream calls in `Server-Timing`.
    pub(crate) list_calls: bool,
    /// `ORFA-Debug: ?1`: answer with the recording.
    pub(crate) wants_recording: bool,
}

/// The layout of a body.
enum BodyLayout {
    Plain(ProgramLanguage),
    Form(String),
}

impl QueryRequest {
    /// Reads all of a request that contains a program, or names a cached one.
    ///
    /// # Errors
    /// Any error that can be found without looking into the program.
    pub(crate) async fn read_program_request(
        head: &Parts,
        body: StreamedServiceBody,
        config: &QueryLimitsConfig,
        pool: Option<DecoderPool<'_>>,
        deadline: Instant,
    ) -> Result<(ProgramSource, Self), QueryError> {
        let safe_only = match head.method.as_str() {
            "POST" => false,
            "QUERY" => true,
            _ => return Err(QueryError::Method { method: head.method.clone(), allowed: METHODS }),
        };
        let fields = RequestFields::from_headers(&head.headers);
        let headers = CommonHeaders::parse_headers(&head.headers, &fields, config)?;
        let layout = parse_layout(&head.headers)?;
        if matches!(layout, BodyLayout::Form(_)) {
            refuse_header(fields.input, "ORFA-Input with a form")?;
        }
        refuse_parameters(&head.uri)?;
        let cache = parse_cache(fields.cache)?;
        let trust = parse_signature(fields.trust)?;
        let body = read_body(&head.headers, body, config, pool, deadline).await?;
        let is_named = cache.as_ref().is_some_and(|cache| cache.program_reference.is_some());
        let (language, input, program) = match layout {
            BodyLayout::Plain(language) => {
                let (input, program) = split_body(fields.input, body, is_named)?;
                (language, input, program)
            }
            BodyLayout::Form(boundary) => Box::pin(read_form(boundary, body, pool)).await?,
        };
        let program = Some(program).filter(|program| !program.is_empty() || !is_named);
        program.iter().try_for_each(|program| check_program_size(program, config.program_bytes.0))?;
        Ok((
            ProgramSource { language, program, cache, signature: trust },
            headers.into_request(input, safe_only),
        ))
    }

    /// Reads a request for a stored program: the input is the body, or the URL's parameters.
    ///
    /// # Errors
    /// Any error that can be found before the program runs.
    pub(crate) async fn read_input(
        head: &Parts,
        body: StreamedServiceBody,
        config: &QueryLimitsConfig,
        pool: Option<DecoderPool<'_>>,
        deadline: Instant,
    ) -> Result<Self, QueryError> {
        let headers = {
            let fields = RequestFields::from_headers(&head.headers);
            refuse_header(fields.input, "ORFA-Input with a stored program")?;
            CommonHeaders::parse_headers(&head.headers, &fields, config)?
        };
        let (is_in_url, safe_only) = match head.method.as_str() {
            "GET" | "HEAD" => (true, true),
            "POST" => (false, false),
            "QUERY" => (false, true),
            _ => return Err(QueryError::Method { method: head.method.clone(), allowed: METHODS }),
        };
        let input = if is_in_url {
            refuse_body(body, deadline).await?;
            read_parameters(&head.uri, pool).await?
        } else {
            refuse_parameters(&head.uri)?;
            read_body(&head.headers, body, config, pool, deadline).await?
        };
        Ok(headers.into_request(input, safe_only))
    }
}

/// Rejects `ORFA-Input` in a request whose input is not in front of a program.
fn refuse_header(input: SingleField<'_>, place: &'static str) -> Result<(), QueryError> {
    input.text()?.map_or(Ok(()), |_| Err(QueryError::InputMisplaced(place)))
}

/// Rejects parameters in the URL of a request whose input is in the body.
fn refuse_parameters(uri: &Uri) -> Result<(), QueryError> {
    match uri.query() {
        None | Some("") => Ok(()),
        Some(_) => Err(QueryError::InputMisplaced("parameters in the URL of a POST or QUERY")),
    }
}

/// Rejects the body of a request whose input is in the URL.
async fn refuse_body(body: StreamedServiceBody, deadline: Instant) -> Result<(), QueryError> {
    if body.is_end_stream() {
        return Ok(());
    }
    match Box::pin(read_request_body(body, 0, deadline)).await {
        Ok(_) => Ok(()),
        Err(RequestBodyError::TooLarge(_)) => Err(QueryError::InputMisplaced("a body in a GET or HEAD")),
        Err(error) => Err(error.into()),
    }
}

/// The methods of query routes, and of stored programs.
pub(crate) const METHODS: &str = "GET, HEAD, POST, QUERY";

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The headers that both kinds of requests share.
struct CommonHeaders {
    client_limits: Option<String>,
    list_calls: bool,
    wants_recording: bool,
}

impl CommonHeaders {
    fn parse_headers(
        headers: &HeaderMap,
        fields: &RequestFields<'_>,
        config: &QueryLimitsConfig,
    ) -> Result<Self, QueryError> {
        let granted = fields.limit.text()?;
        granted.map(|text| RunLimits::from_config(config).with_client_limits(text)).transpose()?;
        let list_calls = fields.has_preferences && list_contains(headers, &PREFER, b"calls");
        Ok(Self {
            client_limits: granted.map(str::to_owned),
            list_calls,
            wants_recording: parse_debug(fields.debug)?,
        })
    }

    fn into_request(self, input: Bytes, safe_only: bool) -> QueryRequest {
        let Self { client_limits: granted, list_calls, wants_recording: records } = self;
        QueryRequest { input, client_limits: granted, safe_only, list_calls, wants_recording: records }
    }
}

/// The longest query of a URL that is read inline, in bytes: a parameter takes two of them, and up to half a
/// microsecond.
const SHORT_QUERY: usize = 4 << 10;
/// The estimated CPU time per byte of a query, and of a form.
const QUERY_BYTE: Duration = Duration::from_nanos(100);
const FORM_BYTE: Duration = Duration::from_nanos(10);

/// Reads a long part of a request in the pool, charged to the client.
async fn read_in_pool<T: Send + 'static>(
    pool: Option<DecoderPool<'_>>,
    (bytes, byte): (usize, Duration),
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, QueryError> {
    let Some(DecoderPool { pool, payer, deadline }) = pool else { return Ok(read()) };
    let estimate = byte.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
    let request = JobRequest { kind: "request", payer, estimate, deadline };
    Ok(pool.run_paced(request, move |_| read()).await?)
}

/// Returns [`parameters_to_json`], of a long query from the pool.
async fn read_parameters(uri: &Uri, pool: Option<DecoderPool<'_>>) -> Result<Bytes, QueryError> {
    let query = uri.query().unwrap_or_default();
    if query.len() <= SHORT_QUERY {
        return Ok(parameters_to_json(query));
    }
    let (query, cost) = (query.to_owned(), (query.len(), QUERY_BYTE));
    Box::pin(read_in_pool(pool, cost, move || parameters_to_json(&query))).await
}

/// Returns the parameters of a URL as a JSON object. Values are strings, or lists of strings for repeated
/// names.
fn parameters_to_json(query: &str) -> Bytes {
    let mut input = serde_json::Map::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let value = serde_json::Value::from(&*value);
        match input.get_mut(&*name) {
            None => drop(input.insert(name.into_owned(), value)),
            Some(serde_json::Value::Array(values)) => values.push(value),
            Some(first) => *first = serde_json::Value::Array(vec![first.take(), value]),
        }
    }
    serde_json::Value::Object(input).to_string().into()
}

async fn read_body(
    headers: &HeaderMap,
    body: StreamedServiceBody,
    config: &QueryLimitsConfig,
    pool: Option<DecoderPool<'_>>,
    deadline: Instant,
) -> Result<Bytes, QueryError> {
    let body = read_request_body(body, config.request_body.0, deadline).await?;
    Ok(services::decompress(headers, body, config.request_body.0, pool).await?)
}

/// Parses `ORFA-Debug`, a boolean (RFC 9651).
fn parse_debug(debug: SingleField<'_>) -> Result<bool, QueryError> {
    let Some(text) = debug.text()? else { return Ok(false) };
    let item: Result<sfv::Item, _> = sfv::Parser::new(text).parse();
    let said = item.ok().and_then(|item| item.bare_item.as_boolean());
    said.ok_or_else(|| debug.header_error("it has to be ?1 or ?0"))
}

/// Returns the Content-Type of a program, for messages.
fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()
}

fn parse_layout(headers: &HeaderMap) -> Result<BodyLayout, QueryError> {
    let value = content_type(headers).ok_or(QueryError::NoContentType)?;
    if let Some(language) = parse_language(value) {
        return Ok(BodyLayout::Plain(language));
    }
    let essence = value.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    if essence == FORM_MEDIA_TYPE {
        let boundary = multer::parse_boundary(value).map_err(|error| QueryError::Form(error.to_string()))?;
        return Ok(BodyLayout::Form(boundary));
    }
    parse_language(&essence).map(BodyLayout::Plain).ok_or_else(|| QueryError::ContentType(essence))
}

fn parse_language(essence: &str) -> Option<ProgramLanguage> {
    match essence {
        "application/wasm" => Some(ProgramLanguage::Wasm),
        "text/javascript" | "application/javascript" => Some(ProgramLanguage::Javascript),
        "text/typescript" | "application/typescript" => Some(ProgramLanguage::Typescript),
        _ => None,
    }
}

/// Splits the body into input and program. Without `ORFA-Input`, all of it is the program, or the input if
/// the headers name the program.
fn split_body(input: SingleField<'_>, mut body: Bytes, is_named: bool) -> Result<(Bytes, Bytes), QueryError> {
    let Some(text) = input.text()? else {
        return Ok(if is_named { (body, Bytes::new()) } else { (Bytes::new(), body) });
    };
    let number: Result<sfv::Item, _> = sfv::Parser::new(text).parse();
    let number = number.ok().and_then(|item| item.bare_item.as_integer());
    let number = number.and_then(|number| usize::try_from(i64::from(number)).ok());
    let input = number.ok_or_else(|| input.header_error("it has to be a whole number of bytes"))?;
    if input > body.len() {
        return Err(QueryError::InputLength { input, body: body.len() });
    }
    Ok((body.split_to(input), body))
}

/// Reads a form, a long one in the pool.
async fn read_form(
    boundary: String,
    body: Bytes,
    pool: Option<DecoderPool<'_>>,
) -> Result<(ProgramLanguage, Bytes, Bytes), QueryError> {
    if body.len() <= SHORT_TEXT {
        return parse_form(boundary, body).await;
    }
    // All of the body is there, so that reading it waits for nothing.
    let cost = (body.len(), FORM_BYTE);
    let read =
        move || parse_form(boundary, body).now_or_never().unwrap_or(Err(RequestBodyError::Broken.into()));
    read_in_pool(pool, cost, read).await?
}

/// Reads the form. The program's language follows from the extension of its file name, or from its part's
/// type.
async fn parse_form(boundary: String, body: Bytes) -> Result<(ProgramLanguage, Bytes, Bytes), QueryError> {
    let wrong = |error: multer::Error| QueryError::Form(error.to_string());
    let stream = futures_util::stream::once(async { Ok::<_, std::io::Error>(body) });
    let mut form = multer::Multipart::new(stream, boundary);
    let (mut program, mut input) = (None, None);
    while let Some(field) = form.next_field().await.map_err(wrong)? {
        match field.name() {
            Some("program") if program.is_none() => {
                let language = part_language(&field)?;
                program = Some((language, field.bytes().await.map_err(wrong)?));
            }
            Some("input") if input.is_none() => input = Some(field.bytes().await.map_err(wrong)?),
            name => return Err(QueryError::Form(unexpected_part(name))),
        }
    }
    let (language, program) = program.ok_or(QueryError::NoProgram)?;
    Ok((language, input.unwrap_or_default(), program))
}

fn unexpected_part(name: Option<&str>) -> String {
    match name {
        Some("program" | "input") => "a part appears twice".into(),
        Some(name) => format!("there is no part `{name}`; use `program` and `input`"),
        None => "a part has no name".into(),
    }
}

fn part_language(field: &multer::Field<'_>) -> Result<ProgramLanguage, QueryError> {
    let by_type = field.content_type().and_then(|mime| parse_language(mime.essence_str()));
    let ending = field.file_name().and_then(|name| name.rsplit_once('.')).map(|(_, ending)| ending);
    let by_name = ending.and_then(ProgramLanguage::from_extension);
    // The file name takes precedence: clients guess types, and guess `video/mp2t` for `.ts`.
    by_name.or(by_type).ok_or_else(|| match field.content_type() {
        Some(mime) => QueryError::ContentType(mime.to_string()),
        None => QueryError::NoContentType,
    })
}

fn check_program_size(program: &Bytes, limit: u64) -> Result<(), QueryError> {
    match program.len() {
        0 => Err(QueryError::NoProgram),
        size if size as u64 > limit => Err(QueryError::ProgramSize { size, limit }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use offload::{OffloadConfig, OffloadPool, QuotaKey};

    use super::*;

    /// Reads a request, and returns its input and the number of jobs in the pool.
    async fn read_request(request: Request<Vec<u8>>) -> (Bytes, u64) {
        let pool = OffloadPool::start(OffloadConfig::default()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(3600);
        let decoders = Some(DecoderPool { pool: &pool, payer: QuotaKey::new(&1), deadline });
        let (head, body) = request.into_parts();
        let (config, body) = (QueryLimitsConfig::default(), services::body::full(body));
        let query_request = match head.method.as_str() {
            "GET" => QueryRequest::read_input(&head, body, &config, decoders, deadline).await,
            _ => {
                let read = QueryRequest::read_program_request(&head, body, &config, decoders, deadline).await;
                read.map(|(_, ask)| ask)
            }
        };
        (query_request.unwrap().input, pool.stats().kinds.get("request").map_or(0, |kind| kind.jobs))
    }

    #[tokio::test]
    async fn reads_a_long_query_in_the_pool() {
        for (count, in_pool) in [(10, 0), (1000, 1)] {
            let names: Vec<String> = (0..count).map(|number| format!("n{number}=1")).collect();
            let request = Request::get(format!("/q?{}", names.join("&"))).body(Vec::new()).unwrap();
            let (input, jobs) = read_request(request).await;
            let input: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&input).unwrap();
            assert_eq!((input.len(), jobs), (count, in_pool));
        }
    }

    #[tokio::test]
    async fn reads_a_long_form_in_the_pool() {
        for (bytes, in_pool) in [(1000, 0), (SHORT_TEXT, 1)] {
            let part = |name: &str, content: &str| {
                format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"{content}\r\n")
            };
            let program = part("program", "\r\ncontent-type: text/javascript\r\n\r\n1");
            let input = part("input", &format!("\r\n\r\n{}", "a".repeat(bytes)));
            let request = Request::post("/q").header("content-type", "multipart/form-data; boundary=x");
            let body = format!("{program}{input}--x--\r\n").into_bytes();
            let (input, jobs) = read_request(request.body(body).unwrap()).await;
            assert_eq!((input.len(), jobs), (bytes, in_pool));
        }
    }
}
