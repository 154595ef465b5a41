//! Lines written off the data path: a bounded lane for each writer of lines, one thread that does the I/O.
//!
//! Appending to a lane takes its lock for a copy and never waits for a disk or a pipe. A lane that is full drops the
//! line and counts it: a log must not become the slow dependency.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

/// Bytes that wait in one lane at most: a tenth of a second at 10,000 calls a second.
const LANE_BYTES: usize = 256 * 1_024;

/// How long the end of the process waits for the last lines.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// While lines keep coming the thread wakes this often, so that nobody pays for waking it with each line.
const GATHER: Duration = Duration::from_millis(50);

type Output = Box<dyn Write + Send>;

/// Where lines end up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Appended to a file, made if it is not there (0640).
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A target, its lanes and its thread. Dropping it has what the lanes hold written, for at most [`LAST_WORDS`].
#[derive(Debug)]
pub(super) struct Spool {
    shared: Arc<Shared>,
    thread: Thread,
    /// Closed by the thread when it has written everything and ends.
    ended: Mutex<mpsc::Receiver<()>>,
}

#[derive(Debug)]
struct Shared {
    lanes: Mutex<Vec<Arc<Mutex<Vec<u8>>>>>,
    dropped: AtomicU64,
    /// The thread found nothing and sleeps until somebody unparks it.
    parked: AtomicBool,
    reopen: AtomicBool,
    stop: AtomicBool,
}

/// One writer's bounded buffer.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    buffer: Arc<Mutex<Vec<u8>>>,
    shared: Arc<Shared>,
    thread: Thread,
}

impl Spool {
    /// Opens the target and starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened for appending.
    pub fn open(name: &str, target: Target) -> io::Result<Self> {
        let output = open_output(&target)?;
        let shared = Arc::new(Shared {
            lanes: Mutex::default(),
            dropped: AtomicU64::new(0),
            parked: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let (ending, ended) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn({
            let shared = shared.clone();
            move || {
                drive_writer(&shared, &target, output);
                drop(ending);
            }
        })?;
        Ok(Spool { shared, thread: thread.thread().clone(), ended: Mutex::new(ended) })
    }

    /// A lane of its own for one writer of lines.
    pub fn lane(&self) -> Lane {
        let buffer = Arc::new(Mutex::new(Vec::new()));
        lock(&self.shared.lanes).push(buffer.clone());
        Lane { buffer, shared: self.shared.clone(), thread: self.thread.clone() }
    }

    /// Lines that found their lane full, or that the target did not take.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Opens the file again by name, for who rotates logs by renaming them.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.thread.unpark();
        // A reader that has stopped reading our pipe must not keep the process from ending.
        let _ = lock(&self.ended).recv_timeout(LAST_WORDS);
    }
}

impl Lane {
    /// Appends a line, or drops it when the lane is full. `line` ends with its line feed.
    pub fn append(&self, line: &[u8]) {
        {
            let mut buffer = lock(&self.buffer);
            if buffer.len() + line.len() > LANE_BYTES {
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            buffer.extend_from_slice(line);
        }
        // Sequentially consistent with the thread's check of the lanes after it says that it parks: either it sees
        // the line or this sees the flag.
        if self.shared.parked.swap(false, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

fn drive_writer(shared: &Shared, target: &Target, mut output: Output) {
    let mut taken = Vec::new();
    loop {
        // Read before the lanes, so that what was appended before the stop is written.
        let stopping = shared.stop.load(Ordering::SeqCst);
        reopen_if_asked(shared, target, &mut output);
        let wrote = write_lanes(shared, target, &mut output, &mut taken);
        if stopping {
            return;
        }
        if wrote {
            thread::park_timeout(GATHER);
            continue;
        }
        shared.parked.store(true, Ordering::SeqCst);
        if lanes(shared).iter().all(|lane| lock(lane).is_empty()) {
            thread::park();
        }
        shared.parked.store(false, Ordering::SeqCst);
    }
}

fn reopen_if_asked(shared: &Shared, target: &Target, output: &mut Output) {
    if shared.reopen.swap(false, Ordering::SeqCst) {
        // Without a new file the old one goes on: better a log under the wrong name than none.
        if let Ok(reopened) = open_output(target) {
            *output = reopened;
        }
    }
}

/// Writes what waits in each lane; true if there was anything.
fn write_lanes(shared: &Shared, target: &Target, output: &mut Output, taken: &mut Vec<u8>) -> bool {
    let mut wrote = false;
    for lane in lanes(shared) {
        taken.clear();
        std::mem::swap(&mut *lock(&lane), taken);
        if taken.is_empty() {
            continue;
        }
        wrote = true;
        // Asked again with the lines in hand: none that came after the order goes to the old file.
        reopen_if_asked(shared, target, output);
        if output.write_all(taken).and_then(|()| output.flush()).is_err() {
            let lines = taken.iter().filter(|&&byte| byte == b'\n').count();
            shared.dropped.fetch_add(lines as u64, Ordering::Relaxed);
        }
    }
    wrote
}

fn lanes(shared: &Shared) -> Vec<Arc<Mutex<Vec<u8>>>> {
    lock(&shared.lanes).clone()
}

fn open_output(target: &Target) -> io::Result<Output> {
    match target {
        Target::File(path) => Ok(Box::new(open_file(path)?)),
        Target::Stdout => Ok(Box::new(io::stdout())),
        Target::Stderr => Ok(Box::new(io::stderr())),
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let opened = OpenOptions::new().append(true).create(true).mode(0o640).open(path);
    opened.map_err(|error| io::Error::new(error.kind(), format!("cannot append to {}: {error}", path.display())))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks guard is whole after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_is_written_before_the_spool_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let spool = Spool::open("test", Target::File(path.clone())).unwrap();
        let (a, b) = (spool.lane(), spool.lane());
        for n in 0..1_000 {
            a.append(format!("a{n}\n").as_bytes());
            b.append(format!("b{n}\n").as_bytes());
        }
        assert_eq!(spool.dropped(), 0);
        drop(spool);
        let written = std::fs::read_to_string(path).unwrap();
        for lane in ["a", "b"] {
            let lines: Vec<_> = written.lines().filter(|line| line.starts_with(lane)).collect();
            assert_eq!(lines, (0..1_000).map(|n| format!("{lane}{n}")).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let error = Spool::open("test", Target::File("/nowhere/to/be/found".into())).unwrap_err();
        assert!(error.to_string().starts_with("cannot append to /nowhere/to/be/found: "), "{error}");
    }

    #[test]
    fn a_full_lane_drops_and_counts() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open("test", Target::File(dir.path().join("log"))).unwrap();
        let lane = spool.lane();
        lane.append(&vec![b'x'; LANE_BYTES + 1]);
        assert_eq!(spool.dropped(), 1);
    }

    #[test]
    fn a_pipe_that_nobody_reads_does_not_keep_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Opened both ways, so that opening it does not wait either.
        let _reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let spool = Spool::open("test", Target::File(path)).unwrap();
        let lane = spool.lane();
        for _ in 0..200 {
            lane.append(&[b'x'; 1_024]);
        }
        drop(spool);
    }

    #[test]
    fn a_rotated_file_is_left_alone_after_reopen() {
        let dir = tempfile::tempdir().unwrap();
        let (path, rotated) = (dir.path().join("log"), dir.path().join("log.1"));
        let spool = Spool::open("test", Target::File(path.clone())).unwrap();
        let lane = spool.lane();
        std::fs::rename(&path, &rotated).unwrap();
        spool.reopen();
        lane.append(b"after\n");
        drop(spool);
        // The flag is read with the line in hand, so that it cannot have gone to the old file.
        assert_eq!(std::fs::read_to_string(rotated).unwrap(), "");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "after\n");
    }
}
