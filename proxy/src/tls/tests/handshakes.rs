//! Each way in which a handshake fails, and what is said of it.

use std::fmt::Write as _;

use plimsoll_resilience::time::Timestamp;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

async fn refused(origination: &Origination, host: &str, server: ServerConfig) -> String {
    let (near, _far) = shake(origination, host, Offer::Http1, &Arc::new(server)).await;
    near.unwrap_err().to_string()
}

#[tokio::test]
async fn a_certificate_that_is_trusted_and_names_the_host() {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    for versions in [&[&TLS12][..], &[&TLS13], BOTH] {
        let server = server_config(&authority.leaf(&["fraud.test", "*.shop.test"]), versions, Clients::Any);
        let server = Arc::new(server);
        for host in ["fraud.test", "fraud.test.", "FRAUD.test", "a.shop.test"] {
            let (near, far) = shake(&origination, host, Offer::Http1, &server).await;
            near.unwrap();
            let asked = far.unwrap().get_ref().1.server_name().unwrap().to_owned();
            assert_eq!(asked, host.trim_end_matches('.').to_lowercase());
        }
    }
}

#[tokio::test]
async fn an_authority_that_is_not_trusted() {
    let (origination, _secrets) = trusting(&Authority::new("ours"));
    let server = server_config(&Authority::new("theirs").leaf(&["fraud.test"]), BOTH, Clients::Any);
    assert_eq!(refused(&origination, "fraud.test", server).await, TlsError::UntrustedIssuer.to_string());
}

#[tokio::test]
async fn a_self_signed_certificate_is_refused_unless_it_is_the_ca_file() {
    let (origination, _secrets) = trusting(&Authority::new("ours"));
    let key = KeyPair::generate().unwrap();
    let cert = params(&["fraud.test"]).self_signed(&key).unwrap().pem();
    let leaf = Leaf { cert: cert.clone(), key: key.serialize_pem() };
    let server = server_config(&leaf, BOTH, Clients::Any);
    assert_eq!(refused(&origination, "fraud.test", server.clone()).await, TlsError::UntrustedIssuer.to_string());

    let secrets = Secrets::new(&[("self.pem", &cert)]);
    let origination = secrets.origination(&settings("self.pem"));
    connected(&origination, &Arc::new(server)).await;
}

#[tokio::test]
async fn a_certificate_for_other_names() {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    let names = ["a.test", "b.test", "c.test", "d.test", "10.0.0.1", "e.test", "f.test"];
    let server = server_config(&authority.leaf(&names), BOTH, Clients::Any);
    insta::assert_snapshot!(
        refused(&origination, "fraud.test", server).await,
        @"the endpoint's certificate is for a.test, b.test, c.test, d.test, 10.0.0.1 and 2 more, not for fraud.test; is tls.serverName right?"
    );
    let server = server_config(&authority.leaf(&[]), BOTH, Clients::Any);
    insta::assert_snapshot!(
        refused(&origination, "fraud.test", server).await,
        @"the endpoint's certificate is for no name at all, not for fraud.test; is tls.serverName right?"
    );
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_now() {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    let expired = authority.leaf_with(&["fraud.test"], |params| params.not_after = rcgen::date_time_ymd(2024, 5, 1));
    insta::assert_snapshot!(
        refused(&origination, "fraud.test", server_config(&expired, BOTH, Clients::Any)).await,
        @"the endpoint's certificate expired on 2024-05-01T00:00:00Z"
    );
    let early = authority.leaf_with(&["fraud.test"], |params| params.not_before = rcgen::date_time_ymd(3000, 5, 1));
    insta::assert_snapshot!(
        refused(&origination, "fraud.test", server_config(&early, BOTH, Clients::Any)).await,
        @"the endpoint's certificate is not valid before 3000-05-01T00:00:00Z; is the clock of this machine right?"
    );
}

#[tokio::test]
async fn an_authority_as_server_and_a_certificate_for_clients_only() {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    let ca = authority.leaf_with(&["fraud.test"], |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    insta::assert_snapshot!(
        refused(&origination, "fraud.test", server_config(&ca, BOTH, Clients::Any)).await,
        @"the endpoint's certificate cannot be accepted: it is that of an authority (CA:TRUE), which may sign others but serve nothing"
    );
    let client = authority.leaf_with(&["fraud.test"], |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    });
    insta::assert_snapshot!(
        refused(&origination, "fraud.test", server_config(&client, BOTH, Clients::Any)).await,
        @"the endpoint's certificate cannot be accepted: certificate does not allow extended key usage for server authentication, allows client authentication"
    );
}

/// What the first read says, or the handshake if it fails.
async fn first_word(origination: &Origination, server: ServerConfig) -> TlsError {
    let (near, _far) = shake(origination, "fraud.test", Offer::Http1, &Arc::new(server)).await;
    match near {
        Err(error) => error,
        Ok((mut transport, _)) => {
            let error = transport.read_u8().await.unwrap_err();
            TlsError::of(&error).unwrap().clone()
        }
    }
}

#[tokio::test]
async fn a_client_certificate_that_is_missing_accepted_or_refused() {
    let authority = Authority::new("ours");
    let clients = Authority::new("clients");
    let (accepted, other) = (clients.leaf(&["me"]), Authority::new("others").leaf(&["me"]));
    let secrets = Secrets::new(&[
        ("ca.pem", &authority.pem),
        ("good.pem", &accepted.cert),
        ("good.key", &accepted.key),
        ("other.pem", &other.cert),
        ("other.key", &other.key),
    ]);
    let ca = settings("ca.pem");
    let [none, good, other] =
        [ca.clone(), with_client(ca.clone(), "good.pem", "good.key"), with_client(ca, "other.pem", "other.key")]
            .map(|settings| secrets.origination(&settings));
    let leaf = authority.leaf(&["fraud.test"]);
    for version in [&TLS12, &TLS13] {
        let server = || server_config(&leaf, &[version], Clients::SignedBy(&clients));
        assert_eq!(first_word(&none, server()).await, TlsError::ClientCertificateRequired, "{version:?}");
        let refused = TlsError::ClientCertificateRefused("unknown_ca");
        assert_eq!(first_word(&other, server()).await, refused, "{version:?}");
        assert!(refused.refuses_us());
        let (_near, far) = connected(&good, &Arc::new(server())).await;
        assert_eq!(far.get_ref().1.peer_certificates().unwrap().len(), 1);
    }
}

/// Sends `answer` once the client has begun, and closes.
async fn scripted(origination: &Origination, answer: &[u8]) -> TlsError {
    let (near, mut far) = pair().await;
    let server = async {
        far.read_u8().await.unwrap();
        far.write_all(answer).await.unwrap();
        // Read to the end, so that closing is no reset.
        far.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = far.read_to_end(&mut rest).await;
    };
    tokio::join!(origination.handshake(near, "fraud.test", Offer::Http2), server).0.unwrap_err()
}

#[tokio::test]
async fn a_server_that_speaks_no_tls() {
    let (origination, _secrets) = trusting(&Authority::new("ours"));
    for plain in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"220 mail.test ESMTP\r\n",
        b"-ERR unknown command\r\n",
        b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80\0\x04\0\x01\0\0\0\x05\0\xff\xff\xff",
    ] {
        assert_eq!(scripted(&origination, plain).await, TlsError::NotTls);
    }
}

#[tokio::test]
async fn a_server_that_leaves_in_the_middle() {
    let (origination, _secrets) = trusting(&Authority::new("ours"));
    assert_eq!(scripted(&origination, b"").await, TlsError::ClosedInHandshake);
    // A record of which only the header came.
    assert_eq!(scripted(&origination, b"\x16\x03\x03\x00\x50").await, TlsError::ClosedInHandshake);

    let (near, far) = pair().await;
    let reset = async {
        far.readable().await.unwrap();
        socket2::SockRef::from(&far).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(far);
    };
    let (made, ()) = tokio::join!(origination.handshake(near, "fraud.test", Offer::Http1), reset);
    assert_eq!(made.unwrap_err(), TlsError::Io(std::io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn alerts_of_the_server() {
    let authority = Authority::new("ours");
    let leaf = authority.leaf(&["me"]);
    let secrets = Secrets::new(&[("ca.pem", &authority.pem), ("me.pem", &leaf.cert), ("me.key", &leaf.key)]);
    let mut words = String::new();
    for settings in [settings("ca.pem"), with_client(settings("ca.pem"), "me.pem", "me.key")] {
        let origination = secrets.origination(&settings);
        writeln!(words, "with {:?}", settings.cert_file).unwrap();
        for alert in [40, 41, 42, 43, 44, 45, 46, 48, 49, 70, 71, 80, 112, 116, 120] {
            let error = scripted(&origination, &[21, 3, 3, 0, 2, 2, alert]).await;
            writeln!(words, "{alert}: {error}").unwrap();
        }
    }
    insta::assert_snapshot!(words);
}

#[tokio::test]
async fn a_server_of_an_old_version() {
    let (origination, _secrets) = trusting(&Authority::new("ours"));
    // A ServerHello of TLS 1.0 with TLS_RSA_WITH_AES_128_CBC_SHA.
    let mut hello = b"\x16\x03\x01\x00\x2a\x02\x00\x00\x26\x03\x01".to_vec();
    hello.extend([7; 32]);
    hello.extend(b"\x00\x00\x2f\x00");
    assert_eq!(scripted(&origination, &hello).await, TlsError::NoCommonVersion);
}

#[tokio::test]
async fn a_server_that_is_an_ip_address() {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    let server = Arc::new(server_config(&authority.leaf(&["127.0.0.1", "::1"]), BOTH, Clients::Any));
    for host in ["127.0.0.1", "::1", "[::1]"] {
        let (near, far) = shake(&origination, host, Offer::Http1, &server).await;
        near.unwrap();
        assert_eq!(far.unwrap().get_ref().1.server_name(), None, "an address is never asked for by name");
    }
    let (near, _far) = shake(&origination, "127.0.0.2", Offer::Http1, &server).await;
    insta::assert_snapshot!(
        near.unwrap_err(),
        @"the endpoint's certificate is for 127.0.0.1, 0::1, not for 127.0.0.2; is tls.serverName right?"
    );
}

#[tokio::test]
async fn the_name_of_the_policy_counts_before_that_of_the_caller() {
    let authority = Authority::new("ours");
    let secrets = Secrets::new(&[("ca.pem", &authority.pem)]);
    let named = |name: &str| Settings { server_name: Some(name.to_owned()), ..settings("ca.pem") };
    let server = Arc::new(server_config(&authority.leaf(&["fraud.test", "127.0.0.9"]), BOTH, Clients::Any));
    for (name, sni) in [("fraud.test", Some("fraud.test")), ("127.0.0.9", None)] {
        let (near, far) = shake(&secrets.origination(&named(name)), "10.1.2.3", Offer::Nothing, &server).await;
        near.unwrap();
        assert_eq!(far.unwrap().get_ref().1.server_name(), sni);
    }
}

#[tokio::test]
async fn a_host_that_is_no_name() {
    let (origination, _secrets) = trusting(&Authority::new("ours"));
    for host in ["", "a b", "[::1", "[127.0.0.1]", "fraud.test:443", "-"] {
        let (near, _far) = pair().await;
        let made = origination.handshake(near, host, Offer::Http1).await;
        assert_eq!(made.unwrap_err(), TlsError::ServerName, "{host}");
    }
}

#[test]
fn words() {
    let all = [
        TlsError::ServerName,
        TlsError::UntrustedIssuer,
        TlsError::ClosedInHandshake,
        TlsError::NotTls,
        TlsError::Truncated,
        TlsError::Io(std::io::ErrorKind::ConnectionReset),
        TlsError::Protocol("received corrupt message".to_owned()),
    ];
    insta::assert_snapshot!(all.map(|error| error.to_string()).join("\n"));
}

#[test]
fn failures_are_told_now_and_then() {
    let (origination, _secrets) = trusting(&Authority::new("ours"));
    let told = [1, 2, 10_000, 10_001, 10_002, 20_000, 20_001]
        .map(|millis| origination.may_tell(Timestamp::from_nanos(millis * 1_000_000)));
    assert_eq!(told, [true, false, false, true, false, false, true]);
}
