//! The frame of a page: one self-contained file, light and dark, for any width.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Colours as variables, so that charts can use them too. No font, image or script from elsewhere.
const STYLE: &str = "\
:root{color-scheme:light dark;--bg:#fdfcfa;--card:#fff;--ink:#1d2430;--dim:#5d6675;--line:#dcdfe5;\
--accent:#0b6e8f;--bad:#b3401f;--good:#2c7a4b}\
@media(prefers-color-scheme:dark){:root{--bg:#11151b;--card:#1a2028;--ink:#e4e8ee;--dim:#9aa5b4;\
--line:#313a46;--accent:#5cc1e0;--bad:#f08a66;--good:#6fcf97}}\
*{box-sizing:border-box}\
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\
main{max-width:64rem;margin:0 auto;padding:1.5rem 1rem 4rem}\
h1{font-size:1.6rem;line-height:1.2;margin:0 0 .5rem;overflow-wrap:anywhere}\
h2{font-size:1.2rem;margin:2rem 0 .5rem;overflow-wrap:anywhere}h3{font-size:1rem;margin:0}\
p{margin:.3rem 0}.dim{color:var(--dim)}\
.card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.8rem 1rem;\
margin:.8rem 0;overflow-wrap:anywhere}\
.cost{color:var(--bad);font-weight:600}.good{color:var(--good);font-weight:600}\
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}\
th,td{text-align:right;padding:.3rem .5rem;border-bottom:1px solid var(--line);\
font-variant-numeric:tabular-nums}th:first-child,td:first-child{text-align:left}\
th{font-weight:600;color:var(--dim)}\
.bar{height:.5rem;border-radius:.25rem;background:var(--accent);min-width:2px}\
summary{cursor:pointer;color:var(--accent)}code{font-size:.9em;overflow-wrap:anywhere}";

/// A whole page with `body` in its frame.
pub fn page(title: &str, body: &Markup) -> String {
    styled_page(title, "", body)
}

/// The same, with rules of its own behind those of the frame.
pub fn styled_page(title: &str, style: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                // Or browsers ask the server for an icon.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body { main { (body) } }
        }
    }
    .into_string()
}
