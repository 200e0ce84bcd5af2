//! When one connection sends its next call: pure, and told the time.
//!
//! A *page* is a number of calls of which each is sent when the one before is answered; without
//! `--serial` a page is one call.

use std::num::NonZero;
use std::time::{Duration, Instant};

/// What one connection still has to send.
#[derive(Debug)]
pub(crate) struct Schedule {
    beginnings: Beginnings,
    serial: u32,
    /// No page begins at or after this.
    until: Instant,
    /// Pages that wait for their next call to be sent.
    going: Vec<Ticket>,
}

/// When pages begin.
#[derive(Debug)]
enum Beginnings {
    /// As soon as they may: so many may now.
    Closed(u32),
    /// At their times.
    Open(Arrivals),
}

/// One call: where it stands in its page, and since when both are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// When the page began, or should have.
    pub(crate) page: Instant,
    /// When the call began, or should have.
    pub(crate) call: Instant,
    step: u32,
}

/// The times at which pages begin, whatever happens: computed from the start, so that no delay
/// moves those that follow.
#[derive(Debug)]
pub(crate) struct Arrivals {
    start: Instant,
    rate: NonZero<u64>,
    next: u64,
    step: u64,
}

impl Schedule {
    /// `pages` are always going on.
    pub(crate) fn closed(pages: u32, serial: NonZero<u32>, until: Instant) -> Self {
        Self::new(Beginnings::Closed(pages), serial, until)
    }

    /// Pages begin at their times.
    pub(crate) fn open(arrivals: Arrivals, serial: NonZero<u32>, until: Instant) -> Self {
        Self::new(Beginnings::Open(arrivals), serial, until)
    }

    fn new(beginnings: Beginnings, serial: NonZero<u32>, until: Instant) -> Self {
        Self {
            beginnings,
            serial: serial.get(),
            until,
            going: Vec::new(),
        }
    }

    /// The next call to be sent now, if there is one.
    #[inline]
    pub(crate) fn next(&mut self, now: Instant) -> Option<Ticket> {
        if let Some(ticket) = self.going.pop() {
            return Some(Ticket {
                call: now,
                ..ticket
            });
        }
        match &mut self.beginnings {
            Beginnings::Closed(0) => None,
            Beginnings::Closed(_) if now >= self.until => None,
            Beginnings::Closed(idle) => {
                *idle -= 1;
                Some(Ticket {
                    page: now,
                    call: now,
                    step: 0,
                })
            }
            Beginnings::Open(arrivals) => {
                let due = arrivals.peek();
                if due > now || due >= self.until {
                    return None;
                }
                arrivals.next += arrivals.step;
                Some(Ticket {
                    page: due,
                    call: due,
                    step: 0,
                })
            }
        }
    }

    /// A call was answered well; how long its page took, if that was its last one.
    #[inline]
    pub(crate) fn answered(&mut self, ticket: Ticket, now: Instant) -> Option<Duration> {
        let step = ticket.step + 1;
        if step < self.serial {
            self.going.push(Ticket { step, ..ticket });
            return None;
        }
        self.page_over();
        Some(now.saturating_duration_since(ticket.page))
    }

    /// A call failed, and its page with it.
    pub(crate) fn failed(&mut self) {
        self.page_over();
    }

    /// When [`Self::next`] has something again by itself.
    pub(crate) fn wake(&self) -> Option<Instant> {
        match &self.beginnings {
            Beginnings::Open(arrivals) => Some(arrivals.peek()).filter(|due| *due < self.until),
            Beginnings::Closed(_) => None,
        }
    }

    /// Whether nothing will be sent any more, once the calls in flight have ended.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.until && self.going.is_empty() && self.wake().is_none()
    }

    /// Calls that were due and not sent.
    pub(crate) fn unsent(&mut self) -> u64 {
        let mut unsent = 0;
        while self.next(self.until).is_some() {
            unsent += 1;
        }
        unsent
    }

    /// When the last page may begin.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    fn page_over(&mut self) {
        if let Beginnings::Closed(idle) = &mut self.beginnings {
            *idle += 1;
        }
    }
}

impl Arrivals {
    /// Every `step`th of `rate` pages a second, from the one with number `first` on.
    pub(crate) fn new(start: Instant, rate: NonZero<u64>, first: u64, step: u32) -> Self {
        Self {
            start,
            rate,
            next: first,
            step: step.into(),
        }
    }

    fn peek(&self) -> Instant {
        let nanos = u128::from(self.next) * 1_000_000_000 / u128::from(self.rate.get());
        self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number<T: TryFrom<u32>>(n: u32) -> T {
        T::try_from(n).ok().expect("in range")
    }

    #[test]
    fn a_closed_loop_keeps_its_number_going() {
        let t0 = crate::time::now();
        let at = |ms| t0 + Duration::from_millis(ms);
        let mut schedule = Schedule::closed(2, number::<NonZero<u32>>(1), at(100));
        let first = schedule.next(t0).expect("one");
        assert!(schedule.next(t0).is_some());
        assert_eq!(schedule.next(t0), None);
        assert_eq!(
            schedule.answered(first, at(7)),
            Some(Duration::from_millis(7))
        );
        assert_eq!(schedule.next(at(7)).map(|t| t.call), Some(at(7)));
        schedule.failed();
        assert_eq!(schedule.next(at(100)), None, "the time is over");
        assert!(schedule.is_over(at(100)));
    }

    #[test]
    fn an_open_loop_counts_from_the_time_a_call_was_due() {
        let t0 = crate::time::now();
        let at = |ms| t0 + Duration::from_millis(ms);
        let rate = NonZero::new(1000).expect("not zero");
        let arrivals = Arrivals::new(t0, rate, 1, 2);
        let mut schedule = Schedule::open(arrivals, number::<NonZero<u32>>(1), at(6));
        assert_eq!(schedule.next(t0), None);
        assert_eq!(schedule.wake(), Some(at(1)));
        let late: Vec<_> = std::iter::from_fn(|| schedule.next(at(50)))
            .map(|t| t.call)
            .collect();
        assert_eq!(late, [at(1), at(3), at(5)]);
        assert_eq!(schedule.wake(), None);
    }

    #[test]
    fn a_page_is_as_long_as_its_calls() {
        let t0 = crate::time::now();
        let at = |ms| t0 + Duration::from_millis(ms);
        let mut schedule = Schedule::closed(1, number::<NonZero<u32>>(3), at(5));
        for step in 0..3 {
            let ticket = schedule
                .next(at(step * 4))
                .expect("the page goes on after the end");
            assert_eq!((ticket.call, ticket.page), (at(step * 4), t0));
            let page = schedule.answered(ticket, at(step * 4 + 4));
            assert_eq!(page, (step == 2).then_some(Duration::from_millis(12)));
        }
        assert!(schedule.is_over(at(12)));
    }
}
