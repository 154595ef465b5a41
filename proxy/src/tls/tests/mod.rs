//! Real handshakes with a rustls server on a real socket; certificates are made on the spot.

mod alpn;
mod files;
mod handshakes;
mod sessions;
mod transfers;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Negotiated, Offer, Origination, Settings, TlsError};
use crate::transport::Transport;

/// An authority of our own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, PEM.
struct Leaf {
    cert: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn leaf(&self, names: &[&str]) -> Leaf {
        self.leaf_with(names, |_| {})
    }

    fn leaf_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = params(names);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Leaf { cert: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// Which client certificates a server wants.
#[derive(Clone, Copy)]
enum Clients<'a> {
    Any,
    SignedBy(&'a Authority),
}

fn server_config(leaf: &Leaf, versions: &[&'static SupportedProtocolVersion], clients: Clients<'_>) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions).unwrap();
    let builder = match clients {
        Clients::Any => builder.with_no_client_auth(),
        Clients::SignedBy(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = CertificateDer::pem_slice_iter(leaf.cert.as_bytes()).map(Result::unwrap).collect();
    builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap()).unwrap()
}

/// A secrets folder.
struct Secrets(TempDir);

impl Secrets {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = Self(TempDir::new().unwrap());
        for (name, content) in files {
            dir.put(name, content);
        }
        dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Written beside its name and renamed, so that it is another file.
    fn put(&self, name: &str, content: &str) {
        fs::write(self.path("new"), content).unwrap();
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }

    fn origination(&self, settings: &Settings) -> Arc<Origination> {
        Origination::new(settings, Some(self.0.path())).unwrap()
    }
}

fn settings(ca_file: &str) -> Settings {
    Settings { ca_file: Some(ca_file.into()), ..Settings::default() }
}

fn with_client(settings: Settings, cert: &str, key: &str) -> Settings {
    Settings { cert_file: Some(cert.into()), key_file: Some(key.into()), ..settings }
}

/// An origination that trusts `authority`, and the folder it reads.
fn trusting(authority: &Authority) -> (Arc<Origination>, Secrets) {
    let secrets = Secrets::new(&[("ca.pem", &authority.pem)]);
    (secrets.origination(&settings("ca.pem")), secrets)
}

/// A connection, before TLS.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, server) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (client.unwrap(), server.unwrap().0)
}

type Made = Result<(Transport, Negotiated), TlsError>;

/// A handshake of both sides.
async fn shake(
    origination: &Origination,
    host: &str,
    offer: Offer,
    server: &Arc<ServerConfig>,
) -> (Made, std::io::Result<TlsStream<TcpStream>>) {
    let (near, far) = pair().await;
    let acceptor = TlsAcceptor::from(Arc::clone(server));
    tokio::join!(origination.handshake(near, host, offer), acceptor.accept(far))
}

/// One that succeeds.
async fn connected(origination: &Origination, server: &Arc<ServerConfig>) -> (Transport, TlsStream<TcpStream>) {
    let (near, far) = shake(origination, "fraud.test", Offer::Http1, server).await;
    (near.unwrap().0, far.unwrap())
}

/// The certificate that a server was shown.
fn certificate_shown(far: &TlsStream<TcpStream>) -> Vec<u8> {
    far.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

fn der(leaf: &Leaf) -> Vec<u8> {
    CertificateDer::from_pem_slice(leaf.cert.as_bytes()).unwrap().to_vec()
}
