//! Observation of requests: the record of a completed request, the access log, metrics and traces.

pub(crate) mod access_log;
pub(crate) mod escape;
pub(crate) mod metrics;
pub(crate) mod phase;
pub(crate) mod request_record;
pub(crate) mod trace;

use std::io;
use std::sync::Arc;

use crate::config::GatewayConfig;
use access_log::LogWriter;
use metrics::GatewayMetrics;
use request_record::CompletedRequest;
use trace::RequestTracer;

/// A callback for each completed request.
pub(crate) type RequestObserver = Arc<dyn Fn(CompletedRequest) + Send + Sync>;

/// The telemetry sinks: access log, observer, metrics and traces.
#[derive(Clone, Default)]
pub(crate) struct Telemetry {
    pub(crate) log: Option<Arc<LogWriter>>,
    pub(crate) observer: Option<RequestObserver>,
    pub(crate) metrics: Arc<GatewayMetrics>,
    pub(crate) tracer: Option<Arc<RequestTracer>>,
}

impl Telemetry {
    /// Creates the telemetry of a config. The access log is reused while configs enable it.
    ///
    /// # Errors
    /// If the thread of the access log can't be started.
    pub(crate) fn from_config(config: &GatewayConfig, previous: Option<&Self>) -> io::Result<Self> {
        let mut telemetry = previous.cloned().unwrap_or_default();
        if !config.log.access {
            telemetry.log = None;
        } else if telemetry.log.is_none() {
            telemetry.log = Some(Arc::new(LogWriter::new(Box::new(io::stderr()))?));
        }
        let request_tracer = telemetry.tracer.take();
        telemetry.tracer = config.traces.as_ref().and_then(|traces| {
            let kept = request_tracer.filter(|tracer| tracer.has_config(traces));
            kept.or_else(|| RequestTracer::new(traces, Arc::clone(&telemetry.metrics.spans)).map(Arc::new))
        });
        Ok(telemetry)
    }

    /// Flushes the traces and the access log when the gateway stops.
    pub(crate) async fn finish(&self) {
        if let Some(tracer) = &self.tracer {
            tracer.finish().await;
        }
        self.log.iter().for_each(|log| log.finish());
    }
}
