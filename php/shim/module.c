/* The module: functions, and the life of a process and of a request. */

#include "shim.h"
#include "ext/standard/info.h"
#include "php_ini.h"
#include <sys/time.h>

/* Whether the classes and functions are registered; see MINIT. */
static bool active;

/* ---- functions ------------------------------------------------------------------ */

ZEND_FUNCTION(Async_spawn)
{
	zend_fcall_info fci;
	zend_fcall_info_cache fcc;
	const char *file;
	size_t file_len;
	uint32_t line;
	zend_string *name;
	ZEND_PARSE_PARAMETERS_START(1, -1)
		Z_PARAM_FUNC(fci, fcc)
		Z_PARAM_VARIADIC_WITH_NAMED(fci.params, fci.param_count, fci.named_params)
	ZEND_PARSE_PARAMETERS_END();
	name = zend_get_executed_filename_ex();
	file = name ? ZSTR_VAL(name) : "";
	file_len = name ? ZSTR_LEN(name) : 0;
	line = zend_get_executed_lineno();
	CEN_END(cenote_spawn(cen_call_store(&fci, &fcc), file, file_len, line, return_value));
}

ZEND_FUNCTION(Async_suspend)
{
	ZEND_PARSE_PARAMETERS_NONE();
	CEN_END(cenote_suspend());
}

ZEND_FUNCTION(Async_delay)
{
	zend_long milliseconds;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(milliseconds)
	ZEND_PARSE_PARAMETERS_END();
	if (milliseconds < 0) {
		zend_argument_value_error(1, "must be greater than or equal to 0");
		RETURN_THROWS();
	}
	CEN_END(cenote_delay((uint64_t) milliseconds * 1000));
}

ZEND_FUNCTION(Async_protect)
{
	zval *closure;
	zend_fcall_info fci;
	zend_fcall_info_cache fcc;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_OBJECT_OF_CLASS(closure, zend_ce_closure)
	ZEND_PARSE_PARAMETERS_END();
	if (zend_fcall_info_init(closure, 0, &fci, &fcc, NULL, NULL) == FAILURE) {
		RETURN_THROWS();
	}
	cenote_protect_begin();
	fci.retval = return_value;
	zend_call_function(&fci, &fcc);
	CEN_END(cenote_protect_end(return_value));
}

ZEND_FUNCTION(Async_await)
{
	zend_object *awaitable, *cancellation = NULL;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_OBJ_OF_CLASS(awaitable, cen_ce_completable)
		Z_PARAM_OPTIONAL
		Z_PARAM_OBJ_OF_CLASS_OR_NULL(cancellation, cen_ce_completable)
	ZEND_PARSE_PARAMETERS_END();
	CEN_END(cenote_await(awaitable, cancellation, return_value));
}

/* The modes of `cenote_await_many`. */
enum { AWAIT_ANY_OR_FAIL, AWAIT_FIRST_SUCCESS, AWAIT_ALL_OR_FAIL, AWAIT_ALL, AWAIT_SOME_OR_FAIL, AWAIT_SOME };

static void await_one(INTERNAL_FUNCTION_PARAMETERS, int mode)
{
	zval *triggers;
	zend_object *cancellation = NULL;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_ITERABLE(triggers)
		Z_PARAM_OPTIONAL
		Z_PARAM_OBJ_OF_CLASS_OR_NULL(cancellation, cen_ce_awaitable)
	ZEND_PARSE_PARAMETERS_END();
	CEN_END(cenote_await_many(mode, 1, triggers, cancellation, false, false, return_value));
}

ZEND_FUNCTION(Async_await_any_or_fail)
{
	await_one(INTERNAL_FUNCTION_PARAM_PASSTHRU, AWAIT_ANY_OR_FAIL);
}

ZEND_FUNCTION(Async_await_first_success)
{
	await_one(INTERNAL_FUNCTION_PARAM_PASSTHRU, AWAIT_FIRST_SUCCESS);
}

ZEND_FUNCTION(Async_await_all_or_fail)
{
	zval *triggers;
	zend_object *cancellation = NULL;
	bool preserve = true;
	ZEND_PARSE_PARAMETERS_START(1, 3)
		Z_PARAM_ITERABLE(triggers)
		Z_PARAM_OPTIONAL
		Z_PARAM_OBJ_OF_CLASS_OR_NULL(cancellation, cen_ce_awaitable)
		Z_PARAM_BOOL(preserve)
	ZEND_PARSE_PARAMETERS_END();
	CEN_END(cenote_await_many(AWAIT_ALL_OR_FAIL, 0, triggers, cancellation, preserve, false, return_value));
}

ZEND_FUNCTION(Async_await_all)
{
	zval *triggers;
	zend_object *cancellation = NULL;
	bool preserve = true, fill_null = false;
	ZEND_PARSE_PARAMETERS_START(1, 4)
		Z_PARAM_ITERABLE(triggers)
		Z_PARAM_OPTIONAL
		Z_PARAM_OBJ_OF_CLASS_OR_NULL(cancellation, cen_ce_awaitable)
		Z_PARAM_BOOL(preserve)
		Z_PARAM_BOOL(fill_null)
	ZEND_PARSE_PARAMETERS_END();
	CEN_END(cenote_await_many(AWAIT_ALL, 0, triggers, cancellation, preserve, fill_null, return_value));
}

ZEND_FUNCTION(Async_await_any_of_or_fail)
{
	zval *triggers;
	zend_long count;
	zend_object *cancellation = NULL;
	bool preserve = true;
	ZEND_PARSE_PARAMETERS_START(2, 4)
		Z_PARAM_LONG(count)
		Z_PARAM_ITERABLE(triggers)
		Z_PARAM_OPTIONAL
		Z_PARAM_OBJ_OF_CLASS_OR_NULL(cancellation, cen_ce_awaitable)
		Z_PARAM_BOOL(preserve)
	ZEND_PARSE_PARAMETERS_END();
	CEN_END(cenote_await_many(AWAIT_SOME_OR_FAIL, count, triggers, cancellation, preserve, false, return_value));
}

ZEND_FUNCTION(Async_await_any_of)
{
	zval *triggers;
	zend_long count;
	zend_object *cancellation = NULL;
	bool preserve = true, fill_null = false;
	ZEND_PARSE_PARAMETERS_START(2, 5)
		Z_PARAM_LONG(count)
		Z_PARAM_ITERABLE(triggers)
		Z_PARAM_OPTIONAL
		Z_PARAM_OBJ_OF_CLASS_OR_NULL(cancellation, cen_ce_awaitable)
		Z_PARAM_BOOL(preserve)
		Z_PARAM_BOOL(fill_null)
	ZEND_PARSE_PARAMETERS_END();
	CEN_END(cenote_await_many(AWAIT_SOME, count, triggers, cancellation, preserve, fill_null, return_value));
}

ZEND_FUNCTION(Async_timeout)
{
	zend_long milliseconds;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(milliseconds)
	ZEND_PARSE_PARAMETERS_END();
	if (milliseconds <= 0) {
		zend_argument_value_error(1, "must be greater than 0");
		RETURN_THROWS();
	}
	CEN_END(cenote_timeout(milliseconds, return_value));
}

ZEND_FUNCTION(Async_current_coroutine)
{
	ZEND_PARSE_PARAMETERS_NONE();
	CEN_END(cenote_current_coroutine(return_value));
}

ZEND_FUNCTION(Async_get_coroutines)
{
	ZEND_PARSE_PARAMETERS_NONE();
	cenote_get_coroutines(return_value);
}

ZEND_FUNCTION(Async_Internal_run_leftovers)
{
	ZEND_PARSE_PARAMETERS_NONE();
	/* For PHP only, after the script. */
	if (EG(flags) & EG_FLAGS_IN_SHUTDOWN) {
		cenote_run_leftovers();
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_spawn, 0, 1, Async\\Coroutine, 0)
	ZEND_ARG_TYPE_INFO(0, task, IS_CALLABLE, 0)
	ZEND_ARG_VARIADIC_TYPE_INFO(0, args, IS_MIXED, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_void, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_array, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_delay, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, ms, IS_LONG, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_protect, 0, 1, IS_MIXED, 0)
	ZEND_ARG_OBJ_INFO(0, closure, Closure, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_await, 0, 1, IS_MIXED, 0)
	ZEND_ARG_OBJ_INFO(0, awaitable, Async\\Completable, 0)
	ZEND_ARG_OBJ_INFO_WITH_DEFAULT_VALUE(0, cancellation, Async\\Completable, 1, "null")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_await_one, 0, 1, IS_MIXED, 0)
	ZEND_ARG_OBJ_TYPE_MASK(0, triggers, Traversable, MAY_BE_ARRAY, NULL)
	ZEND_ARG_OBJ_INFO_WITH_DEFAULT_VALUE(0, cancellation, Async\\Awaitable, 1, "null")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_await_all_or_fail, 0, 1, IS_ARRAY, 0)
	ZEND_ARG_OBJ_TYPE_MASK(0, triggers, Traversable, MAY_BE_ARRAY, NULL)
	ZEND_ARG_OBJ_INFO_WITH_DEFAULT_VALUE(0, cancellation, Async\\Awaitable, 1, "null")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, preserveKeyOrder, _IS_BOOL, 0, "true")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_await_all, 0, 1, IS_ARRAY, 0)
	ZEND_ARG_OBJ_TYPE_MASK(0, triggers, Traversable, MAY_BE_ARRAY, NULL)
	ZEND_ARG_OBJ_INFO_WITH_DEFAULT_VALUE(0, cancellation, Async\\Awaitable, 1, "null")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, preserveKeyOrder, _IS_BOOL, 0, "true")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, fillNull, _IS_BOOL, 0, "false")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_await_some_or_fail, 0, 2, IS_ARRAY, 0)
	ZEND_ARG_TYPE_INFO(0, count, IS_LONG, 0)
	ZEND_ARG_OBJ_TYPE_MASK(0, triggers, Traversable, MAY_BE_ARRAY, NULL)
	ZEND_ARG_OBJ_INFO_WITH_DEFAULT_VALUE(0, cancellation, Async\\Awaitable, 1, "null")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, preserveKeyOrder, _IS_BOOL, 0, "true")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_await_some, 0, 2, IS_ARRAY, 0)
	ZEND_ARG_TYPE_INFO(0, count, IS_LONG, 0)
	ZEND_ARG_OBJ_TYPE_MASK(0, triggers, Traversable, MAY_BE_ARRAY, NULL)
	ZEND_ARG_OBJ_INFO_WITH_DEFAULT_VALUE(0, cancellation, Async\\Awaitable, 1, "null")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, preserveKeyOrder, _IS_BOOL, 0, "true")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, fillNull, _IS_BOOL, 0, "false")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_timeout, 0, 1, Async\\Timeout, 0)
	ZEND_ARG_TYPE_INFO(0, ms, IS_LONG, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_current_coroutine, 0, 0, Async\\Coroutine, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	ZEND_NS_NAMED_FE("Async", spawn, ZEND_FN(Async_spawn), arginfo_spawn)
	ZEND_NS_NAMED_FE("Async", suspend, ZEND_FN(Async_suspend), arginfo_void)
	ZEND_NS_NAMED_FE("Async", delay, ZEND_FN(Async_delay), arginfo_delay)
	ZEND_NS_NAMED_FE("Async", protect, ZEND_FN(Async_protect), arginfo_protect)
	ZEND_NS_NAMED_FE("Async", await, ZEND_FN(Async_await), arginfo_await)
	ZEND_NS_NAMED_FE("Async", await_any, ZEND_FN(Async_await_any_or_fail), arginfo_await_one)
	ZEND_NS_NAMED_FE("Async", await_any_or_fail, ZEND_FN(Async_await_any_or_fail), arginfo_await_one)
	ZEND_NS_NAMED_FE("Async", await_first_success, ZEND_FN(Async_await_first_success), arginfo_await_one)
	ZEND_NS_NAMED_FE("Async", await_all_or_fail, ZEND_FN(Async_await_all_or_fail), arginfo_await_all_or_fail)
	ZEND_NS_NAMED_FE("Async", await_all, ZEND_FN(Async_await_all), arginfo_await_all)
	ZEND_NS_NAMED_FE("Async", await_any_of_or_fail, ZEND_FN(Async_await_any_of_or_fail), arginfo_await_some_or_fail)
	ZEND_NS_NAMED_FE("Async", await_any_of, ZEND_FN(Async_await_any_of), arginfo_await_some)
	ZEND_NS_NAMED_FE("Async", timeout, ZEND_FN(Async_timeout), arginfo_timeout)
	ZEND_NS_NAMED_FE("Async", current_coroutine, ZEND_FN(Async_current_coroutine), arginfo_current_coroutine)
	ZEND_NS_NAMED_FE("Async", get_coroutines, ZEND_FN(Async_get_coroutines), arginfo_array)
	ZEND_NS_NAMED_FE("Async\\Internal", run_leftovers, ZEND_FN(Async_Internal_run_leftovers), arginfo_void)
	ZEND_FE_END
};

/* ---- functions of PHP that suspend a coroutine, or must know of them ------------------ */

static zif_handler original_sleep, original_usleep, original_nanosleep, original_sleep_until, original_fork;

ZEND_FUNCTION(cenote_sleep)
{
	zend_long seconds;
	cen_status status;
	if (!cenote_should_suspend()) {
		original_sleep(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(seconds)
	ZEND_PARSE_PARAMETERS_END();
	if (seconds < 0) {
		zend_argument_value_error(1, "must be greater than or equal to 0");
		RETURN_THROWS();
	}
	status = cenote_delay((uint64_t) seconds * 1000000);
	RETVAL_LONG(0);
	CEN_END(status);
}

ZEND_FUNCTION(cenote_usleep)
{
	zend_long microseconds;
	if (!cenote_should_suspend()) {
		original_usleep(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(microseconds)
	ZEND_PARSE_PARAMETERS_END();
	if (microseconds < 0) {
		zend_argument_value_error(1, "must be greater than or equal to 0");
		RETURN_THROWS();
	}
	CEN_END(cenote_delay((uint64_t) microseconds));
}

ZEND_FUNCTION(cenote_time_nanosleep)
{
	zend_long seconds, nanoseconds;
	cen_status status;
	if (!cenote_should_suspend()) {
		original_nanosleep(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_LONG(seconds)
		Z_PARAM_LONG(nanoseconds)
	ZEND_PARSE_PARAMETERS_END();
	if (seconds < 0 || nanoseconds < 0 || nanoseconds >= 1000000000) {
		original_nanosleep(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	status = cenote_delay((uint64_t) seconds * 1000000 + (nanoseconds + 999) / 1000);
	RETVAL_TRUE;
	CEN_END(status);
}

ZEND_FUNCTION(cenote_time_sleep_until)
{
	double until, now;
	struct timeval tv;
	cen_status status;
	if (!cenote_should_suspend()) {
		original_sleep_until(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_DOUBLE(until)
	ZEND_PARSE_PARAMETERS_END();
	gettimeofday(&tv, NULL);
	now = tv.tv_sec + tv.tv_usec / 1000000.0;
	if (until <= now) {
		/* Warns, and returns false. */
		original_sleep_until(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	status = cenote_delay((uint64_t) ((until - now) * 1000000) + 1);
	RETVAL_TRUE;
	CEN_END(status);
}

ZEND_FUNCTION(cenote_fork)
{
	if (!cenote_may_fork()) {
		zend_throw_error(NULL, "Cannot fork() while coroutines other than the main one are running. "
			"fork() is only allowed when just the main coroutine is active.");
		RETURN_THROWS();
	}
	original_fork(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (Z_TYPE_P(return_value) == IS_LONG && Z_LVAL_P(return_value) == 0) {
		cenote_after_fork();
	}
}

static zif_handler replace(const char *name, zif_handler handler)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	zif_handler original;
	if (!function || function->type != ZEND_INTERNAL_FUNCTION) {
		return NULL;
	}
	original = function->internal_function.handler;
	function->internal_function.handler = handler;
	return original;
}

/* ---- settings ---------------------------------------------------------------------------- */

/* Handles without a pool are opened by cenote too, where PHP's own drivers are loaded. */
PHP_INI_BEGIN()
	PHP_INI_ENTRY("cenote.pdo_unpooled", "0", PHP_INI_SYSTEM, NULL)
PHP_INI_END()

/* ---- the life of the module ------------------------------------------------------------- */

static PHP_MINIT_FUNCTION(cenote)
{
	REGISTER_INI_ENTRIES();
	/* TrueAsync, or a PHP that has these classes itself. */
	if (zend_hash_str_exists(CG(class_table), ZEND_STRL("async\\pool"))
			|| zend_hash_str_exists(CG(function_table), ZEND_STRL("async\\spawn"))) {
		zend_error(E_CORE_WARNING, "cenote is not loaded, because this PHP has Async\\Pool already; "
			"remove extension=cenote from the configuration");
		return SUCCESS;
	}
	if (zend_register_functions(NULL, functions, NULL, type) == FAILURE) {
		return FAILURE;
	}
	cen_register_classes();
	cen_fibers_init();
	original_sleep = replace("sleep", ZEND_FN(cenote_sleep));
	original_usleep = replace("usleep", ZEND_FN(cenote_usleep));
	original_nanosleep = replace("time_nanosleep", ZEND_FN(cenote_time_nanosleep));
	original_sleep_until = replace("time_sleep_until", ZEND_FN(cenote_time_sleep_until));
	original_fork = replace("pcntl_fork", ZEND_FN(cenote_fork));
	cen_pdo_init(INI_BOOL("cenote.pdo_unpooled"));
	active = true;
	return SUCCESS;
}

static PHP_MSHUTDOWN_FUNCTION(cenote)
{
	if (active) {
		cen_pdo_shutdown();
		zend_unregister_functions(functions, -1, NULL);
	}
	UNREGISTER_INI_ENTRIES();
	return SUCCESS;
}

static PHP_RINIT_FUNCTION(cenote)
{
	if (active) {
		cenote_request_begin();
	}
	return SUCCESS;
}

static PHP_RSHUTDOWN_FUNCTION(cenote)
{
	if (active) {
		cenote_request_end();
	}
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(cenote)
{
	php_info_print_table_start();
	php_info_print_table_row(2, "cenote", active ? "enabled" : "disabled: this PHP has Async\\Pool already");
	php_info_print_table_row(2, "Version", CENOTE_VERSION);
	php_info_print_table_end();
	DISPLAY_INI_ENTRIES();
}

/* Loaded before this module, whatever the order in the configuration. */
static const zend_module_dep dependencies[] = {
	ZEND_MOD_OPTIONAL("pcntl")
	ZEND_MOD_OPTIONAL("standard")
	ZEND_MOD_OPTIONAL("pdo")
	ZEND_MOD_OPTIONAL("pdo_sqlite")
	ZEND_MOD_OPTIONAL("pdo_pgsql")
	ZEND_MOD_OPTIONAL("pdo_mysql")
	ZEND_MOD_END
};

static zend_module_entry module = {
	STANDARD_MODULE_HEADER_EX,
	NULL,
	dependencies,
	"cenote",
	NULL,
	PHP_MINIT(cenote),
	PHP_MSHUTDOWN(cenote),
	PHP_RINIT(cenote),
	PHP_RSHUTDOWN(cenote),
	PHP_MINFO(cenote),
	CENOTE_VERSION,
	STANDARD_MODULE_PROPERTIES
};

/* Rust exports this as `get_module`: a symbol of a static library would be dropped. */
zend_module_entry *cen_module(void)
{
	return &module;
}
