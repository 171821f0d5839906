//! Tests of all diagnostics of invalid texts, which are in `tests/bad.in`.

use super::*;

/// Defines a test for each text, which compares the rendered diagnostics.
macro_rules! texts {
    ($($name:ident: $source:expr;)*) => {$(
        #[test]
        fn $name() {
            said(stringify!($name), $source.as_ref());
        }
    )*};
}

fn said(name: &str, source: &str) {
    let said = render_diagnostics(source);
    assert!(!said.is_empty(), "there must be a diagnostic");
    insta::assert_snapshot!(name, said);
}

include!("../../../tests/bad.in");
