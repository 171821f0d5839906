//! The answer, in one walk over what the client selected: texts are copied out of the documents, and what several places
//! share is written once.
//!
//! A value that is missing where there must be one is an error, and takes what it is in with it, up to what may be null
//! (6.4.4).

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use graphql_tools::static_graphql::schema::Document as Schema;
use json::Kind;
use serde_json::Value as Json;

use super::leaf::{self, Leaf};
use super::run::{Run, Split, Val, read};
use crate::error::{Code, GraphqlError, Segment};
use crate::plan::data::has;
use crate::plan::shape::{Field, Read, ShapeId, Source};
use crate::plan::types::{Ty, TypeId};

pub(super) struct Writer<'r> {
    run: &'r Run<'r>,
    schema: &'r Schema,
    out: Vec<u8>,
    errors: Vec<GraphqlError>,
    path: Vec<Step<'r>>,
    /// What was written before without an error: the shape and the places of an object, and where its text is.
    known: HashMap<(ShapeId, Box<[u64]>), std::ops::Range<usize>>,
}

#[derive(Clone, Copy)]
enum Step<'r> {
    Key(&'r Arc<str>),
    Index(usize),
}

impl<'r> Writer<'r> {
    pub(super) fn new(run: &'r Run<'r>, schema: &'r Schema) -> Self {
        let size = run.documents.iter().map(|document| document.text().len()).sum::<usize>();
        Self {
            run,
            schema,
            out: Vec::with_capacity(64 + size / 2),
            errors: Vec::new(),
            path: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// The whole response.
    pub(super) fn write(mut self) -> Bytes {
        self.out.extend_from_slice(b"{\"data\":");
        let mark = self.out.len();
        let root = self.run.plan.root;
        let position = &self.run.plan.positions[0];
        let mut values = vec![Val::Absent; position.slots.len()];
        self.run.fill(position, None, &mut values);
        if !self.object(root, &values) {
            self.out.truncate(mark);
            self.out.extend_from_slice(b"null");
        }
        if !self.errors.is_empty() {
            let errors: Vec<Json> = self.errors.iter().map(GraphqlError::json).collect();
            self.out.extend_from_slice(b",\"errors\":");
            self.out.extend_from_slice(Json::from(errors).to_string().as_bytes());
        }
        self.out.push(b'}');
        self.out.into()
    }

    /// Writes an object; says whether there is one.
    fn object(&mut self, id: ShapeId, values: &[Val<'r>]) -> bool {
        let plan = self.run.plan;
        let shape = &plan.shapes[id];
        let ty = match plan.types.is_object(shape.parent) {
            true => Some(shape.parent),
            false => shape.position.and_then(|position| self.run.type_of(position, values)),
        };
        self.told(values);
        let Some(ty) = ty.filter(|ty| plan.types.holds(shape.parent, *ty)) else {
            self.untyped(shape.parent, ty);
            return false;
        };
        let Some((_, fields)) = shape.variants.iter().find(|(only, _)| has(only, Some(ty))) else {
            return false;
        };
        let start = self.out.len();
        self.out.push(b'{');
        let mut is_first = true;
        for field in fields.iter() {
            if !self.is_there(field) {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            self.out.extend_from_slice(&field.quoted);
            self.path.push(Step::Key(&field.key));
            let is_written = self.field(field, ty, shape.position, values);
            self.path.pop();
            if !is_written {
                self.out.truncate(start);
                return false;
            }
        }
        self.out.push(b'}');
        true
    }

    fn is_there(&self, field: &Field) -> bool {
        let holds = |when: &[(Arc<str>, bool)]| {
            when.iter().all(|(name, value)| self.run.variables.is_true(name) == *value)
        };
        field.when.is_empty() || field.when.iter().any(|when| holds(when))
    }

    /// Writes a field's value; says whether it does not take its object with it.
    fn field(&mut self, field: &'r Field, ty: TypeId, position: Option<usize>, values: &[Val<'r>]) -> bool {
        let plan = self.run.plan;
        let reads = match &field.source {
            Source::Typename => {
                self.out.push(b'"');
                self.out.extend_from_slice(plan.types.name(ty).as_bytes());
                self.out.push(b'"');
                return true;
            }
            Source::Introspection(asked) => {
                super::introspect::write(self.schema, plan, &self.run.variables, asked, &mut self.out);
                return true;
            }
            Source::Slots(reads) => reads,
        };
        let child = position.and_then(|position| plan.positions[position].children.get(&field.key));
        match (field.shape, child) {
            (Some(_), Some(child)) => {
                let mut below = self.run.below(&plan.positions[*child], None, values, Some(ty));
                self.value(&field.ty, field, reads, &mut below, *child)
            }
            _ => {
                let found = reads.iter().filter(|known| has(&known.only, Some(ty)));
                let mut best = (Val::Absent, None);
                for known in found {
                    match read(&known.lookup, values[known.slot]) {
                        Val::Absent => {}
                        value @ Val::Failed(_) => best = (value, Some(known)),
                        value => {
                            best = (value, Some(known));
                            break;
                        }
                    }
                }
                let reads = best.1.map(std::slice::from_ref).unwrap_or_default();
                self.value(&field.ty, field, reads, &mut [best.0], 0)
            }
        }
    }

    /// Writes a value of a type, `null` if it may be that; says whether it could.
    fn value(
        &mut self,
        ty: &'r Ty,
        field: &'r Field,
        reads: &'r [Read],
        values: &mut [Val<'r>],
        child: usize,
    ) -> bool {
        let before = self.errors.len();
        let is_written = self.inner(ty.nullable(), field, reads, values, child);
        match ty {
            _ if is_written => true,
            Ty::NonNull(_) => {
                self.missing(field, before);
                false
            }
            _ => {
                self.out.extend_from_slice(b"null");
                true
            }
        }
    }

    /// Writes a value that is not null; says whether there is one.
    fn inner(
        &mut self,
        ty: &'r Ty,
        field: &'r Field,
        reads: &'r [Read],
        values: &mut [Val<'r>],
        child: usize,
    ) -> bool {
        if values.iter().all(|value| matches!(value, Val::Absent | Val::Failed(_))) {
            if let Some(Val::Failed(error)) = values.iter().find(|value| matches!(value, Val::Failed(_))) {
                self.failed(*error, field);
            }
            return false;
        }
        if let Ty::List(item) = ty {
            return self.list(item, field, reads, values, child);
        }
        match field.shape {
            Some(shape) => self.composite(shape, field, values, child),
            None => self.leaf(ty.named(), field, reads, values),
        }
    }

    fn list(
        &mut self,
        item: &'r Ty,
        field: &'r Field,
        reads: &'r [Read],
        values: &mut [Val<'r>],
        child: usize,
    ) -> bool {
        let Some(mut split) = Split::of(self.run, values) else {
            self.wrong(field, "a list", values);
            return false;
        };
        let start = self.out.len();
        self.out.push(b'[');
        let mut place = 0;
        while split.next(values) {
            if place > 0 {
                self.out.push(b',');
            }
            self.path.push(Step::Index(place));
            let is_written = self.value(item, field, reads, values, child);
            self.path.pop();
            if !is_written {
                self.out.truncate(start);
                return false;
            }
            place += 1;
        }
        self.out.push(b']');
        true
    }

    fn leaf(&mut self, ty: TypeId, field: &'r Field, reads: &[Read], values: &[Val<'r>]) -> bool {
        let Some(node) = values.first().and_then(|value| value.node()) else { return false };
        let spelling = reads.first().and_then(|read| read.spelling.as_deref());
        match leaf::write(&self.run.plan.types, ty, node, spelling, &mut self.out) {
            Leaf::Written => true,
            Leaf::Null => false,
            Leaf::Wrong => {
                let name = Arc::clone(self.run.plan.types.name(ty));
                self.wrong(field, &format!("a value of `{name}`"), values);
                false
            }
        }
    }

    /// An object of the position `child`.
    fn composite(&mut self, shape: ShapeId, field: &'r Field, values: &mut [Val<'r>], child: usize) -> bool {
        let position = &self.run.plan.positions[child];
        if !values.iter().any(|value| value.node().is_some_and(|node| node.kind() == Kind::Object)) {
            self.wrong(field, "an object", values);
            return false;
        }
        self.run.fill(position, None, values);
        let is_shared = self.run.is_shared(child);
        if !is_shared {
            return self.object(shape, values);
        }
        let places = values.iter().map(|value| value.place_or_none()).collect();
        let key = (shape, places);
        if let Some(known) = self.known.get(&key) {
            self.out.extend_from_within(known.clone());
            return true;
        }
        let (start, errors) = (self.out.len(), self.errors.len());
        let is_written = self.object(shape, values);
        if is_written && self.errors.len() == errors {
            self.known.insert(key, start..self.out.len());
        }
        is_written
    }

    /// What a service told of an object beside its value.
    fn told(&mut self, values: &[Val<'r>]) {
        let errors = values.iter().filter_map(|value| match value {
            Val::At(_, _, error) => *error,
            _ => None,
        });
        for error in errors {
            let Some(error) = self.run.errors.get(error as usize) else { continue };
            for told in &error.told {
                let mut entry = self.upstream(&error.message, error);
                if let Some(message) = told.get("message").and_then(Json::as_str) {
                    message.clone_into(&mut entry.message);
                }
                if let Some(Json::Object(more)) = told.get("extensions") {
                    entry.extensions.extend(more.clone());
                }
                let below = told.get("path").and_then(Json::as_array);
                entry.path.extend(below.into_iter().flatten().filter_map(|step| match step {
                    Json::String(key) => Some(Segment::Key(key.as_str().into())),
                    Json::Number(index) => index.as_u64().map(|index| Segment::Index(index as usize)),
                    _ => None,
                }));
                self.errors.push(entry);
            }
        }
    }

    fn upstream(&self, message: &str, error: &crate::SourceError) -> GraphqlError {
        let mut entry = GraphqlError::new(Code::Value, message);
        entry.code = error.code;
        entry.path = self.place();
        entry.extensions.insert("service".to_owned(), (*error.service).into());
        if let Some(status) = error.status {
            entry.extensions.insert("status".to_owned(), status.into());
        }
        entry
    }

    /// A field whose source failed.
    fn failed(&mut self, error: u32, field: &Field) {
        let Some(error) = self.run.errors.get(error as usize) else { return };
        let entry = self.upstream(&error.message, error).at(field.location);
        if error.told.is_empty() {
            self.errors.push(entry);
            return;
        }
        for told in &error.told {
            let mut entry = entry.clone();
            if let Some(message) = told.get("message").and_then(Json::as_str) {
                message.clone_into(&mut entry.message);
            }
            if let Some(Json::Object(more)) = told.get("extensions") {
                entry.extensions.extend(more.clone());
            }
            self.errors.push(entry);
        }
    }

    /// A value that is missing where there must be one, unless what is the matter was told.
    fn missing(&mut self, field: &Field, before: usize) {
        let place = self.place();
        let is_told =
            self.errors.len() > before || self.errors.iter().any(|error| error.path.starts_with(&place));
        if is_told {
            return;
        }
        let message = format!("`{}` is null, and must not be", field.name);
        let mut error = GraphqlError::new(Code::Null, message).at(field.location);
        error.path = place;
        self.errors.push(error);
    }

    fn wrong(&mut self, field: &Field, wanted: &str, values: &[Val<'r>]) {
        let node = values.iter().find_map(|value| value.node());
        let found = node.map_or("a list", |node| node.kind().name());
        let message = format!("`{}` is {found}, and no such value as the schema says: {wanted}", field.name);
        let mut error = GraphqlError::new(Code::Value, message).at(field.location);
        error.path = self.place();
        self.errors.push(error);
    }

    /// An object of which nobody says what it is, or that is none of what it must be. One that clients don't see is null.
    fn untyped(&mut self, parent: TypeId, ty: Option<TypeId>) {
        let types = &self.run.plan.types;
        if ty.is_some_and(|ty| types.is_hidden(ty)) {
            return;
        }
        let said = ty.map_or_else(|| "not told".to_owned(), |ty| format!("`{}`", types.name(ty)));
        let message = format!("the type of an object is {said}, and must be one of `{}`", types.name(parent));
        let mut error = GraphqlError::new(Code::Value, message);
        error.path = self.place();
        self.errors.push(error);
    }

    fn place(&self) -> Vec<Segment> {
        let segment = |step: &Step<'_>| match step {
            Step::Key(key) => Segment::Key(Arc::clone(key)),
            Step::Index(index) => Segment::Index(*index),
        };
        self.path.iter().map(segment).collect()
    }
}
