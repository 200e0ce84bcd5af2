//! The signals that ask a process to end.

use std::{fs, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT, SIGQUIT, and SIGHUP unless whoever started us had it ignored, as `nohup` does.
/// While this lives, none of them ends the process by itself.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    /// Listens from now on, inside a tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let hangup = SignalKind::hangup();
        let status = fs::read_to_string("/proc/self/status")?;
        let heard = !is_ignored(&status, hangup);
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: heard.then(|| signal(hangup)).transpose()?,
        })
    }

    /// Waits for the next one. Cancel safe.
    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether a process with this `status`, of proc(5), ignores the signal.
fn is_ignored(status: &str, signal: SignalKind) -> bool {
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw_value() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_ignores_is_known() {
        for (mask, ignored) in [("0000000000000001", true), ("0000000000001002", false)] {
            let status = format!("Name:\tdemo\nSigIgn:\t{mask}\nSigCgt:\t0000000000000001\n");
            assert_eq!(is_ignored(&status, SignalKind::hangup()), ignored);
        }
        assert!(!is_ignored("", SignalKind::hangup()));
    }
}
