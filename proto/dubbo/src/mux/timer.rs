//! Deadlines of many things at once: a hashed wheel whose links stand beside the things.
//!
//! Setting and cancelling cost a few writes and no allocation once the wheel knows the key. The
//! wheel turns once in [`BUCKETS`] ticks; what is due later stays in its bucket and is looked at
//! again a turn later.

use std::time::{Duration, Instant};

/// The wheel's grain: nothing fires early, and nothing more than this late.
pub const TICK: Duration = Duration::from_millis(1);
/// Ticks of one turn.
pub const BUCKETS: usize = 4096;

/// Keys that an empty timer has room for.
const KEPT: usize = 1024;

const MASK: u64 = BUCKETS as u64 - 1;
/// The list of what is due and not yet taken: one more bucket behind the wheel's.
const DUE: usize = BUCKETS;
const NONE: u32 = u32::MAX;

/// Deadlines by key. Keys are small numbers, such as slots: memory is proportional to the largest.
#[derive(Debug)]
pub struct Timer {
    origin: Instant,
    /// Every tick below this one has been looked at.
    tick: u64,
    links: Vec<Link>,
    heads: Vec<u32>,
    occupied: [u64; BUCKETS / 64],
    len: usize,
    /// The deadline set last, and its tick: calls that come together are due together.
    last: (Instant, u64),
}

#[derive(Debug, Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
    /// Where it is listed; `NONE` if nowhere.
    bucket: u32,
    tick: u64,
}

const UNLISTED: Link = Link {
    prev: NONE,
    next: NONE,
    bucket: NONE,
    tick: 0,
};

impl Timer {
    /// An empty timer; no deadline lies before `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            origin: now,
            tick: 0,
            links: Vec::new(),
            heads: vec![NONE; BUCKETS + 1],
            occupied: [0; BUCKETS / 64],
            len: 0,
            last: (now, 0),
        }
    }

    /// Sets the deadline of `key`, instead of the one it had.
    #[inline]
    pub fn set(&mut self, key: u32, at: Instant) {
        self.cancel(key);
        if self.last.0 != at {
            self.last = (at, self.tick_after(at));
        }
        let tick = self.last.1.max(self.tick);
        if self.links.len() <= key as usize {
            self.links.resize(key as usize + 1, UNLISTED);
        }
        self.link((tick & MASK) as usize, key, tick);
        self.len += 1;
    }

    /// Forgets the deadline of `key`, if it has one.
    #[inline]
    pub fn cancel(&mut self, key: u32) {
        if self
            .links
            .get(key as usize)
            .is_some_and(|l| l.bucket != NONE)
        {
            self.unlink(key);
            self.len -= 1;
        }
    }

    /// Takes one key whose deadline is over; call until `None`.
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        let now_tick = self.tick_before(now);
        loop {
            let due = self.head(DUE);
            if due != NONE {
                self.cancel(due);
                return Some(due);
            }
            if self.tick > now_tick {
                return None;
            }
            if self.len == 0 {
                self.tick = now_tick + 1;
                return None;
            }
            // One turn sees every bucket; a longer pause needs no more.
            self.tick = self.tick.max(now_tick.saturating_sub(MASK));
            self.gather((self.tick & MASK) as usize, now_tick);
            self.tick += 1;
        }
    }

    /// When to call [`Self::expire`] next: never after the first deadline, sometimes before it.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let wait = if self.head(DUE) == NONE {
            self.until_occupied()?
        } else {
            0
        };
        Some(self.origin + Duration::from_millis(self.tick + wait))
    }

    /// Keys that have a deadline.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no key has a deadline.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives the memory of a burst back once nothing is set.
    pub fn shrink(&mut self) {
        if self.len == 0 && self.links.len() > KEPT {
            self.links = Vec::new();
        }
    }

    /// Moves what is due from a bucket to the list of what is due.
    fn gather(&mut self, bucket: usize, now_tick: u64) {
        let mut key = self.head(bucket);
        while let Some(link) = self.links.get(key as usize).copied() {
            if link.tick <= now_tick {
                self.unlink(key);
                self.link(DUE, key, link.tick);
            }
            key = link.next;
        }
    }

    /// Ticks from the current one to the next occupied bucket.
    fn until_occupied(&self) -> Option<u64> {
        let words = self.occupied.len();
        let start = (self.tick & MASK) as usize;
        let (word, bit) = (start / 64, start % 64);
        for step in 0..=words {
            let at = (word + step) % words;
            let mut bits = self.occupied.get(at).copied().unwrap_or(0);
            if step == 0 {
                bits &= u64::MAX << bit;
            } else if step == words {
                bits &= !(u64::MAX << bit);
            }
            if bits != 0 {
                let bucket = at * 64 + bits.trailing_zeros() as usize;
                return Some((bucket as u64).wrapping_sub(start as u64) & MASK);
            }
        }
        None
    }

    fn link(&mut self, bucket: usize, key: u32, tick: u64) {
        let next = self.head(bucket);
        if let Some(link) = self.links.get_mut(next as usize) {
            link.prev = key;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a bucket is at most BUCKETS"
        )]
        let here = Link {
            prev: NONE,
            next,
            bucket: bucket as u32,
            tick,
        };
        if let Some(link) = self.links.get_mut(key as usize) {
            *link = here;
        }
        self.set_head(bucket, key);
    }

    fn unlink(&mut self, key: u32) {
        let Some(entry) = self.links.get_mut(key as usize) else {
            return;
        };
        let link = std::mem::replace(entry, UNLISTED);
        if let Some(next) = self.links.get_mut(link.next as usize) {
            next.prev = link.prev;
        }
        match self.links.get_mut(link.prev as usize) {
            Some(prev) => prev.next = link.next,
            None => self.set_head(link.bucket as usize, link.next),
        }
    }

    #[inline]
    fn head(&self, bucket: usize) -> u32 {
        self.heads.get(bucket).copied().unwrap_or(NONE)
    }

    fn set_head(&mut self, bucket: usize, key: u32) {
        if let Some(head) = self.heads.get_mut(bucket) {
            *head = key;
        }
        if let Some(word) = self.occupied.get_mut(bucket / 64) {
            let bit = 1 << (bucket % 64);
            *word = if key == NONE {
                *word & !bit
            } else {
                *word | bit
            };
        }
    }

    /// The first tick that is not before `at`.
    fn tick_after(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin);
        since.as_secs() * 1000 + u64::from(since.subsec_nanos().div_ceil(1_000_000))
    }

    /// The last tick that is not after `now`.
    fn tick_before(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.origin).as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(timer: &mut Timer, now: Instant) -> Vec<u32> {
        let mut keys: Vec<_> = std::iter::from_fn(|| timer.expire(now)).collect();
        keys.sort_unstable();
        keys
    }

    #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn nothing_fires_early_or_twice() {
        let t0 = start();
        let mut timer = Timer::new(t0);
        let at = |ms| t0 + Duration::from_millis(ms);
        timer.set(0, at(5));
        timer.set(1, at(5));
        timer.set(2, at(5 + BUCKETS as u64));
        timer.set(3, at(60_000));
        timer.set(1, at(7));
        assert_eq!(timer.poll_timeout(), Some(at(5)));
        assert_eq!(all(&mut timer, at(4)), []);
        assert_eq!(all(&mut timer, at(6)), [0]);
        timer.cancel(1);
        assert_eq!(all(&mut timer, at(5_000)), [2]);
        assert_eq!(all(&mut timer, at(59_999)), []);
        assert_eq!(all(&mut timer, at(500_000)), [3]);
        assert_eq!(timer.poll_timeout(), None);
    }

    /// A 32-bit number of ticks ends after 49.7 days.
    #[test]
    fn time_goes_on_after_fifty_days() {
        let t0 = start();
        let mut timer = Timer::new(t0);
        let late = t0 + Duration::from_secs(50 * 24 * 60 * 60);
        assert_eq!(timer.expire(late), None);
        timer.set(0, late + Duration::from_millis(7));
        assert!(timer.poll_timeout().is_some_and(|at| at > late));
        assert_eq!(timer.expire(late + Duration::from_millis(8)), Some(0));
    }

    /// Against a plain list, over random deadlines and pauses.
    #[test]
    fn agrees_with_a_list() {
        let t0 = start();
        let mut timer = Timer::new(t0);
        let mut list: Vec<Option<Instant>> = vec![None; 200];
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut now = t0;
        for step in 0..20_000 {
            now += Duration::from_micros(random(if step % 100 == 0 { 9_000_000 } else { 3_000 }));
            let key = random(200);
            if random(3) == 0 {
                timer.cancel(key as u32);
                list[key as usize] = None;
            } else {
                let at = now + Duration::from_micros(random(20_000_000));
                timer.set(key as u32, at);
                list[key as usize] = Some(at);
            }
            let fired = all(&mut timer, now);
            for (key, at) in list.iter_mut().enumerate() {
                let fires = fired.contains(&(key as u32));
                let Some(due) = *at else {
                    assert!(!fires, "step {step}: {key} has no deadline");
                    continue;
                };
                assert!(!fires || due <= now, "step {step}: {key} fired early");
                assert!(fires || due + TICK > now, "step {step}: {key} is late");
                if fires {
                    *at = None;
                }
            }
            let first = list.iter().flatten().min();
            assert!(timer.poll_timeout().is_some() == first.is_some());
            if let (Some(wake), Some(first)) = (timer.poll_timeout(), first) {
                assert!(wake <= *first + TICK, "step {step}: would oversleep");
            }
        }
    }
}
