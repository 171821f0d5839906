//! Generators of random programs: JavaScript that uses the words of S as names, and S with a list of its
//! constructs.

/// Names for plain JavaScript, including all words of S.
const NAMES: [&str; 12] =
    ["a", "b", "res", "on", "state", "service", "respond", "par", "pfor", "async", "of", "get"];
/// Names for S that do not affect the words of S. Excludes `of`, which acorn treats as an operator after a
/// line break.
const S_NAMES: [&str; 7] = ["a", "b", "res", "on", "state", "service", "get"];
const DEPTH: u32 = 4;

/// A generated construct: its kind, and its start.
pub(super) type GeneratedConstruct = (&'static str, usize);

pub(super) fn javascript(bytes: &[u8]) -> String {
    let mut writer = ConstructWriter::new(bytes, &NAMES);
    while !writer.bytes.is_empty() {
        writer.statement(0);
    }
    writer.text
}

pub(super) fn program(bytes: &[u8]) -> (String, Vec<GeneratedConstruct>) {
    let mut writer = ConstructWriter::new(bytes, &S_NAMES);
    let mut number = 0;
    while !writer.bytes.is_empty() {
        number += 1;
        writer.service(number);
    }
    (writer.text, writer.generated_constructs)
}

/// Returns a service with functions in all of its blocks, which use state, resources, variables and each
/// other under a few names.
pub(super) fn functions(bytes: &[u8]) -> String {
    let mut writer = ConstructWriter::new(bytes, &S_NAMES);
    writer.put_enclosed("service s {\n", |it| it.functions_block(0), "}\n");
    writer.text
}

struct ConstructWriter<'b> {
    bytes: &'b [u8],
    names: &'static [&'static str],
    text: String,
    generated_constructs: Vec<GeneratedConstruct>,
    numbers: usize,
}

impl<'b> ConstructWriter<'b> {
    fn new(bytes: &'b [u8], names: &'static [&'static str]) -> Self {
        Self { bytes, names, text: String::new(), generated_constructs: Vec::new(), numbers: 0 }
    }

    /// Picks a number below `below`. Returns 0 when no bytes are left, so that generation ends.
    fn pick(&mut self, below: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % below
    }

    fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn name(&mut self) {
        let name = self.names[self.pick(self.names.len())];
        self.put(name);
    }

    /// Writes a name, which is mostly new.
    fn new_name(&mut self) {
        if self.pick(16) == 1 {
            return self.name();
        }
        self.numbers += 1;
        self.put(&format!("n{}", self.numbers));
    }

    fn one_of(&mut self, texts: &[&str]) {
        let text = texts[self.pick(texts.len())];
        self.put(text);
    }

    /// Writes the end of a statement, or text that resembles one.
    fn end_statement(&mut self) {
        self.one_of(&[";\n", "\n", "; ", " // }\n", "; /* ' */ ", "\n\n"]);
    }

    fn put_enclosed(&mut self, open: &str, inner: impl FnOnce(&mut Self), close: &str) {
        self.put(open);
        inner(self);
        self.put(close);
    }

    /// Writes an expression that can be divided, called and indexed.
    fn primary(&mut self, depth: u32) {
        if depth >= DEPTH {
            return self.name();
        }
        match self.pick(17) {
            0..=3 => self.name(),
            4 => self.one_of(&["1.0", "0.5", ".5", "1e3", "0x1f", "1n", "1_0."]),
            5 => self.one_of(&["'a}'", "\"b{\"", "'\\''", "`c}`", "`\\``", "`${1}/`", "'/'"]),
            6 => self.one_of(&["/a/", "/[/]/g", "/}/", "/\\//u", "/{/i"]),
            7 => self.put_enclosed("(", |it| it.expression(depth + 1), ")"),
            8 => self.put_enclosed("[", |it| it.expression(depth + 1), "]"),
            9 => self.put_enclosed("`a${", |it| it.expression(depth + 1), "}b`"),
            10 => self.object(depth + 1),
            11 => self.put_enclosed("function (a) { ", |it| it.statements(depth + 1), "}"),
            12 => self.class(depth + 1),
            13 => {
                self.primary(depth + 1);
                self.one_of(&[".on", "?.res", ".class", "[0]", "(a)", "()", ".respond", "`t`"]);
            }
            14 => self.one_of(&["this", "null", "true", "import.meta"]),
            15 => self.put_enclosed("(async () => { ", |it| it.statements(depth + 1), "})"),
            _ => self.put_enclosed("new (", |it| it.expression(depth + 1), ")(1)"),
        }
    }

    fn expression(&mut self, depth: u32) {
        match self.pick(11) {
            0..=3 => self.primary(depth),
            4..=6 => {
                self.primary(depth);
                self.one_of(&[
                    " / ", "/ ", " + ", " - ", " < ", " in ", " && ", " == ", ", ", " >> ", "\n/ ", "\n- ",
                ]);
                self.primary(depth + 1);
            }
            7 => {
                self.primary(depth);
                self.put_enclosed(" ? ", |it| it.primary(depth + 1), " : ");
                self.primary(depth + 1);
            }
            8 => {
                self.one_of(&["!", "-", "typeof ", "void ", "~"]);
                self.primary(depth + 1);
            }
            9 => {
                self.one_of(&["a => ", "async a => ", "() => "]);
                self.primary(depth + 1);
            }
            _ => self.put_enclosed("(a, b) => { ", |it| it.statements(depth + 1), "}"),
        }
    }

    fn object(&mut self, depth: u32) {
        self.put("{ ");
        for _ in 0..self.pick(3) {
            match self.pick(6) {
                0 => self.put("res"),
                1 => self.put_enclosed("on: ", |it| it.primary(depth), ""),
                2 => self.put_enclosed("if() { ", |it| it.statements(depth), "}"),
                3 => self.put_enclosed("get [a]() { ", |it| it.statements(depth), "}"),
                4 => self.put_enclosed("...", |it| it.primary(depth), ""),
                _ => self.put_enclosed("'state': ", |it| it.primary(depth), ""),
            }
            self.put(", ");
        }
        self.put("}");
    }

    fn class(&mut self, depth: u32) {
        self.put("class ");
        if self.pick(3) == 0 {
            self.put_enclosed("extends (", |it| it.primary(depth), ") ");
        }
        self.put("{ ");
        for _ in 0..self.pick(3) {
            match self.pick(6) {
                0 => self.put_enclosed("on() { ", |it| it.statements(depth), "}\n"),
                1 => self.put_enclosed("static { ", |it| it.statements(depth), "}\n"),
                2 => self.put_enclosed("res = ", |it| it.primary(depth), "\n"),
                3 => self.put("#state\n"),
                4 => self.put_enclosed("static async *respond() { ", |it| it.statements(depth), "} "),
                _ => self.put_enclosed("par = a => { ", |it| it.statements(depth), "}\n"),
            }
        }
        self.put("}");
    }

    fn statements(&mut self, depth: u32) {
        if depth < DEPTH {
            for _ in 0..self.pick(3) {
                self.statement(depth);
            }
        }
    }

    fn block(&mut self, depth: u32) {
        self.put_enclosed("{ ", |it| it.statements(depth + 1), "} ");
    }

    fn statement(&mut self, depth: u32) {
        match self.pick(19) {
            0..=3 => {
                self.name();
                self.one_of(&[" = ", ".a = ", " += ", "[0] = ", "(a, ", " / "]);
                let call = self.text.ends_with("(a, ");
                self.primary(depth);
                self.put(if call { ")" } else { "" });
                self.end_statement();
            }
            4 => {
                self.put("var a = ");
                self.expression(depth);
                self.end_statement();
            }
            5 => {
                self.put_enclosed("if (", |it| it.expression(depth + 1), ") ");
                self.block(depth);
                if self.pick(2) == 0 {
                    self.put("else ");
                    self.statement(depth + 1);
                }
            }
            6 => {
                self.put_enclosed("while (", |it| it.expression(depth + 1), ") ");
                self.block(depth);
            }
            7 => {
                self.put_enclosed("for (const of of [", |it| it.primary(depth + 1), "]) ");
                self.block(depth);
            }
            8 => {
                self.put_enclosed("for (var i = 0; ", |it| it.expression(depth + 1), "; i++) ");
                self.block(depth);
            }
            9 => self.block(depth),
            10 => {
                self.one_of(&["{ function f(a, b = {}) ", "{ async function f() ", "{ function* f() "]);
                self.block(depth);
                self.put("}\n");
            }
            11 => {
                self.put_enclosed("switch (", |it| it.expression(depth + 1), ") { case 1 ? 2 : 3: ");
                self.statements(depth + 1);
                self.put_enclosed("default: ", |it| it.statements(depth + 1), "}\n");
            }
            12 => {
                self.put("try ");
                self.block(depth);
                self.one_of(&["catch ", "catch (e) ", "finally "]);
                self.block(depth);
            }
            13 => {
                self.put("do ");
                self.block(depth);
                self.put_enclosed("while (", |it| it.expression(depth + 1), ") ");
            }
            14 => {
                self.put_enclosed("{ class A { on() { ", |it| it.statements(depth + 1), "} } ");
                self.one_of(&["/a/.b }\n", "}\n", "\n}\n"]);
            }
            15 => {
                self.name();
                self.put("\n");
            }
            16 => self.put_enclosed("l: ", |it| it.block(depth), "\n"),
            17 => {
                self.put("throw ");
                self.expression(depth);
                self.end_statement();
            }
            _ => self.put(";"),
        }
    }

    fn record_construct(&mut self, kind: &'static str) {
        self.generated_constructs.push((kind, self.text.len()));
    }

    fn service(&mut self, number: usize) {
        self.record_construct("service");
        self.put(&format!("service s{number}"));
        self.one_of(&[" {\n", "{", "\n{ ", " /* { */ { "]);
        for _ in 0..self.pick(5) {
            match self.pick(4) {
                0 => self.state(),
                1 => self.put_enclosed("function f(a) { ", |it| it.statements(1), "}\n"),
                _ => self.resource(1),
            }
        }
        self.put("}\n");
    }

    fn state(&mut self) {
        self.record_construct("state");
        self.put("state ");
        self.new_name();
        if self.pick(2) == 0 {
            self.put(" = ");
            self.primary(2);
        }
        self.end_statement();
    }

    fn resource(&mut self, depth: u32) {
        self.record_construct("resource");
        self.numbers += 1;
        self.put(&format!("res '/{}'", self.numbers));
        if self.pick(2) == 0 {
            self.put(" + ");
            self.primary(3);
        }
        if self.pick(2) == 0 {
            self.put(" ");
            return self.handler("GET", depth);
        }
        self.one_of(&[" { ", "{", "\n{\n"]);
        if self.pick(2) == 0 {
            self.state();
        }
        for method in ["PUT", "POST", "DELETE"].into_iter().take(1 + self.pick(3)) {
            self.handler(method, depth);
        }
        self.one_of(&["}\n", "} ", "};"]);
    }

    fn handler(&mut self, method: &str, depth: u32) {
        self.record_construct("handler");
        self.put(&format!("on {method}"));
        self.one_of(&[" { ", "{", "\n{\n"]);
        for _ in 0..self.pick(5) {
            self.handler_statement(depth);
        }
        self.one_of(&["}\n", "} ", "};"]);
    }

    /// Writes a statement of a handler.
    fn handler_statement(&mut self, depth: u32) {
        if depth >= DEPTH {
            return self.respond();
        }
        match self.pick(9) {
            0 => self.state(),
            1 => self.resource(depth + 1),
            2 => {
                self.record_construct("external");
                self.put("res ");
                self.new_name();
                self.put(" = ");
                self.primary(2);
                self.end_statement();
            }
            3 => {
                self.record_construct("par");
                self.put_enclosed("par { ", |it| it.handler_statement(depth + 1), "} ");
            }
            4 => {
                self.record_construct("pfor");
                self.put_enclosed("pfor(var i in ", |it| it.primary(2), ") ");
                self.put_enclosed("{ ", |it| it.handler_statement(depth + 1), "}\n");
            }
            5 => {
                self.put_enclosed("if (", |it| it.expression(2), ") ");
                self.respond();
                self.put("\nelse { ");
                self.handler_statement(depth + 1);
                self.put("}");
            }
            6 => self.statement(2),
            _ => self.respond(),
        }
    }

    fn respond(&mut self) {
        self.record_construct("respond");
        self.put("respond ");
        self.expression(2);
        self.end_statement();
    }

    /// Writes the contents of a service, or of a handler nested in `depth` resources.
    fn functions_block(&mut self, depth: u32) {
        self.one_of(&["", "state n = 1\n", "state m = f1(2)\n", "state n = 1, m = 2\n"]);
        self.one_of(&["", "res own = '/own'\n"]);
        for _ in 0..self.pick(4) {
            self.function();
        }
        self.put(&format!("res '/{depth}/'"));
        if depth > 0 {
            self.put(" + x");
        }
        if self.pick(4) == 0 {
            return self.functions_handler(depth);
        }
        self.put(" {\n");
        if depth < 2 && self.pick(2) == 0 {
            self.functions_block_of_resource(depth);
        }
        self.functions_handler(depth);
        self.put("}\n");
    }

    fn functions_block_of_resource(&mut self, depth: u32) {
        self.one_of(&["", "state n = 1\n", "state m = f1(2) + x\n"]);
        for _ in 0..=self.pick(4) {
            self.function();
        }
        if depth == 0 {
            self.one_of(&["", "res own = '/own'\n"]);
        }
    }

    fn functions_handler(&mut self, depth: u32) {
        self.put(" on POST {\n");
        self.one_of(&["var x = 1\n", "const x = query.x, own = 0\n", "state n = 3; var x = n\n", "var x\n"]);
        for _ in 0..self.pick(3) {
            self.function();
        }
        if depth < 2 && self.pick(3) > 0 {
            self.functions_block(depth + 1);
        }
        self.put_enclosed("respond [", Self::use_of_function, "]\n}\n");
    }

    fn function(&mut self) {
        match self.pick(6) {
            0..=2 => {
                self.put("function ");
                self.function_name();
                self.put_enclosed("(k) { return ", Self::use_of_function, " }\n");
            }
            3 => {
                self.put("const ");
                self.function_name();
                self.put_enclosed(" = k => ", Self::use_of_function, "\n");
            }
            4 => {
                self.put("const ");
                self.function_name();
                self.put(" = function ");
                self.function_name();
                self.put_enclosed("(k) { return ", Self::use_of_function, " }\n");
            }
            _ => self.put_enclosed("class A { m() { return ", Self::use_of_function, " } }\n"),
        }
    }

    fn function_name(&mut self) {
        self.one_of(&["f1", "f2", "f3"]);
    }

    fn use_of_function(&mut self) {
        match self.pick(9) {
            0..=2 => {
                self.function_name();
                self.put("(k - 1)");
            }
            3 => {
                self.put("[1].map(");
                self.function_name();
                self.put(")");
            }
            4 => {
                self.function_name();
                self.put_enclosed("(", Self::use_of_function, ")");
            }
            5 => self.one_of(&["n", "m", "n++"]),
            6 => self.put("own.get()"),
            7 => self.one_of(&["x", "new A().m()", "query.a"]),
            _ => self.put_enclosed("{ x, v: ", Self::use_of_function, " }"),
        }
    }
}
