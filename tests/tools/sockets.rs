//! The proxy over sockets that somebody keeps: nobody is refused while it ends and starts again.

use std::path::Path;
use std::process::Command;

use mesh_tests::keeper::Keeper;
use mesh_tests::peer::{Listener, Peer, answer};
use mesh_tests::process::Process;
use mesh_tests::proxy::{call, outbound};
use nix::sys::signal::Signal;

use super::WITHIN;

fn proxy(config: &Path, sockets: &Path, more: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    command.args(["proxy", "--config"]).arg(config);
    command.arg("--sockets").arg(sockets).args(more);
    Process::start("proxy", command)
}

#[test]
fn who_connects_while_the_proxy_is_away_waits_and_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, provider) = (folder.path().join("proxy.yaml"), Listener::bind());
    std::fs::write(&config, outbound(&[provider.address()], "")).expect("written");
    let keeper = Keeper::start(folder.path());
    let mut binder = proxy(&config, &keeper.path, &["--bind-only"]);
    assert!(binder.exit(WITHIN).success(), "{}", binder.output());
    let [address] = keeper.addresses()[..] else {
        panic!("one socket: {:?}", keeper.addresses())
    };
    for end in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL] {
        let mut application = Peer::connect(address);
        application.send(&call(1, "find"));
        let mut process = proxy(&config, &keeper.path, &[]);
        let mut connection = provider.accept();
        let seen = connection.receive_call();
        connection.send(&answer(seen.head.id, "world"));
        application.receive_call();
        assert_eq!(keeper.addresses(), [address]);
        process.signal(end);
        process.exit(WITHIN);
    }
}

#[test]
fn a_keeper_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, path) = (folder.path().join("proxy.yaml"), folder.path().join("none"));
    std::fs::write(&config, outbound(&[Listener::bind().address()], "")).expect("written");
    for more in [&["--bind-only"][..], &[]] {
        let mut process = proxy(&config, &path, more);
        assert_eq!(process.exit(WITHIN).code(), Some(1));
        process.expect("the reason", WITHIN, |line| {
            let reason = format!("error: --sockets {}: cannot connect: ", path.display());
            line.starts_with(&reason).then_some(())
        });
    }
}
