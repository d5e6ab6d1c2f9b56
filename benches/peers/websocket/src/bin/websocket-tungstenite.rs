//! tokio-tungstenite.

use std::error::Error;

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

fn main() -> Result<(), Box<dyn Error>> {
    let room = broadcast::Sender::new(websocket::ROOM_MESSAGES_MAX);
    websocket::run(move |stream| serve(stream, room.clone()))
}

async fn serve(mut stream: TcpStream, room: broadcast::Sender<Message>) {
    let Some(path) = websocket::accept(&mut stream).await else { return };
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    if !path.starts_with("/chat/ws") {
        while let Some(Ok(message)) = socket.next().await {
            if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
                return;
            }
        }
        return;
    }
    let mut messages = room.subscribe();
    loop {
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(message)) if message.is_text() => drop(room.send(message)),
                Some(Ok(_)) => {}
                _ => return,
            },
            message = messages.recv() => match message {
                Ok(message) => {
                    if socket.send(message).await.is_err() {
                        return;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            },
        }
    }
}
