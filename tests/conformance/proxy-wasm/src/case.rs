//! A case: a row on one of the modules, with its service and its log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::ensure;

use crate::host_kind::HostKind;
use crate::log::ModuleLog;
use crate::rows::{ConformanceRow, ExpectedResults, RowModule};
use crate::service::ConformanceService;

pub(crate) struct ConformanceCase {
    pub(crate) row: ConformanceRow,
    pub(crate) module: RowModule,
    /// The module's path.
    pub(crate) wasm: PathBuf,
    /// A unique word for the case, used as path prefix and as the name of service, filter and metrics.
    pub(crate) id: String,
    pub(crate) service: ConformanceService,
    pub(crate) log: Arc<ModuleLog>,
}

impl ConformanceCase {
    /// Starts the service, and fills in the row's `$ID`, `$SERVICE` and `$ADDRESS`.
    pub(crate) async fn prepare(
        row: ConformanceRow,
        module: RowModule,
        modules: &Path,
    ) -> anyhow::Result<Self> {
        let wasm = std::path::absolute(modules.join(format!("{module}.wasm")))?;
        ensure!(wasm.exists(), "{} is missing: `make conformance` builds it", wasm.display());
        let id = format!("{module}_{}", row.id).replace(['-', '.'], "_");
        let log = Arc::new(ModuleLog::default());
        let service = ConformanceService::start(&row, &id, &log).await?;
        Ok(Self { row, module, wasm, id, service, log })
    }

    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.module, self.row.id)
    }

    /// Fills in the placeholders of a text of the row.
    pub(crate) fn fill_placeholders(&self, text: &str) -> String {
        let address = self.service.address.to_string();
        text.replace("$ID", &self.id).replace("$SERVICE", &self.id).replace("$ADDRESS", &address)
    }

    /// The plugin's configuration.
    pub(crate) fn plugin_config(&self) -> String {
        self.fill_placeholders(&self.row.script)
    }

    /// Returns the row's expectations for every host.
    pub(crate) fn expected(&self) -> &ExpectedResults {
        &self.row.expected
    }

    /// Whether the host is expected to accept the configuration.
    pub(crate) fn expects_acceptance(&self, host: HostKind) -> bool {
        let difference = self.row.difference(host, self.module);
        difference.and_then(|difference| difference.starts).unwrap_or(self.row.starts)
    }

    /// Returns the known different behaviour of a host, merged with the row's expectations, and its reason.
    pub(crate) fn known_difference(&self, host: HostKind) -> Option<(ExpectedResults, &str)> {
        let difference = self.row.difference(host, self.module)?;
        let (common, results) = (self.expected().clone(), difference.expected.clone());
        let both = ExpectedResults {
            exchange: results.exchange.or(common.exchange),
            seen: results.seen.or(common.seen),
            unseen: results.unseen.or(common.unseen),
            log: results.log.or(common.log),
            never: results.never.or(common.never),
            metrics: results.metrics.or(common.metrics),
        };
        Some((both, &difference.why))
    }
}
