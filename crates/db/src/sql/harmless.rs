//! Functions of MySQL and MariaDB that leave the session unchanged.
//!
//! An application's own function can do anything that a statement can: take a lock, set a variable. So a function
//! counts as harmless only if it is on this list. The list has the functions that MySQL 8.0 and MariaDB 10.11
//! share: a name that one server lacks is an application's function there. [`session`](super::session) lists
//! what else is left out on purpose.
//!
//! In MariaDB an application can define functions named `json_table` and `lateral`, and functions such as `point` with
//! another number of arguments than the server's. The scanner takes these for the server's.

/// Returns whether one of these sorted lists contains a name that a parenthesis follows.
pub(super) fn is_known(lists: &[&[&str]], name: &str) -> bool {
    // The longest name on the lists is shorter.
    let mut lower = [0; 40];
    let Some(lower) = lower.get_mut(..name.len()) else {
        return false;
    };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    let lower: &[u8] = lower;
    lists
        .iter()
        .any(|list| list.binary_search_by(|it| it.as_bytes().cmp(lower)).is_ok())
}

/// Returns whether a harmless function takes as long as its argument says. A call of it is ended by a kill, and must
/// not run again.
pub(super) fn waits(name: &str) -> bool {
    is_known(&[&["benchmark", "sleep"]], name)
}

/// Names that are the server's functions only if the parenthesis follows directly. After a space, and without
/// `IGNORE_SPACE` in the `sql_mode`, the server calls the application's function of that name.
#[rustfmt::skip]
pub(super) static TOUCHING: &[&str] = &[
    "adddate", "bit_and", "bit_or", "bit_xor", "cast", "count", "cume_dist", "curdate", "curtime",
    "date_add", "date_sub", "dense_rank", "extract", "first_value", "group_concat",
    "json_arrayagg", "json_objectagg", "json_table", "lag", "lead", "max", "mid", "min", "now",
    "nth_value", "ntile", "percent_rank", "position", "rank", "session_user", "std", "stddev",
    "stddev_pop", "stddev_samp", "subdate", "substr", "substring", "sum", "sysdate",
    "system_user", "trim", "var_pop", "var_samp", "variance",
];

/// Sorted, for a binary search.
#[rustfmt::skip]
pub(super) static FUNCTIONS: &[&str] = &[
    "abs", "acos", "adddate", "addtime", "aes_decrypt", "aes_encrypt", "ascii", "asin", "atan",
    "atan2", "avg", "benchmark", "bin", "bit_and", "bit_count", "bit_length", "bit_or", "bit_xor",
    "ceil", "ceiling", "char", "char_length", "character_length", "charset", "coalesce",
    "coercibility", "collation", "compress", "concat", "concat_ws", "connection_id", "conv",
    "convert", "convert_tz", "cos", "cot", "count", "crc32", "cume_dist", "curdate",
    "current_date", "current_role", "current_time", "current_timestamp", "current_user",
    "curtime", "database", "date", "date_add", "date_format", "date_sub", "datediff", "day",
    "dayname", "dayofmonth", "dayofweek", "dayofyear", "default", "degrees", "dense_rank", "elt",
    "exp", "export_set", "extract", "extractvalue", "field", "find_in_set", "first_value",
    "floor", "format", "found_rows", "from_base64", "from_days", "from_unixtime",
    "geometrycollection", "get_format", "greatest", "group_concat", "hex", "hour", "if", "ifnull",
    "inet6_aton", "inet6_ntoa", "inet_aton", "inet_ntoa", "insert", "instr", "interval",
    "is_free_lock", "is_ipv4", "is_ipv4_compat", "is_ipv4_mapped", "is_ipv6", "is_used_lock",
    "isnull", "json_array", "json_array_append", "json_array_insert", "json_arrayagg",
    "json_contains", "json_contains_path", "json_depth", "json_extract", "json_insert",
    "json_keys", "json_length", "json_merge", "json_merge_patch", "json_merge_preserve",
    "json_object", "json_objectagg", "json_overlaps", "json_pretty", "json_quote", "json_remove",
    "json_replace", "json_search", "json_set", "json_table", "json_type", "json_unquote",
    "json_valid", "json_value", "lag", "last_day", "last_insert_id", "last_value", "lcase",
    "lead", "least", "left", "length", "linestring", "ln", "load_file", "localtime",
    "localtimestamp", "locate", "log", "log10", "log2", "lower", "lpad", "ltrim", "make_set",
    "makedate", "maketime", "max", "mbrcontains", "mbrdisjoint", "mbrequals", "mbrintersects",
    "mbroverlaps", "mbrtouches", "mbrwithin", "md5", "microsecond", "mid", "min", "minute", "mod",
    "month", "monthname", "multilinestring", "multipoint", "multipolygon", "name_const", "now",
    "nth_value", "ntile", "nullif", "oct", "octet_length", "ord", "percent_rank", "period_add",
    "period_diff", "pi", "point", "polygon", "position", "pow", "power", "quarter", "quote",
    "radians", "rand", "random_bytes", "rank", "regexp_instr", "regexp_replace", "regexp_substr",
    "repeat", "replace", "reverse", "right", "round", "row_count", "row_number", "rpad", "rtrim",
    "schema", "sec_to_time", "second", "session_user", "sha", "sha1", "sha2", "sign", "sin",
    "sleep", "soundex", "space", "sqrt", "st_area", "st_asbinary", "st_asgeojson", "st_astext",
    "st_aswkb", "st_aswkt", "st_buffer", "st_centroid", "st_contains", "st_convexhull",
    "st_crosses", "st_difference", "st_dimension", "st_disjoint", "st_distance",
    "st_distance_sphere", "st_endpoint", "st_envelope", "st_equals", "st_exteriorring",
    "st_geomcollfromtext", "st_geomcollfromwkb", "st_geometrycollectionfromtext",
    "st_geometrycollectionfromwkb", "st_geometryfromtext", "st_geometryfromwkb", "st_geometryn",
    "st_geometrytype", "st_geomfromgeojson", "st_geomfromtext", "st_geomfromwkb",
    "st_interiorringn", "st_intersection", "st_intersects", "st_isclosed", "st_isempty",
    "st_issimple", "st_length", "st_linefromtext", "st_linefromwkb", "st_linestringfromtext",
    "st_linestringfromwkb", "st_mlinefromtext", "st_mlinefromwkb", "st_mpointfromtext",
    "st_mpointfromwkb", "st_mpolyfromtext", "st_mpolyfromwkb", "st_numgeometries",
    "st_numinteriorrings", "st_numpoints", "st_overlaps", "st_pointfromtext", "st_pointfromwkb",
    "st_pointn", "st_polyfromtext", "st_polyfromwkb", "st_polygonfromtext", "st_polygonfromwkb",
    "st_srid", "st_startpoint", "st_symdifference", "st_touches", "st_union", "st_within", "st_x",
    "st_y", "std", "stddev", "stddev_pop", "stddev_samp", "str_to_date", "strcmp", "subdate",
    "substr", "substring", "substring_index", "subtime", "sum", "sysdate", "system_user", "tan",
    "time", "time_format", "time_to_sec", "timediff", "timestamp", "timestampadd",
    "timestampdiff", "to_base64", "to_days", "to_seconds", "trim", "truncate", "ucase",
    "uncompress", "uncompressed_length", "unhex", "unix_timestamp", "updatexml", "upper", "user",
    "utc_date", "utc_time", "utc_timestamp", "uuid", "uuid_short", "values", "var_pop",
    "var_samp", "variance", "version", "week", "weekday", "weekofyear", "weight_string", "year",
    "yearweek",
];

/// Words before a parenthesis that is no call: words of the language, and types.
#[rustfmt::skip]
pub(super) static WORDS: &[&str] = &[
    "all", "and", "any", "as", "between", "bigint", "binary", "by", "case", "cast",
    "cross", "datetime", "decimal", "distinct", "div", "double", "else", "except",
    "exists", "float", "for", "force", "from", "group", "having", "ignore", "in", "index",
    "inner", "int", "integer", "intersect", "into", "is", "join", "key", "lateral", "like",
    "limit", "match", "nchar", "not", "numeric", "offset", "on", "or", "order", "outer", "over",
    "partition", "precision", "recursive", "regexp", "returning", "rlike", "row", "rows",
    "select", "set", "signed", "some", "sounds", "straight_join", "then", "union",
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
            assert!(is_known(&[FUNCTIONS, WORDS], name), "{name}");
        }
        let long = "x".repeat(100);
        for name in ["", "my_function", "get_lock", "counts", "größe", &long] {
            assert!(!is_known(&[FUNCTIONS, WORDS], name), "{name}");
        }
    }
}
