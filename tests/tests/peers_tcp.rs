//! Protocols that the proxy does not know pass through it as bytes: databases and mail, redirected without any policy
//! and at a `listen` address, over both families.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use plimsoll_tests::namespace::as_root;
use plimsoll_tests::peers::{Server, Stage, direct, unprivileged};
use plimsoll_tests::process::{Process, find_program, require_program};
use plimsoll_tests::proxy::{Proxy, Setup};
use plimsoll_tests::tools::script_command;
use plimsoll_tests::{PATIENCE, eventually};

/// A server on another host, and all the ways there.
struct Reached {
    stage: Stage,
    proxy: Option<Proxy>,
    /// The server's own address, redirected without a policy, over both families; a port where it is declared to be
    /// TCP; and one where that is found out.
    ways: Vec<SocketAddr>,
}

impl Reached {
    fn new(stage: Stage, server: &Server, further: &str) -> Reached {
        let listen = ["127.0.0.1:9101", "127.0.0.1:9102"];
        let policy = |name: &str, listen: &str, spec: &str| {
            format!(
                "---\napiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
                 spec:\n  target:\n    listen: {listen}\n    endpoints: {{static: [\"{}\"]}}\n{spec}\n",
                server.address
            )
        };
        let declared = policy("declared", listen[0], "    protocol: TCP\n  circuitBreaker: {}");
        let found_out = policy("found-out", listen[1], "  circuitBreaker: {}");
        let proxy = stage.proxy(Setup::new().policy(&format!("{declared}{found_out}{further}")));
        let mut ways = vec![server.address];
        if !direct() {
            ways.extend(listen.map(|address| address.parse::<SocketAddr>().expect("an address")));
        }
        Reached { stage, proxy, ways }
    }

    /// No breaker of the proxy has opened, and it met no fault of its own.
    fn assert_sound(&self) {
        let Some(proxy) = &self.proxy else { return };
        self.stage.among_clients(|| {
            proxy.admin.assert_no_bugs();
            for name in ["declared", "found-out"] {
                assert_eq!(proxy.admin.circuit(name), "Closed");
            }
        });
    }
}

/// A folder that another user may be given.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

fn run(command: &mut Command) {
    plimsoll_tests::tools::succeed(command);
}

/// PostgreSQL's programs are kept beside each other, by version and off the path.
fn postgres_program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.pop().or_else(|| find_program(name)).unwrap_or_else(|| panic!("{name} is not installed: run `make setup`"))
}

/// A PostgreSQL that offers TLS, as installed ones do.
fn postgres(stage: &Stage, folder: &Path) -> Server {
    let data = folder.join("data");
    let mut initdb = Command::new(postgres_program("initdb"));
    initdb.args(["-U", "test", "--auth=trust", "--no-sync", "-D"]).arg(&data).env("LC_ALL", "C");
    run(unprivileged(&mut initdb, folder));
    let allow = "host all all all trust\n";
    std::fs::write(data.join("pg_hba.conf"), allow).expect("the data folder can be written");
    let mut certificate = Command::new(require_program("openssl"));
    certificate.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    certificate.args(["-subj", "/CN=postgres", "-keyout"]).arg(data.join("server.key"));
    run(unprivileged(certificate.arg("-out").arg(data.join("server.crt")), folder));
    let address = stage.reserve();
    let mut server = Command::new(postgres_program("postgres"));
    server.arg("-D").arg(&data).arg("-k").arg(folder).args(["-c", "fsync=off", "-c", "ssl=on"]);
    server.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
    stage.serve_at(address, unprivileged(&mut server, folder))
}

fn psql(address: SocketAddr, ssl: &str) -> Command {
    let mut command = Command::new(postgres_program("psql"));
    let place = format!("host={} port={} user=test dbname=postgres sslmode={ssl}", address.ip(), address.port());
    command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", &place]);
    command
}

#[test]
fn postgresql() {
    as_root(|| {
        let (stage, folder) = (Stage::redirected(), folder());
        let server = postgres(&stage, folder.path());
        let reached = Reached::new(stage, &server, "");
        let rows = folder.path().join("rows");
        let lines: String = (0..100_000).map(|number| format!("{number}\tvalue {number}\n")).collect();
        std::fs::write(&rows, &lines).unwrap();
        for (way, address) in reached.ways.iter().enumerate() {
            let succeed = |command: &mut Command| reached.stage.succeed(command);
            // The client asks for TLS first: it is given it, gets none, or does not ask.
            for ssl in ["prefer", "require", "disable"] {
                let said = succeed(psql(*address, ssl).args([
                    "-c",
                    "select 6 * 7",
                    "-c",
                    "select ssl from pg_stat_ssl where pid = pg_backend_pid()",
                ]));
                assert_eq!(
                    said.split_whitespace().collect::<Vec<_>>(),
                    ["42", if ssl == "disable" { "f" } else { "t" }]
                );
            }
            for ssl in ["require", "disable"] {
                let large = folder.path().join("large");
                succeed(
                    psql(*address, ssl)
                        .arg("-o")
                        .arg(&large)
                        .args(["-c", "select repeat('x', 1000) from generate_series(1, 20000)"]),
                );
                assert_eq!(std::fs::metadata(&large).unwrap().len(), 1001 * 20_000);
                let (table, back) = (format!("rows_{ssl}_{way}"), folder.path().join("back"));
                succeed(psql(*address, ssl).args([
                    "-c",
                    &format!("create table {table} (number int, value text)"),
                    "-c",
                    &format!("\\copy {table} from {}", rows.display()),
                    "-c",
                    &format!("\\copy (select * from {table} order by number) to {}", back.display()),
                ]));
                assert_eq!(std::fs::read_to_string(&back).unwrap(), lines);
            }
            // Cancelled from the keyboard: by a second connection that carries one message and is closed.
            let sleeper = format!("select pg_sleep(100), {way}");
            let mut sleeping =
                reached.stage.among_clients(|| Process::start(psql(*address, "disable").args(["-c", &sleeper])));
            let running =
                format!("select count(*) from pg_stat_activity where query = '{sleeper}' and state = 'active'");
            eventually("the query runs", || succeed(psql(*address, "disable").args(["-c", &running])).trim() == "1");
            sleeping.signal(Signal::SIGINT);
            assert!(!sleeping.wait(PATIENCE).success());
            assert!(sleeping.output().contains("canceling statement due to user request"), "{}", sleeping.output());
        }
        let mut bench = Command::new(postgres_program("pgbench"));
        bench.args(["-h", &reached.ways[0].ip().to_string(), "-p", &reached.ways[0].port().to_string(), "-U", "test"]);
        let script = folder.path().join("script");
        std::fs::write(&script, "select 1;\n").unwrap();
        let said = reached.stage.succeed(bench.args(["-n", "-C", "-c8", "-t25", "-f"]).arg(&script).arg("postgres"));
        assert!(said.contains("number of failed transactions: 0"), "{said}");
        reached.assert_sound();
    });
}

#[test]
fn mariadb() {
    as_root(|| {
        let (stage, folder) = (Stage::redirected(), folder());
        let data = folder.path().join("data");
        let mut install = Command::new(require_program("mariadb-install-db"));
        install.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
        run(unprivileged(install.arg(format!("--datadir={}", data.display())), folder.path()));
        let address = stage.reserve();
        let mut server = Command::new(require_program("mariadbd"));
        server.args([
            "--no-defaults",
            "--skip-grant-tables",
            "--skip-name-resolve",
            "--innodb-flush-log-at-trx-commit=0",
        ]);
        server.arg(format!("--datadir={}", data.display())).arg(format!("--socket={}/socket", folder.path().display()));
        server.arg(format!("--bind-address={}", address.ip())).arg(format!("--port={}", address.port()));
        let server = stage.serve_at(address, unprivileged(&mut server, folder.path()));
        let reached = Reached::new(stage, &server, "");
        let lines: String = (0..50_000).map(|number| format!("{number}\tvalue {number}\n")).collect();
        let rows = folder.path().join("rows");
        std::fs::write(&rows, &lines).unwrap();
        for (way, address) in reached.ways.iter().enumerate() {
            let ask = |sql: &str| {
                let mut client = Command::new(require_program("mariadb"));
                client.args([
                    "--no-defaults",
                    "--batch",
                    "--skip-column-names",
                    "--local-infile=1",
                    "-u",
                    "test",
                    "-D",
                    "mysql",
                ]);
                client.args(["-h", &address.ip().to_string(), "-P", &address.port().to_string(), "-e", sql]);
                reached.stage.succeed(&mut client)
            };
            assert_eq!(ask("select 6 * 7").trim(), "42");
            let large = ask("select repeat('x', 1000) from seq_1_to_300");
            assert_eq!(large.trim().len(), 1001 * 300 - 1);
            let database = format!("test{way}");
            ask(&format!("create database {database}; create table {database}.rows (number int, value text)"));
            ask(&format!("load data local infile '{}' into table {database}.rows", rows.display()));
            let said = ask(&format!("select count(*), max(number), sum(length(value)) from {database}.rows"));
            assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["50000", "49999", "538890"]);
        }
        first_byte(&reached, server.address, "MariaDB");
        reached.assert_sound();
    });
}

#[test]
fn redis() {
    as_root(|| {
        let (stage, folder) = (Stage::redirected(), folder());
        let address = stage.reserve();
        let mut server = Command::new(require_program("redis-server"));
        server.args(["--save", "", "--protected-mode", "no", "--bind", &address.ip().to_string()]);
        server.args(["--port", &address.port().to_string(), "--dir"]).arg(folder.path());
        let server = stage.serve_at(address, unprivileged(&mut server, folder.path()));
        let limited = format!(
            "---\napiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: limited, namespace: shop}}\n\
             spec:\n  target: {{listen: \"127.0.0.1:9103\", endpoints: {{static: [\"{address}\"]}}, protocol: TCP}}\n  \
             bulkhead: {{maxConnections: 1}}\n"
        );
        let reached = Reached::new(stage, &server, &limited);
        let client = |program: &str, address: SocketAddr| {
            let mut command = Command::new(require_program(program));
            command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
            command
        };
        let cli = |address: SocketAddr| client("redis-cli", address);
        let subscribe = |address: SocketAddr| {
            let process = reached.stage.among_clients(|| Process::start(cli(address).args(["subscribe", "news"])));
            assert!(process.stdout_line(PATIENCE, |line| line == "1").is_some(), "{}", process.output());
            process
        };
        for address in &reached.ways {
            assert_eq!(reached.stage.succeed(cli(*address).arg("ping")).trim(), "PONG");
            // Sent in one go, answered in one go.
            let commands: String = (0..20_000).map(|number| format!("SET key:{number} {number}\r\n")).collect();
            let file = folder.path().join("commands");
            std::fs::write(&file, commands).unwrap();
            let said = reached.stage.succeed(cli(*address).arg("--pipe").stdin(std::fs::File::open(&file).unwrap()));
            assert!(said.contains("errors: 0, replies: 20000"), "{said}");
            let value = folder.path().join("value");
            std::fs::write(&value, "v".repeat(5_000_000)).unwrap();
            reached
                .stage
                .succeed(cli(*address).args(["-x", "set", "large"]).stdin(std::fs::File::open(&value).unwrap()));
            assert_eq!(reached.stage.succeed(cli(*address).args(["get", "large"])).trim().len(), 5_000_000);
            let subscriber = subscribe(*address);
            assert_eq!(reached.stage.succeed(cli(*address).args(["publish", "news", "hello"])).trim(), "1");
            assert!(subscriber.stdout_line(PATIENCE, |line| line == "hello").is_some(), "{}", subscriber.output());
            let mut bench = client("redis-benchmark", *address);
            let said = reached.stage.succeed(bench.args(["-q", "-t", "set,get", "-n", "5000", "-c", "20", "-P", "8"]));
            assert!(said.contains("GET") && !said.contains("rror"), "{said}");
        }
        reached.assert_sound();
        if direct() {
            return;
        }
        // One connection is allowed: the next is closed, and given back it is there for another.
        let limited: SocketAddr = "127.0.0.1:9103".parse().unwrap();
        let holder = subscribe(limited);
        let (code, said) = reached.stage.among_clients(|| plimsoll_tests::tools::run(cli(limited).arg("ping")));
        assert!(code != Some(0) || said.contains("closed") || said.contains("reset"), "{code:?} {said}");
        drop(holder);
        eventually("the connection was given back", || {
            reached.stage.among_clients(|| plimsoll_tests::tools::run(cli(limited).arg("ping"))).1.trim() == "PONG"
        });
    });
}

#[test]
fn mail() {
    as_root(|| {
        let stage = Stage::redirected();
        let server = stage.serve("smtp_server.py", &[]);
        let mut reached = Reached::new(stage, &server, "");
        reached.ways.push(reached.stage.at6(server.address.port()));
        for address in &reached.ways {
            let mut client = script_command("smtp_client.py");
            client.args([address.ip().to_string(), address.port().to_string()]);
            reached.stage.succeed(&mut client);
        }
        first_byte(&reached, server.address, "SMTP");
        reached.assert_sound();
    });
}

/// Callers from elsewhere, to an application that speaks first, or not HTTP.
#[test]
fn inbound_connections_reach_the_application() {
    let stage = Stage::loopback();
    let mail = stage.serve("smtp_server.py", &[]);
    let folder = folder();
    let redis = stage.reserve();
    let mut server = Command::new(require_program("redis-server"));
    server.args(["--save", "", "--bind", &redis.ip().to_string(), "--port", &redis.port().to_string(), "--dir"]);
    let _redis = stage.serve_at(redis, unprivileged(server.arg(folder.path()), folder.path()));
    let start = |app: SocketAddr| stage.proxy(Setup::new().arg("--app").arg(app.to_string()));
    let (Some(to_mail), Some(to_redis)) = (start(mail.address), start(redis)) else { return };
    let mut client = script_command("smtp_client.py");
    let inbound = to_mail.inbound;
    stage.succeed(client.args([inbound.ip().to_string(), inbound.port().to_string()]));
    let mut cli = Command::new(require_program("redis-cli"));
    let inbound = to_redis.inbound;
    cli.args(["-h", &inbound.ip().to_string(), "-p", &inbound.port().to_string(), "ping"]);
    assert_eq!(stage.succeed(&mut cli).trim(), "PONG");
}

/// How long a server that speaks first takes to be heard, there and here. Peers make their clients wait for seconds
/// here; nothing less is judged, since this machine may be busy.
fn first_byte(reached: &Reached, server: SocketAddr, name: &str) {
    let measure = |address: SocketAddr| {
        let mut took: Vec<Duration> = (0..15)
            .map(|_| {
                let began = Instant::now();
                let mut stream = TcpStream::connect(address).expect("it listens");
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
                stream.read_exact(&mut [0]).expect("it speaks first");
                began.elapsed()
            })
            .collect();
        took.sort();
        took[took.len() / 2]
    };
    let there = reached.stage.among_servers(|| measure(server));
    for address in &reached.ways {
        let here = reached.stage.among_clients(|| measure(*address));
        println!("{name}: first byte after {there:?} direct, {here:?} at {address}");
        assert!(here < there + Duration::from_secs(1), "{name}: {here:?} at {address}, {there:?} without the proxy");
    }
}
