//! Notes over HTTP.
//!
//! | request | response |
//! |---|---|
//! | `GET /notes` | all notes, as JSON |
//! | `POST /notes` with `{"text": "..."}` | 201 and the note with its number |
//! | `GET /notes/{number}` | the note, or 404 |
//! | `DELETE /notes/{number}` | 204, or 404 |
//!
//! `notes.rs` stores them, `settings.rs` reads the configuration, `main.rs` starts the server. `tests/service.rs` tests
//! the routes on a simulated network.

#![forbid(unsafe_code)]

pub mod notes;
pub mod settings;

use serde::{Deserialize, Serialize};
use tidegate::http::{
    AccessLog, DebugPages, IntoResponse, Json, LogFormat, Path, RequestIds, Response, Router,
    State, StatusCode,
};

use crate::notes::{Note, Notes};

/// The body of `POST /notes`.
#[derive(Debug, Serialize, Deserialize)]
pub struct NewNote {
    pub text: String,
}

/// The routes. Each loop has a router of its own, and all of them share the notes.
pub fn router(notes: Notes) -> Router<Notes> {
    let router = Router::with_state(notes)
        .get("/notes", list)
        .post("/notes", create)
        .get("/notes/{number}", read)
        .delete("/notes/{number}", remove);
    // Pages for errors, with their cause. A release build has none.
    let pages = DebugPages::new().routes(router.routes());
    router
        .with(pages)
        .with(RequestIds::new())
        .with(AccessLog::new(LogFormat::Json))
}

fn list(State(notes): State<Notes>) -> Json<Vec<Note>> {
    Json(notes.all())
}

fn create(State(notes): State<Notes>, Json(new): Json<NewNote>) -> Response {
    match notes.add(new.text) {
        Some(note) => (StatusCode::CREATED, Json(note)).into_response(),
        None => StatusCode::INSUFFICIENT_STORAGE.into_response(),
    }
}

fn read(State(notes): State<Notes>, Path(number): Path<u64>) -> Result<Json<Note>, StatusCode> {
    notes.get(number).map(Json).ok_or(StatusCode::NOT_FOUND)
}

fn remove(State(notes): State<Notes>, Path(number): Path<u64>) -> StatusCode {
    if notes.remove(number) {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::NOT_FOUND
    }
}
