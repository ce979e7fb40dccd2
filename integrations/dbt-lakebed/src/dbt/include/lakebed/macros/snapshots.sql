{# As dbt's own, but no two tables of a join have columns of one name: the engine refuses conditions over such columns.
   The columns of the snapshot are called dbt_known_…, also in the conditions of the strategies. #}

{% macro lakebed__known_columns(text) -%}
  {{ modules.re.sub('snapshotted_data\\.("?)(\\w+)', 'snapshotted_data.\\1dbt_known_\\2', text) }}
{%- endmacro %}

{% macro lakebed__same_key(strategy) -%}
  {{ lakebed__known_columns(unique_key_join_on(strategy.unique_key, 'snapshotted_data', 'source_data')) }}
{%- endmacro %}

{% macro lakebed__key_fields_of(strategy, from) %}
  {%- if strategy.unique_key | is_list -%}
    {%- for one in strategy.unique_key -%}
      {{ one }} as {{ from }}dbt_unique_key_{{ loop.index }}{{ ', ' if not loop.last }}
    {%- endfor -%}
  {%- else -%}
    {{ strategy.unique_key }} as {{ from }}dbt_unique_key
  {%- endif -%}
{% endmacro %}

{% macro lakebed__snapshot_staging_table(strategy, source_sql, target_relation) -%}
  {%- set columns = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() -%}
  {%- set current = config.get('dbt_valid_to_current') -%}
  {%- set records = strategy.hard_deletes == 'new_record' -%}
  {%- set known_names = adapter.get_columns_in_relation(target_relation) | map(attribute='name') | list -%}
  {%- set valid_to = 'snapshotted_data.dbt_known_' ~ columns.dbt_valid_to -%}
  {%- set was_deleted = "snapshotted_data.dbt_known_" ~ columns.dbt_is_deleted ~ " = 'True'" -%}
  {%- set is_current = '(' ~ columns.dbt_valid_to ~ ' is null' ~ (' or ' ~ columns.dbt_valid_to ~ ' = ' ~ current if current else '') ~ ')' -%}
  {%- set changed = '(' ~ lakebed__known_columns(strategy.row_changed) ~ (' or ' ~ was_deleted if records else '') ~ ')' -%}
  with snapshot_query as (
    {{ source_sql }}
  ),
  snapshotted_data as (
    select
      {% for name in known_names %}{{ adapter.quote(name) }} as {{ adapter.quote('dbt_known_' ~ name) }}, {% endfor %}
      {{ lakebed__key_fields_of(strategy, 'dbt_known_') }}
    from {{ target_relation }}
    where {{ is_current }}
  ),
  insertions_source_data as (
    select *, {{ unique_key_fields(strategy.unique_key) }},
      {{ strategy.updated_at }} as {{ columns.dbt_updated_at }},
      {{ strategy.updated_at }} as {{ columns.dbt_valid_from }},
      {{ get_dbt_valid_to_current(strategy, columns) }},
      {{ strategy.scd_id }} as {{ columns.dbt_scd_id }}
    from snapshot_query
  ),
  updates_source_data as (
    select *, {{ unique_key_fields(strategy.unique_key) }},
      {{ strategy.updated_at }} as {{ columns.dbt_updated_at }},
      {{ strategy.updated_at }} as {{ columns.dbt_valid_from }},
      {{ strategy.updated_at }} as {{ columns.dbt_valid_to }}
    from snapshot_query
  ),
  deletes_source_data as (
    select *, {{ unique_key_fields(strategy.unique_key) }} from snapshot_query
  ),
  insertions as (
    select 'insert' as dbt_change_type, source_data.*
      {%- if records %}, 'False' as {{ columns.dbt_is_deleted }}{% endif %}
    from insertions_source_data as source_data
    left outer join snapshotted_data on {{ lakebed__same_key(strategy) }}
    where snapshotted_data.dbt_known_{{ columns.dbt_scd_id }} is null or {{ changed }}
  ),
  updates as (
    select 'update' as dbt_change_type, source_data.*,
      snapshotted_data.dbt_known_{{ columns.dbt_scd_id }} as {{ columns.dbt_scd_id }}
      {%- if records %}, snapshotted_data.dbt_known_{{ columns.dbt_is_deleted }} as {{ columns.dbt_is_deleted }}{% endif %}
    from updates_source_data as source_data
    join snapshotted_data on {{ lakebed__same_key(strategy) }}
    where {{ changed }}
  )
  {%- if strategy.hard_deletes in ('invalidate', 'new_record') %},
  gone as (
    select snapshotted_data.*
    from snapshotted_data
    left join deletes_source_data as source_data on {{ lakebed__same_key(strategy) }}
    where {{ unique_key_is_null(strategy.unique_key, 'source_data') }}
      {%- if records %} and not ({{ was_deleted }}){% endif %}
  ),
  deletes as (
    select 'delete' as dbt_change_type, source_data.*,
      {{ snapshot_get_time() }} as {{ columns.dbt_updated_at }},
      {{ snapshot_get_time() }} as {{ columns.dbt_valid_from }},
      {{ snapshot_get_time() }} as {{ columns.dbt_valid_to }},
      gone.dbt_known_{{ columns.dbt_scd_id }} as {{ columns.dbt_scd_id }}
      {%- if records %}, gone.dbt_known_{{ columns.dbt_is_deleted }} as {{ columns.dbt_is_deleted }}{% endif %}
    from gone
    left join deletes_source_data as source_data on false
  )
  {%- endif %}
  {%- if records %},
  deletion_records as (
    select 'insert' as dbt_change_type,
      {% for name in get_columns_in_query(source_sql) -%}
        {{ 'dbt_known_' ~ name if name in known_names else 'null' }} as {{ adapter.quote(name) }},
      {% endfor -%}
      {% if strategy.unique_key | is_list -%}
        {%- for one in strategy.unique_key -%}
          dbt_known_dbt_unique_key_{{ loop.index }} as dbt_unique_key_{{ loop.index }},
        {%- endfor -%}
      {%- else -%}
        dbt_known_dbt_unique_key as dbt_unique_key,
      {%- endif %}
      {{ snapshot_get_time() }} as {{ columns.dbt_updated_at }},
      {{ snapshot_get_time() }} as {{ columns.dbt_valid_from }},
      dbt_known_{{ columns.dbt_valid_to }} as {{ columns.dbt_valid_to }},
      {{ snapshot_hash_arguments(['dbt_known_' ~ columns.dbt_scd_id, snapshot_get_time()]) }} as {{ columns.dbt_scd_id }},
      'True' as {{ columns.dbt_is_deleted }}
    from gone
  )
  {%- endif %}
  select * from insertions
  union all
  select * from updates
  {%- if strategy.hard_deletes in ('invalidate', 'new_record') %}
  union all
  select * from deletes
  {%- endif %}
  {%- if records %}
  union all
  select * from deletion_records
  {%- endif %}
{%- endmacro %}

{# The rows of a snapshot that end, and those that begin, in one commit. #}
{% macro lakebed__snapshot_merge_sql(target, source, insert_cols) -%}
  {%- set columns = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() -%}
  {%- set current = config.get('dbt_valid_to_current') -%}
  replace rows of {{ target.render() }} by
  select {{ insert_cols | join(', ') }} from {{ source }} as begun where dbt_change_type = 'insert'
  union all
  select
    {% for column in insert_cols -%}
      {{ 'dbt_ended_at' if column == adapter.quote(columns.dbt_valid_to) else 'known.' ~ column }} as {{ column }}{{ ', ' if not loop.last }}
    {%- endfor %}
  from {{ target.render() }} as known
  join (
    select {{ columns.dbt_scd_id }} as dbt_ended_id, {{ columns.dbt_valid_to }} as dbt_ended_at
    from {{ source }} as ended where dbt_change_type in ('update', 'delete')
  ) as ended on known.{{ columns.dbt_scd_id }} = ended.dbt_ended_id
  where known.{{ columns.dbt_valid_to }} is null
    {%- if current %} or known.{{ columns.dbt_valid_to }} = {{ current }}{% endif %}
{%- endmacro %}
