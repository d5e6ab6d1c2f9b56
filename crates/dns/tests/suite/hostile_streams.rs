//! Clients of a server over TCP that send half a message, or have many slow answers at once.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tidegate_dns::server::{ClientQuery, DnsServer, QueryHandler, Reply, Response, ServerLimits};
use tidegate_dns::{MessageView, Name, Rdata, Record, RecordType, ResponseCode, Zone};
use tidegate_engine::{ServerHandle, task};

use crate::support::{backends, frame, query, uninterrupted};

const PATIENCE: Duration = Duration::from_secs(120);

fn connect(server: &ServerHandle) -> TcpStream {
    let address: SocketAddr = server.address().ip().expect("an IP address");
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

#[test]
fn a_length_whose_message_never_comes_ends_the_connection() {
    for backend in backends() {
        let zone = Arc::new(Zone::parse("tides.example. 60 SOA . . 1 2 3 4 5\n", None).expect("it is valid"));
        let limits = ServerLimits { read_timeout: Duration::from_millis(50), ..ServerLimits::default() };
        let server = DnsServer::bind("127.0.0.1:0").expect("an address").loops(1).limits(limits);
        let server = server.engine(|engine| engine.backend(backend)).start(move |_| zone.clone()).expect("it starts");
        for part in [&[0xff, 0xff][..], &[0xff], &frame(&query(1, "tides.example", RecordType::SOA))[..20]] {
            let mut stream = connect(&server);
            // The server may have closed before a busy machine comes to send.
            let _ = stream.write_all(part);
            let end = uninterrupted(|| stream.read(&mut [0; 64]));
            let is_reset =
                |error: &std::io::Error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
            assert!(matches!(&end, Ok(0)) || end.as_ref().is_err_and(is_reset), "{part:?}: {end:?}");
        }
        server.drain(Duration::ZERO);
    }
}

/// Has all answers at the same time, once they are released.
struct Held {
    is_released: Arc<AtomicBool>,
    waiting: Arc<AtomicUsize>,
}

impl QueryHandler for Held {
    fn query(&self, query: &ClientQuery<'_>) -> Reply {
        let (is_released, name) = (self.is_released.clone(), query.question.name.clone());
        self.waiting.fetch_add(1, SeqCst);
        Reply::later(async move {
            while !is_released.load(SeqCst) {
                task::sleep(Duration::from_millis(1)).await;
            }
            let mut response = Response::of_code(ResponseCode::NOERROR);
            let data = Rdata::parse(RecordType::TXT, &"x".repeat(255), &Name::root()).expect("a text");
            response.answers = (0..8).map(|_| Record::new(name.clone(), 60, data.clone())).collect();
            response
        })
    }
}

#[test]
fn slow_answers_that_are_let_loose_together_all_arrive() {
    const QUERIES: u16 = 120;
    for backend in backends() {
        let (is_released, waiting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (release, counted) = (is_released.clone(), waiting.clone());
        let server = DnsServer::bind("127.0.0.1:0").expect("an address").loops(1);
        let server = server
            .engine(|engine| engine.backend(backend))
            .start(move |_| Held { is_released: is_released.clone(), waiting: waiting.clone() });
        let server = server.expect("it starts");
        let mut streams = [connect(&server), connect(&server)];
        for stream in &mut streams {
            for id in 0..QUERIES {
                stream.write_all(&frame(&query(id, "slow.example", RecordType::TXT))).expect("it is sent");
            }
        }
        let begun = Instant::now();
        while counted.load(SeqCst) < 2 * usize::from(QUERIES) {
            assert!(begun.elapsed() < PATIENCE, "{} queries of {}", counted.load(SeqCst), 2 * QUERIES);
            std::thread::sleep(Duration::from_millis(1));
        }
        release.store(true, SeqCst);
        for stream in &mut streams {
            let mut seen = vec![false; usize::from(QUERIES)];
            for _ in 0..QUERIES {
                let mut length = [0; 2];
                stream.read_exact(&mut length).expect("a length");
                let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut message).expect("a message");
                let view = MessageView::parse(&message).expect("it is valid");
                assert_eq!(view.answers().count(), 8);
                assert!(!std::mem::replace(&mut seen[usize::from(view.header().id)], true));
            }
        }
        server.drain(Duration::ZERO);
    }
}
