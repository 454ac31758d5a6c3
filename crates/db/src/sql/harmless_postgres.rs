//! Functions of PostgreSQL that change nothing: no data, no session, nothing outside.
//!
//! Every name is a function of the server since version 12, or of an extension that comes with it: a name that a version
//! lacks is an application's function there. Functions that write (`nextval`, `lo_put`), signal other sessions, run
//! SQL from a string, or assign the transaction a number are not on the list.
//!
//! An application can define a function of the same name for other types, and use it in operators, casts, views and
//! policies. The scanner takes such a function for the server's.

/// Sorted, for a binary search.
#[rustfmt::skip]
pub(super) static POSTGRES_FUNCTIONS: &[&str] = &[
    "abs", "acos", "acosd", "acosh", "age", "array_agg", "array_append", "array_cat",
    "array_dims", "array_fill", "array_length", "array_lower", "array_ndims", "array_position",
    "array_positions", "array_prepend", "array_remove", "array_replace", "array_to_json",
    "array_to_string", "array_to_tsvector", "array_upper", "ascii", "asin", "asind", "asinh",
    "atan", "atan2", "atan2d", "atand", "atanh", "avg", "bit_and", "bit_length", "bit_or",
    "bool_and", "bool_or", "btrim", "cardinality", "cbrt", "ceil", "ceiling", "char_length",
    "character_length", "chr", "clock_timestamp", "coalesce", "col_description", "concat",
    "concat_ws", "convert", "convert_from", "convert_to", "corr", "cos", "cosd", "cosh", "cot",
    "cotd", "count", "covar_pop", "covar_samp", "cume_dist", "current_database", "current_schema",
    "current_schemas", "current_setting", "currval", "date", "date_part", "date_trunc",
    "daterange", "decode", "degrees", "dense_rank", "div", "encode", "enum_first", "enum_last",
    "enum_range", "every", "exp", "extract", "factorial", "family", "first_value", "floor",
    "format", "format_type", "gen_random_uuid", "generate_series", "generate_subscripts",
    "get_bit", "get_byte", "get_current_ts_config", "greatest", "grouping",
    "has_any_column_privilege", "has_column_privilege", "has_database_privilege",
    "has_foreign_data_wrapper_privilege", "has_function_privilege", "has_language_privilege",
    "has_schema_privilege", "has_sequence_privilege", "has_server_privilege",
    "has_table_privilege", "has_tablespace_privilege", "has_type_privilege", "height", "host",
    "hostmask", "inet_client_addr", "inet_client_port", "inet_merge", "inet_same_family",
    "inet_server_addr", "inet_server_port", "initcap", "int4range", "int8range", "isempty",
    "isfinite", "json_agg", "json_array_elements", "json_array_elements_text",
    "json_array_length", "json_build_array", "json_build_object", "json_each", "json_each_text",
    "json_extract_path", "json_extract_path_text", "json_object", "json_object_agg",
    "json_object_keys", "json_populate_record", "json_populate_recordset", "json_strip_nulls",
    "json_to_record", "json_to_recordset", "json_typeof", "jsonb_agg", "jsonb_array_elements",
    "jsonb_array_elements_text", "jsonb_array_length", "jsonb_build_array", "jsonb_build_object",
    "jsonb_each", "jsonb_each_text", "jsonb_extract_path", "jsonb_extract_path_text",
    "jsonb_insert", "jsonb_object", "jsonb_object_agg", "jsonb_object_keys", "jsonb_path_exists",
    "jsonb_path_match", "jsonb_path_query", "jsonb_path_query_array", "jsonb_path_query_first",
    "jsonb_populate_record", "jsonb_populate_recordset", "jsonb_pretty", "jsonb_set",
    "jsonb_strip_nulls", "jsonb_to_record", "jsonb_to_recordset", "jsonb_typeof", "justify_days",
    "justify_hours", "justify_interval", "lag", "last_value", "lastval", "lead", "least", "left",
    "length", "ln", "log", "log10", "lower", "lower_inc", "lower_inf", "lpad", "ltrim",
    "make_date", "make_interval", "make_time", "make_timestamp", "make_timestamptz", "masklen",
    "max", "md5", "min", "mod", "mode", "netmask", "network", "now", "nth_value", "ntile",
    "nullif", "num_nonnulls", "num_nulls", "numrange", "obj_description", "octet_length",
    "overlay", "parse_ident", "percent_rank", "percentile_cont", "percentile_disc",
    "pg_backend_pid", "pg_blocking_pids", "pg_client_encoding", "pg_column_size",
    "pg_conf_load_time", "pg_current_wal_lsn", "pg_database_size", "pg_describe_object",
    "pg_encoding_to_char", "pg_function_is_visible", "pg_get_constraintdef", "pg_get_expr",
    "pg_get_function_arguments", "pg_get_function_identity_arguments", "pg_get_function_result",
    "pg_get_functiondef", "pg_get_indexdef", "pg_get_keywords", "pg_get_ruledef",
    "pg_get_serial_sequence", "pg_get_triggerdef", "pg_get_userbyid", "pg_get_viewdef",
    "pg_has_role", "pg_indexes_size", "pg_is_in_recovery", "pg_is_other_temp_schema",
    "pg_last_wal_receive_lsn", "pg_last_wal_replay_lsn", "pg_last_xact_replay_timestamp",
    "pg_listening_channels", "pg_my_temp_schema", "pg_postmaster_start_time",
    "pg_relation_filenode", "pg_relation_filepath", "pg_relation_size", "pg_size_bytes",
    "pg_size_pretty", "pg_table_is_visible",
    "pg_table_size", "pg_tablespace_location", "pg_tablespace_size", "pg_timezone_abbrevs",
    "pg_timezone_names", "pg_total_relation_size", "pg_trigger_depth", "pg_type_is_visible",
    "pg_typeof", "pg_wal_lsn_diff", "phraseto_tsquery", "pi", "plainto_tsquery", "position",
    "power", "quote_ident", "quote_literal", "quote_nullable", "radians", "random", "range_merge",
    "rank", "regexp_match", "regexp_matches", "regexp_replace", "regexp_split_to_array",
    "regexp_split_to_table", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2",
    "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "repeat", "replace", "reverse", "right",
    "round", "row_number", "row_security_active", "row_to_json", "rpad", "rtrim", "scale",
    "set_bit", "set_byte", "set_masklen", "setweight", "sha224", "sha256", "sha384", "sha512",
    "shobj_description", "sign", "sin", "sind", "sinh", "split_part", "sqrt", "starts_with",
    "statement_timestamp", "stddev", "stddev_pop", "stddev_samp", "string_agg", "string_to_array",
    "strip", "strpos", "substr", "substring", "sum", "tan", "tand", "tanh", "text", "timeofday",
    "timezone", "to_ascii", "to_char", "to_date", "to_hex", "to_json", "to_jsonb", "to_number",
    "to_regclass", "to_regnamespace", "to_regoper", "to_regoperator", "to_regproc",
    "to_regprocedure", "to_regrole", "to_regtype", "to_timestamp", "to_tsquery", "to_tsvector",
    "transaction_timestamp", "translate", "trim", "trunc", "ts_debug", "ts_delete", "ts_filter",
    "ts_headline", "ts_lexize", "ts_rank", "ts_rank_cd", "tsquery_phrase", "tsrange", "tstzrange",
    "tsvector_to_array", "unnest", "upper", "upper_inc", "upper_inf", "var_pop", "var_samp",
    "variance", "version", "websearch_to_tsquery", "width_bucket", "xml_is_well_formed", "xmlagg",
    "xmlcomment", "xmlconcat", "xmlelement", "xmlexists", "xmlforest", "xmlparse", "xmlpi",
    "xmlroot", "xmlserialize", "xpath", "xpath_exists",
];

/// Words before a parenthesis that is no call: words of the language, and types.
#[rustfmt::skip]
pub(super) static POSTGRES_WORDS: &[&str] = &[
    "all", "and", "any", "array", "as", "asymmetric", "bernoulli", "between", "bit", "by", "case",
    "cast", "char", "character", "cross", "cube", "current_time", "current_timestamp", "dec",
    "decimal", "distinct", "else", "escape", "except", "exclude", "exists", "explain", "filter",
    "first", "float", "from", "full", "group", "having", "ilike", "in", "inner", "intersect",
    "interval", "is", "isnull", "join", "lateral", "like", "limit", "localtime", "localtimestamp",
    "materialized", "national", "natural", "nchar", "next", "not", "notnull", "numeric", "offset",
    "on", "only", "or", "order", "outer", "over", "partition", "precision", "returning", "rollup",
    "row", "select", "sets", "similar", "some", "symmetric", "system", "table", "then", "time",
    "timestamp", "timestamptz", "timetz", "to", "union", "using", "values", "varchar", "variadic",
    "varying", "when", "where", "window", "with", "within", "zone",
];

/// Functions that nearly every database has, for unknown databases.
#[rustfmt::skip]
pub(super) static COMMON_FUNCTIONS: &[&str] = &[
    "abs", "avg", "ceiling", "char_length", "coalesce", "count", "current_timestamp", "extract",
    "floor", "length", "lower", "max", "min", "mod", "nullif", "position", "replace", "round",
    "row_number", "sqrt", "substring", "sum", "trim", "upper",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_in_order_so_that_they_can_be_searched() {
        for list in [POSTGRES_FUNCTIONS, POSTGRES_WORDS, COMMON_FUNCTIONS] {
            assert!(list.is_sorted());
        }
    }
}
