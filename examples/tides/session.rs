//! The service as an async task, in straight-line code.

use std::error::Error;

use tidegate::{Channel, blocking};

use crate::clerk::IDLE_TIMEOUT;
use crate::office::Office;
use crate::protocol::{Answer, Request, Tides};

/// Serves one connection.
pub(crate) async fn session(mut channel: Channel<Tides>, office: Office) -> Result<(), Box<dyn Error>> {
    let mut watches = false;
    loop {
        let request = if watches { channel.recv().await } else { channel.recv().within(IDLE_TIMEOUT).await };
        let Some(request) = request? else { return Ok(()) };
        let answer = match request {
            Request::Get { station } => office.get(station),
            Request::Set { station, level } => office.set(station, level)?,
            Request::Watch => {
                channel.join(office.watchers())?;
                watches = true;
                Answer::Ok
            }
            Request::List => {
                list(&mut channel, &office).await?;
                Answer::Ok
            }
            Request::Save => {
                let office = office.clone();
                let saved = blocking(move || office.save()).await?;
                if saved.is_ok() { Answer::Ok } else { Answer::Failed }
            }
        };
        channel.send(answer)?;
    }
}

/// Sends all levels, no faster than the peer reads them.
async fn list(channel: &mut Channel<Tides>, office: &Office) -> Result<(), Box<dyn Error>> {
    let mut last = None;
    while let Some((station, level)) = office.after(last.as_deref()) {
        channel.send(Answer::At { station: station.clone(), level })?;
        channel.ready().await?;
        last = Some(station);
    }
    Ok(())
}
