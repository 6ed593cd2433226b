"""Pages that need nothing else: one look for every report, and how numbers are written in it."""

from __future__ import annotations

import math
from typing import Any

from ._errors import MissingExtraError


def page(package: str, *, extra: str, **context: Any) -> str:
    """A package's ``templates/report.html.j2`` as HTML; everything put into it is escaped.

    Args:
        package: whose template; it may build on the package's own ``templates/page.html.j2``.
        extra: that installs jinja2 for it.
        context: what the template names.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise MissingExtraError("jinja2", extra=extra) from None
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(package), jinja2.PackageLoader("relaygen")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=percent, number=number, signed=signed, grouped=grouped, probability=probability
    )
    return environment.get_template("report.html.j2").render(**context)


def percent(value: float, digits: int = 0) -> str:
    """A share as a percentage."""
    return f"{100.0 * value:.{digits}f} %" if math.isfinite(value) else "–"


def number(value: float, digits: int = 2) -> str:
    """A plain number."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"


def signed(value: float, digits: int = 3) -> str:
    """A difference, with its sign."""
    if not math.isfinite(value):
        return "–"
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if any(char in text for char in "123456789") else text[1:]


def probability(value: float) -> str:
    """A p-value; very small ones are bounds."""
    if not math.isfinite(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def grouped(value: int) -> str:
    """A whole number with its thousands apart (narrow no-break spaces)."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
