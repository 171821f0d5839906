//! The C environment as seen by a query: its exports, and the behaviour of its helpers. The tests call its
//! functions as a query does, with text and argument lists in the shared memory.
use std::collections::BTreeSet;

use environments::C;
use query_abi::{ENVIRONMENT_C, HOST_FUNCTIONS, HOST_MODULE, MEMORY, STACK_POINTER, TABLE, layout};
use sandbox::{Caller, Engine, Instance, Linker, Memory, Module, Store};
use wasmparser::{Parser, Payload};

const INPUT: &str = r#"{"a":{"b/c":[10,{"id":7,"name":"x \"y\" é"},3.0]},"big":123456789012345678901234567890,
    "users":[{"id":1,"n":"a"},{"id":2,"n":"b"},{"id":1,"n":"c"},{"id":"k","n":"d"},{"n":"e"}],
    "roles":["user","admin"],"empty":{}}"#;

/// The host: records requests and results, and contains the response to calls.
#[derive(Default)]
struct RecordingHost {
    answer: Option<String>,
    failure: Option<String>,
    requests: Vec<String>,
    status: i32,
    body: &'static str,
}

/// A live environment.
struct LiveEnvironment {
    store: Store<RecordingHost>,
    instance: Instance,
    memory: Memory,
}

/// An argument of a format.
enum FormatArgument<'a> {
    Int(i32),
    Long(i64),
    Double(f64),
    Text(&'a str),
}

use FormatArgument::{Double, Int, Long, Text};

fn read_text(caller: &mut Caller<'_, RecordingHost>, at: i32, len: i32) -> String {
    let memory = caller.get_export(MEMORY).and_then(sandbox::Extern::into_memory).expect("a memory");
    let mut bytes = vec![0; len as usize];
    memory.read(caller, at as usize, &mut bytes).expect("text inside of the memory");
    String::from_utf8(bytes).expect("UTF-8")
}

fn read_words(caller: &mut Caller<'_, RecordingHost>, at: i32) -> [i32; 8] {
    let memory = caller.get_export(MEMORY).and_then(sandbox::Extern::into_memory).expect("a memory");
    let mut bytes = [0; 32];
    memory.read(caller, at as usize, &mut bytes).expect("a request inside of the memory");
    std::array::from_fn(|i| i32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes")))
}

fn write_bytes(caller: &mut Caller<'_, RecordingHost>, at: i32, bytes: &[u8]) {
    let memory = caller.get_export(MEMORY).and_then(sandbox::Extern::into_memory).expect("a memory");
    memory.write(caller, at as usize, bytes).expect("room inside of the memory");
}

/// Links the host functions that the tested helpers use; any other traps.
fn linker(engine: &Engine, module: &Module) -> Linker<RecordingHost> {
    let mut linker = Linker::<RecordingHost>::new(engine);
    let link: sandbox::GuestResult<()> = (|| {
        linker.func_wrap(HOST_MODULE, "done", |mut host: Caller<'_, RecordingHost>, at: i32, len: i32| {
            host.data_mut().answer = Some(read_text(&mut host, at, len));
        })?;
        linker.func_wrap(HOST_MODULE, "header", |_: i32, _: i32, _: i32, _: i32| 0)?;
        linker.func_wrap(
            HOST_MODULE,
            "fail",
            |mut host: Caller<'_, RecordingHost>, _kind: i32, at: i32, len: i32, _: i32, _: i32| {
                host.data_mut().failure = Some(read_text(&mut host, at, len));
            },
        )?;
        linker.func_wrap(HOST_MODULE, "http", |mut host: Caller<'_, RecordingHost>, at: i32| {
            let [method, method_len, url, url_len, _, _, body, body_len] = read_words(&mut host, at);
            let line = [(method, method_len), (url, url_len), (body, body_len)]
                .map(|(at, len)| read_text(&mut host, at, len))
                .join(" ");
            host.data_mut().requests.push(line.trim_end().to_owned());
            1
        })?;
        linker.func_wrap(HOST_MODULE, "Future_wait", |_: i32, _: i32, _: i32| 0)?;
        linker.func_wrap(
            HOST_MODULE,
            "Response_get",
            |mut host: Caller<'_, RecordingHost>, _: i32, at: i32| {
                let response = [host.data().status, -8, 0, host.data().body.len() as i32];
                write_bytes(&mut host, at, &response.map(i32::to_le_bytes).concat());
                0
            },
        )?;
        linker.func_wrap(
            HOST_MODULE,
            "Response_read",
            |mut host: Caller<'_, RecordingHost>, _: i32, _: i32, at: i32, len: i32| {
                let body = host.data().body.as_bytes();
                write_bytes(&mut host, at, &body[..len as usize]);
                body.len() as i32
            },
        )?;
        linker.define_unknown_imports_as_traps(module)
    })();
    link.expect("functions of the ABI");
    linker
}

impl LiveEnvironment {
    fn new() -> Self {
        static MODULE: std::sync::LazyLock<Module> = std::sync::LazyLock::new(|| {
            Module::from_binary(&Engine::default(), C.wasm).expect("a valid environment")
        });
        let mut store = Store::new(MODULE.engine(), RecordingHost::default());
        let linker = linker(MODULE.engine(), &MODULE);
        let instance = linker.instantiate(&mut store, &MODULE).expect("an instance");
        let memory = instance.get_memory(&mut store, MEMORY).expect("a memory");
        Self { store, instance, memory }
    }

    /// Copies bytes and a NUL into the guest.
    fn copy_bytes_in(&mut self, bytes: &[u8]) -> i32 {
        let alloc =
            self.instance.get_typed_func::<i32, i32>(&mut self.store, "orfa_alloc").expect("orfa_alloc");
        let at = alloc.call(&mut self.store, bytes.len() as i32 + 1).expect("memory");
        assert_eq!(at % 16, 0);
        self.memory.write(&mut self.store, at as usize, &[bytes, b"\0"].concat()).expect("room");
        at
    }

    /// Writes the arguments of a `...` to memory as C does.
    fn write_arguments(&mut self, arguments: &[FormatArgument<'_>]) -> i32 {
        let mut bytes = vec![];
        for argument in arguments {
            let (word, align) = match argument {
                Int(number) => (number.to_le_bytes().to_vec(), 4),
                Long(number) => (number.to_le_bytes().to_vec(), 8),
                Double(number) => (number.to_le_bytes().to_vec(), 8),
                Text(text) => (self.copy_bytes_in(text.as_bytes()).to_le_bytes().to_vec(), 4),
            };
            bytes.resize(bytes.len().next_multiple_of(align), 0);
            bytes.extend(word);
        }
        self.copy_bytes_in(&bytes)
    }

    /// Calls a function with `i32` parameters and an `i32` result. `Err` is the reason with which it ended
    /// the run.
    fn call_function(&mut self, name: &str, parameters: &[i32]) -> Result<i32, String> {
        let (instance, store) = (&self.instance, &mut self.store);
        let outcome = match *parameters {
            [a] => instance.get_typed_func::<i32, i32>(&mut *store, name).expect(name).call(&mut *store, a),
            [a, b] => {
                let function = instance.get_typed_func::<(i32, i32), i32>(&mut *store, name).expect(name);
                function.call(&mut *store, (a, b))
            }
            [a, b, c] => {
                let function =
                    instance.get_typed_func::<(i32, i32, i32), i32>(&mut *store, name).expect(name);
                function.call(&mut *store, (a, b, c))
            }
            [a, b, c, d] => {
                let function =
                    instance.get_typed_func::<(i32, i32, i32, i32), i32>(&mut *store, name).expect(name);
                function.call(&mut *store, (a, b, c, d))
            }
            _ => unreachable!("helpers have at most four parameters"),
        };
        outcome.map_err(|_| self.take_failure())
    }

    fn take_failure(&mut self) -> String {
        self.store.data_mut().failure.take().expect("a reason")
    }

    /// Returns the answer that a template makes of its arguments.
    fn fill_template(&mut self, template: &str, arguments: &[FormatArgument<'_>]) -> Result<String, String> {
        let parameters = (self.copy_bytes_in(template.as_bytes()), self.write_arguments(arguments));
        let done_as = self.instance.get_typed_func::<(i32, i32), ()>(&mut self.store, "orfa_done_as");
        let outcome = done_as.expect("orfa_done_as").call(&mut self.store, parameters);
        outcome.map_err(|_| self.take_failure())?;
        Ok(self.store.data_mut().answer.take().expect("an answer"))
    }

    /// Returns the method and URL of a call.
    fn call_url(&mut self, url: &str, arguments: &[FormatArgument<'_>]) -> String {
        let parameters = [self.copy_bytes_in(url.as_bytes()), self.write_arguments(arguments)];
        self.call_function("orfa_get", &parameters).expect("a call");
        self.store.data_mut().requests.pop().expect("a request")
    }

    fn parse_json(&mut self, json: &str) -> Result<i32, String> {
        let at = self.copy_bytes_in(json.as_bytes());
        self.call_function("orfa_json", &[at, json.len() as i32])
    }

    fn value_at(&mut self, value: i32, pointer: &str, arguments: &[FormatArgument<'_>]) -> i32 {
        let parameters = [value, self.copy_bytes_in(pointer.as_bytes()), self.write_arguments(arguments)];
        self.call_function("orfa_at", &parameters).expect("orfa_at never fails")
    }

    fn render_json(&mut self, value: i32) -> String {
        self.fill_template("%v", &[Int(value)]).expect("a value")
    }

    fn call_with_name(&mut self, function: &str, value: i32, name: &str) -> i32 {
        let name = self.copy_bytes_in(name.as_bytes());
        self.call_function(function, &[value, name]).expect(function)
    }
}

#[test]
fn imports_only_host_functions_and_exports_the_listed_names() {
    let (mut imports, mut exports) = (BTreeSet::new(), BTreeSet::new());
    for payload in Parser::new(0).parse_all(C.wasm) {
        match payload.expect("a valid module") {
            Payload::ImportSection(section) => imports.extend(section.into_imports().map(|import| {
                let import = import.expect("an import");
                assert_eq!(import.module, HOST_MODULE, "{}", import.name);
                import.name.to_owned()
            })),
            Payload::ExportSection(section) => {
                exports.extend(section.into_iter().map(|export| export.expect("an export").name.to_owned()));
            }
            _ => {}
        }
    }
    let known: BTreeSet<_> = HOST_FUNCTIONS.iter().map(|function| function.name.to_owned()).collect();
    assert!(imports.is_subset(&known), "{imports:?}");
    let list =
        include_str!("../c/exports.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let promised: BTreeSet<_> = list.chain([MEMORY, TABLE, STACK_POINTER]).map(str::to_owned).collect();
    assert_eq!(exports, promised);
    assert_eq!(C.name, ENVIRONMENT_C);
}

#[test]
fn query_regions_are_zeroed_and_heap_starts_after_them() {
    let mut guest = LiveEnvironment::new();
    let query = layout::QUERY_DATA.start as usize..layout::QUERY_DATA.end as usize;
    assert!(guest.memory.data(&guest.store)[query].iter().all(|byte| *byte == 0));
    assert!(guest.copy_bytes_in(b"x") >= layout::ENVIRONMENT_DATA as i32);
}

#[test]
fn templates_become_json() {
    let mut guest = LiveEnvironment::new();
    let object = guest.parse_json(r#"{"x":1,"y":[true]}"#).expect("JSON");
    let cases: &[(&str, &[FormatArgument<'_>], &str)] = &[
        ("{a:%d,b:%u}", &[Int(-3), Int(-1)], r#"{"a":-3,"b":4294967295}"#),
        (
            "[%lld, %f, %f]",
            &[Long(i64::MIN), Double(0.1), Double(f64::NAN)],
            "[-9223372036854775808,0.1,null]",
        ),
        ("{true:true,n:null,w:word}", &[], r#"{"true":true,"n":null,"w":"word"}"#),
        ("{'a b':\"c\",s:%s}", &[Text("q\"\n\u{e9}")], "{\"a b\":\"c\",\"s\":\"q\\\"\\n\u{e9}\"}"),
        ("{%s:%b,x:-1.5e3}", &[Text("key"), Int(2)], r#"{"key":true,"x":-1.5e3}"#),
        ("[%v,%s]", &[Int(0), Int(0)], "[null,null]"),
        ("{...%v,a:%v}", &[Int(object), Int(object)], r#"{"x":1,"y":[true],"a":{"x":1,"y":[true]}}"#),
        ("{a:1,...%v}", &[Int(0)], r#"{"a":1}"#),
        ("{...%v,a:[]}", &[Int(0)], r#"{"a":[]}"#),
    ];
    for (template, arguments, json) in cases {
        assert_eq!(guest.fill_template(template, arguments).as_deref(), Ok(*json), "{template}");
    }
}

#[test]
fn invalid_template_ends_run_and_is_quoted() {
    for template in ["{a:%d", "a}", "]{", "{a:%x}", "{'a:1}", "[...%d]", "[!]"] {
        let reason = LiveEnvironment::new().fill_template(template, &[Int(1)]).expect_err(template);
        assert!(reason.contains(template), "{template}: {reason}");
    }
}

#[test]
fn percent_encodes_url_arguments() {
    let mut guest = LiveEnvironment::new();
    let input = guest.parse_json(INPUT).expect("JSON");
    let users = guest.value_at(input, "/users", &[]);
    let ids = guest.call_with_name("orfa_pluck", users, "id");
    assert_eq!(
        guest.call_url("http://a/b?x=%s&n=%d", &[Text("a/b&c?\u{e9}"), Int(5)]),
        "GET http://a/b?x=a%2Fb%26c%3F%C3%A9&n=5"
    );
    assert_eq!(guest.call_url("http://a/b?ids=%v", &[Int(ids)]), "GET http://a/b?ids=1,2,k");
    let name = guest.value_at(input, "/a/b~1c/1/name", &[]);
    assert_eq!(guest.call_url("http://a/%v", &[Int(name)]), "GET http://a/x%20%22y%22%20%C3%A9");
}

#[test]
fn rejects_url_arguments_that_vanish_or_change_path() {
    let call = |function: &str, url: &str, json: &str| {
        let mut guest = LiveEnvironment::new();
        let value = guest.parse_json(json).expect("JSON");
        let parameters = [guest.copy_bytes_in(url.as_bytes()), guest.write_arguments(&[Int(value)])];
        guest
            .call_function(function, &parameters)
            .map(|_| guest.store.data_mut().requests.pop().expect("a request"))
    };
    for (url, json, reason) in [
        ("http://a/b?x=%v", "", "no value"),
        ("http://a/b?x=%v", "null", "null"),
        ("http://a/b?x=%v", "{}", "an object"),
        ("http://a/b?x=%v", "[1,[2]]", "a nested array"),
        ("http://a/%v", r#""""#, "can't be used in the path"),
        ("http://a/%v", r#""..""#, "can't be used in the path"),
        ("http://a/%v/x", r#"["a","."]"#, "can't be used in the path"),
        ("http://a/%v/x", "[]", "can't be used in the path"),
        ("http://a/b?x=%s", "", "NULL"),
    ] {
        let told = call("orfa_get", url, json).expect_err(url);
        assert!(told.contains(reason), "{url} {json}: {told}");
    }
    let told = call("orfa_delete", "http://a/b?x=%v", "[]").expect_err("all of them");
    assert!(told.contains("an empty list"), "{told}");
    for (json, sent) in [("[]", ""), (r#""..""#, ".."), ("true", "true"), ("[1,\"a\"]", "1,a")] {
        assert_eq!(call("orfa_get", "http://a/b?x=%v", json), Ok(format!("GET http://a/b?x={sent}")));
    }
}

#[test]
fn pointers_reach_every_value_and_escape_arguments() {
    let mut guest = LiveEnvironment::new();
    let input = guest.parse_json(INPUT).expect("JSON");
    let list = guest.value_at(input, "/a/%s", &[Text("b/c")]);
    for (n, json) in [(2, "3.0"), (0, "10"), (1, r#"{"id":7,"name":"x \"y\" \u{e9}"}"#)] {
        let found = guest.value_at(list, "/%d", &[Int(n)]);
        assert_eq!(guest.render_json(found), json.replace("\\u{e9}", "\u{e9}"));
    }
    for pointer in ["/3", "/-1", "/01x", "/x", "x", "/1/id/0", "/1/"] {
        assert_eq!(guest.value_at(list, pointer, &[]), 0, "{pointer}");
    }
    let big = guest.value_at(input, "/big", &[]);
    assert_eq!(guest.render_json(big), "123456789012345678901234567890");
    let pointer = guest.copy_bytes_in(b"/%d/id");
    let one = guest.write_arguments(&[Int(1)]);
    let nine = guest.write_arguments(&[Int(9)]);
    assert_eq!(guest.call_function("orfa_int", &[list, -5, pointer, one]), Ok(7));
    assert_eq!(guest.call_function("orfa_int", &[list, -5, pointer, nine]), Ok(-5));
}

#[test]
fn joins_lists_and_projects_objects() {
    let mut guest = LiveEnvironment::new();
    let input = guest.parse_json(INPUT).expect("JSON");
    let users = guest.value_at(input, "/users", &[]);
    let name = guest.copy_bytes_in(b"id");
    for (row, json) in [(2, r#"{"id":1,"n":"a"}"#), (3, r#"{"id":"k","n":"d"}"#), (4, "null")] {
        let key = guest.value_at(users, "/%d/id", &[Int(row)]);
        let found = guest.call_function("orfa_find", &[users, name, key]).expect("orfa_find");
        assert_eq!(guest.render_json(found), json);
    }
    let picked = guest.call_with_name("orfa_pick", input, "roles, empty,none");
    assert_eq!(guest.render_json(picked), r#"{"roles":["user","admin"],"empty":{}}"#);
    let roles = guest.value_at(input, "/roles", &[]);
    assert_eq!(
        (guest.call_with_name("orfa_has", roles, "admin"), guest.call_with_name("orfa_has", roles, "adm")),
        (1, 0)
    );
}

#[test]
fn invalid_json_ends_run_and_empty_text_is_null() {
    let mut guest = LiveEnvironment::new();
    assert_eq!(guest.parse_json(""), Ok(0));
    assert_eq!(guest.parse_json("[1,]"), Err("the text is not JSON, at byte 2".to_owned()));
}

#[test]
fn failed_call_ends_run_unless_try_json_is_used() {
    let mut guest = LiveEnvironment::new();
    for (status, body, outcome) in [
        (200, "{}", None),
        (204, "", None),
        (404, "{}", Some("GET http://a/7 answered 404")),
        (0, "", Some("GET http://a/7: the service did not answer in time")),
        (200, "<p>", Some("GET http://a/7: its body is not JSON, at byte 0")),
    ] {
        guest.call_url("http://a/%d", &[Int(7)]);
        (guest.store.data_mut().status, guest.store.data_mut().body) = (status, body);
        assert_eq!(guest.call_function("orfa_try_json", &[1]).is_ok_and(|value| value != 0), body == "{}");
        assert_eq!(guest.call_function("orfa_wait_json", &[1]).err().as_deref(), outcome, "{status} {body}");
    }
}
