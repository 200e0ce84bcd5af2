//! Who is started when, and what follows from who ends: a machine without processes or clock.
//!
//! Children start in the order of [`Role`], each when the one before is ready, or was given
//! [`Times::ready`] to become so. The end takes them down the other way round:
//!
//! ```text
//! Running ─> Deregister ─> Drain (proxy) ─> Stop (application) ─> Sweep ─> Last (pilot) ─> over
//!    └───────────┴──────────────┴─── a second signal ──┴────────────┴─> Kill (all) ────────▲
//! ```
//!
//! Nobody new is sent here when the proxy drains, and no call is in flight when the application is
//! told to end. *Sweep* ends what the application left behind.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::backoff::Backoff;

/// A child, in the order of the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The control plane of this host.
    Pilot,
    /// The sidecar.
    Proxy,
    /// What stands behind `--`.
    Application,
}

impl Role {
    /// How it is called in the log and the status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pilot => "pilot",
            Self::Proxy => "proxy",
            Self::Application => "application",
        }
    }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
    /// There was no process to be had.
    NotStarted,
}

impl Exit {
    /// The code by which whoever waits for us learns of it, as a shell would say it.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128_u8.saturating_add(signal),
            Self::NotStarted => 126,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::NotStarted => f.write_str("not started"),
        }
    }
}

/// What happens when the application ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Restart {
    /// Everything ends, with its code.
    #[default]
    Never,
    /// It is started again, once nothing of it is left.
    Always,
}

/// How long a step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Until a child is ready, after which the next one is started all the same.
    pub ready: Duration,
    /// Until providers are taken out of the registry.
    pub deregister: Duration,
    /// Until the proxy has drained.
    pub drain: Duration,
    /// Until any other child has ended that was told so.
    pub stop: Duration,
}

/// How a child is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// In order: SIGTERM.
    Terminate,
    /// At once: SIGKILL.
    Kill,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start this child, and tell [`Supervisor::started`] or [`Supervisor::exited`].
    Start(Role),
    /// Say that it is not ready in time.
    Late(Role),
    /// End this child.
    End(Role, End),
    /// End every process that descends from the application, and tell [`Supervisor::swept`] once
    /// there is none.
    Sweep(End),
    /// Take the providers out of the registry, and tell [`Supervisor::deregistered`].
    Deregister,
    /// Close the listening sockets: the proxy accepts nobody any more, and is not started again. Who
    /// connects is refused then, and goes elsewhere. It may be told twice.
    Close,
    /// Leave, with this code. The last action.
    Leave(u8),
}

/// How it stands with a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It was not started yet: those before are not ready.
    Waiting,
    /// It runs, and is not ready.
    Starting,
    /// It runs.
    Ready,
    /// It has ended and is started again at this time.
    Pausing(Instant),
    /// It was told to end, and is killed at this time.
    Ending(Instant),
    /// It was killed, and is not reaped yet.
    Killed,
    /// It has ended for good.
    Over,
}

/// One child.
#[derive(Debug)]
pub struct Child {
    /// Which.
    pub role: Role,
    /// How it stands.
    pub state: State,
    /// When it came to this state; of one that runs, when it was started.
    pub since: Instant,
    /// Times it was started again.
    pub restarts: u64,
    /// How it ended last.
    pub last_exit: Option<Exit>,
    /// When those behind it are started though it is not ready.
    patience: Option<Instant>,
    backoff: Backoff,
}

impl Child {
    /// Whether there is a process.
    #[must_use]
    pub fn runs(&self) -> bool {
        use State::{Ending, Killed, Ready, Starting};
        matches!(self.state, Starting | Ready | Ending(_) | Killed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Running,
    Deregister,
    Drain,
    Stop,
    Sweep,
    Last,
    Kill,
    Over,
}

/// The machine. It is told what happens, and yields what is to be done.
#[derive(Debug)]
pub struct Supervisor {
    children: Vec<Child>,
    restart: Restart,
    times: Times,
    rng: fastrand::Rng,
    step: Step,
    /// When the step is given up; while there is sweeping, when it is done by force, and then given up.
    until: Option<Instant>,
    /// How descendants of the application are being ended, if they are.
    sweeping: Option<End>,
    actions: VecDeque<Action>,
}

impl Supervisor {
    /// A machine for these children; `rng` makes the jitter of restarts.
    #[must_use]
    pub fn new(
        now: Instant,
        roles: &[Role],
        restart: Restart,
        times: Times,
        rng: fastrand::Rng,
    ) -> Self {
        let child = |role: &Role| Child {
            role: *role,
            state: State::Waiting,
            since: now,
            restarts: 0,
            last_exit: None,
            patience: None,
            backoff: Backoff::new(PAUSE, MAX_PAUSE),
        };
        let mut children: Vec<_> = roles.iter().map(child).collect();
        children.sort_by_key(|child| child.role);
        let mut this = Self {
            children,
            restart,
            times,
            rng,
            step: Step::Running,
            until: None,
            sweeping: None,
            actions: VecDeque::new(),
        };
        this.advance(now);
        this
    }

    /// The children, in the order of their start.
    #[must_use]
    pub fn children(&self) -> &[Child] {
        &self.children
    }

    /// Whether the end has begun.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.step != Step::Running
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let children = self.children.iter().flat_map(|child| {
            let waits = child.role == Role::Application && self.sweeping.is_some();
            let state = match child.state {
                State::Pausing(at) if !waits => Some(at),
                State::Ending(at) => Some(at),
                _ => None,
            };
            let patience = child.patience.filter(|_| self.step == Step::Running);
            [state, patience]
        });
        children.chain([self.until]).flatten().min()
    }

    /// A child has a process.
    pub fn started(&mut self, now: Instant, role: Role) {
        self.child(role).since = now;
        if role == Role::Application {
            // Nobody can ask an application how it is.
            self.ready(now, role, true);
        }
    }

    /// A child that runs is, or is not, ready.
    pub fn ready(&mut self, now: Instant, role: Role, ready: bool) {
        let child = self.child(role);
        match (child.state, ready) {
            (State::Starting, true) => {
                (child.state, child.patience) = (State::Ready, None);
            }
            (State::Ready, false) => child.state = State::Starting,
            _ => return,
        }
        self.advance(now);
    }

    /// A child's process has ended, or there was none to be had.
    pub fn exited(&mut self, now: Instant, role: Role, exit: Exit) {
        let ending = self.is_ending();
        let again = role != Role::Application || self.restart == Restart::Always;
        let random = self.rng.u64(..);
        let child = self.child(role);
        if child.runs() && now.saturating_duration_since(child.since) >= STEADY {
            child.backoff.reset();
        }
        child.last_exit = Some(exit);
        child.since = now;
        child.state = match again && !ending {
            true => State::Pausing(now + child.backoff.next(random)),
            false => State::Over,
        };
        if role == Role::Application && !ending {
            if again {
                // What it left may hold what its successor needs, a port for one.
                self.sweep(now, End::Terminate);
            } else {
                self.stop(now);
            }
        }
        self.advance(now);
    }

    /// Whoever started us wants the end: in order the first time, at once the second.
    pub fn stop(&mut self, now: Instant) {
        match self.step {
            Step::Running => {
                for child in &mut self.children {
                    if !child.runs() {
                        (child.state, child.since) = (State::Over, now);
                    }
                }
                self.enter(now, Step::Deregister);
            }
            Step::Kill | Step::Over => {}
            _ => self.enter(now, Step::Kill),
        }
        self.advance(now);
    }

    /// The providers are out of the registry.
    pub fn deregistered(&mut self, now: Instant) {
        if self.step == Step::Deregister {
            self.enter(now, Step::Drain);
            self.advance(now);
        }
    }

    /// Nothing that descends from the application is left.
    pub fn swept(&mut self, now: Instant) {
        self.sweeping = None;
        if self.step == Step::Running {
            self.until = None;
        }
        self.advance(now);
    }

    /// Looks at the clock.
    pub fn handle_timeout(&mut self, now: Instant) {
        for child in &mut self.children {
            if matches!(child.state, State::Ending(at) if at <= now) {
                child.state = State::Killed;
                self.actions.push_back(Action::End(child.role, End::Kill));
            }
            if self.step == Step::Running && child.patience.is_some_and(|at| at <= now) {
                child.patience = None;
                self.actions.push_back(Action::Late(child.role));
            }
        }
        if self.until.is_some_and(|at| at <= now) {
            self.until = None;
            match self.step {
                Step::Running => self.sweep(now, End::Kill),
                Step::Sweep if self.sweeping != Some(End::Kill) => self.sweep(now, End::Kill),
                Step::Deregister => self.enter(now, Step::Drain),
                // What was killed and is still there, nobody can end.
                Step::Drain => self.enter(now, Step::Stop),
                Step::Stop => self.enter(now, Step::Sweep),
                Step::Sweep => self.enter(now, Step::Last),
                Step::Last | Step::Kill => self.enter(now, Step::Over),
                Step::Over => {}
            }
        }
        self.advance(now);
    }

    /// Does whatever can be done now.
    fn advance(&mut self, now: Instant) {
        if self.step == Step::Running {
            self.start(now);
        }
        loop {
            let over = |role| {
                let mut children = self.children.iter();
                children.all(|child| child.role != role || child.state == State::Over)
            };
            let next = match self.step {
                Step::Drain if over(Role::Proxy) => Step::Stop,
                Step::Stop if over(Role::Application) => Step::Sweep,
                Step::Sweep if self.sweeping.is_none() => Step::Last,
                Step::Last if over(Role::Pilot) => Step::Over,
                Step::Kill if self.sweeping.is_none() && !self.children.iter().any(Child::runs) => {
                    Step::Over
                }
                _ => return,
            };
            self.enter(now, next);
        }
    }

    /// Starts whoever's turn it is.
    fn start(&mut self, now: Instant) {
        for child in &mut self.children {
            let due = match child.state {
                State::Waiting => true,
                State::Pausing(at) => at <= now,
                _ => false,
            };
            if due && !(child.role == Role::Application && self.sweeping.is_some()) {
                if child.last_exit.is_some() {
                    child.restarts += 1;
                } else {
                    child.patience = Some(now + self.times.ready);
                }
                // Until it is told that it was started.
                (child.state, child.since) = (State::Starting, now);
                self.actions.push_back(Action::Start(child.role));
            }
            if child.patience.is_some() {
                return;
            }
        }
    }

    fn enter(&mut self, now: Instant, step: Step) {
        self.step = step;
        self.until = None;
        match step {
            Step::Running => {}
            Step::Deregister => {
                self.until = Some(now + self.times.deregister);
                self.actions.push_back(Action::Deregister);
            }
            Step::Drain => {
                self.actions.push_back(Action::Close);
                self.end(now, Role::Proxy, self.times.drain);
            }
            Step::Stop => self.end(now, Role::Application, self.times.stop),
            Step::Sweep => self.sweep(now, End::Terminate),
            Step::Last => self.end(now, Role::Pilot, self.times.stop),
            Step::Kill => {
                self.actions.push_back(Action::Close);
                for child in &mut self.children {
                    if child.runs() {
                        (child.state, child.since) = (State::Killed, now);
                        self.actions.push_back(Action::End(child.role, End::Kill));
                    }
                }
                self.sweep(now, End::Kill);
            }
            Step::Over => {
                let mut children = self.children.iter();
                let application = children.find(|child| child.role == Role::Application);
                let exit = application.and_then(|child| child.last_exit);
                let code = exit.map_or(0, Exit::code);
                self.actions.push_back(Action::Leave(code));
            }
        }
    }

    /// Tells a child to end, if it runs.
    fn end(&mut self, now: Instant, role: Role, within: Duration) {
        if let Some(child) = self.children.iter_mut().find(|child| child.role == role)
            && child.runs()
        {
            (child.state, child.since) = (State::Ending(now + within), now);
            self.until = Some(now + within + KILL);
            self.actions.push_back(Action::End(role, End::Terminate));
        }
    }

    /// Ends what descends from the application.
    fn sweep(&mut self, now: Instant, end: End) {
        let within = match end {
            End::Terminate => self.times.stop,
            End::Kill => KILL,
        };
        self.sweeping = Some(end);
        self.until = Some(now + within);
        self.actions.push_back(Action::Sweep(end));
    }

    fn child(&mut self, role: Role) -> &mut Child {
        let mut children = self.children.iter_mut();
        let child = children.find(|child| child.role == role);
        child.expect("only children that were started are spoken of")
    }
}

/// Pause before a child is started again, doubled up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause: a proxy or a pilot that cannot run keeps nobody waiting much longer once it can.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// A child that ran for so long did not fail because it was started.
const STEADY: Duration = Duration::from_secs(10);
/// Time for the kernel to end what was killed.
const KILL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
