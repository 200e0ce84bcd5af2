//! Sockets that somebody keeps for us.

use std::{
    os::fd::{AsFd, OwnedFd},
    thread::{self, JoinHandle},
};

use mesh_proto::sockets::{self, Socket};

use super::*;

/// Holds these sockets for one proxy that starts, and then what that one gives.
fn keep(folder: &Path, held: Vec<Socket>) -> JoinHandle<Vec<Socket>> {
    let path = folder.join("keeper");
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(path).expect("bound");
    thread::spawn(move || {
        let (connection, _) = listener.accept().expect("a proxy");
        sockets::send(&connection, held.iter().map(Socket::lend)).expect("sent");
        sockets::receive(&connection).unwrap_or_default()
    })
}

/// What a proxy that starts listens on.
fn start(folder: &Path, config: &Config) -> Result<Vec<Bound>, Error> {
    let (keeper, inherited) = Keeper::ask(&folder.join("keeper"))?;
    let mut bound = bind(config, &[OWN], inherited)?;
    keeper.give(&mut bound)?;
    Ok(bound)
}

fn addresses(bound: &[Bound]) -> Vec<Listen> {
    bound.iter().map(|bound| bound.address.clone()).collect()
}

fn named(name: &str, socket: impl Into<OwnedFd>) -> Socket {
    Socket {
        name: name.into(),
        socket: socket.into(),
    }
}

#[test]
fn the_next_proxy_takes_over_ports_files_and_who_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let file = folder.join("mesh.sock");
    let outbound = format!("[127.0.0.1:0, 'unix:{}', 127.0.0.1:0]", file.display());
    let text = format!(
        "outbound: {{ listen: {outbound} }}\n\
         inbound: {{ listen: 127.0.0.1:0, provider: 127.0.0.1:1 }}\n"
    );
    let config = config(&text);
    let kept = keep(folder, Vec::new());
    let first = start(folder, &config).expect("bound");
    let held = kept.join().expect("kept");
    let names: Vec<_> = held.iter().map(|socket| &*socket.name).collect();
    let unix = format!("outbound unix:{}", file.display());
    assert_eq!(
        names,
        [
            "outbound 127.0.0.1:0",
            "outbound 127.0.0.2:0",
            &unix,
            "outbound 127.0.0.1:0",
            "outbound 127.0.0.2:0",
            "inbound 127.0.0.1:0"
        ]
    );
    let before = addresses(&first);
    drop(first);
    assert!(file.exists(), "it is not ours to remove");
    let _waiting = std::net::TcpStream::connect(tcp(&before[1])).expect("it waits");
    let _waiting_too = UnixStream::connect(&file).expect("it waits");

    let kept = keep(folder, held);
    let second = start(folder, &config).expect("taken over");
    assert_eq!(addresses(&second), before);
    assert_eq!(kept.join().expect("kept").len(), before.len());
    for at in [1, 2] {
        second[at].socket.accept().expect("who waited");
    }
}

#[test]
fn what_is_not_wanted_any_more_is_given_up_and_what_is_missing_is_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let gone = TcpListener::bind("127.0.0.1:0").expect("bound");
    let stale = gone.local_addr().expect("an address");
    let held = vec![named(&format!("inbound {stale}"), gone)];
    let kept = keep(folder.path(), held);
    let bound = start(folder.path(), &config(PORT_0)).expect("bound");
    assert_eq!(bound.len(), 1);
    let kept = kept.join().expect("kept");
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].tcp(), Some(tcp(&bound[0].address)));
    let refused = std::net::TcpStream::connect(stale).expect_err("closed everywhere");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_socket_that_is_not_what_it_is_said_to_be_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let port = silent.local_addr().expect("an address").port();
    let file = std::fs::File::open("/dev/null").expect("a file");
    for (name, socket, what) in [
        (
            "outbound 127.0.0.1:1",
            OwnedFd::from(listener),
            format!("is bound to {address}"),
        ),
        (
            "outbound 127.0.0.1:1",
            OwnedFd::from(file),
            "is no socket that is bound to an address or a path".into(),
        ),
        (
            &format!("outbound 127.0.0.1:{port}"),
            OwnedFd::from(silent),
            "does not listen".into(),
        ),
    ] {
        let listen = name.trim_start_matches("outbound ");
        let kept = keep(folder.path(), vec![named(name, socket)]);
        let config = config(&format!("outbound: {{ listen: '{listen}' }}"));
        let error = start(folder.path(), &config).expect_err("refused");
        assert_eq!(error.to_string(), format!("--sockets: {name:?} {what}"));
        assert!(kept.join().expect("cut off").is_empty());
    }
}

#[test]
fn without_a_keeper_or_a_list_nothing_is_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keeper");
    let error = start(folder.path(), &config(PORT_0)).expect_err("nobody there");
    let expected = format!("--sockets {}: cannot connect: ", path.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
    let listener = UnixListener::bind(&path).expect("bound");
    let liar = thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a proxy");
        connection.write_all(b"HTTP/1.1 200 OK\r\n").expect("sent");
    });
    let error = start(folder.path(), &config(PORT_0)).expect_err("no list");
    assert!(
        error.to_string().contains("the name of a socket has"),
        "{error}"
    );
    liar.join().expect("sent");
}

#[test]
fn an_own_address_that_came_later_gets_the_port_that_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let elsewhere = TcpListener::bind((OWN, 0)).expect("bound");
    let held = vec![
        named(
            "outbound 127.0.0.1:0",
            listener.as_fd().try_clone_to_owned().expect("a file"),
        ),
        named("outbound 127.0.0.2:0", elsewhere),
    ];
    let kept = keep(folder.path(), held);
    let bound = start(folder.path(), &config("outbound: { listen: 127.0.0.1:0 }"));
    let ports: Vec<_> = bound
        .expect("bound")
        .iter()
        .map(|b| tcp(&b.address).port())
        .collect();
    assert_eq!(ports, [port, port]);
    kept.join().expect("kept");
}
