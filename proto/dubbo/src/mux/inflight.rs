//! Calls in flight: the request id *is* the place where the call stands.
//!
//! | bits | 63-56 | 55-24 | 23-0 |
//! | --- | --- | --- | --- |
//! | what | shard | generation | slot |
//!
//! A reply finds its call by index. A late, duplicate or alien reply meets another generation, or
//! none, and finds nothing.

use crate::head::RequestId;

/// Most calls that one table can hold: what the slot's bits can name.
pub const MAX_SLOTS: u32 = 1 << SLOT_BITS;

/// Entries that an empty table keeps.
const KEPT: usize = 1024;

const SLOT_BITS: u32 = 24;
const GENERATION_SHIFT: u32 = SLOT_BITS;
const SHARD_SHIFT: u32 = 56;

/// A table of calls in flight, named by the request ids they travel under.
#[derive(Debug)]
pub struct Slots<T> {
    shard: u8,
    max: u32,
    len: u32,
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    /// Generation of the next entry that is made: above that of every entry ever dropped.
    fresh: u32,
}

#[derive(Debug)]
struct Entry<T> {
    /// Counted up when the entry is taken and when it is freed.
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    /// An empty table of at most `max` calls whose ids carry `shard`.
    #[must_use]
    pub fn new(shard: u8, max: u32) -> Self {
        let max = max.min(MAX_SLOTS);
        Self {
            shard,
            max,
            len: 0,
            entries: Vec::new(),
            free: Vec::new(),
            fresh: 0,
        }
    }

    /// The shard that a request id belongs to.
    #[must_use]
    #[inline]
    pub fn shard_of(id: RequestId) -> u8 {
        id.0.to_be_bytes()[0]
    }

    /// The slot that a request id names, whatever stands there now: an index below [`MAX_SLOTS`].
    #[must_use]
    #[inline]
    pub fn slot_of(id: RequestId) -> u32 {
        let [_, _, _, _, _, a, b, c] = id.0.to_be_bytes();
        u32::from_be_bytes([0, a, b, c])
    }

    /// Puts a call in; hands it back when the table is full.
    ///
    /// # Errors
    /// The value, if `max` calls are in flight.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<RequestId, T> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.len < self.max => {
                self.entries.push(Entry {
                    generation: self.fresh,
                    value: None,
                });
                self.len
            }
            None => return Err(value),
        };
        let Some(entry) = self.entries.get_mut(slot as usize) else {
            return Err(value);
        };
        entry.generation = entry.generation.wrapping_add(1);
        entry.value = Some(value);
        self.len += 1;
        Ok(Self::id(self.shard, entry.generation, slot))
    }

    /// The call that `id` names.
    #[must_use]
    #[inline]
    pub fn get(&self, id: RequestId) -> Option<&T> {
        let entry = self.entries.get(Self::slot_of(id) as usize)?;
        if Self::id(self.shard, entry.generation, Self::slot_of(id)) != id {
            return None;
        }
        entry.value.as_ref()
    }

    /// The call that `id` names.
    #[inline]
    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut T> {
        let slot = Self::slot_of(id);
        let entry = self.entries.get_mut(slot as usize)?;
        if Self::id(self.shard, entry.generation, slot) != id {
            return None;
        }
        entry.value.as_mut()
    }

    /// Takes the call that `id` names out.
    #[inline]
    pub fn remove(&mut self, id: RequestId) -> Option<T> {
        let slot = Self::slot_of(id);
        let entry = self.entries.get_mut(slot as usize)?;
        if Self::id(self.shard, entry.generation, slot) != id {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
        self.len -= 1;
        Some(value)
    }

    /// Whether `id` named a call once, and does no longer: its reply comes late.
    #[must_use]
    pub fn has_been(&self, id: RequestId) -> bool {
        let [shard, a, b, c, d, ..] = id.0.to_be_bytes();
        let generation = u32::from_be_bytes([a, b, c, d]);
        // An entry that was given back had at most the generation of those to come.
        let entry = self.entries.get(Self::slot_of(id) as usize);
        let free = entry.map_or_else(|| self.fresh.wrapping_add(1), |entry| entry.generation);
        let age = free.wrapping_sub(generation);
        shard == self.shard && generation != 0 && (1..1 << 31).contains(&age)
    }

    /// The whole id of the call in `slot`, if there is one.
    #[must_use]
    pub fn id_at(&self, slot: u32) -> Option<RequestId> {
        let entry = self.entries.get(slot as usize)?;
        entry.value.as_ref()?;
        Some(Self::id(self.shard, entry.generation, slot))
    }

    /// All calls, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &T)> {
        self.entries.iter().zip(0u32..).filter_map(|(entry, slot)| {
            let value = entry.value.as_ref()?;
            Some((Self::id(self.shard, entry.generation, slot), value))
        })
    }

    /// Calls in flight.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no call is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all calls; their ids are never used again.
    pub fn clear(&mut self) {
        let ids: Vec<_> = self.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.remove(id);
        }
    }

    /// Gives the memory of a burst back once the table is empty; ids stay unique.
    pub fn shrink(&mut self) {
        if self.len > 0 || self.entries.len() <= KEPT {
            return;
        }
        let newest = self.entries.iter().map(|e| e.generation).max();
        self.fresh = newest.unwrap_or(self.fresh).max(self.fresh);
        self.entries = Vec::new();
        self.free = Vec::new();
    }

    #[inline]
    fn id(shard: u8, generation: u32, slot: u32) -> RequestId {
        RequestId(
            u64::from(shard) << SHARD_SHIFT
                | u64::from(generation) << GENERATION_SHIFT
                | u64::from(slot),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_finds_its_call_once() {
        let mut slots = Slots::new(3, 2);
        let a = slots.insert("a").expect("room");
        let b = slots.insert("b").expect("room");
        assert_eq!(slots.insert("c"), Err("c"));
        assert_eq!(Slots::<&str>::shard_of(a), 3);
        assert_eq!(slots.remove(a), Some("a"));
        assert_eq!(slots.remove(a), None, "a duplicate");
        let c = slots.insert("c").expect("room again");
        assert_ne!(a, c);
        assert_eq!(slots.get(a), None, "late: the slot has a new tenant");
        assert!(slots.has_been(a) && !slots.has_been(c) && !slots.has_been(RequestId(a.0 ^ 1)));
        assert_eq!((slots.get(b), slots.get(c)), (Some(&"b"), Some(&"c")));
        assert_eq!(slots.remove(RequestId(u64::MAX)), None, "alien");
        assert_eq!(
            slots.remove(RequestId(c.0 ^ (1 << SHARD_SHIFT))),
            None,
            "another shard's"
        );
    }

    #[test]
    fn ids_stay_unique_when_memory_is_given_back() {
        let mut slots = Slots::new(0, 4096);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..5 {
            let ids: Vec<_> = (0..2000).map(|i| slots.insert(i).expect("room")).collect();
            for id in ids {
                assert!(seen.insert(id), "{id} came twice");
                assert!(slots.remove(id).is_some());
            }
            slots.shrink();
        }
        assert!(slots.entries.is_empty(), "given back");
        assert!(
            seen.iter()
                .all(|id| slots.get(*id).is_none() && slots.has_been(*id))
        );
    }
}
