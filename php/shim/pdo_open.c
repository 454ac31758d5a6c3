/* The drivers of PDO, and the constructor that takes pooled handles. */

#include "pdo.h"
#include "php_ini.h"
#include "zend_smart_str.h"
#include "main/fopen_wrappers.h"
#include <dlfcn.h>

static const char *const driver_names[CEN_DRIVER_COUNT] = { "sqlite", "pgsql", "mysql" };

/* Handles without a pool are ours as well, where the driver of PHP is loaded. */
static bool takes_all;

/* ---- opening -------------------------------------------------------------------- */

static void add_option(smart_str *options, const char *name, const char *value)
{
	smart_str_appends(options, name);
	smart_str_appendc(options, '\0');
	smart_str_appends(options, value);
	smart_str_appendc(options, '\0');
}

static bool has_option(zval *options, zend_long attr)
{
	return options && zend_hash_index_exists(Z_ARRVAL_P(options), attr);
}

/* A file outside of open_basedir. */
static bool is_forbidden(const char *path)
{
	char *full;
	bool forbidden;
	if (!PG(open_basedir) || !*PG(open_basedir) || !strcmp(path, ":memory:") || !*path) {
		return false;
	}
	if (!strncasecmp(path, "file:", 5)) {
		return true;
	}
	full = expand_filepath(path, NULL);
	forbidden = !full || php_check_open_basedir(full);
	if (full) {
		efree(full);
	}
	return forbidden;
}

static void sqlite_options(smart_str *options, zval *given, zend_long timeout)
{
	char text[32];
	zend_long flags = pdo_attr_lval(given, 1000, 6);
	/* As PHP's own driver has it: the file keeps its journal mode. */
	add_option(options, "journal_mode", "keep");
	add_option(options, "foreign_keys", "off");
	snprintf(text, sizeof(text), ZEND_LONG_FMT "s", timeout < 0 ? 60 : timeout);
	add_option(options, "busy_timeout", text);
	if (has_option(given, 1000)) {
		add_option(options, "mode", flags & 1 ? "ro" : flags & 4 ? "rwc" : "rw");
	}
}

static int db_factory(pdo_dbh_t *dbh, zval *options, cen_driver driver)
{
	cen_db_options asked = { .driver = driver, .max = 10, .timeout = -1 };
	cen_db_error error = {0};
	smart_str dsn = {0}, extra = {0};
	zend_string *init_command = NULL;
	zend_error_handling during;
	void *db = NULL;
	cen_dbh *H;
	cen_status status;

	asked.pooled = pdo_attr_lval(options, CEN_ATTR_POOL_ENABLED, 0) != 0;
	if (dbh->is_persistent) {
		strcpy(dbh->error_code, "HY000");
		zend_throw_exception_ex(cen_pdo.exception_ce(), 0, 
			"PDO::ATTR_PERSISTENT needs PHP's own driver; use PDO::ATTR_POOL_ENABLED here");
		return 0;
	}
	if (driver == CEN_SQLITE && is_forbidden(dbh->data_source)) {
		zend_throw_exception_ex(cen_pdo.exception_ce(), 0, "open_basedir prohibits opening %s", dbh->data_source);
		return 0;
	}
	asked.min = pdo_attr_lval(options, CEN_ATTR_POOL_MIN, 0);
	asked.max = pdo_attr_lval(options, CEN_ATTR_POOL_MAX, 10);
	if (asked.pooled && (asked.min < 0 || asked.max < 1)) {
		zend_throw_exception_ex(cen_pdo.exception_ce(), 0, "PDO::ATTR_POOL_MIN must be at least 0 and PDO::ATTR_POOL_MAX at least 1");
		return 0;
	}
	asked.max = MAX(asked.min, asked.max);
	asked.healthcheck = pdo_attr_lval(options, CEN_ATTR_POOL_HEALTHCHECK_INTERVAL, 0);
	asked.stmt_cache = pdo_attr_lval(options, CEN_ATTR_POOL_STMT_CACHE_SIZE, 0);
	asked.timeout = pdo_attr_lval(options, PDO_ATTR_TIMEOUT, -1);

	smart_str_appends(&dsn, driver_names[driver]);
	smart_str_appendc(&dsn, ':');
	smart_str_appendl(&dsn, dbh->data_source, dbh->data_source_len);
	smart_str_0(&dsn);
	asked.dsn = cen_text_of(dsn.s);
	if (driver != CEN_SQLITE) {
		if (dbh->username) {
			asked.user.start = dbh->username;
			asked.user.len = strlen(dbh->username);
		}
		if (dbh->password) {
			asked.password.start = dbh->password;
			asked.password.len = strlen(dbh->password);
		}
	}
	switch (driver) {
		case CEN_SQLITE:
			sqlite_options(&extra, options, asked.timeout);
			break;
		case CEN_PGSQL:
			add_option(&extra, "text_values", "on");
			break;
		default:
			if (pdo_attr_lval(options, 1005, 0)) {
				add_option(&extra, "found_rows", "on");
			}
			if (pdo_attr_lval(options, 1003, 0)) {
				add_option(&extra, "compress", "on");
			}
			init_command = pdo_attr_strval(options, 1002, NULL);
			if (init_command) {
				asked.init_command = cen_text_of(init_command);
			}
	}
	smart_str_0(&extra);
	if (extra.s) {
		asked.options = cen_text_of(extra.s);
	}
	/* The constructor has errors thrown as exceptions, also in other coroutines that run while this one waits. */
	zend_replace_error_handling(EH_NORMAL, NULL, &during);
	status = cenote_db_open(&asked, &db, &error);
	zend_restore_error_handling(&during);
	smart_str_free(&dsn);
	smart_str_free(&extra);
	if (init_command) {
		zend_string_release(init_command);
	}
	if (status == CEN_BAILOUT) {
		zend_bailout();
	}
	dbh->methods = &cen_dbh_methods;
	if (status == CEN_FAILED) {
		char *message = estrndup(error.message.start, error.message.len);
		memcpy(dbh->error_code, error.state, sizeof(dbh->error_code));
		dbh->error_code[5] = '\0';
		cen_pdo.throw_exception((unsigned int) error.code, message, &dbh->error_code);
		efree(message);
	}
	if (status != CEN_OK) {
		return 0;
	}
	H = ecalloc(1, sizeof(*H));
	zend_hash_init(&H->lobs, 0, NULL, NULL, 0);
	H->db = db;
	H->driver = driver;
	H->pooled = asked.pooled;
	H->min = asked.min;
	H->max = asked.max;
	H->buffered = driver == CEN_MYSQL;
	/* As PHP's own driver. */
	H->emulate = driver != CEN_SQLITE && pdo_attr_lval(options, PDO_ATTR_EMULATE_PREPARES, driver == CEN_MYSQL) != 0;
	dbh->driver_data = H;
	dbh->alloc_own_columns = 1;
	dbh->native_case = PDO_CASE_NATURAL;
	dbh->max_escaped_char_length = driver == CEN_SQLITE ? 3 : 2;
	if (driver == CEN_MYSQL && !dbh->auto_commit) {
		zval off;
		ZVAL_FALSE(&off);
		dbh->auto_commit = 1;
		cen_dbh_set_attribute(dbh, PDO_ATTR_AUTOCOMMIT, &off);
	}
	return 1;
}

static int sqlite_factory(pdo_dbh_t *dbh, zval *options) { return db_factory(dbh, options, CEN_SQLITE); }
static int pgsql_factory(pdo_dbh_t *dbh, zval *options) { return db_factory(dbh, options, CEN_PGSQL); }
static int mysql_factory(pdo_dbh_t *dbh, zval *options) { return db_factory(dbh, options, CEN_MYSQL); }

#define DRIVER(name, factory) { name, sizeof(name) - 1, PDO_DRIVER_API, factory }

/* Under PHP's names, where its own drivers are not loaded; and always under names of our own. */
static const pdo_driver_t drivers[CEN_DRIVER_COUNT] = {
	DRIVER("sqlite", sqlite_factory), DRIVER("pgsql", pgsql_factory), DRIVER("mysql", mysql_factory),
};
static const pdo_driver_t own_drivers[CEN_DRIVER_COUNT] = {
	DRIVER("cenote-sqlite", sqlite_factory), DRIVER("cenote-pgsql", pgsql_factory), DRIVER("cenote-mysql", mysql_factory),
};
static bool has_stock[CEN_DRIVER_COUNT];

/* ---- PDO's own methods -------------------------------------------------------------- */

static zif_handler original_construct, original_error_code, original_error_info;

/* The driver of a DSN; CEN_DRIVER_COUNT if it is none of these. */
static int driver_of(const char *dsn, size_t len)
{
	int driver;
	for (driver = 0; driver < CEN_DRIVER_COUNT; driver++) {
		size_t name_len = strlen(driver_names[driver]);
		if (len > name_len && dsn[name_len] == ':' && !memcmp(dsn, driver_names[driver], name_len)) {
			break;
		}
	}
	return driver;
}

/* The options of the constructor have set the state of a call; there was none. */
static void begin_without_error(pdo_dbh_t *dbh)
{
	if (cen_is_ours(dbh)) {
		dbh->error_code[0] = '\0';
	}
}

/* Gives pooled handles to our drivers, also where PHP's own are loaded. */
ZEND_METHOD(Cenote_PDO, __construct)
{
	uint32_t count = ZEND_NUM_ARGS();
	zval *dsn = count > 0 ? ZEND_CALL_ARG(execute_data, 1) : NULL;
	zval *options = count > 3 ? ZEND_CALL_ARG(execute_data, 4) : NULL;
	zval before;
	char *ini = NULL;
	char name[512];
	const char *text;
	size_t len;
	int driver;
	bool pooled, persistent;
	pdo_dbh_t *dbh;
	if (!dsn || Z_TYPE_P(dsn) != IS_STRING || (options && Z_TYPE_P(options) != IS_ARRAY && Z_TYPE_P(options) != IS_NULL)) {
		original_construct(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	if (options && Z_TYPE_P(options) != IS_ARRAY) {
		options = NULL;
	}
	text = Z_STRVAL_P(dsn);
	len = Z_STRLEN_P(dsn);
	if (!memchr(text, ':', len)) {
		snprintf(name, sizeof(name), "pdo.dsn.%s", text);
		if (cfg_get_string(name, &ini) == SUCCESS && ini) {
			text = ini;
			len = strlen(ini);
		}
	}
	driver = driver_of(text, len);
	pooled = pdo_attr_lval(options, CEN_ATTR_POOL_ENABLED, 0) != 0;
	persistent = false;
	if (options) {
		zval *value = zend_hash_index_find_deref(Z_ARRVAL_P(options), PDO_ATTR_PERSISTENT);
		persistent = value && zend_is_true(value);
	}
	if (pooled && persistent) {
		zend_throw_exception_ex(cen_pdo.exception_ce(), 0, "PDO::ATTR_POOL_ENABLED cannot be used with PDO::ATTR_PERSISTENT");
		return;
	}
	if (pooled && driver == CEN_DRIVER_COUNT) {
		zend_throw_exception_ex(cen_pdo.exception_ce(), 0, "PDO::ATTR_POOL_ENABLED is supported for the drivers "
			"sqlite, pgsql and mysql");
		return;
	}
	if (driver < CEN_DRIVER_COUNT && !has_stock[driver] && persistent) {
		/* A connection of this extension ends with the request. */
		zval given;
		ZVAL_COPY_VALUE(&given, options);
		ZVAL_ARR(options, zend_array_dup(Z_ARRVAL(given)));
		zend_hash_index_del(Z_ARRVAL_P(options), PDO_ATTR_PERSISTENT);
		original_construct(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		zval_ptr_dtor(options);
		ZVAL_COPY_VALUE(options, &given);
		begin_without_error(Z_PDO_DBH_P(ZEND_THIS));
		return;
	}
	if (driver == CEN_DRIVER_COUNT || !has_stock[driver] || !(pooled || (takes_all && !persistent))) {
		original_construct(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		begin_without_error(Z_PDO_DBH_P(ZEND_THIS));
		return;
	}
	ZVAL_COPY_VALUE(&before, dsn);
	ZVAL_STR(dsn, strpprintf(0, "cenote-%s", text));
	original_construct(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	zval_ptr_dtor(dsn);
	ZVAL_COPY_VALUE(dsn, &before);
	dbh = Z_PDO_DBH_P(ZEND_THIS);
	if (!EG(exception) && cen_is_ours(dbh)) {
		/* PDO::ATTR_DRIVER_NAME is PHP's. */
		dbh->driver = (pdo_driver_t *) &drivers[driver];
	}
	begin_without_error(dbh);
}

/* Calls PDO's own method with the error of the current coroutine in its place. */
static void with_own_error(INTERNAL_FUNCTION_PARAMETERS, zif_handler original)
{
	pdo_dbh_t *dbh = Z_PDO_DBH_P(ZEND_THIS);
	pdo_stmt_t *kept;
	if (!cen_is_ours(dbh)) {
		original(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	kept = dbh->query_stmt;
	dbh->query_stmt = NULL;
	if (!strcmp(dbh->error_code, PDO_ERR_NONE) || !strcmp(dbh->error_code, CEN_DBH(dbh)->state)) {
		char state[6];
		cenote_db_state(CEN_DBH(dbh)->db, state);
		if (state[0]) {
			memcpy(dbh->error_code, state, sizeof(state));
		} else if (dbh->error_code[0]) {
			strcpy(dbh->error_code, PDO_ERR_NONE);
		}
	}
	original(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	dbh->query_stmt = kept;
}

ZEND_METHOD(Cenote_PDO, errorCode)
{
	with_own_error(INTERNAL_FUNCTION_PARAM_PASSTHRU, original_error_code);
}

ZEND_METHOD(Cenote_PDO, errorInfo)
{
	with_own_error(INTERNAL_FUNCTION_PARAM_PASSTHRU, original_error_info);
}

ZEND_METHOD(Cenote_PDO, getPool)
{
	pdo_dbh_t *dbh = Z_PDO_DBH_P(ZEND_THIS);
	cen_dbh *H;
	ZEND_PARSE_PARAMETERS_NONE();
	if (!cen_is_ours(dbh) || !CEN_DBH(dbh)->pooled) {
		RETURN_NULL();
	}
	H = CEN_DBH(dbh);
	if (!H->pool) {
		zval pool;
		ZVAL_NULL(&pool);
		cenote_db_pool(H->db, &pool);
		if (Z_TYPE(pool) != IS_OBJECT) {
			RETURN_NULL();
		}
		H->pool = Z_OBJ(pool);
	}
	RETURN_OBJ_COPY(H->pool);
}

ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_get_pool, 0, 0, Async\\Pool, 1)
ZEND_END_ARG_INFO()

static const zend_function_entry added_methods[] = {
	ZEND_ME(Cenote_PDO, getPool, arginfo_get_pool, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};

/* ---- the module ------------------------------------------------------------------------ */

static zif_handler replace_method(zend_class_entry *ce, const char *name, zif_handler handler)
{
	zend_function *function = zend_hash_str_find_ptr(&ce->function_table, name, strlen(name));
	zif_handler original;
	if (!function || function->type != ZEND_INTERNAL_FUNCTION || function->internal_function.handler == handler) {
		return NULL;
	}
	original = function->internal_function.handler;
	function->internal_function.handler = handler;
	return original;
}

static void take_class(zend_class_entry *ce)
{
	zif_handler original;
	if ((original = replace_method(ce, "__construct", ZEND_MN(Cenote_PDO___construct)))) {
		original_construct = original;
	}
	if ((original = replace_method(ce, "errorcode", ZEND_MN(Cenote_PDO_errorCode)))) {
		original_error_code = original;
	}
	if ((original = replace_method(ce, "errorinfo", ZEND_MN(Cenote_PDO_errorInfo)))) {
		original_error_info = original;
	}
	if (!zend_hash_str_exists(&ce->function_table, ZEND_STRL("getpool"))) {
		zend_register_functions(ce, added_methods, &ce->function_table, MODULE_PERSISTENT);
	}
}

static void declare(const char *name, zend_long value)
{
	zend_class_entry *ce = cen_pdo.dbh_ce();
	if (!zend_hash_str_exists(&ce->constants_table, name, strlen(name))) {
		zend_declare_class_constant_long(ce, name, strlen(name), value);
	}
}

static void declare_constants(void)
{
	static const char *const mysql[] = { "USE_BUFFERED_QUERY", "LOCAL_INFILE", "INIT_COMMAND", "COMPRESS",
		"DIRECT_QUERY", "FOUND_ROWS", "IGNORE_SPACE", "SSL_KEY", "SSL_CERT", "SSL_CA", "SSL_CAPATH", "SSL_CIPHER",
		"SERVER_PUBLIC_KEY", "MULTI_STATEMENTS", "SSL_VERIFY_SERVER_CERT", "LOCAL_INFILE_DIRECTORY" };
	char name[64];
	size_t i;
	declare("ATTR_POOL_ENABLED", CEN_ATTR_POOL_ENABLED);
	declare("ATTR_POOL_MIN", CEN_ATTR_POOL_MIN);
	declare("ATTR_POOL_MAX", CEN_ATTR_POOL_MAX);
	declare("ATTR_POOL_HEALTHCHECK_INTERVAL", CEN_ATTR_POOL_HEALTHCHECK_INTERVAL);
	declare("ATTR_POOL_STMT_CACHE_SIZE", CEN_ATTR_POOL_STMT_CACHE_SIZE);
	declare("SQLITE_DETERMINISTIC", 2048);
	declare("SQLITE_OPEN_READONLY", 1);
	declare("SQLITE_OPEN_READWRITE", 2);
	declare("SQLITE_OPEN_CREATE", 4);
	declare("SQLITE_ATTR_OPEN_FLAGS", 1000);
	declare("SQLITE_ATTR_READONLY_STATEMENT", 1001);
	declare("SQLITE_ATTR_EXTENDED_RESULT_CODES", 1002);
	declare("PGSQL_ATTR_DISABLE_PREPARES", 1000);
	declare("PGSQL_TRANSACTION_IDLE", 0);
	declare("PGSQL_TRANSACTION_ACTIVE", 1);
	declare("PGSQL_TRANSACTION_INTRANS", 2);
	declare("PGSQL_TRANSACTION_INERROR", 3);
	declare("PGSQL_TRANSACTION_UNKNOWN", 4);
	for (i = 0; i < sizeof(mysql) / sizeof(mysql[0]); i++) {
		snprintf(name, sizeof(name), "MYSQL_ATTR_%s", mysql[i]);
		declare(name, 1000 + (zend_long) i);
	}
}

/* The classes of PHP 8.4, for programs that name them. */
ZEND_METHOD(Cenote_PDO, connect)
{
	zval *arguments = NULL;
	uint32_t count = 0;
	zend_function *constructor;
	ZEND_PARSE_PARAMETERS_START(1, 4)
		Z_PARAM_VARIADIC('+', arguments, count)
	ZEND_PARSE_PARAMETERS_END();
	object_init_ex(return_value, zend_get_called_scope(execute_data));
	constructor = Z_OBJ_HT_P(return_value)->get_constructor(Z_OBJ_P(return_value));
	zend_call_known_function(constructor, Z_OBJ_P(return_value), Z_OBJCE_P(return_value), NULL, count, arguments, NULL);
	if (EG(exception)) {
		zval_ptr_dtor(return_value);
		ZVAL_UNDEF(return_value);
	}
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_connect, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, dsn, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, username, IS_STRING, 1, "null")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, password, IS_STRING, 1, "null")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, options, IS_ARRAY, 1, "null")
ZEND_END_ARG_INFO()

ZEND_METHOD(Cenote_PDO, refused);

ZEND_BEGIN_ARG_INFO_EX(arginfo_extension, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
ZEND_END_ARG_INFO()

/* Programs ask whether it exists. */
static const zend_function_entry sqlite_class_methods[] = {
	ZEND_ME(Cenote_PDO, connect, arginfo_connect, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	ZEND_RAW_FENTRY("loadExtension", ZEND_MN(Cenote_PDO_refused), arginfo_extension, ZEND_ACC_PUBLIC CEN_FENTRY_END)
	ZEND_FE_END
};

static const zend_function_entry connect_methods[] = {
	ZEND_ME(Cenote_PDO, connect, arginfo_connect, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	ZEND_FE_END
};

static zend_class_entry *register_class(const char *lower, const char *name, const zend_function_entry *methods)
{
	zend_class_entry ce;
	if (zend_hash_str_exists(CG(class_table), lower, strlen(lower))) {
		return NULL;
	}
	memset(&ce, 0, sizeof(ce));
	INIT_CLASS_ENTRY_EX(ce, name, strlen(name), methods);
	return zend_register_internal_class_ex(&ce, cen_pdo.dbh_ce());
}

static void register_classes(void)
{
	zend_class_entry *ce = register_class("pdo\\sqlite", "Pdo\\Sqlite", sqlite_class_methods);
	if (ce) {
		zend_declare_class_constant_long(ce, ZEND_STRL("DETERMINISTIC"), 2048);
		zend_declare_class_constant_long(ce, ZEND_STRL("OK"), 0);
	}
	register_class("pdo\\pgsql", "Pdo\\Pgsql", connect_methods);
	register_class("pdo\\mysql", "Pdo\\Mysql", connect_methods);
}

static bool find_symbols(void)
{
	struct { const char *name; void **place; } wanted[] = {
		{ "php_pdo_get_dbh_ce", (void **) &cen_pdo.dbh_ce },
		{ "php_pdo_get_exception", (void **) &cen_pdo.exception_ce },
		{ "php_pdo_register_driver", (void **) &cen_pdo.register_driver },
		{ "php_pdo_unregister_driver", (void **) &cen_pdo.unregister_driver },
		{ "php_pdo_stmt_set_column_count", (void **) &cen_pdo.set_column_count },
		{ "pdo_raise_impl_error", (void **) &cen_pdo.raise_impl_error },
		{ "pdo_throw_exception", (void **) &cen_pdo.throw_exception },
		{ "pdo_handle_error", (void **) &cen_pdo.handle_error },
		{ "pdo_get_long_param", (void **) &cen_pdo.long_param },
		{ "pdo_get_bool_param", (void **) &cen_pdo.bool_param },
	};
	size_t i;
	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		*wanted[i].place = dlsym(RTLD_DEFAULT, wanted[i].name);
		if (!*wanted[i].place) {
			return false;
		}
	}
	return true;
}

static bool registered;

/* Runs after all modules that cenote names as optional ones. */
void cen_pdo_init(bool all)
{
	static const char *const stock[CEN_DRIVER_COUNT] = { "pdo_sqlite", "pdo_pgsql", "pdo_mysql" };
	zend_class_entry *ce;
	int driver;
	takes_all = all;
	if (!zend_hash_str_exists(&module_registry, ZEND_STRL("pdo")) || !find_symbols()) {
		return;
	}
	registered = true;
	for (driver = 0; driver < CEN_DRIVER_COUNT; driver++) {
		zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, stock[driver], strlen(stock[driver]));
		/* A module of that name that does nothing is none. */
		has_stock[driver] = module && module->module_startup_func;
		cen_pdo.register_driver(&own_drivers[driver]);
		if (!has_stock[driver]) {
			cen_pdo.register_driver(&drivers[driver]);
		}
	}
	declare_constants();
	register_classes();
	ZEND_HASH_FOREACH_PTR(CG(class_table), ce) {
		if (ce->type == ZEND_INTERNAL_CLASS && instanceof_function(ce, cen_pdo.dbh_ce())) {
			take_class(ce);
		}
	} ZEND_HASH_FOREACH_END();
}

void cen_pdo_shutdown(void)
{
	int driver;
	if (!registered) {
		return;
	}
	for (driver = 0; driver < CEN_DRIVER_COUNT; driver++) {
		cen_pdo.unregister_driver(&own_drivers[driver]);
		if (!has_stock[driver]) {
			cen_pdo.unregister_driver(&drivers[driver]);
		}
	}
}
