//! Reports as one HTML page that needs nothing beside it.

use std::fmt::Write;

/// A whole page: its title, what stands below that, and all figures at the end.
pub(crate) fn page(title: &str, body: &str, json: &str) -> String {
    let (title, json) = (escaped(title), escaped(json));
    format!(
        "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>{title}</title>
<style>{STYLE}</style>
<h1>{title}</h1>
{body}<details><summary>All figures, in JSON</summary><pre>{json}</pre></details>
</html>
"
    )
}

/// A plot with a heading and a caption.
pub(crate) fn section(body: &mut String, title: &str, caption: &str, svg: &str) {
    let caption = escaped(caption);
    // Writing to a string does not fail.
    let _ = write!(
        body,
        "<h2>{title}</h2>\n<figure role=\"img\" aria-label=\"{caption}\">\n{svg}\n\
         <figcaption>{caption}</figcaption></figure>\n"
    );
}

/// Lines as items of a list.
pub(crate) fn items(lines: &[String]) -> String {
    lines
        .iter()
        .map(|line| format!("<li>{}</li>\n", escaped(line)))
        .collect()
}

/// A table; a cell may have several lines.
pub(crate) fn table(head: &[impl AsRef<str>], rows: &[Vec<String>]) -> String {
    let head = cells("th", head);
    let body: String = rows.iter().map(|row| cells("td", row)).collect();
    format!("<table>\n<thead>{head}</thead>\n<tbody>{body}</tbody>\n</table>")
}

fn cells(tag: &str, cells: &[impl AsRef<str>]) -> String {
    let cells = cells.iter().map(|cell| escaped(cell.as_ref()));
    let cells = cells.map(|cell| format!("<{tag}>{}</{tag}>", cell.replace('\n', "<br>")));
    format!("<tr>{}</tr>\n", cells.collect::<String>())
}

/// Text as HTML shows it: names of machines and errors come from outside.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2rem }
.machines { color: #555 } .wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid #ddd; white-space: nowrap }
figure { margin: 0 } figcaption { color: #555; font-size: .9rem } svg { max-width: 100%; height: auto }
pre { overflow-x: auto; background: #f6f6f6; padding: 1rem; font-size: .8rem }
";
