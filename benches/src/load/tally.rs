//! What happened to the calls of one round, counted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use dubbo_proto::head::{Serialization, Status};
use dubbo_proto::hessian2::{Limits, Reader, Tables, Token};
use dubbo_proto::invocation::Scratch;
use dubbo_proto::mux::Written;
use dubbo_proto::reply::{self, Kind};
use hdrhistogram::Histogram;

/// Latencies and failures, shared by the connections of one thread.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Nanoseconds.
    calls: RefCell<Histogram<u64>>,
    /// Nanoseconds; pages of which no call failed.
    pages: RefCell<Histogram<u64>>,
    failures: RefCell<BTreeMap<Failure, u64>>,
    answered: Cell<u64>,
}

/// How a call failed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// No answer in time.
    Timeout,
    /// The connection was lost, and the call may have run.
    Lost,
    /// The connection was lost before the call was written.
    LostUnwritten,
    /// The time was over before there was a connection to send it on.
    Unsent,
    /// The provider or the mesh says no: the status, and the first word of the text.
    Status(u8, String),
    /// The application threw an exception of this class.
    Exception(String),
    /// An HTTP server answered for a page with this status and text.
    Page(u16, String),
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            calls: RefCell::new(histogram()),
            pages: RefCell::new(histogram()),
            failures: RefCell::default(),
            answered: Cell::new(0),
        }
    }

    /// A call was answered well after `call`, and with it, perhaps, a page.
    #[inline]
    pub(crate) fn answer(&self, call: Duration, page: Option<Duration>) {
        self.answered.set(self.answered.get() + 1);
        self.calls.borrow_mut().saturating_record(nanos(call));
        if let Some(page) = page {
            self.pages.borrow_mut().saturating_record(nanos(page));
        }
    }

    /// `calls` failed in the same way.
    #[cold]
    pub(crate) fn fail(&self, failure: Failure, calls: u64) {
        if calls > 0 {
            *self.failures.borrow_mut().entry(failure).or_default() += calls;
        }
    }

    /// Calls that were answered well.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Calls that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failures.borrow().values().sum()
    }

    /// How the calls failed that did.
    pub(crate) fn failures(&self) -> BTreeMap<Failure, u64> {
        self.failures.borrow().clone()
    }

    /// Latency of the calls answered well, in microseconds.
    pub(crate) fn call_latency(&self) -> [(&'static str, f64); 6] {
        percentiles(&self.calls.borrow())
    }

    /// The same of pages.
    pub(crate) fn page_latency(&self) -> [(&'static str, f64); 6] {
        percentiles(&self.pages.borrow())
    }
}

impl Failure {
    /// How an answer says that the call failed, if it did.
    #[inline]
    pub(crate) fn of(status: Status, serialization: Serialization, body: &[u8]) -> Option<Self> {
        match reply::kind(status, serialization, body) {
            Kind::Value | Kind::Null | Kind::Opaque => None,
            Kind::Error => Some(Self::Status(status.0, first_word(body))),
            Kind::Exception => {
                let class = reply::exception_class(serialization, body, &mut Scratch::default());
                Some(Self::Exception(
                    class.unwrap_or_else(|| "unknown".to_owned()),
                ))
            }
        }
    }
}

impl From<Written> for Failure {
    fn from(written: Written) -> Self {
        match written {
            Written::No => Self::LostUnwritten,
            Written::Maybe => Self::Lost,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("timeout"),
            Self::Lost => f.write_str("lost, may have run"),
            Self::LostUnwritten => f.write_str("lost, not written"),
            Self::Unsent => f.write_str("not sent"),
            Self::Status(status, word) => write!(f, "status {status} {word}"),
            Self::Exception(class) => write!(f, "exception {class}"),
            Self::Page(status, said) => write!(f, "page {status} {said}"),
        }
    }
}

/// The code in front of an error's text, such as `NR`.
fn first_word(body: &[u8]) -> String {
    let (limits, mut tables) = (Limits::default(), Tables::default());
    let Ok(Token::Text(text)) = Reader::new(body, &limits, &mut tables).token() else {
        return String::new();
    };
    let text = text.to_string();
    let word = text.split_whitespace().next().unwrap_or_default();
    word.trim_end_matches(':').chars().take(WORD_LEN).collect()
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS).unwrap_or_else(|_| unreachable!("fixed bounds"))
}

fn percentiles(histogram: &Histogram<u64>) -> [(&'static str, f64); 6] {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a latency has fewer than 53 bits"
    )]
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    let at = |quantile| micros(histogram.value_at_quantile(quantile));
    [
        ("mean_us", histogram.mean() / 1000.0),
        ("p50_us", at(0.5)),
        ("p90_us", at(0.9)),
        ("p99_us", at(0.99)),
        ("p99_9_us", at(0.999)),
        ("max_us", micros(histogram.max())),
    ]
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(LONGEST)
}

/// Ten minutes, in nanoseconds: longer times count as this.
const LONGEST: u64 = 600_000_000_000;
/// Digits of a latency that are kept.
const DIGITS: u8 = 3;
/// Characters of an error's first word that are told.
const WORD_LEN: usize = 80;

#[cfg(test)]
mod tests {
    use dubbo_proto::head::RequestId;

    use super::*;

    #[test]
    fn failures_are_named_by_what_the_answer_says() {
        let hessian = Serialization::HESSIAN2;
        let mut frame = Vec::new();
        let status = Status::SERVICE_NOT_FOUND;
        reply::error(
            &mut frame,
            hessian,
            RequestId(0),
            status,
            "NR No Route Found: a.B",
        );
        let failure = Failure::of(status, hessian, &frame[16..]).expect("a failure");
        assert_eq!(failure.to_string(), "status 60 NR");
        frame.clear();
        reply::exception(&mut frame, hessian, RequestId(0), true, "a.Oops", "no");
        let failure = Failure::of(Status::OK, hessian, &frame[16..]).expect("a failure");
        assert_eq!(failure.to_string(), "exception a.Oops");
        frame.clear();
        reply::value(&mut frame, RequestId(0), true, None);
        assert_eq!(Failure::of(Status::OK, hessian, &frame[16..]), None);
    }

    #[test]
    fn latencies_come_back_in_microseconds() {
        let tally = Tally::new();
        for ms in 1..=1000 {
            tally.answer(Duration::from_millis(ms), None);
        }
        let [mean, p50, .., max] = tally.call_latency().map(|(_, value)| value);
        assert!((mean / 500_500.0 - 1.0).abs() < 0.002, "{mean}");
        assert!((p50 / 500_000.0 - 1.0).abs() < 0.002, "{p50}");
        assert!((max / 1_000_000.0 - 1.0).abs() < 0.002, "{max}");
        tally.answer(Duration::from_secs(3600), None);
        assert_eq!((tally.answered(), tally.failed()), (1001, 0));
    }
}
