"""What Lakebed can do, for SQLAlchemy's own tests of dialects, and why it cannot do the rest.

A test that needs a closed feature is skipped with the reason that stands here; README.md counts them.
"""

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements


class Feature:
    """A requirement of that name: one that is met, or one that is not, for a reason."""

    def __init__(self, reason=None):
        self._reason = reason

    def __get__(self, instance, owner):
        if self._reason is None:
            return exclusions.open()
        return exclusions.skip_if(exclusions.BooleanPredicate(True, self._reason))


OPEN = Feature()
CONSTRAINTS = Feature("the only constraints are NOT NULL and the primary key")
NAMES = Feature("names of tables and indexes are of A-Z a-z 0-9 _ and -")
TRANSACTIONS = Feature("each statement is its own commit: there are no transactions")
GENERATED = Feature("values are given with the row, and not made by the database")
RETURNING = Feature("a statement changes rows or returns rows")
SCHEMAS = Feature("an instance has one schema")
TEMPORARY = Feature("tables are not temporary")
VIEWS = Feature("views are made by Instance.create_view_table")
INDEXES = Feature("an index is of columns, without directions, expressions and uniqueness")
INSIDE_JSON = Feature("no function reads inside of JSON")
COMMENTS = Feature("tables and columns have no comments")
OTHER_TABLES = Feature("UPDATE and DELETE name other tables in subqueries, and MERGE")


class Requirements(SuiteRequirements):
    # -- what Lakebed has beyond the default of the suite -----------------------------------------------------------

    aggregate_order_by = OPEN
    array_type = OPEN
    binary_literals = OPEN
    boolean_col_expressions = OPEN
    ctes = OPEN
    ctes_with_values = OPEN
    date_historic = OPEN
    datetime_historic = OPEN
    datetime_literals = OPEN
    datetime_timezone = OPEN
    datetime_timezone_historic = OPEN
    except_ = OPEN
    fetch_expression = OPEN
    foreign_key_ddl = OPEN
    fetch_first = OPEN
    fetch_no_order_by = OPEN
    index_ddl_if_exists = OPEN
    infinity_floats = OPEN
    intersect = OPEN
    isolation_level = OPEN
    json_type = OPEN
    mod_operator_as_percent_sign = OPEN
    nullsordering = OPEN
    order_by_label_with_expression = OPEN
    precision_numerics_enotation_small = OPEN
    precision_numerics_many_significant_digits = OPEN
    precision_numerics_retains_significant_digits = OPEN
    reflect_table_options = OPEN
    regexp_match = OPEN
    regexp_replace = OPEN
    supports_bitwise_and = OPEN
    supports_bitwise_not = OPEN
    supports_bitwise_or = OPEN
    supports_bitwise_shift = OPEN
    supports_bitwise_xor = OPEN
    supports_distinct_on = OPEN
    table_ddl_if_exists = OPEN
    table_value_constructor = OPEN
    timestamp_microseconds = OPEN
    tuple_in = OPEN
    uuid_data_type = OPEN
    window_functions = OPEN
    window_range = OPEN

    def get_isolation_levels(self, config):
        return {"default": "AUTOCOMMIT", "supported": ["AUTOCOMMIT"]}

    # -- what it has not --------------------------------------------------------------------------------------------

    check_constraint_reflection = CONSTRAINTS
    deferrable_fks = CONSTRAINTS
    foreign_key_constraint_reflection = CONSTRAINTS
    foreign_keys = CONSTRAINTS
    implicitly_named_constraints = CONSTRAINTS
    inline_check_constraint_reflection = CONSTRAINTS
    named_constraints = CONSTRAINTS
    on_update_cascade = CONSTRAINTS
    reflects_pk_names = CONSTRAINTS
    self_referential_foreign_keys = CONSTRAINTS
    unique_constraint_reflection = CONSTRAINTS
    constraint_comment_reflection = CONSTRAINTS
    foreign_key_constraint_option_reflection_ondelete = CONSTRAINTS
    fk_constraint_option_reflection_ondelete_restrict = CONSTRAINTS
    fk_constraint_option_reflection_ondelete_noaction = CONSTRAINTS
    foreign_key_constraint_option_reflection_onupdate = CONSTRAINTS
    fk_constraint_option_reflection_onupdate_restrict = CONSTRAINTS

    percent_schema_names = NAMES
    unicode_ddl = NAMES

    autocommit = Feature("each statement is its own commit: AUTOCOMMIT cannot be switched off")
    savepoints = TRANSACTIONS
    two_phase_transactions = TRANSACTIONS

    autoincrement_insert = GENERATED
    autoincrement_without_sequence = GENERATED
    computed_columns = GENERATED
    empty_inserts = GENERATED
    expression_server_defaults = GENERATED
    identity_columns = GENERATED
    implements_get_lastrowid = GENERATED
    sequences = GENERATED
    server_defaults = GENERATED

    delete_returning = RETURNING
    insert_executemany_returning = RETURNING
    insert_returning = RETURNING
    insertmanyvalues = RETURNING
    update_returning = RETURNING

    cross_schema_fk_reflection = SCHEMAS
    default_schema_name_switch = SCHEMAS
    schema_create_delete = SCHEMAS
    schemas = SCHEMAS

    has_temp_table = TEMPORARY
    temp_table_names = TEMPORARY
    temp_table_reflection = TEMPORARY
    temporary_tables = TEMPORARY
    temporary_views = TEMPORARY

    create_or_replace_view = VIEWS
    materialized_views = VIEWS
    views = VIEWS

    indexes_check_column_order = INDEXES
    indexes_with_ascdesc = INDEXES
    indexes_with_expressions = INDEXES
    index_reflects_included_columns = INDEXES
    reflect_indexes_with_ascdesc = INDEXES
    unique_index_reflect_as_unique_constraints = INDEXES

    comment_reflection = COMMENTS
    comment_reflection_full_unicode = COMMENTS

    delete_from = OTHER_TABLES
    update_from = OTHER_TABLES
    ctes_on_dml = OTHER_TABLES
    ctes_with_update_delete = OTHER_TABLES

    create_table_as = Feature("CREATE TABLE AS names its key, which SQLAlchemy's has not")
    create_temp_table_as = TEMPORARY
    date_coerces_from_datetime = Feature("a value is never cut: a time of day is not left out")
    datetime_interval = Feature("columns have no durations")
    denormalized_names = Feature("names are case-sensitive, and never folded")
    duplicate_names_in_cursor_description = Feature("the columns of a result have names of their own")
    duplicate_key_raises_integrity_error = Feature("INSERT replaces the row of its key")
    fetch_percent = Feature("LIMIT is a number of rows, without ties")
    fetch_offset_with_options = fetch_percent
    fetch_ties = fetch_percent
    legacy_unconditional_json_extract = INSIDE_JSON
    json_deserializer_binary = Feature("JSON is text")
    nvarchar_types = Feature("all texts are Unicode: there is one type")
    order_by_collation = Feature("texts are ordered by code points")
    column_collation_reflection = order_by_collation
    server_side_cursors = Feature("every cursor reads its rows as they are fetched")
    time_timezone = Feature("a time of day has no zone")
    window_range_non_numeric = Feature("offsets of RANGE are whole numbers")
    window_range_numeric = window_range_non_numeric
    async_dialect = Feature("the dialect is not asynchronous")
    float_or_double_precision_behaves_generically = Feature("digits of a float choose 32 or 64 bits")
