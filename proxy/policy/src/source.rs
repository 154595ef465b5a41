//! Where policy text comes from: a file, a folder read in name order, or a request body.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest text that is read as policy, in bytes.
pub const MAX_SOURCE_BYTES: usize = 1024 * 1024;

/// One text to parse, with the name that diagnostics call it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Shown before the line number in every message; usually the path as the user wrote it.
    pub name: String,
    /// The YAML, any number of documents.
    pub text: String,
    /// Who answers for it.
    pub provenance: Provenance,
}

/// Who answers for a policy. Whoever starts the process can read what it can; somebody who may push policy to it must
/// not be able to point it at any file of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Provenance {
    /// Handed over by others: pushed, or from a control plane.
    #[default]
    Handed,
    /// A file that the command line names, by itself or by its folder.
    CommandLine,
}

impl Source {
    /// A source from text already in memory, handed over by others.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), provenance: Provenance::Handed }
    }
}

/// A policy file could not be read; nothing is said about its content.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file or folder cannot be opened or read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// The path as it was given.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Longer than [`MAX_SOURCE_BYTES`].
    #[error("{path} is larger than 1 MiB; split it: a folder is read in name order")]
    TooLarge {
        /// The path as it was given.
        path: PathBuf,
    },
    /// Not text.
    #[error("{path} is not UTF-8 text")]
    NotUtf8 {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A folder without a single policy file: most likely the wrong folder.
    #[error("{path} has no .yaml or .yml file in it")]
    EmptyFolder {
        /// The path as it was given.
        path: PathBuf,
    },
}

/// Reads files and folders that the command line names into sources. A folder gives its `.yaml` and `.yml` files in name order, not those of
/// folders below it, and not hidden ones (Kubernetes mounts ConfigMaps with such names beside the real files).
///
/// # Errors
/// The first file that cannot be read.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Source>, LoadError> {
    let mut sources = Vec::new();
    for path in paths {
        if path.is_dir() {
            for file in files_of(path)? {
                sources.push(load_file(&file)?);
            }
        } else {
            sources.push(load_file(path)?);
        }
    }
    Ok(sources)
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let io_error = |error| LoadError::Io { path: folder.to_path_buf(), error };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io_error)? {
        let path = entry.map_err(io_error)?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if yaml && !hidden && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(LoadError::EmptyFolder { path: folder.to_path_buf() });
    }
    files.sort();
    Ok(files)
}

fn load_file(path: &Path) -> Result<Source, LoadError> {
    let io_error = |error| LoadError::Io { path: path.to_path_buf(), error };
    let limit = u64::try_from(MAX_SOURCE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(io_error)?;
    if bytes.len() > MAX_SOURCE_BYTES {
        return Err(LoadError::TooLarge { path: path.to_path_buf() });
    }
    let text = String::from_utf8(bytes).map_err(|_| LoadError::NotUtf8 { path: path.to_path_buf() })?;
    Ok(Source { name: path.display().to_string(), text, provenance: Provenance::CommandLine })
}
