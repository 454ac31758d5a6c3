//! What MySQL and MariaDB have of functions that leave the session alone.
//!
//! A function that an application has written can do anything a statement can: take a lock, set a
//! variable. So it counts as harmless only if it is on this list. What is left out on purpose stands in
//! [`session`](super::session).

/// Whether a name with a parenthesis behind it is a function of MySQL's that leaves the session alone, or
/// no function at all.
pub(super) fn is_harmless_in_mysql(name: &str) -> bool {
    // No name on the lists is longer.
    let mut lower = [0; 40];
    let Some(lower) = lower.get_mut(..name.len()) else {
        return false;
    };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    let lower: &[u8] = lower;
    let is_in = |list: &[&str]| {
        list.binary_search_by(|known| known.as_bytes().cmp(lower))
            .is_ok()
    };
    is_in(FUNCTIONS) || is_in(WORDS)
}

/// In order, so that they can be searched.
#[rustfmt::skip]
static FUNCTIONS: &[&str] = &[
    "abs", "acos", "adddate", "addtime", "aes_decrypt", "aes_encrypt", "any_value", "ascii",
    "asin", "atan", "atan2", "avg", "benchmark", "bin", "bin_to_uuid", "bit_and", "bit_count",
    "bit_length", "bit_or", "bit_xor", "ceil", "ceiling", "char", "char_length",
    "character_length", "charset", "chr", "coalesce", "coercibility", "collation", "column_add",
    "column_check", "column_create", "column_delete", "column_exists", "column_get",
    "column_json", "column_list", "compress", "concat", "concat_ws", "connection_id", "conv",
    "convert", "convert_tz", "cos", "cot", "count", "crc32", "crc32c", "cume_dist", "curdate",
    "current_date", "current_role", "current_time", "current_timestamp", "current_user",
    "curtime", "database", "date", "date_add", "date_format", "date_sub", "datediff", "day",
    "dayname", "dayofmonth", "dayofweek", "dayofyear", "decode", "decode_oracle", "default",
    "degrees", "dense_rank", "des_decrypt", "des_encrypt", "elt", "encode", "encrypt", "exp",
    "export_set", "extract", "extractvalue", "field", "find_in_set", "first_value", "floor",
    "format", "format_bytes", "format_pico_time", "found_rows", "from_base64", "from_days",
    "from_unixtime", "geomcollection", "geometrycollection", "geometrycollectionfromtext",
    "geometryfromtext", "geometryfromwkb", "get_format", "greatest", "group_concat", "grouping",
    "hex", "hour", "if", "ifnull", "inet6_aton", "inet6_ntoa", "inet_aton", "inet_ntoa", "insert",
    "instr", "interval", "is_free_lock", "is_ipv4", "is_ipv4_compat", "is_ipv4_mapped", "is_ipv6",
    "is_used_lock", "is_uuid", "isnull", "json_array", "json_array_append", "json_array_insert",
    "json_array_intersect", "json_arrayagg", "json_compact", "json_contains",
    "json_contains_path", "json_depth", "json_detailed", "json_equals", "json_exists",
    "json_extract", "json_insert", "json_keys", "json_length", "json_loose", "json_merge",
    "json_merge_patch", "json_merge_preserve", "json_normalize", "json_object",
    "json_object_filter_keys", "json_object_to_array", "json_objectagg", "json_overlaps",
    "json_pretty", "json_query", "json_quote", "json_remove", "json_replace", "json_schema_valid",
    "json_schema_validation_report", "json_search", "json_set", "json_storage_free",
    "json_storage_size", "json_table", "json_type", "json_unquote", "json_valid", "json_value",
    "kdf", "lag", "last_day", "last_insert_id", "last_value", "lastval", "lcase", "lead", "least",
    "left", "length", "lengthb", "linestring", "ln", "load_file", "localtime", "localtimestamp",
    "locate", "log", "log10", "log2", "lower", "lpad", "ltrim", "make_set", "makedate",
    "maketime", "master_gtid_wait", "master_pos_wait", "max", "mbrcontains", "mbrcoveredby",
    "mbrcovers", "mbrdisjoint", "mbrequal", "mbrequals", "mbrintersects", "mbroverlaps",
    "mbrtouches", "mbrwithin", "md5", "median", "microsecond", "mid", "min", "minute", "mod",
    "month", "monthname", "multilinestring", "multipoint", "multipolygon", "name_const",
    "natural_sort_key", "nextval", "now", "nth_value", "ntile", "nullif", "nvl", "nvl2", "oct",
    "octet_length", "old_password", "ord", "password", "percent_rank", "percentile_cont",
    "percentile_disc", "period_add", "period_diff", "pi", "point", "polygon", "position", "pow",
    "power", "previous_gtid", "ps_current_thread_id", "ps_thread_id", "quarter", "quote",
    "radians", "rand", "random_bytes", "rank", "regexp_instr", "regexp_like", "regexp_replace",
    "regexp_substr", "repeat", "replace", "reverse", "right", "round", "row_count", "row_number",
    "rownum", "rpad", "rtrim", "schema", "sec_to_time", "second", "session_user", "sformat",
    "sha", "sha1", "sha2", "sign", "sin", "sleep", "soundex", "space", "sqrt", "st_area",
    "st_asbinary", "st_asgeojson", "st_astext", "st_aswkb", "st_aswkt", "st_boundary",
    "st_buffer", "st_buffer_strategy", "st_centroid", "st_collect", "st_contains",
    "st_convexhull", "st_crosses", "st_difference", "st_dimension", "st_disjoint", "st_distance",
    "st_distance_sphere", "st_endpoint", "st_envelope", "st_equals", "st_exteriorring",
    "st_frechetdistance", "st_geohash", "st_geomcollfromtext", "st_geomcollfromwkb",
    "st_geometrycollectionfromtext", "st_geometrycollectionfromwkb", "st_geometryfromtext",
    "st_geometryfromwkb", "st_geometryn", "st_geometrytype", "st_geomfromgeojson",
    "st_geomfromtext", "st_geomfromwkb", "st_hausdorffdistance", "st_interiorringn",
    "st_intersection", "st_intersects", "st_isclosed", "st_isempty", "st_isring", "st_issimple",
    "st_isvalid", "st_latfromgeohash", "st_latitude", "st_length", "st_linefromtext",
    "st_linefromwkb", "st_lineinterpolatepoint", "st_linestringfromtext", "st_linestringfromwkb",
    "st_longfromgeohash", "st_longitude", "st_makeenvelope", "st_mlinefromtext",
    "st_mlinefromwkb", "st_mpointfromtext", "st_mpointfromwkb", "st_mpolyfromtext",
    "st_mpolyfromwkb", "st_numgeometries", "st_numinteriorring", "st_numinteriorrings",
    "st_numpoints", "st_overlaps", "st_perimeter", "st_pointatdistance", "st_pointfromgeohash",
    "st_pointfromtext", "st_pointfromwkb", "st_pointn", "st_pointonsurface", "st_polyfromtext",
    "st_polyfromwkb", "st_polygonfromtext", "st_polygonfromwkb", "st_relate", "st_simplify",
    "st_srid", "st_startpoint", "st_swapxy", "st_symdifference", "st_touches", "st_transform",
    "st_union", "st_validate", "st_within", "st_x", "st_y", "statement_digest",
    "statement_digest_text", "std", "stddev", "stddev_pop", "stddev_samp", "str_to_date",
    "strcmp", "subdate", "substr", "substring", "substring_index", "subtime", "sum", "sysdate",
    "system_user", "tan", "time", "time_format", "time_to_sec", "timediff", "timestamp",
    "timestampadd", "timestampdiff", "to_base64", "to_char", "to_date", "to_days", "to_number",
    "to_seconds", "trim", "trim_oracle", "truncate", "ucase", "uncompress", "uncompressed_length",
    "unhex", "unix_timestamp", "updatexml", "upper", "user", "utc_date", "utc_time",
    "utc_timestamp", "uuid", "uuid_short", "uuid_to_bin", "uuid_v4", "uuid_v7",
    "validate_password_strength", "value", "values", "var_pop", "var_samp", "variance",
    "vec_distance", "vec_distance_cosine", "vec_distance_euclidean", "vec_fromtext", "vec_totext",
    "version", "week", "weekday", "weekofyear", "weight_string", "year", "yearweek",
];

/// What a parenthesis can stand behind without being a call: words of the language, and types.
#[rustfmt::skip]
static WORDS: &[&str] = &[
    "against", "all", "and", "any", "as", "between", "bigint", "binary", "by", "case", "cast",
    "columns", "cross", "datetime", "decimal", "distinct", "div", "double", "else", "except",
    "exists", "float", "for", "force", "from", "full", "group", "having", "ignore", "in", "index",
    "inner", "int", "integer", "intersect", "into", "is", "join", "key", "lateral", "like",
    "limit", "match", "nchar", "not", "numeric", "offset", "on", "or", "order", "outer", "over",
    "partition", "precision", "recursive", "regexp", "returning", "rlike", "row", "rows",
    "select", "set", "signed", "some", "sounds", "straight_join", "system_time", "then", "union",
    "unsigned", "update", "use", "using", "varbinary", "varchar", "when", "where", "window",
    "with", "xor",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_in_order_and_short_enough_to_be_searched() {
        for list in [FUNCTIONS, WORDS] {
            assert!(list.is_sorted());
            assert!(list.iter().all(|name| name.len() <= 40));
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_others_are_not() {
        for name in ["count", "COUNT", "Json_Extract", "in", "WHERE"] {
            assert!(is_harmless_in_mysql(name), "{name}");
        }
        let long = "x".repeat(100);
        for name in ["", "my_function", "get_lock", "counts", "größe", &long] {
            assert!(!is_harmless_in_mysql(name), "{name}");
        }
    }
}
