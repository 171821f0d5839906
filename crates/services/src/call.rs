//! The context of a client's request, passed down to each upstream call made for it.
//!
//! A [`RequestCall`] is cheap to clone. It has the caller (`call/caller.rs`), the trace (`trace.rs`), and the
//! budget (`budget.rs`), which the clones share, so that concurrent calls count together. The budget also
//! keeps the list of calls [`UpstreamCallRecord`] so far, which responses, problem documents and `orfa dev`
//! show, and the cache directives of their responses (`caching.rs`).
//!
//! The errors of calls are in `error.rs`. The budget's deadline ends the waiting of a call and
//! the CPU work for its response (`work.rs`).

mod budget;
pub mod caching;
mod caller;
mod error;
pub mod trace;
pub(crate) mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method};
use offload::QuotaKey;

use crate::headers::ConnectionDetails;
use trace::RequestTrace;

pub(crate) use budget::HELD_UNIT;
pub use budget::{
    CallLimits, ReceivedAccounts, ReceivedLimit, ReceivedPermit, RequestBudget, RequestReport,
    UpstreamCallOutcome, UpstreamCallRecord,
};
pub use caller::{CallRights, CallerId, CpuAccounting, quota_key};
pub(crate) use error::DEADLINE_EXCEEDED;
pub use error::{AwaitedEvent, CallError};

/// The context of a client's request: its caller, its budget, its hop count.
#[derive(Clone, Debug)]
pub struct RequestCall {
    /// The caller on whose behalf the request is made.
    pub caller: CallerId,
    /// The caller's rights; `None` for no restrictions.
    pub rights: Option<Arc<CallRights>>,
    /// The account that is charged for CPU time, if any.
    pub payer: Option<Arc<dyn CpuAccounting>>,
    /// The client's own headers. A service gets those that its `forward` setting lists. `None` forwards no
    /// headers.
    pub headers: Option<Arc<HeaderMap>>,
    /// The trace that the request belongs to.
    pub trace: RequestTrace,
    /// The connection details of the client's request; `None` for requests without a client.
    pub connection_details: Option<ConnectionDetails>,
    /// The number of gateways that the request has passed (`CDN-Loop`, RFC 8586).
    pub hops: u8,
    /// The remaining allowance.
    pub budget: Arc<RequestBudget>,
}

impl RequestCall {
    /// Returns an anonymous call with practically no limits, for tests, health checks and benchmarks.
    #[must_use]
    pub fn unlimited() -> Self {
        let budget = RequestBudget::new(Duration::from_secs(3600), u32::MAX, u64::MAX, 1024);
        Self {
            caller: CallerId::Anonymous,
            rights: None,
            payer: None,
            headers: None,
            trace: RequestTrace::default(),
            connection_details: None,
            hops: 0,
            budget: Arc::new(budget),
        }
    }

    /// Returns the call with a budget of its own for the calls of a handler, from these limits. It ends at
    /// `deadline` at the latest. The request's budget shares its cache directives and the account of its
    /// client ([`RequestBudget::with_parent`]).
    #[must_use]
    pub fn with_limits(self, started: Instant, deadline: Instant, limits: CallLimits) -> Self {
        let timeout = limits.timeout.min(deadline.saturating_duration_since(started));
        let budget = CallLimits { timeout, ..limits }.new_budget(started).with_parent(&self.budget);
        Self { budget: Arc::new(budget), ..self }
    }

    /// Returns a copy of the call with another budget, and with these client headers for forwarding.
    #[must_use]
    pub fn with_budget(&self, budget: Arc<RequestBudget>, headers: HeaderMap) -> Self {
        Self {
            caller: self.caller.clone(),
            rights: self.rights.clone(),
            payer: self.payer.clone(),
            headers: Some(Arc::new(headers)),
            trace: self.trace.clone(),
            connection_details: self.connection_details,
            hops: self.hops,
            budget,
        }
    }

    /// Returns the quota key that is charged for the work that this call causes in the gateway.
    #[must_use]
    pub fn quota_key(&self) -> QuotaKey {
        quota_key(&self.caller, self.connection_details.map(|arrival| arrival.client))
    }

    /// Checks that the caller may send this method to this service.
    ///
    /// # Errors
    /// [`CallError::ServiceForbidden`] and [`CallError::ServiceMethodForbidden`].
    pub fn check_rights(&self, service: &Arc<str>, method: &Method) -> Result<(), CallError> {
        let Some(rights) = &self.rights else { return Ok(()) };
        if !rights.permits_service(service) {
            return Err(CallError::ServiceForbidden(Arc::clone(service)));
        }
        if rights.methods.as_ref().is_some_and(|methods| !methods.contains(method)) {
            let (service, method) = (Arc::clone(service), method.clone());
            return Err(CallError::ServiceMethodForbidden { service, method });
        }
        Ok(())
    }
}
