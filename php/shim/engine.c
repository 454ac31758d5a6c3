/* What Rust needs of PHP's engine: values, calls, exceptions, fibers. */

#include "shim.h"
#include "zend_observer.h"
#include "zend_ini.h"
#include "ext/standard/basic_functions.h"
#include "ext/spl/spl_iterators.h"

zend_class_entry *cen_ce_exception[CEN_EX_COUNT];

/* ---- values --------------------------------------------------------------- */

void cen_zval_copy(zval *to, zval *from)
{
	ZVAL_COPY_DEREF(to, from);
}

void cen_zval_release(zval *value)
{
	zval_ptr_dtor(value);
}

/* Releases a value whose destructor may end with a fatal error; returns whether it did. */
bool cen_zval_release_guarded(zval *value)
{
	bool volatile bailed = false;
	zend_try {
		zval_ptr_dtor(value);
	} zend_catch {
		bailed = true;
	} zend_end_try();
	return bailed;
}

bool cen_zval_is_identical(zval *a, zval *b)
{
	return zend_is_identical(a, b);
}

void cen_object_addref(zend_object *object)
{
	GC_ADDREF(object);
}

void cen_object_release(zend_object *object)
{
	OBJ_RELEASE(object);
}

void cen_zval_object(zval *to, zend_object *object)
{
	ZVAL_OBJ(to, object);
}

void cen_gc_add(zend_get_gc_buffer *buffer, zval *value)
{
	zend_get_gc_buffer_add_zval(buffer, value);
}

void cen_gc_add_call(zend_get_gc_buffer *buffer, cen_call *call)
{
	uint32_t i;
	zend_get_gc_buffer_add_zval(buffer, &call->fci.function_name);
	for (i = 0; i < call->fci.param_count; i++) {
		zend_get_gc_buffer_add_zval(buffer, &call->fci.params[i]);
	}
}

void cen_zval_string(zval *to, const char *text, size_t len)
{
	ZVAL_STRINGL(to, text, len);
}

/* What a value is for a database: null, int, double or string. Converts it in place. */
int cen_zval_scalar(zval *value, zend_long *number, double *floating, size_t *len)
{
	switch (Z_TYPE_P(value)) {
		case IS_UNDEF:
		case IS_NULL:
			return 0;
		case IS_TRUE:
		case IS_FALSE:
			*number = Z_TYPE_P(value) == IS_TRUE;
			return 1;
		case IS_LONG:
			*number = Z_LVAL_P(value);
			return 1;
		case IS_DOUBLE:
			*floating = Z_DVAL_P(value);
			return 2;
		default:
			if (!try_convert_to_string(value)) {
				return 0;
			}
			*len = Z_STRLEN_P(value);
			return 3;
	}
}

const char *cen_zval_text(const zval *value)
{
	return Z_STRVAL_P(value);
}

/* ---- arrays and iterables --------------------------------------------------- */

void cen_array_init(zval *array)
{
	array_init(array);
}

/* Takes the value over. `key` is a string, an integer or undefined for the next index. */
void cen_array_set(zval *array, zval *key, zval *value)
{
	switch (Z_TYPE_P(key)) {
		case IS_STRING:
			zend_symtable_update(Z_ARRVAL_P(array), Z_STR_P(key), value);
			break;
		case IS_LONG:
			zend_hash_index_update(Z_ARRVAL_P(array), Z_LVAL_P(key), value);
			break;
		default:
			zend_hash_next_index_insert(Z_ARRVAL_P(array), value);
	}
}

typedef bool (*cen_visit)(void *arg, zval *key, zval *value);

static int visit_iterator(zend_object_iterator *iterator, void *arg)
{
	void **args = arg;
	cen_visit visit = (cen_visit) args[0];
	zval key, *value = iterator->funcs->get_current_data(iterator);
	bool go_on;
	if (!value || EG(exception)) {
		return ZEND_HASH_APPLY_STOP;
	}
	ZVAL_UNDEF(&key);
	if (iterator->funcs->get_current_key) {
		iterator->funcs->get_current_key(iterator, &key);
		if (EG(exception)) {
			return ZEND_HASH_APPLY_STOP;
		}
	}
	ZVAL_DEREF(value);
	go_on = visit(args[1], &key, value);
	zval_ptr_dtor(&key);
	return go_on ? ZEND_HASH_APPLY_KEEP : ZEND_HASH_APPLY_STOP;
}

/* Calls `visit` for each element of an array or a Traversable, until it returns false. */
void cen_iterate(zval *iterable, cen_visit visit, void *arg)
{
	if (Z_TYPE_P(iterable) == IS_ARRAY) {
		zend_ulong index;
		zend_string *name;
		zval key, *value;
		ZEND_HASH_FOREACH_KEY_VAL(Z_ARRVAL_P(iterable), index, name, value) {
			ZVAL_DEREF(value);
			if (name) {
				ZVAL_STR(&key, name);
			} else {
				ZVAL_LONG(&key, index);
			}
			if (!visit(arg, &key, value)) {
				break;
			}
		} ZEND_HASH_FOREACH_END();
	} else {
		void *args[2] = { (void *) visit, arg };
		spl_iterator_apply(iterable, visit_iterator, args);
	}
}

/* ---- calls ------------------------------------------------------------------ */

/* Keeps a callable and its arguments beyond the current call. */
cen_call *cen_call_store(const zend_fcall_info *fci, const zend_fcall_info_cache *fcc)
{
	cen_call *call = emalloc(sizeof(cen_call));
	uint32_t i;
	call->fci = *fci;
	call->fcc = *fcc;
	Z_TRY_ADDREF(call->fci.function_name);
	/* A trampoline exists for one call only: the engine resolves the name again. */
	if (fcc->function_handler && (fcc->function_handler->common.fn_flags & ZEND_ACC_CALL_VIA_TRAMPOLINE)) {
		zend_release_fcall_info_cache(&call->fcc);
		memset(&call->fcc, 0, sizeof(call->fcc));
	}
	if (fci->param_count) {
		call->fci.params = safe_emalloc(fci->param_count, sizeof(zval), 0);
		for (i = 0; i < fci->param_count; i++) {
			ZVAL_COPY(&call->fci.params[i], &fci->params[i]);
		}
	} else {
		call->fci.params = NULL;
	}
	if (call->fci.named_params) {
		GC_TRY_ADDREF(call->fci.named_params);
	}
	return call;
}

/* The same callable with one argument, which is copied, or none. */
cen_call *cen_call_with(const cen_call *hook, zval *argument)
{
	zend_fcall_info fci = hook->fci;
	fci.params = argument;
	fci.param_count = argument ? 1 : 0;
	fci.named_params = NULL;
	return cen_call_store(&fci, &hook->fcc);
}

/* The same callable with these arguments, which are copied. */
cen_call *cen_call_with_all(const cen_call *hook, zval *argv, uint32_t argc)
{
	zend_fcall_info fci = hook->fci;
	cen_call *call;
	uint32_t i;
	fci.params = argv;
	fci.param_count = argc;
	fci.named_params = NULL;
	call = cen_call_store(&fci, &hook->fcc);
	for (i = 0; hook->fcc.function_handler && i < argc; i++) {
		if (ARG_SHOULD_BE_SENT_BY_REF(hook->fcc.function_handler, i + 1)) {
			ZVAL_MAKE_REF(&call->fci.params[i]);
		}
	}
	return call;
}

/* A call of a method, with up to two arguments. */
cen_call *cen_call_method(zend_object *object, const char *name, size_t name_len, zval *argv, uint32_t argc)
{
	zend_fcall_info fci = {0};
	zend_fcall_info_cache fcc = {0};
	cen_call *call;
	fci.size = sizeof(fci);
	array_init_size(&fci.function_name, 2);
	GC_ADDREF(object);
	add_next_index_object(&fci.function_name, object);
	add_next_index_stringl(&fci.function_name, name, name_len);
	fci.params = argv;
	fci.param_count = argc;
	call = cen_call_store(&fci, &fcc);
	zval_ptr_dtor(&fci.function_name);
	return call;
}

void cen_call_free(cen_call *call)
{
	uint32_t i;
	zval_ptr_dtor(&call->fci.function_name);
	for (i = 0; i < call->fci.param_count; i++) {
		zval_ptr_dtor(&call->fci.params[i]);
	}
	if (call->fci.params) {
		efree(call->fci.params);
	}
	if (call->fci.named_params) {
		zend_array_release(call->fci.named_params);
	}
	efree(call);
}

/* Runs a call on the current stack. `result` is undefined if it threw. */
void cen_call_run(cen_call *call, zval *result)
{
	ZVAL_UNDEF(result);
	call->fci.retval = result;
	zend_call_function(&call->fci, &call->fcc);
	if (EG(exception) && !Z_ISUNDEF_P(result)) {
		zval_ptr_dtor(result);
		ZVAL_UNDEF(result);
	}
}

/* The same, where a fatal error must not jump over the caller's frames; returns whether there was one. */
bool cen_call_run_guarded(cen_call *call, zval *result)
{
	bool volatile bailed = false;
	zend_try {
		cen_call_run(call, result);
	} zend_catch {
		bailed = true;
	} zend_end_try();
	return bailed;
}

bool cen_zval_is_true(zval *value)
{
	return zend_is_true(value);
}

/* ---- exceptions -------------------------------------------------------------- */

zend_object *cen_exception_new(cen_exception class, const char *message, size_t len, zend_object *previous)
{
	zval exception, text;
	object_init_ex(&exception, cen_ce_exception[class]);
	ZVAL_STRINGL(&text, message, len);
	zend_update_property_ex(
		instanceof_function(cen_ce_exception[class], zend_ce_error) ? zend_ce_error : zend_ce_exception,
		Z_OBJ(exception), ZSTR_KNOWN(ZEND_STR_MESSAGE), &text);
	zval_ptr_dtor(&text);
	if (previous) {
		GC_ADDREF(previous);
		zend_exception_set_previous(Z_OBJ(exception), previous);
	}
	return Z_OBJ(exception);
}

/* Throws; takes the reference over. */
void cen_throw(zend_object *exception)
{
	zend_throw_exception_internal(exception);
}

bool cen_has_exception(void)
{
	return EG(exception) != NULL;
}

/* Takes the exception that is being thrown; NULL if there is none. */
zend_object *cen_exception_take(void)
{
	zend_object *exception = EG(exception);
	if (exception) {
		GC_ADDREF(exception);
		zend_clear_exception();
	}
	return exception;
}

/* Sets an exception aside while other PHP code runs, with the line that it interrupted. */
typedef struct {
	zend_object *exception, *prev_exception;
	const zend_op *opline_before, *opline;
} cen_aside;

void cen_exception_set_aside(cen_aside *aside)
{
	zend_execute_data *frame = EG(current_execute_data);
	aside->exception = EG(exception);
	aside->prev_exception = EG(prev_exception);
	aside->opline_before = EG(opline_before_exception);
	aside->opline = frame && frame->func && ZEND_USER_CODE(frame->func->common.type) ? frame->opline : NULL;
	EG(exception) = NULL;
	EG(prev_exception) = NULL;
}

void cen_exception_restore(const cen_aside *aside)
{
	if (!aside->exception) {
		return;
	}
	if (EG(exception)) {
		/* The newer one is thrown, and names the older one as its cause. */
		zend_exception_set_previous(EG(exception), aside->exception);
		return;
	}
	EG(exception) = aside->exception;
	EG(prev_exception) = aside->prev_exception;
	EG(opline_before_exception) = aside->opline_before;
	if (aside->opline) {
		EG(current_execute_data)->opline = aside->opline;
	}
}

bool cen_is_exit(zend_object *exception)
{
	return zend_is_unwind_exit(exception) || zend_is_graceful_exit(exception);
}

bool cen_is_cancellation(zend_object *exception)
{
	return instanceof_function(exception->ce, cen_ce_exception[CEN_EX_CANCELLATION]);
}

void cen_throw_exit(void)
{
	if (!EG(exception)) {
		zend_throw_unwind_exit();
	}
}

/* Reports an exception that nobody catches, as PHP does at the end of a script. */
void cen_report_uncaught(zend_object *exception)
{
	if (Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
		zend_throw_exception_internal(exception);
		zend_user_exception_handler();
		if (EG(exception)) {
			zend_exception_error(EG(exception), E_ERROR);
		}
		return;
	}
	/* Releases the exception. */
	zend_exception_error(exception, E_ERROR);
}

/* Writes an exception to PHP's error log. Unlike a warning, that runs no code of the program. */
void cen_log_exception(zend_object *exception, const char *what, size_t len)
{
	zend_class_entry *base = instanceof_function(exception->ce, zend_ce_error) ? zend_ce_error : zend_ce_exception;
	zval rv, *message = zend_read_property_ex(base, exception, ZSTR_KNOWN(ZEND_STR_MESSAGE), true, &rv);
	zend_string *text = strpprintf(0, "%.*s: %s: %s", (int) len, what, ZSTR_VAL(exception->ce->name),
		Z_TYPE_P(message) == IS_STRING ? Z_STRVAL_P(message) : "");
	php_log_err(ZSTR_VAL(text));
	zend_string_release(text);
}

void cen_composite_add(zend_object *composite, zend_object *exception)
{
	zval rv, value, *list = zend_read_property(composite->ce, composite, "exceptions", sizeof("exceptions") - 1, true, &rv);
	GC_ADDREF(exception);
	ZVAL_OBJ(&value, exception);
	if (Z_TYPE_P(list) != IS_ARRAY) {
		zval fresh;
		array_init(&fresh);
		add_next_index_zval(&fresh, &value);
		zend_update_property(composite->ce, composite, "exceptions", sizeof("exceptions") - 1, &fresh);
		zval_ptr_dtor(&fresh);
	} else {
		SEPARATE_ARRAY(list);
		add_next_index_zval(list, &value);
	}
}

/* ---- objects ------------------------------------------------------------------ */

zend_object *cen_object_new(cen_class class, void *data)
{
	zval object;
	object_init_ex(&object, cen_ce[class]);
	cen_from_object(Z_OBJ(object))->data = data;
	return Z_OBJ(object);
}

void *cen_object_data(zend_object *object)
{
	return cen_from_object(object)->data;
}

void cen_object_set_data(zend_object *object, void *data)
{
	cen_from_object(object)->data = data;
}

/* The class of one of our objects; CEN_CLASS_COUNT for any other. */
cen_class cen_object_class(zend_object *object)
{
	int class;
	for (class = 0; class < CEN_CLASS_COUNT; class++) {
		if (object->ce == cen_ce[class]) {
			return class;
		}
	}
	return CEN_CLASS_COUNT;
}

uint32_t cen_object_handle(zend_object *object)
{
	return object->handle;
}

/* ---- fibers --------------------------------------------------------------------- */

/* The first page of a coroutine's VM stack: small, because most coroutines need little. */
#define FIRST_PAGE (2 * 1024)
#define NEXT_PAGES (16 * 1024)

typedef struct {
	/* First, so that a context is its fiber. */
	zend_fiber_context context;
	zend_vm_stack vm_stack;
} cen_fiber;

static zend_function fiber_function = { ZEND_INTERNAL_FUNCTION };
static int fiber_kind;

void cen_fibers_init(void)
{
	memset(&fiber_function, 0, sizeof(fiber_function));
	fiber_function.type = ZEND_INTERNAL_FUNCTION;
}

static void fiber_cleanup(zend_fiber_context *context)
{
	cen_fiber *fiber = (cen_fiber *) context;
	zend_vm_stack current = EG(vm_stack);
	if (fiber->vm_stack) {
		EG(vm_stack) = fiber->vm_stack;
		zend_vm_stack_destroy();
		EG(vm_stack) = current;
		fiber->vm_stack = NULL;
	}
}

/* Does what the VM does when it finds vm_interrupt set. */
static void handle_interrupt(void)
{
	zend_atomic_bool_store_ex(&EG(vm_interrupt), false);
	if (zend_atomic_bool_load_ex(&EG(timed_out))) {
		zend_timeout();
#ifdef ZEND_HAS_OOM
	} else if (ZEND_HAS_OOM()) {
		zend_handle_delayed_oom();
#endif
	} else if (zend_interrupt_function) {
		zend_interrupt_function(EG(current_execute_data));
	}
}

static ZEND_STACK_ALIGNED void fiber_main(zend_fiber_transfer *transfer)
{
	cen_fiber *fiber = (cen_fiber *) EG(current_fiber_context);
	zend_long error_reporting = INI_INT("error_reporting");
	if (!error_reporting && !INI_STR("error_reporting")) {
		error_reporting = E_ALL;
	}
	EG(active_fiber) = NULL;
	EG(vm_stack) = NULL;
#ifdef ZEND_CHECK_STACK_LIMIT
	EG(stack_base) = zend_fiber_stack_base(fiber->context.stack);
	EG(stack_limit) = zend_fiber_stack_limit(fiber->context.stack);
#endif

	zend_first_try {
		zend_vm_stack stack = zend_vm_stack_new_page(FIRST_PAGE, NULL);
		zend_execute_data *frame = (zend_execute_data *) stack->top;
		cen_call *call;
		EG(vm_stack) = fiber->vm_stack = stack;
		EG(vm_stack_top) = stack->top + ZEND_CALL_FRAME_SLOT;
		EG(vm_stack_end) = stack->end;
		EG(vm_stack_page_size) = NEXT_PAGES;
		memset(frame, 0, sizeof(*frame));
		frame->func = &fiber_function;
		EG(current_execute_data) = frame;
		EG(jit_trace_num) = 0;
		EG(error_reporting) = error_reporting;

		do {
			zval result;
			zend_object *exception;
			ZVAL_UNDEF(&result);
			call = cenote_job_begin();
			if (call) {
				cen_call_run(call, &result);
				cenote_job_cleanup();
			} else {
				handle_interrupt();
			}
			exception = cen_exception_take();
			EG(active_fiber) = NULL;
			EG(error_reporting) = error_reporting;
			cenote_job_end(&result, exception);
		} while (true);
	} zend_catch {
	} zend_end_try();

	/* Only a fatal error ends the loop. The frames are lost; the memory manager frees them. */
	fiber->vm_stack = NULL;
	transfer->context = cenote_job_bailed();
	transfer->flags = 0;
	ZVAL_NULL(&transfer->value);
}

zend_fiber_context *cen_current_context(void)
{
	return EG(current_fiber_context);
}

/* It returned a bool before it returned a zend_result, in which 0 is a success. */
#if PHP_VERSION_ID >= 80300
# define INIT_CONTEXT_OK SUCCESS
#else
# define INIT_CONTEXT_OK true
#endif

/* NULL if there is no memory for another stack; an exception says so. */
cen_fiber *cen_fiber_new(void)
{
	cen_fiber *fiber = ecalloc(1, sizeof(cen_fiber));
	if (zend_fiber_init_context(&fiber->context, &fiber_kind, fiber_main, EG(fiber_stack_size)) != INIT_CONTEXT_OK) {
		efree(fiber);
		return NULL;
	}
	return fiber;
}

/* Runs another context until something switches back here. */
void cen_switch(zend_fiber_context *to)
{
	zend_fiber_transfer transfer = { .context = to, .flags = 0 };
	ZVAL_NULL(&transfer.value);
	zend_fiber_switch_context(&transfer);
}

/* Ends an idle fiber, or one whose frames are lost. */
void cen_fiber_free(cen_fiber *fiber, bool idle)
{
	if (fiber->context.status != ZEND_FIBER_STATUS_DEAD) {
		fiber->context.cleanup = idle ? fiber_cleanup : NULL;
		zend_fiber_destroy_context(&fiber->context);
	}
	efree(fiber);
}

bool cen_switch_blocked(void)
{
	return zend_fiber_switch_blocked();
}

void cen_switch_block(void)
{
	zend_fiber_switch_block();
}

void cen_switch_unblock(void)
{
	zend_fiber_switch_unblock();
}

/* Whether a signal handler of PHP code, or the time limit, waits for the VM. */
bool cen_interrupt_pending(void)
{
	return zend_atomic_bool_load_ex(&EG(vm_interrupt));
}

/* ---- the end of the script --------------------------------------------------------- */

/* Runs `Async\run_leftovers` after the script, before the shutdown functions of the user. */
void cen_run_leftovers_at_end(void)
{
	php_shutdown_function_entry entry;
	HashTable *old = BG(user_shutdown_function_names);
	zval name;
	memset(&entry, 0, sizeof(entry));
	ZVAL_STRING(&name, "Async\\Internal\\run_leftovers");
	zend_fcall_info_init(&name, 0, &entry.fci, &entry.fci_cache, NULL, NULL);
	/* PHP goes through the list already. */
	if (EG(flags) & EG_FLAGS_IN_SHUTDOWN) {
		append_user_shutdown_function(&entry);
		return;
	}
	BG(user_shutdown_function_names) = NULL;
	append_user_shutdown_function(&entry);
	if (old) {
		zval *value;
		HashTable *all = BG(user_shutdown_function_names);
		ZEND_HASH_FOREACH_VAL(old, value) {
			zval moved;
			ZVAL_COPY_VALUE(&moved, value);
			zend_hash_next_index_insert(all, &moved);
		} ZEND_HASH_FOREACH_END();
		old->pDestructor = NULL;
		zend_hash_destroy(old);
		FREE_HASHTABLE(old);
	}
}

/* 0: cleanly; 1: with an exception or an exit status; 2: with a fatal error. */
int cen_script_end(void)
{
	return CG(unclean_shutdown) ? 2 : EG(exit_status) != 0;
}

/* Lets PHP code run again after it ran out of memory in a coroutine: the shutdown functions of the user. */
void cen_forget_oom(void)
{
#ifdef ZEND_HAS_OOM
	EG(delayed_oom).state = ZEND_OOM_STATE_NONE;
#endif
}
