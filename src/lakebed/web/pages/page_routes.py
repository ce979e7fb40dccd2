"""The handlers of all pages and of their twins."""

from lakebed.web.pages import jobs_page, log_page, overview, query_page, rendering, sign_in, table_forms, table_page

ROUTES = (
    *overview.ROUTES,
    *jobs_page.ROUTES,
    *log_page.ROUTES,
    *query_page.ROUTES,
    *table_page.ROUTES,
    *table_forms.ROUTES,
    *rendering.ROUTES,
    *sign_in.ROUTES,
)
