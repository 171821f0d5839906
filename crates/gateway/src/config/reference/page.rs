//! Renders the schema as Markdown: a section for every map of the config, in the order of the file, and a row
//! for every field.

use std::collections::HashMap;

use serde_json::{Map, Value};
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

const OPENING: &str = "\
# The config, field by field

GENERATED from the config's structs by `cargo xtask generate`: don't edit.

All of the config is one file, `orfa.yaml`. `orfa check` reports every error in it with line, field and a hint;
`orfa config schema` prints its JSON Schema for editors. An unknown field is an error everywhere.

- A **time span** is a whole number and a unit: `ns`, `us`, `ms`, `s`, `m` or `h`, as in `50ms`.
- A **size** is a number of bytes, or a whole number and a unit: `B`, `kB`, `KiB`, `MB`, `MiB`, `GB`, `GiB`, `TB` or
  `TiB`, as in `16MiB`.
- A **rate** is a number and a second, a minute or an hour, as in `100/s`; one of CPU time begins with a time span, as in
  `500ms/s`.
- `${env:NAME}` and `${file:PATH}` in any string are replaced by an environment variable and by the content of a file,
  without the final line break; `$${` is an escaped `${`. A missing value is an error, and a substituted value is never
  printed.
- Paths of files start in the folder of `orfa.yaml`.
- In the headings below, `NAME` is a name that you choose, and `[]` an item of a list.
- Keys of version 0.1 with a new name are accepted within 0.x. `orfa check`, `orfa serve` and `orfa dev` warn about each,
  with the new key. An old and a new key for one setting are an error.

The same limit has one key everywhere. The parameters of the header `ORFA-Limit` have names of their own:

| key | meaning | in `ORFA-Limit` |
| --- | --- | --- |
| `cpu` | CPU time: of a program; of a script's handler without a pause; of one callback of a filter | `cpu` |
| `timeout` | the whole request; in `routes[].limits` and on aggregate and GraphQL routes until the response begins | `deadline` |
| `memory` | bytes of memory | `memory` |
| `calls` | number of calls | `calls` |
| `concurrency` | upstream calls in flight at once | `parallel` |
| `request_body` | bytes of the request body | |
| `response_body` | bytes of the answer | `output` |
| `upstream_bytes` | bytes received from all upstream calls together | `received` |
| `program_bytes` | bytes of a program | |
| `fan_out` | distinct calls of one `each` | |
| `startup_cpu` | CPU time of starting a module | |
";

/// The maximum number of characters of a line outside of tables.
const WIDTH: usize = 120;

/// Renders the page of this schema, with an example in each section.
pub(super) fn render_page(schema: &Value, examples: &[(&str, &str)]) -> String {
    let mut writer = ReferenceWriter { root: schema, section_paths: HashMap::new(), sections: Vec::new() };
    writer.collect_sections("", schema);
    let mut page = OPENING.to_owned();
    for (path, schema) in &writer.sections {
        page.push_str(&writer.render_section(path, schema));
        for (_, example) in examples.iter().filter(|(section, _)| section == path) {
            page.push_str(&format!("\n```yaml\n{example}```\n"));
        }
    }
    page
}

/// Resolves a schema's reference to a definition, and returns its name and the schema.
pub(super) fn definition<'a>(root: &'a Value, schema: &'a Value) -> (&'a str, &'a Value) {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/"));
    match name.and_then(|name| Some((name, root.get("$defs")?.get(name)?))) {
        Some(found) => found,
        None => ("", schema),
    }
}

struct ReferenceWriter<'a> {
    root: &'a Value,
    /// The section of each definition: the first path at which it may occur.
    section_paths: HashMap<&'a str, String>,
    sections: Vec<(String, &'a Value)>,
}

impl<'a> ReferenceWriter<'a> {
    /// Finds the sections at a path and below it.
    fn collect_sections(&mut self, path: &str, schema: &'a Value) {
        let (name, schema) = definition(self.root, schema);
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            if !name.is_empty() && self.section_paths.contains_key(name) {
                return;
            }
            self.section_paths.insert(name, path.to_owned());
            self.sections.push((path.to_owned(), schema));
            let dot = if path.is_empty() { "" } else { "." };
            for (field, schema) in properties {
                self.collect_sections(&format!("{path}{dot}{field}"), schema);
            }
        }
        if let Some(each) = schema.get("items") {
            self.collect_sections(&format!("{path}[]"), each);
        }
        if let Some(each) = schema.get("additionalProperties").filter(|each| each.is_object()) {
            self.collect_sections(&format!("{path}.NAME"), each);
        }
        branches(schema).for_each(|branch| self.collect_sections(path, branch));
    }

    fn render_section(&self, path: &str, schema: &Value) -> String {
        let of_the_top = path.trim_end_matches("[]").trim_end_matches(".NAME");
        let level = if of_the_top.contains(['.', '[']) { "###" } else { "##" };
        let heading = if path.is_empty() { "At the top".to_owned() } else { format!("`{path}`") };
        let required: Vec<&Value> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().collect();
        let row = |(name, field): (&String, &Value)| {
            let is_required = required.iter().any(|required| *required == name);
            let default = if is_required { "required".to_owned() } else { format_default(field) };
            format!("| `{name}` | {} | {default} | {} |\n", self.type_name(field), self.field_meaning(field))
        };
        let rows: String =
            schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(row).collect();
        let about = wrap_text(&description_text(schema));
        format!(
            "\n{level} {heading}\n\n{about}\n\n| field | type | default | meaning |\n| --- | --- | --- | --- |\n{rows}"
        )
    }

    /// Returns the name of a value's type.
    fn type_name(&self, schema: &Value) -> String {
        let (name, schema) = definition(self.root, schema);
        match name {
            "DurationConfig" => return "time span".to_owned(),
            "BytesConfig" => return "size".to_owned(),
            "PerTime" => return "rate".to_owned(),
            "CpuPerTime" => return "rate of CPU time".to_owned(),
            _ => {}
        }
        if schema.get("properties").is_some() {
            return self
                .section_paths
                .get(name)
                .map_or("map".to_owned(), |path| format!("[map](#{})", slug(path)));
        }
        let words: Vec<String> = keywords(schema).map(|word| format!("`{word}`")).collect();
        if !words.is_empty() {
            return words.join(", ");
        }
        let mut kinds: Vec<String> = branches(schema).map(|branch| self.type_name(branch)).collect();
        kinds.dedup();
        if !kinds.is_empty() {
            return kinds.join(" or ");
        }
        if let Some(each) = schema.get("items") {
            return format!("list of {}", self.type_name(each));
        }
        if let Some(each) = schema.get("additionalProperties").filter(|each| each.is_object()) {
            return format!("map of names to {}", self.type_name(each));
        }
        let kind = schema.get("type").and_then(Value::as_str);
        match kind {
            Some("boolean") => "`true` or `false`".to_owned(),
            Some("integer") => format!("whole number{}", format_bounds(schema)),
            Some("number") => format!("number{}", format_bounds(schema)),
            Some("array") => "list".to_owned(),
            Some("object") => "map".to_owned(),
            _ => "text".to_owned(),
        }
    }

    /// Returns the meaning of a field, and of its keywords if it has a choice of them.
    fn field_meaning(&self, field: &Value) -> String {
        let (_, schema) = definition(self.root, field);
        let about = |branch: &Value| {
            let word = branch.get("const").and_then(Value::as_str)?;
            Some(format!(" `{word}`: {}", description_text(branch)))
        };
        let words: String = branches(schema).filter_map(about).collect();
        format!("{}{words}", description_text(field)).replace('|', "\\|")
    }
}

/// Returns the alternative forms of a value.
fn branches(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten()
}

/// Returns the keywords of a value.
fn keywords(schema: &Value) -> impl Iterator<Item = &str> {
    let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    let constants = branches(schema).filter_map(|branch| branch.get("const")).chain(schema.get("const"));
    listed.chain(constants).filter_map(Value::as_str)
}

fn format_bounds(schema: &Value) -> String {
    let number = |key: &str| schema.get(key).and_then(Value::as_f64).filter(|number| *number != 0.0);
    match (number("minimum"), number("maximum")) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        (None, Some(most)) => format!(", at most {most}"),
        (Some(least), None) => format!(", at least {least}"),
        (None, None) => String::new(),
    }
}

fn format_default(field: &Value) -> String {
    match field.get("default") {
        Some(Value::Array(items)) if items.is_empty() => "empty".to_owned(),
        Some(Value::Object(members)) if members.is_empty() => "empty".to_owned(),
        Some(Value::Array(items)) => {
            format!("`[{}]`", items.iter().map(format_plain).collect::<Vec<_>>().join(", "))
        }
        Some(Value::Object(members)) => format!("`{}`", format_flow_map(members)),
        Some(Value::String(text)) if text.is_empty() => "empty".to_owned(),
        Some(value) => format!("`{}`", format_plain(value)),
        None => String::new(),
    }
}

/// Formats a map on one line, in YAML's flow style.
fn format_flow_map(members: &Map<String, Value>) -> String {
    let members: Vec<_> =
        members.iter().map(|(name, value)| format!("{name}: {}", format_plain(value))).collect();
    format!("{{ {} }}", members.join(", "))
}

fn format_plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a description on one line.
fn description_text(schema: &Value) -> String {
    schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Breaks a text into lines of at most [`WIDTH`] characters.
fn wrap_text(text: &str) -> String {
    let options = Options::new(WIDTH)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::fill(text, options)
}

/// Returns the anchor of a heading as generated by common forges: only letters and digits remain.
fn slug(path: &str) -> String {
    let kept = |letter: &char| letter.is_ascii_alphanumeric() || "-_".contains(*letter);
    path.to_ascii_lowercase().chars().filter(kept).collect()
}
