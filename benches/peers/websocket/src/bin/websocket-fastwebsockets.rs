//! fastwebsockets.

use std::error::Error;

use bytes::Bytes;
use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket, WebSocketRead, WebSocketWrite};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::broadcast;

fn main() -> Result<(), Box<dyn Error>> {
    let room = broadcast::Sender::new(websocket::ROOM_MESSAGES_MAX);
    websocket::run(move |stream| serve(stream, room.clone()))
}

async fn serve(mut stream: TcpStream, room: broadcast::Sender<Bytes>) {
    let Some(path) = websocket::accept(&mut stream).await else { return };
    let mut socket = WebSocket::after_handshake(stream, Role::Server);
    if path.starts_with("/chat/ws") {
        let (reader, writer) = socket.split(tokio::io::split);
        tokio::task::spawn_local(write(writer, room.subscribe()));
        return read(reader, room).await;
    }
    while let Ok(frame) = socket.read_frame().await {
        let is_over = match frame.opcode {
            OpCode::Text | OpCode::Binary => {
                // Without the mask of the client.
                let frame = Frame::new(true, frame.opcode, None, frame.payload);
                socket.write_frame(frame).await.is_err()
            }
            OpCode::Close => true,
            _ => false,
        };
        if is_over {
            return;
        }
    }
}

async fn read(mut reader: WebSocketRead<impl AsyncRead + Unpin>, room: broadcast::Sender<Bytes>) {
    while let Ok(frame) = reader.read_frame(&mut |_| async { Ok::<_, std::io::Error>(()) }).await {
        match frame.opcode {
            OpCode::Text => drop(room.send(Bytes::copy_from_slice(&frame.payload))),
            OpCode::Close => return,
            _ => {}
        }
    }
}

async fn write(mut writer: WebSocketWrite<impl AsyncWrite + Unpin>, mut messages: broadcast::Receiver<Bytes>) {
    loop {
        match messages.recv().await {
            Ok(message) => {
                if writer.write_frame(Frame::text(Payload::Borrowed(&message))).await.is_err() {
                    return;
                }
            }
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}
