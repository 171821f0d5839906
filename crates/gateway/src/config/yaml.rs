//! Converts YAML to JSON, with the position of every key and value, and with `${...}` substituted.
//!
//! It is built on the parser's events instead of a ready-made tree, because a tree drops one of two equal
//! keys and stops at the first mistake. Here every duplicate key and every missing secret is reported.

use std::collections::HashMap;
use std::path::Path;

use diagnostics::Diagnostic;
use json::pointer::append_step;
use saphyr::Scalar;
use saphyr_parser::{Event, Parser, ScanError, Span, StrInput};
use serde_json::{Map, Value};

use super::source::{FieldPosition, FieldPositions};
use super::substitute;

/// The maximum depth: deeper than any config, and safe for every stack.
const MAX_DEPTH: usize = 64;

/// The maximum number of nodes that aliases may add.
const MAX_ALIASED: usize = 10_000;

/// A parsed config: the value, the positions of its fields, and the mistakes found so far.
pub(super) struct YamlDocument {
    pub(super) value: Value,
    pub(super) source: FieldPositions,
    pub(super) mistakes: Vec<Diagnostic>,
}

struct YamlReader<'text> {
    events: Parser<'text, StrInput<'text>>,
    source: FieldPositions,
    mistakes: Vec<Diagnostic>,
    anchors: HashMap<usize, Value>,
    aliased_nodes: usize,
}

/// Reads one YAML document. `Err` if it isn't YAML.
pub(super) fn read(text: &str, file: &Path) -> Result<YamlDocument, Vec<Diagnostic>> {
    let mut reader = YamlReader {
        events: Parser::new_from_str(text),
        source: FieldPositions::new(file),
        mistakes: Vec::new(),
        anchors: HashMap::new(),
        aliased_nodes: 0,
    };
    let value = match reader.read_document() {
        Ok(value) => value,
        Err(error) => {
            let (at, message) = (line_and_column(error.marker()), yaml_error_message(error.info()));
            return Err(vec![reader.source.mistake_at_position(at, "", message)]);
        }
    };
    Ok(YamlDocument { value, source: reader.source, mistakes: reader.mistakes })
}

fn line_and_column(marker: &saphyr_parser::Marker) -> (usize, usize) {
    (marker.line(), marker.col() + 1)
}

fn yaml_error_message(info: &str) -> String {
    format!("this is not YAML: {info}")
}

impl<'text> YamlReader<'text> {
    fn read_document(&mut self) -> Result<Value, ScanError> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
                Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Object(Map::new())),
                _ => {
                    let start = line_and_column(&span.start);
                    self.source.insert_position("", FieldPosition { key: start, value: start });
                    let value = self.read_value(event, &span, "", 0)?;
                    self.expect_end()?;
                    return Ok(value);
                }
            }
        }
    }

    /// Checks that nothing follows the document, since it would be ignored.
    fn expect_end(&mut self) -> Result<(), ScanError> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(()),
                Event::DocumentEnd | Event::Nothing => {}
                _ => {
                    return Err(ScanError::new_str(
                        span.start,
                        "another document begins here; a file may have only one",
                    ));
                }
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'text>, Span), ScanError> {
        self.events.next().unwrap_or(Ok((Event::StreamEnd, Span::default())))
    }

    fn read_value(
        &mut self,
        event: Event<'text>,
        span: &Span,
        pointer: &str,
        depth: usize,
    ) -> Result<Value, ScanError> {
        if depth > MAX_DEPTH {
            return Err(ScanError::new_str(span.start, "it is nested too deep"));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_whole = text.trim_start_matches(['+', '-']).bytes().all(|byte| byte.is_ascii_digit());
                let scalar = Scalar::parse_from_cow_and_metadata(text, style, tag.as_ref());
                if is_whole && matches!(scalar, Some(Scalar::FloatingPoint(_))) {
                    let hint = Some("write it in quotes, if a string will do".to_owned());
                    let message = "the number has more digits than can be represented";
                    self.mistakes.push(self.source.mistake(pointer, message, hint));
                }
                (self.convert_scalar(scalar, pointer), anchor)
            }
            Event::SequenceStart(anchor, _) => (self.read_sequence(pointer, depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.read_mapping(pointer, depth)?, anchor),
            Event::Alias(anchor) => return self.expand_alias(anchor, span),
            _ => return Err(ScanError::new_str(span.start, "a value is missing")),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn read_sequence(&mut self, pointer: &str, depth: usize) -> Result<Value, ScanError> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Value::Array(items));
            }
            let pointer = format!("{pointer}/{}", items.len());
            let start = line_and_column(&span.start);
            self.source.insert_position(&pointer, FieldPosition { key: start, value: start });
            items.push(self.read_value(event, &span, &pointer, depth + 1)?);
        }
    }

    fn read_mapping(&mut self, pointer: &str, depth: usize) -> Result<Value, ScanError> {
        let mut members = Map::new();
        loop {
            let (event, span) = self.next()?;
            let name = match event {
                Event::MappingEnd => return Ok(Value::Object(members)),
                Event::Scalar(name, ..) => name.into_owned(),
                _ => return Err(ScanError::new_str(span.start, "a key has to be a string")),
            };
            self.read_member(&mut members, name, &span, pointer, depth)?;
        }
    }

    fn read_member(
        &mut self,
        members: &mut Map<String, Value>,
        name: String,
        key: &Span,
        pointer: &str,
        depth: usize,
    ) -> Result<(), ScanError> {
        let pointer = append_step(pointer, &name);
        let (event, span) = self.next()?;
        if members.contains_key(&name) {
            let message = format!("the key `{name}` occurs twice");
            self.mistakes.push(self.source.mistake_at_position(
                line_and_column(&key.start),
                &pointer,
                message,
            ));
        }
        self.source.insert_position(
            &pointer,
            FieldPosition { key: line_and_column(&key.start), value: line_and_column(&span.start) },
        );
        let value = self.read_value(event, &span, &pointer, depth + 1)?;
        members.insert(name, value);
        Ok(())
    }

    fn convert_scalar(&mut self, scalar: Option<Scalar<'_>>, pointer: &str) -> Value {
        match scalar {
            Some(Scalar::Null) => Value::Null,
            Some(Scalar::Boolean(value)) => value.into(),
            Some(Scalar::Integer(value)) => value.into(),
            Some(Scalar::FloatingPoint(value)) => value.into_inner().into(),
            Some(Scalar::String(text)) => self.read_text(&text, pointer),
            None => {
                let message = "the value does not match its tag";
                self.mistakes.push(self.source.mistake(pointer, message, None));
                Value::Null
            }
        }
    }

    fn read_text(&mut self, text: &str, pointer: &str) -> Value {
        substitute::referenced_files(text).for_each(|file| self.source.note_file(file));
        let substituted_text = match substitute::substitute_all(text, self.source.folder()) {
            Ok(filled) => filled,
            Err(error) => {
                self.mistakes.push(self.source.mistake(pointer, error.message, Some(error.hint)));
                self.source.hide(pointer);
                return Value::String(text.to_owned());
            }
        };
        if substituted_text.was_substituted {
            self.source.hide(pointer);
        }
        Value::String(substituted_text.text)
    }

    fn expand_alias(&mut self, anchor: usize, span: &Span) -> Result<Value, ScanError> {
        let unknown = || ScanError::new_str(span.start, "the alias has no anchor before it");
        let value = self.anchors.get(&anchor).ok_or_else(unknown)?.clone();
        self.aliased_nodes += count_nodes(&value);
        if self.aliased_nodes > MAX_ALIASED {
            return Err(ScanError::new_str(span.start, "the aliases expand to too many values"));
        }
        Ok(value)
    }
}

fn count_nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count_nodes).sum(),
        Value::Object(members) => members.values().map(count_nodes).sum(),
        _ => 0,
    }
}
