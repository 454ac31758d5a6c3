/*
 * The border of PDO: what the files of PDO share, and what they call in Rust.
 */
#ifndef CENOTE_PDO_H
#define CENOTE_PDO_H

#include "shim.h"
#include "ext/pdo/php_pdo_driver.h"

#if PHP_VERSION_ID >= 80400
# define CEN_FENTRY_END , NULL, NULL
#else
# define CEN_FENTRY_END
#endif

/* PDO of TrueAsync has these numbers. */
enum {
	CEN_ATTR_POOL_ENABLED = 22,
	CEN_ATTR_POOL_MIN = 23,
	CEN_ATTR_POOL_MAX = 24,
	CEN_ATTR_POOL_HEALTHCHECK_INTERVAL = 25,
	CEN_ATTR_POOL_STMT_CACHE_SIZE = 26,
};

typedef enum {
	CEN_SQLITE,
	CEN_PGSQL,
	CEN_MYSQL,
	CEN_DRIVER_COUNT,
} cen_driver;

/* A text that Rust reads during a call. */
typedef struct {
	const char *start;
	size_t len;
} cen_text;

typedef struct {
	cen_driver driver;
	cen_text dsn, user, password, init_command;
	/* Pairs of names and values, each with its NUL. */
	cen_text options;
	bool pooled;
	zend_long min, max, healthcheck, stmt_cache;
	/* Seconds; -1 if it is not set. */
	zend_long timeout;
} cen_db_options;

typedef struct {
	char state[6];
	zend_long code;
	cen_text message;
} cen_db_error;

typedef enum {
	CEN_PARAM_NULL,
	CEN_PARAM_INT,
	CEN_PARAM_DOUBLE,
	CEN_PARAM_TEXT,
	CEN_PARAM_BYTES,
} cen_param_kind;

typedef struct {
	int kind;
	/* From 0; -1 if it has a name. */
	zend_long position;
	cen_text name;
	zend_long number;
	double floating;
	cen_text text;
} cen_param;

typedef enum {
	CEN_CELL_NULL,
	CEN_CELL_BOOL,
	CEN_CELL_INT,
	CEN_CELL_DOUBLE,
	CEN_CELL_STRING,
	CEN_CELL_STREAM,
	CEN_CELL_OID,
} cen_cell_kind;

typedef struct {
	int kind;
	zend_long number;
	double floating;
	cen_text text;
} cen_cell;

/* The driver's data of a PDO object. */
typedef struct {
	void *db;
	cen_driver driver;
	/* `buffered` is attribute 1000: PGSQL_ATTR_DISABLE_PREPARES, MYSQL_ATTR_USE_BUFFERED_QUERY. */
	bool pooled, emulate, buffered;
	/* Open streams of large objects, by the handle of their resource. */
	HashTable lobs;
	zend_long min, max;
	/* The Async\Pool, once it was asked for. */
	zend_object *pool;
	/* The state that was written last: another one is an error of PDO itself. */
	char state[6];
} cen_dbh;

static inline cen_text cen_text_of(const zend_string *string)
{
	cen_text text = { ZSTR_VAL(string), ZSTR_LEN(string) };
	return text;
}

/* ---- C ------------------------------------------------------------------- */

extern const struct pdo_dbh_methods cen_dbh_methods;
extern const struct pdo_stmt_methods cen_stmt_methods;

/* The symbols of pdo.so, which may be loaded after this module. */
extern struct cen_pdo_symbols {
	zend_class_entry *(*dbh_ce)(void);
	zend_class_entry *(*exception_ce)(void);
	zend_result (*register_driver)(const pdo_driver_t *driver);
	void (*unregister_driver)(const pdo_driver_t *driver);
	void (*set_column_count)(pdo_stmt_t *stmt, int count);
	void (*raise_impl_error)(pdo_dbh_t *dbh, pdo_stmt_t *stmt, pdo_error_type state, const char *text);
	void (*throw_exception)(unsigned int code, char *message, pdo_error_type *state);
	void (*handle_error)(pdo_dbh_t *dbh, pdo_stmt_t *stmt);
	bool (*long_param)(zend_long *number, zval *value);
	bool (*bool_param)(bool *truth, zval *value);
} cen_pdo;

#define CEN_DBH(dbh) ((cen_dbh *) (dbh)->driver_data)

bool cen_is_ours(pdo_dbh_t *dbh);
bool cen_dbh_set_attribute(pdo_dbh_t *dbh, zend_long attr, zval *value);
/* Ends a callback of PDO: notes the error of the current coroutine; returns whether there is none. */
bool cen_dbh_ok(pdo_dbh_t *dbh, cen_status status);
const zend_function_entry *cen_dbh_driver_methods(pdo_dbh_t *dbh, int kind);
php_stream *cen_lob_stream(zval *pdo, zend_ulong oid, bool writes);
/* The number of the large object that a stream is. */
bool cen_lob_oid(php_stream *stream, zend_ulong *oid);
void cen_close_lobs(pdo_dbh_t *dbh);

/* ---- Rust ---------------------------------------------------------------- */

cen_status cenote_db_open(const cen_db_options *options, void **db, cen_db_error *error);
void cenote_db_free(void *db);
void cenote_db_gc(void *db, zend_get_gc_buffer *buffer);
void cenote_db_state(void *db, char *state);
bool cenote_db_error(void *db, void *stmt, cen_db_error *error);
void cenote_db_fail(void *db, cen_text state, zend_long code, cen_text message);
cen_status cenote_db_exec(void *db, cen_text sql, zend_long *affected);
cen_status cenote_db_ask(void *db, cen_text sql, const cen_param *params, size_t count, zval *value);
cen_status cenote_db_begin(void *db);
cen_status cenote_db_end(void *db, bool commits);
bool cenote_db_in_transaction(void *db);
bool cenote_db_last_id(void *db, zend_long *id);
void cenote_db_extended_codes(void *db, bool on);
void cenote_db_pool(void *db, zval *pool);

/* A function (0, or 3 if it is deterministic), an aggregate (1) or a collation (2). */
cen_status cenote_db_add_function(void *db, cen_text name, zend_long arguments, int kind, cen_call *call, cen_call *last);

/* How a statement is made. */
typedef struct {
	/* PDO puts the values into the text; PDO::query() made it; it has no place on the server. */
	bool emulated, once, uncached;
} cen_kinds;
cen_status cenote_stmt_new(void *db, cen_text sql, cen_kinds kinds, void **stmt);
bool cenote_stmt_has_param(void *stmt, cen_text name, zend_long position);
void cenote_stmt_fail(void *stmt, cen_text state, zend_long code, cen_text message);
void cenote_stmt_free(void *stmt);
cen_status cenote_stmt_execute(void *stmt, cen_text text, const cen_param *params, size_t count);
void cenote_stmt_counts(void *stmt, zend_long *columns, zend_long *affected);
bool cenote_stmt_fetch(void *stmt, int direction, zend_long offset);
void cenote_stmt_cell(void *stmt, size_t column, cen_cell *cell);
bool cenote_stmt_column(void *stmt, size_t column, cen_text *name, cen_text *type_name, uint32_t *type);
bool cenote_stmt_next_result(void *stmt);
void cenote_stmt_close(void *stmt);

#endif
