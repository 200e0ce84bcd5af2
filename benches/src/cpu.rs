//! What a process has used: CPU time and memory, as the kernel tells.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What one process had used when it was looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) pid: u32,
    /// User and system time of its living threads.
    pub(crate) cpu: Duration,
    /// Resident memory in KiB.
    pub(crate) rss_kib: u64,
}

/// Looks at each process.
///
/// # Errors
/// A process is gone, or the kernel has no `schedstat`.
pub(crate) fn sample(processes: &[u32]) -> io::Result<Vec<Sample>> {
    let of = |&pid| {
        let root = PathBuf::from(format!("/proc/{pid}"));
        let told = cpu(&root).and_then(|cpu| {
            Ok(Sample {
                pid,
                cpu,
                rss_kib: rss_kib(&root)?,
            })
        });
        told.map_err(|e| io::Error::new(e.kind(), format!("process {pid}: {e}")))
    };
    processes.iter().map(of).collect()
}

/// `schedstat` counts nanoseconds, where `stat` counts in hundredths of a second.
fn cpu(root: &Path) -> io::Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir(root.join("task"))? {
        // A thread that has just ended takes its time with it.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        nanos += number(text.split_whitespace().next())?;
    }
    Ok(Duration::from_nanos(nanos))
}

fn rss_kib(root: &Path) -> io::Result<u64> {
    let status = fs::read_to_string(root.join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    number(line.and_then(|line| line.split_whitespace().next()))
}

fn number(text: Option<&str>) -> io::Result<u64> {
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not what /proc should say"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_time_passes() {
        let own = [std::process::id()];
        let before = sample(&own).expect("ourselves")[0];
        let mut work = 1u64;
        while sample(&own).expect("ourselves")[0].cpu == before.cpu {
            work = work.wrapping_mul(3);
        }
        assert!(before.rss_kib > 0, "{work}");
        assert!(sample(&[u32::MAX]).is_err());
    }
}
