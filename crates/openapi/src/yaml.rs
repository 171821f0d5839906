//! Parses JSON or YAML to a tree. Most large documents are JSON, and the JSON parser is far faster.
//!
//! YAML is built from the parser's events: a ready-made tree would expand aliases without a bound.

use std::collections::HashMap;

use saphyr::Scalar;
use saphyr_parser::{Event, Parser, ScanError, Span, StrInput};
use serde_json::{Map, Value};

/// The maximum depth: as deep as JSON may be, and shallow enough for every stack.
const MAX_DEPTH: usize = 120;

/// The maximum number of nodes that aliases may add.
const MAX_ALIASED: usize = 100_000;

/// The position of a syntax error, and the reason.
#[derive(Debug)]
pub(crate) struct YamlSyntaxError {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) reason: String,
}

struct YamlEventReader<'text> {
    events: Parser<'text, StrInput<'text>>,
    anchors: HashMap<usize, Value>,
    aliased_nodes: usize,
}

/// Parses a document.
pub(crate) fn parse_tree(text: &str) -> Result<Value, YamlSyntaxError> {
    let text = text.trim_start_matches('\u{feff}');
    if !text.trim_start().starts_with('{') {
        return read_yaml(text);
    }
    serde_json::from_str(text).or_else(|error| {
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
        read_yaml(text).map_err(|_| YamlSyntaxError { line: error.line(), column: error.column(), reason })
    })
}

fn read_yaml(text: &str) -> Result<Value, YamlSyntaxError> {
    let mut reader =
        YamlEventReader { events: Parser::new_from_str(text), anchors: HashMap::new(), aliased_nodes: 0 };
    reader.read_document().map_err(|error| {
        let at = error.marker();
        YamlSyntaxError { line: at.line(), column: at.col() + 1, reason: error.info().to_owned() }
    })
}

impl<'text> YamlEventReader<'text> {
    fn read_document(&mut self) -> Result<Value, ScanError> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
                Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
                _ => return self.read_value(event, &span, 0),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'text>, Span), ScanError> {
        self.events.next().unwrap_or(Ok((Event::StreamEnd, Span::default())))
    }

    fn read_value(&mut self, event: Event<'text>, span: &Span, depth: usize) -> Result<Value, ScanError> {
        if depth > MAX_DEPTH {
            return Err(ScanError::new_str(span.start, "it is nested too deep"));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (scalar_value(Scalar::parse_from_cow_and_metadata(text, style, tag.as_ref())), anchor)
            }
            Event::SequenceStart(anchor, _) => (self.read_sequence(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.read_mapping(depth)?, anchor),
            Event::Alias(anchor) => return self.read_alias(anchor, span),
            _ => return Err(ScanError::new_str(span.start, "a value is missing")),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn read_sequence(&mut self, depth: usize) -> Result<Value, ScanError> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Value::Array(items));
            }
            items.push(self.read_value(event, &span, depth + 1)?);
        }
    }

    /// Reads a mapping. Of two equal keys the later one is used; `<<` adds the members of another mapping
    /// that are missing here.
    fn read_mapping(&mut self, depth: usize) -> Result<Value, ScanError> {
        let mut members = Map::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let name = match event {
                Event::MappingEnd => break,
                Event::Scalar(name, ..) => name.into_owned(),
                _ => return Err(ScanError::new_str(span.start, "a key has to be a string")),
            };
            let (event, span) = self.next()?;
            match (&*name, self.read_value(event, &span, depth + 1)?) {
                ("<<", Value::Object(others)) => merged.push(others),
                (_, value) => drop(members.insert(name, value)),
            }
        }
        for (name, value) in merged.into_iter().flatten() {
            members.entry(name).or_insert(value);
        }
        Ok(Value::Object(members))
    }

    fn read_alias(&mut self, anchor: usize, span: &Span) -> Result<Value, ScanError> {
        let unknown = || ScanError::new_str(span.start, "the alias has no anchor before it");
        let value = self.anchors.get(&anchor).ok_or_else(unknown)?;
        let (nodes, depth) = count_nodes(value);
        self.aliased_nodes += nodes;
        if self.aliased_nodes > MAX_ALIASED || depth > MAX_DEPTH / 2 {
            return Err(ScanError::new_str(span.start, "the aliases expand to too many values"));
        }
        Ok(value.clone())
    }
}

fn scalar_value(scalar: Option<Scalar<'_>>) -> Value {
    match scalar {
        None | Some(Scalar::Null) => Value::Null,
        Some(Scalar::Boolean(value)) => value.into(),
        Some(Scalar::Integer(value)) => value.into(),
        Some(Scalar::FloatingPoint(value)) => value.into_inner().into(),
        Some(Scalar::String(text)) => text.into_owned().into(),
    }
}

/// The number of nodes of a value, and its depth.
fn count_nodes(value: &Value) -> (usize, usize) {
    let add = |(nodes, depth): (usize, usize), value| {
        let (more, below) = count_nodes(value);
        (nodes + more, depth.max(below + 1))
    };
    match value {
        Value::Array(items) => items.iter().fold((1, 0), add),
        Value::Object(members) => members.values().fold((1, 0), add),
        _ => (1, 0),
    }
}
