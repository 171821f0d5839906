//! The answer, in one walk over what the client selected: texts are copied out of the documents, and what several places
//! share is written once.
//!
//! A value that is missing where there must be one is an error, and takes what it is in with it, up to what may be null
//! (6.4.4).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use graphql_tools::static_graphql::schema::Document as Schema;
use json::Kind;
use serde_json::Value as Json;

use super::leaf::{self, Leaf};
use super::run::{Mix, Run, Split, Val};
use crate::error::{Code, GraphqlError, Segment};
use crate::plan::data::{From, Lookup, has};
use crate::plan::shape::{Field, Read, ShapeId, Source, Variant};
use crate::plan::types::{Ty, TypeId};

pub(super) struct Writer<'r> {
    run: &'r Run<'r>,
    schema: &'r Schema,
    out: Vec<u8>,
    errors: Vec<GraphqlError>,
    path: Vec<Step<'r>>,
    /// What was found among members, of all objects that are being written.
    hits: Vec<Hit<'r>>,
    /// By scan the names of members in their order, and which of those that are looked for they are.
    orders: Vec<Vec<(&'r [u8], Option<usize>)>>,
    /// What was written before without an error: the shape and the places of an object, and where its text is.
    known: HashMap<(ShapeId, u64), Range<usize>, BuildHasherDefault<Mix>>,
}

/// What was found for a read.
#[derive(Clone, Copy, Default)]
struct Hit<'r> {
    value: Val<'r>,
    /// Where the member begins and ends; 0 if there is none.
    key: usize,
    end: usize,
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
            hits: Vec::new(),
            orders: vec![Vec::new(); run.plan.scans],
            known: HashMap::default(),
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
        self.aside();
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
        // Nobody is asked for a type on which nothing depends.
        let is_untold = |variant: &Variant| variant.only.is_none() && !self.run.tells(shape.position);
        let ty = ty.or_else(|| shape.variants.iter().any(is_untold).then_some(shape.parent));
        self.told(values);
        let Some(ty) = ty.filter(|ty| plan.types.holds(shape.parent, *ty)) else {
            self.untyped(shape.parent, ty);
            return false;
        };
        let Some(variant) = shape.variants.iter().find(|variant| has(&variant.only, Some(ty))) else {
            return false;
        };
        let (start, base) = (self.out.len(), self.hits.len());
        self.scan(variant, values);
        let is_written = self.members(variant, ty, shape.position, values, base);
        self.hits.truncate(base);
        if !is_written {
            self.out.truncate(start);
        }
        is_written
    }

    /// Finds the values that are read of an object: one walk over the members of each slot.
    fn scan(&mut self, variant: &'r Variant, values: &[Val<'r>]) {
        let base = self.hits.len();
        self.hits.resize(base + variant.reads, Hit::default());
        for scan in &variant.scans {
            let hits = &mut self.hits[base..];
            let (document, node) = match values[scan.slot] {
                Val::At(document, node, _) => (document, node),
                failed @ Val::Failed(_) => {
                    let numbers = scan.names.iter().flat_map(|(_, numbers)| numbers);
                    numbers.for_each(|number| hits[*number].value = failed);
                    continue;
                }
                Val::Absent | Val::Many(_) => continue,
            };
            let order = &mut self.orders[scan.number];
            let (mut left, mut place) = (scan.names.len(), 0);
            let mut members = node.members();
            while left > 0
                && let Some((key, value, end)) = members.next_with_end()
            {
                // Objects of one kind have their members in one order, most times.
                let known = order.get(place).filter(|(name, _)| key.is(name)).map(|(_, found)| *found);
                let found = known.unwrap_or_else(|| {
                    let found = scan.names.iter().position(|(name, _)| key.is(name.as_bytes()));
                    let text = key.node().text();
                    let name = text.get(1..text.len() - 1).filter(|name| !name.contains(&b'\\'));
                    let entry = (name.unwrap_or_default(), found);
                    match order.get_mut(place) {
                        Some(known) => *known = entry,
                        None => order.push(entry),
                    }
                    found
                });
                place += 1;
                let Some((_, numbers)) = found.and_then(|found| scan.names.get(found)) else { continue };
                // Of equal names the first counts.
                if numbers.first().is_some_and(|first| hits[*first].end > 0) {
                    continue;
                }
                left -= 1;
                let is_null = value.kind() == Kind::Null;
                let value = if is_null { Val::Absent } else { Val::At(document, value, None) };
                for number in numbers {
                    hits[*number] = Hit { value, key: key.node().start(), end };
                }
            }
        }
    }

    fn members(
        &mut self,
        variant: &'r Variant,
        ty: TypeId,
        position: Option<usize>,
        values: &[Val<'r>],
        base: usize,
    ) -> bool {
        self.out.push(b'{');
        let start = self.out.len();
        let mut run = None;
        let mut member = |writer: &mut Self, field: &'r Field| {
            if writer.copied(field, ty, base, start, &mut run) {
                return true;
            }
            writer.flush(&mut run);
            if writer.out.len() > start {
                writer.out.push(b',');
            }
            writer.out.extend_from_slice(&field.quoted);
            writer.path.push(Step::Key(&field.key));
            let is_written = writer.field(field, ty, position, values, base);
            writer.path.pop();
            is_written
        };
        let is_whole = if variant.is_loose {
            self.ordered(variant).into_iter().all(|field| member(self, field))
        } else {
            variant.fields.iter().all(|field| self.occurrence(field).is_none() || member(self, field))
        };
        self.flush(&mut run);
        self.out.push(b'}');
        is_whole
    }

    /// Copies a member as it stands, with those beside it in one piece, if it is what the answer wants.
    #[inline]
    fn copied(
        &mut self,
        field: &'r Field,
        ty: TypeId,
        base: usize,
        start: usize,
        run: &mut Option<(u32, usize, usize)>,
    ) -> bool {
        let (Source::Slots(reads), Some(leaf)) = (&field.source, field.leaf) else { return false };
        let [read] = reads.as_slice() else { return false };
        let hit = self.hits[base + read.number];
        let Val::At(number, node, _) = hit.value else { return false };
        if hit.end == 0 || !has(&read.only, Some(ty)) || !leaf::is_as_it_stands(leaf, node) {
            return false;
        }
        let Some(document) = self.run.documents.get(number as usize) else { return false };
        if !document.text()[hit.key..].starts_with(&field.quoted) || document.is_spaced() {
            return false;
        }
        match run {
            Some((known, _, end)) if *known == number && *end + 1 == hit.key => *end = hit.end,
            _ => {
                self.flush(run);
                if self.out.len() > start {
                    self.out.push(b',');
                }
                *run = Some((number, hit.key, hit.end));
            }
        }
        true
    }

    #[inline]
    fn flush(&mut self, run: &mut Option<(u32, usize, usize)>) {
        if let Some((document, start, end)) = run.take()
            && let Some(text) =
                self.run.documents.get(document as usize).and_then(|known| known.text().get(start..end))
        {
            self.out.extend_from_slice(text);
        }
    }

    /// By which of its occurrences a field is there.
    #[inline]
    fn occurrence(&self, field: &Field) -> Option<usize> {
        let holds = |when: &[(Arc<str>, bool)]| {
            when.iter().all(|(name, value)| self.run.variables.is_true(name) == *value)
        };
        field.when.iter().find(|(_, when)| holds(when)).map(|(place, _)| *place)
    }

    /// The fields of an object in the order of the occurrences by which they are there.
    fn ordered(&self, variant: &'r Variant) -> Vec<&'r Field> {
        let there = variant.fields.iter().filter_map(|field| Some((self.occurrence(field)?, field)));
        let mut there: Vec<(usize, &Field)> = there.collect();
        there.sort_by_key(|(place, _)| *place);
        there.into_iter().map(|(_, field)| field).collect()
    }

    /// Writes a field's value; says whether it does not take its object with it.
    fn field(
        &mut self,
        field: &'r Field,
        ty: TypeId,
        position: Option<usize>,
        values: &[Val<'r>],
        base: usize,
    ) -> bool {
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
        let value = |writer: &Self, read: &Read| match read.lookup {
            Lookup::Itself => values[read.slot].or_absent(),
            Lookup::Member(_) => writer.hits[base + read.number].value,
        };
        let fitting = reads.iter().filter(|read| has(&read.only, Some(ty)));
        let child = position.and_then(|position| plan.positions[position].children.get(&field.key));
        if let (Some(_), Some(child)) = (field.shape, child) {
            let slots = &plan.positions[*child].slots;
            let mut below = vec![Val::Absent; slots.len()];
            for read in fitting {
                let slot = slots.iter().position(|slot| slot.from == From::Parent(read.slot));
                if let Some(slot) = slot.filter(|slot| matches!(below[*slot], Val::Absent)) {
                    below[slot] = value(self, read);
                }
            }
            return self.value(&field.ty, field, reads, &mut below, *child);
        }
        let mut best = (Val::Absent, None);
        for read in fitting {
            match value(self, read) {
                Val::Absent => {}
                failed @ Val::Failed(_) => best = (failed, Some(read)),
                found => {
                    best = (found, Some(read));
                    break;
                }
            }
        }
        let reads = best.1.map(std::slice::from_ref).unwrap_or_default();
        self.value(&field.ty, field, reads, &mut [best.0], 0)
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
        let (true, [Val::At(document, node, None)]) = (position.is_shared, &*values) else {
            return self.object(shape, values);
        };
        let key = (shape, u64::from(*document) << 32 | node.start() as u64);
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

    /// What went wrong in steps as a whole, told of the field of the answer that they are below.
    fn aside(&mut self) {
        for (step, error) in &self.run.aside {
            let (plan, errors) = (self.run.plan, &self.run.errors);
            let (Some(error), Some(group)) = (errors.get(*error as usize), plan.steps[*step].groups.first())
            else {
                continue;
            };
            let mut entry = self.upstream(&error.message, error);
            let mut position = group.position;
            while let Some((parent, key)) = &plan.positions[position].parent {
                position = *parent;
                entry.path = vec![Segment::Key(Arc::clone(key))];
            }
            self.errors.push(entry);
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
