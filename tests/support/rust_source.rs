//! Reads Rust text just well enough to tell which rooms it reaches into.
//!
//! No full parser: comments, strings and character literals are blanked, then
//! paths that start at the crate's root are picked up, written as `crate::` or
//! as enough `super::`.

/// The text with comments, strings and character literals blanked; the length
/// in characters and the line breaks stay, so positions still tell lines.
pub(crate) fn code_of(text: &str) -> String {
    let mut rest: &str = text;
    let mut code = String::with_capacity(text.len());
    while let Some(first) = rest.chars().next() {
        let length = literal_length(rest, code.chars().next_back());
        if length == 0 {
            code.push(first);
            rest = rest.strip_prefix(first).unwrap_or_default();
            continue;
        }
        let (literal, after) = rest.split_at(length);
        code.extend(literal.chars().map(|c| if c == '\n' { c } else { ' ' }));
        rest = after;
    }
    code
}

/// Bytes of the comment or literal that `rest` starts with; 0: it starts with code.
fn literal_length(rest: &str, before: Option<char>) -> usize {
    let until = |end: &str, skip: usize| {
        rest.get(skip..)
            .and_then(|inside| inside.find(end))
            .map_or(rest.len(), |at| skip + at + end.len())
    };
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return until("*/", 2);
    }
    if rest.starts_with('"') {
        return escaped_length(rest, '"');
    }
    if rest.starts_with("r\"") || rest.starts_with("r#") {
        let hashes = rest.chars().skip(1).take_while(|&c| c == '#').count();
        let is_raw_string = rest.chars().nth(hashes + 1) == Some('"');
        let is_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        if is_raw_string && !is_name {
            return until(&format!("\"{}", "#".repeat(hashes)), hashes + 2);
        }
    }
    // A lifetime has no closing quote after one character.
    let is_character = rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'');
    if rest.starts_with('\'') && is_character {
        return escaped_length(rest, '\'');
    }
    0
}

/// Bytes of a literal between two `quote`s with backslash escapes.
fn escaped_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// The first segments, with their lines, of all paths from the crate's root in
/// `code`, a blanked file `depth` modules below that root.
pub(crate) fn rooms_reached(code: &str, depth: usize) -> Vec<(usize, String)> {
    let tokens = tokens(code);
    let mut reached = Vec::new();
    let mut inline_modules: Vec<usize> = Vec::new();
    let mut braces = 0_usize;
    let mut at = 0;
    while let Some(&(line, token)) = tokens.get(at) {
        let word = |n: usize| tokens.get(at + n).map_or("", |&(_, token)| token);
        match token {
            "{" => {
                if at >= 2 && tokens.get(at - 2).is_some_and(|&(_, t)| t == "mod") {
                    inline_modules.push(braces);
                }
                braces += 1;
            }
            "}" => {
                braces = braces.saturating_sub(1);
                if inline_modules.last() == Some(&braces) {
                    inline_modules.pop();
                }
            }
            "crate" | "super" if word(1) == "::" => {
                let mut ups = usize::from(token == "super");
                let mut next = at + 2;
                while tokens.get(next).is_some_and(|&(_, t)| t == "super") {
                    ups += 1;
                    next += 2;
                }
                if token == "crate" || ups >= depth + inline_modules.len() {
                    let names = first_segments(tokens.get(next..).unwrap_or_default());
                    reached.extend(names.into_iter().map(|name| (line, name)));
                }
                // A group's braces are walked over like any others.
                at = next;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    reached
}

/// The names a path or a group of paths starts with.
fn first_segments(tokens: &[(usize, &str)]) -> Vec<String> {
    let Some(&(_, first)) = tokens.first() else {
        return Vec::new();
    };
    if first != "{" {
        return vec![first.to_owned()];
    }
    let mut names = Vec::new();
    let mut depth = 0_usize;
    let mut is_first = false;
    for &(_, token) in tokens {
        match token {
            "{" => {
                depth += 1;
                is_first = depth == 1;
            }
            "}" => depth = depth.saturating_sub(1),
            "," => is_first = depth == 1,
            name if is_first && depth == 1 => {
                names.push(name.to_owned());
                is_first = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// Words, `::` and single marks, each with its line from 1.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    for (number, text) in code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let length = if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            let (token, after) = rest.split_at(length);
            tokens.push((number + 1, token));
            rest = after.trim_start();
        }
    }
    tokens
}
