"""The pages for people; each has a twin in JSON."""

from lakebed.web.pages import overview, rendering

ROUTES = (*overview.ROUTES, *rendering.ROUTES)
