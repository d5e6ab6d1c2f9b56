//! A store of values by a protocol of lines, as Netty's users write one: a framing, a codec over it, a handler.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::codec::{Codec, Fault, Input, Output, Step};
use tidegate::framing::{FramingError, Lines};
use tidegate::{Context, Handler, Outcome, Server, ServerHandle, StartError};

enum Request {
    Set(String, String),
    Get(String),
}

/// Lines as requests and responses: the framing is Netty's `LineBasedFrameDecoder`, the rest its `MessageToMessageCodec`.
struct Protocol(Lines);

impl Codec for Protocol {
    type In = Request;
    type Out = String;
    type Error = Mistake;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Request>, Mistake> {
        let step = self.0.decode(input, reply)?;
        step.try_map(|line| parse(&line)).inspect_err(|_| reply.write(b"ERROR\n"))
    }

    fn encode(&mut self, line: String, out: &mut Output<'_>) -> Result<(), Mistake> {
        Ok(self.0.encode(line.into(), out)?)
    }
}

fn parse(line: &[u8]) -> Result<Request, Mistake> {
    let line = std::str::from_utf8(line).map_err(|_| Mistake::Malformed)?;
    match line.splitn(3, ' ').collect::<Vec<_>>()[..] {
        ["SET", key, value] => Ok(Request::Set(key.into(), value.into())),
        ["GET", key] => Ok(Request::Get(key.into())),
        _ => Err(Mistake::Malformed),
    }
}

/// The errors, each with the side that it blames.
#[derive(Debug, Fault)]
enum Mistake {
    #[fault(from)]
    Line(FramingError),
    #[fault(peer, "a line that is no request")]
    Malformed,
}

/// A connection: Netty's `SimpleChannelInboundHandler<Request>`.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<HashMap<String, String>>>);

impl Handler<Protocol> for Store {
    type Post = ();

    fn message(&mut self, request: Request, cx: &mut Context<'_, Protocol>) -> Outcome<Protocol> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let response = match request {
            Request::Set(key, value) => {
                values.insert(key, value);
                "OK".to_owned()
            }
            Request::Get(key) => values.get(&key).cloned().unwrap_or_else(|| "NONE".to_owned()),
        };
        cx.send(response).into()
    }
}

pub(crate) fn start(address: &str) -> Result<ServerHandle, StartError> {
    let store = Store::default();
    Server::bind(address)?.start(move || (Protocol(Lines::new()), store.clone()))
}
