//! Tests of the whole mesh inside one process, and of the shape of its code.

mod ads;
mod carry;
mod discovery;
mod failover;
mod faults;
mod layering;
mod panics;
mod sdk;
mod shards;
mod slow;
