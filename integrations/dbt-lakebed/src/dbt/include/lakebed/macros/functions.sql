{# Functions that other engines name in another way. #}

{% macro lakebed__current_timestamp() -%}
  arrow_cast(now(), 'Timestamp(Microsecond, None)')
{%- endmacro %}

{% macro lakebed__dateadd(datepart, interval, from_date_or_timestamp) -%}
  (arrow_cast({{ from_date_or_timestamp }}, 'Timestamp(Microsecond, None)') + cast(({{ interval }}) || ' {{ datepart }}' as interval))
{%- endmacro %}
