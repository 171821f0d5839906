//! Whatever a client gives as a value: see `fuzz/src/lib.rs`.

use json::Path;
use serde_json::json;

use super::*;
use crate::subgraph::Parameter;

#[test]
fn any_value_stays_in_its_place_of_the_url() {
    let parameter = |name: &str, place| {
        let from = From::Argument(name.into());
        Parameter { name: name.into(), place, is_required: false, is_repeated: false, from }
    };
    let operation = Operation {
        method: Method::GET,
        path: "/a/{id}/b".into(),
        parameters: vec![parameter("id", In::Path), parameter("q", In::Query)],
        body: None,
        at: Path::default(),
        is_text: false,
        is_empty: false,
    };
    ::fuzz::check(&["..", "/", "\\", "%2f", "?", "&", "#", "é", "\n", "\u{0}"], |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let values = json!({ "id": text, "q": text }).to_string();
        let arguments = Arguments::read(values.into()).expect("JSON");
        let request = Renderer { operation: &operation, arguments: &arguments, key: Key::None }.request();
        let Ok(request) = request else { return };
        let path = request.path_and_query.path();
        assert_eq!(path.split('/').count(), 4, "{path}");
        services::path::check(path).expect("a path that may be sent");
        let query = request.path_and_query.query().expect("a query");
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        assert_eq!(pairs, [("q".into(), text.into())]);
    });
}
