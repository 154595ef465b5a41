//! A name server that says what a test wrote down.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{CNAME, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// What is answered to which questions. A name that is not in it does not exist.
#[derive(Default)]
pub struct Zone {
    records: HashMap<String, Vec<Record>>,
    odd: HashMap<(String, Option<RecordType>), Odd>,
}

#[derive(Clone, Copy)]
enum Odd {
    Code(ResponseCode),
    Silence,
    /// Over UDP there is only word that there is more.
    Truncated,
}

impl Zone {
    pub fn address(self, name: &str, ttl: u32, address: &str) -> Self {
        let address: IpAddr = address.parse().unwrap();
        self.record(name, ttl, address.into())
    }

    pub fn alias(self, name: &str, ttl: u32, of: &str) -> Self {
        self.record(name, ttl, RData::CNAME(CNAME(Name::from_ascii(of).unwrap())))
    }

    pub fn service(self, name: &str, ttl: u32, (priority, weight): (u16, u16), (target, port): (&str, u16)) -> Self {
        self.record(name, ttl, RData::SRV(SRV::new(priority, weight, port, Name::from_ascii(target).unwrap())))
    }

    /// A name without records.
    pub fn empty(mut self, name: &str) -> Self {
        self.records.entry(name.to_owned()).or_default();
        self
    }

    pub fn fails(mut self, name: &str, code: ResponseCode) -> Self {
        self.odd.insert((name.to_owned(), None), Odd::Code(code));
        self
    }

    pub fn silent(mut self, name: &str, about: Option<RecordType>) -> Self {
        self.odd.insert((name.to_owned(), about), Odd::Silence);
        self
    }

    pub fn truncated(mut self, name: &str) -> Self {
        self.odd.insert((name.to_owned(), None), Odd::Truncated);
        self
    }

    fn record(mut self, name: &str, ttl: u32, data: RData) -> Self {
        let record = Record::from_rdata(Name::from_ascii(name).unwrap(), ttl, data);
        self.records.entry(name.to_owned()).or_default().push(record);
        self
    }

    fn answer(&self, question: &Message, over_tcp: bool) -> Option<Message> {
        let query = &question.queries[0];
        let mut name = query.name().to_lowercase().to_ascii();
        let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
        answer.metadata.recursion_desired = true;
        answer.metadata.recursion_available = true;
        answer.add_query(query.clone());
        let odd =
            self.odd.get(&(name.clone(), None)).or_else(|| self.odd.get(&(name.clone(), Some(query.query_type()))));
        match odd {
            Some(Odd::Silence) => return None,
            Some(Odd::Code(code)) => answer.metadata.response_code = *code,
            Some(Odd::Truncated) if !over_tcp => answer.metadata.truncation = true,
            _ => loop {
                let Some(records) = self.records.get(&name) else {
                    answer.metadata.response_code = ResponseCode::NXDomain;
                    break;
                };
                let told = |record: &&Record| record.record_type() == query.query_type();
                answer.add_answers(records.iter().filter(told).cloned());
                let Some((alias, of)) = records.iter().find_map(|record| match &record.data {
                    RData::CNAME(of) => Some((record.clone(), of.0.to_ascii())),
                    _ => None,
                }) else {
                    break;
                };
                answer.add_answer(alias);
                name = of;
            },
        }
        Some(answer)
    }
}

/// Runs on the runtime of the test, and ends with it.
pub struct NameServer {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    pub async fn start(zone: Zone) -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            // The same port may be taken for TCP.
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let (zone, asked) = (Arc::new(zone), Arc::new(Mutex::new(Vec::new())));
        let desk = Desk { zone, asked: Arc::clone(&asked) };
        tokio::spawn(desk.clone().serve_udp(udp));
        tokio::spawn(desk.serve_tcp(tcp));
        Self { address, asked }
    }

    /// What has been asked so far, in any order of one question's families: `A name.`, over TCP `A name. TCP`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[derive(Clone)]
struct Desk {
    zone: Arc<Zone>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Desk {
    fn answer(&self, question: &[u8], over_tcp: bool) -> Option<Vec<u8>> {
        let question = Message::from_vec(question).unwrap();
        let query = &question.queries[0];
        let how = if over_tcp { " TCP" } else { "" };
        self.asked.lock().unwrap().push(format!("{} {}{how}", query.query_type(), query.name()));
        Some(self.zone.answer(&question, over_tcp)?.to_vec().unwrap())
    }

    async fn serve_udp(self, socket: UdpSocket) {
        let mut buffer = [0; 4096];
        loop {
            let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
            if let Some(answer) = self.answer(&buffer[..length], false) {
                socket.send_to(&answer, peer).await.unwrap();
            }
        }
    }

    async fn serve_tcp(self, listener: TcpListener) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(self.clone().serve_stream(stream));
        }
    }

    async fn serve_stream(self, mut stream: TcpStream) {
        while let Ok(length) = stream.read_u16().await {
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await.unwrap();
            if let Some(answer) = self.answer(&question, true) {
                stream.write_u16(answer.len().try_into().unwrap()).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        }
    }
}
