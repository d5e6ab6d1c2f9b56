//! The names of included files: `*` and `?` in the last part of a path.

use std::io;
use std::path::{Path, PathBuf};

/// The files that a pattern names, sorted; the path itself if it has neither `*` nor `?`.
///
/// # Errors
/// If the folder cannot be read, or has too many files. A folder that does not exist has none.
pub(super) fn expand(pattern: &Path, files_max: usize) -> io::Result<Vec<PathBuf>> {
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !name.contains(['*', '?']) {
        return Ok(vec![pattern.to_owned()]);
    }
    let folder = pattern.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let matches = entry.file_name().to_str().is_some_and(|file| !file.starts_with('.') && is_match(name, file));
        if matches {
            found.push(pattern.with_file_name(entry.file_name()));
        }
        if found.len() > files_max {
            return Err(io::Error::other(format!("more than {files_max} files")));
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a name matches: `*` stands for any characters, `?` for one. The time is the product of the lengths at most.
fn is_match(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == name[read] => (at, read) = (at + 1, read + 1),
            _ => {
                let Some((star_at, from)) = star else { return false };
                star = Some((star_at, from + 1));
                (at, read) = (star_at + 1, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn stars_and_question_marks_match_names() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", true),
            ("*.toml", "a.tom", false),
            ("a?c*", "abc", true),
            ("a?c*", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }
}
