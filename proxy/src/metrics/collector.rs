//! The counters of the shards, as a collector of the registry.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{
    Registry,
    core::{Collector, Desc},
    proto::{Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

use super::{Gathered, Histogram, Source, families};

/// The families of the shards: what they showed when they were asked last.
#[derive(Debug, Clone)]
pub struct Shards {
    source: Source,
    last: Arc<Mutex<Gathered>>,
}

impl Shards {
    /// The families, registered.
    ///
    /// # Errors
    /// A family of the same name is registered already.
    pub fn new(source: Source, registry: &Registry) -> prometheus::Result<Self> {
        let last = Arc::default();
        registry.register(Box::new(Published::new(Arc::clone(&last))?))?;
        Ok(Self { source, last })
    }

    /// Asks the shards, and shows what they answer from now on. Cancel safe.
    pub async fn refresh(&self) -> Gathered {
        let gathered = self.source.gather().await;
        *self.last.lock() = gathered.clone();
        gathered
    }
}

/// What the registry holds.
struct Published {
    descs: Vec<Desc>,
    last: Arc<Mutex<Gathered>>,
}

impl Published {
    fn new(last: Arc<Mutex<Gathered>>) -> prometheus::Result<Self> {
        let mut page = Page::default();
        families::write(&Gathered::default(), &mut page);
        let descs: prometheus::Result<_> = page.descs.into_iter().collect();
        Ok(Self {
            descs: descs?,
            last,
        })
    }
}

impl Collector for Published {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let gathered = self.last.lock().clone();
        let mut page = Page::default();
        families::write(&gathered, &mut page);
        page.families
    }
}

/// Families on their way to the registry.
#[derive(Default)]
pub(super) struct Page {
    families: Vec<MetricFamily>,
    descs: Vec<prometheus::Result<Desc>>,
}

/// The samples of one family, labels still without their names.
#[derive(Default)]
pub(super) struct Samples(Vec<(Vec<String>, Metric)>);

impl Page {
    /// A family that only grows, with the names of its labels.
    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        fill: impl FnOnce(&mut Samples),
    ) {
        self.family(MetricType::COUNTER, name, help, labels, fill);
    }

    /// A family that shows how things stand.
    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        fill: impl FnOnce(&mut Samples),
    ) {
        self.family(MetricType::GAUGE, name, help, labels, fill);
    }

    /// A family of times.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        fill: impl FnOnce(&mut Samples),
    ) {
        self.family(MetricType::HISTOGRAM, name, help, labels, fill);
    }

    fn family(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        labels: &[&str],
        fill: impl FnOnce(&mut Samples),
    ) {
        let names = labels.iter().map(ToString::to_string).collect();
        self.descs.push(Desc::new(
            name.into(),
            help.into(),
            names,
            Default::default(),
        ));
        let mut samples = Samples::default();
        fill(&mut samples);
        let mut family = MetricFamily::default();
        family.set_name(name.into());
        family.set_help(help.into());
        family.set_field_type(kind);
        let samples = samples.0.into_iter().map(|(values, mut metric)| {
            debug_assert_eq!(values.len(), labels.len(), "{name}");
            metric.set_label(
                labels
                    .iter()
                    .zip(values)
                    .map(|(name, value)| pair(name, value))
                    .collect(),
            );
            metric
        });
        family.set_metric(samples.collect());
        self.families.push(family);
    }
}

impl Samples {
    /// A value of a counter.
    pub(super) fn count(&mut self, labels: &[&str], value: u64) {
        let mut counter = Counter::default();
        counter.set_value(value as f64);
        let mut metric = Metric::default();
        metric.set_counter(counter);
        self.add(labels, metric);
    }

    /// A value of a gauge.
    pub(super) fn level(&mut self, labels: &[&str], value: u64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value as f64);
        self.add(labels, Metric::from_gauge(gauge));
    }

    /// Times.
    pub(super) fn times(&mut self, labels: &[&str], times: &Histogram) {
        let mut histogram = prometheus::proto::Histogram::default();
        histogram.set_sample_count(times.count());
        histogram.set_sample_sum(times.sum());
        let buckets = times.cumulated().map(|(bound, count)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(count);
            bucket
        });
        histogram.set_bucket(buckets.collect());
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        self.add(labels, metric);
    }

    fn add(&mut self, labels: &[&str], metric: Metric) {
        self.0
            .push((labels.iter().map(ToString::to_string).collect(), metric));
    }
}

fn pair(name: &str, value: String) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.into());
    pair.set_value(value);
    pair
}
