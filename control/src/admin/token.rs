//! Where the admin token of a proxy on this machine lies.
//!
//! The proxy writes it at start below its state directory; the name follows the port of its admin address, so that
//! several proxies on one machine do not overwrite each other's.

use std::ffi::OsString;
use std::path::PathBuf;

/// The admin port whose token has the short name.
const DEFAULT_ADMIN_PORT: u16 = 15000;

/// What the place of the state directory depends on.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `$PLIMSOLL_STATE_DIR`.
    pub state_dir: Option<OsString>,
    /// `$XDG_STATE_HOME`.
    pub xdg_state_home: Option<OsString>,
    /// `$HOME`.
    pub home: Option<OsString>,
    /// Running as root.
    pub root: bool,
}

impl Surroundings {
    /// Of this process.
    pub fn of_process() -> Surroundings {
        let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Surroundings {
            state_dir: named("PLIMSOLL_STATE_DIR"),
            xdg_state_home: named("XDG_STATE_HOME"),
            home: named("HOME"),
            root: nix::unistd::geteuid().is_root(),
        }
    }

    /// The state directory that a proxy started in these surroundings uses; `None` without an absolute `$HOME`.
    pub fn state_dir(&self) -> Option<PathBuf> {
        if let Some(dir) = &self.state_dir {
            return Some(PathBuf::from(dir));
        }
        if self.root {
            return Some(PathBuf::from("/var/lib/plimsoll"));
        }
        // The XDG rules: a relative path is as good as none.
        let absolute = |dir: &Option<OsString>| {
            let dir = dir.as_ref().map(PathBuf::from);
            dir.filter(|dir| dir.is_absolute())
        };
        if let Some(dir) = absolute(&self.xdg_state_home) {
            return Some(dir.join("plimsoll"));
        }
        absolute(&self.home).map(|home| home.join(".local/state/plimsoll"))
    }

    /// The token file of the proxy whose admin address has this port.
    pub fn token_file(&self, admin_port: u16) -> Option<PathBuf> {
        let name = if admin_port == DEFAULT_ADMIN_PORT {
            "admin.token".to_owned()
        } else {
            format!("admin-{admin_port}.token")
        };
        Some(self.state_dir()?.join(name))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn anna() -> Surroundings {
        Surroundings { home: Some("/home/anna".into()), ..Surroundings::default() }
    }

    #[test]
    fn the_default_proxy_has_the_short_name() {
        let file = anna().token_file(15000).unwrap();
        assert_eq!(file, Path::new("/home/anna/.local/state/plimsoll/admin.token"));
    }

    #[test]
    fn another_port_has_a_token_of_its_own() {
        let file = anna().token_file(40123).unwrap();
        assert_eq!(file, Path::new("/home/anna/.local/state/plimsoll/admin-40123.token"));
    }

    #[test]
    fn what_is_said_explicitly_wins() {
        let mut here = anna();
        here.xdg_state_home = Some("/xdg".into());
        assert_eq!(here.state_dir().unwrap(), Path::new("/xdg/plimsoll"));
        here.root = true;
        assert_eq!(here.state_dir().unwrap(), Path::new("/var/lib/plimsoll"));
        here.state_dir = Some("/run/p".into());
        assert_eq!(here.state_dir().unwrap(), Path::new("/run/p"));
    }

    #[test]
    fn without_a_home_there_is_no_place() {
        assert_eq!(Surroundings::default().token_file(15000), None);
        let relative = Surroundings { home: Some("anna".into()), ..Surroundings::default() };
        assert_eq!(relative.state_dir(), None);
    }
}
