//! What is offered, what is chosen.

use std::fmt::Write as _;

use super::*;

#[tokio::test]
async fn every_offer_meets_every_server() {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    let leaf = authority.leaf(&["fraud.test"]);
    let servers: [&[&str]; 5] = [&[], &["http/1.1"], &["h2"], &["h2", "http/1.1"], &["http/1.1", "h2"]];
    let mut table = String::new();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for protocols in servers {
            let mut server = server_config(&leaf, &[version], Clients::Any);
            server.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
            let server = Arc::new(server);
            for offer in Offer::ALL {
                let (near, _far) = shake(&origination, "fraud.test", offer, &server).await;
                let result = near.map(|(_, negotiated)| negotiated);
                writeln!(table, "{:?} {protocols:?} {offer:?}: {result:?}", version.version).unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn a_server_that_chooses_what_nobody_offered() {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    let mut server = server_config(&authority.leaf(&["fraud.test"]), &[&rustls::version::TLS12], Clients::Any);
    server.alpn_protocols = vec![b"spdy/3".to_vec()];
    let (near, _far) = shake(&origination, "fraud.test", Offer::Http2OrHttp1, &Arc::new(server)).await;
    assert_eq!(near.unwrap_err(), TlsError::NoCommonProtocol(Offer::Http2OrHttp1));
}
