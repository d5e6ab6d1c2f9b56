//! A channel in a task that may run on any thread.
//@ future cannot be sent between threads safely
//@ SpawnWithTaskSpawn

use tidegate::Channel;
use tidegate::framing::Lines;

/// As the crate has it.
mod tokio {
    pub(super) fn spawn<F: Future<Output: Send + 'static> + Send + 'static>(future: F) {
        drop(future);
    }
}

pub fn serve(mut channel: Channel<Lines>) {
    tokio::spawn(async move {
        let _ = channel.recv().await;
    });
}
