//! Metrics as OpenMetrics text. Families are written directly at each scrape, without state in between.

use std::fmt::{self, Debug};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use services::stats::HistogramSnapshot;

/// Labels with their values.
pub(crate) type MetricLabels<'a, const N: usize> = [(&'a str, &'a str); N];

/// The text that is being written.
pub(crate) struct MetricsPage<'a>(DescriptorEncoder<'a>);

/// The registry's only collector, which reads the current values at each scrape.
struct MetricsCollector<F>(F);

impl MetricsPage<'_> {
    /// Returns the text that `write` produces.
    pub(crate) fn render<F>(write: F) -> Result<String, fmt::Error>
    where
        F: Fn(&mut MetricsPage<'_>) -> fmt::Result + Send + Sync + 'static,
    {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(MetricsCollector(write)));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }

    /// Writes counters, which only grow. The name gets the suffix `_total`.
    pub(crate) fn counter<'l, const N: usize, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (MetricLabels<'l, N>, V)>,
    ) -> fmt::Result {
        self.write_family(name, help, MetricType::Counter, samples, |metric, value| {
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    /// Writes gauges with their current values.
    pub(crate) fn gauge<'l, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (MetricLabels<'l, N>, V)>,
    ) -> fmt::Result {
        self.write_family(name, help, MetricType::Gauge, samples, |metric, value| metric.encode_gauge(&value))
    }

    /// Writes histograms.
    pub(crate) fn histogram<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (MetricLabels<'l, N>, HistogramSnapshot)>,
    ) -> fmt::Result {
        self.write_family(name, help, MetricType::Histogram, samples, |metric, reading| {
            metric.encode_histogram::<NoLabelSet>(reading.sum, reading.count, &reading.buckets, None)
        })
    }

    fn write_family<'l, const N: usize, V>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = (MetricLabels<'l, N>, V)>,
        write: impl Fn(&mut MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in samples {
            // A sample without labels has no braces.
            if N == 0 {
                write(&mut family, value)?;
            } else {
                write(&mut family.encode_family(&labels)?, value)?;
            }
        }
        Ok(())
    }
}

impl<F: Fn(&mut MetricsPage<'_>) -> fmt::Result + Send + Sync + 'static> Collector for MetricsCollector<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut MetricsPage(encoder))
    }
}

impl<F> Debug for MetricsCollector<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Everything")
    }
}
