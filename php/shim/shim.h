/*
 * The border between PHP's engine (C, macros, setjmp) and the extension (Rust).
 *
 * `cen_*` is implemented here in C and called by Rust. `cenote_*` is implemented in Rust and called
 * from here. No PHP struct crosses the border by value except `zval`, whose layout is fixed; so the
 * Rust half is the same for every PHP version, and the C half is compiled against its headers.
 */
#ifndef CENOTE_SHIM_H
#define CENOTE_SHIM_H

#include "php.h"
#include "zend_exceptions.h"
#include "zend_fibers.h"
#include "zend_interfaces.h"
#include "zend_enum.h"
#include "zend_closures.h"

#ifdef ZTS
# error "cenote supports PHP without thread safety (NTS) only"
#endif
#if PHP_VERSION_ID < 80200
# error "cenote needs PHP 8.2 or newer"
#endif

/* A method of an interface. */
#if PHP_VERSION_ID >= 80400
# define CEN_ABSTRACT(name, arginfo) ZEND_RAW_FENTRY(name, NULL, arginfo, ZEND_ACC_PUBLIC | ZEND_ACC_ABSTRACT, NULL, NULL)
#else
# define CEN_ABSTRACT(name, arginfo) ZEND_RAW_FENTRY(name, NULL, arginfo, ZEND_ACC_PUBLIC | ZEND_ACC_ABSTRACT)
#endif

/* ---- what both sides know ------------------------------------------------ */

/* The answer of a Rust function that may have run PHP code. */
typedef enum {
	CEN_OK = 0,
	/* EG(exception) is set. */
	CEN_THREW = 1,
	/* A fatal error ended another stack; this one has to follow with zend_bailout(). */
	CEN_BAILOUT = 2,
	/* The database reports an error; see cenote_db_error(). */
	CEN_FAILED = 3,
} cen_status;

typedef enum {
	CEN_COROUTINE,
	CEN_TIMEOUT,
	CEN_FUTURE_STATE,
	CEN_FUTURE,
	CEN_POOL,
	CEN_CHANNEL,
	CEN_CHANNEL_ITERATOR,
	CEN_CLASS_COUNT,
} cen_class;

typedef enum {
	CEN_EX_ERROR,
	CEN_EX_VALUE_ERROR,
	CEN_EX_EXCEPTION,
	CEN_EX_ASYNC,
	CEN_EX_CANCELLATION,
	CEN_EX_OPERATION_CANCELED,
	CEN_EX_TIMEOUT,
	CEN_EX_DEADLOCK,
	CEN_EX_UNAVAILABLE,
	CEN_EX_POOL,
	CEN_EX_CHANNEL,
	CEN_EX_COMPOSITE,
	CEN_EX_COUNT,
} cen_exception;

/* A PHP callable with the arguments of one call. */
typedef struct {
	zend_fcall_info fci;
	zend_fcall_info_cache fcc;
} cen_call;

/* A PHP object that owns a Rust value. */
typedef struct {
	void *data;
	zend_object std;
} cen_object;

static zend_always_inline cen_object *cen_from_object(zend_object *object)
{
	return (cen_object *) ((char *) object - XtOffsetOf(cen_object, std));
}

#define CEN_DATA(zv) (cen_from_object(Z_OBJ_P(zv))->data)

/* The Rust value of $this. An object whose constructor has not run has none. */
#define THIS_DATA(variable) \
	void *variable = CEN_DATA(ZEND_THIS); \
	if (UNEXPECTED(!variable)) { \
		zend_throw_error(NULL, "%s is not constructed", ZSTR_VAL(Z_OBJCE_P(ZEND_THIS)->name)); \
		RETURN_THROWS(); \
	}

/* Ends a PHP function with the status of its Rust half. */
#define CEN_END(status) \
	do { \
		if (UNEXPECTED((status) == CEN_BAILOUT)) { \
			zend_bailout(); \
		} \
		return; \
	} while (0)

extern zend_class_entry *cen_ce[CEN_CLASS_COUNT];
extern zend_class_entry *cen_ce_exception[CEN_EX_COUNT];
extern zend_class_entry *cen_ce_awaitable;
extern zend_class_entry *cen_ce_completable;

/* ---- C, called by C ------------------------------------------------------ */

cen_call *cen_call_store(const zend_fcall_info *fci, const zend_fcall_info_cache *fcc);
void cen_register_classes(void);
zend_class_entry *cen_register_breaker(void);
void cen_pool_destruct(zend_object *object);
void cen_fibers_init(void);
void cen_pdo_init(bool all);
void cen_pdo_shutdown(void);
void cen_object_set_data(zend_object *object, void *data);

/* ---- Rust, called by C ---------------------------------------------------- */

/* The life of a process and of a request. */
void cenote_request_begin(void);
void cenote_request_end(void);
void cenote_run_leftovers(void);
void cenote_after_fork(void);

/* The body of a fiber: takes a job, and hands its end in, which returns when there is another job. */
cen_call *cenote_job_begin(void);
void cenote_job_cleanup(void);
void cenote_job_end(zval *result, zend_object *exception);
/* Where a fiber goes that a fatal error has ended. */
zend_fiber_context *cenote_job_bailed(void);

/* Objects. */
void cenote_object_free(cen_class class, void *data, zend_object *object);
void cenote_object_gc(cen_class class, void *data, zend_get_gc_buffer *buffer);
void cenote_pool_destruct(void *data);

/* Functions. */
cen_status cenote_spawn(cen_call *call, const char *file, size_t file_len, uint32_t line, zval *return_value);
cen_status cenote_suspend(void);
cen_status cenote_delay(uint64_t microseconds);
bool cenote_should_suspend(void);
bool cenote_may_fork(void);
void cenote_protect_begin(void);
cen_status cenote_protect_end(zval *return_value);
cen_status cenote_await(zend_object *awaitable, zend_object *cancellation, zval *return_value);
cen_status cenote_await_many(int mode, zend_long count, zval *triggers, zend_object *cancellation,
	bool preserve_key_order, bool fill_null, zval *return_value);
cen_status cenote_timeout(zend_long milliseconds, zval *return_value);
cen_status cenote_current_coroutine(zval *return_value);
void cenote_get_coroutines(zval *return_value);

/* Async\Coroutine, Async\Timeout, Async\Future, Async\FutureState. */
typedef enum {
	CEN_IS_STARTED, CEN_IS_QUEUED, CEN_IS_RUNNING, CEN_IS_SUSPENDED, CEN_IS_CANCELLED,
	CEN_IS_CANCELLATION_REQUESTED, CEN_IS_COMPLETED,
} cen_question;
zend_long cenote_coroutine_id(void *data);
bool cenote_coroutine_is(void *data, cen_question question);
void cenote_coroutine_result(void *data, zval *return_value);
cen_status cenote_coroutine_exception(void *data, zval *return_value);
void cenote_coroutine_location(void *data, const char **file, size_t *file_len, uint32_t *line);
cen_status cenote_coroutine_finally(void *data, cen_call *call);
cen_status cenote_cancel(cen_class class, void *data, zend_object *cancellation);
bool cenote_completion_is(cen_class class, void *data, cen_question question);
void *cenote_future_state_new(void);
cen_status cenote_future_state_settle(void *data, zval *result, zend_object *error);
void *cenote_future_of(void *state);
void cenote_future_ignore(void *data);

/* Async\Pool. */
typedef struct {
	cen_call *factory, *destructor, *healthcheck, *before_acquire, *before_release;
	zend_long min, max, healthcheck_interval;
} cen_pool_options;
cen_status cenote_pool_new(zend_object *object, const cen_pool_options *options);
cen_status cenote_pool_acquire(void *data, zend_long timeout, zval *return_value);
cen_status cenote_pool_try_acquire(void *data, zval *return_value);
cen_status cenote_pool_release(void *data, zval *resource);
cen_status cenote_pool_close(void *data);
bool cenote_pool_is_closed(void *data);
void cenote_pool_counts(void *data, zend_long *total, zend_long *idle);
int cenote_pool_state(void *data);
cen_status cenote_pool_move(void *data, int state);
void cenote_pool_set_strategy(void *data, zval *strategy);

/* Async\Channel. */
void *cenote_channel_new(zend_long capacity);
cen_status cenote_channel_send(void *data, zval *value, zend_object *cancellation);
bool cenote_channel_try_send(void *data, zval *value);
cen_status cenote_channel_receive(void *data, zend_object *cancellation, zval *return_value);
cen_status cenote_channel_close(void *data);
bool cenote_channel_is_closed(void *data);
zend_long cenote_channel_capacity(void *data);
zend_long cenote_channel_count(void *data);
void *cenote_channel_iterator_new(void *channel);
cen_status cenote_channel_iterator_move(void *data);
bool cenote_channel_iterator_current(void *data, zval *value, zend_long *key);

#endif
