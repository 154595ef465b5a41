//! The admin token: who holds it may change things (semantics.md, Trust).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Shortest token that is accepted from a file: 128 bits as hex. A shorter one could be guessed over loopback.
const SHORTEST: usize = 16;
/// Longest: more than that is not a token but the wrong file.
const LONGEST: u64 = 4_096;
/// The admin port whose token file has the plain name.
const DEFAULT_PORT: u16 = 15000;

/// The secret. It has no `Display`, and `Debug` hides it.
#[derive(Clone)]
pub struct Token(String);

/// Why there is no token.
#[derive(Debug, Error)]
pub enum TokenError {
    /// A file or folder could not be read or written.
    #[error("{what} {}: {error}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file given holds no usable token.
    #[error("the token file {} must hold one line of {SHORTEST} to {LONGEST} visible characters", .0.display())]
    Unusable(PathBuf),
    /// The state directory belongs to somebody else, who could read or replace the token.
    #[error("the state directory {} belongs to another user; name one of your own with --state-dir", .0.display())]
    ForeignDirectory(PathBuf),
}

impl Token {
    /// Reads the token from a file that somebody else manages.
    ///
    /// # Errors
    /// The file cannot be read, or holds no usable token.
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let mut text = String::new();
        let file = File::open(path).map_err(io_error("cannot read the token file", path))?;
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(io_error("cannot read the token file", path))?;
        let token = text.trim_end_matches(['\r', '\n']);
        let usable =
            (SHORTEST..=LONGEST as usize).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
        if usable { Ok(Token(token.to_owned())) } else { Err(TokenError::Unusable(path.to_owned())) }
    }

    /// Makes a new token and leaves it in the state directory for `plimsoll` to find: `admin.token`, or
    /// `admin-PORT.token` when the admin port is not the default one.
    ///
    /// # Errors
    /// The directory or the file cannot be written, or the directory belongs to another user.
    pub fn create(state_dir: &Path, admin_port: u16) -> Result<Token, TokenError> {
        make_private_dir(state_dir)?;
        let path = token_path(state_dir, admin_port);
        let token = Token(random_hex().map_err(io_error("cannot read", Path::new("/dev/urandom")))?);
        token.write(&path).map_err(io_error("cannot write the token file", &path))?;
        Ok(token)
    }

    /// Whether an `Authorization` value carries this token. Takes the same time wherever they differ.
    #[must_use]
    pub fn is_in(&self, authorization: &[u8]) -> bool {
        let Some((scheme, given)) = authorization.split_at_checked(7) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ") && same(given.trim_ascii(), self.0.as_bytes())
    }

    /// Beside the final name and renamed, so that a reader never sees half of it and a link is never followed.
    fn write(&self, path: &Path) -> io::Result<()> {
        let beside = path.with_extension(format!("token.{}", std::process::id()));
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(self.0.as_bytes())?;
        file.write_all(b"\n")?;
        fs::rename(&beside, path)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Where the token of a proxy with this admin port is kept.
#[must_use]
pub fn token_path(state_dir: &Path, admin_port: u16) -> PathBuf {
    if admin_port == DEFAULT_PORT {
        state_dir.join("admin.token")
    } else {
        state_dir.join(format!("admin-{admin_port}.token"))
    }
}

fn make_private_dir(dir: &Path) -> Result<(), TokenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(io_error("cannot make the state directory", dir))?;
    let metadata = fs::metadata(dir).map_err(io_error("cannot read the state directory", dir))?;
    if std::os::unix::fs::MetadataExt::uid(&metadata) != nix::unistd::geteuid().as_raw() {
        return Err(TokenError::ForeignDirectory(dir.to_owned()));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
            .map_err(io_error("cannot make the state directory private", dir))?;
    }
    Ok(())
}

/// 256 bits from the system.
fn random_hex() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Equality whose time depends on the length of what was given, never on where it differs.
fn same(given: &[u8], secret: &[u8]) -> bool {
    let mut difference = u8::from(given.len() != secret.len());
    for (index, byte) in given.iter().enumerate() {
        // `secret` is never empty. Indexing around it keeps the work the same for every length.
        difference |= byte ^ secret[index % secret.len()];
        difference = std::hint::black_box(difference);
    }
    difference == 0
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TokenError {
    let path = path.to_owned();
    move |error| TokenError::Io { what, path, error }
}

#[cfg(test)]
impl Token {
    /// A token that tests know.
    pub(crate) fn known(text: &str) -> Token {
        Token(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_token_is_private_and_its_own() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("state/plimsoll");
        let first = Token::create(&dir, 15000).unwrap();
        let second = Token::create(&dir, 40123).unwrap();
        assert_eq!(
            (mode(&dir), mode(&dir.join("admin.token")), mode(&dir.join("admin-40123.token"))),
            (0o700, 0o600, 0o600)
        );
        assert_ne!(first.0, second.0);
        assert_eq!(Token::read(&dir.join("admin.token")).unwrap().0, first.0);
        assert_eq!(first.0.len(), 64);
    }

    #[test]
    fn an_open_directory_is_closed_and_an_old_token_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("admin.token"), "old").unwrap();
        fs::set_permissions(dir.path().join("admin.token"), fs::Permissions::from_mode(0o644)).unwrap();
        Token::create(dir.path(), 15000).unwrap();
        assert_eq!((mode(dir.path()), mode(&dir.path().join("admin.token"))), (0o700, 0o600));
    }

    #[test]
    fn a_link_in_the_tokens_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("admin.token")).unwrap();
        Token::create(dir.path(), 15000).unwrap();
        assert_eq!(fs::read_to_string(victim).unwrap(), "mine");
    }

    #[test]
    fn only_the_whole_token_opens() {
        let token = Token::known("0123456789abcdef");
        assert!(token.is_in(b"Bearer 0123456789abcdef"));
        assert!(token.is_in(b"bearer  0123456789abcdef "));
        for wrong in [
            &b"Bearer 0123456789abcdee"[..],
            b"Bearer 0123456789abcde",
            b"Bearer 0123456789abcdef0123456789abcdef",
            b"Bearer ",
            b"Bearer",
            b"Basic 0123456789abcdef",
            b"0123456789abcdef",
            b"",
        ] {
            assert!(!token.is_in(wrong), "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn a_file_that_holds_no_token_is_refused_and_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for bad in ["", "short", "two words that are long enough", "line one is long\nline two"] {
            fs::write(&path, bad).unwrap();
            let message = Token::read(&path).unwrap_err().to_string();
            assert!(message.contains("must hold one line") && (bad.is_empty() || !message.contains(bad)), "{message}");
        }
        fs::write(&path, "a-token-of-my-own-making\r\n").unwrap();
        assert_eq!(Token::read(&path).unwrap().0, "a-token-of-my-own-making");
        assert!(!format!("{:?}", Token::read(&path)).contains("own-making"));
    }
}
