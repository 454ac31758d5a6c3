/* The classes of the extension: their methods parse arguments and call Rust. */

#include "shim.h"

zend_class_entry *cen_ce[CEN_CLASS_COUNT];
zend_class_entry *cen_ce_awaitable;
zend_class_entry *cen_ce_completable;
static zend_object_handlers handlers[CEN_CLASS_COUNT];

/* ---- objects ------------------------------------------------------------------ */

static zend_object *create_object(zend_class_entry *ce, cen_class class)
{
	cen_object *object = zend_object_alloc(sizeof(cen_object), ce);
	object->data = NULL;
	zend_object_std_init(&object->std, ce);
	object_properties_init(&object->std, ce);
	object->std.handlers = &handlers[class];
	return &object->std;
}

static void free_object(zend_object *object, cen_class class)
{
	cen_object *own = cen_from_object(object);
	void *data = own->data;
	own->data = NULL;
	if (data) {
		cenote_object_free(class, data, object);
	}
	zend_object_std_dtor(object);
}

static HashTable *object_gc(zend_object *object, cen_class class, zval **table, int *n)
{
	void *data = cen_from_object(object)->data;
	zend_get_gc_buffer *buffer = zend_get_gc_buffer_create();
	if (data) {
		cenote_object_gc(class, data, buffer);
	}
	zend_get_gc_buffer_use(buffer, table, n);
	return zend_std_get_properties(object);
}

#define OBJECT_HANDLERS(name, class) \
	static zend_object *name##_create(zend_class_entry *ce) { return create_object(ce, class); } \
	static void name##_free(zend_object *object) { free_object(object, class); } \
	static HashTable *name##_gc(zend_object *object, zval **table, int *n) \
	{ \
		return object_gc(object, class, table, n); \
	}

OBJECT_HANDLERS(coroutine, CEN_COROUTINE)
OBJECT_HANDLERS(timeout, CEN_TIMEOUT)
OBJECT_HANDLERS(future_state, CEN_FUTURE_STATE)
OBJECT_HANDLERS(future, CEN_FUTURE)
OBJECT_HANDLERS(pool, CEN_POOL)
OBJECT_HANDLERS(channel, CEN_CHANNEL)
OBJECT_HANDLERS(channel_iterator, CEN_CHANNEL_ITERATOR)

static zend_function *no_constructor(zend_object *object)
{
	zend_throw_error(NULL, "Cannot directly construct %s", ZSTR_VAL(object->ce->name));
	return NULL;
}

/* ---- Completable: Coroutine, Timeout, Future ------------------------------------- */

ZEND_BEGIN_ARG_INFO_EX(arginfo_none, 0, 0, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_void, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_int, 0, 0, IS_LONG, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_mixed, 0, 0, IS_MIXED, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_array, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_string, 0, 0, IS_STRING, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_cancel, 0, 0, IS_VOID, 0)
	ZEND_ARG_OBJ_INFO_WITH_DEFAULT_VALUE(0, cancellation, Async\\AsyncCancellation, 1, "null")
ZEND_END_ARG_INFO()

static const zend_function_entry completable_methods[] = {
	CEN_ABSTRACT("cancel", arginfo_cancel)
	CEN_ABSTRACT("isCompleted", arginfo_bool)
	CEN_ABSTRACT("isCancelled", arginfo_bool)
	ZEND_FE_END
};

static void do_cancel(INTERNAL_FUNCTION_PARAMETERS, cen_class class)
{
	zend_object *cancellation = NULL;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_OBJ_OF_CLASS_OR_NULL(cancellation, cen_ce_exception[CEN_EX_CANCELLATION])
	ZEND_PARSE_PARAMETERS_END();
	THIS_DATA(data);
	CEN_END(cenote_cancel(class, data, cancellation));
}

#define COMPLETABLE_METHODS(prefix, class) \
	ZEND_METHOD(prefix, cancel) { do_cancel(INTERNAL_FUNCTION_PARAM_PASSTHRU, class); } \
	ZEND_METHOD(prefix, isCompleted) \
	{ \
		ZEND_PARSE_PARAMETERS_NONE(); \
		THIS_DATA(data); \
		RETURN_BOOL(cenote_completion_is(class, data, CEN_IS_COMPLETED)); \
	} \
	ZEND_METHOD(prefix, isCancelled) \
	{ \
		ZEND_PARSE_PARAMETERS_NONE(); \
		THIS_DATA(data); \
		RETURN_BOOL(cenote_completion_is(class, data, CEN_IS_CANCELLED)); \
	}

COMPLETABLE_METHODS(Async_Timeout, CEN_TIMEOUT)
COMPLETABLE_METHODS(Async_Future, CEN_FUTURE)
COMPLETABLE_METHODS(Async_Coroutine, CEN_COROUTINE)

#define COMPLETABLE_ENTRIES(prefix) \
	ZEND_ME(prefix, cancel, arginfo_cancel, ZEND_ACC_PUBLIC) \
	ZEND_ME(prefix, isCompleted, arginfo_bool, ZEND_ACC_PUBLIC) \
	ZEND_ME(prefix, isCancelled, arginfo_bool, ZEND_ACC_PUBLIC)

static const zend_function_entry timeout_methods[] = {
	COMPLETABLE_ENTRIES(Async_Timeout)
	ZEND_FE_END
};

/* ---- Coroutine --------------------------------------------------------------------- */

#define COROUTINE_QUESTION(name, question) \
	ZEND_METHOD(Async_Coroutine, name) \
	{ \
		ZEND_PARSE_PARAMETERS_NONE(); \
		THIS_DATA(data); \
		RETURN_BOOL(cenote_coroutine_is(data, question)); \
	}

COROUTINE_QUESTION(isStarted, CEN_IS_STARTED)
COROUTINE_QUESTION(isQueued, CEN_IS_QUEUED)
COROUTINE_QUESTION(isRunning, CEN_IS_RUNNING)
COROUTINE_QUESTION(isSuspended, CEN_IS_SUSPENDED)
COROUTINE_QUESTION(isCancellationRequested, CEN_IS_CANCELLATION_REQUESTED)

ZEND_METHOD(Async_Coroutine, getId)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	RETURN_LONG(cenote_coroutine_id(data));
}

ZEND_METHOD(Async_Coroutine, getResult)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	cenote_coroutine_result(data, return_value);
}

ZEND_METHOD(Async_Coroutine, getException)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	CEN_END(cenote_coroutine_exception(data, return_value));
}

ZEND_METHOD(Async_Coroutine, getSpawnFileAndLine)
{
	const char *file;
	size_t len;
	uint32_t line;
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	cenote_coroutine_location(data, &file, &len, &line);
	array_init_size(return_value, 2);
	add_next_index_stringl(return_value, file, len);
	add_next_index_long(return_value, line);
}

ZEND_METHOD(Async_Coroutine, getSpawnLocation)
{
	const char *file;
	size_t len;
	uint32_t line;
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	cenote_coroutine_location(data, &file, &len, &line);
	RETURN_STR(strpprintf(0, "%.*s:%u", (int) len, file, line));
}

ZEND_METHOD(Async_Coroutine, finally)
{
	zval *closure;
	zend_fcall_info fci;
	zend_fcall_info_cache fcc;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_OBJECT_OF_CLASS(closure, zend_ce_closure)
	ZEND_PARSE_PARAMETERS_END();
	THIS_DATA(data);
	if (zend_fcall_info_init(closure, 0, &fci, &fcc, NULL, NULL) == FAILURE) {
		RETURN_THROWS();
	}
	CEN_END(cenote_coroutine_finally(data, cen_call_store(&fci, &fcc)));
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_finally, 0, 1, IS_VOID, 0)
	ZEND_ARG_OBJ_INFO(0, callback, Closure, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry coroutine_methods[] = {
	ZEND_ME(Async_Coroutine, getId, arginfo_int, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Coroutine, getResult, arginfo_mixed, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Coroutine, getException, arginfo_mixed, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Coroutine, getSpawnFileAndLine, arginfo_array, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Coroutine, getSpawnLocation, arginfo_string, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Coroutine, isStarted, arginfo_bool, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Coroutine, isQueued, arginfo_bool, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Coroutine, isRunning, arginfo_bool, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Coroutine, isSuspended, arginfo_bool, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Coroutine, isCancellationRequested, arginfo_bool, ZEND_ACC_PUBLIC)
	COMPLETABLE_ENTRIES(Async_Coroutine)
	ZEND_ME(Async_Coroutine, finally, arginfo_finally, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};

/* ---- FutureState and Future ------------------------------------------------------------ */

ZEND_METHOD(Async_FutureState, __construct)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!CEN_DATA(ZEND_THIS)) {
		cen_object_set_data(Z_OBJ_P(ZEND_THIS), cenote_future_state_new());
	}
}

ZEND_METHOD(Async_FutureState, complete)
{
	zval *result;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_ZVAL(result)
	ZEND_PARSE_PARAMETERS_END();
	THIS_DATA(data);
	CEN_END(cenote_future_state_settle(data, result, NULL));
}

ZEND_METHOD(Async_FutureState, error)
{
	zend_object *error;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_OBJ_OF_CLASS(error, zend_ce_throwable)
	ZEND_PARSE_PARAMETERS_END();
	THIS_DATA(data);
	CEN_END(cenote_future_state_settle(data, NULL, error));
}

ZEND_METHOD(Async_FutureState, isCompleted)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	RETURN_BOOL(cenote_completion_is(CEN_FUTURE_STATE, data, CEN_IS_COMPLETED));
}

ZEND_METHOD(Async_FutureState, ignore)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	cenote_future_ignore(data);
}

ZEND_METHOD(Async_Future, __construct)
{
	zval *state;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_OBJECT_OF_CLASS(state, cen_ce[CEN_FUTURE_STATE])
	ZEND_PARSE_PARAMETERS_END();
	if (!CEN_DATA(ZEND_THIS) && CEN_DATA(state)) {
		cen_object_set_data(Z_OBJ_P(ZEND_THIS), cenote_future_of(CEN_DATA(state)));
	}
}

static void settled_future(zval *return_value, zval *result, zend_object *error)
{
	void *data = cenote_future_state_new();
	object_init_ex(return_value, cen_ce[CEN_FUTURE]);
	cen_object_set_data(Z_OBJ_P(return_value), data);
	cenote_future_state_settle(data, result, error);
}

ZEND_METHOD(Async_Future, completed)
{
	zval *result = NULL, nothing;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_ZVAL(result)
	ZEND_PARSE_PARAMETERS_END();
	ZVAL_NULL(&nothing);
	settled_future(return_value, result ? result : &nothing, NULL);
}

ZEND_METHOD(Async_Future, failed)
{
	zend_object *error;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_OBJ_OF_CLASS(error, zend_ce_throwable)
	ZEND_PARSE_PARAMETERS_END();
	settled_future(return_value, NULL, error);
}

ZEND_METHOD(Async_Future, ignore)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	cenote_future_ignore(data);
	RETURN_OBJ_COPY(Z_OBJ_P(ZEND_THIS));
}

ZEND_METHOD(Async_Future, await)
{
	zend_object *cancellation = NULL;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_OBJ_OF_CLASS_OR_NULL(cancellation, cen_ce_completable)
	ZEND_PARSE_PARAMETERS_END();
	CEN_END(cenote_await(Z_OBJ_P(ZEND_THIS), cancellation, return_value));
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_complete, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, result, IS_MIXED, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_error, 0, 1, IS_VOID, 0)
	ZEND_ARG_OBJ_INFO(0, throwable, Throwable, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arginfo_future_construct, 0, 0, 1)
	ZEND_ARG_OBJ_INFO(0, state, Async\\FutureState, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_future_completed, 0, 0, Async\\Future, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, value, IS_MIXED, 0, "null")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_future_failed, 0, 1, Async\\Future, 0)
	ZEND_ARG_OBJ_INFO(0, throwable, Throwable, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_future_ignore, 0, 0, Async\\Future, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_future_await, 0, 0, IS_MIXED, 0)
	ZEND_ARG_OBJ_INFO_WITH_DEFAULT_VALUE(0, cancellation, Async\\Completable, 1, "null")
ZEND_END_ARG_INFO()

static const zend_function_entry future_state_methods[] = {
	ZEND_ME(Async_FutureState, __construct, arginfo_none, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_FutureState, complete, arginfo_complete, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_FutureState, error, arginfo_error, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_FutureState, isCompleted, arginfo_bool, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_FutureState, ignore, arginfo_void, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};

static const zend_function_entry future_methods[] = {
	ZEND_ME(Async_Future, __construct, arginfo_future_construct, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Future, completed, arginfo_future_completed, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	ZEND_ME(Async_Future, failed, arginfo_future_failed, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	COMPLETABLE_ENTRIES(Async_Future)
	ZEND_ME(Async_Future, ignore, arginfo_future_ignore, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Future, await, arginfo_future_await, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};

/* ---- CompositeException ----------------------------------------------------------------------- */

void cen_composite_add(zend_object *composite, zend_object *exception);

ZEND_METHOD(Async_CompositeException, addException)
{
	zend_object *exception;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_OBJ_OF_CLASS(exception, zend_ce_throwable)
	ZEND_PARSE_PARAMETERS_END();
	cen_composite_add(Z_OBJ_P(ZEND_THIS), exception);
}

ZEND_METHOD(Async_CompositeException, getExceptions)
{
	zval rv, *list;
	ZEND_PARSE_PARAMETERS_NONE();
	list = zend_read_property(Z_OBJCE_P(ZEND_THIS), Z_OBJ_P(ZEND_THIS), "exceptions", sizeof("exceptions") - 1, true, &rv);
	if (Z_TYPE_P(list) == IS_ARRAY) {
		RETURN_COPY_DEREF(list);
	}
	RETURN_EMPTY_ARRAY();
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_add_exception, 0, 1, IS_VOID, 0)
	ZEND_ARG_OBJ_INFO(0, exception, Throwable, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry composite_methods[] = {
	ZEND_ME(Async_CompositeException, addException, arginfo_add_exception, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_CompositeException, getExceptions, arginfo_array, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};

/* ---- registration -------------------------------------------------------------------------------- */

static zend_class_entry *register_class(const char *name, size_t len, const zend_function_entry *methods, zend_class_entry *parent)
{
	zend_class_entry ce;
	INIT_CLASS_ENTRY_EX(ce, name, len, methods);
	return zend_register_internal_class_ex(&ce, parent);
}

static zend_class_entry *register_interface(const char *name, size_t len, const zend_function_entry *methods)
{
	zend_class_entry ce;
	INIT_CLASS_ENTRY_EX(ce, name, len, methods);
	return zend_register_internal_interface(&ce);
}

#define CLASS(name, methods, parent) register_class(name, sizeof(name) - 1, methods, parent)
#define INTERFACE(name, methods) register_interface(name, sizeof(name) - 1, methods)

static void set_handlers(cen_class class, zend_object *(*create)(zend_class_entry *), zend_object_free_obj_t free_obj, zend_object_get_gc_t get_gc)
{
	zend_class_entry *ce = cen_ce[class];
	ce->ce_flags |= ZEND_ACC_FINAL | ZEND_ACC_NO_DYNAMIC_PROPERTIES | ZEND_ACC_NOT_SERIALIZABLE;
	ce->create_object = create;
	handlers[class] = std_object_handlers;
	handlers[class].offset = XtOffsetOf(cen_object, std);
	handlers[class].free_obj = free_obj;
	handlers[class].get_gc = get_gc;
	handlers[class].clone_obj = NULL;
}

extern const zend_function_entry cen_pool_methods[];
extern const zend_function_entry cen_channel_methods[];
extern const zend_function_entry cen_channel_iterator_methods[];

void cen_register_classes(void)
{
	zend_class_entry *cancellation, *async;
	zval nothing;

	cen_ce_awaitable = INTERFACE("Async\\Awaitable", NULL);
	cen_ce_completable = INTERFACE("Async\\Completable", completable_methods);
	zend_class_implements(cen_ce_completable, 1, cen_ce_awaitable);

	/* An Error, not an Exception: `catch (Exception)` must not swallow a cancellation. */
	cancellation = CLASS("Cancellation", NULL, zend_ce_error);
	cen_ce_exception[CEN_EX_ERROR] = zend_ce_error;
	cen_ce_exception[CEN_EX_VALUE_ERROR] = zend_ce_value_error;
	cen_ce_exception[CEN_EX_EXCEPTION] = zend_ce_exception;
	cen_ce_exception[CEN_EX_CANCELLATION] = CLASS("Async\\AsyncCancellation", NULL, cancellation);
	cen_ce_exception[CEN_EX_OPERATION_CANCELED] =
		CLASS("Async\\OperationCanceledException", NULL, cen_ce_exception[CEN_EX_CANCELLATION]);
	cen_ce_exception[CEN_EX_ASYNC] = async = CLASS("Async\\AsyncException", NULL, zend_ce_exception);
	cen_ce_exception[CEN_EX_TIMEOUT] = CLASS("Async\\TimeoutException", NULL, zend_ce_exception);
	cen_ce_exception[CEN_EX_DEADLOCK] = CLASS("Async\\DeadlockError", NULL, zend_ce_error);
	cen_ce_exception[CEN_EX_UNAVAILABLE] = CLASS("Async\\ServiceUnavailableException", NULL, async);
	cen_ce_exception[CEN_EX_POOL] = CLASS("Async\\PoolException", NULL, async);
	cen_ce_exception[CEN_EX_CHANNEL] = CLASS("Async\\ChannelException", NULL, async);
	cen_ce_exception[CEN_EX_COMPOSITE] = CLASS("Async\\CompositeException", composite_methods, zend_ce_exception);
	cen_ce_exception[CEN_EX_COMPOSITE]->ce_flags |= ZEND_ACC_FINAL;
	ZVAL_EMPTY_ARRAY(&nothing);
	zend_declare_typed_property(cen_ce_exception[CEN_EX_COMPOSITE], zend_string_init_interned("exceptions", 10, 1), &nothing,
		ZEND_ACC_PRIVATE, NULL, (zend_type) ZEND_TYPE_INIT_MASK(MAY_BE_ARRAY));

	cen_ce[CEN_COROUTINE] = CLASS("Async\\Coroutine", coroutine_methods, NULL);
	set_handlers(CEN_COROUTINE, coroutine_create, coroutine_free, coroutine_gc);
	zend_class_implements(cen_ce[CEN_COROUTINE], 1, cen_ce_completable);
	handlers[CEN_COROUTINE].get_constructor = no_constructor;

	cen_ce[CEN_TIMEOUT] = CLASS("Async\\Timeout", timeout_methods, NULL);
	set_handlers(CEN_TIMEOUT, timeout_create, timeout_free, timeout_gc);
	zend_class_implements(cen_ce[CEN_TIMEOUT], 1, cen_ce_completable);
	handlers[CEN_TIMEOUT].get_constructor = no_constructor;

	cen_ce[CEN_FUTURE_STATE] = CLASS("Async\\FutureState", future_state_methods, NULL);
	set_handlers(CEN_FUTURE_STATE, future_state_create, future_state_free, future_state_gc);
	cen_ce[CEN_FUTURE] = CLASS("Async\\Future", future_methods, NULL);
	set_handlers(CEN_FUTURE, future_create, future_free, future_gc);
	zend_class_implements(cen_ce[CEN_FUTURE], 1, cen_ce_completable);

	cen_ce[CEN_POOL] = CLASS("Async\\Pool", cen_pool_methods, NULL);
	set_handlers(CEN_POOL, pool_create, pool_free, pool_gc);
	zend_class_implements(cen_ce[CEN_POOL], 2, zend_ce_countable, cen_register_breaker());
	handlers[CEN_POOL].dtor_obj = cen_pool_destruct;

	cen_ce[CEN_CHANNEL] = CLASS("Async\\Channel", cen_channel_methods, NULL);
	set_handlers(CEN_CHANNEL, channel_create, channel_free, channel_gc);
	zend_class_implements(cen_ce[CEN_CHANNEL], 3, cen_ce_awaitable, zend_ce_aggregate, zend_ce_countable);
	cen_ce[CEN_CHANNEL_ITERATOR] = CLASS("Async\\ChannelIterator", cen_channel_iterator_methods, NULL);
	set_handlers(CEN_CHANNEL_ITERATOR, channel_iterator_create, channel_iterator_free, channel_iterator_gc);
	zend_class_implements(cen_ce[CEN_CHANNEL_ITERATOR], 1, zend_ce_iterator);
	handlers[CEN_CHANNEL_ITERATOR].get_constructor = no_constructor;
}
