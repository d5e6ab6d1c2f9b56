//! The tokens of a zone file, with their lines and columns.
//!
//! Quotes, escapes, parentheses and comments are those of RFC 1035 §5.1. A token keeps its escapes, since names and texts
//! treat them alike but at different times.

/// A word of a zone file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// The text, with its escapes, without its quotes.
    pub(crate) text: &'a str,
    /// Whether it was quoted.
    pub(crate) is_quoted: bool,
    /// The line, counted from 1.
    pub(crate) line: usize,
    /// The column in bytes, counted from 1.
    pub(crate) column: usize,
}

/// Why a text has no tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LexError {
    /// A quote is not closed within its line.
    Quote,
    /// A parenthesis is not closed, or none is open.
    Parenthesis,
}

/// Makes entries of a text: an entry is a line, or several within parentheses.
#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    line_start: usize,
}

/// An entry of a zone file.
#[derive(Debug)]
pub(crate) struct ZoneEntry<'a> {
    pub(crate) tokens: Vec<Token<'a>>,
    /// Whether the line begins with a space or a tab, so that the owner is that of the entry before.
    pub(crate) is_indented: bool,
}

/// An error and its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LexRefused {
    pub(crate) error: LexError,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, at: 0, line: 1, line_start: 0 }
    }

    fn refused(&self, error: LexError) -> LexRefused {
        LexRefused { error, line: self.line, column: self.at - self.line_start + 1 }
    }

    /// The next entry with a token; `None` at the end of the text.
    pub(crate) fn next_entry(&mut self) -> Option<Result<ZoneEntry<'a>, LexRefused>> {
        loop {
            if self.at >= self.text.len() {
                return None;
            }
            match self.entry() {
                Ok(entry) if entry.tokens.is_empty() => {}
                other => return Some(other),
            }
        }
    }

    fn entry(&mut self) -> Result<ZoneEntry<'a>, LexRefused> {
        let bytes = self.text.as_bytes();
        let is_indented = matches!(bytes.get(self.at), Some(b' ' | b'\t'));
        let (mut tokens, mut depth) = (Vec::new(), 0_usize);
        let mut opened = self.refused(LexError::Parenthesis);
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    self.line_start = self.at;
                    if depth == 0 {
                        return Ok(ZoneEntry { tokens, is_indented });
                    }
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b';' => self.at += bytes[self.at..].iter().take_while(|byte| **byte != b'\n').count(),
                b'(' => {
                    opened = self.refused(LexError::Parenthesis);
                    depth += 1;
                    self.at += 1;
                }
                b')' => {
                    depth = depth.checked_sub(1).ok_or_else(|| self.refused(LexError::Parenthesis))?;
                    self.at += 1;
                }
                b'"' => tokens.push(self.quoted()?),
                _ => tokens.push(self.word()),
            }
        }
        if depth > 0 { Err(opened) } else { Ok(ZoneEntry { tokens, is_indented }) }
    }

    fn token(&self, start: usize, end: usize, is_quoted: bool) -> Token<'a> {
        let column = start - self.line_start + 1;
        Token { text: &self.text[start..end], is_quoted, line: self.line, column }
    }

    /// A text within quotes, in one line.
    fn quoted(&mut self) -> Result<Token<'a>, LexRefused> {
        let (bytes, start) = (self.text.as_bytes(), self.at + 1);
        let mut at = start;
        loop {
            match bytes.get(at) {
                None | Some(b'\n') => return Err(self.refused(LexError::Quote)),
                Some(b'"') => break,
                Some(b'\\') if !matches!(bytes.get(at + 1), None | Some(b'\n')) => at += 2,
                Some(_) => at += 1,
            }
        }
        let token = self.token(start, at, true);
        self.at = at + 1;
        Ok(token)
    }

    /// A word without quotes. Quotes within it are part of it, as in `alpn="h2,h3"`.
    fn word(&mut self) -> Token<'a> {
        let (bytes, start) = (self.text.as_bytes(), self.at);
        let (mut at, mut is_quoting) = (start, false);
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'\n' => break,
                b'\\' if !matches!(bytes.get(at + 1), None | Some(b'\n')) => at += 1,
                b'"' => is_quoting = !is_quoting,
                b' ' | b'\t' | b'\r' | b';' | b'(' | b')' if !is_quoting => break,
                _ => {}
            }
            at += 1;
        }
        // An escape steps over the first byte of a character, whose end is found here.
        while !self.text.is_char_boundary(at) {
            at += 1;
        }
        self.at = at;
        self.token(start, at, false)
    }
}

/// The tokens of one entry.
pub(crate) fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let mut lexer = Lexer::new(text);
    match lexer.next_entry() {
        None => Some(Vec::new()),
        Some(Ok(entry)) if lexer.next_entry().is_none() => Some(entry.tokens),
        Some(_) => None,
    }
}
