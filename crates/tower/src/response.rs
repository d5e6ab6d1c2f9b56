//! From the response of a service to ours.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Buf, Bytes};
use http_body::{Body as _, Frame};
use tidegate_http::{Body, BodyWriter, Fields, Response};

use crate::request_body::Registered;

/// Fields that the server writes by itself.
const WRITTEN_BY_SERVER: [http::HeaderName; 5] = [
    http::header::CONNECTION,
    http::header::CONTENT_LENGTH,
    http::header::DATE,
    http::header::SERVER,
    http::header::TRANSFER_ENCODING,
];

/// Our response. If the body is in memory it is sent with the head; otherwise frame by frame.
///
/// The body of the request is there until that of the response is sent, which may be the same.
pub(crate) async fn from_http<B>(
    response: http::Response<B>,
    is_head: bool,
    registered: Option<Registered>,
) -> Result<Response, Box<dyn Error>>
where
    B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let (parts, body) = response.into_parts();
    let mut response = Response::status(parts.status);
    for (name, value) in &parts.headers {
        if name == http::header::CONNECTION && value.as_bytes().eq_ignore_ascii_case(b"close") {
            response = response.close();
        }
        if !WRITTEN_BY_SERVER.contains(name) {
            response.add_header(name, value)?;
        }
    }
    // The length of the response to HEAD is known from its field alone.
    let length = body.size_hint().exact();
    let mut body = Box::pin(body);
    if body.is_end_stream() {
        let stated = parts.headers.get(http::header::CONTENT_LENGTH);
        let stated = stated.and_then(|value| value.to_str().ok()?.parse().ok()).filter(|_| is_head);
        return Ok(match stated {
            Some(length) => response.body(Body::produce(async |_| Ok(())).with_length(length)),
            None => response,
        });
    }
    let Some(first) = next(&mut body).await? else { return Ok(response) };
    if body.is_end_stream() {
        match first.into_data() {
            Ok(data) => return Ok(response.body(bytes(data))),
            Err(_) => return Ok(response),
        }
    }
    let produced = Body::produce(async move |mut writer: BodyWriter| {
        let _registered = registered;
        let mut next_frame = Some(first);
        while let Some(frame) = next_frame {
            match frame.into_data() {
                Ok(data) => writer.write(bytes(data)).await?,
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    writer.trailers(fields(&trailers)?)?;
                    return Ok(());
                }
            }
            next_frame = next(&mut body).await?;
        }
        Ok(())
    });
    Ok(response.body(match length {
        Some(length) => produced.with_length(length),
        None => produced,
    }))
}

async fn next<B>(body: &mut Pin<Box<B>>) -> Result<Option<Frame<B::Data>>, Box<dyn Error>>
where
    B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
    frame.transpose().map_err(|error| -> Box<dyn Error> { error.into() })
}

/// Without a copy if the data is `Bytes` already.
fn bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

fn fields(map: &http::HeaderMap) -> Result<Fields, Box<dyn Error>> {
    let mut fields = Fields::new();
    for (name, value) in map {
        fields.push(name.as_str(), value)?;
    }
    Ok(fields)
}
