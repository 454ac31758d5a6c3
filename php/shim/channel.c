/* Async\Channel and its iterator. */

#include "shim.h"

ZEND_METHOD(Async_Channel, __construct)
{
	zend_long capacity = 0;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(capacity)
	ZEND_PARSE_PARAMETERS_END();
	if (capacity < 0) {
		zend_argument_value_error(1, "must be >= 0");
		RETURN_THROWS();
	}
	if (CEN_DATA(ZEND_THIS)) {
		zend_throw_error(NULL, "Async\\Channel is constructed already");
		RETURN_THROWS();
	}
	cen_from_object(Z_OBJ_P(ZEND_THIS))->data = cenote_channel_new(capacity);
}

ZEND_METHOD(Async_Channel, send)
{
	zval *value;
	zend_object *cancellation = NULL;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_ZVAL(value)
		Z_PARAM_OPTIONAL
		Z_PARAM_OBJ_OF_CLASS_OR_NULL(cancellation, cen_ce_completable)
	ZEND_PARSE_PARAMETERS_END();
	THIS_DATA(data);
	CEN_END(cenote_channel_send(data, value, cancellation));
}

ZEND_METHOD(Async_Channel, sendAsync)
{
	zval *value;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_ZVAL(value)
	ZEND_PARSE_PARAMETERS_END();
	THIS_DATA(data);
	RETURN_BOOL(cenote_channel_try_send(data, value));
}

ZEND_METHOD(Async_Channel, recv)
{
	zend_object *cancellation = NULL;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_OBJ_OF_CLASS_OR_NULL(cancellation, cen_ce_completable)
	ZEND_PARSE_PARAMETERS_END();
	THIS_DATA(data);
	CEN_END(cenote_channel_receive(data, cancellation, return_value));
}

ZEND_METHOD(Async_Channel, close)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	CEN_END(cenote_channel_close(data));
}

ZEND_METHOD(Async_Channel, isClosed)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	RETURN_BOOL(cenote_channel_is_closed(data));
}

ZEND_METHOD(Async_Channel, capacity)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	RETURN_LONG(cenote_channel_capacity(data));
}

ZEND_METHOD(Async_Channel, count)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	RETURN_LONG(cenote_channel_count(data));
}

ZEND_METHOD(Async_Channel, isEmpty)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	RETURN_BOOL(cenote_channel_count(data) == 0);
}

ZEND_METHOD(Async_Channel, isFull)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	RETURN_BOOL(cenote_channel_count(data) >= cenote_channel_capacity(data));
}

ZEND_METHOD(Async_Channel, getIterator)
{
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	object_init_ex(return_value, cen_ce[CEN_CHANNEL_ITERATOR]);
	cen_from_object(Z_OBJ_P(return_value))->data = cenote_channel_iterator_new(data);
}

/* ---- the iterator: each step receives a value -------------------------------- */

#define ITERATOR_STEP(name) \
	ZEND_METHOD(Async_ChannelIterator, name) \
	{ \
		ZEND_PARSE_PARAMETERS_NONE(); \
		THIS_DATA(data); \
		CEN_END(cenote_channel_iterator_move(data)); \
	}

ITERATOR_STEP(rewind)
ITERATOR_STEP(next)

ZEND_METHOD(Async_ChannelIterator, valid)
{
	zend_long key;
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	RETURN_BOOL(cenote_channel_iterator_current(data, NULL, &key));
}

ZEND_METHOD(Async_ChannelIterator, current)
{
	zend_long key;
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	cenote_channel_iterator_current(data, return_value, &key);
}

ZEND_METHOD(Async_ChannelIterator, key)
{
	zend_long key;
	ZEND_PARSE_PARAMETERS_NONE();
	THIS_DATA(data);
	if (cenote_channel_iterator_current(data, NULL, &key)) {
		RETURN_LONG(key);
	}
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_construct, 0, 0, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, capacity, IS_LONG, 0, "0")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_send, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, value, IS_MIXED, 0)
	ZEND_ARG_OBJ_INFO_WITH_DEFAULT_VALUE(0, cancellationToken, Async\\Completable, 1, "null")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_send_async, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, value, IS_MIXED, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_recv, 0, 0, IS_MIXED, 0)
	ZEND_ARG_OBJ_INFO_WITH_DEFAULT_VALUE(0, cancellationToken, Async\\Completable, 1, "null")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_void, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_int, 0, 0, IS_LONG, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_mixed, 0, 0, IS_MIXED, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_iterator, 0, 0, Iterator, 0)
ZEND_END_ARG_INFO()

const zend_function_entry cen_channel_methods[] = {
	ZEND_ME(Async_Channel, __construct, arginfo_construct, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Channel, send, arginfo_send, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Channel, sendAsync, arginfo_send_async, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Channel, recv, arginfo_recv, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Channel, close, arginfo_void, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Channel, isClosed, arginfo_bool, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Channel, capacity, arginfo_int, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Channel, count, arginfo_int, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Channel, isEmpty, arginfo_bool, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Channel, isFull, arginfo_bool, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_Channel, getIterator, arginfo_iterator, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};

const zend_function_entry cen_channel_iterator_methods[] = {
	ZEND_ME(Async_ChannelIterator, rewind, arginfo_void, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_ChannelIterator, valid, arginfo_bool, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_ChannelIterator, current, arginfo_mixed, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_ChannelIterator, key, arginfo_mixed, ZEND_ACC_PUBLIC)
	ZEND_ME(Async_ChannelIterator, next, arginfo_void, ZEND_ACC_PUBLIC)
	ZEND_FE_END
};
