/* A PDO object over cenote: its calls, attributes and errors. */

#include "pdo.h"
#include "ext/standard/html.h"
#include "zend_smart_str.h"

struct cen_pdo_symbols cen_pdo;

/* ---- errors ------------------------------------------------------------------ */

bool cen_is_ours(pdo_dbh_t *dbh)
{
	return dbh && dbh->methods == &cen_dbh_methods && dbh->driver_data;
}

bool cen_dbh_ok(pdo_dbh_t *dbh, cen_status status)
{
	cen_dbh *H = CEN_DBH(dbh);
	if (UNEXPECTED(status == CEN_BAILOUT)) {
		zend_bailout();
	}
	/* Other coroutines have used the handle meanwhile. An exception in flight says all. */
	strcpy(dbh->error_code, PDO_ERR_NONE);
	if (status == CEN_FAILED) {
		cen_db_error error = {0};
		if (cenote_db_error(H->db, NULL, &error)) {
			memcpy(dbh->error_code, error.state, 5);
			dbh->error_code[5] = '\0';
		}
	}
	memcpy(H->state, dbh->error_code, sizeof(H->state));
	return status == CEN_OK;
}

static void dbh_fetch_err(pdo_dbh_t *dbh, pdo_stmt_t *stmt, zval *info)
{
	cen_db_error error = {0};
	if (cenote_db_error(CEN_DBH(dbh)->db, stmt ? stmt->driver_data : NULL, &error)) {
		add_next_index_long(info, error.code);
		add_next_index_stringl(info, error.message.start, error.message.len);
	}
}

/* ---- handles ------------------------------------------------------------------ */

static void dbh_close(pdo_dbh_t *dbh)
{
	cen_dbh *H = CEN_DBH(dbh);
	if (H) {
		dbh->driver_data = NULL;
		if (H->pool) {
			OBJ_RELEASE(H->pool);
		}
		zend_hash_destroy(&H->lobs);
		cenote_db_free(H->db);
		efree(H);
	}
}

/* Whether PDO::query() prepares, and not PDO::prepare(). */
static bool is_query(void)
{
	zend_execute_data *frame = EG(current_execute_data);
	return frame && frame->func && frame->func->type == ZEND_INTERNAL_FUNCTION
		&& frame->func->common.function_name
		&& zend_string_equals_literal_ci(frame->func->common.function_name, "query");
}

static bool dbh_prepare(pdo_dbh_t *dbh, zend_string *sql, pdo_stmt_t *stmt, zval *options)
{
	cen_dbh *H = CEN_DBH(dbh);
	cen_kinds kinds = { .emulated = H->emulate, .once = is_query() };
	void *made = NULL;
	stmt->methods = &cen_stmt_methods;
	stmt->driver_data = NULL;
	if (options) {
		if (H->driver != CEN_PGSQL && pdo_attr_lval(options, PDO_ATTR_CURSOR, PDO_CURSOR_FWDONLY) == PDO_CURSOR_SCROLL) {
			cen_pdo.raise_impl_error(dbh, NULL, "IM001", "scrollable cursors do not exist here; fetch all rows, "
				"or declare a cursor in SQL");
			return false;
		}
		kinds.emulated = pdo_attr_lval(options, PDO_ATTR_EMULATE_PREPARES, kinds.emulated) != 0;
	}
	if (H->driver == CEN_PGSQL) {
		/* PDO::PGSQL_ATTR_DISABLE_PREPARES */
		kinds.uncached = pdo_attr_lval(options, 1000, H->buffered) != 0;
	}
	stmt->supports_placeholders = kinds.emulated ? PDO_PLACEHOLDER_NONE : PDO_PLACEHOLDER_NAMED | PDO_PLACEHOLDER_POSITIONAL;
	if (!cen_dbh_ok(dbh, cenote_stmt_new(H->db, cen_text_of(sql), kinds, &made))) {
		return false;
	}
	stmt->driver_data = made;
	return true;
}

static zend_long dbh_exec(pdo_dbh_t *dbh, const zend_string *sql)
{
	zend_long affected = 0;
	return cen_dbh_ok(dbh, cenote_db_exec(CEN_DBH(dbh)->db, cen_text_of(sql), &affected)) ? affected : -1;
}

static zend_string *quote_mysql(const zend_string *text, bool national)
{
	smart_str quoted = {0};
	size_t i;
	if (national) {
		smart_str_appendc(&quoted, 'N');
	}
	smart_str_appendc(&quoted, '\'');
	for (i = 0; i < ZSTR_LEN(text); i++) {
		char c = ZSTR_VAL(text)[i];
		switch (c) {
			case '\0': smart_str_appendl(&quoted, "\\0", 2); break;
			case '\n': smart_str_appendl(&quoted, "\\n", 2); break;
			case '\r': smart_str_appendl(&quoted, "\\r", 2); break;
			case '\032': smart_str_appendl(&quoted, "\\Z", 2); break;
			case '\'':
			case '"':
			case '\\':
				smart_str_appendc(&quoted, '\\');
				ZEND_FALLTHROUGH;
			default: smart_str_appendc(&quoted, c);
		}
	}
	smart_str_appendc(&quoted, '\'');
	smart_str_0(&quoted);
	return quoted.s;
}

static zend_string *quote_doubled(const zend_string *text)
{
	smart_str quoted = {0};
	size_t i;
	smart_str_appendc(&quoted, '\'');
	for (i = 0; i < ZSTR_LEN(text); i++) {
		if (ZSTR_VAL(text)[i] == '\'') {
			smart_str_appendc(&quoted, '\'');
		}
		smart_str_appendc(&quoted, ZSTR_VAL(text)[i]);
	}
	smart_str_appendc(&quoted, '\'');
	smart_str_0(&quoted);
	return quoted.s;
}

static zend_string *quote_hex(const char *before, const zend_string *bytes)
{
	static const char digits[] = "0123456789abcdef";
	smart_str quoted = {0};
	size_t i;
	smart_str_appends(&quoted, before);
	for (i = 0; i < ZSTR_LEN(bytes); i++) {
		unsigned char c = (unsigned char) ZSTR_VAL(bytes)[i];
		smart_str_appendc(&quoted, digits[c >> 4]);
		smart_str_appendc(&quoted, digits[c & 15]);
	}
	smart_str_appendc(&quoted, '\'');
	smart_str_0(&quoted);
	return quoted.s;
}

static bool is_utf8(const zend_string *text)
{
	size_t at = 0;
	zend_result status = SUCCESS;
	while (at < ZSTR_LEN(text) && status == SUCCESS) {
		php_next_utf8_char((const unsigned char *) ZSTR_VAL(text), ZSTR_LEN(text), &at, &status);
	}
	return status == SUCCESS;
}

static zend_string *dbh_quote(pdo_dbh_t *dbh, const zend_string *text, enum pdo_param_type type)
{
	bool is_lob = PDO_PARAM_TYPE(type) == PDO_PARAM_LOB;
	/* A NUL ends a text of SQL for SQLite and for PostgreSQL. */
	bool has_nul = memchr(ZSTR_VAL(text), '\0', ZSTR_LEN(text)) != NULL;
	switch (CEN_DBH(dbh)->driver) {
		case CEN_MYSQL:
			/* The text of a statement is UTF-8. */
			if (!is_utf8(text)) {
				return quote_hex("x'", text);
			}
			return quote_mysql(text, (type & PDO_PARAM_STR_NATL) == PDO_PARAM_STR_NATL);
		case CEN_PGSQL:
			if (!is_lob && !is_utf8(text)) {
				/* As libpq: it refuses. */
				return NULL;
			}
			return is_lob ? quote_hex("'\\x", text) : quote_doubled(text);
		default:
			return has_nul ? quote_hex("x'", text) : quote_doubled(text);
	}
}

static bool dbh_begin(pdo_dbh_t *dbh)
{
	return cen_dbh_ok(dbh, cenote_db_begin(CEN_DBH(dbh)->db));
}

static bool dbh_commit(pdo_dbh_t *dbh)
{
	bool ok = cen_dbh_ok(dbh, cenote_db_end(CEN_DBH(dbh)->db, true));
	cen_close_lobs(dbh);
	return ok;
}

static bool dbh_rollback(pdo_dbh_t *dbh)
{
	bool ok = cen_dbh_ok(dbh, cenote_db_end(CEN_DBH(dbh)->db, false));
	cen_close_lobs(dbh);
	return ok;
}

static bool dbh_in_transaction(pdo_dbh_t *dbh)
{
	return dbh->driver_data && cenote_db_in_transaction(CEN_DBH(dbh)->db);
}

static zend_string *dbh_last_id(pdo_dbh_t *dbh, const zend_string *name)
{
	cen_dbh *H = CEN_DBH(dbh);
	zend_long id = 0;
	zval value;
	zend_string *text = NULL;
	cen_status status;
	if (H->driver != CEN_PGSQL) {
		cenote_db_last_id(H->db, &id);
		return zend_long_to_str(id);
	}
	ZVAL_NULL(&value);
	if (name) {
		static const char sql[] = "SELECT CURRVAL(?)";
		cen_text asked = { sql, sizeof(sql) - 1 };
		cen_param param = { .kind = CEN_PARAM_TEXT };
		param.text = cen_text_of(name);
		status = cenote_db_ask(H->db, asked, &param, 1, &value);
	} else {
		static const char sql[] = "SELECT LASTVAL()";
		cen_text asked = { sql, sizeof(sql) - 1 };
		status = cenote_db_ask(H->db, asked, NULL, 0, &value);
	}
	if (cen_dbh_ok(dbh, status) && Z_TYPE(value) == IS_STRING) {
		text = zend_string_copy(Z_STR(value));
	}
	zval_ptr_dtor(&value);
	return text;
}

bool cen_dbh_set_attribute(pdo_dbh_t *dbh, zend_long attr, zval *value)
{
	cen_dbh *H = CEN_DBH(dbh);
	bool on;
	zend_long number;
	switch (attr) {
		case PDO_ATTR_EMULATE_PREPARES:
			if (H->driver == CEN_SQLITE) {
				return false;
			}
			if (!cen_pdo.bool_param(&on, value)) {
				return false;
			}
			H->emulate = on;
			return true;
		case PDO_ATTR_STRINGIFY_FETCHES:
			return true;
		case PDO_ATTR_AUTOCOMMIT:
			if (H->driver != CEN_MYSQL) {
				return false;
			}
			if (!cen_pdo.bool_param(&on, value)) {
				return false;
			}
			if (dbh->auto_commit != on) {
				zend_long affected;
				static const char sql_on[] = "SET autocommit = 1", sql_off[] = "SET autocommit = 0";
				cen_text sql = { on ? sql_on : sql_off, sizeof(sql_on) - 1 };
				if (!cen_dbh_ok(dbh, cenote_db_exec(H->db, sql, &affected))) {
					return false;
				}
				dbh->auto_commit = on;
			}
			return true;
		case PDO_ATTR_TIMEOUT:
			if (H->driver != CEN_SQLITE) {
				return false;
			}
			if (!cen_pdo.long_param(&number, value)) {
				return false;
			}
			{
				char sql[64];
				zend_long affected;
				cen_text text = { sql, snprintf(sql, sizeof(sql), "PRAGMA busy_timeout = " ZEND_LONG_FMT, number * 1000) };
				/* The constructor has set it already. */
				return H->pooled || cen_dbh_ok(dbh, cenote_db_exec(H->db, text, &affected));
			}
		case 1000:
			/* PDO::PGSQL_ATTR_DISABLE_PREPARES, PDO::MYSQL_ATTR_USE_BUFFERED_QUERY: rows are buffered. */
			if (H->driver == CEN_SQLITE || !cen_pdo.bool_param(&on, value)) {
				return false;
			}
			H->buffered = on;
			return true;
		case 1002:
			/* PDO::SQLITE_ATTR_EXTENDED_RESULT_CODES */
			if (H->driver != CEN_SQLITE || !cen_pdo.long_param(&number, value)) {
				return false;
			}
			cenote_db_extended_codes(H->db, number != 0);
			return true;
		default:
			return false;
	}
}

/* Returns the first value of a query, as an attribute. */
static int ask_attribute(pdo_dbh_t *dbh, const char *sql, zval *value)
{
	cen_text text = { sql, strlen(sql) };
	ZVAL_NULL(value);
	return cen_dbh_ok(dbh, cenote_db_ask(CEN_DBH(dbh)->db, text, NULL, 0, value)) ? 1 : -1;
}

static int dbh_get_attribute(pdo_dbh_t *dbh, zend_long attr, zval *value)
{
	cen_dbh *H = CEN_DBH(dbh);
	switch (attr) {
		case CEN_ATTR_POOL_ENABLED:
			ZVAL_BOOL(value, H->pooled);
			return 1;
		case CEN_ATTR_POOL_MIN:
		case CEN_ATTR_POOL_MAX:
			if (H->pooled) {
				ZVAL_LONG(value, attr == CEN_ATTR_POOL_MIN ? H->min : H->max);
			} else {
				ZVAL_FALSE(value);
			}
			return 1;
		case CEN_ATTR_POOL_HEALTHCHECK_INTERVAL:
			cen_pdo.raise_impl_error(dbh, NULL, "IM001", "PDO::ATTR_POOL_HEALTHCHECK_INTERVAL is a "
				"construction-only attribute and cannot be read at runtime");
			return -1;
		case PDO_ATTR_EMULATE_PREPARES:
			if (H->driver == CEN_SQLITE) {
				return 0;
			}
			if (H->driver == CEN_MYSQL) {
				ZVAL_LONG(value, H->emulate);
			} else {
				ZVAL_BOOL(value, H->emulate);
			}
			return 1;
		case PDO_ATTR_CLIENT_VERSION:
			if (H->driver == CEN_SQLITE) {
				return ask_attribute(dbh, "SELECT sqlite_version()", value);
			}
			ZVAL_STRING(value, "cenote " CENOTE_VERSION);
			return 1;
		case PDO_ATTR_SERVER_VERSION:
			return ask_attribute(dbh, H->driver == CEN_SQLITE ? "SELECT sqlite_version()"
				: H->driver == CEN_PGSQL ? "SHOW server_version" : "SELECT VERSION()", value);
		case PDO_ATTR_SERVER_INFO:
			if (H->driver == CEN_SQLITE) {
				return 0;
			}
			return ask_attribute(dbh, H->driver == CEN_PGSQL
				? "SELECT format('PID: %s; Client Encoding: %s; Is Superuser: %s; Session Authorization: %s; Date Style: %s', "
					"pg_backend_pid(), current_setting('client_encoding'), current_setting('is_superuser'), "
					"session_user, current_setting('datestyle'))"
				: "SELECT CONCAT('Threads: ', VARIABLE_VALUE) FROM information_schema.GLOBAL_STATUS "
					"WHERE VARIABLE_NAME = 'THREADS_CONNECTED'", value);
		case PDO_ATTR_CONNECTION_STATUS:
			if (H->driver == CEN_SQLITE) {
				return 0;
			}
			ZVAL_STRING(value, H->driver == CEN_PGSQL ? "Connection OK; waiting to send." : "cenote via TCP/IP");
			return 1;
		case PDO_ATTR_AUTOCOMMIT:
			if (H->driver != CEN_MYSQL) {
				return 0;
			}
			ZVAL_LONG(value, dbh->auto_commit);
			return 1;
		case PDO_ATTR_DEFAULT_STR_PARAM:
			if (H->driver != CEN_MYSQL) {
				return 0;
			}
			ZVAL_LONG(value, PDO_PARAM_STR_CHAR);
			return 1;
		case 1000:
			if (H->driver == CEN_SQLITE) {
				return 0;
			}
			ZVAL_BOOL(value, H->buffered);
			return 1;
		default:
			return 0;
	}
}

static void dbh_get_gc(pdo_dbh_t *dbh, zend_get_gc_buffer *buffer)
{
	if (dbh->driver_data) {
		cenote_db_gc(CEN_DBH(dbh)->db, buffer);
	}
}

static zend_result dbh_is_alive(pdo_dbh_t *dbh)
{
	return dbh->driver_data ? SUCCESS : FAILURE;
}

const struct pdo_dbh_methods cen_dbh_methods = {
	dbh_close,
	dbh_prepare,
	dbh_exec,
	dbh_quote,
	dbh_begin,
	dbh_commit,
	dbh_rollback,
	cen_dbh_set_attribute,
	dbh_last_id,
	dbh_fetch_err,
	dbh_get_attribute,
	dbh_is_alive,
	cen_dbh_driver_methods,
	NULL,
	dbh_in_transaction,
	dbh_get_gc,
};
