//! Rendering of requests from templates: values are put into URLs, headers and bodies with the encoding of
//! each place.

mod placeholder_value;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use json::JsonNode;
use offload::work;
use services::calls::{self, MAX_URL_BYTES};
use services::path::{self, percent_encode};
use services::{CallError, PathError, ServiceRequest};

use self::placeholder_value::{PlaceholderError, PlaceholderValue, ScalarText};
use crate::plan::PartPlan;
use crate::plan::template::{
    BodyTemplate, QueryPair, SlotSource, TemplatePiece, TemplateSlot, TextTemplate, template_slots,
};
use crate::problem::{AggregateError, PartFailureReason};
use crate::value::{AvailableValues, work_of_values};

/// A reason why there is no request.
pub(crate) enum RenderError {
    /// The part fails.
    Part(PartFailureReason),
    /// The client's request is invalid.
    Request(AggregateError),
}

impl From<PartFailureReason> for RenderError {
    fn from(reason: PartFailureReason) -> Self {
        Self::Part(reason)
    }
}

/// The item that a request is made for.
#[derive(Clone, Copy)]
pub(crate) enum PartItem<'a> {
    Node(JsonNode<'a>),
    /// A text of a list input, and whether it is unquoted in JSON.
    Text(&'a str, bool),
}

/// The values for the URLs of a part's requests.
struct UrlValues<'a> {
    placeholder_values: Vec<PlaceholderValue<'a>>,
    /// The encoded values of the list, if there is one.
    values: Vec<String>,
    /// The values of each request.
    chunks: Vec<Range<usize>>,
}

/// The renderer of a part's requests, for an item or without one.
pub(crate) struct PartRenderer<'a> {
    pub(crate) available_values: &'a AvailableValues<'a>,
    pub(crate) part: &'a PartPlan,
    pub(crate) item: Option<PartItem<'a>>,
}

impl<'a> PartRenderer<'a> {
    /// Returns the requests, at most `most`: none for an empty list, several for a long one.
    pub(crate) async fn render_requests(&self, most: u32) -> Result<Vec<ServiceRequest>, RenderError> {
        let slots = self.part.url.slots().chain(self.part.non_url_slots());
        offload::move_if_long(work::VALUE + self.estimated_work(slots)).await;
        let memory = &self.available_values.memory;
        let left = memory.remaining();
        let values = self.url_values(most);
        let lent = left.saturating_sub(memory.remaining());
        let requests = match values {
            Ok(values) => self.render_chunks(values).await,
            Err(stop) => Err(stop),
        };
        memory.release(lent);
        requests
    }

    /// Returns the values that an item puts into the URL. Items with equal keys have equal requests.
    pub(crate) async fn item_key(&self) -> Result<Vec<u8>, RenderError> {
        let of_item = || self.part.url.slots().filter(|slot| matches!(slot.source, SlotSource::Each(_)));
        offload::move_if_long(work::VALUE + self.estimated_work(of_item())).await;
        let mut key = Vec::new();
        let memory = &self.available_values.memory;
        for slot in of_item() {
            let texts = memory.charge_temporarily(|| match self.find_value(slot)? {
                PlaceholderValue::Missing => Ok::<_, RenderError>(Vec::new()),
                PlaceholderValue::Single(text) => Ok(vec![text]),
                PlaceholderValue::List(texts) => Ok(texts),
            })?;
            key.extend_from_slice(&texts.len().to_le_bytes());
            for text in &texts {
                key.extend_from_slice(&text.text.len().to_le_bytes());
                key.extend_from_slice(text.text.as_bytes());
            }
        }
        Ok(key)
    }

    /// Returns the estimated work to find and write the values of placeholders.
    fn estimated_work<'s>(&self, slots: impl Iterator<Item = &'s TemplateSlot>) -> usize {
        work::sum_estimates(slots.map(|slot| match (&slot.source, self.slot_root(&slot.source)) {
            (_, Some((root, path))) => work_of_values(root, path),
            (SlotSource::Input(input), None) => {
                let value = self.available_values.inputs.get(*input).and_then(Option::as_ref);
                value.map_or(0, |value| value.texts.iter().map(|text| text.len() + work::VALUE).sum())
            }
            (_, None) => 0,
        }))
    }

    /// Finds the values for the URL, and divides a list of them.
    fn url_values(&self, most: u32) -> Result<UrlValues<'a>, RenderError> {
        let found = self.part.url.slots().map(|slot| self.find_value(slot)).collect::<Result<Vec<_>, _>>()?;
        let is_many =
            |placeholder_value: &PlaceholderValue<'_>| matches!(placeholder_value, PlaceholderValue::List(_));
        let Some(place) = found.iter().position(is_many) else {
            return Ok(UrlValues {
                placeholder_values: found,
                values: Vec::new(),
                chunks: vec![Range::default()],
            });
        };
        let PlaceholderValue::List(values) = &found[place] else {
            return Ok(UrlValues { placeholder_values: found, values: Vec::new(), chunks: Vec::new() });
        };
        let in_path = template_slots(&self.part.url.path).nth(place);
        let encoded = |value: &ScalarText<'_>| match in_path {
            Some(slot) => self.path_segment(slot, &value.text),
            None => Ok(percent_encode(&value.text)),
        };
        let values = values.iter().map(encoded).collect::<Result<Vec<String>, _>>()?;
        let lengths: Vec<usize> = values.iter().map(String::len).collect();
        let room = MAX_URL_BYTES.saturating_sub(self.render_url(&found, &[])?.len());
        let chunks = calls::split_into_groups(
            &lengths,
            self.separator_length(place),
            self.part.batch.unwrap_or(usize::MAX),
            room,
        );
        if chunks.len() > most as usize {
            return Err(RenderError::Part(match self.item {
                Some(_) => PartFailureReason::FanOut(most),
                None => PartFailureReason::Call(Arc::new(CallError::Limit("limit-calls"))),
            }));
        }
        Ok(UrlValues { placeholder_values: found, values, chunks })
    }

    async fn render_chunks(&self, values: UrlValues<'a>) -> Result<Vec<ServiceRequest>, RenderError> {
        let UrlValues { placeholder_values: found, values, chunks } = values;
        let memory = &self.available_values.memory;
        // The first request is counted by the caller. Each further one takes as long, except for its list.
        let further = if chunks.len() > 1 { self.estimated_work(self.part.non_url_slots()) } else { 0 };
        let mut requests = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let url = self.render_url(&found, values.get(chunk).unwrap_or_default())?;
            if !requests.is_empty() {
                offload::move_if_long(further + url.len()).await;
            }
            let request = memory.charge_temporarily(|| self.build_request(&url))?;
            memory.charge(url.len() + request.body.len()).map_err(PartFailureReason::from)?;
            requests.push(request);
        }
        Ok(requests)
    }

    /// Returns the number of bytes that precede each value of the list at a placeholder.
    fn separator_length(&self, place: usize) -> usize {
        let exploded = |pair: &&QueryPair| {
            pair.value.iter().flat_map(|value| template_slots(value)).any(|slot| slot.explode)
        };
        let slot = self.part.url.slots().nth(place);
        match slot.filter(|slot| slot.explode).and_then(|_| self.part.url.query.iter().find(exploded)) {
            Some(pair) => pair.name.len() + 2,
            None => 1,
        }
    }

    /// Returns the path and query. `list` replaces the list.
    fn render_url(
        &self,
        placeholder_values: &[PlaceholderValue<'_>],
        list: &[String],
    ) -> Result<String, RenderError> {
        let url = &self.part.url;
        let mut found = placeholder_values.iter();
        let mut text = String::new();
        for piece in &url.path {
            match piece {
                TemplatePiece::Text(plain) => text.push_str(plain),
                TemplatePiece::Slot(slot) => match found.next() {
                    Some(PlaceholderValue::Single(value)) => {
                        text.push_str(&self.path_segment(slot, &value.text)?)
                    }
                    Some(PlaceholderValue::List(_)) => text.push_str(&list.join(",")),
                    _ => return Err(self.missing_value_error(slot)),
                },
            }
        }
        let mut first = true;
        for pair in &url.query {
            let Some(value) = &pair.value else {
                push_separator(&mut text, &mut first);
                text.push_str(&pair.name);
                continue;
            };
            let mut written = String::new();
            let (mut is_missing, mut is_exploded) = (None, false);
            for piece in value {
                match piece {
                    TemplatePiece::Text(plain) => written.push_str(plain),
                    TemplatePiece::Slot(slot) => match found.next() {
                        Some(PlaceholderValue::Single(value)) => {
                            written.push_str(&percent_encode(&value.text))
                        }
                        Some(PlaceholderValue::List(_)) if slot.explode => is_exploded = true,
                        Some(PlaceholderValue::List(_)) => written.push_str(&list.join(",")),
                        _ => is_missing = Some(slot),
                    },
                }
            }
            match is_missing {
                // A parameter without a value for its input is left out.
                Some(slot) if matches!(slot.source, SlotSource::Input(_)) => continue,
                Some(slot) => return Err(self.missing_value_error(slot)),
                None => {}
            }
            let values = if is_exploded { list } else { std::slice::from_ref(&written) };
            for value in values {
                push_separator(&mut text, &mut first);
                text.push_str(&pair.name);
                text.push('=');
                text.push_str(value);
            }
        }
        Ok(text)
    }

    fn build_request(&self, url: &str) -> Result<ServiceRequest, RenderError> {
        let invalid = || CallError::Path(PathError::Invalid);
        let path_and_query =
            PathAndQuery::try_from(url).map_err(|_| PartFailureReason::Call(Arc::new(invalid())))?;
        self.check_path(path_and_query.path())?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, const { HeaderValue::from_static("application/json") });
        for (name, template) in &self.part.headers {
            let value = self.render_text(template, |text| HeaderValue::from_str(text).is_ok())?;
            headers.extend(value.and_then(|value| Some((name.clone(), HeaderValue::from_str(&value).ok()?))));
        }
        let body = match &self.part.body {
            None => Bytes::new(),
            Some(template) => {
                headers.entry(CONTENT_TYPE).or_insert(const { HeaderValue::from_static("application/json") });
                let mut out = Vec::new();
                if !self.render_body(template, &mut out)? {
                    out.extend_from_slice(b"null");
                }
                out.into()
            }
        };
        Ok(ServiceRequest { method: self.part.method.clone(), path_and_query, headers, body })
    }

    /// Checks the path of a call. Several valid segments can still begin the path with an empty one (`;x`),
    /// or complete dots of the declaration to `..`. The first value is reported, since a path without values
    /// has been checked before.
    fn check_path(&self, path: &str) -> Result<(), RenderError> {
        let is_good = path::check_path(path).and_then(|()| path::check_start(path)).is_ok();
        match template_slots(&self.part.url.path).next() {
            Some(slot) if !is_good => Err(self.invalid_value_error(slot, PlaceholderError::InvalidSegment)),
            _ => Ok(()),
        }
    }

    /// Renders a text, and checks each value with `fits`. Returns `None` if a value is missing.
    fn render_text(
        &self,
        template: &TextTemplate,
        fits: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, RenderError> {
        let mut text = String::new();
        for piece in template {
            match piece {
                TemplatePiece::Text(plain) => text.push_str(plain),
                TemplatePiece::Slot(slot) => {
                    let value = match self.find_value(slot)? {
                        PlaceholderValue::Missing => return Ok(None),
                        PlaceholderValue::Single(value) => value.text,
                        PlaceholderValue::List(values) => {
                            let values: Vec<&str> = values.iter().map(|value| &*value.text).collect();
                            Cow::Owned(values.join(","))
                        }
                    };
                    if !fits(&value) {
                        return Err(self.invalid_value_error(slot, PlaceholderError::Controls));
                    }
                    text.push_str(&value);
                }
            }
        }
        Ok(Some(text))
    }

    /// Writes a JSON body. Returns `false` if it has no value.
    fn render_body(&self, template: &BodyTemplate, out: &mut Vec<u8>) -> Result<bool, RenderError> {
        match template {
            BodyTemplate::Text(text) => out.extend_from_slice(text.as_bytes()),
            BodyTemplate::Slot(slot) => return self.render_json(slot, out),
            BodyTemplate::Template(template) => match self.render_text(template, |_| true)? {
                Some(text) => write_json_string(&text, out),
                None => return Ok(false),
            },
            BodyTemplate::Object(members) => {
                out.push(b'{');
                let mut first = true;
                for (name, value) in members {
                    let before = out.len();
                    if !first {
                        out.push(b',');
                    }
                    out.extend_from_slice(name.as_bytes());
                    out.push(b':');
                    match self.render_body(value, out)? {
                        true => first = false,
                        false => out.truncate(before),
                    }
                }
                out.push(b'}');
            }
            BodyTemplate::Array(items) => {
                out.push(b'[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    if !self.render_body(item, out)? {
                        out.extend_from_slice(b"null");
                    }
                }
                out.push(b']');
            }
        }
        Ok(true)
    }

    /// Writes a value of any type as JSON.
    fn render_json(&self, slot: &TemplateSlot, out: &mut Vec<u8>) -> Result<bool, RenderError> {
        if let Some((root, path)) = self.slot_root(&slot.source)
            && !path.has_wildcard()
        {
            let json_node = path.find(root);
            if let Some(node) = json_node {
                out.extend_from_slice(node.text());
            }
            return Ok(json_node.is_some());
        }
        let write = |value: &ScalarText<'_>, out: &mut Vec<u8>| match value.is_unquoted {
            true => out.extend_from_slice(value.text.as_bytes()),
            false => write_json_string(&value.text, out),
        };
        match self.find_value(slot)? {
            PlaceholderValue::Missing => return Ok(false),
            PlaceholderValue::Single(value) => write(&value, out),
            PlaceholderValue::List(values) => {
                out.push(b'[');
                for (place, value) in values.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    write(value, out);
                }
                out.push(b']');
            }
        }
        Ok(true)
    }
}

fn push_separator(text: &mut String, first: &mut bool) {
    text.push(if std::mem::take(first) { '?' } else { '&' });
}

fn write_json_string(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}
