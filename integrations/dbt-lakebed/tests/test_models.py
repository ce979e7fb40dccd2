"""What is Lakebed's own in a project: keys, views, builds that fail, and the names of tables."""

import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file

import lakebed

SEED = "id,name\n1,ann\n2,bob\n3,cid\n"


class Project:
    """A project with one seed, in the schema `dev`."""

    @pytest.fixture(scope="class")
    def unique_schema(self):
        return "dev"

    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"name": "own", "seeds": {"+primary_key": "id"}}

    @pytest.fixture(scope="class")
    def seeds(self):
        return {"people.csv": SEED}

    @pytest.fixture
    def lake(self, project, instance_url):
        run_dbt(["seed"])
        return lakebed.open(instance_url)

    def rows(self, lake, name):
        return lake.table(name).to_arrow().to_pylist()


def failure(*arguments):
    """The messages of a command that fails."""
    _, printed = run_dbt_and_capture([*arguments], expect_pass=False)
    return " ".join(printed.split())


class TestKeys(Project):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "without.sql": "select * from {{ ref('people') }}",
            "repeating.sql": "{{ config(key='name') }} select 1 as id, 'x' as name union all select 2, 'x'",
            "repeated.sql": "{{ config(primary_key='name') }} select 1 as id, 'x' as name union all select 2, 'x'",
            "nothing.sql": "{{ config(primary_key='id') }} select nullif(id, 2) as id, name from {{ ref('people') }}",
            "elsewhere.sql": "{{ config(key='Name') }} select * from {{ ref('people') }}",
            "declared.sql": "select id, name from {{ ref('people') }}",
            "sorted.sql": "{{ config(key='id', sort_key=['name'], settings={'split_rows': 1000}) }}"
            "select * from {{ ref('people') }}",
            "schema.yml": """
models:
  - name: declared
    config: {contract: {enforced: true}}
    constraints: [{type: primary_key, columns: [id]}]
    columns: [{name: id, data_type: bigint}, {name: name, data_type: varchar}]
""",
        }

    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"name": "own", "models": {"+materialized": "table"}, "seeds": {"+primary_key": "id"}}

    def test_a_table_without_a_key_is_refused_with_the_configuration_that_it_needs(self, lake):
        assert "without has no key, and every table of Lakebed has one: set `primary_key`" in failure(
            "run", "-s", "without"
        )
        assert lake.tables() == ["dev-people"]

    def test_a_key_may_repeat_and_a_primary_key_not(self, lake):
        run_dbt(["run", "-s", "repeating"])
        assert len(self.rows(lake, "dev-repeating")) == 2
        assert "the 2 rows have 1 different keys (name)" in failure("run", "-s", "repeated")
        assert "dev-repeated" not in lake.tables()
        assert "dev-repeated__dbt_tmp" not in lake.tables()

    def test_a_null_in_a_key_is_refused(self, lake):
        assert "column id is null, and is not nullable" in failure("run", "-s", "nothing")
        assert not [name for name in lake.tables() if "nothing" in name]

    def test_a_key_that_is_no_column_is_refused(self, lake):
        assert "the key column Name is not a column of the result, which has id, name" in failure(
            "run", "-s", "elsewhere"
        )

    def test_the_primary_key_of_a_contract_is_the_key(self, lake):
        run_dbt(["run", "-s", "declared"])
        assert lake.table("dev-declared").schema.row_key_names == ("id",)
        assert lake.table("dev-declared").state().merge == lakebed.Latest()

    def test_a_model_says_the_sort_key_and_settings_of_its_table(self, lake):
        run_dbt(["run", "-s", "sorted"])
        assert lake.table("dev-sorted").schema.sort_names == ("id", "name")
        assert lake.table("dev-sorted").settings()["split_rows"] == 1000


class TestViews(Project):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "adults.sql": "select id, name from {{ ref('people') }} where id > 1",
            "shouted.sql": "select id, upper(name) as name from {{ ref('adults') }}",
            "joined.sql": "{{ config(materialized='table', key='id') }} with adults as (select * from {{ ref('adults') }})"  # noqa: E501
            " select adults.id, s.name from adults join {{ ref('shouted') }} as s on s.id = adults.id",
        }

    def test_a_view_is_resolved_when_it_is_read(self, lake, project):
        run_dbt(["run"])
        assert lake.tables() == ["dbt_views", "dev-joined", "dev-people"]
        assert self.rows(lake, "dev-joined") == [{"id": 2, "name": "BOB"}, {"id": 3, "name": "CID"}]
        lake.table("dev-people").write([{"id": 4, "name": "dee"}])
        assert project.run_sql("select name from {schema}.shouted where id = 4", fetch="one") == ("DEE",)

    def test_a_view_that_reads_itself_is_refused(self, lake, project):
        run_dbt(["run"])
        write_file(
            "select id, name from {schema}.shouted".format(schema='"tables"."dev-shouted"').replace(".shouted", ""),
            project.project_root,
            "models",
            "adults.sql",
        )
        assert "reads itself: dev-adults -> dev-shouted -> dev-adults" in failure("run", "-s", "adults")
        assert project.run_sql("select count(*) from {schema}.shouted", fetch="one")[0] >= 2

    def test_a_view_of_a_column_that_is_not_there_is_refused(self, lake, project):
        write_file("select nothing from {{ ref('people') }}", project.project_root, "models", "adults.sql")
        assert "No field named nothing" in failure("run", "-s", "adults")


class TestBuilds(Project):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "built.sql": "{{ config(materialized='table', primary_key='id') }}"
            "select id, 10 / (id - {{ var('bad', 9) }}) as x from {{ ref('people') }}"
        }

    def test_a_build_that_fails_leaves_the_table_that_was_there(self, lake):
        run_dbt(["run"])
        before = self.rows(lake, "dev-built")
        identity = lake.table("dev-built").id
        failure("run", "--vars", "bad: 2")
        assert self.rows(lake, "dev-built") == before
        assert lake.table("dev-built").id == identity
        assert lake.tables() == ["dev-built", "dev-people"]

    def test_a_build_takes_the_place_of_the_table_in_one_commit(self, lake):
        run_dbt(["run"])
        held = lakebed.open(lake.url)
        names = [held.tables()]
        version = held.catalog().version
        run_dbt(["run", "--vars", "bad: 8"])
        # The table beside it, and then both names at once.
        assert held.catalog().version == version + 2
        assert held.tables() == names[0]


class TestIncremental(Project):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "latest.sql": "{{ config(materialized='incremental', unique_key='id', on_schema_change=var('change', 'ignore')) }}"  # noqa: E501
            "select id, name {{ ', 1 as extra' if var('extra', false) }} from {{ ref('people') }}"
            "{% if is_incremental() %} where id >= 2 {% if var('twice', false) %}"
            " union all select 2, 'twice' {% endif %}{% endif %}",
            "events.sql": "{{ config(materialized='incremental', key='id') }} select * from {{ ref('people') }}",
        }

    def test_rows_are_merged_by_the_unique_key_in_one_commit(self, lake):
        run_dbt(["run", "-s", "latest"])
        table = lake.table("dev-latest")
        version = table.state().version
        lake.table("dev-people").write([{"id": 1, "name": "zoe"}, {"id": 2, "name": "new"}, {"id": 5, "name": "eve"}])
        run_dbt(["run", "-s", "latest"])
        assert [row["name"] for row in self.rows(lake, "dev-latest")] == ["ann", "new", "cid", "eve"]
        assert table.state().version == version + 1
        assert "dev-latest__dbt_tmp" not in lake.tables()

    def test_two_rows_for_one_key_are_refused(self, lake):
        run_dbt(["run", "-s", "latest", "--full-refresh"])
        before = self.rows(lake, "dev-latest")
        assert "the 3 rows have 2 different keys (id)" in failure("run", "-s", "latest", "--vars", "twice: true")
        assert self.rows(lake, "dev-latest") == before

    def test_a_new_column_is_added_or_ignored_or_refused_as_the_model_says(self, lake):
        run_dbt(["run", "-s", "latest", "--full-refresh"])
        run_dbt(["run", "-s", "latest", "--vars", "{extra: true}"])
        assert lake.table("dev-latest").schema.names == ("id", "name")
        assert "out of sync" in failure("run", "-s", "latest", "--vars", "{extra: true, change: fail}")
        run_dbt(["run", "-s", "latest", "--vars", "{extra: true, change: append_new_columns}"])
        assert [row["extra"] for row in self.rows(lake, "dev-latest")] == [None, 1, 1]

    def test_rows_of_a_key_that_may_repeat_are_appended(self, lake):
        run_dbt(["run", "-s", "events"])
        run_dbt(["run", "-s", "events"])
        assert [row["id"] for row in self.rows(lake, "dev-events")] == [1, 1, 2, 2, 3, 3]


class TestNames(Project):
    """The schema `tables` has plain names."""

    @pytest.fixture(scope="class")
    def macros(self):
        return {"schemas.sql": "{% macro generate_schema_name(custom, node) %}{{ custom or 'tables' }}{% endmacro %}"}

    @pytest.fixture(scope="class")
    def models(self):
        return {
            "orders.sql": "{{ config(materialized='view') }} with orders as (select * from {{ source('lake', 'raw-orders') }})"  # noqa: E501
            " select * from orders",
            "marts.sql": "{{ config(materialized='table', schema='marts', key='id') }} select * from {{ ref('orders') }}",  # noqa: E501
            "schema.yml": """
sources:
  - name: lake
    schema: tables
    tables: [{name: raw-orders}]
""",
        }

    def test_tables_of_the_instance_are_sources_and_models_have_plain_names(self, lake, project):
        raw = lake.create_table("raw-orders", lakebed.Schema(row_key={"id": "int64"}))
        raw.write([{"id": 7}])
        run_dbt(["run"])
        assert lake.tables() == ["dbt_views", "marts-marts", "people", "raw-orders"]
        assert self.rows(lake, "marts-marts") == [{"id": 7}]
        with pytest.raises(Exception, match="has all tables of the instance, and is not dropped"):
            self.drop(project, "tables")
        self.drop(project, "marts")
        assert lake.tables() == ["dbt_views", "people", "raw-orders"]

    def drop(self, project, schema):
        with project.adapter.connection_named("__test"):
            relation = project.adapter.Relation.create(database=project.database, schema=schema)
            project.adapter.drop_schema(relation)


class TestThingsOfDbt(Project):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "loud.sql": "{{ config(materialized='table', primary_key='id') }}"
            "select id, upper(name) as name from {{ ref('people') }}",
            "schema.yml": """
models:
  - name: loud
    columns:
      - name: id
        data_tests: [unique, not_null, {relationships: {arguments: {to: ref('people'), field: id}}}]
      - name: name
        data_tests:
          - accepted_values:
              arguments: {values: [ANN, BOB]}
              config: {store_failures_as: view, severity: warn}
unit_tests:
  - name: shouts
    model: loud
    given: [{input: ref('people'), rows: [{id: 1, name: x}]}]
    expect: {rows: [{id: 1, name: X}]}
""",
        }

    def test_tests_unit_tests_debug_show_and_source_freshness(self, lake):
        run_dbt(["run"])
        results = run_dbt(["test"])
        assert sorted(str(one.status) for one in results) == ["pass", "pass", "pass", "pass", "warn"]
        assert lake.tables() == ["dbt_views", "dev-loud", "dev-people"]
        run_dbt(["debug"])
        _, printed = run_dbt_and_capture(["show", "-s", "loud", "--limit", "1"])
        assert "ANN" in printed
