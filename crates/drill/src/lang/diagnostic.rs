//! What is wrong with a script, and where.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet, normalize_untrusted_str};

use super::ast::Span;

/// Whether a message may have colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// Text only.
    #[default]
    Plain,
    /// With the escape sequences of a terminal.
    Ansi,
}

/// A message about a place in a script.
///
/// ```
/// use plimsoll_drill::lang::Diagnostic;
///
/// let text = "0 > S 0:0(0)\n";
/// let told = Diagnostic::new(4..5, "another packet came")
///     .label("a SYN was expected")
///     .note("came: R. 0:0(0) ack 1")
///     .help("is somebody listening?")
///     .render("one.pkt", text);
/// assert!(told.contains("--> one.pkt:1:5"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The place.
    pub span: Span,
    /// What is wrong, in one line.
    pub message: String,
    /// What could be done about it.
    pub help: Option<String>,
    parts: Vec<Part>,
}

/// What else a message says. One list for all keeps the type small.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Label(String),
    Context(Span, String),
    Note(String),
}

impl Diagnostic {
    /// A message without anything else.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None, parts: Vec::new() }
    }

    /// Says what could be done about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Writes something beside the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.parts.push(Part::Label(label.into()));
        self
    }

    /// Points at another place that has to do with it.
    #[must_use]
    pub fn context(mut self, span: Span, label: impl Into<String>) -> Self {
        self.parts.push(Part::Context(span, label.into()));
        self
    }

    /// Adds a line, or several, below the piece of the script.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.parts.push(Part::Note(note.into()));
        self
    }

    /// The message with the lines of the script that it is about.
    #[must_use]
    pub fn render(&self, file_name: &str, text: &str) -> String {
        self.render_in(file_name, text, Colour::Plain)
    }

    /// The same, with colours if wanted.
    #[must_use]
    pub fn render_in(&self, file_name: &str, text: &str, colour: Colour) -> String {
        let mut primary = AnnotationKind::Primary.span(within(text, &self.span));
        let mut contexts = Vec::new();
        let mut notes = Vec::new();
        for part in &self.parts {
            match part {
                Part::Label(label) => primary = primary.label(normalize_untrusted_str(label)),
                Part::Context(span, label) => contexts.push(
                    AnnotationKind::Context
                        .span(within(text, span))
                        .label(normalize_untrusted_str(label)),
                ),
                Part::Note(note) => notes.push(Level::NOTE.message(clean(note))),
            }
        }
        let snippet =
            Snippet::source(text).path(file_name).annotation(primary).annotations(contexts);
        let mut group: Group<'_> = Level::ERROR
            .primary_title(normalize_untrusted_str(&self.message))
            .element(snippet)
            .elements(notes);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(clean(help)));
        }
        let renderer = match colour {
            Colour::Plain => Renderer::plain(),
            Colour::Ansi => Renderer::styled(),
        };
        renderer.render(&[group])
    }

    /// The line of the script, counted from 1, that the message is about.
    #[must_use]
    pub fn line(&self, text: &str) -> usize {
        let end = within(text, &self.span).start;
        1 + text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count()
    }
}

/// Text without control characters, but with its lines.
fn clean(text: &str) -> String {
    text.split('\n').map(normalize_untrusted_str).collect::<Vec<_>>().join("\n")
}

/// The same range, so that it can be cut out of `text`.
fn within(text: &str, span: &Span) -> Span {
    let start = text.floor_char_boundary(span.start.min(text.len()));
    let end = text.ceil_char_boundary(span.end.clamp(start, text.len()));
    start..end
}
