//! The plan of a single part, independent of the others.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use diagnostics::Diagnostics;
use http::{HeaderName, Method};
use json::pointer::append_step;
use json::{JsonDocument, JsonPath};
use services::{UpstreamService, path};

use super::template::{
    self, BodyTemplate, SlotSource, TemplateScope, TemplateSlot, TextTemplate, UrlTemplate,
};
use super::{
    EachItem, FailureFallback, ItemSource, JoinKeys, PartPath, PartPlan, PlanContext, json_name,
    parse_join_keys,
};
use crate::declaration::error_kind::DeclarationErrorKind;
use crate::declaration::{
    self, AggregateDeclaration, InputPlace, InputType, MemberSelection, RowCardinality,
};

/// A reader of a part, which reports its mistakes.
pub(super) struct PartReader<'a> {
    pub(super) place: String,
    pub(super) names: TemplateScope<'a>,
    pub(super) declaration: &'a AggregateDeclaration,
    pub(super) context: &'a PlanContext<'a>,
    pub(super) mistakes: &'a mut Diagnostics,
}

/// Whether a method is safe.
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Whether a part reads the client's body.
pub(super) fn reads_body(part: &PartPlan) -> bool {
    part_slots(part).iter().any(|slot| matches!(slot.source, SlotSource::Body(_)))
}

/// Returns all placeholders of a part.
pub(crate) fn part_slots(part: &PartPlan) -> Vec<&TemplateSlot> {
    part.url.slots().chain(part.non_url_slots()).collect()
}

impl PartReader<'_> {
    fn report_mistake(
        &mut self,
        kind: DeclarationErrorKind,
        member: &str,
        message: impl Into<String>,
        hint: &str,
    ) {
        let place = if member.is_empty() { self.place.clone() } else { append_step(&self.place, member) };
        self.mistakes.add(kind, place, message, hint);
    }

    pub(super) fn read_part(&mut self, name: &str, part: &declaration::PartDeclaration) -> Option<PartPlan> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) || !name.bytes().all(plain) {
            let hint =
                "use letters, digits, `_` and `-`, a letter first: it is used in placeholders and headers";
            self.report_mistake(
                DeclarationErrorKind::Call,
                "",
                format!("`{name}` is not a valid name for a part"),
                hint,
            );
        }
        let (method, word, target) = self.read_method(part)?;
        let call = self.read_call(word, target);
        let headers = self.read_headers(part);
        let body = part.body.as_ref().and_then(|body| {
            let read = BodyTemplate::parse(body, self.names);
            read.map_err(|message| {
                self.report_mistake(DeclarationErrorKind::Placeholder, "body", message, PLACEHOLDERS)
            })
            .ok()
        });
        if part.body.is_some() && is_safe(&method) {
            self.report_mistake(
                DeclarationErrorKind::Call,
                "body",
                format!("a {method} request has no body"),
                "use another method",
            );
        }
        let each = part.each.as_ref().map(|each| self.read_each(name, part, each));
        let joins = part.join.as_ref().map(|join| self.read_join(name, join));
        if part.each.is_some() && part.join.is_some() {
            let hint = "leave `join` out: what `each` calls is put into its items anyway";
            self.report_mistake(
                DeclarationErrorKind::Join,
                "join",
                "a part has `each` or `join`, not both",
                hint,
            );
        }
        if part.each.is_none() && (part.name.is_some() || part.apart) {
            let hint = "with `join`, write `as` within it";
            self.report_mistake(DeclarationErrorKind::Each, "", "`as` and `apart` belong to `each`", hint);
        }
        if part.each.is_some() && !is_safe(&method) && !self.declaration.sequential {
            let hint = "write `sequential: true` at the top if this is meant";
            self.report_mistake(
                DeclarationErrorKind::Unsafe,
                "each",
                format!("`each` would send several {method} requests"),
                hint,
            );
        }
        let at = part.at.clone().unwrap_or_default();
        let document = JsonDocument::new(Bytes::from_static(b"null")).ok()?;
        if let Err(error) = document.root().pointer(&at) {
            self.report_mistake(
                DeclarationErrorKind::Call,
                "at",
                error.to_string(),
                "write it as in `/items`",
            );
        }
        let fields = part.fields.as_ref().map(|fields| self.read_fields(fields));
        if part.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
            self.report_mistake(
                DeclarationErrorKind::Call,
                "timeout",
                "the timeout must be greater than zero",
                "write it as in `500ms`",
            );
        }
        let (service, url) = call?;
        let read = PartPlan {
            name: name.into(),
            method,
            service,
            url,
            target: target.to_owned(),
            headers,
            body,
            each: each.transpose_or_none()?,
            joins: joins.transpose_or_none()?,
            pointer: at,
            fields: fields.transpose_or_none()?,
            fallback: fallback(part),
            timeout: part.timeout.map(Into::into),
            batch: part.batch,
            dependencies: Vec::new(),
            is_streamable: false,
            children: Vec::new(),
        };
        self.check_slots(&read, word);
        Some(PartPlan { dependencies: needs(&read).into_iter().collect(), ..read })
    }

    /// Returns the method, its keyword, and the target of the call.
    fn read_method<'p>(
        &mut self,
        part: &'p declaration::PartDeclaration,
    ) -> Option<(Method, &'static str, &'p str)> {
        let all = [
            (Method::GET, "get", &part.get),
            (Method::HEAD, "head", &part.head),
            (Method::POST, "post", &part.post),
            (Method::PUT, "put", &part.put),
            (Method::PATCH, "patch", &part.patch),
            (Method::DELETE, "delete", &part.delete),
        ];
        let mut written =
            all.into_iter().filter_map(|(method, word, call)| Some((method, word, &**call.as_ref()?)));
        let first = written.next();
        if first.is_none() || written.next().is_some() {
            let message = "a part has exactly one of `get`, `head`, `post`, `put`, `patch` and `delete`";
            self.report_mistake(
                DeclarationErrorKind::Call,
                "",
                message,
                "write it as in `get: \"profile/buyers\"`",
            );
            return None;
        }
        first
    }

    fn read_call(&mut self, word: &str, target: &str) -> Option<(Arc<UpstreamService>, UrlTemplate)> {
        let plain = target.strip_prefix("http://").unwrap_or(target);
        let Some((service, path)) = plain.find(['/', '?']).map(|end| plain.split_at(end)) else {
            let hint = "write the service's name, then the path: `profile/buyers?limit=20`";
            self.report_mistake(DeclarationErrorKind::Call, word, format!("`{target}` has no path"), hint);
            return None;
        };
        let services = self.context.services;
        let Some(service) = services.get(service).cloned() else {
            let names: Vec<&str> = services.names().map(|name| &**name).collect();
            let hint = format!("the services are `{}`", names.join("`, `"));
            self.report_mistake(
                DeclarationErrorKind::Call,
                word,
                format!("there is no service `{service}`"),
                &hint,
            );
            return None;
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let url = UrlTemplate::parse(&path, self.names);
        let url = url
            .map_err(|message| {
                self.report_mistake(DeclarationErrorKind::Placeholder, word, message, PLACEHOLDERS)
            })
            .ok()?;
        let sample = sample(&url.path);
        let checked = match path::parse_target(&format!("http://{}{sample}", service.name())) {
            Ok(_) => service.check_path(&sample),
            Err(error) => Err(error),
        };
        if let Err(error) = checked {
            let hint = "write the path as the service has it, percent-encoded where needed";
            self.report_mistake(DeclarationErrorKind::Call, word, error.to_string(), hint);
        }
        let literal = url.query.iter().flat_map(|pair| pair.value.iter().flatten());
        let texts = literal.filter_map(|piece| match piece {
            template::TemplatePiece::Text(text) => Some(text),
            template::TemplatePiece::Slot(_) => None,
        });
        if texts.chain(url.query.iter().map(|pair| &pair.name)).any(|text| !is_query(text)) {
            let hint = "percent-encode everything except letters, digits and -._~,:;@!$'()*+/";
            self.report_mistake(
                DeclarationErrorKind::Call,
                word,
                "the query has a character that is not allowed in a URL",
                hint,
            );
        }
        Some((service, url))
    }

    fn read_headers(&mut self, part: &declaration::PartDeclaration) -> Vec<(HeaderName, TextTemplate)> {
        let mut headers = Vec::new();
        for (name, value) in &part.headers {
            let member = append_step("headers", name);
            let place = format!("{}/{member}", self.place);
            let template = self.names.parse_template(value);
            match (HeaderName::try_from(name.as_str()), template) {
                (Ok(known), Ok(template)) => {
                    let alone =
                        http::HeaderMap::from_iter([(known.clone(), http::HeaderValue::from_static(""))]);
                    if let Err(error) = services::headers::check_program_headers(&alone) {
                        self.mistakes.add(
                            DeclarationErrorKind::Call,
                            &place,
                            error.to_string(),
                            "leave it out",
                        );
                    }
                    let is_wrong = |piece: &template::TemplatePiece| match piece {
                        template::TemplatePiece::Text(text) => http::HeaderValue::from_str(text).is_err(),
                        template::TemplatePiece::Slot(_) => false,
                    };
                    if template.iter().any(is_wrong) {
                        let message = "the value has a character that is not allowed in a header";
                        self.mistakes.add(
                            DeclarationErrorKind::Call,
                            place,
                            message,
                            "leave line breaks and the like out",
                        );
                    }
                    headers.push((known, template));
                }
                (Err(_), _) => {
                    self.mistakes.add(
                        DeclarationErrorKind::Call,
                        place,
                        format!("`{name}` is not a header name"),
                        "use its name in HTTP",
                    );
                }
                (_, Err(message)) => {
                    self.mistakes.add(DeclarationErrorKind::Placeholder, place, message, PLACEHOLDERS)
                }
            }
        }
        headers
    }

    fn read_each(&mut self, name: &str, part: &declaration::PartDeclaration, each: &str) -> Option<EachItem> {
        if let Some(input) = self.names.inputs.iter().position(|input| *input == each) {
            if self.declaration.input.get_index(input).is_none_or(|(_, input)| input.kind != InputType::Array)
            {
                let message = format!("the input `{each}` is not an array");
                self.report_mistake(
                    DeclarationErrorKind::Each,
                    "each",
                    message,
                    "declare it with `type: array`",
                );
                return None;
            }
            return Some(EachItem { source: ItemSource::Input(input), target: None });
        }
        let (over, path) = self.read_part_path(DeclarationErrorKind::Each, "each", each)?;
        let name = part.name.as_deref().unwrap_or(name);
        let into = (!part.apart).then(|| PartPath {
            part: over,
            path: path.clone(),
            name: name.into(),
            json_name: json_name(name),
        });
        Some(EachItem { source: ItemSource::Part(over, path), target: into })
    }

    fn read_join(&mut self, name: &str, join: &declaration::JoinDeclaration) -> Option<JoinKeys> {
        let into = self.read_part_path(DeclarationErrorKind::Join, "join/into", &join.into);
        let keys = parse_join_keys(join).map_err(|message| {
            self.report_join_mistake("on", message, "write it as in `id = buyer_id`");
        });
        let ((part, path), (item_key, row_key)) = (into?, keys.ok()?);
        if row_key.has_wildcard() {
            self.report_join_mistake("on", "a row has one key", "`[*]` is only allowed on the left");
        }
        if item_key.has_wildcard() && join.one != RowCardinality::Only(false) {
            self.report_join_mistake("one", "an item with several keys gets a list", "leave `one` out");
        }
        let name = join.name.as_deref().unwrap_or(name);
        let into = PartPath { part, path, name: name.into(), json_name: json_name(name) };
        let (row_cardinality, missing, text, on) = (join.one, join.missing, join.text, join.on.clone());
        Some(JoinKeys {
            target: into,
            item_key,
            row_key,
            cardinality: row_cardinality,
            missing,
            text,
            key_text: on,
        })
    }

    fn report_join_mistake(&mut self, member: &str, message: impl Into<String>, hint: &str) {
        self.mistakes.add(DeclarationErrorKind::Join, format!("{}/join/{member}", self.place), message, hint);
    }

    fn read_part_path(
        &mut self,
        kind: DeclarationErrorKind,
        member: &str,
        text: &str,
    ) -> Option<(usize, JsonPath)> {
        let place = format!("{}/{member}", self.place);
        let found = self.names.parse_part_path(text);
        found
            .map_err(|message| {
                self.mistakes.add(kind, place, message, "write it as in `$.buyers` or `$.page.items`")
            })
            .ok()
    }

    fn read_fields(&mut self, fields: &MemberSelection) -> Option<Vec<(Bytes, JsonPath)>> {
        let pairs: Vec<(&str, String)> = match fields {
            MemberSelection::Some(names) => {
                names.iter().map(|name| (&**name, append_step("", name))).collect()
            }
            MemberSelection::Renamed(map) => map
                .iter()
                .map(|(name, from)| {
                    let is_path = from.starts_with(['.', '[', '/']);
                    (&**name, if is_path { from.clone() } else { format!(".{from}") })
                })
                .collect(),
        };
        let mut read = Vec::new();
        for (name, from) in pairs {
            match JsonPath::parse(&from) {
                Ok(path) if !path.has_wildcard() => read.push((json_name(name), path)),
                Ok(_) => self.report_mistake(
                    DeclarationErrorKind::Fields,
                    "fields",
                    format!("`{from}` refers to several values"),
                    "name one value",
                ),
                Err(error) => self.report_mistake(
                    DeclarationErrorKind::Fields,
                    "fields",
                    format!("`{from}`: {error}"),
                    "write it as in `.address.city`",
                ),
            }
        }
        let names: BTreeSet<&Bytes> = read.iter().map(|(name, _)| name).collect();
        if names.len() < read.len() {
            self.report_mistake(
                DeclarationErrorKind::Fields,
                "fields",
                "a field occurs twice",
                "name it once",
            );
        }
        Some(read)
    }

    /// Reports placeholders that can't have a value.
    fn check_slots(&mut self, part: &PartPlan, word: &str) {
        let has_each = part.each.is_some();
        let template_slot =
            part_slots(part).into_iter().find(|slot| !has_each && matches!(slot.source, SlotSource::Each(_)));
        if let Some(slot) = template_slot {
            let message = format!("`{{{}}}` refers to an item, but the part has no `each`", slot.text);
            self.report_mistake(
                DeclarationErrorKind::Placeholder,
                word,
                message,
                "name the items with `each`",
            );
        }
        let over_input = matches!(&part.each, Some(EachItem { source: ItemSource::Input(_), .. }));
        let deeper =
            |slot: &&TemplateSlot| matches!(&slot.source, SlotSource::Each(path) if !path.steps().is_empty());
        if let Some(slot) = part_slots(part).into_iter().find(deeper).filter(|_| over_input) {
            let message =
                format!("`{{{}}}` has no value: the items of an input are texts or numbers", slot.text);
            self.report_mistake(DeclarationErrorKind::Placeholder, word, message, "write `{each}`");
        }
        let (declaration, route) = (self.declaration, self.context.path);
        let may_miss = |slot: &&TemplateSlot| match &slot.source {
            SlotSource::Input(input) => declaration.input.get_index(*input).is_some_and(|(name, input)| {
                let segment = format!("{{{}}}", input.name.as_ref().unwrap_or(name));
                let is_in_path = matches!(input.place, None | Some(InputPlace::Path))
                    && route.split('/').any(|known| known == segment);
                input.default.is_none() && !input.required && !is_in_path
            }),
            _ => false,
        };
        let is_list = |slot: &&TemplateSlot| match &slot.source {
            SlotSource::Input(input) => {
                declaration.input.get_index(*input).is_some_and(|(_, input)| input.kind == InputType::Array)
            }
            source => source.is_many(),
        };
        let is_missed = |slot: &&TemplateSlot| may_miss(slot) && !is_list(slot);
        if let Some(slot) = template::template_slots(&part.url.path).find(is_missed) {
            let message = format!("the input `{}` may be missing, and the path needs it", slot.text);
            self.report_mistake(
                DeclarationErrorKind::Placeholder,
                word,
                message,
                "give it a `default`, or write `required: true`",
            );
        }
        // Without its query parameter, an unsafe call could affect everything instead of one thing.
        let mut in_query = part
            .url
            .query
            .iter()
            .flat_map(|pair| &pair.value)
            .flat_map(|value| template::template_slots(value));
        if !is_safe(&part.method)
            && let Some(slot) = in_query.find(may_miss)
        {
            let message = format!(
                "the input `{}` may be missing, and a {} without it in the query may change more than intended",
                slot.text, part.method
            );
            self.report_mistake(
                DeclarationErrorKind::Unsafe,
                word,
                message,
                "give it a `default`, or write `required: true`",
            );
        }
        if part.url.slots().filter(is_list).count() > 1 {
            let hint = "divide it into two parts";
            self.report_mistake(
                DeclarationErrorKind::Placeholder,
                word,
                "a call has one list in its URL at most",
                hint,
            );
        }
        let alone = |pair: &template::QueryPair| {
            let slots: Vec<_> = pair.value.iter().flat_map(|value| template::template_slots(value)).collect();
            slots.iter().all(|slot| !slot.explode)
                || pair.value.as_ref().is_some_and(|value| value.len() == 1)
        };
        if !part.url.query.iter().all(alone)
            || template::template_slots(&part.url.path).any(|slot| slot.explode)
        {
            let hint = "write it as in `?id={$.buyers[*].id*}`";
            self.report_mistake(
                DeclarationErrorKind::Placeholder,
                word,
                "a `*` belongs to a placeholder that is a whole query parameter",
                hint,
            );
        }
        let parts = self.names.parts;
        if parts
            .get(part.put_target().map_or(usize::MAX, |into| into.part))
            .is_some_and(|into| **into == *part.name)
        {
            let message = "a part can't be put into itself";
            self.report_mistake(
                DeclarationErrorKind::Cycle,
                if has_each { "each" } else { "join" },
                message,
                "name another part",
            );
        }
    }
}

const PLACEHOLDERS: &str = "write an input (`{limit}`), a value of a part (`{$.buyers[*].id}`), of an item (`{each.id}`) or of the body (`{body.name}`)";

/// Returns the parts that a part's templates and `each` depend on.
fn needs(part: &PartPlan) -> BTreeSet<usize> {
    let mut needs = template::referenced_parts(part_slots(part).into_iter());
    if let Some(EachItem { source: ItemSource::Part(over, _), .. }) = &part.each {
        needs.insert(*over);
    }
    needs
}

fn fallback(part: &declaration::PartDeclaration) -> FailureFallback {
    match (&part.default, part.optional) {
        (Some(value), _) => match JsonDocument::new(value.to_string().into()) {
            Ok(document) => FailureFallback::Default(Arc::new(document)),
            Err(_) => FailureFallback::Null,
        },
        (None, true) => FailureFallback::Null,
        (None, false) => FailureFallback::Required,
    }
}

/// Returns a path with a word in place of each placeholder.
pub(crate) fn sample(path: &TextTemplate) -> String {
    let piece = |piece: &template::TemplatePiece| match piece {
        template::TemplatePiece::Text(text) => text.clone(),
        template::TemplatePiece::Slot(_) => "x".to_owned(),
    };
    path.iter().map(piece).collect()
}

/// Whether a text is allowed in a query without escapes.
fn is_query(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%,:;@!$'()*+/".contains(&byte))
}

/// Stops the reading of a part at a value that could not be read and has been reported.
trait PartReadResult<T> {
    fn transpose_or_none(self) -> Option<Option<T>>;
}

impl<T> PartReadResult<T> for Option<Option<T>> {
    fn transpose_or_none(self) -> Option<Option<T>> {
        match self {
            None => Some(None),
            Some(None) => None,
            Some(some) => Some(some),
        }
    }
}
