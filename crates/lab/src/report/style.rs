//! Rules of the page that the frame does not have.

/// For the lab's report; charts bring their own.
pub(crate) const STYLE: &str = "\
:root{--was:#a3a9b5;--before:#8a7a5c;--best:#2c7a4b;--kern:#7a55a8;--tail:#d9701f;--hold:#e0b13c;\
--full:#0b6e8f}\
@media(prefers-color-scheme:dark){:root{--was:#6b7686;--before:#b7a27a;--best:#6fcf97;\
--kern:#b496e0;--tail:#f29b54;--hold:#c9992c;--full:#5cc1e0}}\
main{max-width:72rem}h2{margin:3rem 0 .3rem;font-size:1.35rem}h3{margin:1.4rem 0 .4rem}\
h4{font-size:.95rem;margin:0 0 .3rem}h4 .dim{font-weight:400}p{max-width:46rem}\
.lead{font-size:1.15rem}.lead a{color:var(--accent)}\
.small{font-size:.85rem}pre{overflow-x:auto;margin:.4rem 0}\
.pill{display:inline-block;border-radius:1rem;padding:0 .7rem;font-size:.9rem;font-weight:600;\
border:1px solid}.pill.yes{color:var(--good)}.pill.no{color:var(--bad)}\
.narrow{display:none}.over{width:100%;max-width:54rem;height:auto;display:block;\
margin:1.5rem 0}\
.sum td{vertical-align:top}.sum td:first-child,.sum td:last-child,.sum th:last-child\
{text-align:left}.sum a{color:var(--accent);font-weight:600;text-decoration:none}\
.sum td,.sum th{white-space:nowrap}.sum td:first-child{white-space:normal}\
.sum .sub{display:block;color:var(--dim);font-size:.85rem}\
.figures{max-width:60rem}.figures .sub{display:block;color:var(--dim);font-size:.85em}\
@media(min-width:60rem){.checks{columns:2;column-gap:3rem}.checks li{break-inside:avoid}}\
.figs{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr));\
margin:1rem 0}.fig{background:var(--card);border:1px solid var(--line);border-radius:.5rem;\
padding:.7rem .9rem}\
.bars{display:grid;grid-template-columns:7.6rem 1fr 4.8rem;gap:.5rem;align-items:center;\
font-size:.88rem;line-height:1.55}.bars .val{text-align:right;font-variant-numeric:tabular-nums}\
.track{display:block;height:.7rem}.fill{display:block;height:100%;border-radius:2px;\
min-width:2px}.fill.was{background:var(--was)}.fill.before{background:var(--before)}\
.fill.after{background:var(--accent)}.fill.best{background:var(--best)}\
.fill.kern{background:var(--kern)}\
.pair{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr))}\
figure{margin:0}figcaption{font-size:.9rem;margin:.2rem 0 .4rem}figcaption b{display:block}\
.seq{width:100%;max-width:30rem;height:auto;display:block}\
.seq text{font-size:12.5px;fill:var(--ink)}.seq .when{fill:var(--dim);font-size:12px}\
.seq .why{fill:var(--ink);font-size:12px;font-style:italic}.seq .rule{fill:var(--dim);\
font-size:12px;font-weight:600}.seq .end{font-weight:600;font-size:13px}\
.seq .lab{font-weight:500}.seq .life{stroke:var(--dim);stroke-width:1.5}\
.seq .gap{stroke:var(--bg);stroke-width:4}.seq .break{stroke:var(--dim);fill:none}\
.seq .hold{fill:var(--hold)}.seq .mark{fill:var(--bg);stroke:var(--dim);stroke-width:2}\
.seq .data .shaft{stroke:var(--full)}.seq .data polygon{fill:var(--full)}\
.seq .ack .shaft{stroke:var(--dim)}.seq .ack polygon{fill:var(--dim)}\
.seq .tail .shaft{stroke:var(--tail)}.seq .tail polygon{fill:var(--tail)}\
.seq line.tail{stroke:var(--tail)}.seq .cut{stroke:var(--bg);stroke-width:1.5}\
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.85rem;color:var(--dim);\
list-style:none;padding:0;margin:.5rem 0}.key i{display:inline-block;width:1.6rem;height:.55rem;\
border-radius:2px;margin-right:.4rem;vertical-align:middle}\
.key .rule{width:.6rem;height:.6rem;border:2px solid var(--dim);border-radius:50%;\
box-sizing:border-box}\
.checks{list-style:none;padding:0;margin:.4rem 0;font-size:.92rem}.checks li{display:grid;\
grid-template-columns:4.9rem 1fr;gap:.5rem;padding:.15rem 0}.checks .yes{color:var(--good);\
font-weight:600}.checks .no{color:var(--bad);font-weight:600}\
.notes{font-size:.92rem;padding-left:1.2rem;max-width:46rem}.notes li{margin:.2rem 0}\
.notes ul{padding-left:1.1rem}.notes a{color:var(--accent)}\
td.case{color:var(--dim);font-weight:600;padding-top:.8rem}details{margin:.6rem 0}\
.figures td,.figures th{white-space:nowrap;font-size:.9rem}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:.4rem 0}\
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}\
@media(max-width:60rem){.sum thead{display:none}\
.sum,.sum tbody,.sum tr,.sum td{display:block;width:auto}\
.sum tr{background:var(--card);border:1px solid var(--line);border-radius:.5rem;\
padding:.6rem .9rem;margin:.8rem 0}.sum td{display:grid;grid-template-columns:8rem 1fr;\
border:0;padding:.12rem 0;text-align:left}.sum td:before{content:attr(data-label);\
color:var(--dim)}.sum td:first-child{display:block;font-size:1.05rem}\
.sum td:first-child:before{content:none}}\
@media(max-width:48rem){.wide{display:none}.narrow{display:block}h2{margin-top:2.2rem}\
dl{grid-template-columns:1fr}dd{margin-bottom:.4rem}\
.figures td,.figures th{font-size:.8rem;padding:.3rem .25rem}\
.figures td:first-child{white-space:normal;min-width:5.6rem;overflow-wrap:normal}\
.figures td:last-child{white-space:normal}.ends{white-space:nowrap}\
.checks li{grid-template-columns:4.2rem 1fr}}";
