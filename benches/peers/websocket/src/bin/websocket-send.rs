//! The least cost of a delivery: one `send` of the same bytes for each connection of `/chat/ws`, and nothing else.

use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::rc::Rc;

use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

type Room = Rc<RefCell<Vec<Rc<TcpStream>>>>;

fn main() -> Result<(), Box<dyn Error>> {
    let room = Room::default();
    websocket::run(move |stream| serve(stream, room.clone()))
}

async fn serve(mut stream: TcpStream, room: Room) {
    let Some(_) = websocket::accept(&mut stream).await else { return };
    let stream = Rc::new(stream);
    room.borrow_mut().push(stream.clone());
    let mut bytes = vec![0; 128 * 1024];
    loop {
        if stream.readable().await.is_err() {
            return;
        }
        match stream.try_read(&mut bytes) {
            Ok(0) => return,
            Ok(length) => send_to_all(&mut bytes[..length], &room),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Unmasks one frame of a client, as short as the load sends it, and sends the payload to all.
fn send_to_all(frame: &mut [u8], room: &Room) {
    let at = match frame[1] & 0x7f {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    if frame[0] & 0x0f != 1 || frame.len() < at + 4 {
        return;
    }
    let (head, payload) = frame.split_at_mut(at + 4);
    payload.iter_mut().enumerate().for_each(|(place, byte)| *byte ^= head[at + place % 4]);
    let message = Frame::message(payload.to_vec(), OpCode::Data(Data::Text), true);
    let mut wire = Vec::new();
    if message.format(&mut wire).is_ok() {
        room.borrow_mut().retain(|stream| stream.try_write(&wire).is_ok());
    }
}
