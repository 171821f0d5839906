//! What an HTTP request asks for: a program, its input, its limits.
//!
//! The body is the input followed by the program, and `ORFA-Input` says where the one ends; or it is a
//! form with the parts `program` and `input`. Nothing runs before all of it is read and understood.

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, HeaderMap};
use http::{Method, Request};
use http_body_util::BodyExt;
use services::Body;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::config::LimitsConfig;
use crate::limits::Limits;
use crate::problem::{QueryError, content_type};

/// What a program is written in, as far as the gateway sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    Wasm,
    Javascript,
    Typescript,
}

/// A request, understood.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) language: Language,
    pub(crate) program: Bytes,
    pub(crate) input: Bytes,
    pub(crate) limits: Limits,
    /// The method was QUERY: only safe calls may be made.
    pub(crate) safe_only: bool,
    /// `Prefer: calls` (RFC 7240): list the upstream calls in `Server-Timing`.
    pub(crate) list_calls: bool,
}

/// How the body is laid out.
enum Layout {
    Plain(Language),
    Form(String),
}

impl Ask {
    /// Reads a request to its end.
    ///
    /// # Errors
    /// Everything that is wrong before a program is looked at.
    pub(crate) async fn read(request: Request<Body>, config: &LimitsConfig) -> Result<Self, QueryError> {
        let (head, body) = request.into_parts();
        let safe_only = method(&head.method)?;
        not_yet(&head.headers)?;
        let layout = layout(&head.headers)?;
        let limits = limits(&head.headers, config)?;
        let list_calls = prefers_calls(&head.headers);
        let body = collect(body, config.body.0).await?;
        let body = decode(&head.headers, body, config.body.0).await?;
        let (language, input, program) = match layout {
            Layout::Plain(language) => {
                let (input, program) = split(&head.headers, body)?;
                (language, input, program)
            }
            Layout::Form(boundary) => form(boundary, body).await?,
        };
        check_size(&program, config.program.0)?;
        Ok(Self { language, program, input, limits, safe_only, list_calls })
    }
}

fn method(method: &Method) -> Result<bool, QueryError> {
    match method.as_str() {
        "POST" => Ok(false),
        "QUERY" => Ok(true),
        _ => Err(QueryError::Method(method.clone())),
    }
}

/// Caching, trust and recordings are announced by QUERY.md and come later; until then they are refused,
/// since a client that asks for them relies on them.
fn not_yet(headers: &HeaderMap) -> Result<(), QueryError> {
    let asked =
        ["ORFA-Cache", "ORFA-Trust", "ORFA-Debug"].into_iter().find(|name| headers.contains_key(*name));
    asked.map_or(Ok(()), |name| Err(QueryError::NotYet(name)))
}

fn layout(headers: &HeaderMap) -> Result<Layout, QueryError> {
    let value = content_type(headers).ok_or(QueryError::NoContentType)?;
    let essence = value.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    if essence == "multipart/form-data" {
        let boundary = multer::parse_boundary(value).map_err(|error| QueryError::Form(error.to_string()))?;
        return Ok(Layout::Form(boundary));
    }
    language(&essence).map(Layout::Plain).ok_or_else(|| QueryError::ContentType(essence))
}

fn language(essence: &str) -> Option<Language> {
    match essence {
        "application/wasm" => Some(Language::Wasm),
        "text/javascript" | "application/javascript" => Some(Language::Javascript),
        "text/typescript" | "application/typescript" => Some(Language::Typescript),
        _ => None,
    }
}

fn limits(headers: &HeaderMap, config: &LimitsConfig) -> Result<Limits, QueryError> {
    let caps = Limits::caps(config);
    match single(headers, "ORFA-Limit")? {
        Some(text) => caps.granted(text),
        None => Ok(caps),
    }
}

fn prefers_calls(headers: &HeaderMap) -> bool {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|preference| preference.trim().eq_ignore_ascii_case("calls"))
}

/// A header that may stand there once.
fn single<'a>(headers: &'a HeaderMap, header: &'static str) -> Result<Option<&'a str>, QueryError> {
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(QueryError::Header { header, detail: "it stands there more than once".into() });
    }
    let text = value.to_str();
    text.map(Some).map_err(|_| QueryError::Header { header, detail: "it is not ASCII text".into() })
}

/// Reads the body. Most come in one piece, which is then passed on as it is.
async fn collect(mut body: Body, limit: u64) -> Result<Bytes, QueryError> {
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| QueryError::BrokenBody)?.into_data() else { continue };
        size += piece.len() as u64;
        if size > limit {
            return Err(QueryError::BodySize(limit));
        }
        pieces.push(piece);
    }
    match pieces.len() {
        0 | 1 => Ok(pieces.pop().unwrap_or_default()),
        _ => Ok(pieces.concat().into()),
    }
}

/// Undoes Content-Encoding; what comes out is bounded like what came in.
async fn decode(headers: &HeaderMap, body: Bytes, limit: u64) -> Result<Bytes, QueryError> {
    let Some(coding) = headers.get(CONTENT_ENCODING) else { return Ok(body) };
    let coding = String::from_utf8_lossy(coding.as_bytes()).to_ascii_lowercase();
    match coding.as_str() {
        "identity" => Ok(body),
        "gzip" | "x-gzip" => {
            // Half a program must not run: all members count, and what follows them is an error.
            let mut decoder = GzipDecoder::new(&*body);
            decoder.multiple_members(true);
            inflate(decoder, limit).await
        }
        "deflate" => inflate(ZlibDecoder::new(&*body), limit).await,
        "br" => inflate(BrotliDecoder::new(&*body), limit).await,
        "zstd" => inflate(ZstdDecoder::new(&*body), limit).await,
        _ => Err(QueryError::Encoding(coding)),
    }
}

async fn inflate(decoder: impl AsyncRead + Unpin, limit: u64) -> Result<Bytes, QueryError> {
    let mut decoder = decoder.take(limit.saturating_add(1));
    let mut out = BytesMut::new();
    while decoder.read_buf(&mut out).await.map_err(|_| QueryError::BrokenEncoding)? > 0 {}
    if out.len() as u64 > limit {
        return Err(QueryError::BodySize(limit));
    }
    Ok(out.freeze())
}

/// Divides the body into input and program. Without `ORFA-Input` all of it is program.
fn split(headers: &HeaderMap, mut body: Bytes) -> Result<(Bytes, Bytes), QueryError> {
    const HEADER: &str = "ORFA-Input";
    let Some(text) = single(headers, HEADER)? else { return Ok((Bytes::new(), body)) };
    let number: Result<sfv::Item, _> = sfv::Parser::new(text).parse();
    let number = number.ok().and_then(|item| item.bare_item.as_integer());
    let number = number.and_then(|number| usize::try_from(i64::from(number)).ok());
    let detail = || "it has to be a whole number of bytes".to_owned();
    let input = number.ok_or_else(|| QueryError::Header { header: HEADER, detail: detail() })?;
    if input > body.len() {
        return Err(QueryError::InputLength { input, body: body.len() });
    }
    Ok((body.split_to(input), body))
}

/// Reads the form. The program's language is its part's type, or the ending of its file name.
async fn form(boundary: String, body: Bytes) -> Result<(Language, Bytes, Bytes), QueryError> {
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
            name => return Err(QueryError::Form(unexpected(name))),
        }
    }
    let (language, program) = program.ok_or(QueryError::NoProgram)?;
    Ok((language, input.unwrap_or_default(), program))
}

fn unexpected(name: Option<&str>) -> String {
    match name {
        Some("program" | "input") => "a part stands there twice".into(),
        Some(name) => format!("there is no part `{name}`; use `program` and `input`"),
        None => "a part has no name".into(),
    }
}

fn part_language(field: &multer::Field<'_>) -> Result<Language, QueryError> {
    let by_type = field.content_type().and_then(|mime| language(mime.essence_str()));
    let ending = field.file_name().and_then(|name| name.rsplit_once('.')).map(|(_, ending)| ending);
    let by_name = match ending {
        Some("wasm") => Some(Language::Wasm),
        Some("js" | "mjs") => Some(Language::Javascript),
        Some("ts" | "mts") => Some(Language::Typescript),
        _ => None,
    };
    // The file name goes first: clients guess types, and guess `video/mp2t` for `.ts`.
    by_name.or(by_type).ok_or_else(|| match field.content_type() {
        Some(mime) => QueryError::ContentType(mime.to_string()),
        None => QueryError::NoContentType,
    })
}

fn check_size(program: &Bytes, limit: u64) -> Result<(), QueryError> {
    match program.len() {
        0 => Err(QueryError::NoProgram),
        size if size as u64 > limit => Err(QueryError::ProgramSize { size, limit }),
        _ => Ok(()),
    }
}
