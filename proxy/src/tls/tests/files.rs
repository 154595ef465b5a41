//! Files below the secrets folder: which are taken, which are refused, and what a change does.

use std::os::unix::fs::symlink;

use rcgen::{PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use rustls::version::TLS13;

use super::*;
use crate::tls::Refreshed;

fn refused(settings: &Settings, secrets_dir: Option<&std::path::Path>) -> String {
    Origination::new(settings, secrets_dir).unwrap_err().to_string()
}

#[test]
fn names_lead_nowhere_else() {
    let outside = Secrets::new(&[("ca.pem", &Authority::new("theirs").pem)]);
    let secrets = Secrets::new(&[("ca.pem", &Authority::new("ours").pem)]);
    fs::create_dir(secrets.path("folder")).unwrap();
    symlink(outside.path("ca.pem"), secrets.path("file-link.pem")).unwrap();
    symlink(outside.0.path(), secrets.path("folder-link")).unwrap();
    symlink(secrets.path("ca.pem"), secrets.path("absolute-link.pem")).unwrap();
    symlink("../ca.pem", secrets.path("folder/inner-link.pem")).unwrap();
    let back_in = format!("../{}/ca.pem", secrets.0.path().file_name().unwrap().to_str().unwrap());
    for name in ["file-link.pem", "folder-link/ca.pem", "absolute-link.pem", "../ca.pem", &back_in] {
        let words = refused(&settings(name), Some(secrets.0.path()));
        assert!(words.contains("--secrets-dir"), "{name}: {words}");
    }
    for name in ["ca.pem", "./ca.pem", "folder/../ca.pem", "folder/inner-link.pem"] {
        secrets.origination(&settings(name));
    }
    // Such a name comes from the command line alone.
    Origination::new(&settings(outside.path("ca.pem").to_str().unwrap()), None).unwrap();
}

#[test]
fn what_is_wrong_with_a_file_is_said_and_not_shown() {
    let authority = Authority::new("ours");
    let leaf = authority.leaf(&["me"]);
    let secret = "c2VjcmV0IG9mIHRoZSBmaWxl";
    let damaged = format!("-----BEGIN CERTIFICATE-----\n{secret}*\n-----END CERTIFICATE-----\n");
    let cut = format!("-----BEGIN PRIVATE KEY-----\n{secret}\n");
    let odd = format!("-----BEGIN {secret}\n");
    let no_der = format!("-----BEGIN CERTIFICATE-----\n{secret}\n-----END CERTIFICATE-----\n");
    let no_key = format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n");
    let encrypted = format!("-----BEGIN ENCRYPTED PRIVATE KEY-----\n{secret}\n-----END ENCRYPTED PRIVATE KEY-----\n");
    let old_encrypted = format!(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n{secret}\n-----END RSA PRIVATE KEY-----\n"
    );
    let secrets = Secrets::new(&[
        ("ca.pem", &authority.pem),
        ("me.pem", &leaf.cert),
        ("me.key", &leaf.key),
        ("other.key", &authority.leaf(&["other"]).key),
        ("empty", ""),
        ("text", secret),
        ("damaged", &damaged),
        ("cut", &cut),
        ("odd", &odd),
        ("no-der", &no_der),
        ("no-key", &no_key),
        ("encrypted", &encrypted),
        ("old-encrypted", &old_encrypted),
        ("large", &"#".repeat((4 << 20) + 1)),
    ]);
    fs::create_dir(secrets.path("folder")).unwrap();
    nix::unistd::mkfifo(&secrets.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let dir = Some(secrets.0.path());
    let mut words = String::new();
    let mut note = |settings: &Settings, dir| words.push_str(&format!("{}\n", refused(settings, dir)));
    note(&settings("ca.pem"), None);
    note(&settings("ca.pem"), Some(std::path::Path::new("/nowhere")));
    for ca in [
        "../ca.pem",
        "missing",
        "empty",
        "text",
        "damaged",
        "cut",
        "odd",
        "no-der",
        "me.key",
        "large",
        "folder",
        "pipe",
    ] {
        note(&settings(ca), dir);
    }
    for cert in ["missing", "text", "no-der", "ca.pem"] {
        note(&with_client(settings("ca.pem"), cert, "me.key"), dir);
    }
    for key in ["missing", "text", "cut", "odd", "no-key", "encrypted", "old-encrypted", "me.pem", "other.key"] {
        note(&with_client(settings("ca.pem"), "me.pem", key), dir);
    }
    note(&Settings { cert_file: Some("me.pem".into()), ..settings("ca.pem") }, dir);
    note(&Settings { key_file: Some("me.key".into()), ..settings("ca.pem") }, dir);
    for name in ["", "a b", "fraud.test:443", "*.fraud.test"] {
        note(&Settings { server_name: Some(name.to_owned()), ..settings("ca.pem") }, dir);
    }
    assert!(!words.contains(secret));
    insta::assert_snapshot!(words);
}

#[tokio::test]
async fn keys_of_every_kind() {
    let authority = Authority::new("ours");
    let server = Arc::new(server_config(&authority.leaf(&["fraud.test"]), &[&TLS13], Clients::SignedBy(&authority)));
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let cert = params(&["me"]).signed_by(&key, &authority.issuer).unwrap().pem();
        let secrets = Secrets::new(&[("ca", &authority.pem), ("cert", &cert), ("key", &key.serialize_pem())]);
        connected(&secrets.origination(&with_client(settings("ca"), "cert", "key")), &server).await;
    }
    // From `openssl genrsa -traditional`, `openssl genpkey -algorithm RSA` and `openssl ecparam -name prime256v1 -genkey`.
    for (key, cert) in [
        (include_str!("keys/pkcs1.pem"), include_str!("keys/rsa.crt")),
        (include_str!("keys/pkcs8.pem"), include_str!("keys/rsa.crt")),
        (include_str!("keys/sec1.pem"), include_str!("keys/ec.crt")),
    ] {
        let secrets = Secrets::new(&[("ca", &authority.pem), ("cert", cert), ("key", key)]);
        secrets.origination(&with_client(settings("ca"), "cert", "key"));
    }
}

#[tokio::test]
async fn several_authorities_and_a_chain() {
    let [root, other] = ["root", "other"].map(Authority::new);
    let secrets = Secrets::new(&[("ca.pem", &format!("Other\n{}\nRoot\n{}", other.pem, root.pem))]);
    let origination = secrets.origination(&settings("ca.pem"));
    let mut params_between = params(&[]);
    params_between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params_between.distinguished_name.push(DnType::CommonName, "between");
    let key_between = KeyPair::generate().unwrap();
    let between = params_between.signed_by(&key_between, &root.issuer).unwrap().pem();
    let issuer = Issuer::new(params_between, key_between);
    let key = KeyPair::generate().unwrap();
    let leaf = params(&["fraud.test"]).signed_by(&key, &issuer).unwrap().pem();
    let chain = Leaf { cert: format!("{leaf}{between}"), key: key.serialize_pem() };
    connected(&origination, &Arc::new(server_config(&chain, &[&TLS13], Clients::Any))).await;
    connected(&origination, &Arc::new(server_config(&other.leaf(&["fraud.test"]), &[&TLS13], Clients::Any))).await;
}

/// What a server sees of us.
async fn shown(origination: &Origination, server: &Arc<ServerConfig>) -> Vec<u8> {
    let (_near, far) = connected(origination, server).await;
    certificate_shown(&far)
}

#[tokio::test]
async fn a_secret_that_kubernetes_swaps() {
    let authority = Authority::new("ours");
    let [old, new] = [(); 2].map(|()| authority.leaf(&["me"]));
    let secrets = Secrets::new(&[]);
    let lay = |folder: &str, leaf: &Leaf| {
        fs::create_dir(secrets.path(folder)).unwrap();
        for (name, content) in [("ca.crt", &authority.pem), ("tls.crt", &leaf.cert), ("tls.key", &leaf.key)] {
            fs::write(secrets.path(folder).join(name), content).unwrap();
        }
    };
    lay("..2026_01_01", &old);
    symlink("..2026_01_01", secrets.path("..data")).unwrap();
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        symlink(format!("..data/{name}"), secrets.path(name)).unwrap();
    }
    let origination = secrets.origination(&with_client(settings("ca.crt"), "tls.crt", "tls.key"));
    let server = Arc::new(server_config(&authority.leaf(&["fraud.test"]), &[&TLS13], Clients::SignedBy(&authority)));
    let first = origination.id();
    assert_eq!(shown(&origination, &server).await, der(&old));
    assert_eq!(origination.refresh(), Refreshed::Unchanged);

    lay("..2026_02_02", &new);
    symlink("..2026_02_02", secrets.path("..data_tmp")).unwrap();
    fs::rename(secrets.path("..data_tmp"), secrets.path("..data")).unwrap();
    fs::remove_dir_all(secrets.path("..2026_01_01")).unwrap();
    assert_eq!(origination.refresh(), Refreshed::Reloaded);
    assert_ne!(origination.id(), first);
    assert_eq!(shown(&origination, &server).await, der(&new));
    assert_eq!(origination.refresh(), Refreshed::Unchanged);
}

#[tokio::test]
async fn a_bad_change_keeps_what_there_was_and_is_told_once() {
    let authority = Authority::new("ours");
    let [old, new] = [(); 2].map(|()| authority.leaf(&["me"]));
    let secrets = Secrets::new(&[("ca", &authority.pem), ("cert", &old.cert), ("key", &old.key)]);
    let origination = secrets.origination(&with_client(settings("ca"), "cert", "key"));
    let server = Arc::new(server_config(&authority.leaf(&["fraud.test"]), &[&TLS13], Clients::SignedBy(&authority)));
    let id = origination.id();

    // The certificate comes before its key: for a moment they do not belong together.
    secrets.put("cert", &new.cert);
    assert_eq!(origination.refresh(), Refreshed::Kept);
    assert_eq!(origination.refresh(), Refreshed::Unchanged, "told once");
    assert_eq!((origination.id(), shown(&origination, &server).await), (id, der(&old)));
    secrets.put("key", &new.key);
    assert_eq!(origination.refresh(), Refreshed::Reloaded);
    assert_ne!(origination.id(), id);
    assert_eq!(shown(&origination, &server).await, der(&new));

    let id = origination.id();
    fs::remove_file(secrets.path("key")).unwrap();
    assert_eq!(origination.refresh(), Refreshed::Kept);
    assert_eq!(origination.refresh(), Refreshed::Unchanged);
    symlink("/etc/passwd", secrets.path("key")).unwrap();
    assert_eq!(origination.refresh(), Refreshed::Unchanged, "as unusable as no file");
    secrets.put("key", &new.key);
    assert_eq!(origination.refresh(), Refreshed::Unchanged, "put back as it was");
    assert_eq!(origination.id(), id);
    fs::write(secrets.path("ca"), "overwritten in place").unwrap();
    assert_eq!(origination.refresh(), Refreshed::Kept);
    assert_eq!((origination.id(), shown(&origination, &server).await), (id, der(&new)));
}

#[test]
fn the_same_settings_are_the_same_origination_while_it_is_in_use() {
    let authority = Authority::new("ours");
    let secrets = Secrets::new(&[("a", &authority.pem), ("b", &Authority::new("b").pem), ("c", &authority.pem)]);
    let first = secrets.origination(&settings("a"));
    assert!(Arc::ptr_eq(&first, &secrets.origination(&settings("a"))));
    let named = Settings { server_name: Some("fraud.test".to_owned()), ..settings("a") };
    let ids = [settings("b"), settings("c"), named].map(|settings| secrets.origination(&settings).id());
    assert!(ids.iter().all(|id| *id != first.id()), "another name, file or content is another key");
    let id = first.id();
    drop(first);
    assert_eq!(secrets.origination(&settings("a")).id(), id, "connections made before stay of use");
}
