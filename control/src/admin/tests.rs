use super::*;

fn address(text: &str) -> Result<String, String> {
    text.parse::<ProxyAddress>().map(|address| address.to_string())
}

#[test]
fn an_address_may_be_just_a_port() {
    for text in ["15100", ":15100", "127.0.0.1:15100"] {
        assert_eq!(address(text).unwrap(), "127.0.0.1:15100");
    }
    assert_eq!(address("localhost:15000").unwrap(), "localhost:15000");
    assert_eq!(address("[::1]:15000").unwrap(), "[::1]:15000");
}

#[test]
fn an_address_that_the_proxy_would_refuse_is_refused_here() {
    assert!(address("127.0.0.1").unwrap_err().contains("has no port"));
    assert!(address("127.0.0.1:x").unwrap_err().contains("has no port"));
    assert!(address("payments.shop:15000").unwrap_err().contains("not an IP address or localhost"));
}

#[test]
fn what_a_query_or_header_cannot_carry_does_not_get_there() {
    assert_eq!(percent_encoded("7f3a&limit=9 \n"), "7f3a%26limit%3D9%20%0A");
    assert_eq!(header_text("pölicies/a b.yaml\r\nx: y"), "p?licies/a b.yaml??x: y");
}
