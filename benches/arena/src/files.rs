//! The twenty files of `/static`: 842 KB without a pattern that matters, the same in each run.

use std::io;
use std::path::Path;

use tidegate::compress::{Algorithm, Compression, Compressor};

/// Writes the files into a folder, unless they are there.
///
/// # Errors
/// If a file cannot be written.
pub fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, length) in FILES {
        if std::fs::metadata(folder.join(name)).is_ok_and(|there| there.len() == *length as u64) {
            continue;
        }
        write_whole(folder, name, &content(name, *length))?;
    }
    Ok(())
}

/// Writes variants of the files of text into a folder, in brotli and gzip, unless they are there.
///
/// # Errors
/// If a file cannot be written.
pub fn write_variants(folder: &Path) -> io::Result<()> {
    let texts = FILES.iter().filter(|(name, _)| TEXTS.iter().any(|suffix| name.ends_with(suffix)));
    for (name, length) in texts {
        for (suffix, algorithm, level) in [("br", Algorithm::Brotli, 11), ("gz", Algorithm::Gzip, 9)] {
            let name_of_variant = format!("{name}.{suffix}");
            if folder.join(&name_of_variant).exists() {
                continue;
            }
            let mut variant = Vec::new();
            let mut compressor = Compressor::new(Compression::new(algorithm).level(level));
            compressor.finish_with(&content(name, *length), &mut variant).map_err(io::Error::other)?;
            write_whole(folder, &name_of_variant, &variant)?;
        }
    }
    Ok(())
}

/// Renamed into its place, so that another server never sends a part of it.
fn write_whole(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let unfinished = folder.join(format!(".{name}.{}", std::process::id()));
    std::fs::write(&unfinished, content)?;
    std::fs::rename(unfinished, folder.join(name))
}

/// The content of a file: words in an order that depends on its name.
#[must_use]
pub fn content(name: &str, length: usize) -> Vec<u8> {
    let mut state = name.bytes().fold(7_u32, |state, byte| state.wrapping_mul(31).wrapping_add(byte.into()));
    let mut content = Vec::with_capacity(length + 8);
    while content.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        content.extend_from_slice(WORDS[(state >> 28) as usize].as_bytes());
    }
    content.truncate(length);
    content
}

/// Names, and lengths in bytes.
pub const FILES: &[(&str, usize)] = &[
    ("app.css", 48_000),
    ("reset.css", 3_000),
    ("theme.css", 22_000),
    ("app.js", 120_000),
    ("vendor.js", 300_000),
    ("router.js", 18_000),
    ("worker.js", 9_000),
    ("index.html", 12_000),
    ("about.html", 8_000),
    ("help.html", 16_000),
    ("regular.woff2", 32_000),
    ("bold.woff2", 34_000),
    ("logo.svg", 4_000),
    ("icons.svg", 28_000),
    ("map.svg", 40_000),
    ("hero.webp", 64_000),
    ("thumb.webp", 11_000),
    ("photo.webp", 45_000),
    ("manifest.json", 3_000),
    ("strings.json", 25_000),
];

/// Ends of the names of files that are worth compressing.
const TEXTS: [&str; 5] = [".css", ".js", ".html", ".svg", ".json"];

const WORDS: [&str; 16] = [
    "tide ", "gate ", "water\n", "moon ", "ebb ", "flow ", "spring ", "neap\n", "shore ", "harbour ", "buoy ", "lock ",
    "quay\n", "weir ", "sluice ", "level ",
];
