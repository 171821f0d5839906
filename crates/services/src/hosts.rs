//! Hosts beside the services, by an operator's patterns: `auth.internal:8080`, `*.example.org`, `10.0.0.0/8`.
//!
//! A host that a pattern opens is called as a service of which nothing is configured. A name says little about
//! where it leads, so what is checked is the very address that is connected to (`reach.rs`): whoever writes a
//! `*` has opened the public internet and nothing behind the gateway.

mod pattern;
mod reach;

use std::sync::{Arc, Mutex, PoisonError};

use crate::service::Service;
pub use pattern::HostsError;
use pattern::{Pattern, Place};
pub(crate) use reach::{Reach, is_private};

/// How many hosts are kept ready, with their connections. Of more, the one goes that was called least recently.
const KEPT: usize = 64;

/// The hosts that somebody may call, and those that were called lately.
#[derive(Debug, Default)]
pub struct Hosts {
    patterns: Vec<Pattern>,
    /// The last one called is the last. Few enough to be searched one by one.
    kept: Mutex<Vec<(Key, Arc<Service>)>>,
}

/// What tells one ad-hoc service from another.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    is_secure: bool,
    place: Place,
}

impl Hosts {
    /// Hosts by their patterns; none opens none.
    ///
    /// # Errors
    /// The first text that is no pattern, and why.
    pub fn new(patterns: &[String]) -> Result<Self, HostsError> {
        let patterns = patterns.iter().map(|text| Pattern::parse(text)).collect::<Result<_, _>>()?;
        Ok(Self { patterns, kept: Mutex::default() })
    }

    /// The host as a service, if a pattern opens it: `auth.internal:8080`. Without a port it is that of `https`
    /// or of `http`.
    #[must_use]
    pub fn service(&self, authority: &str, is_secure: bool) -> Option<Arc<Service>> {
        if self.patterns.is_empty() {
            return None;
        }
        let key = Key { is_secure, place: Place::read(authority, if is_secure { 443 } else { 80 })? };
        let reach = self.reach(&key.place)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(known, _)| *known == key) {
            let found = kept.remove(at);
            let service = Arc::clone(&found.1);
            kept.push(found);
            return Some(service);
        }
        let scheme = if is_secure { "https" } else { "http" };
        let service = Arc::new(Service::at(&key.place.to_string(), scheme, reach)?);
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push((key, Arc::clone(&service)));
        Some(service)
    }

    /// Which addresses may be connected to for this place; `None` if no pattern opens it.
    fn reach(&self, place: &Place) -> Option<Reach> {
        let mut opening = self.patterns.iter().filter(|pattern| pattern.opens(place)).peekable();
        opening.peek()?;
        if opening.any(Pattern::is_name) {
            return Some(Reach::Everywhere);
        }
        Some(Reach::Public(self.patterns.iter().filter_map(Pattern::network).collect()))
    }
}

#[cfg(test)]
mod tests;
