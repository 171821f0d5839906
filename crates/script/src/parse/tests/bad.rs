//! Texts with mistakes: everything that is said of them. The texts stand in `tests/bad.in`.

use super::*;

/// One test for each text, with what is printed of it.
macro_rules! texts {
    ($($name:ident: $source:expr;)*) => {$(
        #[test]
        fn $name() {
            said(stringify!($name), $source.as_ref());
        }
    )*};
}

fn said(name: &str, source: &str) {
    let said = told(source);
    assert!(!said.is_empty(), "nothing is said of it");
    insta::assert_snapshot!(name, said);
}

include!("../../../tests/bad.in");
