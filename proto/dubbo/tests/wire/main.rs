//! The wire against vectors of real peers, against its limits, and against mutated input.

mod answers;
mod calls;
mod fastjson2;
mod foreign;
mod frames;
mod hessian;
mod limits;
mod mutation;
mod vector;
