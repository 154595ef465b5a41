//! The files that policy names: certificates and keys below `--secrets-dir`.
//!
//! A policy may come from people who may not read every file of this machine, so a name in it never leads out of the
//! folder: not by `..`, not by a link. Links that stay inside are followed; Kubernetes swaps secrets with them
//! (`tls.crt -> ..data/tls.crt`, `..data -> ..2026_01_01`). The kernel holds this for the whole walk
//! (`openat2`, RESOLVE_BENEATH), so nothing can be swapped between a check and its use.
//!
//! Absolute paths are opened as they are: plimsoll-policy refuses them but in files that the command line names.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// More than any certificate bundle, and little enough to read at once.
const MAX_SIZE: u64 = 4 << 20;
/// The kernel gives up a walk that races with a rename, and asks for another try.
const TRIES: usize = 8;
/// A pipe must not hang us, and no child inherits a key.
const FLAGS: OFlag = OFlag::O_RDONLY.union(OFlag::O_CLOEXEC).union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);

/// Why a file cannot be used. Never quotes what is in it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no folder that the name could be below.
    #[error("the proxy was started without --secrets-dir, so there is no folder to look in")]
    NoSecretsDir,
    /// The folder cannot be opened.
    #[error("--secrets-dir cannot be opened: {0}")]
    SecretsDir(io::Error),
    /// `..`, or a link.
    #[error("the name leads out of --secrets-dir, itself or by a link")]
    Outside,
    /// A folder, a pipe, a device.
    #[error("not a file")]
    NotAFile,
    /// More than 4 MiB.
    #[error("larger than 4 MiB")]
    TooLarge,
    /// `openat2` is missing: Linux before 5.6, or a filter that does not know it.
    #[error("the system call openat2 is not available here (Linux 5.6 or newer), so links cannot be held inside")]
    NoOpenat2,
    /// It could not be opened or read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// It could be read and does not hold what it should.
    #[error("{0}")]
    Content(&'static str),
}

/// The folder that names are below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root<'a>(pub Option<&'a Path>);

/// Tells one state of a file from another without reading it. `None`: it could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<[i128; 5]>);

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self(Some([
            metadata.dev().into(),
            metadata.ino().into(),
            metadata.size().into(),
            nanos(metadata.mtime(), metadata.mtime_nsec()),
            nanos(metadata.ctime(), metadata.ctime_nsec()),
        ]))
    }
}

impl Root<'_> {
    /// The file's content. The stamp is of the state before it was read: a change meanwhile is found later.
    pub fn read(&self, name: &Path) -> (Stamp, Result<Vec<u8>, FileError>) {
        let (file, metadata) = match self.open(name) {
            Ok(opened) => opened,
            Err(error) => return (Stamp(None), Err(error)),
        };
        (Stamp::of(&metadata), read_all(file))
    }

    /// The file's state now.
    pub fn stamp(&self, name: &Path) -> Stamp {
        self.open(name).map_or(Stamp(None), |(_, metadata)| Stamp::of(&metadata))
    }

    fn open(&self, name: &Path) -> Result<(File, Metadata), FileError> {
        let file = if name.is_absolute() {
            File::options().read(true).custom_flags(FLAGS.bits()).open(name).map_err(FileError::Unreadable)?
        } else {
            open_beneath(self.0.ok_or(FileError::NoSecretsDir)?, name)?
        };
        let metadata = file.metadata().map_err(FileError::Unreadable)?;
        if metadata.is_file() { Ok((file, metadata)) } else { Err(FileError::NotAFile) }
    }
}

fn open_beneath(dir: &Path, name: &Path) -> Result<File, FileError> {
    // Opened each time: the folder itself may be replaced.
    let dir = File::options()
        .read(true)
        .custom_flags((OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).bits())
        .open(dir)
        .map_err(FileError::SecretsDir)?;
    let how = OpenHow::new().flags(FLAGS).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let mut opened = Err(Errno::EAGAIN);
    for _ in 0..TRIES {
        opened = openat2(&dir, name, how);
        if !matches!(opened, Err(Errno::EAGAIN | Errno::EINTR)) {
            break;
        }
    }
    opened.map(File::from).map_err(|errno| match errno {
        Errno::EXDEV => FileError::Outside,
        // Container runtimes answer what their filter does not know with EPERM; a file's own permissions give EACCES.
        Errno::ENOSYS | Errno::EPERM => FileError::NoOpenat2,
        errno => FileError::Unreadable(errno.into()),
    })
}

fn read_all(file: File) -> Result<Vec<u8>, FileError> {
    let mut content = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut content).map_err(FileError::Unreadable)?;
    if content.len() as u64 > MAX_SIZE { Err(FileError::TooLarge) } else { Ok(content) }
}
