//! A game server with 20 ticks a second: each player steers a boat, and every tick all players get where all boats are.
//!
//! ```text
//! cargo run --example game                      # plays a moment with itself, and ends
//! cargo run --example game -- 127.0.0.1:8080    # serves ws://127.0.0.1:8080/sea
//! ```
//!
//! Messages are binary:
//!
//! | from | bytes |
//! |---|---|
//! | player | two signed bytes: the wished speed to the east and to the south, -100 to 100 units a second |
//! | server, first | `0`, the number of the own boat (`u32`), ticks a second (`u8`) |
//! | server, each tick | `1`, the tick (`u32`), then for each boat its number (`u32`), east (`f32`), south (`f32`); big-endian |
//!
//! A tick is encoded once for all players. A player that reads slowly misses ticks, and the next one that it gets is
//! complete.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidegate::codec::{DynOver, Encoded, Filters};
use tidegate::http::{Client, Router, Server, State, WebSocketUpgrade};
use tidegate::websocket::{Config, Message, MessageRate, WebSocket};
use tidegate::{Backend, CloseReason, Context, EventLoop, Group, Handler, Outcome, ServerHandle, Slow};

type Any = Box<dyn Error>;
type Pipe = DynOver<WebSocket>;

/// The sea, which the thread of ticks and all loops share.
#[derive(Clone)]
struct Sea {
    boats: Arc<Mutex<Boats>>,
    players: Group<Pipe>,
}

#[derive(Default)]
struct Boats {
    by_number: BTreeMap<u32, Boat>,
    next: u32,
    tick: u32,
}

#[derive(Default)]
struct Boat {
    east: f32,
    south: f32,
    /// The speed that the player wishes, until it wishes another.
    wish: (i8, i8),
}

impl Sea {
    fn new() -> Self {
        // A tick replaces the one before: a player that is not writable is skipped.
        Self { boats: Arc::default(), players: Group::new(Slow::Skip) }
    }

    fn boats(&self) -> MutexGuard<'_, Boats> {
        self.boats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the boats, and returns the message of the tick.
    fn step(&self) -> Vec<u8> {
        let mut boats = self.boats();
        boats.tick = boats.tick.wrapping_add(1);
        let mut message = vec![TICK];
        message.extend(boats.tick.to_be_bytes());
        for (number, boat) in &mut boats.by_number {
            let moved =
                |at: f32, wish: i8| (at + f32::from(wish.clamp(-100, 100)) / TICKS_PER_SECOND as f32).clamp(0.0, SIDE);
            (boat.east, boat.south) = (moved(boat.east, boat.wish.0), moved(boat.south, boat.wish.1));
            message.extend(number.to_be_bytes());
            message.extend(boat.east.to_be_bytes());
            message.extend(boat.south.to_be_bytes());
        }
        message
    }

    /// Ticks until the end. A tick that is late is not repeated: the next one comes at its time.
    fn run(&self, is_over: &AtomicBool) {
        let mut codec = Filters::default().stack(WebSocket::server(CONFIG.clone(), None));
        let mut due = Instant::now();
        while !is_over.load(Ordering::Relaxed) {
            let message = self.step();
            if let Ok(message) = Encoded::new(&mut codec, Message::binary(message)) {
                // A loop that does not keep up gets the next tick.
                let _ = self.players.send(&message);
            }
            due = (due + TICK_TIME).max(Instant::now());
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
}

/// A player's connection.
struct Player {
    sea: Sea,
    number: u32,
    rate: MessageRate,
}

impl Handler<Pipe> for Player {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Pipe>) -> Outcome<Pipe> {
        let mut boats = self.sea.boats();
        if boats.by_number.len() >= BOATS_MAX {
            return Outcome::Close;
        }
        self.number = boats.next;
        boats.next += 1;
        boats.by_number.insert(self.number, Boat::default());
        drop(boats);
        cx.join(&self.sea.players);
        let hello = [&[HELLO][..], &self.number.to_be_bytes(), &[TICKS_PER_SECOND]].concat();
        cx.send(Message::binary(hello)).into()
    }

    fn message(&mut self, message: Message, cx: &mut Context<'_, Pipe>) -> Outcome<Pipe> {
        let Message::Binary(bytes) = message else { return Outcome::Continue };
        let &[east, south] = bytes.as_ref() else { return Outcome::Close };
        // Wishes beyond three a tick change nothing.
        if self.rate.take(cx.now(), 3 * u32::from(TICKS_PER_SECOND), 10)
            && let Some(boat) = self.sea.boats().by_number.get_mut(&self.number)
        {
            boat.wish = (east.cast_signed(), south.cast_signed());
        }
        Outcome::Continue
    }

    fn closed(&mut self, _: &CloseReason) {
        self.sea.boats().by_number.remove(&self.number);
    }
}

/// A server, and its thread of ticks.
struct Game {
    server: ServerHandle,
    is_over: Arc<AtomicBool>,
    ticks: JoinHandle<()>,
}

impl Game {
    fn start(address: &str) -> Result<Self, Any> {
        let sea = Sea::new();
        let of_server = sea.clone();
        let server = Server::bind(address)?.start(move || {
            Router::with_state(of_server.clone()).get("/sea", |State(sea): State<Sea>, upgrade: WebSocketUpgrade| {
                upgrade.any_origin().config(&CONFIG).handler(Player {
                    sea: (*sea).clone(),
                    number: u32::MAX,
                    rate: MessageRate::default(),
                })
            })
        })?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let ticks = thread::Builder::new().name("ticks".to_owned()).spawn(move || sea.run(&over))?;
        Ok(Self { server, is_over, ticks })
    }

    fn end(self) -> Result<(), Any> {
        self.is_over.store(true, Ordering::Relaxed);
        self.ticks.join().map_err(|_| "the thread of ticks has panicked")?;
        self.server.drain(Duration::from_secs(5));
        Ok(())
    }
}

/// Players send two bytes, and no compression is worth its time.
static CONFIG: LazyLock<Arc<Config>> = LazyLock::new(|| {
    let mut config = Config::default();
    config.message_bytes_max = 64;
    Arc::new(config)
});

const HELLO: u8 = 0;
const TICK: u8 = 1;
const TICKS_PER_SECOND: u8 = 20;
const TICK_TIME: Duration = Duration::from_millis(1000 / TICKS_PER_SECOND as u64);
/// The sea is a square with sides of so many units.
const SIDE: f32 = 1000.0;
/// A tick is 12 bytes for each boat, to each boat: 1,000 boats are 240 MB a second.
const BOATS_MAX: usize = 1000;

fn main() -> Result<(), Any> {
    if let Some(address) = std::env::args().nth(1) {
        let game = Game::start(&address)?;
        println!("listening on ws://{}/sea", game.server.address());
        game.server.wait();
        return Ok(());
    }
    play()
}

/// One player steers to the east, and another one sees it.
fn play() -> Result<(), Any> {
    let game = Game::start("127.0.0.1:0")?;
    let uri = format!("ws://{}/sea", game.server.address());
    let ticks = EventLoop::on(Backend::Auto)?.block_on(async move {
        let client = Client::new();
        let mut steering = client.websocket(&uri).open().await?;
        let mut watching = client.websocket(&uri).open().await?;
        let Some(Message::Binary(hello)) = steering.recv().await? else { return Err("no hello".into()) };
        let Some(number) = hello.as_ref().get(1..5) else { return Err("a short hello".into()) };
        steering.send(Message::binary(vec![100, 0]))?;
        let mut ticks = 0;
        while let Some(message) = watching.recv().await? {
            let Message::Binary(bytes) = message else { continue };
            if bytes.as_ref().first() != Some(&TICK) {
                continue;
            }
            ticks += 1;
            let (boats, _) = bytes.as_ref()[5..].as_chunks::<12>();
            let boat = boats.iter().find(|boat| boat[..4] == *number).ok_or("the boat has gone")?;
            let [_, _, _, _, a, b, c, d, ..] = *boat;
            if f32::from_be_bytes([a, b, c, d]) >= 10.0 {
                return Ok(ticks);
            }
        }
        Err::<u32, Any>("the game has ended".into())
    })??;
    println!("after {ticks} ticks the boat was 10 units to the east");
    game.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_player_sees_the_boat_of_another_one_move() {
        play().unwrap();
    }

    #[test]
    fn boats_move_by_their_speed_and_stay_on_the_sea() {
        let sea = Sea::new();
        sea.boats().by_number.insert(7, Boat { east: 10.0, south: 999.0, wish: (-100, 100) });
        for _ in 0..TICKS_PER_SECOND {
            sea.step();
        }
        let boats = sea.boats();
        let boat = &boats.by_number[&7];
        assert_eq!((boats.tick, boat.east, boat.south), (20, 0.0, SIDE));
    }
}
