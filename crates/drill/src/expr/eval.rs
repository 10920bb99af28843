//! Running statements.

use std::cmp::Ordering;

use super::parse::{Node, Statement};
use super::value::{self, Value};
use super::{CodeError, Scope};

/// Lines that one script may print.
const MAX_LINES: usize = 10_000;
/// The longest of them; the rest is cut off.
const MAX_COLUMNS: usize = 1000;

pub(super) fn run(
    scope: &mut Scope,
    statement: &Statement,
    out: &mut Vec<String>,
) -> Result<(), CodeError> {
    match statement {
        Statement::Assert { condition, text, message } => {
            if evaluate(scope, condition)?.truth() {
                return Ok(());
            }
            let message = message.as_ref().map(|node| evaluate(scope, node)).transpose()?;
            let mut names = Vec::new();
            collect_names(condition, &mut names);
            let values = names.into_iter().filter_map(|name| {
                let value = scope.get(&name)?.to_string();
                Some((name, value))
            });
            Err(CodeError::Failed {
                condition: text.clone(),
                values: values.collect(),
                message: message.map(|value| value.to_string()),
            })
        }
        Statement::Assign { name, value } => {
            let value = evaluate(scope, value)?;
            scope.own.insert(name.clone(), value);
            Ok(())
        }
        Statement::Print(list) => {
            let parts: Result<Vec<String>, CodeError> =
                list.iter().map(|node| Ok(evaluate(scope, node)?.to_string())).collect();
            let line: String = parts?.join(" ").chars().take(MAX_COLUMNS).collect();
            if out.len() < MAX_LINES {
                out.push(line);
            }
            Ok(())
        }
        Statement::Bare(node) => evaluate(scope, node).map(drop),
    }
}

fn evaluate(scope: &Scope, node: &Node) -> Result<Value, CodeError> {
    match node {
        Node::Constant(value) => Ok(value.clone()),
        Node::Name(name) => scope
            .get(name)
            .cloned()
            .ok_or_else(|| CodeError::wrong(format!("there is no `{name}` in a code block"))),
        Node::Not(inner) => Ok(Value::Bool(!evaluate(scope, inner)?.truth())),
        Node::Unary(sign, inner) => unary(sign, &evaluate(scope, inner)?),
        Node::Binary(a, operator, b) => {
            value::binary(&evaluate(scope, a)?, operator, &evaluate(scope, b)?)
        }
        Node::Compare(first, rest) => compare(scope, first, rest),
        Node::And(a, b) => {
            let a = evaluate(scope, a)?;
            if a.truth() { evaluate(scope, b) } else { Ok(a) }
        }
        Node::Or(a, b) => {
            let a = evaluate(scope, a)?;
            if a.truth() { Ok(a) } else { evaluate(scope, b) }
        }
        Node::Tuple(list) => {
            let list: Result<Vec<Value>, CodeError> =
                list.iter().map(|node| evaluate(scope, node)).collect();
            Ok(Value::Tuple(list?))
        }
        Node::Call(name, arguments) => call(scope, name, arguments),
    }
}

fn compare(scope: &Scope, first: &Node, rest: &[(&'static str, Node)]) -> Result<Value, CodeError> {
    let mut left = evaluate(scope, first)?;
    for (operator, node) in rest {
        let right = evaluate(scope, node)?;
        let holds = match *operator {
            "==" => left.equals(&right),
            "!=" => !left.equals(&right),
            other => {
                let order = left.compare(&right).ok_or_else(|| {
                    CodeError::wrong(format!("{left} and {right} cannot be compared"))
                })?;
                match other {
                    "<" => order == Ordering::Less,
                    "<=" => order != Ordering::Greater,
                    ">" => order == Ordering::Greater,
                    _ => order != Ordering::Less,
                }
            }
        };
        if !holds {
            return Ok(Value::Bool(false));
        }
        left = right;
    }
    Ok(Value::Bool(true))
}

fn unary(sign: &str, value: &Value) -> Result<Value, CodeError> {
    let wrong = || CodeError::wrong(format!("`{sign}` cannot be applied to {value}"));
    match (sign, value.int(), value) {
        ("-", Some(int), _) => int.checked_neg().map(Value::Int).ok_or_else(wrong),
        ("+", Some(int), _) => Ok(Value::Int(int)),
        ("~", Some(int), _) => Ok(Value::Int(!int)),
        ("-", _, Value::Float(float)) => Ok(Value::Float(-float)),
        ("+", _, Value::Float(float)) => Ok(Value::Float(*float)),
        _ => Err(wrong()),
    }
}

fn call(scope: &Scope, name: &str, arguments: &[Node]) -> Result<Value, CodeError> {
    let values: Result<Vec<Value>, CodeError> =
        arguments.iter().map(|node| evaluate(scope, node)).collect();
    let values = values?;
    let wrong = || CodeError::wrong(format!("{name}() is not understood with these values"));
    match (name, values.as_slice()) {
        ("abs", [Value::Float(value)]) => Ok(Value::Float(value.abs())),
        ("abs", [value]) => {
            value.int().and_then(i64::checked_abs).map(Value::Int).ok_or_else(wrong)
        }
        ("int", [value]) => {
            let float = || value.float().map(|float| float as i64);
            value.int().or_else(float).map(Value::Int).ok_or_else(wrong)
        }
        ("float", [value]) => value.float().map(Value::Float).ok_or_else(wrong),
        ("str", [value]) => Ok(Value::Str(value.to_string())),
        ("min" | "max", [first, rest @ ..]) => {
            let mut best = first;
            for value in rest {
                let order = value.compare(best).ok_or_else(wrong)?;
                if (order == Ordering::Less) == (name == "min") && order != Ordering::Equal {
                    best = value;
                }
            }
            Ok(best.clone())
        }
        ("abs" | "int" | "float" | "str" | "min" | "max", _) => Err(wrong()),
        _ => Err(CodeError::wrong(format!("there is no function {name}() in a code block"))),
    }
}

/// The names in an expression, each once, in order.
fn collect_names(node: &Node, names: &mut Vec<String>) {
    match node {
        Node::Constant(_) => {}
        Node::Name(name) => {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Node::Not(inner) | Node::Unary(_, inner) => collect_names(inner, names),
        Node::Binary(a, _, b) | Node::And(a, b) | Node::Or(a, b) => {
            collect_names(a, names);
            collect_names(b, names);
        }
        Node::Compare(first, rest) => {
            collect_names(first, names);
            rest.iter().for_each(|(_, node)| collect_names(node, names));
        }
        Node::Tuple(list) | Node::Call(_, list) => {
            list.iter().for_each(|node| collect_names(node, names));
        }
    }
}
