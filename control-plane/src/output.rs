//! Standard output or error, written by a thread of its own: a reader that does not read, a terminal
//! that is stopped for one, holds up nobody but that thread.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::BorrowedFd,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

/// Where lines are written. Clones write to the same.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    entries: SyncSender<Entry>,
    /// Lines that found no room since one did.
    lost: Arc<Mutex<u64>>,
}

#[derive(Debug)]
struct Entry {
    /// Lines before it that found no room.
    lost: u64,
    line: Vec<u8>,
    /// Who waits until it is written.
    _waits: Option<SyncSender<()>>,
}

impl Output {
    /// Starts the thread that writes to `stream`; `name` is for people.
    ///
    /// # Errors
    /// There is no thread or no descriptor to be had.
    pub(crate) fn start(name: &str, stream: BorrowedFd<'_>) -> io::Result<Self> {
        let stream = File::from(stream.try_clone_to_owned()?);
        let (entries, received) = sync_channel(WAITING);
        let thread = thread::Builder::new().name(name.into());
        thread.spawn(move || write(&received, stream))?;
        let lost = Arc::default();
        Ok(Self { entries, lost })
    }

    /// Writes a line, line feed included, once those before are written. Where too many wait it is
    /// lost, and the next one that is not is preceded by their number.
    pub(crate) fn line(&self, line: Vec<u8>) {
        if !self.put(line, None) {
            *self.lost.lock() += 1;
        }
    }

    /// Waits until all lines are written, for a moment at most. Says whether they are.
    pub(crate) fn flush(&self) -> bool {
        let (waits, written) = sync_channel(0);
        self.put(Vec::new(), Some(waits))
            && written.recv_timeout(LAST_LINES) == Err(RecvTimeoutError::Disconnected)
    }

    /// Says whether there was room.
    fn put(&self, line: Vec<u8>, waits: Option<SyncSender<()>>) -> bool {
        let mut lost = self.lost.lock();
        let entry = Entry {
            lost: *lost,
            line,
            _waits: waits,
        };
        let room = self.entries.try_send(entry).is_ok();
        if room {
            *lost = 0;
        }
        room
    }
}

/// What the log writes to: each event is one line, in one piece.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(entries: &Receiver<Entry>, mut stream: File) {
    while let Ok(entry) = entries.recv() {
        // There may be no reader any more.
        if entry.lost > 0 {
            let gap = format!("{} lines are lost: nobody read them in time\n", entry.lost);
            let _ = stream.write_all(gap.as_bytes());
        }
        let _ = stream.write_all(&entry.line);
    }
}

/// Lines that wait, each of at most 64 KiB.
const WAITING: usize = 512;
/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn who_does_not_read_loses_lines_and_holds_up_nobody() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let output = Output::start("output", writer.as_fd()).expect("a thread");
        drop(writer);
        // More than the pipe and the queue take.
        let count = 2 * WAITING;
        for n in 0..count {
            output.line(format!("{n:01000}\n").into());
        }
        let read = thread::spawn(move || io::read_to_string(&mut reader).expect("text"));
        while !output.flush() {
            thread::yield_now();
        }
        drop(output);
        let read = read.join().expect("read to the end");
        let (mut next, mut lost) = (0, 0);
        for line in read.lines() {
            if let Some((gap, "are lost: nobody read them in time")) = line.split_once(" lines ") {
                let gap: usize = gap.parse().expect("a number");
                (next, lost) = (next + gap, lost + gap);
            } else {
                assert_eq!(line.parse(), Ok(next));
                next += 1;
            }
        }
        assert!(next == count && lost > 0, "{next} with {lost} lost");
    }
}
