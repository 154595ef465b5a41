//! From settings and files to what a handshake needs.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore};

use super::Offer;
use super::files::{FileError, Root, Stamp};

/// Sessions that can be resumed: up to 8 tickets for each of 64 names, about 1.5 KB each.
const SESSIONS: usize = 512;

/// What policy says about TLS towards one dependency. Files are below `--secrets-dir`; an absolute path is taken as it is,
/// since the model of policy has one only from a file that was named on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The name that is asked for (SNI) and that the certificate must hold, a DNS name or an IP address; without it, the
    /// host that the caller addressed.
    pub server_name: Option<String>,
    /// Certificates of the authorities that are trusted (PEM); without it, those of this system.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and those between it and its authority (PEM).
    pub cert_file: Option<PathBuf>,
    /// Its key (PEM: PKCS#8, PKCS#1 or SEC1, without a passphrase).
    pub key_file: Option<PathBuf>,
}

/// Why settings or their files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// `serverName`
    #[error("tls.serverName: {0:?} is neither a DNS name nor an IP address")]
    ServerName(String),
    /// One of the files.
    #[error("tls.{field}: {}: {error}", path.display())]
    File {
        /// The field that names it.
        field: &'static str,
        /// As it is named there.
        path: PathBuf,
        /// What is wrong with it.
        error: FileError,
    },
    /// `certFile` without `keyFile`, or the other way round.
    #[error("tls.certFile and tls.keyFile belong together: one is missing")]
    HalfIdentity,
    /// `keyFile` is the key of something else.
    #[error(
        "tls.keyFile: {} is not the key of the first certificate in {} (our own comes first, its issuers follow)",
        key.display(), cert.display()
    )]
    KeyMismatch {
        /// `keyFile`
        key: PathBuf,
        /// `certFile`
        cert: PathBuf,
    },
    /// Nobody to trust.
    #[error(
        "this system has no trusted root certificates (SSL_CERT_FILE, SSL_CERT_DIR, /etc/ssl and the like): \
         install ca-certificates, or name the dependency's authority in tls.caFile"
    )]
    NoRoots,
    /// The library refuses what was read.
    #[error("tls: {0}")]
    Unusable(String),
}

/// The files as they were found.
pub(super) type Stamps = [Option<Stamp>; 3];

/// Everything that a handshake needs, made from one state of the files.
pub(super) struct Loaded {
    /// Differs where settings or files differ, for as long as the process lives.
    pub id: u64,
    /// Whether we have a certificate to show.
    pub identified: bool,
    configs: [Arc<ClientConfig>; Offer::ALL.len()],
}

impl Loaded {
    pub fn config(&self, offer: Offer) -> &Arc<ClientConfig> {
        &self.configs[offer as usize]
    }
}

impl From<&plimsoll_policy::Tls> for Settings {
    fn from(tls: &plimsoll_policy::Tls) -> Self {
        let path = |name: &Option<String>| name.as_ref().map(PathBuf::from);
        Self {
            server_name: tls.server_name.clone(),
            ca_file: path(&tls.ca_file),
            cert_file: path(&tls.cert_file),
            key_file: path(&tls.key_file),
        }
    }
}

impl Settings {
    fn files(&self) -> [Option<&Path>; 3] {
        [self.ca_file.as_deref(), self.cert_file.as_deref(), self.key_file.as_deref()]
    }

    /// Whether there is anything that could change.
    pub(super) fn has_files(&self) -> bool {
        self.files().iter().any(Option::is_some)
    }

    /// The name that every certificate must hold, if policy says one.
    pub(super) fn parse_server_name(&self) -> Result<Option<ServerName<'static>>, TlsConfigError> {
        let Some(name) = &self.server_name else { return Ok(None) };
        let parsed = ServerName::try_from(name.clone());
        parsed.map(Some).map_err(|_| TlsConfigError::ServerName(name.clone()))
    }

    /// The state of the files now.
    pub(super) fn stamps(&self, secrets_dir: Option<&Path>) -> Stamps {
        let root = Root(secrets_dir);
        self.files().map(|name| name.map(|name| root.stamp(name)))
    }

    /// Reads the files and makes of them what a handshake needs. The stamps are told in either case.
    pub(super) fn load(&self, secrets_dir: Option<&Path>) -> (Stamps, Result<Loaded, TlsConfigError>) {
        let root = Root(secrets_dir);
        let read = self.files().map(|name| name.map(|name| root.read(name)));
        let stamps = read.each_ref().map(|file| file.as_ref().map(|(stamp, _)| *stamp));
        let contents = read.map(|file| file.map(|(_, content)| content));
        (stamps, self.build(contents, secrets_dir))
    }

    fn build(
        &self,
        contents: [Option<Result<Vec<u8>, FileError>>; 3],
        secrets_dir: Option<&Path>,
    ) -> Result<Loaded, TlsConfigError> {
        let fields = ["caFile", "certFile", "keyFile"];
        let mut checked: [Option<Vec<u8>>; 3] = [None, None, None];
        for (index, content) in contents.into_iter().enumerate() {
            let Some(content) = content else { continue };
            let path = || self.files()[index].expect("only files that are named are read").to_owned();
            checked[index] =
                Some(content.map_err(|error| TlsConfigError::File { field: fields[index], path: path(), error })?);
        }
        let id = self.fingerprint(secrets_dir, &checked);
        let [ca, cert, key] = checked;
        let roots = match (&self.ca_file, ca) {
            (Some(path), Some(pem)) => Arc::new(roots_of(&pem).map_err(|error| file_error("caFile", path, error))?),
            _ => system_roots()?,
        };
        let identity = match ((&self.cert_file, cert), (&self.key_file, key)) {
            ((Some(cert_path), Some(cert)), (Some(key_path), Some(key))) => {
                Some(identity_of((cert_path, &cert), (key_path, &key))?)
            }
            ((None, _), (None, _)) => None,
            _ => return Err(TlsConfigError::HalfIdentity),
        };
        let identified = identity.is_some();
        let configs = configs(roots, identity).map_err(|error| TlsConfigError::Unusable(error.to_string()))?;
        Ok(Loaded { id, identified, configs })
    }

    /// Keyed by chance: it is made of a private key, among others.
    fn fingerprint(&self, secrets_dir: Option<&Path>, contents: &[Option<Vec<u8>>; 3]) -> u64 {
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        KEYS.hash_one((self, secrets_dir, contents))
    }
}

fn file_error(field: &'static str, path: &Path, error: FileError) -> TlsConfigError {
    TlsConfigError::File { field, path: path.to_owned(), error }
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));
    Arc::clone(&PROVIDER)
}

/// One for each offer. They share verifier, identity and session store, as resumption between them demands.
fn configs(
    roots: Arc<RootCertStore>,
    identity: Option<Arc<CertifiedKey>>,
) -> Result<[Arc<ClientConfig>; Offer::ALL.len()], Error> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match identity {
        Some(identity) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity))),
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(Offer::ALL.map(|offer| {
        let mut config = config.clone();
        config.alpn_protocols = offer.names().iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }))
}

/// Read once: it takes milliseconds, and no request waits for it. Not remembered while there are none.
fn system_roots() -> Result<Arc<RootCertStore>, TlsConfigError> {
    static ROOTS: Mutex<Option<Arc<RootCertStore>>> = Mutex::new(None);
    let mut known = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(roots) = &*known {
        return Ok(Arc::clone(roots));
    }
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some of this system's root certificates cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(TlsConfigError::NoRoots);
    }
    Ok(Arc::clone(known.insert(Arc::new(roots))))
}

fn roots_of(pem: &[u8]) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of(pem)? {
        roots.add(certificate).map_err(|_| FileError::Content("a certificate in it cannot be read"))?;
    }
    Ok(roots)
}

fn certificates_of(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        // What the parser found it would quote.
        .map_err(|_| FileError::Content("not valid PEM: it is damaged or cut off"))?;
    if certificates.is_empty() {
        return Err(FileError::Content("no certificate in it (PEM, `-----BEGIN CERTIFICATE-----`)"));
    }
    Ok(certificates)
}

fn key_of(pem: &[u8]) -> Result<PrivateKeyDer<'static>, FileError> {
    let is_encrypted = |marker: &[u8]| pem.windows(marker.len()).any(|window| window == marker);
    match PrivateKeyDer::from_pem_slice(pem) {
        _ if is_encrypted(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || is_encrypted(b"Proc-Type: 4,ENCRYPTED") => {
            Err(FileError::Content("encrypted with a passphrase, which nobody is here to enter"))
        }
        Ok(key) => Ok(key),
        Err(rustls::pki_types::pem::Error::NoItemsFound) => {
            Err(FileError::Content("no private key in it (PEM, `-----BEGIN PRIVATE KEY-----`)"))
        }
        Err(_) => Err(FileError::Content("not valid PEM: it is damaged or cut off")),
    }
}

fn identity_of(
    (cert_path, cert): (&Path, &[u8]),
    (key_path, key): (&Path, &[u8]),
) -> Result<Arc<CertifiedKey>, TlsConfigError> {
    let chain = certificates_of(cert).map_err(|error| file_error("certFile", cert_path, error))?;
    let key = key_of(key).map_err(|error| file_error("keyFile", key_path, error))?;
    let key = provider().key_provider.load_private_key(key).map_err(|_| {
        let kinds = "no key that can be used: RSA of 2048 bits or more, ECDSA P-256 or P-384, or Ed25519";
        file_error("keyFile", key_path, FileError::Content(kinds))
    })?;
    let identity = CertifiedKey::new(chain, key);
    match identity.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(identity)),
        Err(Error::InconsistentKeys(_)) => {
            Err(TlsConfigError::KeyMismatch { key: key_path.to_owned(), cert: cert_path.to_owned() })
        }
        Err(_) => {
            let error = FileError::Content("a certificate in it cannot be read");
            Err(file_error("certFile", cert_path, error))
        }
    }
}
