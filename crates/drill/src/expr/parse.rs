//! Tokens to statements.

use super::CodeError;
use super::lex::{self, Kind, Token};
use super::value::Value;

/// How deep brackets and operators may nest.
const MAX_DEPTH: usize = 48;
/// How many tokens a block may have.
const MAX_TOKENS: usize = 20_000;

/// One statement.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    Assert {
        condition: Node,
        text: String,
        message: Option<Node>,
    },
    Assign {
        name: String,
        value: Node,
    },
    Print(Vec<Node>),
    /// An expression whose value nobody wants.
    Bare(Node),
}

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Constant(Value),
    Name(String),
    Not(Box<Node>),
    Unary(&'static str, Box<Node>),
    Binary(Box<Node>, &'static str, Box<Node>),
    /// `a < b <= c`
    Compare(Box<Node>, Vec<(&'static str, Node)>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Tuple(Vec<Node>),
    Call(String, Vec<Node>),
}

/// The statements of a block.
pub(super) fn block(text: &str) -> Result<Vec<Statement>, CodeError> {
    let tokens = lex::tokens(text)?;
    if tokens.len() > MAX_TOKENS {
        return Err(CodeError::wrong("the block is too long"));
    }
    let mut parser = Parser { text, tokens: &tokens, at: 0, depth: 0 };
    let mut list = Vec::new();
    while parser.peek().is_some() {
        if parser.take_end() {
            continue;
        }
        list.push(parser.statement()?);
        if parser.peek().is_some() && !parser.take_end() {
            return Err(parser.unexpected("the end of the statement"));
        }
    }
    Ok(list)
}

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

/// Binary operators by how tightly they bind, loosest first.
const LEVELS: &[&[&str]] =
    &[&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "//", "%"]];
const COMPARISONS: &[&str] = &["==", "!=", "<", "<=", ">", ">="];
const ASSIGNMENTS: &[(&str, &str)] = &[
    ("+=", "+"),
    ("-=", "-"),
    ("*=", "*"),
    ("/=", "/"),
    ("//=", "//"),
    ("%=", "%"),
    ("&=", "&"),
    ("|=", "|"),
    ("^=", "^"),
    ("<<=", "<<"),
    (">>=", ">>"),
];

impl Parser<'_> {
    fn peek(&self) -> Option<&Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    fn take_end(&mut self) -> bool {
        let end = self.peek() == Some(&Kind::End);
        self.at += usize::from(end);
        end
    }

    fn take(&mut self, operator: &str) -> bool {
        let found = matches!(self.peek(), Some(Kind::Op(found)) if *found == operator);
        self.at += usize::from(found);
        found
    }

    fn take_any(&mut self, operators: &[&'static str]) -> Option<&'static str> {
        let found = operators.iter().find(|operator| self.take(operator));
        found.copied()
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Some(Kind::Name(found)) if found == name);
        self.at += usize::from(found);
        found
    }

    fn unexpected(&self, wanted: &str) -> CodeError {
        let found = match self.tokens.get(self.at) {
            Some(token) if token.kind != Kind::End => {
                format!("`{}`", &self.text[token.start..token.end])
            }
            _ => "the end".to_owned(),
        };
        CodeError::wrong(format!("{wanted} was expected in the code block, not {found}"))
    }

    fn statement(&mut self) -> Result<Statement, CodeError> {
        if self.take_name("assert") {
            return self.assertion();
        }
        if self.take_name("pass") {
            return Ok(Statement::Bare(Node::Constant(Value::None)));
        }
        if let Some(Kind::Name(name)) = self.peek() {
            let name = name.clone();
            const UNKNOWN: &[&str] =
                &["if", "for", "while", "def", "import", "from", "class", "try", "with", "return"];
            if UNKNOWN.contains(&name.as_str()) {
                let text = format!("`{name}` is more Python than is understood in a code block");
                return Err(CodeError::wrong(text));
            }
            let before = self.at;
            self.at += 1;
            if self.take("=") {
                return Ok(Statement::Assign { name, value: self.tuple()? });
            }
            if let Some((_, operator)) = ASSIGNMENTS.iter().find(|(text, _)| self.take(text)) {
                let old = Box::new(Node::Name(name.clone()));
                let value = Node::Binary(old, operator, Box::new(self.expression()?));
                return Ok(Statement::Assign { name, value });
            }
            self.at = before;
        }
        match self.tuple()? {
            Node::Call(name, arguments) if name == "print" => Ok(Statement::Print(arguments)),
            other => Ok(Statement::Bare(other)),
        }
    }

    fn assertion(&mut self) -> Result<Statement, CodeError> {
        let start = self.tokens.get(self.at).map_or(0, |token| token.start);
        let condition = self.expression()?;
        let end = self.tokens[..self.at].last().map_or(start, |token| token.end);
        let text = self.text.get(start..end).unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let message = if self.take(",") { Some(self.tuple()?) } else { None };
        Ok(Statement::Assert { condition, text, message })
    }

    /// Expressions with commas between them.
    fn tuple(&mut self) -> Result<Node, CodeError> {
        let first = self.expression()?;
        if !self.take(",") {
            return Ok(first);
        }
        let mut list = vec![first];
        while !matches!(self.peek(), None | Some(Kind::End | Kind::Op(")"))) {
            list.push(self.expression()?);
            if !self.take(",") {
                break;
            }
        }
        Ok(Node::Tuple(list))
    }

    fn expression(&mut self) -> Result<Node, CodeError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(CodeError::wrong("the expression is nested too deeply"));
        }
        let node = self.disjunction();
        self.depth -= 1;
        node
    }

    fn disjunction(&mut self) -> Result<Node, CodeError> {
        let mut node = self.conjunction()?;
        let mut links = 0;
        while self.take_name("or") {
            links = self.count(links)?;
            node = Node::Or(Box::new(node), Box::new(self.conjunction()?));
        }
        Ok(node)
    }

    fn conjunction(&mut self) -> Result<Node, CodeError> {
        let mut node = self.negation()?;
        let mut links = 0;
        while self.take_name("and") {
            links = self.count(links)?;
            node = Node::And(Box::new(node), Box::new(self.negation()?));
        }
        Ok(node)
    }

    /// A chain of operators is a deep tree, which is evaluated by recursion.
    fn count(&self, links: usize) -> Result<usize, CodeError> {
        if links >= 500 {
            return Err(CodeError::wrong("the expression is too long"));
        }
        Ok(links + 1)
    }

    fn negation(&mut self) -> Result<Node, CodeError> {
        let mut negative = false;
        let mut any = false;
        while self.take_name("not") {
            negative = !negative;
            any = true;
        }
        let node = self.comparison()?;
        let once = |node: Node| Node::Not(Box::new(node));
        Ok(match (any, negative) {
            (false, _) => node,
            (true, true) => once(node),
            (true, false) => once(once(node)),
        })
    }

    fn comparison(&mut self) -> Result<Node, CodeError> {
        let first = self.binary(0)?;
        let mut rest = Vec::new();
        while let Some(operator) = self.take_any(COMPARISONS) {
            rest.push((operator, self.binary(0)?));
        }
        Ok(if rest.is_empty() { first } else { Node::Compare(Box::new(first), rest) })
    }

    fn binary(&mut self, level: usize) -> Result<Node, CodeError> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut node = self.binary(level + 1)?;
        let mut links = 0;
        while let Some(operator) = self.take_any(operators) {
            links = self.count(links)?;
            node = Node::Binary(Box::new(node), operator, Box::new(self.binary(level + 1)?));
        }
        Ok(node)
    }

    fn unary(&mut self) -> Result<Node, CodeError> {
        let mut signs = Vec::new();
        while let Some(sign) = self.take_any(&["-", "+", "~"]) {
            self.count(signs.len())?;
            signs.push(sign);
        }
        let mut node = self.primary()?;
        while let Some(sign) = signs.pop() {
            node = Node::Unary(sign, Box::new(node));
        }
        Ok(node)
    }

    fn primary(&mut self) -> Result<Node, CodeError> {
        if self.take("(") {
            if self.take(")") {
                return Ok(Node::Tuple(Vec::new()));
            }
            let node = self.tuple()?;
            return if self.take(")") { Ok(node) } else { Err(self.unexpected("`)`")) };
        }
        let constant = match self.peek() {
            Some(Kind::Int(value)) => Value::Int(*value),
            Some(Kind::Float(value)) => Value::Float(*value),
            Some(Kind::Str(value)) => Value::Str(value.clone()),
            Some(Kind::Name(name)) => match name.as_str() {
                "True" => Value::Bool(true),
                "False" => Value::Bool(false),
                "None" => Value::None,
                _ => {
                    let name = name.clone();
                    self.at += 1;
                    return self.name_or_call(name);
                }
            },
            _ => return Err(self.unexpected("a value")),
        };
        self.at += 1;
        Ok(Node::Constant(constant))
    }

    fn name_or_call(&mut self, name: String) -> Result<Node, CodeError> {
        if !self.take("(") {
            return Ok(Node::Name(name));
        }
        let mut arguments = Vec::new();
        while !self.take(")") {
            if !arguments.is_empty() && !self.take(",") {
                return Err(self.unexpected("`,` or `)`"));
            }
            if self.take(")") {
                break;
            }
            arguments.push(self.expression()?);
        }
        Ok(Node::Call(name, arguments))
    }
}
