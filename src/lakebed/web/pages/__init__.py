"""The pages for people; each has a twin in JSON."""

from lakebed.web.pages import overview, rendering, table_forms, table_page

ROUTES = (*overview.ROUTES, *table_page.ROUTES, *table_forms.ROUTES, *rendering.ROUTES)
