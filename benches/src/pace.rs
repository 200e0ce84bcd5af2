//! When an open loop goes on: what is due at its time, and not when an answer comes.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Wakes within microseconds, where tokio's timer has milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// None until it is needed: only an open loop does.
    timer: Option<AsyncFd<Timer>>,
    armed: Option<Instant>,
}

impl Pace {
    /// Will ring when the next one is `due`, but a tick from now at the earliest.
    pub(crate) fn arm(&mut self, now: Instant, due: Option<Instant>) -> io::Result<()> {
        if due != self.armed
            && let Some(due) = due
        {
            let timer = match self.timer.take() {
                Some(timer) => timer,
                None => Timer::register()?,
            };
            let wait = due.saturating_duration_since(now).max(TICK);
            let wait = Expiration::OneShot(TimeSpec::from_duration(wait));
            let timer = self.timer.insert(timer);
            timer.get_ref().0.set(wait, TimerSetTimeFlags::empty())?;
        }
        self.armed = due;
        Ok(())
    }

    /// Waits until it rings; for ever while it was never armed. Cancel safe.
    pub(crate) async fn rung(&mut self) -> io::Result<()> {
        let Some(timer) = &self.timer else {
            return pending().await;
        };
        // There is nothing to read if it was set anew since.
        let _ = timer
            .readable()
            .await?
            .try_io(|timer| Ok(timer.get_ref().0.wait()?));
        self.armed = None;
        Ok(())
    }
}

#[derive(Debug)]
struct Timer(TimerFd);

impl Timer {
    #[expect(
        deprecated,
        reason = "its successor is unsafe; a `Timer` keeps its descriptor open, and to itself"
    )]
    fn register() -> io::Result<AsyncFd<Self>> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK)?;
        AsyncFd::with_interest(Self(timer), Interest::READABLE)
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// The grain of an open loop: what is due within it is sent together.
const TICK: Duration = Duration::from_micros(100);
