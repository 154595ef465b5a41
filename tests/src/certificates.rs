//! Certificates of a test's own, made by `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::process::require_program;
use crate::tools::succeed;

/// Who issues certificates, and the folder with all of them: `ca.pem`, and `NAME.pem` and `NAME.key` of each.
pub struct Authority {
    folder: TempDir,
}

const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

impl Authority {
    /// Makes one that nobody trusts yet.
    pub fn new(name: &str) -> Authority {
        let authority = Authority { folder: tempfile::tempdir().expect("a temporary folder can be made") };
        let mut command = openssl(&["req", "-x509", "-days", "30"]);
        command.args(KEY).arg("-subj").arg(format!("/CN={name}"));
        succeed(command.arg("-keyout").arg(authority.file("ca.key")).arg("-out").arg(authority.file("ca.pem")));
        authority
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// One of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Issues a certificate `file` to `subject`, with these names (`DNS:..`, `IP:..`) and this many days left.
    pub fn issue(&self, file: &str, subject: &str, names: &str, days: i32) {
        let (request, extensions) = (self.file("request"), self.file("extensions"));
        let key = self.file(&format!("{file}.key"));
        let mut command = openssl(&["req", "-new", "-subj", &format!("/CN={subject}")]);
        succeed(command.args(KEY).arg("-keyout").arg(&key).arg("-out").arg(&request));
        let text = format!("basicConstraints=CA:FALSE\nsubjectAltName={names}\n");
        std::fs::write(&extensions, text).expect("the folder can be written");
        let mut command = openssl(&["x509", "-req", "-CAcreateserial", "-days", &days.to_string()]);
        command.arg("-CA").arg(self.file("ca.pem")).arg("-CAkey").arg(self.file("ca.key"));
        command.arg("-extfile").arg(&extensions).arg("-in").arg(&request);
        succeed(command.arg("-out").arg(self.file(&format!("{file}.pem"))));
    }
}

fn openssl(args: &[&str]) -> Command {
    let mut command = Command::new(require_program("openssl"));
    command.args(args);
    command
}
