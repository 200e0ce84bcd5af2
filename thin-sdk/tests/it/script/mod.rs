//! A sidecar that does what a test says, and providers that keep a ledger of what ran.

pub(crate) mod http;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::BytesMut;
use dubbo_proto::event;
use dubbo_proto::frame::{Frame, Limits};
use dubbo_proto::head::{Kind, RequestId, Serialization, Status};
use dubbo_proto::hessian2::writer::Writer;
use dubbo_proto::hessian2::{self, Reader, Tables, Token};
use dubbo_proto::invocation::{Invocation, Scratch};
use dubbo_proto::reply;
use thin_sdk::failover::Timing;
use thin_sdk::{Builder, Client, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the sidecar does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It answers heartbeats and calls.
    Serve,
    /// It answers heartbeats; calls wait for [`Mode::Serve`].
    Hold,
    /// It accepts, and reads nothing.
    Mute,
}

/// How often each call ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<HashMap<i64, u32>>>);

impl Ledger {
    fn record(&self, id: i64) {
        *self.0.lock().expect("no panic").entry(id).or_default() += 1;
    }

    pub(crate) fn runs(&self, id: i64) -> u32 {
        self.all().get(&id).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> HashMap<i64, u32> {
        self.0.lock().expect("no panic").clone()
    }
}

/// The sidecar. It serves every service itself: `who` says `sidecar`, `run` is put on record.
pub(crate) struct Script {
    address: SocketAddr,
    state: Arc<State>,
    mode: watch::Sender<Mode>,
    accepting: Option<JoinHandle<()>>,
}

struct State {
    mode: watch::Receiver<Mode>,
    /// Told to every connection: the number of breaks and of READONLYs so far.
    orders: watch::Sender<(u32, u32)>,
    inner: Mutex<Inner>,
    ledger: Ledger,
}

#[derive(Default)]
struct Inner {
    /// What is answered instead to calls of a service.
    flaws: HashMap<String, (u8, String)>,
    seen: u64,
    held: u64,
}

impl Script {
    pub(crate) async fn start(mode: Mode) -> Self {
        Self::recording(mode, Ledger::default()).await
    }

    pub(crate) async fn recording(mode: Mode, ledger: Ledger) -> Self {
        let (mode, modes) = watch::channel(mode);
        let (orders, _) = watch::channel((0, 0));
        let mut script = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            state: Arc::new(State {
                mode: modes,
                orders,
                inner: Mutex::default(),
                ledger,
            }),
            mode,
            accepting: None,
        };
        script.listen().await;
        script
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections.
    pub(crate) async fn listen(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("its port");
        self.address = listener.local_addr().expect("a bound socket");
        let state = Arc::clone(&self.state);
        self.accepting = Some(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&state)));
            }
        }));
    }

    /// Takes no connections, and breaks those there are.
    pub(crate) async fn refuse(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            let _ = accepting.await;
        }
        self.break_connections();
    }

    pub(crate) fn mode(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub(crate) fn break_connections(&self) {
        self.state.orders.send_modify(|(breaks, _)| *breaks += 1);
    }

    pub(crate) fn read_only(&self) {
        self.state.orders.send_modify(|(_, notices)| *notices += 1);
    }

    /// Answers calls of a service with an error.
    pub(crate) fn flaw(&self, service: &str, status: u8, text: &str) {
        let flaw = (status, text.to_owned());
        self.state.inner().flaws.insert(service.to_owned(), flaw);
    }

    pub(crate) fn mend(&self, service: &str) {
        self.state.inner().flaws.remove(service);
    }

    /// Calls that came so far.
    pub(crate) fn seen(&self) -> u64 {
        self.state.inner().seen
    }

    /// Calls that came in [`Mode::Hold`] so far.
    pub(crate) fn held(&self) -> u64 {
        self.state.inner().held
    }
}

impl State {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic")
    }

    /// The answer to a call, a whole frame.
    fn answer(&self, frame: &Frame, out: &mut Vec<u8>) {
        let (limits, mut scratch) = (hessian2::Limits::default(), Scratch::default());
        let serialization = Serialization::HESSIAN2;
        let call = Invocation::peek(serialization, &frame.body, &limits, &mut scratch);
        let call = call.expect("a good call");
        let flaw = self.inner().flaws.get(&call.path().to_string()).cloned();
        if let Some((status, text)) = flaw {
            return reply::error(out, serialization, frame.head.id, Status(status), &text);
        }
        let mut value = Vec::new();
        let mut writer = Writer::new(&mut value);
        if call.method.is(b"run") {
            let mut tables = Tables::default();
            let mut reader = Reader::new(&frame.body, &limits, &mut tables);
            reader.restart(call.arguments());
            let Ok(Token::Long(id)) = reader.token() else {
                panic!("no id")
            };
            self.ledger.record(id);
            writer.long(id);
        } else {
            writer.text("sidecar");
        }
        reply::value(out, frame.head.id, true, Some(&value));
    }
}

/// Serves one connection until it is broken.
async fn serve(mut stream: TcpStream, state: Arc<State>) {
    let mut orders = state.orders.subscribe();
    let mut mode = state.mode.clone();
    let (breaks, notices) = *orders.borrow_and_update();
    let (mut input, mut waiting) = (BytesMut::new(), Vec::new());
    let mut told = notices;
    loop {
        let now = *mode.borrow_and_update();
        let mut out = Vec::new();
        let next = |input: &mut BytesMut| match now {
            Mode::Mute => None,
            _ => Frame::decode(input, Limits::default()).ok().flatten(),
        };
        while let Some(frame) = next(&mut input) {
            match frame.head.kind {
                Kind::Event { two_way: true } => {
                    event::heartbeat_answer(&mut out, Serialization::HESSIAN2, frame.head.id);
                }
                Kind::Request { .. } => {
                    state.inner().seen += 1;
                    state.inner().held += u64::from(now == Mode::Hold);
                    waiting.push(frame);
                }
                _ => {}
            }
        }
        let (_, notices) = *orders.borrow();
        if notices > told {
            told = notices;
            event::read_only(&mut out, RequestId(1));
        }
        if now == Mode::Serve {
            for frame in waiting.drain(..) {
                state.answer(&frame, &mut out);
            }
        }
        if stream.write_all(&out).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            _ = orders.changed() => {
                if orders.borrow_and_update().0 > breaks {
                    return;
                }
            }
            _ = mode.changed() => {}
            read = stream.read_buf(&mut input), if now != Mode::Mute => {
                if !matches!(read, Ok(1..)) {
                    return;
                }
            }
        }
    }
}

/// A client of that sidecar that is quick to leave it and to come back.
pub(crate) fn client(sidecar: &Script) -> Builder {
    let ms = Duration::from_millis;
    Client::builder()
        .sidecar(sidecar.address)
        .admin(None)
        .bonder(None)
        .seed(1)
        .heartbeats(ms(20), ms(200))
        .failover(Timing {
            patience: ms(50),
            jitter: ms(10),
            ramp: ms(50),
            stable: ms(1),
            redial_min: ms(2),
            redial_max: ms(20),
            trial_min: ms(5),
            trial_max: ms(20),
        })
}

/// A provider of `com.foo.Shop` that says `name`, and puts on record what it ran.
pub(crate) async fn provider(name: &'static str, ledger: Option<&Ledger>) -> Server {
    let ledger = ledger.cloned().unwrap_or_default();
    let server = Server::builder()
        .method("com.foo.Shop", "who", move |_| async move { Ok(name) })
        .and_then(|server| {
            server.method("com.foo.Shop", "run", move |call| {
                let ledger = ledger.clone();
                async move {
                    let (id,): (i64,) = call.arguments()?;
                    ledger.record(id);
                    Ok(id)
                }
            })
        });
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = server.expect("a key").listen(address).await;
    server.expect("a port")
}

pub(crate) async fn providers(ledger: &Ledger, count: usize) -> Vec<Server> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(provider("provider", Some(ledger)).await);
    }
    all
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let looks = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(10), looks).await;
    assert!(within.is_ok(), "waited in vain for {what}");
}
