//! The admin token: who holds it may change things (semantics.md, Trust).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Shortest token that is accepted from a file: 128 bits as hex. A shorter one could be guessed over loopback.
const SHORTEST: usize = 16;
/// Longest: more than that is not a token but the wrong file.
const LONGEST: u64 = 4_096;
/// The admin port whose token file has the plain name.
const DEFAULT_PORT: u16 = 15000;

/// The secret. It has no `Display`, and `Debug` hides it.
#[derive(Clone)]
pub struct Token(Arc<Secret>);

struct Secret {
    text: String,
    /// The file that we made for it, which goes when the last user of the token does: with a port of its own at each
    /// start there would be another one each time.
    file: Option<PathBuf>,
}

impl Drop for Secret {
    fn drop(&mut self) {
        // Whoever has taken the port since has written a token of its own there.
        if let Some(path) = &self.file
            && fs::read_to_string(path).is_ok_and(|text| text.trim_end() == self.text)
        {
            let _ = fs::remove_file(path);
        }
    }
}

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
    /// The state directory belongs to somebody else, or others may write to it: they could replace the token.
    #[error("the state directory {} can be written by other users; name one of your own with --state-dir, a new one below it for example", .0.display())]
    SharedDirectory(PathBuf),
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
        if usable { Ok(Token::new(token.to_owned(), None)) } else { Err(TokenError::Unusable(path.to_owned())) }
    }

    /// Makes a new token and leaves it in the state directory for `plimsoll` to find: `admin.token`, or
    /// `admin-PORT.token` when the admin port is not the default one.
    ///
    /// # Errors
    /// The directory or the file cannot be written, or other users may write to the directory.
    pub fn create(state_dir: &Path, admin_port: u16) -> Result<Token, TokenError> {
        make_private_dir(state_dir)?;
        let path = token_path(state_dir, admin_port);
        let text = random_hex().map_err(io_error("cannot read", Path::new("/dev/urandom")))?;
        write_token(&text, &path).map_err(io_error("cannot write the token file", &path))?;
        Ok(Token::new(text, Some(path)))
    }

    /// Whether an `Authorization` value carries this token. Takes the same time wherever they differ.
    #[must_use]
    pub fn is_in(&self, authorization: &[u8]) -> bool {
        let Some((scheme, given)) = authorization.split_at_checked(7) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ") && same(given.trim_ascii(), self.0.text.as_bytes())
    }

    fn new(text: String, file: Option<PathBuf>) -> Token {
        Token(Arc::new(Secret { text, file }))
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

/// Made private when it is not there. One that is there keeps its mode, since it may be more than ours; what is in it
/// is private by itself.
fn make_private_dir(dir: &Path) -> Result<(), TokenError> {
    let make = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    make.map_err(io_error("cannot make the state directory", dir))?;
    let metadata = fs::metadata(dir).map_err(io_error("cannot read the state directory", dir))?;
    let is_ours = metadata.uid() == nix::unistd::geteuid().as_raw();
    if is_ours && metadata.mode() & 0o022 == 0 { Ok(()) } else { Err(TokenError::SharedDirectory(dir.to_owned())) }
}

/// Beside the final name and renamed, so that a reader never sees half of it and a link is never followed.
fn write_token(text: &str, path: &Path) -> io::Result<()> {
    let beside = path.with_extension(format!("token.{}", std::process::id()));
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(format!("{text}\n").as_bytes())?;
    fs::rename(&beside, path)
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
        Token::new(text.to_owned(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_token_is_private_and_its_own() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("state/plimsoll");
        let first = Token::create(&dir, 15000).unwrap();
        let second = Token::create(&dir, 40123).unwrap();
        let (plain, with_port) = (dir.join("admin.token"), dir.join("admin-40123.token"));
        assert_eq!((mode(&dir), mode(&plain), mode(&with_port)), (0o700, 0o600, 0o600));
        assert_ne!(first.0.text, second.0.text);
        assert_eq!(Token::read(&plain).unwrap().0.text, first.0.text);
        assert_eq!(first.0.text.len(), 64);
    }

    #[test]
    fn an_old_token_is_replaced_and_its_mode_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.token");
        fs::write(&path, "old").unwrap();
        set_mode(&path, 0o644);
        let _token = Token::create(dir.path(), 15000).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        for shared in [0o777, 0o770, 0o1777] {
            set_mode(dir.path(), shared);
            assert!(matches!(Token::create(dir.path(), 15000), Err(TokenError::SharedDirectory(_))));
            assert_eq!((mode(dir.path()), fs::read_dir(dir.path()).unwrap().count()), (shared & 0o777, 0));
        }
        set_mode(dir.path(), 0o755);
        let _token = Token::create(dir.path(), 15000).unwrap();
        assert_eq!(mode(dir.path()), 0o755);
    }

    #[test]
    fn the_file_goes_with_the_token_unless_it_is_another_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.token");
        let first = Token::create(dir.path(), 15000).unwrap();
        let second = Token::create(dir.path(), 15000).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second.clone());
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
        fs::write(&path, "a-token-of-my-own-making").unwrap();
        drop(Token::read(&path).unwrap());
        assert!(path.exists(), "a file that somebody else manages is not ours to remove");
    }

    #[test]
    fn a_link_in_the_tokens_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("admin.token")).unwrap();
        let _token = Token::create(dir.path(), 15000).unwrap();
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
        assert_eq!(Token::read(&path).unwrap().0.text, "a-token-of-my-own-making");
        assert!(!format!("{:?}", Token::read(&path)).contains("own-making"));
    }
}
