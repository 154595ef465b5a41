//! What the machine says about names: `resolv.conf`, `hosts` and `nsswitch.conf`.
//!
//! They are read again when they change, as the system's own resolver does: a laptop changes networks, a container gets
//! its `hosts` after its start.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::parse_resolv_conf;

/// Name servers that are asked, as in the system's resolver.
const MOST_SERVERS: usize = 3;

/// What holds for look-ups at one time.
#[derive(Debug)]
pub struct Conf {
    /// One for each name server, in their order.
    pub servers: Vec<TokioResolver>,
    /// Whether the system knows ways to a name that are not read here, such as mDNS.
    pub knows_more: bool,
    /// By name in lower case, without a final dot.
    hosts: HashMap<Box<str>, Vec<IpAddr>>,
    search: Vec<Name>,
    ndots: usize,
}

/// The files, and what they said when they were last read.
#[derive(Debug)]
pub struct Files {
    paths: [PathBuf; 3],
    /// Asked instead of those that `resolv.conf` names, if any.
    servers: Vec<SocketAddr>,
    read: [Option<Stamp>; 3],
    conf: Option<Arc<Conf>>,
}

/// Changes when a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let data = fs::metadata(path).ok()?;
        Some(Self { inode: data.ino(), size: data.size(), modified: (data.mtime(), data.mtime_nsec()) })
    }
}

impl Files {
    /// The system's files, and `servers` in place of the name servers in them if there are any.
    #[must_use]
    pub fn of_system(servers: Vec<SocketAddr>) -> Self {
        Self::in_folder(Path::new("/etc"), servers)
    }

    /// The same with files of these names elsewhere.
    #[must_use]
    pub fn in_folder(folder: &Path, servers: Vec<SocketAddr>) -> Self {
        let paths = ["resolv.conf", "hosts", "nsswitch.conf"].map(|name| folder.join(name));
        Self { paths, servers, read: [None; 3], conf: None }
    }

    /// What they say now. Looks at them each time, which costs microseconds.
    pub fn conf(&mut self) -> Arc<Conf> {
        let stamps = self.paths.each_ref().map(|path| Stamp::of(path));
        if let Some(conf) = &self.conf
            && self.read == stamps
        {
            return Arc::clone(conf);
        }
        // Taken before reading: what changes meanwhile is read once more.
        self.read = stamps;
        let conf = Arc::new(self.parse());
        self.conf = Some(Arc::clone(&conf));
        conf
    }

    fn parse(&self) -> Conf {
        let [resolv, hosts, nsswitch] = self.paths.each_ref().map(|path| fs::read(path).unwrap_or_default());
        let (config, options) = parse_resolv(&resolv);
        let (domain, search, named) = config.into_parts();
        let servers = if self.servers.is_empty() {
            named.into_iter().map(|server| SocketAddr::new(server.ip, 53)).take(MOST_SERVERS).collect()
        } else {
            self.servers.clone()
        };
        Conf {
            servers: servers.into_iter().filter_map(|server| client(server, &options)).collect(),
            knows_more: knows_more(&String::from_utf8_lossy(&nsswitch)),
            hosts: parse_hosts(&String::from_utf8_lossy(&hosts)),
            search: if search.is_empty() { domain.into_iter().collect() } else { search },
            ndots: options.ndots,
        }
    }
}

impl Conf {
    /// The names that may be meant by `name`, in the order in which they are tried (resolv.conf(5)).
    #[must_use]
    pub fn candidates(&self, name: &Name) -> Vec<Name> {
        let mut absolute = name.clone();
        absolute.set_fqdn(true);
        if name.is_fqdn() {
            return vec![absolute];
        }
        let dots = usize::from(name.num_labels()).saturating_sub(1);
        let below = self.search.iter().filter_map(|domain| name.clone().append_domain(domain).ok());
        let mut candidates: Vec<Name> = below.collect();
        let at = if dots >= self.ndots { 0 } else { candidates.len() };
        candidates.insert(at, absolute);
        candidates
    }

    /// What the hosts file says about `name`, of both families.
    #[must_use]
    pub fn in_hosts(&self, name: &str) -> &[IpAddr] {
        let lower = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        self.hosts.get(&*lower).map_or(&[], Vec::as_slice)
    }
}

/// hosts(5): an address and its names on each line.
fn parse_hosts(text: &str) -> HashMap<Box<str>, Vec<IpAddr>> {
    let mut hosts: HashMap<Box<str>, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        // An address with a scope is passed over: it is one of a link, and no name of a service.
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else { continue };
        for name in words {
            hosts.entry(name.to_ascii_lowercase().into()).or_default().push(address);
        }
    }
    hosts
}

/// A `resolv.conf` without a name server means the one of this machine, and so does one that cannot be read.
fn parse_resolv(text: &[u8]) -> (ResolverConfig, ResolverOpts) {
    let here = [text, b"\nnameserver 127.0.0.1\n"].concat();
    parse_resolv_conf(text).or_else(|_| parse_resolv_conf(here)).unwrap_or_else(|error| {
        tracing::warn!(%error, "resolv.conf is not understood; the name server of this machine is asked");
        let here = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        (ResolverConfig::from_name_servers(vec![here]), ResolverOpts::default())
    })
}

/// A client of one name server. Which server is asked when, what is kept, and which names are tried is ours to say.
fn client(server: SocketAddr, options: &ResolverOpts) -> Option<TokioResolver> {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    let config = NameServerConfig::new(server.ip(), true, connections.into());
    let config = ResolverConfig::from_name_servers(vec![config]);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let own = builder.options_mut();
    own.timeout = options.timeout.max(Duration::from_secs(1));
    own.attempts = options.attempts.saturating_sub(1);
    own.edns0 = options.edns0;
    own.use_hosts_file = ResolveHosts::Never;
    own.cache_size = 0;
    // The TTL of an answer is that of its shortest link.
    own.preserve_intermediates = true;
    builder.build().inspect_err(|error| tracing::warn!(%server, %error, "this name server cannot be asked")).ok()
}

/// Whether `hosts:` in nsswitch.conf names more than files and DNS.
fn knows_more(nsswitch: &str) -> bool {
    let lines = nsswitch.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let sources = lines.filter_map(|line| line.strip_prefix("hosts:"));
    // What stands in brackets says what to do with an answer.
    sources
        .flat_map(|sources| sources.split(['[', ']']).step_by(2))
        .flat_map(str::split_whitespace)
        .any(|source| !matches!(source, "files" | "dns"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(resolv: &str, hosts: &str, nsswitch: &str) -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("resolv.conf", resolv), ("hosts", hosts), ("nsswitch.conf", nsswitch)] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let files = Files::in_folder(folder.path(), Vec::new());
        (folder, files)
    }

    fn candidates(conf: &Conf, name: &str) -> Vec<String> {
        conf.candidates(&Name::from_utf8(name).unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn short_names_are_looked_for_in_the_search_domains_first() {
        let text = "search risk.svc.cluster.local svc.cluster.local\nnameserver 10.0.0.10\noptions ndots:2\n";
        let (_folder, mut files) = files(text, "", "");
        let conf = files.conf();
        let below = ["fraud.risk.svc.cluster.local.", "fraud.svc.cluster.local.", "fraud."];
        assert_eq!(candidates(&conf, "fraud"), below);
        let dots = ["a.b.example.", "a.b.example.risk.svc.cluster.local.", "a.b.example.svc.cluster.local."];
        assert_eq!(candidates(&conf, "a.b.example"), dots);
        assert_eq!(candidates(&conf, "fraud."), ["fraud."], "a final dot says that this is the whole name");
        assert_eq!(conf.servers.len(), 1);
    }

    #[test]
    fn without_a_name_server_the_machine_itself_is_asked() {
        for text in ["", "search example.com\n", "nameserver nonsense\n"] {
            let (_folder, mut files) = files(text, "", "");
            assert_eq!(files.conf().servers.len(), 1, "{text:?}");
        }
        let (_folder, mut files) = files("search example.com\n", "", "");
        assert_eq!(candidates(&files.conf(), "a"), ["a.example.com.", "a."]);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Files::in_folder(folder.path(), Vec::new()).conf().servers.len(), 1, "no files at all");
    }

    #[test]
    fn the_hosts_file_is_read_again_when_it_changes() {
        let text = "127.0.0.1 localhost\n10.0.0.1\tDb.example db # moves\n\nfe80::1%lo0 db\nfd00::1 db.example";
        let (folder, mut files) = files("", text, "");
        let conf = files.conf();
        let both: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        assert_eq!(conf.in_hosts("DB.example."), both);
        assert_eq!(conf.in_hosts("db"), &both[..1]);
        assert!(conf.in_hosts("moves").is_empty());
        assert!(Arc::ptr_eq(&conf, &files.conf()), "nothing has changed");
        fs::write(folder.path().join("hosts"), "10.0.0.20 db\n").unwrap();
        let conf = files.conf();
        assert_eq!(conf.in_hosts("db"), ["10.0.0.20".parse::<IpAddr>().unwrap()]);
        fs::remove_file(folder.path().join("hosts")).unwrap();
        assert!(files.conf().in_hosts("db").is_empty());
    }

    #[test]
    fn nsswitch_says_whether_the_system_knows_more() {
        for (line, more) in [
            ("hosts: files dns", false),
            ("hosts:\tfiles [NOTFOUND=continue] dns # mdns", false),
            ("passwd: sss\n", false),
            ("", false),
            ("hosts: files mdns4_minimal [NOTFOUND=return] dns", true),
            ("hosts: files myhostname dns", true),
        ] {
            assert_eq!(knows_more(line), more, "{line:?}");
        }
    }
}
