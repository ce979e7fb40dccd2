{# Tables are built beside the table that they replace, and take its name when they are complete. #}

{% macro lakebed__replace_other_kind(existing, kind) %}
  {# What had the name before is replaced by the store; the cache of relations has to know. #}
  {% if existing is not none and existing.type != kind %}
    {% do adapter.cache_dropped(existing) %}
  {% endif %}
{% endmacro %}

{% macro lakebed__checked(sql) %}
  {# A contract: the columns of the query are those that the model declares, in their order. #}
  {% set contract = config.get('contract') %}
  {% if contract and contract.enforced %}
    {% do get_assert_columns_equivalent(sql) %}
    {{ return(get_select_subquery(sql)) }}
  {% endif %}
  {{ return(sql) }}
{% endmacro %}

{% macro lakebed__finish(relation, existing, code, rows) %}
  {% call noop_statement('main', code ~ ' ' ~ rows, code, rows) %}
    {{ sql }}
  {% endcall %}
  {% do create_indexes(relation) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do apply_grants(relation, config.get('grants'), should_revoke=False) %}
  {% do persist_docs(relation, model) %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
{% endmacro %}

{% materialization table, adapter='lakebed' %}
  {% set existing = load_cached_relation(this) %}
  {% set target = this.incorporate(type='table') %}
  {% set key = adapter.table_key(model) %}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% set rows = adapter.build_table(target, lakebed__checked(sql), key) %}
  {% do lakebed__replace_other_kind(existing, 'table') %}
  {% do lakebed__finish(target, existing, 'CREATE TABLE', rows) %}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% materialization view, adapter='lakebed' %}
  {% set existing = load_cached_relation(this) %}
  {% set target = this.incorporate(type='view') %}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% call statement('main') %}
    {{ get_create_view_as_sql(target, sql) }}
  {% endcall %}
  {% do lakebed__replace_other_kind(existing, 'view') %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do apply_grants(target, config.get('grants'), should_revoke=False) %}
  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% materialization incremental, adapter='lakebed' %}
  {% set existing = load_cached_relation(this) %}
  {% set target = this.incorporate(type='table') %}
  {% set key = adapter.table_key(model) %}
  {% set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') %}
  {% set strategy = config.get('incremental_strategy') or ('merge' if key.unique else 'append') %}
  {% set strategy_macro = adapter.get_incremental_strategy_macro(context, strategy) %}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% if existing is none or existing.is_view or should_full_refresh() %}
    {% set rows = adapter.build_table(target, lakebed__checked(sql), key) %}
    {% do lakebed__replace_other_kind(existing, 'table') %}
    {% do lakebed__finish(target, existing, 'CREATE TABLE', rows) %}
  {% else %}
    {% set staged = adapter.stage_rows(make_temp_relation(target), lakebed__checked(sql), target, key) %}
    {% set columns = process_schema_changes(on_schema_change, staged, existing) %}
    {% if strategy in ('merge', 'append') %}
      {% set rows = adapter.add_rows(target, 'select * from ' ~ staged, replace=(strategy == 'merge')) %}
      {% do lakebed__finish(target, existing, strategy | upper, rows) %}
    {% else %}
      {% set arguments = {'target_relation': target, 'temp_relation': staged,
                          'unique_key': config.get('unique_key'),
                          'dest_columns': columns or adapter.get_columns_in_relation(existing),
                          'incremental_predicates': config.get('incremental_predicates')} %}
      {% call statement('main') %}
        {{ strategy_macro(arguments) }}
      {% endcall %}
      {{ run_hooks(post_hooks, inside_transaction=True) }}
      {{ run_hooks(post_hooks, inside_transaction=False) }}
    {% endif %}
    {% do adapter.drop_relation(staged) %}
  {% endif %}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% materialization seed, adapter='lakebed' %}
  {% set existing = load_cached_relation(this) %}
  {% if existing is not none and existing.is_view %}
    {{ exceptions.raise_compiler_error("Cannot seed to '" ~ existing ~ "', it is a view") }}
  {% endif %}
  {% set target = this.incorporate(type='table') %}
  {% set key = adapter.table_key(model) %}
  {% set table = load_agate_table() %}
  {% do store_result('agate_table', response='OK', agate_table=table) %}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% set rows = adapter.build_seed(target, table, model, key) %}
  {% set code = 'CREATE' if should_full_refresh() else 'INSERT' %}
  {% do lakebed__finish(target, existing, code, rows) %}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% macro lakebed__create_view_as(relation, sql) -%}
  create view {{ relation.render() }} as {{ lakebed__checked(sql) }}
{%- endmacro %}

{# Of snapshots, stored failures of tests, and unit tests, whose tables only show the types of columns. #}
{% macro lakebed__create_table_as(temporary, relation, sql) -%}
  {%- set key = adapter.table_key(model, required=not temporary) -%}
  {%- if key is none -%}
    create view {{ relation.render() }} as {{ sql }}
  {%- else -%}
    create table {{ relation.render() }} {{ adapter.key_clause(key) }} as {{ sql }}
  {%- endif -%}
{%- endmacro %}

{% macro lakebed__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
  {% do adapter.add_remove_columns(relation, add_columns, remove_columns) %}
{% endmacro %}

{% macro lakebed__create_columns(relation, columns) %}
  {% do adapter.add_remove_columns(relation, columns, none) %}
{% endmacro %}

{% macro lakebed__post_snapshot(staging_relation) %}
  {% do adapter.drop_relation(staging_relation) %}
{% endmacro %}
