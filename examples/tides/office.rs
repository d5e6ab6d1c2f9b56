//! The office: the state that all connections share, on all loops.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use tidegate::{Group, PublishError, Slow};

use crate::protocol::{Answer, Tides, Wrong};

/// The levels of all stations, and the connections that watch them. Clones are the same office.
#[derive(Clone)]
pub(crate) struct Office {
    levels: Arc<Mutex<BTreeMap<Box<str>, i32>>>,
    watchers: Group<Tides>,
    path: Arc<Path>,
}

impl Office {
    /// An office that saves to a file.
    pub(crate) fn new(path: impl AsRef<Path>) -> Self {
        Self { levels: Arc::default(), watchers: Group::new(Slow::Skip), path: path.as_ref().into() }
    }

    pub(crate) fn get(&self, station: Box<str>) -> Answer {
        self.levels().get(&station).map_or(Answer::Unknown, |&level| Answer::At { station, level })
    }

    /// Sets a level, and sends it to the connections that watch.
    pub(crate) fn set(&self, station: Box<str>, level: i32) -> Result<Answer, PublishError<Wrong>> {
        let mut levels = self.levels();
        if levels.len() == STATIONS_MAX && !levels.contains_key(&station) {
            return Ok(Answer::Full);
        }
        levels.insert(station.clone(), level);
        drop(levels);
        self.watchers.publish(&mut Tides::new(), Answer::At { station, level })?;
        Ok(Answer::Ok)
    }

    /// The station after `station` in alphabetical order, or the first one if it is `None`.
    pub(crate) fn after(&self, station: Option<&str>) -> Option<(Box<str>, i32)> {
        let from = station.map_or(Bound::Unbounded, Bound::Excluded);
        let levels = self.levels();
        let next = levels.range::<str, _>((from, Bound::Unbounded)).next();
        next.map(|(station, level)| (station.clone(), *level))
    }

    pub(crate) fn watchers(&self) -> &Group<Tides> {
        &self.watchers
    }

    /// Writes all levels to the file. It waits for the disk, so no loop may call it.
    pub(crate) fn save(&self) -> io::Result<()> {
        let text = self.levels().iter().fold(String::new(), |mut text, (station, level)| {
            let _ = writeln!(text, "{station} {level}");
            text
        });
        fs::write(&self.path, text)
    }

    fn levels(&self) -> MutexGuard<'_, BTreeMap<Box<str>, i32>> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whatever grows because peers say so has a bound.
const STATIONS_MAX: usize = 10_000;
