//! What only a process of its own can show: whom a system trusts, and that files are looked at unasked.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_proxy::tls::{Origination, Settings, TlsConfigError};

fn authority() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem()
}

/// Has the certificates in `bundle` stand for those of the system.
fn trust(bundle: &Path) {
    // SAFETY: the standard library locks the environment, and nothing here reads it past the standard library.
    unsafe {
        std::env::remove_var("SSL_CERT_DIR");
        std::env::set_var("SSL_CERT_FILE", bundle);
    }
}

#[test]
fn a_system_that_trusts_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("bundle.pem");
    fs::write(&bundle, "").unwrap();
    trust(&bundle);
    let error = Origination::new(&Settings::default(), None).unwrap_err();
    assert!(matches!(error, TlsConfigError::NoRoots), "{error}");
    assert!(error.to_string().contains("tls.caFile"), "it says what to do: {error}");

    // Installed meanwhile.
    fs::write(&bundle, authority()).unwrap();
    let first = Origination::new(&Settings::default(), None).unwrap();
    // Read once: who is trusted does not change under a running process.
    fs::remove_file(&bundle).unwrap();
    let named = Settings { server_name: Some("fraud.test".to_owned()), ..Settings::default() };
    assert_ne!(Origination::new(&named, None).unwrap().id(), first.id());
}

#[test]
fn a_changed_file_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { ca_file: Some("ca.pem".into()), ..Settings::default() };
    let put = |content: String| {
        fs::write(dir.path().join("new"), content).unwrap();
        fs::rename(dir.path().join("new"), dir.path().join("ca.pem")).unwrap();
    };
    put(authority());
    let origination = Origination::new(&settings, Some(dir.path())).unwrap();
    for _ in 0..2 {
        let id = origination.id();
        put(authority());
        let given_up = Instant::now() + Duration::from_secs(60);
        while origination.id() == id {
            assert!(Instant::now() < given_up, "nobody looked");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}
