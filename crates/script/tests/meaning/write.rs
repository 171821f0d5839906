//! A generator of random programs with `par` and `pfor` that always terminate and never violate a rule.

/// The generator. Input bytes make its choices, so that smaller inputs give smaller programs.
pub(crate) struct HandlerGenerator<'b> {
    bytes: &'b [u8],
    text: String,
    next_number: usize,
    /// Names declared in the enclosing blocks.
    declared_names: Vec<String>,
}

const DEPTH: usize = 3;

/// The head of every program: resources, numbers, a list with two names, an object, and functions that call
/// resources, change variables around them, or change their arguments.
const HEAD: &str = "service s {
  function twice(x, y) { return x * 2 + y }
  function more(list, x) { list.push(x); return list.length }
  res '/a' on POST {
    res g0 = 'http://zero/@', g1 = 'http://first/@', g2 = 'http://second/@'
    var v0 = 1, v1 = 2, v2 = 3, v3 = 4
    var l = [1, 2], m = l, box = { list: [5] }, o = { a: 1, b: 2 }, out = [], turns = [3, 1, 2, 5]
    function load(x) { return g0.get(x) + v1 }
    function hold(x) { box.list = x; return x }
    function bump(x) { v0 += x; return v0 }
    function store(x) { g1.put(x); return g1.get(x) }
";

impl<'b> HandlerGenerator<'b> {
    /// Returns the program for the bytes.
    pub(crate) fn program(bytes: &'b [u8]) -> String {
        let mut writer = Self { bytes, text: HEAD.to_owned(), next_number: 0, declared_names: Vec::new() };
        while !writer.bytes.is_empty() {
            writer.statement(1);
        }
        writer.text.push_str("    respond [v0, v1, v2, v3, l, m, box, o, out]\n  }\n}\n");
        writer.text
    }

    fn pick(&mut self, below: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % below
    }

    fn variable(&mut self) -> String {
        format!("v{}", self.pick(4))
    }

    fn resource(&mut self) -> String {
        format!("g{}", self.pick(3))
    }

    fn line(&mut self, depth: usize, text: &str) {
        self.text.push_str(&"  ".repeat(depth + 1));
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn value(&mut self, depth: usize) -> String {
        if depth > DEPTH {
            return self.variable();
        }
        match self.pick(22) {
            0 => format!("{}", self.pick(5)),
            1 | 2 => self.variable(),
            3..=6 => format!("{}.get({})", self.resource(), self.value(depth + 1)),
            7 => format!("({} + {})", self.value(depth + 1), self.value(depth + 1)),
            8 => format!("twice({}, {})", self.value(depth + 1), self.value(depth + 1)),
            9 => format!("load({})", self.value(depth + 1)),
            10 => format!("({} > 3 && {})", self.variable(), self.value(depth + 1)),
            11 => format!("({} ? {} : {})", self.variable(), self.value(depth + 1), self.value(depth + 1)),
            12 => "l.length".into(),
            13 => "m[0]".into(),
            14 => "o.a".into(),
            15 => format!("bump({})", self.value(depth + 1)),
            16 => format!("[{}, {}].length", self.value(depth + 1), self.value(depth + 1)),
            17 => format!("l.reduce((a, b) => a + b, {})", self.value(depth + 1)),
            18 => self.declared_names.last().cloned().unwrap_or_else(|| "v0".into()),
            19 => "box.list.length".into(),
            20 => "box.list.at(-1)".into(),
            _ => format!("more(l, {})", self.value(depth + 1)),
        }
    }

    fn statement(&mut self, depth: usize) {
        let kind = if depth > DEPTH { self.pick(11) } else { self.pick(24) };
        match kind {
            0 | 1 => {
                let (variable, value) = (self.variable(), self.value(0));
                self.line(depth, &format!("{variable} = {value}"));
            }
            2 | 3 => {
                let call = format!(
                    "{}.{}({})",
                    self.resource(),
                    ["put", "post", "get"][self.pick(3)],
                    self.value(1)
                );
                self.line(depth, &call);
            }
            4 => {
                let (variable, value) = (self.variable(), self.value(0));
                self.line(depth, &format!("{variable} += {value}"));
            }
            5 => {
                let name = ["l", "m", "box.list"][self.pick(3)];
                let value = self.value(0);
                self.line(depth, &format!("{name}.push({value})"));
            }
            6 => {
                let value = self.value(0);
                self.line(depth, &format!("o.a = {value}"));
            }
            7 => {
                let call = ["bump", "store", "load"][self.pick(3)];
                let value = self.value(1);
                self.line(depth, &format!("{call}({value})"));
            }
            8 => self.declaration(depth),
            9 => {
                let put = [
                    "box.list = l",
                    "box = { list: [7] }",
                    "box = { list: m }",
                    "hold(l)",
                    "Object.assign(box, { list: m })",
                ];
                let put = put[self.pick(5)];
                self.line(depth, put);
            }
            10 => {
                let (a, b, value) = (self.variable(), self.variable(), self.value(0));
                self.line(depth, &format!(";[{a}, {b}] = [{b}, {value}]"));
            }
            11..=16 => self.block(depth, "par {"),
            17 => {
                let test = self.value(1);
                self.block(depth, &format!("if ({test} % 2) {{"));
            }
            18 => {
                let index = self.name("k");
                self.block(depth, &format!("for (var {index} = 0; {index} < 2; {index}++) {{"));
            }
            19 => self.block(depth, "try {"),
            20 => self.leaving_par(depth),
            21 => {
                let (test, value) = (self.variable(), self.value(1));
                self.line(depth, &format!("if ({test} > 40) {{ respond {value}; return }}"));
            }
            _ => self.pfor_statement(depth),
        }
    }

    fn name(&mut self, begin: &str) -> String {
        self.next_number += 1;
        format!("{begin}{}", self.next_number)
    }

    /// Writes a declaration of one or several variables. Later ones use earlier ones, and occasionally vice
    /// versa.
    fn declaration(&mut self, depth: usize) {
        let word = ["var", "let", "const"][self.pick(3)];
        let count = [1, 1, 2, 3][self.pick(4)];
        let mut all: Vec<String> = (0..count).map(|_| self.declarator(word)).collect();
        if word == "var" && count > 1 && self.pick(3) == 0 {
            let last = format!("n{}", self.next_number);
            all.insert(0, format!("{} = typeof {last}", self.name("n")));
        }
        let gap = [", ", ", // a comma, and a comment\n      ", " /* , */\n    , "][self.pick(3)];
        self.line(depth, &format!("{word} {}", all.join(gap)));
    }

    fn declarator(&mut self, word: &str) -> String {
        let (name, value) = (self.name("n"), self.value(0));
        let text = match self.pick(24) {
            0..=3 => format!("{{ length: {name} }} = [{value}, {value}]"),
            4 | 5 => format!("[, {name} = {value}] = [{value}]"),
            6 if word == "let" => name.clone(),
            _ => format!("{name} = {value}"),
        };
        self.declared_names.push(name);
        text
    }

    fn block(&mut self, depth: usize, head: &str) {
        self.line(depth, head);
        let known = self.declared_names.len();
        for _ in 0..=self.pick(5) {
            self.statement(depth + 1);
        }
        self.declared_names.truncate(known);
        self.line(depth, if head == "try {" { "} finally { v3++ }" } else { "}" });
    }

    /// Writes a `par` that leaves the loop around it.
    fn leaving_par(&mut self, depth: usize) {
        let index = self.name("k");
        let word = ["break", "continue"][self.pick(2)];
        self.line(depth, &format!("for (let {index} = 0; {index} < 3; {index}++) {{"));
        self.line(depth + 1, "par {");
        let known = self.declared_names.len();
        self.statement(DEPTH + 1);
        let test = self.value(1);
        self.line(depth + 2, &format!("if ({test} % 3 == 0) {word}"));
        self.statement(DEPTH + 1);
        self.declared_names.truncate(known);
        self.line(depth + 1, "}");
        self.line(depth, "}");
    }

    /// Writes a `pfor` whose iterations read variables around it, make safe calls, and each set one element.
    fn pfor_statement(&mut self, depth: usize) {
        let index = self.name("i");
        let resource = self.resource();
        let value = self.variable();
        self.line(depth, &format!("pfor(var {index} in turns) {{"));
        if self.pick(2) == 0 {
            self.line(depth + 1, &format!("if ({index} == {}) continue", self.next_number % 5));
        }
        self.line(depth + 1, &format!("var t = {resource}.get(turns[{index}])"));
        if self.pick(2) == 0 {
            self.line(depth + 1, "par {");
            self.line(depth + 2, &format!("var p = {resource}.get({value})"));
            self.line(
                depth + 2,
                &format!("let q = g1.get(turns[{index}]), r = twice(g2.get(p), g0.get({index}))"),
            );
            self.line(depth + 2, "t += p * q - r");
            self.line(depth + 1, "}");
        }
        self.line(depth + 1, &format!("out[{index}] = t + {value}"));
        self.line(depth, "}");
    }
}
