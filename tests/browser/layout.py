"""What does not fit on a page: what is wider than the window, controls that are cut, and labels without contrast."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_CONTROLS = "button, .button, input, select, textarea, summary, .choice a, .top nav a, .badge"

_MISFITS = """
controls => {
  const found = [], wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) found.push(`the page is ${wide} px wide`);
  const name = e => `${e.tagName.toLowerCase()} ${(e.name || e.textContent).trim().slice(0, 30)}`;
  const shown = [...document.querySelectorAll(controls)].filter(
    e => e.getClientRects().length && !e.closest('.hidden') && e.type !== 'hidden');
  if (!shown.length) found.push('no control is shown');
  for (const e of shown) {
    const box = e.getBoundingClientRect();
    if (box.left < 0 || box.right > innerWidth + 0.5) found.push(`${name(e)}: outside of the window`);
    if (e.tagName === 'BUTTON' && e.scrollWidth > e.clientWidth) found.push(`${name(e)}: its text is cut`);
    for (let around = e.parentElement; around; around = around.parentElement) {
      const edge = around.getBoundingClientRect(), clips = getComputedStyle(around).overflowX !== 'visible';
      if (clips && !around.matches('.result, html, body') && box.right > edge.right + 0.5)
        found.push(`${name(e)}: cut by ${around.className || around.tagName}`);
    }
  }
  for (const e of document.querySelectorAll('.label')) {
    // The box of an inner svg is that of what it has; that of the cell is the rectangle before it.
    const text = e.querySelector('text').getBoundingClientRect();
    const cell = e.previousElementSibling.querySelector('rect').getBoundingClientRect();
    if (text.width > cell.width) found.push(`label ${e.textContent}: wider than its cell`);
  }
  return found;
}
"""

_LABELS = """
() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const painted = colour => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const luminance = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  return [...document.querySelectorAll('.label')].map(label => {
    const cell = label.previousElementSibling.querySelector('rect'), text = label.querySelector('text');
    const [light, dark] = [cell, text].map(e => luminance(painted(getComputedStyle(e).fill))).sort((a, b) => b - a);
    return [text.textContent, (light + .05) / (dark + .05)];
  });
}
"""


def misfits(page: Page) -> list[str]:
    """What is wider than the window, outside of it, or cut. Grids of query results alone may scroll sideways."""
    found: list[str] = page.evaluate(_MISFITS, _CONTROLS)
    return found


def label_contrasts(page: Page) -> list[tuple[str, float]]:
    """The labels inside of pictures, and their contrast with the cell behind, by the formula of WCAG 2."""
    return [(text, ratio) for text, ratio in page.evaluate(_LABELS)]
