"""The handlers of all pages and of their twins."""

from lakebed.web.pages import overview, query_page, rendering, table_forms, table_page

ROUTES = (*overview.ROUTES, *query_page.ROUTES, *table_page.ROUTES, *table_forms.ROUTES, *rendering.ROUTES)
