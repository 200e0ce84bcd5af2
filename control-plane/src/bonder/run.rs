//! The composition root: builds the parts, runs them, and does what the supervisor decides.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::{self, File},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use mesh_proto::host::own_addresses;
use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};
use tokio::{
    signal::unix::{Signal as Stream, SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    api,
    child::{self, News},
    config::{self, Config, Pilot},
    dependencies::{self, Dependencies},
    keeper::{self, Keeper},
    process::{self, Processes},
    providers::Providers,
    registration::{Instances, Place, Progress, Registrar},
    status::Status,
    supervisor::{Action, End, Exit, Role, Supervisor},
};
use crate::{logging, output::Output, server};

/// Why bonder did not start. Nothing is left behind then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The log cannot be set up.
    #[error("cannot log: {0}")]
    Log(String),
    /// The folder of the state cannot be used.
    #[error("state: {}: {source}", file.display())]
    State {
        /// The file that failed.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another bonder uses the folder of the state.
    #[error("state: another bonder uses {}; stop it, or write another folder", .0.display())]
    Taken(PathBuf),
    /// The dependencies cannot be written.
    #[error("state: {0}")]
    Dependencies(#[from] dependencies::Error),
    /// The address cannot be had.
    #[error("{0}")]
    Bind(String),
    /// The proxy did not bind its sockets, and has said why.
    #[error("proxy: its sockets are not there: {0}")]
    Sockets(Exit),
    /// The proxy took longer than `limits.ready_time` to bind its sockets.
    #[error(
        "proxy: its sockets are not there after {0:?}; look what holds it up, or write a longer limits.ready_time"
    )]
    Late(Duration),
    /// A thread, a process or a runtime cannot be made.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// Runs what `file` says, and `application` if it is not empty, until the application ends or a
/// signal comes. The exit code to leave with: the application's.
///
/// Of the main thread: the children are killed when the thread ends that called this.
///
/// # Errors
/// If it cannot start.
pub fn run(file: &Path, application: &[OsString]) -> Result<u8, Error> {
    let config = Config::load(file)?;
    let stdout = Output::start("stdout", io::stdout().as_fd())?;
    let stderr = Output::start("stderr", io::stderr().as_fd())?;
    let log = stderr.clone();
    logging::install(&config.log_level, move || log.clone()).map_err(Error::Log)?;
    let code = work(config, application, &stdout);
    for output in [stdout, stderr] {
        output.flush();
    }
    code
}

fn work(config: Config, application: &[OsString], stdout: &Output) -> Result<u8, Error> {
    let _lock = lock(&config.state)?;
    let http = server::bind("http.listen", config.http.listen).map_err(Error::Bind)?;
    let socket = config.state.join(keeper::FILE);
    let unusable = |source| Error::State {
        file: socket.clone(),
        source,
    };
    let keeper = Keeper::start(&socket).map_err(unusable)?;
    let commands = commands(&config, &keeper, application);
    let mut bind = commands[&Role::Proxy].clone();
    bind.push("--bind-only".into());
    match process::run(&bind, config.times.ready)? {
        Some(Exit::Code(0)) => {}
        Some(exit) => return Err(Error::Sockets(exit)),
        None => return Err(Error::Late(config.times.ready)),
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(async {
        let bonder = Bonder::start(config, keeper, commands, http, stdout.clone())?;
        Ok(bonder.serve().await)
    });
    // What is still written or looked up is waited for by nobody.
    runtime.shutdown_background();
    code
}

/// What each child is started by.
fn commands(
    config: &Config,
    keeper: &Keeper,
    application: &[OsString],
) -> HashMap<Role, Vec<OsString>> {
    let daemon = |name: &str, config: &Path| -> Vec<OsString> {
        vec![ITSELF.into(), name.into(), "--config".into(), config.into()]
    };
    let mut proxy = daemon("proxy", &config.proxy);
    proxy.extend(["--sockets".into(), keeper.path().into()]);
    let mut commands = HashMap::from([(Role::Proxy, proxy)]);
    if let Some(Pilot::Here { config, .. }) = &config.pilot {
        commands.insert(Role::Pilot, daemon("pilot", config));
    }
    if !application.is_empty() {
        commands.insert(Role::Application, application.to_vec());
    }
    commands
}

/// Makes the folder of the state ours alone, until the file is dropped.
fn lock(folder: &Path) -> Result<File, Error> {
    let file = folder.join(LOCK);
    let unusable = |source| Error::State {
        file: file.clone(),
        source,
    };
    fs::create_dir_all(folder).map_err(unusable)?;
    let lock = File::create(&file).map_err(unusable)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::Taken(folder.into())),
        Err(error) => Err(unusable(error.into())),
    }
}

/// Bonder at work.
#[derive(Debug)]
struct Bonder {
    supervisor: Supervisor,
    processes: Processes,
    commands: HashMap<Role, Vec<OsString>>,
    stdout: Output,
    keeper: Arc<Keeper>,
    /// The one that follows a child, until it ends.
    followed: HashMap<Role, tokio::task::AbortHandle>,
    tasks: JoinSet<()>,
    /// How the application's descendants are being ended, if they are.
    sweep: Option<End>,
    status: watch::Sender<Status>,
    pilot: watch::Sender<Option<SocketAddr>>,
    end: watch::Sender<bool>,
    news: mpsc::Receiver<(Role, News)>,
    tell: mpsc::Sender<(Role, News)>,
    deregistered: mpsc::Receiver<()>,
    signals: Signals,
}

/// The signals that mean something here.
#[derive(Debug)]
struct Signals {
    child: Stream,
    terminate: Stream,
    interrupt: Stream,
    hangup: Stream,
    passed: [(Stream, Signal); 4],
}

impl Signals {
    fn new() -> io::Result<Self> {
        let passed = |kind: SignalKind, passed| Ok::<_, io::Error>((signal(kind)?, passed));
        Ok(Self {
            child: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            passed: [
                // A Java program shows its threads.
                passed(SignalKind::quit(), Signal::QUIT)?,
                passed(SignalKind::user_defined1(), Signal::USR1)?,
                passed(SignalKind::user_defined2(), Signal::USR2)?,
                passed(SignalKind::window_change(), Signal::WINCH)?,
            ],
        })
    }
}

impl Bonder {
    fn start(
        config: Config,
        keeper: Keeper,
        commands: HashMap<Role, Vec<OsString>>,
        http: TcpListener,
        stdout: Output,
    ) -> Result<Self, Error> {
        // Before the first child, whose end must not be missed.
        let signals = Signals::new()?;
        let processes = Processes::new()?;
        let keeper = Arc::new(keeper);
        let mut tasks = JoinSet::new();
        let file = config.state.join(DEPENDENCIES);
        let (dependencies, keep) = Dependencies::open(&file, &config.dependencies)?;
        tasks.spawn(keep);
        let place = place(&config, Arc::clone(&keeper));
        let file = config.state.join(PROVIDERS);
        let (wanting, wanted) = watch::channel(Instances::new());
        let (providers, keep) = Providers::start(file, config.providers.clone(), place, wanting);
        tasks.spawn(keep);
        let (progress, shown) = watch::channel(Progress::default());
        let known = match &config.pilot {
            Some(Pilot::Elsewhere { address, .. }) => Some(*address),
            _ => None,
        };
        let (pilot, found) = watch::channel(known);
        let (end, ended) = watch::channel(false);
        let (tell_deregistered, deregistered) = mpsc::channel(1);
        let registrar = Registrar {
            pilot: found,
            token: config.pilot.as_ref().and_then(Pilot::token).cloned(),
            wanted,
            progress,
            registered: Instances::new(),
        };
        tasks.spawn(async move {
            registrar.keep(ended).await;
            let _ = tell_deregistered.send(()).await;
        });
        let now = Instant::now().into_std();
        let roles: Vec<_> = commands.keys().copied().collect();
        let rng = fastrand::Rng::new();
        let supervisor = Supervisor::new(now, &roles, config.restart, config.times, rng);
        let status = watch::Sender::new(Status::of(&supervisor, &processes));
        let state = api::State {
            dependencies,
            providers,
            progress: shown,
            status: status.subscribe(),
        };
        let address = http.local_addr()?;
        let pages = api::router(state, config.http.token);
        tasks.spawn(async move {
            let Err(error) = server::serve(http, pages).await;
            tracing::error!(%error, "no HTTP");
        });
        // For whoever let the system choose the port.
        stdout.line(format!("bonder listening on {address}\n").into());
        let (tell, news) = mpsc::channel(NEWS);
        Ok(Self {
            supervisor,
            processes,
            commands,
            stdout,
            keeper,
            followed: HashMap::new(),
            tasks,
            sweep: None,
            status,
            pilot,
            end,
            news,
            tell,
            deregistered,
            signals,
        })
    }

    /// Does what there is to do, until the supervisor leaves; its code.
    async fn serve(mut self) -> u8 {
        loop {
            while let Some(action) = self.supervisor.poll_action() {
                if let Some(code) = self.act(action) {
                    self.tasks.shutdown().await;
                    return code;
                }
            }
            self.status
                .send_replace(Status::of(&self.supervisor, &self.processes));
            self.wait().await;
        }
    }

    /// Waits for something to happen, and tells the supervisor.
    async fn wait(&mut self) {
        let due = self.supervisor.poll_timeout().map(Instant::from_std);
        let [quit, user1, user2, window] = &mut self.signals.passed;
        tokio::select! {
            _ = self.signals.child.recv() => self.reap(),
            _ = self.signals.terminate.recv() => self.stop(),
            _ = self.signals.interrupt.recv() => self.stop(),
            _ = self.signals.hangup.recv() => {
                // The pilot has nothing to read again.
                for role in [Role::Proxy, Role::Application] {
                    self.processes.signal(role, Signal::HUP);
                }
            }
            _ = quit.0.recv() => self.processes.signal(Role::Application, quit.1),
            _ = user1.0.recv() => self.processes.signal(Role::Application, user1.1),
            _ = user2.0.recv() => self.processes.signal(Role::Application, user2.1),
            _ = window.0.recv() => self.processes.signal(Role::Application, window.1),
            Some((role, news)) = self.news.recv() => self.learn(role, news),
            Some(()) = self.deregistered.recv() => self.supervisor.deregistered(now()),
            () = sleep(SWEEP), if self.sweep.is_some() => self.sweep(),
            () = wait_until(due) => self.supervisor.handle_timeout(now()),
        }
    }

    fn act(&mut self, action: Action) -> Option<u8> {
        match action {
            Action::Start(role) => self.start_child(role),
            Action::Late(role) => {
                let child = role.as_str();
                tracing::warn!(
                    child,
                    "not ready in time: those behind it start all the same"
                );
            }
            Action::End(role, end) => self.processes.signal(role, by(end)),
            Action::Sweep(end) => {
                self.sweep = Some(end);
                self.sweep();
            }
            Action::Deregister => {
                tracing::info!("ending");
                self.end.send_replace(true);
            }
            Action::Close => self.keeper.close(),
            Action::Leave(code) => return Some(code),
        }
        None
    }

    fn start_child(&mut self, role: Role) {
        let child = role.as_str();
        let command = self.commands.get(&role).map(Vec::as_slice);
        match self.processes.start(role, command.unwrap_or_default()) {
            Ok(output) => {
                tracing::info!(child, pid = self.processes.pid(role), "started");
                self.supervisor.started(now(), role);
                if let Some(output) = output {
                    let follow =
                        child::follow(role, output, self.stdout.clone(), self.tell.clone());
                    self.followed.insert(role, self.tasks.spawn(follow));
                }
            }
            Err(error) => {
                tracing::error!(child, %error, "cannot be started");
                self.supervisor.exited(now(), role, Exit::NotStarted);
            }
        }
    }

    fn reap(&mut self) {
        for (role, exit) in self.processes.reap() {
            let child = role.as_str();
            if self.supervisor.is_ending() {
                tracing::info!(child, %exit, "ended");
            } else {
                tracing::warn!(child, %exit, "ended");
            }
            if let Some(task) = self.followed.remove(&role) {
                task.abort();
            }
            // What it still had to tell is of a process that is gone.
            while let Ok((of, news)) = self.news.try_recv() {
                if of != role {
                    self.learn(of, news);
                }
            }
            self.supervisor.exited(now(), role, exit);
        }
        while self.tasks.try_join_next().is_some() {}
        if self.sweep.is_some() {
            self.sweep();
        }
    }

    fn learn(&mut self, role: Role, news: News) {
        match news {
            News::Ready(ready) => {
                if ready {
                    tracing::info!(child = role.as_str(), "ready");
                } else {
                    tracing::warn!(child = role.as_str(), "not ready");
                }
                self.supervisor.ready(now(), role, ready);
            }
            News::Address(address) if role == Role::Pilot => {
                self.pilot.send_replace(Some(address));
            }
            News::Address(_) => {}
        }
    }

    fn stop(&mut self) {
        self.supervisor.stop(now());
    }

    /// Ends what the application left behind; says so when there is nothing more.
    fn sweep(&mut self) {
        let Some(end) = self.sweep else {
            return;
        };
        if !self.processes.sweep(by(end)) {
            self.sweep = None;
            self.supervisor.swept(now());
        }
    }
}

/// Where the mesh finds what is provided here, whenever it is asked.
fn place(config: &Config, keeper: Arc<Keeper>) -> impl Fn() -> Place + use<> {
    let advertise = config.advertise;
    move || {
        let inbound = keeper.inbound();
        // One that listens at one address alone is reached nowhere else.
        let bound = inbound.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
        let own = || own_addresses().into_iter().next();
        let host = advertise.or(bound).or_else(own);
        Place {
            host: host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            inbound,
        }
    }
}

fn by(end: End) -> Signal {
    match end {
        End::Terminate => Signal::TERM,
        End::Kill => Signal::KILL,
    }
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// This program, even if its file was replaced meanwhile.
const ITSELF: &str = "/proc/self/exe";
/// The files of the state.
const LOCK: &str = "bonder.lock";
const DEPENDENCIES: &str = "dependencies.json";
const PROVIDERS: &str = "providers.json";
/// News of children that wait.
const NEWS: usize = 16;
/// Between two looks at what the application left behind.
const SWEEP: Duration = Duration::from_millis(20);
