//! `dubbo-mesh`: one binary, a subcommand per process or tool.

fn main() {}
