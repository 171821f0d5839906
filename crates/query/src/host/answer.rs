//! `done`, `status` and `header`: the parts of the response that an untrusted program may control.

use bytes::BytesMut;
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG, EXPIRES, HeaderName,
    HeaderValue, LAST_MODIFIED, LINK, LOCATION, RETRY_AFTER,
};
use query_abi::{AbiCode, HOST_MODULE};
use sandbox::{Caller, GuestResult, Linker, Trapped};
use serde_json::json;

use super::call_host_function;
use super::guest::{MemoryView, QueryGuest};
use super::steps::{PartOutcome, answer_hash, call_in_steps, copy_in};
use crate::limits::LimitKind;
use crate::problem::QueryError;

/// The headers that a program may set. `Set-Cookie`, CORS and HSTS are excluded, so that untrusted responses
/// can't change a browser's security settings.
static ALLOWED_HEADERS: [HeaderName; 10] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_LANGUAGE,
    CONTENT_TYPE,
    ETAG,
    EXPIRES,
    LAST_MODIFIED,
    LINK,
    LOCATION,
    RETRY_AFTER,
];

/// The maximum length of a header's value in bytes. Clients and proxies reject responses whose head exceeds
/// some 64 KiB.
const MAX_VALUE_BYTES: u32 = 4096;
/// The maximum length of a name. Longer names are not in [`ALLOWED_HEADERS`].
const MAX_NAME_BYTES: u32 = 64;

pub(super) fn add_to_linker(linker: &mut Linker<QueryGuest>) -> GuestResult<()> {
    linker.func_wrap_async(
        HOST_MODULE,
        "done",
        |mut caller: Caller<'_, QueryGuest>, (data, len): (u32, u32)| {
            Box::new(async move {
                let hash = answer_hash(&mut caller, "done", (data, len)).await?;
                let with = move |_: &mut MemoryView<'_>| Ok(json!({ "length": len, "sha256": hash }));
                let mut body = BytesMut::new();
                call_in_steps(&mut caller, "done", with, move |view| done(view, (data, len), &mut body)).await
            })
        },
    )?;
    linker.func_wrap(HOST_MODULE, "status", |mut caller: Caller<'_, QueryGuest>, code: i32| {
        call_host_function(
            &mut caller,
            "status",
            |_| Ok(json!({ "code": code })),
            |view| Ok(status(view, code)),
        )
    })?;
    linker.func_wrap(
        HOST_MODULE,
        "header",
        |mut caller: Caller<'_, QueryGuest>, name: u32, name_len: u32, value: u32, value_len: u32| {
            let with = |view: &mut MemoryView<'_>| {
                Ok(json!({ "name": view.note_text(name, name_len)?, "value": view.note_text(value, value_len)? }))
            };
            call_host_function(&mut caller, "header", with, |view| header(view, (name, name_len), (value, value_len)))
        },
    )?;
    Ok(())
}

fn done(view: &mut MemoryView<'_>, text: (u32, u32), body: &mut BytesMut) -> GuestResult<PartOutcome<()>> {
    if view.guest.answer.body.is_some() {
        return Err(Trapped::new(QueryError::DoneTwice));
    }
    let len = view.slice(text.0, text.1)?.len();
    if len > view.guest.limits.size(LimitKind::Output) {
        return Err(Trapped::new(QueryError::from(view.guest.limits.exceeded_error(LimitKind::Output))));
    }
    if body.is_empty() {
        view.guest.hold_memory(len).map_err(Trapped::new)?;
    }
    if !copy_in(view, text, body)? {
        return Ok(PartOutcome::Yield);
    }
    view.guest.answer.body = Some(std::mem::take(body).freeze());
    Ok(PartOutcome::Done(()))
}

fn status(view: &mut MemoryView<'_>, code: i32) -> i32 {
    let status = u16::try_from(code).ok().filter(|code| (200..600).contains(code));
    let Some(status) = status.and_then(|code| StatusCode::from_u16(code).ok()) else {
        return AbiCode::Invalid as i32;
    };
    view.guest.answer.status = Some(status);
    AbiCode::Ok as i32
}

fn header(view: &mut MemoryView<'_>, name: (u32, u32), value: (u32, u32)) -> GuestResult<i32> {
    let text = if name.1 > MAX_NAME_BYTES { "" } else { view.read_text(name.0, name.1)? };
    let mut allowed = ALLOWED_HEADERS.iter();
    let Some(name) = allowed.find(|allowed| allowed.as_str().eq_ignore_ascii_case(text)) else {
        let name = view.quote(name.0, name.1)?.to_ascii_lowercase();
        return Err(Trapped::new(QueryError::AnswerHeader(name)));
    };
    if value.1 > MAX_VALUE_BYTES {
        return Ok(AbiCode::Invalid as i32);
    }
    let value = HeaderValue::from_bytes(view.slice(value.0, value.1)?);
    let Ok(value) = value else { return Ok(AbiCode::Invalid as i32) };
    view.guest.answer.headers.insert(name.clone(), value);
    Ok(AbiCode::Ok as i32)
}
