//! An echo of datagrams on tokio, on one thread: one `recv_from` and one `send_to` for each, as tokio offers them.

use std::error::Error;

use tokio::net::UdpSocket;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        println!("listening on {}", socket.local_addr()?);
        let mut buffer = vec![0; 65_536];
        loop {
            let (length, source) = socket.recv_from(&mut buffer).await?;
            socket.send_to(&buffer[..length], source).await?;
        }
    })
}
