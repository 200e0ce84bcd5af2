//! Listening sockets, handed from one process to another over a Unix socket.
//!
//! A *keeper* holds the sockets of a server that may end and start again, so that connections wait in
//! the kernel meanwhile instead of being refused. The server makes the sockets, since it alone knows
//! how. Each server connects to the keeper once, when it starts, before it accepts anything:
//!
//! 1. the keeper sends every socket it holds, at first none;
//! 2. the server takes those it wants, and makes the others;
//! 3. the server sends every socket it listens on now, and these are all that the keeper holds from
//!    then on: one that nobody accepts from would swallow connections.
//!
//! Both directions are the same list: for each socket the length of its name (two bytes, the high
//! one first), the name, and with the first byte of these the descriptor, as `SCM_RIGHTS`. A length
//! of 0, without a descriptor, ends the list. Who is cut off before that has got nothing.
//!
//! The keeper chooses who may connect: by the permissions of its own socket.

use std::{
    ffi::OsStr,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    net::SocketAddr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::PathBuf,
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, getsockname, recvmsg, sendmsg,
};

/// A socket with the name that its server knows it by.
#[derive(Debug)]
pub struct Socket {
    /// `SIDE ADDRESS` as configured: `outbound 127.0.0.1:15001`, `inbound 0.0.0.0:0`,
    /// `outbound unix:/run/mesh.sock`. The keeper only keeps it. Not empty, at most [`MAX_NAME`]
    /// bytes.
    pub name: String,
    /// The socket.
    pub socket: OwnedFd,
}

/// Why a list of sockets was not received.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The other side is gone, or silent for longer than [`TIMEOUT`].
    #[error("the list of sockets breaks off")]
    Cut(#[from] io::Error),
    /// A name is longer than [`MAX_NAME`].
    #[error("the name of a socket has {0} bytes; at most {MAX_NAME} are taken")]
    Name(usize),
    /// A name is no UTF-8.
    #[error("the name of a socket is no text")]
    Text,
    /// A name came without a socket, or with several.
    #[error("{0:?} came with {1} descriptors; one is wanted")]
    Descriptors(String, usize),
    /// There are more than [`MAX_SOCKETS`].
    #[error("more than {MAX_SOCKETS} sockets")]
    TooMany,
}

impl Socket {
    /// What [`send`] takes.
    #[must_use]
    pub fn lend(&self) -> (&str, BorrowedFd<'_>) {
        (&self.name, self.socket.as_fd())
    }

    /// The address and port it is bound to, if it is a TCP socket.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        getsockname(&self.socket).ok()?.try_into().ok()
    }

    /// The file of a Unix socket, which its keeper removes in the end.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        let address: SocketAddrUnix = getsockname(&self.socket).ok()?.try_into().ok()?;
        Some(OsStr::from_bytes(address.path_bytes()?).into())
    }
}

/// Sends a list of sockets, each with its name. Blocks.
///
/// # Errors
/// Of the connection; a name that is empty or too long is `InvalidInput`.
pub fn send<'a>(
    to: &UnixStream,
    sockets: impl IntoIterator<Item = (&'a str, BorrowedFd<'a>)>,
) -> io::Result<()> {
    to.set_write_timeout(Some(TIMEOUT))?;
    for (name, socket) in sockets {
        let len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        if len == 0 || usize::from(len) > MAX_NAME {
            let why = format!("{name:?} cannot be the name of a socket");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let entry = [&len.to_be_bytes(), name.as_bytes()].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let rights = [socket];
        let fits = control.push(SendAncillaryMessage::ScmRights(&rights));
        debug_assert!(fits, "there is space for one");
        let sent = rustix::io::retry_on_intr(|| {
            sendmsg(
                to,
                &[IoSlice::new(&entry)],
                &mut control,
                SendFlags::NOSIGNAL,
            )
        })?;
        (&*to).write_all(entry.get(sent..).unwrap_or_default())?;
    }
    (&*to).write_all(&[0, 0])
}

/// Receives a list of sockets. Blocks, each read at most [`TIMEOUT`].
///
/// The sockets are closed in programs that this one executes.
///
/// # Errors
/// If the list is not whole or not as it should be; all of it is closed then.
pub fn receive(from: &UnixStream) -> Result<Vec<Socket>, Error> {
    from.set_read_timeout(Some(TIMEOUT))?;
    let mut sockets = Vec::new();
    loop {
        let (mut head, mut rights) = ([0; 2], Vec::new());
        let mut filled = 0;
        while filled < head.len() {
            filled += receive_some(from, &mut head[filled..], &mut rights)?;
        }
        let len = usize::from(u16::from_be_bytes(head));
        if len > MAX_NAME {
            return Err(Error::Name(len));
        }
        let mut name = vec![0; len];
        (&*from).read_exact(&mut name)?;
        let name = String::from_utf8(name).map_err(|_| Error::Text)?;
        match (len, rights.pop(), rights.len()) {
            (0, None, _) => return Ok(sockets),
            (1.., Some(_), 0) if sockets.len() == MAX_SOCKETS => return Err(Error::TooMany),
            (1.., Some(socket), 0) => sockets.push(Socket { name, socket }),
            (_, last, more) => {
                let count = more + usize::from(last.is_some());
                return Err(Error::Descriptors(name, count));
            }
        }
    }
}

/// Reads some bytes, at least one, and the descriptors that come with them.
fn receive_some(
    from: &UnixStream,
    into: &mut [u8],
    rights: &mut Vec<OwnedFd>,
) -> Result<usize, Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut into = [IoSliceMut::new(into)];
        recvmsg(from, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    let received = received.map_err(io::Error::from)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            rights.extend(descriptors);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // The kernel has closed what did not fit.
        return Err(Error::Descriptors(String::new(), rights.len() + 1));
    }
    match received.bytes {
        0 => Err(Error::Cut(io::ErrorKind::UnexpectedEof.into())),
        bytes => Ok(bytes),
    }
}

/// Bytes of the longest name: a side, and the longest path of a Unix socket.
pub const MAX_NAME: usize = 256;
/// Most sockets of a list. A sidecar has one for each address of its host.
pub const MAX_SOCKETS: usize = 1024;
/// Longest time to wait for the other side at each step.
pub const TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        os::unix::net::UnixListener,
        thread,
    };

    use super::*;

    /// What is received of whatever `send` sends.
    fn exchange(send: impl FnOnce(&UnixStream) + Send + 'static) -> Result<Vec<Socket>, Error> {
        let (to, from) = UnixStream::pair().expect("a pair");
        let sender = thread::spawn(move || send(&to));
        let received = receive(&from);
        drop(from);
        sender.join().expect("sent");
        received
    }

    fn entry(to: &UnixStream, bytes: &[u8], rights: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !rights.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(rights)));
        }
        let sent = sendmsg(
            to,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        );
        // Who has received enough may have left.
        assert!(sent.is_err() || sent == Ok(bytes.len()));
    }

    #[test]
    fn sockets_arrive_with_their_names_and_take_connections() {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = tcp.local_addr().expect("an address");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("socket");
        let unix = UnixListener::bind(&file).expect("bound");
        let received = exchange(move |to| {
            let both = [("outbound a", tcp.as_fd()), ("outbound b", unix.as_fd())];
            send(to, both).expect("sent");
        });
        let [tcp, unix] = &received.expect("whole")[..] else {
            panic!("two")
        };
        assert_eq!((&*tcp.name, &*unix.name), ("outbound a", "outbound b"));
        assert_eq!((tcp.tcp(), tcp.file()), (Some(address), None));
        assert_eq!((unix.tcp(), unix.file()), (None, Some(file)));
        // The sender has closed its own: it is the same socket.
        let listener = TcpListener::from(tcp.socket.try_clone().expect("a descriptor"));
        let _waiting = TcpStream::connect(address).expect("connected");
        listener.accept().expect("it waited here");
    }

    #[test]
    fn an_empty_list_and_the_longest_are_taken() {
        assert!(
            exchange(|to| send(to, []).expect("sent"))
                .expect("whole")
                .is_empty()
        );
        let (a, _b) = UnixStream::pair().expect("a pair");
        let name = "x".repeat(MAX_NAME);
        let many = exchange(move |to| {
            let all = (0..MAX_SOCKETS).map(|_| (&*name, a.as_fd()));
            send(to, all).expect("sent");
        });
        assert_eq!(many.expect("whole").len(), MAX_SOCKETS);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let refused = |bytes: &'static [u8], count: usize| {
            let outcome = exchange(move |to| {
                let (socket, _other) = UnixStream::pair().expect("a pair");
                let rights = vec![socket.as_fd(); count];
                entry(to, bytes, &rights);
            });
            outcome.expect_err("refused").to_string()
        };
        let cut = "the list of sockets breaks off";
        assert_eq!(refused(b"\0", 0), cut);
        assert_eq!(refused(b"\0\x01a", 1), cut, "no end");
        assert_eq!(refused(b"\0\x02a", 1), cut);
        let without = "\"a\" came with 0 descriptors; one is wanted";
        assert_eq!(refused(b"\0\x01a", 0), without);
        assert!(refused(b"\0\x01a", 5).contains("descriptors"));
        assert!(refused(b"\0\0", 1).contains("came with 1 descriptors"));
        assert!(refused(b"\xff\xff", 1).contains("has 65535 bytes"));
        assert_eq!(refused(b"\0\x01\xff", 1), "the name of a socket is no text");
    }

    #[test]
    fn a_list_that_is_too_long_is_refused_on_both_ends() {
        let (a, _b) = UnixStream::pair().expect("a pair");
        let outcome = exchange(move |to| {
            for _ in 0..=MAX_SOCKETS {
                entry(to, b"\0\x01a", &[a.as_fd()]);
            }
        });
        assert!(matches!(outcome, Err(Error::TooMany)));
        let (a, _b) = UnixStream::pair().expect("a pair");
        for name in ["", &"x".repeat(MAX_NAME + 1)] {
            let error = send(&a, [(name, a.as_fd())]).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
