/* Async\Pool and the interfaces of its circuit breaker. */

#include "shim.h"

zend_class_entry *cen_ce_breaker_strategy;
static zend_class_entry *ce_breaker, *ce_breaker_state;

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_void, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_int, 0, 0, IS_LONG, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_mixed, 0, 0, IS_MIXED, 0)
ZEND_END_ARG_INFO()

typedef struct {
	zend_fcall_info fci;
	zend_fcall_info_cache fcc;
} callback;

static cen_call *store_callback(callback *callback)
{
	return ZEND_FCI_INITIALIZED(callback->fci) ? cen_call_store(&callback->fci, &callback->fcc) : NULL;
}

ZEND_METHOD(Async_Pool, __construct)
{
	callback factory, destructor = {0}, healthcheck = {0}, before_acquire = {0}, before_release = {0};
	cen_pool_options options = { .min = 0, .max = 10, .healthcheck_interval = 0 };

	ZEND_PARSE_PARAMETERS_START(1, 8)
		Z_PARAM_FUNC(factory.fci, factory.fcc)
		Z_PARAM_OPTIONAL
		Z_PARAM_FUNC_OR_NULL(destructor.fci, destructor.fcc)
		Z_PARAM_FUNC_OR_NULL(healthcheck.fci, healthcheck.fcc)
		Z_PARAM_FUNC_OR_NULL(before_acquire.fci, before_acquire.fcc)
		Z_PARAM_FUNC_OR_NULL(before_release.fci, before_release.fcc)
		Z_PARAM_LONG(options.min)
		Z_PARAM_LONG(options.max)
		Z_PARAM_LONG(options.healthcheck_interval)
	ZEND_PARSE_PARAMETERS_END();

	if (CEN_DATA(ZEND_THIS)) {
		zend_throw_error(NULL, "Async\\Pool is constructed already");
		RETURN_THROWS();
	}
	if (options.min < 0) {
		zend_argument_value_error(6, "must be >= 0");
		RETURN_THROWS();
	}
	if (options.max < 1) {
		zend_argument_value_error(7, "must be >= 1");
		RETURN_THROWS();
	}
	if (options.min > options.max) {
		zend_argument_value_error(6, "must be <= max");
		RETURN_THROWS();
	}
	if (options.healthcheck_interval < 0) {
		zend_argument_value_error(8, "must be >= 0");
		RETURN_THROWS();
	}
	options.factory = store_callback(&factory);
	options.destructor = store_callback(&destructor);
	options.healthcheck = store_callback(&healthcheck);
	options.before_acquire = store_callback(&before_acquire);
	options.before_release = store_callback(&before_release);
	CEN_END(cenote_pool_new(Z_OBJ_P(ZEND_THIS), &options));
}

ZEND_METHOD(Async_Pool, acquire)
{
	zend_long timeout = 0;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(timeout)
	ZEND_PARSE_PARAMETERS_END();
	if (timeout < 0) {
		zend_argument_value_error(1, "must be >= 0");
		RETURN_THROWS();
	}
	THIS_DATA(data);
	CEN_END(cenote_pool_acquire(data, timeout, return_value));
}

ZEND_METHOD(Async_Pool, tryAcquire)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	CEN_END(cenote_pool_try_acquire(data, return_value));
}

ZEND_METHOD(Async_Pool, release)
{
	zval *resource;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_ZVAL(resource)
	ZEND_PARSE_PARAMETERS_END();
	THIS_DATA(data);
	CEN_END(cenote_pool_release(data, resource));
}

ZEND_METHOD(Async_Pool, close)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	CEN_END(cenote_pool_close(data));
}

ZEND_METHOD(Async_Pool, isClosed)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	RETURN_BOOL(cenote_pool_is_closed(data));
}

#define POOL_COUNT(name, expression) \
	ZEND_METHOD(Async_Pool, name) \
	{ \
		zend_long total, idle; \
		ZEND_PARSE_PARAMETERS_NONE(); \
		THIS_DATA(data); \
		cenote_pool_counts(data, &total, &idle); \
		RETURN_LONG(expression); \
	}

POOL_COUNT(count, total)
POOL_COUNT(idleCount, idle)
POOL_COUNT(activeCount, total - idle)

ZEND_METHOD(Async_Pool, setCircuitBreakerStrategy)
{
	zval *strategy;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_OBJECT_OF_CLASS_OR_NULL(strategy, cen_ce_breaker_strategy)
	ZEND_PARSE_PARAMETERS_END();
	THIS_DATA(data);
	cenote_pool_set_strategy(data, strategy);
}

ZEND_METHOD(Async_Pool, getState)
{
	static const char *const names[] = { "ACTIVE", "INACTIVE", "RECOVERING" };
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	RETURN_OBJ_COPY(zend_enum_get_case_cstr(ce_breaker_state, names[cenote_pool_state(data)]));
}

#define POOL_MOVE(name, state) \
	ZEND_METHOD(Async_Pool, name) \
	{ \
		ZEND_PARSE_PARAMETERS_NONE(); \
		THIS_DATA(data); \
		CEN_END(cenote_pool_move(data, state)); \
	}

POOL_MOVE(activate, 0)
POOL_MOVE(deactivate, 1)
POOL_MOVE(recover, 2)

void cen_pool_destruct(zend_object *object)
{
	void *data = cen_from_object(object)->data;
	if (data) {
		cenote_pool_destruct(data);
	}
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_pool_construct, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, factory, IS_CALLABLE, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, destructor, IS_CALLABLE, 1, "null")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, healthcheck, IS_CALLABLE, 1, "null")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, beforeAcquire, IS_CALLABLE, 1, "null")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, beforeRelease, IS_CALLABLE, 1, "null")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, min, IS_LONG, 0, "0")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, max, IS_LONG, 0, "10")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, healthcheckInterval, IS_LONG, 0, "0")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_pool_acquire, 0, 0, IS_MIXED, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, timeout, IS_LONG, 0, "0")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_pool_release, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, resource, IS_MIXED, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_pool_strategy, 0, 1, IS_VOID, 0)
	ZEND_ARG_OBJ_INFO(0, strategy, Async\\CircuitBreakerStrategy, 1)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_pool_state, 0, 0, Async\\CircuitBreakerState, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_report_success, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, source, IS_MIXED, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_report_failure, 0, 2, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, source, IS_MIXED, 0)
	ZEND_ARG_OBJ_INFO(0, error, Throwable, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry breaker_methods[] = {
	CEN_ABSTRACT("getState", arginfo_pool_state)
	CEN_ABSTRACT("activate", arginfo_void)
	CEN_ABSTRACT("deactivate", arginfo_void)
	CEN_ABSTRACT("recover", arginfo_void)
	ZEND_FE_END
};

static const zend_function_entry breaker_strategy_methods[] = {
	CEN_ABSTRACT("reportSuccess", arginfo_report_success)
	CEN_ABSTRACT("reportFailure", arginfo_report_failure)
	CEN_ABSTRACT("shouldRecover", arginfo_bool)
	ZEND_FE_END
};

const zend_function_entry cen_pool_methods[] = {
	ZEND_ME(Async_Pool, __construct, arginfo_pool_construct, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, acquire, arginfo_pool_acquire, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, tryAcquire, arginfo_mixed, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, release, arginfo_pool_release, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, close, arginfo_void, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, isClosed, arginfo_bool, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, count, arginfo_int, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, idleCount, arginfo_int, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, activeCount, arginfo_int, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, setCircuitBreakerStrategy, arginfo_pool_strategy, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, getState, arginfo_pool_state, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, activate, arginfo_void, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, deactivate, arginfo_void, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Pool, recover, arginfo_void, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};

/* Registers the interfaces and the enum; returns the interface of the pool. */
zend_class_entry *cen_register_breaker(void)
{
	zend_class_entry ce;
	ce_breaker_state = zend_register_internal_enum("Async\\CircuitBreakerState", IS_UNDEF, NULL);
	zend_enum_add_case_cstr(ce_breaker_state, "ACTIVE", NULL);
	zend_enum_add_case_cstr(ce_breaker_state, "INACTIVE", NULL);
	zend_enum_add_case_cstr(ce_breaker_state, "RECOVERING", NULL);
	INIT_CLASS_ENTRY(ce, "Async\\CircuitBreaker", breaker_methods);
	ce_breaker = zend_register_internal_interface(&ce);
	INIT_CLASS_ENTRY(ce, "Async\\CircuitBreakerStrategy", breaker_strategy_methods);
	cen_ce_breaker_strategy = zend_register_internal_interface(&ce);
	return ce_breaker;
}
