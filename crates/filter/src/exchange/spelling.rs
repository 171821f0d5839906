//! Alternative spellings of a header field. Servers behind CGI-like interfaces treat `-` and other
//! punctuation as the same character, so a client's `x_user` or `x.user` could be taken for a filter's
//! `x-user`. A field that a filter changes therefore keeps only the filters' spellings.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use http::header::{HeaderMap, HeaderName};
use services::headers::{canonical_name, is_same_field};

/// The maximum number of remembered names. Names of filters beyond it count as the client's.
const MAX_NAMES: usize = 1024;

/// The names of a request's headers that filters have written.
#[derive(Clone, Debug, Default)]
pub(crate) struct WrittenNames(HashSet<HeaderName, RandomState>);

impl WrittenNames {
    /// Notes that a filter has written a field, and removes the client's other spellings of it.
    pub(crate) fn record_written(&mut self, headers: &mut HeaderMap, name: &HeaderName) {
        self.strip_others(headers, name);
        self.insert(name);
    }

    /// Removes the client's spellings of a field other than this one.
    pub(crate) fn strip_others(&self, headers: &mut HeaderMap, name: &HeaderName) {
        let is_other =
            |other: &HeaderName| other != name && is_same_field(other, name) && !self.0.contains(other);
        remove_matching(headers, is_other);
    }

    /// Like [`Self::record_written`], for a filter that has replaced all headers. If several spellings of a
    /// field are left, the client's spellings with other punctuation than `-` are removed; if the filter has
    /// changed or removed the field, all of the client's are.
    pub(crate) fn replace_all(&mut self, headers: &mut HeaderMap, before: &HeaderMap) {
        let (stripped, changed): (Vec<HeaderName>, Vec<HeaderName>) = {
            let is_changed =
                |name: &&HeaderName| !headers.get_all(*name).iter().eq(before.get_all(*name).iter());
            let mut fields: HashMap<String, FieldSpellings<'_>, RandomState> = HashMap::default();
            for name in headers.keys().chain(before.keys()) {
                let spellings = fields.entry(canonical_field_name(name)).or_insert(FieldSpellings::new(name));
                spellings.has_several |= spellings.first != name;
                spellings.is_changed |= is_changed(&name);
            }
            let is_stripped = |name: &&HeaderName| {
                let spellings =
                    fields.get(&canonical_field_name(name)).filter(|spellings| spellings.has_several);
                let is_clients = !is_changed(name) && !self.0.contains(*name);
                let has_precedence = |spellings: &FieldSpellings<'_>| {
                    spellings.is_changed || canonical_field_name(name) != name.as_str()
                };
                is_clients && spellings.is_some_and(has_precedence)
            };
            let stripped = headers.keys().filter(is_stripped).cloned().collect();
            (stripped, headers.keys().filter(is_changed).cloned().collect())
        };
        for name in stripped {
            headers.remove(name);
        }
        changed.iter().for_each(|name| self.insert(name));
    }

    fn insert(&mut self, name: &HeaderName) {
        if self.0.len() < MAX_NAMES {
            self.0.insert(name.clone());
        }
    }
}

/// The spellings of one field.
struct FieldSpellings<'a> {
    first: &'a HeaderName,
    has_several: bool,
    /// Whether a filter has written or removed one of them.
    is_changed: bool,
}

impl<'a> FieldSpellings<'a> {
    fn new(first: &'a HeaderName) -> Self {
        Self { first, has_several: false, is_changed: false }
    }
}

fn canonical_field_name(name: &HeaderName) -> String {
    canonical_name(name.as_str()).into_owned()
}

fn remove_matching(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}
