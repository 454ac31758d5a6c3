/* PDOStatement over cenote. */

#include "pdo.h"
#include <ctype.h>

/* Frees what the parameters of one run own. */
static void free_params(cen_param *params, zend_string **texts, uint32_t count)
{
	uint32_t i;
	for (i = 0; i < count; i++) {
		if (texts[i]) {
			zend_string_release(texts[i]);
		}
	}
	efree(texts);
	efree(params);
}

static bool param_text(cen_param *param, zend_string **text, zval *value, int kind)
{
	*text = zval_try_get_string(value);
	if (!*text) {
		return false;
	}
	param->kind = kind;
	param->text = cen_text_of(*text);
	return true;
}

/* Reads one bound value as the drivers of PHP do. */
static bool read_param(cen_driver driver, struct pdo_bound_param_data *bound, cen_param *param, zend_string **text)
{
	int type = PDO_PARAM_TYPE(bound->param_type);
	zval *value = &bound->parameter;
	ZVAL_DEREF(value);
	memset(param, 0, sizeof(*param));
	*text = NULL;
	param->position = bound->paramno;
	if (bound->name) {
		param->position = -1;
		param->name = cen_text_of(bound->name);
	}
	if (type == PDO_PARAM_NULL || Z_TYPE_P(value) == IS_NULL) {
		param->kind = CEN_PARAM_NULL;
		return true;
	}
	if (type == PDO_PARAM_LOB && Z_TYPE_P(value) == IS_RESOURCE) {
		php_stream *stream;
		php_stream_from_zval_no_verify(stream, value);
		zend_ulong oid;
		if (!stream) {
			return false;
		}
		if (cen_lob_oid(stream, &oid)) {
			*text = zend_long_to_str((zend_long) oid);
			param->kind = CEN_PARAM_TEXT;
			param->text = cen_text_of(*text);
			return true;
		}
		*text = php_stream_copy_to_mem(stream, PHP_STREAM_COPY_ALL, 0);
		if (!*text) {
			*text = ZSTR_EMPTY_ALLOC();
		}
		param->kind = CEN_PARAM_BYTES;
		param->text = cen_text_of(*text);
		/* The stream is at its end: the next run takes the same bytes. */
		zval_ptr_dtor(value);
		ZVAL_STR_COPY(value, *text);
		return true;
	}
	if (type == PDO_PARAM_LOB) {
		return param_text(param, text, value, CEN_PARAM_BYTES);
	}
	if (driver == CEN_PGSQL) {
		if (Z_TYPE_P(value) == IS_TRUE || Z_TYPE_P(value) == IS_FALSE) {
			param->kind = CEN_PARAM_TEXT;
			param->text.start = Z_TYPE_P(value) == IS_TRUE ? "t" : "f";
			param->text.len = 1;
			return true;
		}
		return param_text(param, text, value, CEN_PARAM_TEXT);
	}
	if (driver == CEN_SQLITE) {
		if (type == PDO_PARAM_INT || type == PDO_PARAM_BOOL) {
			param->kind = CEN_PARAM_INT;
			param->number = zval_get_long(value);
			return true;
		}
		return param_text(param, text, value, CEN_PARAM_TEXT);
	}
	switch (Z_TYPE_P(value)) {
		case IS_TRUE:
		case IS_FALSE:
		case IS_LONG:
			param->kind = CEN_PARAM_INT;
			param->number = zval_get_long(value);
			return true;
		case IS_DOUBLE:
			param->kind = CEN_PARAM_DOUBLE;
			param->floating = Z_DVAL_P(value);
			return true;
		default:
			return param_text(param, text, value, CEN_PARAM_TEXT);
	}
}

static int stmt_dtor(pdo_stmt_t *stmt)
{
	if (stmt->driver_data) {
		cenote_stmt_free(stmt->driver_data);
		stmt->driver_data = NULL;
	}
	return 1;
}

/* Notes the statement's error. */
static bool stmt_ok(pdo_stmt_t *stmt, cen_status status)
{
	pdo_dbh_t *dbh = stmt->dbh;
	bool ok = cen_dbh_ok(dbh, status);
	if (ok) {
		strcpy(stmt->error_code, PDO_ERR_NONE);
	} else if (status == CEN_FAILED) {
		cen_db_error error = {0};
		cenote_db_error(CEN_DBH(dbh)->db, stmt->driver_data, &error);
		memcpy(stmt->error_code, error.state, sizeof(stmt->error_code));
		stmt->error_code[5] = '\0';
		/* PDO::query() is about to replace it, and would not free it. Another coroutine has put it there. */
		if (dbh->query_stmt) {
			dbh->query_stmt = NULL;
			zval_ptr_dtor(&dbh->query_stmt_zval);
		}
		/* The error is the statement's. */
		strcpy(dbh->error_code, PDO_ERR_NONE);
	}
	return ok;
}

static void set_counts(pdo_stmt_t *stmt)
{
	zend_long columns = 0, affected = 0;
	cenote_stmt_counts(stmt->driver_data, &columns, &affected);
	cen_pdo.set_column_count(stmt, (int) columns);
	stmt->row_count = affected;
}

static int stmt_execute(pdo_stmt_t *stmt)
{
	cen_dbh *H = CEN_DBH(stmt->dbh);
	cen_text text = {0};
	cen_param *params = NULL;
	zend_string **texts = NULL;
	uint32_t count = 0;
	cen_status status;
	if (stmt->supports_placeholders == PDO_PLACEHOLDER_NONE) {
		text = cen_text_of(stmt->active_query_string ? stmt->active_query_string : stmt->query_string);
	} else if (stmt->bound_params && zend_hash_num_elements(stmt->bound_params)) {
		struct pdo_bound_param_data *bound;
		uint32_t most = zend_hash_num_elements(stmt->bound_params);
		params = safe_emalloc(most, sizeof(cen_param), 0);
		texts = safe_emalloc(most, sizeof(zend_string *), 0);
		ZEND_HASH_FOREACH_PTR(stmt->bound_params, bound) {
			if (!bound->is_param) {
				continue;
			}
			if (!read_param(H->driver, bound, &params[count], &texts[count])) {
				free_params(params, texts, count);
				if (!EG(exception)) {
					cen_pdo.raise_impl_error(stmt->dbh, stmt, "HY105", "Expected a stream resource");
				}
				return 0;
			}
			count++;
		} ZEND_HASH_FOREACH_END();
	}
	status = cenote_stmt_execute(stmt->driver_data, text, params, count);
	if (params) {
		free_params(params, texts, count);
	}
	if (!stmt_ok(stmt, status)) {
		return 0;
	}
	set_counts(stmt);
	return 1;
}

static int stmt_fetch(pdo_stmt_t *stmt, enum pdo_fetch_orientation ori, zend_long offset)
{
	/* The rows are here, so any direction is easy; PHP has it for PostgreSQL only. */
	if (ori != PDO_FETCH_ORI_NEXT && CEN_DBH(stmt->dbh)->driver != CEN_PGSQL) {
		return 0;
	}
	return cenote_stmt_fetch(stmt->driver_data, ori, offset);
}

static int stmt_describe(pdo_stmt_t *stmt, int colno)
{
	struct pdo_column_data *column = &stmt->columns[colno];
	cen_text name, type_name;
	uint32_t type;
	if (!cenote_stmt_column(stmt->driver_data, colno, &name, &type_name, &type)) {
		return 0;
	}
	column->name = zend_string_init(name.start, name.len, 0);
	column->maxlen = SIZE_MAX;
	column->precision = 0;
	return 1;
}

static int stmt_get_col(pdo_stmt_t *stmt, int colno, zval *result, enum pdo_param_type *type)
{
	cen_cell cell;
	cenote_stmt_cell(stmt->driver_data, colno, &cell);
	switch (cell.kind) {
		case CEN_CELL_NULL:
			ZVAL_NULL(result);
			break;
		case CEN_CELL_BOOL:
			ZVAL_BOOL(result, cell.number);
			break;
		case CEN_CELL_INT:
			ZVAL_LONG(result, cell.number);
			break;
		case CEN_CELL_DOUBLE:
			ZVAL_DOUBLE(result, cell.floating);
			break;
		case CEN_CELL_STREAM: {
			zend_string *bytes = zend_string_init(cell.text.start, cell.text.len, 0);
			php_stream *stream = php_stream_memory_open(TEMP_STREAM_READONLY, bytes);
			php_stream_to_zval(stream, result);
			zend_string_release(bytes);
			break;
		}
		case CEN_CELL_OID:
			if (type && *type == PDO_PARAM_LOB) {
				php_stream *stream = cen_lob_stream(&stmt->database_object_handle, (zend_ulong) cell.number, false);
				if (!stream) {
					return 0;
				}
				php_stream_to_zval(stream, result);
			} else {
				ZVAL_LONG(result, cell.number);
			}
			break;
		default:
			ZVAL_STRINGL_FAST(result, cell.text.start, cell.text.len);
	}
	return 1;
}

static int stmt_param_hook(pdo_stmt_t *stmt, struct pdo_bound_param_data *param, enum pdo_param_event event)
{
	if ((event == PDO_PARAM_EVT_ALLOC || event == PDO_PARAM_EVT_NORMALIZE) && param->is_param && stmt->driver_data
			&& CEN_DBH(stmt->dbh)->driver == CEN_PGSQL && stmt->supports_placeholders != PDO_PLACEHOLDER_NONE) {
		static const char state[] = "HY093", undefined[] = "parameter was not defined";
		cen_text of_state = { state, 5 }, name = {0}, message = { undefined, sizeof(undefined) - 1 };
		if (param->name) {
			message = name = cen_text_of(param->name);
		}
		if (!cenote_stmt_has_param(stmt->driver_data, name, param->paramno)) {
			cenote_stmt_fail(stmt->driver_data, of_state, 0, message);
			strcpy(stmt->error_code, state);
			return 0;
		}
	}
	/* PDO writes a boolean into the text as a number, which PostgreSQL refuses. */
	if (event == PDO_PARAM_EVT_NORMALIZE && param->is_param && CEN_DBH(stmt->dbh)->driver == CEN_PGSQL
			&& stmt->supports_placeholders == PDO_PLACEHOLDER_NONE
			&& PDO_PARAM_TYPE(param->param_type) == PDO_PARAM_BOOL
			&& (param->param_type & PDO_PARAM_INPUT_OUTPUT) != PDO_PARAM_INPUT_OUTPUT) {
		const char *text = zend_is_true(&param->parameter) ? "t" : "f";
		param->param_type = PDO_PARAM_STR;
		zval_ptr_dtor(&param->parameter);
		ZVAL_STRINGL(&param->parameter, text, 1);
	}
	return 1;
}

/* The name of a type of PostgreSQL's catalogue. */
static void pgsql_type_name(pdo_stmt_t *stmt, uint32_t type, zval *meta)
{
	char number[16];
	zval name;
	cen_param param = { .kind = CEN_PARAM_TEXT };
	static const char sql[] = "SELECT typname FROM pg_type WHERE oid = ?::oid";
	cen_text text = { sql, sizeof(sql) - 1 };
	param.text.len = snprintf(number, sizeof(number), "%u", type);
	param.text.start = number;
	ZVAL_NULL(&name);
	if (cen_dbh_ok(stmt->dbh, cenote_db_ask(CEN_DBH(stmt->dbh)->db, text, &param, 1, &name))
			&& Z_TYPE(name) == IS_STRING) {
		add_assoc_zval(meta, "native_type", &name);
	} else {
		zval_ptr_dtor(&name);
	}
}

static int pgsql_pdo_type(uint32_t type)
{
	switch (type) {
		case 16: return PDO_PARAM_BOOL;
		case 20:
		case 21:
		case 23: return PDO_PARAM_INT;
		case 17:
		case 26: return PDO_PARAM_LOB;
		default: return PDO_PARAM_STR;
	}
}

static int stmt_column_meta(pdo_stmt_t *stmt, zend_long colno, zval *meta)
{
	cen_text name, type_name;
	uint32_t type;
	if (!stmt->driver_data || colno >= stmt->column_count
			|| !cenote_stmt_column(stmt->driver_data, colno, &name, &type_name, &type)) {
		return FAILURE;
	}
	array_init(meta);
	switch (CEN_DBH(stmt->dbh)->driver) {
		case CEN_PGSQL:
			add_assoc_long(meta, "pgsql:oid", type);
			if (type_name.len) {
				add_assoc_stringl(meta, "native_type", type_name.start, type_name.len);
			} else {
				pgsql_type_name(stmt, type, meta);
			}
			add_assoc_long(meta, "pdo_type", pgsql_pdo_type(type));
			break;
		case CEN_SQLITE: {
			cen_cell cell;
			zval flags;
			const char *native = "null";
			int pdo_type = PDO_PARAM_NULL;
			cenote_stmt_cell(stmt->driver_data, colno, &cell);
			if (cell.kind == CEN_CELL_INT) {
				native = "integer";
				pdo_type = PDO_PARAM_INT;
			} else if (cell.kind == CEN_CELL_DOUBLE) {
				native = "double";
				pdo_type = PDO_PARAM_STR;
			} else if (cell.kind == CEN_CELL_STRING) {
				native = "string";
				pdo_type = PDO_PARAM_STR;
			}
			array_init(&flags);
			add_assoc_string(meta, "native_type", native);
			add_assoc_long(meta, "pdo_type", pdo_type);
			if (type_name.len) {
				add_assoc_stringl(meta, "sqlite:decl_type", type_name.start, type_name.len);
			}
			add_assoc_zval(meta, "flags", &flags);
			break;
		}
		default: {
			zval flags;
			array_init(&flags);
			if (type_name.len) {
				add_assoc_stringl(meta, "native_type", type_name.start, type_name.len);
			}
			add_assoc_long(meta, "pdo_type", PDO_PARAM_STR);
			add_assoc_zval(meta, "flags", &flags);
		}
	}
	return SUCCESS;
}

static int stmt_next_rowset(pdo_stmt_t *stmt)
{
	if (!cenote_stmt_next_result(stmt->driver_data)) {
		return 0;
	}
	set_counts(stmt);
	return 1;
}

static int stmt_close(pdo_stmt_t *stmt)
{
	cenote_stmt_close(stmt->driver_data);
	return 1;
}

static int stmt_get_attribute(pdo_stmt_t *stmt, zend_long attr, zval *value)
{
	/* PDO::SQLITE_ATTR_READONLY_STATEMENT */
	if (CEN_DBH(stmt->dbh)->driver == CEN_SQLITE && attr == 1001) {
		const char *sql = ZSTR_VAL(stmt->query_string);
		while (isspace((unsigned char) *sql)) {
			sql++;
		}
		ZVAL_BOOL(value, !strncasecmp(sql, "SELECT", 6) || !strncasecmp(sql, "EXPLAIN", 7));
		return 1;
	}
	return 0;
}

const struct pdo_stmt_methods cen_stmt_methods = {
	stmt_dtor,
	stmt_execute,
	stmt_fetch,
	stmt_describe,
	stmt_get_col,
	stmt_param_hook,
	NULL,
	stmt_get_attribute,
	stmt_column_meta,
	stmt_next_rowset,
	stmt_close,
};
