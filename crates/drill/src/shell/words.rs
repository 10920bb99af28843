//! Cutting shell text into commands and words.

/// How a command hangs together with the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// In any case: a new line or `;`.
    Then,
    /// If the one before went well: `&&`.
    IfWell,
    /// If the one before failed: `||`.
    IfFailed,
}

/// A command, or several with pipes between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pipeline {
    pub(super) link: Link,
    /// The words of each command; the first one of each is its name.
    pub(super) stages: Vec<Vec<String>>,
    /// Standard output goes into this file.
    pub(super) output: Option<String>,
    /// Complaints are thrown away.
    pub(super) hush: bool,
}

/// The most that a script may say in one piece.
const MAX_TEXT: usize = 256 * 1024;

/// All pipelines of `text`.
pub(super) fn pipelines(text: &str) -> Result<Vec<Pipeline>, String> {
    if text.len() > MAX_TEXT {
        return Err("the shell lines are too long".to_owned());
    }
    let mut cutter = Cutter { chars: text.chars().collect(), at: 0, ..Cutter::default() };
    cutter.all()?;
    Ok(cutter.done)
}

#[derive(Default)]
struct Cutter {
    chars: Vec<char>,
    at: usize,
    done: Vec<Pipeline>,
    link: Option<Link>,
    stages: Vec<Vec<String>>,
    words: Vec<String>,
    word: Option<String>,
    output: Option<String>,
    hush: bool,
    /// The next word is the name of a file that output goes to.
    redirect: Option<Redirect>,
}

#[derive(Clone, Copy)]
enum Redirect {
    Output,
    Errors,
    Both,
    Input,
}

impl Cutter {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        let mut chars = self.chars.get(self.at..).unwrap_or_default().iter();
        text.chars().all(|wanted| chars.next() == Some(&wanted))
    }

    fn all(&mut self) -> Result<(), String> {
        while let Some(next) = self.peek() {
            match next {
                '\\' => {
                    self.at += 1;
                    match self.peek() {
                        Some('\n') | None => {}
                        Some(other) => self.push(other),
                    }
                    self.at += 1;
                }
                '\'' | '"' => self.quoted(next)?,
                '$' => self.dollar()?,
                '#' if self.word.is_none() => {
                    while self.peek().is_some_and(|next| next != '\n') {
                        self.at += 1;
                    }
                }
                ' ' | '\t' | '\r' => {
                    self.at += 1;
                    self.end_word();
                }
                '\n' | ';' => {
                    self.at += 1;
                    self.end_pipeline(Link::Then);
                }
                '|' | '&' | '>' | '<' => self.operator()?,
                '`' | '(' | ')' => {
                    return Err(format!("`{next}` of the shell is not understood"));
                }
                other => {
                    self.push(other);
                    self.at += 1;
                }
            }
        }
        self.end_pipeline(Link::Then);
        Ok(())
    }

    fn push(&mut self, next: char) {
        self.word.get_or_insert_default().push(next);
    }

    fn operator(&mut self) -> Result<(), String> {
        // A digit before a redirection is the descriptor that it is about.
        let digit = self.word.as_deref().filter(|word| matches!(*word, "1" | "2"));
        let errors = digit == Some("2");
        if digit.is_some() && self.starts_with(">") {
            self.word = None;
        }
        let known: [(&str, Option<Redirect>); 8] = [
            ("||", None),
            ("&&", None),
            ("&>", Some(Redirect::Both)),
            (">&1", None),
            (">&2", None),
            (">", Some(if errors { Redirect::Errors } else { Redirect::Output })),
            ("<", Some(Redirect::Input)),
            ("|", None),
        ];
        let Some((text, redirect)) = known.into_iter().find(|(text, _)| self.starts_with(text))
        else {
            return Err("commands in the background (`&`) are not understood".to_owned());
        };
        self.at += text.len();
        self.end_word();
        match text {
            "||" => self.end_pipeline(Link::IfFailed),
            "&&" => self.end_pipeline(Link::IfWell),
            "|" => self.stages.push(std::mem::take(&mut self.words)),
            ">&1" => self.hush |= errors && self.output.is_some(),
            _ => self.redirect = redirect,
        }
        Ok(())
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        match self.redirect.take() {
            None => self.words.push(word),
            Some(Redirect::Output) => self.output = Some(word),
            Some(Redirect::Errors) => self.hush = true,
            Some(Redirect::Both) => {
                self.hush = true;
                self.output = Some(word);
            }
            Some(Redirect::Input) => {}
        }
    }

    fn end_pipeline(&mut self, next: Link) {
        self.end_word();
        self.redirect = None;
        let mut stages = std::mem::take(&mut self.stages);
        stages.push(std::mem::take(&mut self.words));
        stages.retain(|stage| !stage.is_empty());
        let link = self.link.unwrap_or(Link::Then);
        let output = self.output.take();
        let hush = std::mem::take(&mut self.hush);
        if stages.is_empty() {
            // An operator at the end of a line goes on in the next one.
            self.link =
                self.link.or(Some(next)).filter(|_| next != Link::Then || self.link.is_some());
            return;
        }
        self.link = Some(next);
        self.done.push(Pipeline { link, stages, output, hush });
    }

    fn quoted(&mut self, quote: char) -> Result<(), String> {
        self.at += 1;
        self.word.get_or_insert_default();
        while let Some(next) = self.peek() {
            match next {
                _ if next == quote => {
                    self.at += 1;
                    return Ok(());
                }
                '$' if quote == '"' => self.dollar()?,
                '\\' if quote == '"' => {
                    self.at += 1;
                    if let Some(next) = self.peek() {
                        self.push(next);
                        self.at += 1;
                    }
                }
                other => {
                    self.push(other);
                    self.at += 1;
                }
            }
        }
        Err(format!("a {quote} without its end in the shell lines"))
    }

    /// `$((...))` is worked out; variables stay as they are.
    fn dollar(&mut self) -> Result<(), String> {
        if self.starts_with("$((") {
            let rest: String = self.chars[self.at + 3..].iter().collect();
            let end = rest.find("))").ok_or("`$((` without its end in the shell lines")?;
            let value = arithmetic(&rest[..end])?;
            self.word.get_or_insert_default().push_str(&value.to_string());
            self.at += 3 + rest[..end].chars().count() + 2;
            return Ok(());
        }
        if self.starts_with("$(") {
            return Err("`$(...)` of the shell is not understood".to_owned());
        }
        self.push('$');
        self.at += 1;
        Ok(())
    }
}

/// Sums and products of whole numbers, with brackets.
fn arithmetic(text: &str) -> Result<i64, String> {
    let wrong = || format!("$(({text})) is not understood");
    let mut parser = Sum { bytes: text.as_bytes(), at: 0, depth: 0 };
    let value = parser.sum().ok_or_else(wrong)?;
    if parser.next().is_some() { Err(wrong()) } else { Ok(value) }
}

struct Sum<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u8,
}

impl Sum<'_> {
    fn next(&mut self) -> Option<u8> {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn sum(&mut self) -> Option<i64> {
        let mut value = self.product()?;
        while let Some(sign @ (b'+' | b'-')) = self.next() {
            self.at += 1;
            let other = self.product()?;
            value =
                if sign == b'+' { value.checked_add(other)? } else { value.checked_sub(other)? };
        }
        Some(value)
    }

    fn product(&mut self) -> Option<i64> {
        let mut value = self.atom()?;
        while let Some(sign @ (b'*' | b'/' | b'%')) = self.next() {
            self.at += 1;
            let other = self.atom()?;
            value = match sign {
                b'*' => value.checked_mul(other)?,
                b'/' => value.checked_div(other)?,
                _ => value.checked_rem(other)?,
            };
        }
        Some(value)
    }

    fn atom(&mut self) -> Option<i64> {
        if self.next()? == b'(' {
            self.depth += 1;
            if self.depth > 20 {
                return None;
            }
            self.at += 1;
            let value = self.sum()?;
            self.at += usize::from(self.next()? == b')');
            self.depth -= 1;
            return Some(value);
        }
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_alphanumeric) {
            self.at += 1;
        }
        let digits = std::str::from_utf8(&self.bytes[start..self.at]).ok()?;
        match digits.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        }
    }
}
