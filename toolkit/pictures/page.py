"""HTML: elements with escaped texts, tables, and whole pages without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from toolkit.pictures.picture import STYLE, Picture
from toolkit.pictures.shapes import PALETTE, remove_unprintable

FOLD = 40  # a table with this number of rows is collapsed
_VOID = ("meta",)
_COLORS = ("paper", "ink", "muted", "faint", "first", "second", "third")


class Markup(str):
    """HTML text that needs no escaping."""


def tag(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """Create an element.

    Args:
        name: for example "p".
        content: Markup stays as it is, other text is escaped.
        attributes: a trailing "_" of a name is dropped, as in `class_`, and a "_"
            inside becomes "-". None or False omits the attribute.

    >>> print(tag("p", "1 < 2", tag("b", "!"), class_="note"))
    <p class="note">1 &lt; 2<b>!</b></p>
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(content)}</{name}>")


def join(items: Iterable[Any], separator: str = "") -> Markup:
    """Join values; text that is not Markup is escaped."""
    return Markup(separator.join(map(_content, items)))


def _content(item: Any) -> str:
    return str(item) if isinstance(item, Markup) else _escaped(item)


def _escaped(value: Any) -> str:
    lines = str(value).split("\n")
    return escape("\n".join(map(remove_unprintable, lines)))


def table(
    heads: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    caption: str,
    numbers: Sequence[int] = (),
) -> Markup:
    """Create a table that scrolls if it is too wide; a long one is collapsed.

    Args:
        heads: of the columns; the first column is the head of its row.
        rows: cells; Markup or text.
        caption: the subject of the table.
        numbers: the right-aligned columns.
    """

    def cell(name: str, i: int, value: Any, **attributes: Any) -> Markup:
        side = "number" if i in numbers else None
        side = f"{side} bars" if side and 'class="bar"' in str(value) else side
        return tag(name, value, class_=side, **attributes)

    top = tag("tr", *(cell("th", i, x, scope="col") for i, x in enumerate(heads)))
    body = [
        tag(
            "tr",
            cell("th", 0, row[0], scope="row"),
            *(cell("td", i, x) for i, x in enumerate(row[1:], 1)),
        )
        for row in rows
    ]
    content = (tag("thead", top), tag("tbody", *body))
    element = tag("table", *content, aria_label=caption)
    if len(body) <= FOLD:
        return captioned(element, caption)
    head = tag("summary", f"{caption}: all {len(body):,} rows")
    return tag("details", head, scrolling(element, caption))


def captioned(content: Markup, caption: str) -> Markup:
    """Return scrollable content below its caption."""
    return tag("figure", tag("figcaption", caption), scrolling(content, caption))


def scrolling(content: Markup, label: str) -> Markup:
    """Wrap content that can be wider than the page; keyboards can scroll it."""
    return tag(
        "div", content, class_="scroll", tabindex="0", role="region", aria_label=label
    )


def figure(
    picture: Picture, caption: Any = "", min_scale: float | None = None
) -> Markup:
    """Show a picture on a page that has its style.

    Args:
        picture: the picture.
        caption: below it.
        min_scale: the minimum scale on a narrow page, below which the picture scrolls;
            None fits it to any page.
    """
    svg = Markup(picture.svg(style=""))
    if min_scale is not None:
        style = f"min-width:{min_scale * picture.width:.0f}px"
        svg = scrolling(tag("div", svg, style=style), picture.title)
    below = tag("figcaption", caption) if caption else ""
    return tag("figure", svg, below)


def bar(share: float, text: Any) -> Markup:
    """Return a text above a bar whose length is `share` of 1."""
    if not share > 0:
        return join((text,))
    width = f"--share:{min(max(share, 0.0), 1.0):.4f}"
    return join((text, tag("span", class_="bar", style=width)))


def page(title: str, content: Markup, language: str = "en") -> Markup:
    """Return a complete document without external resources."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(_page_style())),
    )
    html = tag("html", head, tag("body", tag("main", content)), lang=language)
    return Markup(f"<!DOCTYPE html>\n{html}\n")


def _variables(dark: bool) -> str:
    return "".join(f"--{role}:{PALETTE[role][dark]};" for role in _COLORS)


def _page_style() -> str:
    dark = f"@media(prefers-color-scheme:dark){{:root{{{_variables(True)}}}}}"
    return f":root{{{_variables(False)}color-scheme:light dark}}{dark}{_RULES}{STYLE}"


_RULES = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
main{max-width:70rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:2rem;line-height:1.2;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.35rem;line-height:1.3;margin:0 0 .75rem}
h3{font-size:1.05rem;margin:1.75rem 0 .5rem}
p{margin:.5rem 0;max-width:46rem}
section{margin-top:2.5rem;padding-top:1.5rem;border-top:1px solid var(--faint)}
header p,.note,figcaption{color:var(--muted)}
.note,figcaption{font-size:.875rem}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:0;
margin:1rem 0 0}
a{color:var(--first)}
:focus-visible{outline:2px solid var(--first);outline-offset:2px}
dl.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.5rem,1fr));
gap:.75rem;margin:1.5rem 0 0}
.facts div{border:1px solid var(--faint);border-radius:.5rem;padding:.6rem .8rem}
.facts dt{color:var(--muted);font-size:.8125rem}
.facts dd{margin:0;font-size:1.2rem;font-weight:600;line-height:1.35;
overflow-wrap:anywhere}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr));
gap:1rem 2rem}
.beside{display:flex;flex-wrap:wrap;gap:0 3.5rem;align-items:flex-start}
.beside>*{max-width:100%}
figure{margin:1.25rem 0}
figcaption:first-child{margin:0 0 .4rem;color:var(--ink);font-weight:600;
font-size:.9375rem}
.panels figure{margin:0}
.panels .toolkit-picture{width:100%}
figcaption{margin-top:.25rem}
.scroll{overflow-x:auto;-webkit-overflow-scrolling:touch}
.toolkit-picture{display:block}
table{border-collapse:collapse;font-size:.9375rem;font-variant-numeric:tabular-nums}
th,td{padding:.4rem .75rem;text-align:left;vertical-align:top;
border-bottom:1px solid var(--faint)}
tr>:first-child{padding-left:0}
tr>:last-child{padding-right:0}
thead th{color:var(--muted);font-weight:600;font-size:.8125rem;vertical-align:bottom}
tbody th{font-weight:500}
td.number,th.number{text-align:right;white-space:nowrap}
table:not(.matrix){min-width:min(100%,30rem)}
td .note,th .note{display:block;font-size:.8125rem;line-height:1.3}
td.bars{min-width:8rem}
.shape{white-space:nowrap}
.bar{display:block;height:.25rem;margin:.2rem 0 0 auto;border-radius:.125rem;
min-width:1px;width:calc(var(--share)*100%);background:var(--first)}
.matrix th,.matrix td{text-align:center;border:0;padding:.35rem .4rem;min-width:2.5rem}
.matrix tbody th{text-align:right;color:var(--muted);white-space:nowrap}
.matrix td{position:relative;isolation:isolate;border-radius:.25rem}
.matrix td::before{content:"";position:absolute;inset:1px;z-index:-1;
border-radius:.25rem;background:var(--hue);opacity:var(--fill)}
.matrix td.right{--hue:var(--first)}
.matrix td.wrong{--hue:var(--second)}
.matrix td.strong{color:var(--paper);font-weight:600}
.matrix td.none{color:var(--muted)}
details{margin:.75rem 0}
summary{cursor:pointer;color:var(--first);width:fit-content}
footer{margin-top:3rem;color:var(--muted);font-size:.875rem}
@media(max-width:40rem){main{padding:1.25rem 1rem 3rem}h1{font-size:1.6rem}
.matrix th,.matrix td{min-width:1.75rem;padding:.3rem .15rem;font-size:.8125rem}
table{font-size:.875rem}th,td{padding:.35rem .4rem}td.bars{min-width:4.5rem}}
@media print{.scroll{overflow:visible}section{break-inside:avoid}}
""".strip().replace("\n", "")
