"""What axe finds against the contrast of texts, and the least contrast of the texts and cells of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Page

_TEXTS = """
() => {
  const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  // The colour as a browser paints it, over what is below: also light-dark(), color-mix() and opacity.
  const painted = (below, colour, opacity) => {
    canvas.globalAlpha = 1; canvas.fillStyle = `rgb(${below.join()})`; canvas.fillRect(0, 0, 1, 1);
    canvas.globalAlpha = opacity; canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const chain = element => element ? [...chain(element.parentElement), element] : [];
  const background = element => chain(element).reduce(
    (below, e) => painted(below, getComputedStyle(e).backgroundColor, 1), [255, 255, 255]);
  const opacity = element => chain(element).reduce((all, e) => all * getComputedStyle(e).opacity, 1);
  const luminance = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const ratio = (a, b) => {
    const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (light + .05) / (dark + .05);
  };
  const found = [];
  const texts = '.lakebed p, .lakebed th, .lakebed td, .lakebed div, .lakebed-picture text';
  for (const e of document.querySelectorAll(texts)) {
    const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('').trim();
    if (!text || !e.getClientRects().length) continue;
    const below = background(e), style = getComputedStyle(e);
    const colour = e instanceof SVGElement ? style.fill : style.color;
    found.push([text, ratio(painted(below, colour, opacity(e)), below)]);
  }
  return found;
}
"""


def text_contrasts(page: Page) -> dict[str, float]:
    """The contrast of each text of Lakebed's views with what is behind it, by the formula of WCAG 2."""
    return dict(page.evaluate(_TEXTS))


def check_contrast(page: Page) -> None:
    """All texts of Lakebed's views have a contrast of at least 4.5 to 1, and axe finds no violation in them."""
    contrasts = text_contrasts(page)
    assert len(contrasts) > 10
    low = {text: round(ratio, 2) for text, ratio in contrasts.items() if ratio < 4.5}
    assert not low
    for view in (".lakebed", ".lakebed-picture"):
        results = Axe().run(page, context={"include": [[view]]}, options={"runOnly": ["wcag2a", "wcag2aa"]})
        assert results.violations_count == 0, results.generate_report()
