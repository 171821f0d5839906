//! The execution plan of an aggregate: parts with parsed templates, their dependencies, and the shape of the
//! response. It is built once, and building it reports every mistake in the declaration. `input.rs`
//! reads the inputs of a request, and `template.rs` parses placeholders.

pub(crate) mod input;
mod links;
mod parts;
pub(crate) mod template;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use diagnostics::{Diagnostic, Diagnostics};
use http::{HeaderName, Method, StatusCode};
use json::pointer::append_step;
use json::{JsonDocument, JsonPath};
use services::{ServiceSet, UpstreamService};

pub(crate) use parts::{is_safe, sample};

use crate::config::AggregateLimitsConfig;
use crate::declaration::error_kind::DeclarationErrorKind;
use crate::declaration::{
    AggregateDeclaration, JoinDeclaration, MemberConflict, MissingRows, ResponseShapeDeclaration,
    RowCardinality,
};
use input::InputSet;
use template::{BodyTemplate, TemplateScope, TemplateSlot, TextTemplate, UrlTemplate};

/// The member of the response that lists failed parts.
pub(crate) const ERRORS_MEMBER: &str = "errors";

/// The plan of an aggregate.
pub(crate) struct AggregatePlan {
    pub(crate) inputs: InputSet,
    pub(crate) parts: Vec<PartPlan>,
    pub(crate) answer: AggregateShape,
    /// The method of requests. `GET` includes `HEAD`.
    pub(crate) method: Method,
    /// Whether any placeholder reads the client's body.
    pub(crate) reads_body: bool,
    pub(crate) partial_status: StatusCode,
    /// The maximum number of concurrent calls.
    pub(crate) concurrency: usize,
    pub(crate) limits: AggregateLimitsConfig,
}

/// The plan of a part.
pub(crate) struct PartPlan {
    pub(crate) name: Arc<str>,
    pub(crate) method: Method,
    pub(crate) service: Arc<UpstreamService>,
    pub(crate) url: UrlTemplate,
    /// The target of the call, as written in the declaration.
    pub(crate) target: String,
    pub(crate) headers: Vec<(HeaderName, TextTemplate)>,
    pub(crate) body: Option<BodyTemplate>,
    pub(crate) each: Option<EachItem>,
    pub(crate) joins: Option<JoinKeys>,
    pub(crate) pointer: String,
    /// The name of each field as JSON, and the path of its value.
    pub(crate) fields: Option<Vec<(Bytes, JsonPath)>>,
    pub(crate) fallback: FailureFallback,
    pub(crate) timeout: Option<Duration>,
    pub(crate) batch: Option<usize>,
    /// The parts that must complete before it is called.
    pub(crate) dependencies: Vec<usize>,
    /// Whether no other part reads its value, so that a long response can be streamed.
    pub(crate) is_streamable: bool,
    /// The parts whose values are put into its value.
    pub(crate) children: Vec<usize>,
}

/// The items that a part is called for.
#[derive(Clone)]
pub(crate) struct EachItem {
    pub(crate) source: ItemSource,
    /// The target of the responses, unless they form a list of their own.
    pub(crate) target: Option<PartPath>,
}

/// The source of the items.
#[derive(Clone)]
pub(crate) enum ItemSource {
    Part(usize, JsonPath),
    Input(usize),
}

/// The target of values: the object at a path in another part, or the items of the array there.
#[derive(Clone)]
pub(crate) struct PartPath {
    pub(crate) part: usize,
    pub(crate) path: JsonPath,
    pub(crate) name: Box<str>,
    /// The name as JSON.
    pub(crate) json_name: Bytes,
}

/// The match of rows with items.
#[derive(Clone)]
pub(crate) struct JoinKeys {
    pub(crate) target: PartPath,
    pub(crate) item_key: JsonPath,
    pub(crate) row_key: JsonPath,
    pub(crate) cardinality: RowCardinality,
    pub(crate) missing: MissingRows,
    pub(crate) text: bool,
    /// The keys, as written in the declaration.
    pub(crate) key_text: String,
}

/// The consequence of a part's failure.
#[derive(Clone)]
pub(crate) enum FailureFallback {
    /// The request fails.
    Required,
    Null,
    Default(Arc<JsonDocument>),
}

/// The shape of the response.
pub(crate) enum AggregateShape {
    Part(usize),
    /// The parts, with their names as JSON.
    Parts(Vec<(Bytes, usize)>),
    Merged(Vec<usize>, MemberConflict),
}

impl PartPlan {
    pub(crate) fn is_required(&self) -> bool {
        matches!(self.fallback, FailureFallback::Required)
    }

    /// Returns the target that its values are put into, if there is one.
    pub(crate) fn put_target(&self) -> Option<&PartPath> {
        let joins = self.joins.as_ref().map(|joins| &joins.target);
        joins.or_else(|| self.each.as_ref()?.target.as_ref())
    }

    /// Returns the placeholders of its headers and body.
    pub(crate) fn non_url_slots(&self) -> impl Iterator<Item = &TemplateSlot> {
        let headers = self.headers.iter().flat_map(|(_, template)| template::template_slots(template));
        headers.chain(self.body.iter().flat_map(BodyTemplate::slots))
    }
}

/// The environment of a declaration.
pub(crate) struct PlanContext<'a> {
    pub(crate) path: &'a str,
    pub(crate) services: &'a ServiceSet,
    pub(crate) limits: &'a AggregateLimitsConfig,
}

impl AggregatePlan {
    /// Plans a declaration, or returns every mistake in it.
    pub(crate) fn new(
        aggregate_declaration: &AggregateDeclaration,
        plan_context: &PlanContext<'_>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut mistakes = Diagnostics::default();
        let inputs = InputSet::new(&aggregate_declaration.input, plan_context.path, &mut mistakes);
        let input_names: Vec<&str> = aggregate_declaration.input.keys().map(String::as_str).collect();
        let part_names: Vec<&str> = aggregate_declaration.parts.keys().map(String::as_str).collect();
        let names = TemplateScope { inputs: &input_names, parts: &part_names };
        if part_names.is_empty() {
            mistakes.add(DeclarationErrorKind::Call, "/parts", "there are no parts", "declare a call");
        }
        let mut parts = Vec::with_capacity(part_names.len());
        for (name, part) in &aggregate_declaration.parts {
            let mut reader = parts::PartReader {
                place: append_step("/parts", name),
                names,
                declaration: aggregate_declaration,
                context: plan_context,
                mistakes: &mut mistakes,
            };
            parts.extend(reader.read_part(name, part));
        }
        if parts.len() < part_names.len() {
            return Err(mistakes.into_vec());
        }
        links::link_parts(&mut parts, aggregate_declaration, &mut mistakes);
        let answer = resolve_shape(aggregate_declaration, names, &parts, &mut mistakes);
        for part in 0..parts.len() {
            parts[part].is_streamable =
                answer.as_ref().is_some_and(|answer| is_streamable(&parts, part, answer));
        }
        let reads_body = parts.iter().any(parts::reads_body);
        let is_unsafe = |part: &&PartPlan| !parts::is_safe(&part.method);
        let method = parts.iter().find(is_unsafe).map_or(Method::GET, |part| part.method.clone());
        if reads_body && method == Method::GET {
            let message =
                "placeholders read the request's body, but all calls are safe: requests are GETs without one";
            mistakes.add(DeclarationErrorKind::Placeholder, "/parts", message, "declare an input for it");
        }
        let partial = aggregate_declaration.partial.and_then(|partial| StatusCode::from_u16(partial).ok());
        if let Some(StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT) =
            partial
        {
            let message = "answers with this status have no body, or a part of one";
            mistakes.add(
                DeclarationErrorKind::Answer,
                "/partial",
                message,
                "use 200, 203 or a number of your own",
            );
        }
        match answer {
            Some(answer) if mistakes.is_empty() => Ok(Self {
                inputs,
                parts,
                answer,
                method,
                reads_body,
                partial_status: partial.unwrap_or(StatusCode::OK),
                concurrency: if aggregate_declaration.sequential {
                    1
                } else {
                    plan_context.limits.concurrency as usize
                },
                limits: *plan_context.limits,
            }),
            _ => Err(mistakes.into_vec()),
        }
    }
}

/// Whether a part is copied unchanged into the response, and not read by others.
fn is_streamable(parts: &[PartPlan], number: usize, answer: &AggregateShape) -> bool {
    let part = &parts[number];
    let is_there = match answer {
        AggregateShape::Part(answer) => *answer == number,
        AggregateShape::Parts(answer) => answer.iter().any(|(_, part)| *part == number),
        AggregateShape::Merged(..) => false,
    };
    let is_plain =
        part.each.is_none() && part.joins.is_none() && part.fields.is_none() && part.pointer.is_empty();
    let is_asked_of = |other: &PartPlan| {
        // A part with the same call would share the response.
        template::referenced_parts(parts::part_slots(other).into_iter()).contains(&number)
            || matches!(&other.each, Some(EachItem { source: ItemSource::Part(over, _), .. }) if *over == number)
            || (other.name != part.name
                && other.service.name() == part.service.name()
                && may_share_path(other, part))
    };
    let is_get = part.method == Method::GET;
    is_there && is_plain && is_get && part.children.is_empty() && !parts.iter().any(is_asked_of)
}

/// Whether the paths of two parts may be equal.
fn may_share_path(plan: &PartPlan, other: &PartPlan) -> bool {
    let [one, other] = [plan, other].map(|part| part.target.split('?').next().unwrap_or_default().split('/'));
    let is_equal = |(one, other): (&str, &str)| one == other || one.contains('{') || other.contains('{');
    one.clone().count() == other.clone().count() && one.zip(other).all(is_equal)
}

/// Resolves the shape of the response.
fn resolve_shape(
    declaration: &AggregateDeclaration,
    names: TemplateScope<'_>,
    parts: &[PartPlan],
    mistakes: &mut Diagnostics,
) -> Option<AggregateShape> {
    let mut find = |place: String, name: &str| {
        let found = names.parts.iter().position(|part| *part == name);
        if found.is_none() {
            let hint = format!("the parts are `{}`", names.parts.join("`, `"));
            mistakes.add(DeclarationErrorKind::Answer, place, format!("there is no part `{name}`"), hint);
        }
        found
    };
    let numbered = |list: &[String], folder: &str, find: &mut dyn FnMut(String, &str) -> Option<usize>| {
        let found = list.iter().enumerate().map(|(place, name)| find(format!("{folder}/{place}"), name));
        found.collect::<Vec<_>>().into_iter().collect::<Option<Vec<usize>>>()
    };
    let keyed = |parts: &[usize]| parts.iter().map(|part| (json_name(names.parts[*part]), *part)).collect();
    let shape = match &declaration.response {
        Some(ResponseShapeDeclaration::Part(name)) => AggregateShape::Part(find("/response".into(), name)?),
        Some(ResponseShapeDeclaration::Parts(list)) => {
            AggregateShape::Parts(keyed(&numbered(list, "/response", &mut find)?))
        }
        Some(ResponseShapeDeclaration::Merged(merged)) => {
            AggregateShape::Merged(numbered(&merged.merge, "/response/merge", &mut find)?, merged.conflict)
        }
        None => {
            let own: Vec<usize> =
                (0..parts.len()).filter(|part| parts[*part].put_target().is_none()).collect();
            AggregateShape::Parts(keyed(&own))
        }
    };
    if let AggregateShape::Parts(list) = &shape {
        if list.is_empty() && declaration.response.is_some() {
            mistakes.add(
                DeclarationErrorKind::Answer,
                "/response",
                "no part is named",
                "name the parts of the response",
            );
        }
        for (place, (name, part)) in list.iter().enumerate() {
            if list[..place].iter().any(|(before, _)| before == name) {
                let message = format!("the part `{}` occurs twice", names.parts[*part]);
                mistakes.add(
                    DeclarationErrorKind::Answer,
                    format!("/response/{place}"),
                    message,
                    "name it once",
                );
            }
        }
        if list.iter().any(|(_, part)| names.parts[*part] == ERRORS_MEMBER) {
            let message =
                "a part of the response can't be called `errors`: failed parts are listed under that name";
            mistakes.add(
                DeclarationErrorKind::Answer,
                append_step("/parts", ERRORS_MEMBER),
                message,
                "give it another name",
            );
        }
    }
    Some(shape)
}

/// Returns a name as JSON.
pub(crate) fn json_name(name: &str) -> Bytes {
    serde_json::Value::from(name).to_string().into()
}

/// Parses the two keys of `on`.
fn parse_join_keys(join: &JoinDeclaration) -> Result<(JsonPath, JsonPath), String> {
    let (item, row) = join.on.split_once('=').ok_or("write the item's key, `=`, and the row's key")?;
    let path = |text: &str| {
        let text = text.trim();
        let text = if text.starts_with(['.', '[', '/']) { text.to_owned() } else { format!(".{text}") };
        JsonPath::parse(&text).map_err(|error| format!("`{text}`: {error}"))
    };
    Ok((path(item)?, path(row)?))
}
