/* What the drivers add to PDO: functions of SQLite, COPY and large objects of PostgreSQL. */

#include "pdo.h"
#include "zend_smart_str.h"
#include "ext/standard/file.h"

cen_status cenote_db_copy_in(void *db, cen_text sql, cen_text data);
cen_status cenote_db_copy_out(void *db, cen_text sql, zval *data);

/* The handle of $this, with its errors cleared as PDO's own methods do. */
#define THIS_DBH(dbh) \
	pdo_dbh_t *dbh = Z_PDO_DBH_P(ZEND_THIS); \
	if (!cen_is_ours(dbh)) { \
		zend_throw_error(NULL, "PDO object is not initialized, constructor was not called"); \
		RETURN_THROWS(); \
	} \
	strcpy(dbh->error_code, PDO_ERR_NONE);

#define RETURN_DB_ERROR(dbh) \
	do { \
		if (strcmp((dbh)->error_code, PDO_ERR_NONE)) { \
			cen_pdo.handle_error(dbh, NULL); \
		} \
		RETURN_FALSE; \
	} while (0)

/* ---- SQLite ---------------------------------------------------------------------- */

enum { KIND_FUNCTION = 0, KIND_AGGREGATE = 1, KIND_COLLATION = 2, KIND_DETERMINISTIC = 3 };

static void add_sql_function(INTERNAL_FUNCTION_PARAMETERS, zend_string *name, zend_long arguments, int kind, cen_call *call, cen_call *last)
{
	THIS_DBH(dbh);
	if (!cen_dbh_ok(dbh, cenote_db_add_function(CEN_DBH(dbh)->db, cen_text_of(name), arguments, kind, call, last))) {
		/* A refusal is a mistake in the program, whatever the error mode is. */
		if (!EG(exception) && CEN_DBH(dbh)->pooled) {
			enum pdo_error_mode mode = dbh->error_mode;
			dbh->error_mode = PDO_ERRMODE_EXCEPTION;
			cen_pdo.handle_error(dbh, NULL);
			dbh->error_mode = mode;
			RETURN_THROWS();
		}
		RETURN_DB_ERROR(dbh);
	}
	RETURN_TRUE;
}

ZEND_METHOD(Cenote_PDO, createFunction)
{
	zend_string *name;
	zend_fcall_info fci;
	zend_fcall_info_cache fcc;
	zend_long arguments = -1, flags = 0;
	ZEND_PARSE_PARAMETERS_START(2, 4)
		Z_PARAM_STR(name)
		Z_PARAM_FUNC(fci, fcc)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(arguments)
		Z_PARAM_LONG(flags)
	ZEND_PARSE_PARAMETERS_END();
	add_sql_function(INTERNAL_FUNCTION_PARAM_PASSTHRU, name, arguments,
		flags & 2048 ? KIND_DETERMINISTIC : KIND_FUNCTION, cen_call_store(&fci, &fcc), NULL);
}

ZEND_METHOD(Cenote_PDO, createAggregate)
{
	zend_string *name;
	zend_fcall_info step, last;
	zend_fcall_info_cache step_cache, last_cache;
	zend_long arguments = -1;
	ZEND_PARSE_PARAMETERS_START(3, 4)
		Z_PARAM_STR(name)
		Z_PARAM_FUNC(step, step_cache)
		Z_PARAM_FUNC(last, last_cache)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(arguments)
	ZEND_PARSE_PARAMETERS_END();
	add_sql_function(INTERNAL_FUNCTION_PARAM_PASSTHRU, name, arguments, KIND_AGGREGATE,
		cen_call_store(&step, &step_cache), cen_call_store(&last, &last_cache));
}

ZEND_METHOD(Cenote_PDO, createCollation)
{
	zend_string *name;
	zend_fcall_info fci;
	zend_fcall_info_cache fcc;
	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_STR(name)
		Z_PARAM_FUNC(fci, fcc)
	ZEND_PARSE_PARAMETERS_END();
	add_sql_function(INTERNAL_FUNCTION_PARAM_PASSTHRU, name, 2, KIND_COLLATION, cen_call_store(&fci, &fcc), NULL);
}

/* What belongs to one connection, and not to a handle for all coroutines. */
ZEND_METHOD(Cenote_PDO, refused)
{
	zend_throw_exception_ex(cen_pdo.exception_ce(), 0, "PDO::%s() is not supported by cenote%s",
		ZSTR_VAL(EX(func)->common.function_name),
		CEN_DBH(Z_PDO_DBH_P(ZEND_THIS)) && CEN_DBH(Z_PDO_DBH_P(ZEND_THIS))->pooled
			? ", because the connections of a pool are the same for all (PDO::ATTR_POOL_ENABLED)" : "");
}

/* ---- COPY --------------------------------------------------------------------------- */

static zend_string *copy_sql(const char *table, const char *fields, bool out, const char *separator, const char *null_as)
{
	smart_str sql = {0};
	smart_str_append_printf(&sql, "COPY %s", table);
	if (fields) {
		smart_str_append_printf(&sql, " (%s)", fields);
	}
	smart_str_append_printf(&sql, " %s WITH DELIMITER E'%c' NULL AS E'%s'", out ? "TO STDOUT" : "FROM STDIN",
		separator && *separator ? *separator : '\t', null_as && *null_as ? null_as : "\\\\N");
	smart_str_0(&sql);
	return sql.s;
}

static void copy_in(INTERNAL_FUNCTION_PARAMETERS, zend_string *sql, cen_text data)
{
	pdo_dbh_t *dbh = Z_PDO_DBH_P(ZEND_THIS);
	bool ok = cen_dbh_ok(dbh, cenote_db_copy_in(CEN_DBH(dbh)->db, cen_text_of(sql), data));
	zend_string_release(sql);
	if (!ok) {
		RETURN_DB_ERROR(dbh);
	}
	RETURN_TRUE;
}

ZEND_METHOD(Cenote_PDO, copyFromArray)
{
	char *table, *separator = NULL, *null_as = NULL, *fields = NULL;
	size_t table_len, separator_len, null_len, fields_len;
	zval *rows, *row;
	smart_str data = {0};
	cen_text text = {0};
	if (zend_parse_parameters(ZEND_NUM_ARGS(), "sa|sss!", &table, &table_len, &rows, &separator, &separator_len,
			&null_as, &null_len, &fields, &fields_len) == FAILURE) {
		RETURN_THROWS();
	}
	if (!zend_hash_num_elements(Z_ARRVAL_P(rows))) {
		zend_argument_value_error(2, "cannot be empty");
		RETURN_THROWS();
	}
	THIS_DBH(dbh);
	(void) dbh;
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(rows), row) {
		zend_string *line = zval_try_get_string(row);
		if (!line) {
			smart_str_free(&data);
			RETURN_THROWS();
		}
		smart_str_append(&data, line);
		if (!ZSTR_LEN(line) || ZSTR_VAL(line)[ZSTR_LEN(line) - 1] != '\n') {
			smart_str_appendc(&data, '\n');
		}
		zend_string_release(line);
	} ZEND_HASH_FOREACH_END();
	smart_str_0(&data);
	text = cen_text_of(data.s);
	copy_in(INTERNAL_FUNCTION_PARAM_PASSTHRU, copy_sql(table, fields, false, separator, null_as), text);
	smart_str_free(&data);
}

ZEND_METHOD(Cenote_PDO, copyFromFile)
{
	char *table, *file, *separator = NULL, *null_as = NULL, *fields = NULL;
	size_t table_len, file_len, separator_len, null_len, fields_len;
	php_stream *stream;
	zend_string *data;
	if (zend_parse_parameters(ZEND_NUM_ARGS(), "sp|sss!", &table, &table_len, &file, &file_len, &separator,
			&separator_len, &null_as, &null_len, &fields, &fields_len) == FAILURE) {
		RETURN_THROWS();
	}
	THIS_DBH(dbh);
	stream = php_stream_open_wrapper_ex(file, "rb", 0, NULL, FG(default_context));
	if (!stream) {
		static const char state[] = "HY000", message[] = "Unable to open the file";
		cen_text of_state = { state, 5 }, of_message = { message, sizeof(message) - 1 };
		cenote_db_fail(CEN_DBH(dbh)->db, of_state, 7, of_message);
		cen_dbh_ok(dbh, CEN_FAILED);
		RETURN_DB_ERROR(dbh);
	}
	data = php_stream_copy_to_mem(stream, PHP_STREAM_COPY_ALL, 0);
	php_stream_close(stream);
	if (!data) {
		data = ZSTR_EMPTY_ALLOC();
	}
	copy_in(INTERNAL_FUNCTION_PARAM_PASSTHRU, copy_sql(table, fields, false, separator, null_as), cen_text_of(data));
	zend_string_release(data);
}

static bool copy_out(pdo_dbh_t *dbh, zend_string *sql, zval *data)
{
	bool ok = cen_dbh_ok(dbh, cenote_db_copy_out(CEN_DBH(dbh)->db, cen_text_of(sql), data));
	zend_string_release(sql);
	return ok;
}

ZEND_METHOD(Cenote_PDO, copyToArray)
{
	char *table, *separator = NULL, *null_as = NULL, *fields = NULL;
	size_t table_len, separator_len, null_len, fields_len;
	const char *line, *end;
	zval data;
	if (zend_parse_parameters(ZEND_NUM_ARGS(), "s|sss!", &table, &table_len, &separator, &separator_len,
			&null_as, &null_len, &fields, &fields_len) == FAILURE) {
		RETURN_THROWS();
	}
	THIS_DBH(dbh);
	ZVAL_EMPTY_STRING(&data);
	if (!copy_out(dbh, copy_sql(table, fields, true, separator, null_as), &data)) {
		RETURN_DB_ERROR(dbh);
	}
	array_init(return_value);
	for (line = Z_STRVAL(data); *line; line = end) {
		const char *newline = strchr(line, '\n');
		end = newline ? newline + 1 : line + strlen(line);
		add_next_index_stringl(return_value, line, end - line);
	}
	zval_ptr_dtor(&data);
}

ZEND_METHOD(Cenote_PDO, copyToFile)
{
	char *table, *file, *separator = NULL, *null_as = NULL, *fields = NULL;
	size_t table_len, file_len, separator_len, null_len, fields_len;
	php_stream *stream;
	zval data;
	bool written;
	if (zend_parse_parameters(ZEND_NUM_ARGS(), "sp|sss!", &table, &table_len, &file, &file_len, &separator,
			&separator_len, &null_as, &null_len, &fields, &fields_len) == FAILURE) {
		RETURN_THROWS();
	}
	THIS_DBH(dbh);
	ZVAL_EMPTY_STRING(&data);
	if (!copy_out(dbh, copy_sql(table, fields, true, separator, null_as), &data)) {
		RETURN_DB_ERROR(dbh);
	}
	stream = php_stream_open_wrapper_ex(file, "wb", 0, NULL, FG(default_context));
	if (!stream) {
		static const char state[] = "HY000", message[] = "Unable to open the file for writing";
		cen_text of_state = { state, 5 }, of_message = { message, sizeof(message) - 1 };
		zval_ptr_dtor(&data);
		cenote_db_fail(CEN_DBH(dbh)->db, of_state, 7, of_message);
		cen_dbh_ok(dbh, CEN_FAILED);
		RETURN_DB_ERROR(dbh);
	}
	written = php_stream_write(stream, Z_STRVAL(data), Z_STRLEN(data)) == (ssize_t) Z_STRLEN(data);
	php_stream_close(stream);
	zval_ptr_dtor(&data);
	RETURN_BOOL(written);
}

/* ---- large objects -------------------------------------------------------------------- */

typedef struct {
	zval pdo;
	zend_ulong oid;
	size_t position;
	bool writes;
} lob;

static bool lob_ask(lob *self, const char *sql, const cen_param *params, size_t count, zval *value)
{
	pdo_dbh_t *dbh = Z_PDO_DBH_P(&self->pdo);
	cen_text text = { sql, strlen(sql) };
	ZVAL_NULL(value);
	return cen_is_ours(dbh) && cen_dbh_ok(dbh, cenote_db_ask(CEN_DBH(dbh)->db, text, params, count, value))
		&& Z_TYPE_P(value) == IS_STRING;
}

static cen_param number_param(char *buffer, size_t size, zend_ulong number)
{
	cen_param param = { .kind = CEN_PARAM_TEXT };
	param.text.len = snprintf(buffer, size, ZEND_ULONG_FMT, number);
	param.text.start = buffer;
	return param;
}

static ssize_t lob_read(php_stream *stream, char *to, size_t count)
{
	static const char sql[] = "SELECT encode(lo_get(CAST(? AS oid), CAST(? AS bigint), CAST(? AS int)), 'hex')";
	lob *self = stream->abstract;
	char texts[3][24];
	cen_param params[3];
	zval hex;
	size_t len, i;
	memset(params, 0, sizeof(params));
	count = MIN(count, 1 << 20);
	params[0] = number_param(texts[0], 24, self->oid);
	params[1] = number_param(texts[1], 24, self->position);
	params[2] = number_param(texts[2], 24, count);
	params[1].position = 1;
	params[2].position = 2;
	if (!lob_ask(self, sql, params, 3, &hex)) {
		zval_ptr_dtor(&hex);
		return -1;
	}
	len = Z_STRLEN(hex) / 2;
	for (i = 0; i < len; i++) {
		unsigned int byte = 0;
		sscanf(Z_STRVAL(hex) + 2 * i, "%2x", &byte);
		to[i] = (char) byte;
	}
	zval_ptr_dtor(&hex);
	self->position += len;
	stream->eof = len < count;
	return (ssize_t) len;
}

static ssize_t lob_write(php_stream *stream, const char *from, size_t count)
{
	static const char sql[] = "SELECT lo_put(CAST(? AS oid), CAST(? AS bigint), CAST(? AS bytea))::text";
	lob *self = stream->abstract;
	char texts[2][24];
	cen_param params[3];
	zval nothing;
	pdo_dbh_t *dbh = Z_PDO_DBH_P(&self->pdo);
	cen_text text = { sql, sizeof(sql) - 1 };
	if (!self->writes || !cen_is_ours(dbh)) {
		return -1;
	}
	memset(params, 0, sizeof(params));
	params[0] = number_param(texts[0], 24, self->oid);
	params[1] = number_param(texts[1], 24, self->position);
	params[2].kind = CEN_PARAM_BYTES;
	params[2].text.start = from;
	params[2].text.len = count;
	params[1].position = 1;
	params[2].position = 2;
	ZVAL_NULL(&nothing);
	if (!cen_dbh_ok(dbh, cenote_db_ask(CEN_DBH(dbh)->db, text, params, 3, &nothing))) {
		return -1;
	}
	zval_ptr_dtor(&nothing);
	self->position += count;
	return (ssize_t) count;
}

static int lob_close(php_stream *stream, int close_handle)
{
	lob *self = stream->abstract;
	pdo_dbh_t *dbh = Z_PDO_DBH_P(&self->pdo);
	if (cen_is_ours(dbh)) {
		zend_hash_index_del(&CEN_DBH(dbh)->lobs, php_stream_get_resource_id(stream));
	}
	zval_ptr_dtor(&self->pdo);
	efree(self);
	return 0;
}

static int lob_seek(php_stream *stream, zend_off_t offset, int whence, zend_off_t *now)
{
	lob *self = stream->abstract;
	zend_off_t base = whence == SEEK_CUR ? (zend_off_t) self->position : 0;
	if (whence == SEEK_END) {
		char text[24];
		zval size;
		cen_param param = number_param(text, 24, self->oid);
		if (!lob_ask(self, "SELECT octet_length(lo_get(CAST(? AS oid)))::text", &param, 1, &size)) {
			zval_ptr_dtor(&size);
			return -1;
		}
		base = (zend_off_t) ZEND_STRTOL(Z_STRVAL(size), NULL, 10);
		zval_ptr_dtor(&size);
	}
	if (base + offset < 0) {
		return -1;
	}
	self->position = (size_t) (base + offset);
	*now = base + offset;
	stream->eof = 0;
	return 0;
}

static const php_stream_ops lob_ops = {
	lob_write, lob_read, lob_close, NULL, "cenote lob stream", lob_seek, NULL, NULL, NULL,
};

/* A large object as a stream. */
php_stream *cen_lob_stream(zval *pdo, zend_ulong oid, bool writes)
{
	char text[24];
	zval exists;
	bool found;
	php_stream *stream;
	lob *self = ecalloc(1, sizeof(lob));
	cen_param param = number_param(text, sizeof(text), oid);
	ZVAL_COPY(&self->pdo, pdo);
	self->oid = oid;
	self->writes = writes;
	found = lob_ask(self, "SELECT lo_get(CAST(? AS oid), 0, 0)::text", &param, 1, &exists);
	zval_ptr_dtor(&exists);
	if (!found) {
		zval_ptr_dtor(&self->pdo);
		efree(self);
		return NULL;
	}
	stream = php_stream_alloc(&lob_ops, self, 0, "r+b");
	if (stream) {
		zend_hash_index_update_ptr(&CEN_DBH(Z_PDO_DBH_P(pdo))->lobs, php_stream_get_resource_id(stream), stream->res);
	}
	return stream;
}

bool cen_lob_oid(php_stream *stream, zend_ulong *oid)
{
	if (!php_stream_is(stream, &lob_ops)) {
		return false;
	}
	*oid = ((lob *) stream->abstract)->oid;
	return true;
}

/* A transaction has ended, and with it its streams. */
void cen_close_lobs(pdo_dbh_t *dbh)
{
	zend_resource *res;
	if (!dbh->driver_data || !zend_hash_num_elements(&CEN_DBH(dbh)->lobs)) {
		return;
	}
	ZEND_HASH_FOREACH_PTR(&CEN_DBH(dbh)->lobs, res) {
		if (res->type >= 0) {
			zend_list_close(res);
		}
	} ZEND_HASH_FOREACH_END();
}

ZEND_METHOD(Cenote_PDO, lobCreate)
{
	static const char sql[] = "SELECT lo_create(0)::text";
	cen_text text = { sql, sizeof(sql) - 1 };
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DBH(dbh);
	if (!cen_dbh_ok(dbh, cenote_db_ask(CEN_DBH(dbh)->db, text, NULL, 0, return_value))) {
		RETURN_DB_ERROR(dbh);
	}
}

ZEND_METHOD(Cenote_PDO, lobOpen)
{
	zend_string *oid;
	char *mode = "rb";
	size_t mode_len;
	php_stream *stream;
	if (zend_parse_parameters(ZEND_NUM_ARGS(), "S|s", &oid, &mode, &mode_len) == FAILURE) {
		RETURN_THROWS();
	}
	THIS_DBH(dbh);
	stream = cen_lob_stream(ZEND_THIS, (zend_ulong) strtoul(ZSTR_VAL(oid), NULL, 10), strpbrk(mode, "+w") != NULL);
	if (!stream) {
		RETURN_DB_ERROR(dbh);
	}
	php_stream_to_zval(stream, return_value);
}

ZEND_METHOD(Cenote_PDO, lobUnlink)
{
	static const char sql[] = "SELECT lo_unlink(CAST(? AS oid))::text";
	cen_text text = { sql, sizeof(sql) - 1 };
	cen_param param = { .kind = CEN_PARAM_TEXT };
	zend_string *oid;
	zval done;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STR(oid)
	ZEND_PARSE_PARAMETERS_END();
	THIS_DBH(dbh);
	param.text = cen_text_of(oid);
	ZVAL_NULL(&done);
	if (!cen_dbh_ok(dbh, cenote_db_ask(CEN_DBH(dbh)->db, text, &param, 1, &done))) {
		RETURN_DB_ERROR(dbh);
	}
	zval_ptr_dtor(&done);
	RETURN_TRUE;
}

ZEND_METHOD(Cenote_PDO, getPid)
{
	static const char sql[] = "SELECT pg_backend_pid()::text";
	cen_text text = { sql, sizeof(sql) - 1 };
	zval pid;
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DBH(dbh);
	ZVAL_NULL(&pid);
	if (!cen_dbh_ok(dbh, cenote_db_ask(CEN_DBH(dbh)->db, text, NULL, 0, &pid)) || Z_TYPE(pid) != IS_STRING) {
		RETURN_DB_ERROR(dbh);
	}
	RETVAL_LONG(ZEND_STRTOL(Z_STRVAL(pid), NULL, 10));
	zval_ptr_dtor(&pid);
}

/* ---- MySQL ------------------------------------------------------------------------------ */

ZEND_METHOD(Cenote_PDO, getWarningCount)
{
	static const char sql[] = "SELECT @@warning_count";
	cen_text text = { sql, sizeof(sql) - 1 };
	zval count;
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DBH(dbh);
	ZVAL_NULL(&count);
	if (!cen_dbh_ok(dbh, cenote_db_ask(CEN_DBH(dbh)->db, text, NULL, 0, &count)) || Z_TYPE(count) != IS_STRING) {
		RETURN_DB_ERROR(dbh);
	}
	RETVAL_LONG(ZEND_STRTOL(Z_STRVAL(count), NULL, 10));
	zval_ptr_dtor(&count);
}

/* ---- tables ------------------------------------------------------------------------------ */

ZEND_BEGIN_ARG_INFO_EX(arginfo_function, 0, 0, 2)
	ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, numArgs, IS_LONG, 0, "-1")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, flags, IS_LONG, 0, "0")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arginfo_aggregate, 0, 0, 3)
	ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, step, IS_CALLABLE, 0)
	ZEND_ARG_TYPE_INFO(0, finalize, IS_CALLABLE, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, numArgs, IS_LONG, 0, "-1")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arginfo_collation, 0, 0, 2)
	ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arginfo_any, 0, 0, 0)
	ZEND_ARG_VARIADIC_INFO(0, arguments)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arginfo_copy_in, 0, 0, 2)
	ZEND_ARG_TYPE_INFO(0, tableName, IS_STRING, 0)
	ZEND_ARG_INFO(0, rows)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, separator, IS_STRING, 0, "\"\\t\"")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, nullAs, IS_STRING, 0, "\"\\\\\\\\N\"")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, fields, IS_STRING, 1, "null")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arginfo_copy_out, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, tableName, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, separator, IS_STRING, 0, "\"\\t\"")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, nullAs, IS_STRING, 0, "\"\\\\\\\\N\"")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, fields, IS_STRING, 1, "null")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arginfo_lob, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, oid, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, mode, IS_STRING, 0, "\"rb\"")
ZEND_END_ARG_INFO()

#define METHOD(name, own, arginfo) ZEND_RAW_METHOD(name, ZEND_MN(Cenote_PDO_##own), arginfo)
#if PHP_VERSION_ID >= 80400
# define ZEND_RAW_METHOD(name, handler, arginfo) ZEND_RAW_FENTRY(name, handler, arginfo, ZEND_ACC_PUBLIC, NULL, NULL)
#else
# define ZEND_RAW_METHOD(name, handler, arginfo) ZEND_RAW_FENTRY(name, handler, arginfo, ZEND_ACC_PUBLIC)
#endif

/* Each under the name that PHP 8.4 gave it, and under the one before. */
static const zend_function_entry sqlite_methods[] = {
	METHOD("sqliteCreateFunction", createFunction, arginfo_function)
	METHOD("createFunction", createFunction, arginfo_function)
	METHOD("sqliteCreateAggregate", createAggregate, arginfo_aggregate)
	METHOD("createAggregate", createAggregate, arginfo_aggregate)
	METHOD("sqliteCreateCollation", createCollation, arginfo_collation)
	METHOD("createCollation", createCollation, arginfo_collation)
	METHOD("setAuthorizer", refused, arginfo_any)
	METHOD("openBlob", refused, arginfo_any)
	METHOD("loadExtension", refused, arginfo_any)
	ZEND_FE_END
};

static const zend_function_entry pgsql_methods[] = {
	METHOD("pgsqlCopyFromArray", copyFromArray, arginfo_copy_in)
	METHOD("copyFromArray", copyFromArray, arginfo_copy_in)
	METHOD("pgsqlCopyFromFile", copyFromFile, arginfo_copy_in)
	METHOD("copyFromFile", copyFromFile, arginfo_copy_in)
	METHOD("pgsqlCopyToArray", copyToArray, arginfo_copy_out)
	METHOD("copyToArray", copyToArray, arginfo_copy_out)
	METHOD("pgsqlCopyToFile", copyToFile, arginfo_copy_in)
	METHOD("copyToFile", copyToFile, arginfo_copy_in)
	METHOD("pgsqlLOBCreate", lobCreate, arginfo_any)
	METHOD("lobCreate", lobCreate, arginfo_any)
	METHOD("pgsqlLOBOpen", lobOpen, arginfo_lob)
	METHOD("lobOpen", lobOpen, arginfo_lob)
	METHOD("pgsqlLOBUnlink", lobUnlink, arginfo_lob)
	METHOD("lobUnlink", lobUnlink, arginfo_lob)
	METHOD("pgsqlGetNotify", refused, arginfo_any)
	METHOD("getNotify", refused, arginfo_any)
	METHOD("pgsqlGetPid", getPid, arginfo_any)
	METHOD("getPid", getPid, arginfo_any)
	ZEND_FE_END
};

static const zend_function_entry mysql_methods[] = {
	METHOD("getWarningCount", getWarningCount, arginfo_any)
	ZEND_FE_END
};

const zend_function_entry *cen_dbh_driver_methods(pdo_dbh_t *dbh, int kind)
{
	static const zend_function_entry *const methods[] = { sqlite_methods, pgsql_methods, mysql_methods };
	return kind == PDO_DBH_DRIVER_METHOD_KIND_DBH && dbh->driver_data ? methods[CEN_DBH(dbh)->driver] : NULL;
}
