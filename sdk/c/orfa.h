/* ORFA queries in C: all declarations of a query program, in addition to the C library's string.h, stdlib.h
 * (memory, qsort, numbers), ctype.h, math.h and stdio.h's snprintf.
 *
 *     void orfa(const void *input, int len);       you write this; it runs once per request
 *
 * Build with `orfa query build query.c`, run with `orfa call query.c --input '...'`.
 *
 * Memory: all of it belongs to the run and is discarded when the run ends. Returned values need not be freed, and
 * stay valid until then. Text that is passed in is copied, or used before the function returns.
 *
 * Failing: a function whose comment contains "ends the run" does not return if it fails; the client gets a problem
 * of status 422 whose text names the call. All other functions report errors in their return value.
 *
 * Formats: three small languages, each with % words that take an argument.
 *   URLs       "http://catalog/catalogs?buyer=%d": %s is percent-encoded, so no argument can change the service or
 *              the path. %v is a value: text, number, true or false, percent-encoded, or an array of those, joined
 *              by commas. Any other argument ends the run: NULL, no value, null, an object; in the path an empty
 *              one, "." or ".."; an empty list in any method but GET and HEAD.
 *   pointers   "/%d/id": JSON Pointers (RFC 6901); %s is escaped.
 *   templates  "{buyer:%v,second:%s}": JSON whose names and words need no quotes. %v is a value (null if there is
 *              none), %s text (null for NULL), %d int, %u unsigned, %lld long long, %f double (null if it isn't
 *              finite), %b true or false, %o an orfa_out. "{...%v,a:%d}" begins with the members of an object.
 * In all of them: %d, %u, %lld, %s and %%. */
#ifndef ORFA_H
#define ORFA_H

#include <stddef.h>
#include <stdint.h>
#include "orfa_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ORFA_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))

/* ---- Your program ---- */

/* The entry point. `input` is the input that the client sent along with the program, `len` bytes. */
__attribute__((export_name("orfa"))) void orfa(const void *input, int len);

/* ---- Reading JSON ---- */

/* A value in a JSON document. NULL means "no such value", and every function accepts it. */
typedef const struct orfa_value_s *orfa_value;

/* Reads JSON text, which is copied. Returns NULL if `len` is 0; ends the run if the text is not JSON. */
orfa_value orfa_json(const void *text, int len);

/* Returns the value at a pointer, or NULL. Walking an array from front to back has a constant cost per step. */
orfa_value orfa_at(orfa_value value, const char *pointer, ...) ORFA_PRINTF(2, 3);

/* Returns the integer at a pointer; `otherwise` if there is none or it doesn't fit. The pointer "" means `value`. */
int orfa_int(orfa_value value, int otherwise, const char *pointer, ...) ORFA_PRINTF(3, 4);

/* Like orfa_int, with 64 bits. */
long long orfa_long(orfa_value value, long long otherwise, const char *pointer, ...) ORFA_PRINTF(3, 4);

/* Returns the number at a pointer, as a double; `otherwise` if there is none. */
double orfa_num(orfa_value value, double otherwise, const char *pointer, ...) ORFA_PRINTF(3, 4);

/* Returns 1 or 0 for the true or false at a pointer; `otherwise` if there is neither. */
int orfa_bool(orfa_value value, int otherwise, const char *pointer, ...) ORFA_PRINTF(3, 4);

/* Returns the text at a pointer, NUL-terminated; `otherwise` (which may be NULL) if there is none, or if it contains
 * U+0000, which a C string can't. */
const char *orfa_str(orfa_value value, const char *otherwise, const char *pointer, ...) ORFA_PRINTF(3, 4);

/* Returns 1 if the value is this text, else 0. */
int orfa_is(orfa_value value, const char *text);

/* Returns 1 if an array has this text as an element, or an object has a member of this name; else 0. */
int orfa_has(orfa_value container, const char *text);

/* Returns the number of elements of an array, members of an object, or bytes of a text; 0 for any other value. */
int orfa_len(orfa_value value);

/* Returns the element of an array, or the member's value of an object, that follows `previous`; the first one if
 * `previous` is NULL. Returns NULL after the last. */
orfa_value orfa_next(orfa_value container, orfa_value previous);

/* for orfa_each(buyer, buyers) { ... }
 * Evaluates the container once: reading a part of a large answer again returns a different value each time. */
#define orfa_each(item, container) \
    (orfa_value item##_in = (container), item = NULL; (item = orfa_next(item##_in, item)) != NULL;)

/* Returns the first element of `array` whose member `name` equals `key` (a number or text), or NULL. The first search
 * in an array builds an index, so the cost of joining two lists is the sum of their lengths, not the product. */
orfa_value orfa_find(orfa_value array, const char *name, orfa_value key);

/* Returns the members called `name` of all elements of an array as a new array, without duplicates; only numbers and
 * texts: orfa_get("http://catalog/catalogs?ids=%v", orfa_pluck(orders, "catalog_id")). */
orfa_value orfa_pluck(orfa_value array, const char *name);

/* Returns an object with some members of another one. The names are separated by commas: "id,title,price". Missing
 * members are left out. Returns NULL if `object` isn't an object. */
orfa_value orfa_pick(orfa_value object, const char *names);

/* ---- Calls ---- */

/* A call in flight, and later its result. A negative value is the orfa_code of a call that the gateway refused to
 * send; every function here accepts it, too. 0 means no call. */
typedef orfa_handle orfa_future;

/* Sends a request and returns immediately. The host of the URL is the name of a service. */
orfa_future orfa_get(const char *url, ...);

/* Like orfa_get, with a JSON body made from the template, whose arguments follow those of the URL. If the template is
 * NULL, no body is sent. */
orfa_future orfa_post(const char *url, const char *body, ...);
orfa_future orfa_put(const char *url, const char *body, ...);
orfa_future orfa_patch(const char *url, const char *body, ...);
orfa_future orfa_delete(const char *url, ...);

/* Like orfa_post, with any method, such as "QUERY". */
orfa_future orfa_send(const char *method, const char *url, const char *body, ...);

/* Adds a header to the next call. */
void orfa_with(const char *name, const char *value);

/* Waits for an answer and reads it as JSON; NULL if its body is empty. Ends the run if there was no answer, its status
 * is not 2xx, or its body is not JSON. The future stays valid. */
orfa_value orfa_wait_json(orfa_future future);

/* orfa_wait_json(orfa_get(url, ...)). */
orfa_value orfa_get_json(const char *url, ...);

/* Waits for an answer and returns its status. Ends the run if there was no answer or its status is not 2xx. For writes
 * whose answer's body is not needed. */
int orfa_wait_ok(orfa_future future);

/* Waits for a call to end, successfully or not, and returns the answer's status; 0 if there was no answer. This and
 * the functions below are for programs that handle errors: none of them ends the run. */
int orfa_wait(orfa_future future);

/* Waits for all of `count` calls to end; futures that are 0 or negative are skipped. */
void orfa_wait_all(const orfa_future *futures, int count);

/* Waits until one of `count` calls has ended and returns its index; -1 if all are 0. Set a future to 0 after use, so
 * that it isn't found again. A refused call counts as ended. */
int orfa_wait_any(const orfa_future *futures, int count);

/* Waits and returns the answer's JSON, whatever its status; NULL if there is no answer, or its body is not JSON. */
orfa_value orfa_try_json(orfa_future future);

/* Waits and returns the answer's status, 0 if there was no answer. Equivalent to orfa_wait. */
int orfa_status_of(orfa_future future);

/* Waits and returns ORFA_OK if there was an answer of any status, else the orfa_code of the error. */
int orfa_error_of(orfa_future future);

/* Waits and returns the answer's body, NUL-terminated, and its length in `*len` (which may be NULL). Returns NULL if
 * there was no answer. */
const char *orfa_body_of(orfa_future future, int *len);

/* Waits and returns the value of a header of the answer, or NULL. Names are case-insensitive. */
const char *orfa_header_of(orfa_future future, const char *name);

/* Returns the meaning of an orfa_code, as a phrase. */
const char *orfa_reason(int code);

/* ---- The answer ---- */

/* JSON text under construction. */
typedef struct orfa_out_s *orfa_out;

/* Create an empty array, or an empty object. */
orfa_out orfa_array(void);
orfa_out orfa_object(void);

/* Adds to it by a template: elements to an array, "name:%v" members to an object. Ends the run if the template's
 * brackets don't match or a % word is unknown. */
void orfa_add(orfa_out out, const char *members, ...);

/* Submits the answer as application/json. A run submits exactly one answer. */
void orfa_done_json(orfa_out out);

/* Like orfa_done_json, for an answer that fits into one template: orfa_done_as("{total:%d}", total). */
void orfa_done_as(const char *json, ...);

/* Submits text, as text/plain in UTF-8. */
void orfa_done_text(const char *text);

/* Submits bytes, as application/octet-stream unless orfa_header set another type. They are copied. */
void orfa_done(const void *data, uint32_t len);

/* Sets the answer's status, 200 to 599. Returns ORFA_OK or ORFA_INVALID. */
int32_t orfa_status(int32_t code);

/* Sets a header of the answer. Returns ORFA_OK, ORFA_FORBIDDEN for a name that a program may not set, or
 * ORFA_INVALID. */
int orfa_header(const char *name, const char *value);

/* ---- Other functions ---- */

/* Adds a line to the console, which is part of the problem of a run that failed, and of the trace. Formats as
 * printf. */
void orfa_log(const char *format, ...) ORFA_PRINTF(1, 2);

/* Ends the run: the client gets a problem of status 422 with this text. Formats as printf. */
_Noreturn void orfa_fail(const char *format, ...) ORFA_PRINTF(1, 2);

/* Milliseconds since 1970-01-01 UTC. */
int64_t orfa_clock(void);

/* Fills `data` with random bytes, which are different in every run. */
void orfa_random(void *data, uint32_t len);

/* Allocates memory, aligned to 16 bytes. Ends the run if memory is exhausted, and so never returns NULL. */
void *orfa_alloc(uint32_t len);

/* ---- The functions of the ABI, without convenience: see orfa_abi.h ---- */

void orfa_Handle_del(orfa_handle handle);
int32_t orfa_Future_ready(orfa_handle future);
orfa_handle orfa_http(const orfa_request *request);
int32_t orfa_Response_get(orfa_handle future, orfa_response *response);
int32_t orfa_Response_read(orfa_handle future, int32_t part, void *data, uint32_t len);
int32_t orfa_Response_json(orfa_handle future, const char *pointer, uint32_t pointer_len, void *data,
                           uint32_t len);
int32_t orfa_Future_wait(const orfa_handle *futures, uint32_t count, int32_t all);

#ifdef __cplusplus
}
#endif

#endif
