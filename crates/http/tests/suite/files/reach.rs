//! Names that reach a file, and names that do not.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tidegate::http::{Files, Router};

use super::folder::{Folder, ask, content, exists, get};
use crate::support::start;

#[test]
fn a_file_is_sent_with_its_validators() {
    let folder = Folder::new();
    let bytes = content(300_000);
    folder.write("css/tides.css", &bytes);
    folder.write("empty", "");
    let server = folder.serve(|files| files.cache_control("public, max-age=60"));
    let got = get(&server, "/css/tides.css");
    assert_eq!(got.status, 200, "{}", got.head);
    assert_eq!(got.field("Content-Type"), Some("text/css; charset=utf-8"));
    assert_eq!(got.field("Content-Length"), Some("300000"));
    assert_eq!(got.field("Accept-Ranges"), Some("bytes"));
    assert_eq!(got.field("X-Content-Type-Options"), Some("nosniff"));
    assert_eq!(got.field("Cache-Control"), Some("public, max-age=60"));
    assert_eq!(got.field("Vary"), None);
    assert!(got.field("ETag").unwrap().starts_with('"') && got.field("Last-Modified").unwrap().ends_with(" GMT"));
    assert_eq!(got.body, bytes);
    let head = ask(&server, "HEAD", "/css/tides.css", &[]);
    assert_eq!((head.status, head.field("Content-Length"), head.body.len()), (200, Some("300000"), 0));
    assert_eq!(head.field("ETag"), got.field("ETag"));
    let empty = get(&server, "/empty");
    assert_eq!((empty.status, empty.field("Content-Length"), empty.body.len()), (200, Some("0"), 0));
    assert_eq!(empty.field("Content-Type"), Some("application/octet-stream"));
}

#[test]
fn names_are_decoded_once() {
    let folder = Folder::new();
    folder.write("a b.txt", "space");
    folder.write("é.txt", "accent");
    folder.write("50%25.txt", "percent");
    folder.write("x;y=1", "semicolon");
    let server = folder.serve(|files| files);
    for (path, expected) in [
        ("/a%20b.txt", "space"),
        ("/%61%20b%2etxt", "space"),
        ("/%C3%A9.txt", "accent"),
        ("/50%2525.txt", "percent"),
        ("/x;y=1", "semicolon"),
        ("/a%20b.txt?version=2", "space"),
    ] {
        let got = get(&server, path);
        assert_eq!((got.status, got.text()), (200, expected), "{path}");
    }
}

#[test]
fn no_encoding_of_a_path_leaves_the_root() {
    let folder = Folder::new();
    folder.write("a/file", "inside");
    folder.write("back\\slash", "inside");
    let files = folder.files().dot_files(true);
    let server = start(move || Router::new().nest_files("/static", files.clone()).fallback(|| "fallback"));
    let up = [
        "..",
        "%2e%2e",
        "%2E%2e",
        ".%2e",
        "%2e.",
        "%252e%252e",
        "..%00",
        "%c0%ae%c0%ae",
        "%e0%80%ae%e0%80%ae",
        "%u002e.",
    ];
    let slashes = ["/", "%2f", "%2F", "%5c", "\\", "%c0%af", "%e0%80%af", "%252f", "//", "/./", "%00/"];
    for one in up {
        for slash in slashes {
            for path in [
                format!("/static/{one}{slash}secret"),
                format!("/static/a{slash}{one}{slash}{one}{slash}secret"),
                format!("/static{slash}{one}{slash}secret"),
                format!("/static/a/{one}{slash}file"),
                format!("/static/{one}{slash}{one}{slash}{one}{slash}{one}{slash}{one}{slash}etc/passwd"),
            ] {
                let got = get(&server, &path);
                let is_refused = got.status == 404 || got.status == 400 || got.text() == "fallback";
                assert!(is_refused, "{path}: {} {}", got.head, got.text());
            }
        }
    }
    for path in [
        "/static//etc/passwd",
        "/static/%2fetc/passwd",
        "/static/a//file",
        "/static/./a/file",
        "/static/a/file/",
        "/static/a%2ffile",
        "/static/back%5cslash",
        "/static/a/file%0a",
        "/static/%ff",
        "/static/%",
        "/static/a/fil%6",
    ] {
        let status = get(&server, path).status;
        // The codec refuses escapes that are not complete.
        assert!(matches!(status, 400 | 404), "{path}: {status}");
    }
    assert_eq!(get(&server, "/static/a/file").text(), "inside");
}

#[test]
fn links_are_followed_by_choice_and_only_within_the_root() {
    let folder = Folder::new();
    folder.write("inner/file", "inside");
    symlink("inner/file", folder.root.join("link")).unwrap();
    symlink("inner", folder.root.join("folder-link")).unwrap();
    symlink("../secret", folder.root.join("out")).unwrap();
    symlink(folder.secret(), folder.root.join("absolute")).unwrap();
    symlink("/", folder.root.join("everything")).unwrap();
    symlink("/proc/self/cwd", folder.root.join("magic")).unwrap();
    symlink("loop", folder.root.join("loop")).unwrap();
    symlink("nowhere", folder.root.join("dangling")).unwrap();
    let outside = ["/out", "/absolute", "/everything/etc/passwd", "/magic/Cargo.toml", "/loop", "/dangling", "/loop/a"];
    let server = folder.serve(|files| files);
    for path in outside.iter().chain(&["/link", "/folder-link/file"]) {
        assert_eq!(get(&server, path).status, 404, "{path}");
    }
    let server = folder.serve(|files| files.follow_symlinks(true).unwrap());
    for path in outside {
        assert_eq!(get(&server, path).status, 404, "{path}");
    }
    for path in ["/link", "/folder-link/file", "/inner/file"] {
        assert_eq!(get(&server, path).text(), "inside", "{path}");
    }
}

#[test]
fn only_regular_files_are_served_and_nothing_blocks() {
    let folder = Folder::new();
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, folder.root.join("fifo"), FileType::Fifo, mode, 0).unwrap();
    let _listener = UnixListener::bind(folder.root.join("socket")).unwrap();
    let mut paths = vec!["/fifo", "/socket"];
    // The numbers of /dev/zero.
    match mknodat(CWD, folder.root.join("device"), FileType::CharacterDevice, mode, rustix::fs::makedev(1, 5)) {
        Ok(()) => paths.push("/device"),
        Err(error) => println!("skipped: a device cannot be made: {error}"),
    }
    let server = folder.serve(|files| files.precompressed(true).listing(true));
    for path in paths {
        assert!(exists(&folder.root.join(&path[1..])));
        assert_eq!(get(&server, path).status, 404, "{path}");
    }
    // The devices of the system, if the root is that of the system.
    let files = Files::new("/dev").unwrap();
    let server = start(move || Router::new().fallback(files.clone()));
    for path in ["/null", "/zero", "/tty", "/random"] {
        assert_eq!(get(&server, path).status, 404, "{path}");
    }
}

#[test]
fn dot_files_are_served_by_choice() {
    let folder = Folder::new();
    folder.write(".git/config", "hidden");
    folder.write(".env", "hidden");
    let paths = ["/.git/config", "/.env", "/%2eenv", "/%2Egit/config"];
    let server = folder.serve(|files| files);
    for path in paths {
        assert_eq!(get(&server, path).status, 404, "{path}");
    }
    let server = folder.serve(|files| files.dot_files(true));
    for path in paths {
        assert_eq!(get(&server, path).text(), "hidden", "{path}");
    }
}

#[test]
fn a_folder_has_its_index_and_a_slash_at_its_end() {
    let folder = Folder::new();
    folder.write("index.html", "root");
    folder.write("docs/index.html", "docs");
    folder.write("docs/home.htm", "home");
    folder.write("bare/file", "file");
    folder.write("odd/index.html/file", "file");
    let files = folder.files();
    let server = start(move || {
        Router::new().nest_files("/static", files.clone()).get("/files/{*path}", files.clone()).fallback(files.clone())
    });
    for (path, expected) in
        [("/", "root"), ("/docs/", "docs"), ("/static/", "root"), ("/static/docs/", "docs"), ("/files/docs/", "docs")]
    {
        let got = get(&server, path);
        assert_eq!((got.status, got.text()), (200, expected), "{path}: {}", got.head);
        assert_eq!(got.field("Content-Type"), Some("text/html; charset=utf-8"));
    }
    for (path, expected) in [
        ("/docs", "/docs/"),
        ("/docs?a=b&c=%2F", "/docs/?a=b&c=%2F"),
        ("/static", "/static/"),
        ("/static?q", "/static/?q"),
        ("/static/docs", "/static/docs/"),
        ("/d%6fcs", "/d%6fcs/"),
    ] {
        let got = get(&server, path);
        assert_eq!((got.status, got.field("Location")), (308, Some(expected)), "{path}");
    }
    for path in [
        "/bare/",
        "/static/bare/",
        "/odd/",
        "/docs/index.html/",
        "//docs",
        "//example.com",
        "//example.com/..",
        "/\\docs",
        "/\\example.com",
        "/%5cdocs",
        "//",
    ] {
        let got = get(&server, path);
        assert_eq!((got.status, got.field("Location")), (404, None), "{path}");
    }
    let server = folder.serve(|files| files.index(Some("home.htm")));
    assert_eq!(get(&server, "/docs/").text(), "home");
    let server = folder.serve(|files| files.index(None));
    assert_eq!(get(&server, "/docs/").status, 404);
}

#[test]
fn a_redirection_never_leads_to_another_host() {
    let folder = Folder::new();
    folder.write("docs/index.html", "docs");
    let files = folder.files();
    let server = start(move || Router::new().get("/{tenant}/{*path}", files.clone()));
    assert_eq!(get(&server, "/tenant/docs").field("Location"), Some("/tenant/docs/"));
    for path in ["/\\example.com/docs", "//example.com/docs"] {
        let got = get(&server, path);
        assert!(got.status >= 400 && got.field("Location").is_none(), "{path}: {}", got.head);
    }
}

#[test]
fn other_methods_are_refused_with_those_that_are_allowed() {
    let folder = Folder::new();
    folder.write("file", "file");
    let server = folder.serve(|files| files);
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"] {
        let got = ask(&server, method, "/file", &[]);
        assert_eq!((got.status, got.field("Allow")), (405, Some("GET, HEAD, OPTIONS")), "{method}");
    }
    let got = ask(&server, "OPTIONS", "/file", &[]);
    assert_eq!((got.status, got.field("Allow")), (204, Some("GET, HEAD, OPTIONS")));
}

#[test]
fn a_file_that_may_not_be_read_is_forbidden() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.write("private", "private");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    if fs::read(&path).is_ok() {
        println!("skipped: this user may read every file");
        return;
    }
    assert_eq!(get(&folder.serve(|files| files), "/private").status, 403);
}

#[test]
fn a_listing_shows_the_served_entries_with_escaped_names() {
    let folder = Folder::new();
    for name in ["b.txt", "a&<b>\"'.txt", "javascript:alert(1)", "50%.txt", ".hidden", "sub/file", "back\\slash"] {
        folder.write(name, "x");
    }
    symlink("b.txt", folder.root.join("link")).unwrap();
    mknodat(CWD, folder.root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let server = folder.serve(|files| files.listing(true));
    let got = get(&server, "/");
    let page = got.text();
    assert_eq!((got.status, got.field("Content-Type")), (200, Some("text/html; charset=utf-8")));
    for part in [
        "<a href=\"./b.txt\">b.txt</a>",
        "<a href=\"./a%26%3Cb%3E%22%27.txt\">a&amp;&lt;b&gt;&quot;&#39;.txt</a>",
        "<a href=\"./javascript:alert(1)\">",
        "<a href=\"./50%25.txt\">",
        "<a href=\"./sub/\">sub/</a>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for part in [".hidden", "link", "fifo", "back", "href=\"../\""] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    assert!(get(&server, "/sub/").text().contains("href=\"../\""));
    assert_eq!(get(&server, "/a%26%3Cb%3E%22%27.txt").status, 200);
    assert_eq!(get(&server, "/nowhere/").status, 404);
    let head = ask(&server, "HEAD", "/", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn a_listing_of_many_entries_is_bounded() {
    let folder = Folder::new();
    for number in 0..10_050 {
        fs::File::create(folder.root.join(format!("file-{number}"))).unwrap();
    }
    let server = folder.serve(|files| files.listing(true));
    let got = get(&server, "/");
    let page = String::from_utf8_lossy(&got.body);
    assert_eq!(page.matches("<li>").count(), 10_000);
    assert!(page.contains("more than 10000 entries"));
}
