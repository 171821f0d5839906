//! The seam for whoever wants to see what a module does: every callback and every host call, as they come.
//! With nobody watching it costs a branch each.

/// Somebody who watches.
pub trait Observe: Send + Sync {
    /// Something happened. It is called with the virtual machine locked, so it must not wait.
    fn see(&self, event: &Event<'_>);
}

/// What happened, in the order in which it did: the host calls of a callback come between its beginning and
/// its end.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The host calls the module.
    Callback {
        /// The filter's name.
        filter: &'a str,
        /// `proxy_on_request_headers`.
        name: &'static str,
        /// As the module gets them; the first is the context for most.
        arguments: &'a [u32],
    },
    /// The module returned.
    Returned {
        /// The callback's name.
        name: &'static str,
        /// What it returned; 0 where it returns nothing.
        value: u32,
    },
    /// The module called the host.
    HostCall {
        /// `proxy_get_header_map_value`.
        name: &'static str,
        /// What it asked for, in words: `request headers, :path`.
        about: &'a str,
        /// What it was given: the beginning, as text.
        gave: &'a str,
        /// What the host answered: a status of the ABI.
        status: &'static str,
    },
    /// The module wrote to the log.
    Log {
        /// The filter's name.
        filter: &'a str,
        /// `info`.
        level: &'static str,
        /// What it wrote.
        message: &'a str,
    },
    /// The module trapped, and its virtual machine is gone.
    Trapped {
        /// The filter's name.
        filter: &'a str,
        /// Why.
        reason: &'a str,
    },
}
