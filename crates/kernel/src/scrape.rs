//! What a service's collector writes its numbers with, when somebody scrapes.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::metrics::MetricSpec;

/// Mark of a counter whose name has no `_total`: the encoder adds one, and the scrape takes it off with the mark.
const BARE: &str = "__bare";
/// The mark with what the encoder adds.
pub(crate) const BARE_TOTAL: &str = "__bare_total";

/// Values of one metric, each with its labels.
pub type Series<'a, T> = [(Vec<(&'a str, &'a str)>, T)];

/// Writes the metrics that a service declares.
pub struct Scrape<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
    specs: &'static [MetricSpec],
}

impl<'a, 'b> Scrape<'a, 'b> {
    /// A writer of these metrics.
    pub fn new(encoder: &'a mut DescriptorEncoder<'b>, specs: &'static [MetricSpec]) -> Self {
        Scrape { encoder, specs }
    }

    fn help(&self, name: &str) -> &'static str {
        self.specs.iter().find(|spec| spec.name == name).map_or("", |spec| spec.help)
    }

    /// Values that go up and down.
    pub fn gauges(&mut self, name: &'static str, series: &Series<'_, f64>) -> fmt::Result {
        let (help, kind) = (self.help(name), ConstGauge::new(0.0_f64).metric_type());
        let mut family = self.encoder.encode_descriptor(name, help, None, kind)?;
        // A family without labels would be written with empty braces, and nobody would find it by its name.
        if let [(labels, value)] = series
            && labels.is_empty()
        {
            return ConstGauge::new(*value).encode(family);
        }
        series.iter().try_for_each(|(labels, value)| ConstGauge::new(*value).encode(family.encode_family(labels)?))
    }

    /// Values that only go up.
    pub fn counters(&mut self, name: &'static str, series: &Series<'_, u64>) -> fmt::Result {
        let (help, kind) = (self.help(name), ConstCounter::new(0_u64).metric_type());
        let name = match name.strip_suffix("_total") {
            Some(family) => family.to_owned(),
            None => format!("{name}{BARE}"),
        };
        let mut family = self.encoder.encode_descriptor(&name, help, None, kind)?;
        if let [(labels, value)] = series
            && labels.is_empty()
        {
            return ConstCounter::new(*value).encode(family);
        }
        series.iter().try_for_each(|(labels, value)| ConstCounter::new(*value).encode(family.encode_family(labels)?))
    }

    /// One gauge without labels.
    pub fn gauge(&mut self, name: &'static str, value: f64) -> fmt::Result {
        self.gauges(name, &[(Vec::new(), value)])
    }

    /// One counter without labels.
    pub fn counter(&mut self, name: &'static str, value: u64) -> fmt::Result {
        self.counters(name, &[(Vec::new(), value)])
    }

    /// A distribution.
    pub fn histogram(&mut self, name: &'static str, histogram: &Histogram) -> fmt::Result {
        let encoder = self.encoder.encode_descriptor(name, self.help(name), None, histogram.metric_type())?;
        histogram.encode(encoder)
    }
}
