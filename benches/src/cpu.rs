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
    /// Resident memory in KiB, and the most of it that there ever was.
    pub(crate) rss_kib: u64,
    pub(crate) rss_peak_kib: u64,
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
                rss_kib: status(&root, "VmRSS:")?,
                rss_peak_kib: status(&root, "VmHWM:")?,
            })
        });
        told.map_err(|e| io::Error::new(e.kind(), format!("process {pid}: {e}")))
    };
    processes.iter().map(of).collect()
}

/// CPU time of each living thread of a process whose name begins with `name`.
///
/// # Errors
/// The process is gone, or the kernel has no `schedstat`.
pub(crate) fn threads(pid: u32, name: &str) -> io::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.path();
        if fs::read_to_string(thread.join("comm")).is_ok_and(|own| own.starts_with(name)) {
            times.push(thread_cpu(&fs::read_to_string(thread.join("schedstat"))?)?);
        }
    }
    Ok(times)
}

/// `schedstat` counts nanoseconds, where `stat` counts in hundredths of a second.
fn cpu(root: &Path) -> io::Result<Duration> {
    let mut time = Duration::ZERO;
    for thread in fs::read_dir(root.join("task"))? {
        // A thread that has just ended takes its time with it.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        time += thread_cpu(&text)?;
    }
    Ok(time)
}

fn thread_cpu(schedstat: &str) -> io::Result<Duration> {
    number(schedstat.split_whitespace().next()).map(Duration::from_nanos)
}

fn status(root: &Path, name: &str) -> io::Result<u64> {
    let status = fs::read_to_string(root.join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
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
        assert!(
            (1..=before.rss_peak_kib).contains(&before.rss_kib),
            "{work}"
        );
        assert!(threads(own[0], "").is_ok_and(|threads| !threads.is_empty()));
        assert!(threads(own[0], "no such").is_ok_and(|threads| threads.is_empty()));
        assert!(sample(&[u32::MAX]).is_err());
    }
}
