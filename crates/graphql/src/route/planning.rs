//! The plan of a document: from the cache, or created in the offload pool and charged to the caller.
//!
//! A short document may take long: the checks traverse the expansion of each operation, and the planner's
//! library compares fetches in pairs. Therefore, no document is checked or planned on a serving thread. Small
//! ones are charged like the work on a response, which waits for quota. Others are refused without quota.
//!
//! Equal documents that arrive during planning wait for the same plan, each until its own deadline. Each
//! caller pays for small work before it waits, so that no caller waits for the quota of another. Other work
//! is charged to the first caller. If its quota does not suffice, the next one starts again; a caller that
//! has waited for several such ones plans alone.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hive_router_query_planner::utils::cancellation::CancellationToken;
use offload::polls::PollSite;
use offload::{JobRequest, OffloadError, OffloadPool, QuotaKey};
use services::{RequestCall, WorkFingerprint, timeout_at};

use super::GraphqlRouteInner;
use super::schema_inputs::ReadySchema;
use crate::error::GraphqlError;
use crate::execute::{CoercedVariables, IntrospectionLimits, introspected};
pub(super) use crate::plan::PlanError;
use crate::plan::{CheckedDocument, PLANNING_TIMEOUT, QueryPlan};
use crate::serve::HttpError;

/// The maximum estimated duration of checking and planning a small document.
const SMALL_WORK: Duration = Duration::from_millis(1);
/// The maximum number of selections in all operations of a small document together.
const SMALL_SELECTIONS: u64 = 200;
/// The maximum number of attempts at work for several requests that other callers could not pay for.
pub(super) const MAX_ATTEMPTS: usize = 4;
/// The maximum memory in bytes of a plan that is dropped on the request's own thread: some thousand
/// allocations.
const SHORT_DROP: usize = 1 << 20;
/// The time that a large plan may wait to be dropped.
const DROP_TIMEOUT: Duration = Duration::from_secs(60);
/// The estimated cost of a large introspection request, charged before the real cost is known.
const INTROSPECTION_COST: Duration = Duration::from_millis(10);

/// The payer of offloaded work, and its deadline.
#[derive(Clone, Copy)]
struct PlanningAccount {
    payer: QuotaKey,
    deadline: Instant,
}

/// A document to be planned, and the payer of the work.
#[derive(Clone)]
struct PlanRequest {
    pool: OffloadPool,
    ready_schema: Arc<ReadySchema>,
    text: Arc<str>,
    /// The name of the requested operation.
    operation: Option<Arc<str>>,
    account: PlanningAccount,
}

/// Cancels planning when it is dropped with the last waiting request.
struct CancelGuard(Arc<CancellationToken>);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl From<Vec<GraphqlError>> for PlanError {
    fn from(errors: Vec<GraphqlError>) -> Self {
        Self::Document(errors.into())
    }
}

impl From<OffloadError> for PlanError {
    fn from(error: OffloadError) -> Self {
        Self::Work(error)
    }
}

impl PlanningAccount {
    fn for_call(call: &RequestCall) -> Self {
        Self { payer: call.quota_key(), deadline: call.budget.deadline }
    }

    fn job_request(self, kind: &'static str, estimate: Duration) -> JobRequest {
        JobRequest { kind, payer: self.payer, estimate, deadline: self.deadline }
    }
}

impl GraphqlRouteInner {
    /// Returns the plan of an operation of a document.
    pub(super) async fn plan_document(
        &self,
        ready: &Arc<ReadySchema>,
        text: &Arc<str>,
        operation: Option<&str>,
        call: &RequestCall,
    ) -> Result<Arc<QueryPlan>, PlanError> {
        let planner = &ready.planner;
        if let Some(plan) = planner.cached_plan(text, operation) {
            return Ok(plan);
        }
        let account = PlanningAccount::for_call(call);
        let mut key = WorkFingerprint::default();
        key.add(text.as_bytes());
        key.add(operation.map_or(&[], |name| name.as_bytes()));
        key.add(&[u8::from(operation.is_some())]);
        if planner.check_estimate(text) <= SMALL_WORK {
            self.pay_for_small_work(account).await?;
            // Another caller's work may have ended meanwhile.
            if let Some(plan) = planner.cached_plan(text, operation) {
                return Ok(plan);
            }
        }
        let request = |account| {
            let (pool, ready, text) = (self.offload.clone(), Arc::clone(ready), Arc::clone(text));
            PlanRequest { pool, ready_schema: ready, text, operation: operation.map(Into::into), account }
        };
        for _ in 0..MAX_ATTEMPTS {
            let mut is_own = false;
            let flight = planner.in_flight.join(&key, PollSite::Graphql, || {
                is_own = true;
                // The caller's deadline must not end the work for others.
                let deadline = Instant::now() + self.limits.timeout.0;
                request(PlanningAccount { deadline, ..account }).plan_and_cache()
            });
            let result =
                timeout_at(account.deadline, pin!(flight)).await.ok_or(OffloadError::DeadlineExceeded)?;
            match result.unwrap_or(Err(OffloadError::Panicked.into())) {
                Err(PlanError::Work(_)) if !is_own => {}
                result => return result,
            }
        }
        request(account).plan_and_cache().await
    }

    /// Charges a caller for small work. Waits while its quota is used up.
    async fn pay_for_small_work(&self, account: PlanningAccount) -> Result<(), OffloadError> {
        loop {
            let now = Instant::now();
            let paid = self.offload.quota().try_charge(account.payer.for_responses(), SMALL_WORK, now);
            let Err(retry_after) = paid else { return Ok(()) };
            let until = (now + retry_after).min(account.deadline);
            tokio::time::sleep_until(until.into()).await;
            if until == account.deadline {
                return Err(OffloadError::DeadlineExceeded);
            }
        }
    }

    /// Whether the caller's quota for work on responses is used up.
    pub(super) fn lacks_quota(&self, call: &RequestCall) -> bool {
        self.offload.quota().retry_after(call.quota_key().for_responses(), Instant::now()).is_some()
    }

    /// Drops a plan, in the pool if that takes long: it is large, and has no other owner.
    pub(super) fn discard_plan(&self, plan: Option<Arc<QueryPlan>>) {
        if let Some(plan) = plan.filter(|plan| Arc::strong_count(plan) == 1) {
            discard_all(&self.offload, vec![plan]);
        }
    }

    /// Returns the values of a plan's introspection fields; `None` if they would be too large.
    pub(super) async fn introspection_values(
        &self,
        ready: &Arc<ReadySchema>,
        plan: &Arc<QueryPlan>,
        variables: &Arc<CoercedVariables>,
        most: usize,
        call: &RequestCall,
    ) -> Result<Option<Vec<(Arc<str>, Bytes)>>, HttpError> {
        // Each introspection field indexes the types of the schema, and each selection takes some
        // allocations.
        offload::move_to_pool().await;
        let schema = ready.planner.schema();
        let values = introspected(schema, plan, variables, IntrospectionLimits::small(most));
        if values.is_some() {
            return Ok(values);
        }
        let request = PlanningAccount::for_call(call).job_request("graphql-introspect", INTROSPECTION_COST);
        let (ready, plan, variables) = (Arc::clone(ready), Arc::clone(plan), Arc::clone(variables));
        let job = move |_: &_| {
            introspected(ready.planner.schema(), &plan, &variables, IntrospectionLimits::for_response(most))
        };
        Ok(self.offload.run(request, job).await?)
    }
}

/// Drops plans, in the pool if they are large. No request waits for it or is charged.
fn discard_all(pool: &OffloadPool, plans: Vec<Arc<QueryPlan>>) {
    if plans.iter().map(|plan| plan.bytes).sum::<usize>() <= SHORT_DROP {
        return;
    }
    let (kind, payer) = ("graphql-drop", QuotaKey::new(&"graphql-drop").exempt());
    let deadline = Instant::now() + DROP_TIMEOUT;
    let (pool, request) = (pool.clone(), JobRequest { kind, payer, estimate: Duration::ZERO, deadline });
    tokio::spawn(async move { pool.run(request, move |_| drop(plans)).await });
}

impl PlanRequest {
    /// Plans the document in the pool, and caches the plan on the current thread.
    async fn plan_and_cache(self) -> Result<Arc<QueryPlan>, PlanError> {
        let PlanningAccount { payer, deadline } = self.account;
        // Each caller has paid for small work before.
        let payer = payer.for_responses().exempt();
        let plan =
            self.pool.make_movable("graphql-plan", payer, deadline, self.clone().plan_in_pool()).await??;
        discard_all(
            &self.pool,
            self.ready_schema.planner.cache_plan(&self.text, self.operation.as_deref(), &plan),
        );
        Ok(plan)
    }

    /// Plans the document in the pool. A small one is checked and planned in one move of this future.
    /// Otherwise the check determines the cost of planning, and both are charged before they start.
    async fn plan_in_pool(self) -> Result<Arc<QueryPlan>, PlanError> {
        let Self { pool, ready_schema: ready, text, operation, account } = self;
        let check_estimate = ready.planner.check_estimate(&text);
        let mut checked = None;
        if check_estimate <= SMALL_WORK {
            offload::move_to_pool().await;
            checked = ready.planner.check_document(&text, operation.as_deref(), SMALL_SELECTIONS)?;
            let is_small = |checked_document: &&CheckedDocument| {
                check_estimate + checked_document.work.estimate() <= SMALL_WORK
            };
            if let Some(document) = checked.as_ref().filter(is_small) {
                return Ok(ready
                    .planner
                    .plan_checked(document, &CancellationToken::with_timeout(PLANNING_TIMEOUT))?);
            }
        }
        let checked = match checked {
            Some(checked) => checked,
            None => {
                let request = account.job_request("graphql-check", check_estimate);
                let ready = Arc::clone(&ready);
                let check = move |_: &_| ready.planner.check_document(&text, operation.as_deref(), u64::MAX);
                match pool.run(request, check).await?? {
                    Some(checked) => checked,
                    None => return Err(OffloadError::Panicked.into()),
                }
            }
        };
        let left = account.deadline.saturating_duration_since(Instant::now()).min(PLANNING_TIMEOUT);
        let token = Arc::new(CancellationToken::with_timeout(left));
        let _guard = CancelGuard(Arc::clone(&token));
        let request = account.job_request("graphql-plan", checked.work.estimate());
        Ok(pool.run(request, move |_| ready.planner.plan_checked(&checked, &token)).await??)
    }
}
