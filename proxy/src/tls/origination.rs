//! TLS towards one dependency.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use plimsoll_resilience::time::Timestamp;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::config::{Loaded, Settings, Stamps, TlsConfigError};
use super::error::TlsError;
use super::session::{RECORD, Session};
use super::{Negotiated, Offer, watch};
use crate::transport::Transport;

/// Makes TLS connections to one dependency; shared by all workers.
pub struct Origination {
    settings: Settings,
    secrets_dir: Option<PathBuf>,
    server_name: Option<ServerName<'static>>,
    loaded: ArcSwap<Loaded>,
    /// The files as they were when they were last read, to good or bad effect.
    seen: Mutex<Stamps>,
    /// When a failed handshake was last told, in nanoseconds; 0: never.
    told: AtomicU64,
}

/// How long failures of one dependency's handshakes are not told again.
const QUIET: Duration = Duration::from_secs(10);

/// What a look at the files has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// No file is another than at the last look.
    Unchanged,
    /// What they say is in force.
    Reloaded,
    /// They changed and cannot be used: what was read before stays in force.
    Kept,
}

impl Origination {
    /// Reads the files and keeps an eye on them from then on. While there is one for these settings it is that one again,
    /// with its sessions. Reads files: not for the data path.
    ///
    /// # Errors
    /// [`TlsConfigError`] when settings or files cannot be used.
    pub fn new(settings: &Settings, secrets_dir: Option<&Path>) -> Result<Arc<Self>, TlsConfigError> {
        if let Some(known) =
            watch::find(|each| each.settings == *settings && each.secrets_dir.as_deref() == secrets_dir)
        {
            known.refresh();
            return Ok(known);
        }
        let server_name = settings.parse_server_name()?;
        let (seen, loaded) = settings.load(secrets_dir);
        let origination = Arc::new(Self {
            settings: settings.clone(),
            secrets_dir: secrets_dir.map(Path::to_owned),
            server_name,
            loaded: ArcSwap::from_pointee(loaded?),
            seen: Mutex::new(seen),
            told: AtomicU64::new(0),
        });
        watch::add(&origination);
        Ok(origination)
    }

    /// Part of the pool's key: another number means that connections made before are not for new calls. Take it
    /// before the handshake: one that the files overtake is then under a number that nobody asks for again.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.loaded.load().id
    }

    /// Whether the settings say which name the server has to prove, whatever the caller addressed.
    #[must_use]
    pub fn names_server(&self) -> bool {
        self.server_name.is_some()
    }

    /// The name that the server has to prove, as policy writes it.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.settings.server_name.as_deref()
    }

    /// Whether we have a certificate to show.
    #[must_use]
    pub fn is_identified(&self) -> bool {
        self.loaded.load().identified
    }

    /// Looks whether the files have changed, and reads them if so. Done every few seconds by a thread of its own.
    pub fn refresh(&self) -> Refreshed {
        if !self.settings.has_files() {
            return Refreshed::Unchanged;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets_dir = self.secrets_dir.as_deref();
        if *seen == self.settings.stamps(secrets_dir) {
            return Refreshed::Unchanged;
        }
        let (stamps, loaded) = self.settings.load(secrets_dir);
        *seen = stamps;
        match loaded {
            // Touched, or put back.
            Ok(loaded) if loaded.id == self.id() => Refreshed::Unchanged,
            Ok(loaded) => {
                tracing::info!(?self, "TLS files have changed: new connections are made with them");
                self.loaded.store(Arc::new(loaded));
                Refreshed::Reloaded
            }
            Err(error) => {
                tracing::warn!(?self, %error, "TLS files have changed and cannot be used: the last good ones stay in force");
                Refreshed::Kept
            }
        }
    }

    /// Whether a failure is to be told to people now: the first, and then one every ten seconds.
    pub fn may_tell(&self, now: Timestamp) -> bool {
        let told = self.told.load(Ordering::Relaxed);
        let is_due = told == 0 || now.saturating_since(Timestamp::from_nanos(told)) >= QUIET;
        let now = now.as_nanos().max(1);
        is_due && self.told.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Makes the session on a connection that was made. Cancelling it closes the connection. It has no clock of its own:
    /// the connect timeout covers it.
    ///
    /// `host` is the host that the caller addressed, without its port; it counts where `serverName` is absent.
    ///
    /// With TLS 1.3 the server looks at our certificate after this has succeeded: whether it refuses comes out with the
    /// first read, as an error that holds a [`TlsError`].
    ///
    /// # Errors
    /// [`TlsError`] says in words what is wrong.
    pub async fn handshake(
        &self,
        stream: TcpStream,
        host: &str,
        offer: Offer,
    ) -> Result<(Transport, Negotiated), TlsError> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => name_of(host)?,
        };
        let loaded = self.loaded.load_full();
        let connector = TlsConnector::from(Arc::clone(loaded.config(offer)));
        let made = connector.connect_with(name, stream, |session| session.set_buffer_limit(Some(RECORD))).await;
        let stream = made.map_err(|error| TlsError::of_handshake(&error, offer, loaded.identified))?;
        let negotiated = match (stream.get_ref().1.alpn_protocol(), offer) {
            (Some(b"h2"), _) => Negotiated::Http2,
            // HTTP/2 needs a server that has agreed to it (RFC 9113 3.2); one that knows no ALPN speaks HTTP/1.1.
            (None, Offer::Http2) => return Err(TlsError::NoCommonProtocol(offer)),
            (_, Offer::Nothing) => Negotiated::Nothing,
            _ => Negotiated::Http1,
        };
        Ok((Transport::Tls(Box::new(Session::new(stream, loaded.identified))), negotiated))
    }
}

/// For the log: file names, no content.
impl fmt::Debug for Origination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origination")
            .field("server_name", &self.settings.server_name)
            .field("ca_file", &self.settings.ca_file)
            .field("cert_file", &self.settings.cert_file)
            .field("key_file", &self.settings.key_file)
            .finish()
    }
}

/// `example.com`, `example.com.`, `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]`.
fn name_of(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if let Some(v6) = bracketed {
        let address: Ipv6Addr = v6.parse().map_err(|_| TlsError::ServerName)?;
        return Ok(ServerName::from(IpAddr::from(address)));
    }
    ServerName::try_from(host).map(|name| name.to_owned()).map_err(|_| TlsError::ServerName)
}
