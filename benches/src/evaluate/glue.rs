//! The glue server: an application of HTTP that makes a page of calls by the thin SDK.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process;
use std::rc::Rc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use thin_sdk::{BuildError, Client};
use tokio::task::JoinSet;

use super::course::{Course, MAX_CALLS, MAX_PAYLOAD, METHOD, Name, SERVICE, Way};
use super::{Error, Options, station};
use crate::configuration::{self, ANYWHERE};
use crate::http::{Request, Response};
use crate::part::{Part, free_address};

/// The glue server's machine: the server, its sidecar, and what both use.
pub(super) async fn serve(program: &Path, options: &Options) -> Result<Infallible, Error> {
    let provider = options.dubbo.ok_or(Error::NoProvider)?;
    let folder = tempfile::tempdir()?;
    let outbound = free_address()?;
    let file = folder.path().join("sidecar.yaml");
    fs::write(&file, sidecar_yaml(outbound, provider))?;
    let arguments = ["proxy", "--config", &file.to_string_lossy()];
    let mut sidecar = Part::subcommand(program, "sidecar", &arguments)?;
    sidecar.wait_for(outbound)?;
    let proxy = sidecar.pid();
    let glue = Rc::new(Glue {
        provider,
        sidecar: outbound,
        round: RefCell::default(),
    });
    let answer = move |request: Request| {
        let glue = Rc::clone(&glue);
        async move {
            match (&request.method, request.path.as_str()) {
                (&Method::GET, "/page") => glue.page().await,
                (&Method::PUT, "/course") => glue.begin(&request.body),
                (&Method::GET, "/usage") => {
                    let processes = [(Name::Glue, process::id()), (Name::Proxy, proxy)];
                    station::usage(&processes, provider)
                }
                _ => Response::new(
                    StatusCode::NOT_FOUND,
                    "GET /page, GET /usage, PUT /course\n",
                ),
            }
        }
    };
    station::serve(options, answer).await
}

/// What answers for pages.
#[derive(Debug)]
struct Glue {
    provider: SocketAddr,
    sidecar: SocketAddr,
    /// What is measured now.
    round: RefCell<Option<Rc<Round>>>,
}

/// One way of calling. Another one drops its clients, and with them their connections.
#[derive(Debug)]
struct Round {
    course: Course,
    argument: Rc<str>,
    clients: Clients,
}

#[derive(Debug)]
enum Clients {
    /// All calls share it.
    One(Client),
    /// One for each call in flight, so many as ever were; those that are idle now.
    Many {
        provider: SocketAddr,
        idle: RefCell<Vec<Client>>,
    },
}

impl Glue {
    fn begin(&self, body: &[u8]) -> Response {
        let bad = |text: String| Response::new(StatusCode::BAD_REQUEST, text + "\n");
        let course: Course = match serde_json::from_slice(body) {
            Ok(course) => course,
            Err(e) => return bad(e.to_string()),
        };
        if course.calls.get() > MAX_CALLS || course.payload > MAX_PAYLOAD {
            return bad(format!(
                "a page has {MAX_CALLS} calls of {MAX_PAYLOAD} bytes at most"
            ));
        }
        // First: what is to be dropped has no part in what comes.
        self.round.take();
        match Round::new(course, self.provider, self.sidecar) {
            Ok(round) => {
                self.round.replace(Some(Rc::new(round)));
                Response::new(StatusCode::OK, "")
            }
            Err(e) => Response::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{e}\n")),
        }
    }

    async fn page(&self) -> Response {
        let round = self.round.borrow().clone();
        let Some(round) = round else {
            return Response::new(StatusCode::CONFLICT, "PUT /course first\n");
        };
        match round.page().await {
            Ok(()) => Response::new(StatusCode::OK, "a page\n"),
            Err(e) => Response::new(StatusCode::BAD_GATEWAY, format!("{e}\n")),
        }
    }
}

impl Round {
    fn new(course: Course, provider: SocketAddr, sidecar: SocketAddr) -> Result<Self, BuildError> {
        let clients = match course.way {
            Way::Direct => Clients::One(direct(provider)?),
            Way::Mesh => {
                let builder = Client::builder().sidecar(sidecar);
                Clients::One(builder.admin(None).bonder(None).build()?)
            }
            Way::Many => Clients::Many {
                provider,
                idle: RefCell::default(),
            },
        };
        Ok(Self {
            argument: "x".repeat(course.payload as usize).into(),
            clients,
            course,
        })
    }

    /// Makes all calls of a page.
    async fn page(self: Rc<Self>) -> Result<(), Failure> {
        let calls = self.course.calls.get();
        if !self.course.concurrent {
            for _ in 0..calls {
                self.call().await?;
            }
            return Ok(());
        }
        let mut going = JoinSet::new();
        for _ in 0..calls {
            let round = Rc::clone(&self);
            going.spawn_local(async move { round.call().await });
        }
        while let Some(ended) = going.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn call(&self) -> Result<(), Failure> {
        match &self.clients {
            Clients::One(client) => self.ask(client).await,
            Clients::Many { provider, idle } => {
                let taken = idle.borrow_mut().pop();
                let client = match taken {
                    Some(client) => client,
                    None => direct(*provider)?,
                };
                self.ask(&client).await?;
                idle.borrow_mut().push(client);
                Ok(())
            }
        }
    }

    async fn ask(&self, client: &Client) -> Result<(), Failure> {
        let call = client.call(SERVICE, METHOD).arg(&*self.argument);
        let echo: String = call.deadline(DEADLINE).send().await?;
        if echo.len() == self.argument.len() {
            Ok(())
        } else {
            Err(Failure::Answer(echo.len()))
        }
    }
}

/// Why a page failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Client(#[from] BuildError),
    #[error(transparent)]
    Call(#[from] thin_sdk::Error),
    #[error("an answer of {0} bytes is not what was sent")]
    Answer(usize),
    #[error("a call did not end by itself")]
    Task(#[from] tokio::task::JoinError),
}

fn direct(provider: SocketAddr) -> Result<Client, BuildError> {
    Client::builder()
        .direct()
        .providers(SERVICE, [provider])
        .build()
}

fn sidecar_yaml(outbound: SocketAddr, provider: SocketAddr) -> String {
    let services = format!(
        "static:
  services:
    - key: \"{SERVICE}\"
      endpoints: [\"{provider}\"]
"
    );
    configuration::proxy("evaluate", outbound, ANYWHERE, &services)
}

/// How long a call may take: less than a page may.
const DEADLINE: Duration = Duration::from_secs(3);
