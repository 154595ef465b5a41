//! A name server that says what a test wrote down, and lets it take it back.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// RFC 1035 3.2.2, RFC 3596 2.1, RFC 2782.
const A: u16 = 1;
const AAAA: u16 = 28;
const SRV: u16 = 33;

/// What a name stands for.
#[derive(Debug, Clone)]
pub enum Record {
    /// An address of either family.
    Address(IpAddr),
    /// Somebody who serves it.
    Service {
        /// The lowest is served first.
        priority: u16,
        /// Its share.
        weight: u16,
        /// A name of its own.
        target: String,
        /// Where it listens.
        port: u16,
    },
}

impl Record {
    fn kind(&self) -> u16 {
        match self {
            Self::Address(IpAddr::V4(_)) => A,
            Self::Address(IpAddr::V6(_)) => AAAA,
            Self::Service { .. } => SRV,
        }
    }

    fn data(&self) -> Vec<u8> {
        match self {
            Self::Address(IpAddr::V4(v4)) => v4.octets().into(),
            Self::Address(IpAddr::V6(v6)) => v6.octets().into(),
            Self::Service { priority, weight, target, port } => {
                let mut data: Vec<u8> = [priority, weight, port].iter().flat_map(|part| part.to_be_bytes()).collect();
                for label in target.split('.') {
                    data.push(u8::try_from(label.len()).expect("short labels"));
                    data.extend(label.as_bytes());
                }
                data.push(0);
                data
            }
        }
    }
}

enum Known {
    Records(u32, Vec<Record>),
    Silence,
}

/// Ends with its owner. Names that nobody told it of do not exist.
pub struct NameServer {
    /// Where it is asked, over UDP.
    pub address: SocketAddr,
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    known: Mutex<HashMap<String, Known>>,
    asked: Mutex<HashMap<String, usize>>,
}

impl NameServer {
    /// Knows nothing yet.
    pub fn start() -> NameServer {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let desk = Arc::new(Desk::default());
        let address = socket.local_addr().expect("bound");
        let serves = Arc::clone(&desk);
        std::thread::spawn(move || {
            let mut question = [0; 512];
            // The owner is the other one who holds it.
            while Arc::strong_count(&serves) > 1 {
                let Ok((length, peer)) = socket.recv_from(&mut question) else { continue };
                if let Some(answer) = serves.answer(&question[..length]) {
                    // Whoever asked may have gone.
                    let _ = socket.send_to(&answer, peer);
                }
            }
        });
        NameServer { address, desk }
    }

    /// From now on, `name` stands for these, for `ttl` seconds.
    pub fn set(&self, name: &str, ttl: u32, records: impl IntoIterator<Item = Record>) {
        let records = records.into_iter().collect();
        locked(&self.desk.known).insert(name.to_owned(), Known::Records(ttl, records));
    }

    /// The same for addresses.
    pub fn set_addresses(&self, name: &str, ttl: u32, addresses: &[&str]) {
        let parse = |text: &&str| Record::Address(text.parse().expect("an address"));
        self.set(name, ttl, addresses.iter().map(parse));
    }

    /// From now on, questions about `name` are not answered.
    pub fn say_nothing_of(&self, name: &str) {
        locked(&self.desk.known).insert(name.to_owned(), Known::Silence);
    }

    /// How many questions there were about `name`.
    pub fn asked(&self, name: &str) -> usize {
        locked(&self.desk.asked).get(name).copied().unwrap_or_default()
    }
}

impl Desk {
    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let (name, end) = read_name(question)?;
        let kind = u16::from_be_bytes(question.get(end..end + 2)?.try_into().ok()?);
        *locked(&self.asked).entry(name.clone()).or_default() += 1;
        let known = locked(&self.known);
        let (code, ttl, records) = match known.get(&name) {
            Some(Known::Silence) => return None,
            Some(Known::Records(ttl, records)) => (0, *ttl, records.as_slice()),
            None => (3, 0, [].as_slice()),
        };
        let told: Vec<&Record> = records.iter().filter(|record| record.kind() == kind).collect();
        // RFC 1035 4.1.1: an answer, recursion desired and available.
        let mut answer = question[..2].to_vec();
        answer.extend([0x81, 0x80 | code]);
        for count in [1, told.len(), 0, 0] {
            answer.extend(u16::try_from(count).expect("few").to_be_bytes());
        }
        answer.extend(&question[12..end + 4]);
        for record in told {
            let data = record.data();
            // The name of the question, class IN.
            answer.extend([0xc0, 12]);
            answer.extend(kind.to_be_bytes());
            answer.extend(1_u16.to_be_bytes());
            answer.extend(ttl.to_be_bytes());
            answer.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
            answer.extend(data);
        }
        Some(answer)
    }
}

/// The name of the question, in lower case, and where it ends.
fn read_name(message: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_lowercase());
        at += length;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
