//! Which calls a route is for.

use plimsoll_policy::{GrpcMatch, HeaderMatch, HostName, HostPattern, Matcher, PathMatch, Request, normal_path};
use proptest::prelude::*;

struct Call<'a> {
    method: &'a str,
    path: &'a str,
    host: &'a str,
    headers: &'a [(&'a str, &'a str)],
}

impl Request for Call<'_> {
    fn method(&self) -> &str {
        self.method
    }

    fn path(&self) -> &str {
        self.path
    }

    fn host(&self) -> &str {
        self.host
    }

    fn port(&self) -> u16 {
        80
    }

    fn has_header(&self, name: &str, value: Option<&str>) -> bool {
        self.headers.iter().any(|(own, text)| *own == name && value.is_none_or(|value| value == *text))
    }
}

const CALL: Call<'static> =
    Call { method: "POST", path: "/v1/charge/7", host: "Fraud.Internal", headers: &[("x-user", "u")] };

#[test]
fn everything_that_is_given_must_hold() {
    let all = Matcher {
        methods: vec!["PUT".to_owned(), "POST".to_owned()],
        path: Some(PathMatch::Prefix("/v1/charge".to_owned())),
        headers: vec![HeaderMatch { name: "x-user".to_owned(), exact: Some("u".to_owned()) }],
        host: Some(HostPattern { name: HostName::Exact("fraud.internal".to_owned()), port: Some(80) }),
        grpc: None,
    };
    assert!(Matcher::default().matches(&CALL));
    assert!(all.matches(&CALL));
    assert!(!all.matches(&Call { method: "GET", ..CALL }));
    assert!(!all.matches(&Call { path: "/v1/charges", ..CALL }));
    assert!(!all.matches(&Call { headers: &[("x-user", "v")], ..CALL }));
    assert!(!all.matches(&Call { headers: &[], ..CALL }));
    assert!(!all.matches(&Call { host: "other", ..CALL }));
    let present =
        Matcher { headers: vec![HeaderMatch { name: "x-user".to_owned(), exact: None }], ..Matcher::default() };
    assert!(
        present.matches(&Call { headers: &[("x-user", "v")], ..CALL })
            && !present.matches(&Call { headers: &[], ..CALL })
    );
}

#[test]
fn a_grpc_call_is_known_by_its_path() {
    let scores = |method: Option<&str>| {
        let grpc = GrpcMatch { service: "shop.v1.Scores".to_owned(), method: method.map(str::to_owned) };
        Matcher { grpc: Some(grpc), ..Matcher::default() }
    };
    let (service, method) = (scores(None), scores(Some("Score")));
    let call = |path| Call { path, ..CALL };
    assert!(service.matches(&call("/shop.v1.Scores/Score")) && service.matches(&call("/shop.v1.Scores/Watch")));
    assert!(method.matches(&call("/shop.v1.Scores/Score")) && !method.matches(&call("/shop.v1.Scores/Watch")));
    for path in ["/shop.v1.Scores", "/shop.v1.scores/Score", "/v1.Scores/Score", "/a/shop.v1.Scores/Score", "/", ""] {
        assert!(!service.matches(&call(path)) && !method.matches(&call(path)), "{path}");
    }
    assert!(!method.matches(&call("/shop.v1.Scores/Score/")) && !method.matches(&call("/shop.v1.Scores/score")));
}

#[test]
fn prefixes_are_whole_segments() {
    let charge = PathMatch::Prefix("/v1/charge".to_owned());
    assert!(["/v1/charge", "/v1/charge/", "/v1/charge/7"].iter().all(|path| charge.matches(path)));
    assert!(!["/v1/charges", "/v1", "/", "", "/V1/charge"].iter().any(|path| charge.matches(path)));
    let folder = PathMatch::Prefix("/v1/".to_owned());
    assert!(folder.matches("/v1/x") && folder.matches("/v1/") && !folder.matches("/v1"));
    assert!(PathMatch::Prefix("/".to_owned()).matches("/anything"));
    let exact = PathMatch::Exact("/v1".to_owned());
    assert!(exact.matches("/v1") && !exact.matches("/v1/"));
}

#[test]
fn paths_have_one_form() {
    for (path, normal) in [
        ("/", "/"),
        ("", "/"),
        ("/a/b", "/a/b"),
        ("/a//b", "/a/b"),
        ("//a", "/a"),
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/../..", "/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a/.", "/a/"),
        ("/a/", "/a/"),
        ("/%61/%7e", "/a/~"),
        ("/a%2Fb", "/a%2Fb"),
        ("/a%2fb", "/a%2Fb"),
        ("/%2e%2e/a", "/a"),
        ("/a/%2E/b", "/a/b"),
        ("/.a/..b/c.", "/.a/..b/c."),
        ("/%", "/%"),
        ("/%4", "/%4"),
        ("/%zz", "/%zz"),
        ("/é", "/é"),
        ("*", "/*"),
    ] {
        assert_eq!(normal_path(path), normal, "{path}");
    }
}

proptest! {
    #[test]
    fn a_normal_path_stays_as_it_is(path in "(/|\\.|a|%2e|%2F|%41|é){0,12}") {
        let normal = normal_path(&path).into_owned();
        prop_assert_eq!(normal_path(&normal), normal.as_str());
        prop_assert!(normal.starts_with('/'));
        prop_assert!(["//", "/../", "/./"].iter().all(|piece| !normal.contains(piece)));
    }
}
