/* ORFA queries in C: everything a query program needs, beside the C library's string.h, stdlib.h
 * (memory, qsort, numbers), ctype.h, math.h and stdio.h's snprintf.
 *
 *     void orfa(const void *input, int len);       you write this; it runs once per request
 *
 * Build with `orfa query build query.c`, run with `orfa call query.c --input '...'`.
 *
 * Memory: all of it belongs to the run and is gone when the run ends. Nothing that a function returns
 * has to be freed, and everything that it returns stays valid until then. Text that is passed in is
 * copied, or used before the function returns.
 *
 * Failing: a function whose comment says "ends the run" answers the client with a problem of status 422
 * whose text names the call, and does not return. Everything else reports through what it returns.
 *
 * Formats: three small languages, each with % words that take an argument.
 *   URLs       "http://catalog/catalogs?buyer=%d": %s is percent-encoded, so no argument can change
 *              which service or path is meant. %v is a value: text, number, true or false, percent-encoded,
 *              and an array of those with commas between. All else ends the run: NULL, no value, null, an
 *              object; in the path what is empty, "." or ".."; an empty list in anything but GET and HEAD.
 *   pointers   "/%d/id": JSON Pointers (RFC 6901); %s is escaped.
 *   templates  "{buyer:%v,second:%s}": JSON whose names and words need no quotes. %v is a value (null
 *              where there is none), %s text (null for NULL), %d int, %u unsigned, %lld long long, %f
 *              double (null where it isn't finite), %b true or false, %o an orfa_out. "{...%v,a:%d}"
 *              puts in the members of an object first.
 * Everywhere: %d, %u, %lld, %s and %%. */
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

/* The entry point. `input` is what the client sent beside the program, `len` bytes of it. */
__attribute__((export_name("orfa"))) void orfa(const void *input, int len);

/* ---- JSON that came in ---- */

/* A JSON value inside of a document that was read. NULL is "no such value", and every function takes it. */
typedef const struct orfa_value_s *orfa_value;

/* Reads JSON text. NULL where `len` is 0; ends the run where the text is not JSON. The text is copied. */
orfa_value orfa_json(const void *text, int len);

/* The value at a pointer, or NULL. Walking an array from front to back costs the same at each step. */
orfa_value orfa_at(orfa_value value, const char *pointer, ...) ORFA_PRINTF(2, 3);

/* The integer at a pointer; `otherwise` where there is none or it doesn't fit. A pointer of "" is `value`. */
int orfa_int(orfa_value value, int otherwise, const char *pointer, ...) ORFA_PRINTF(3, 4);

/* The same with 64 bits. */
long long orfa_long(orfa_value value, long long otherwise, const char *pointer, ...) ORFA_PRINTF(3, 4);

/* The number at a pointer, as a double; `otherwise` where there is none. */
double orfa_num(orfa_value value, double otherwise, const char *pointer, ...) ORFA_PRINTF(3, 4);

/* 1 or 0 for the true or false at a pointer; `otherwise` where there is neither. */
int orfa_bool(orfa_value value, int otherwise, const char *pointer, ...) ORFA_PRINTF(3, 4);

/* The text at a pointer, NUL-terminated; `otherwise` (which may be NULL) where there is none, or one with U+0000 in
 * it, which no C string can hold. */
const char *orfa_str(orfa_value value, const char *otherwise, const char *pointer, ...) ORFA_PRINTF(3, 4);

/* 1 where the value is this text, else 0. */
int orfa_is(orfa_value value, const char *text);

/* 1 where an array has this text as an element, or an object a member of this name; else 0. */
int orfa_has(orfa_value container, const char *text);

/* How many elements an array, members an object, or bytes a text has; 0 for everything else. */
int orfa_len(orfa_value value);

/* The element of an array, or the member's value of an object, that follows `previous`; the first one
 * where `previous` is NULL. NULL behind the last. */
orfa_value orfa_next(orfa_value container, orfa_value previous);

/* for orfa_each(buyer, buyers) { ... }
 * The container is asked for once: a part of a large answer is another value each time that it is asked for. */
#define orfa_each(item, container) \
    (orfa_value item##_in = (container), item = NULL; (item = orfa_next(item##_in, item)) != NULL;)

/* The first element of `array` whose member `name` equals `key` (a number or text), or NULL. The first
 * search in an array makes an index, so that joining two lists costs their lengths added, not multiplied. */
orfa_value orfa_find(orfa_value array, const char *name, orfa_value key);

/* The members called `name` of all elements of an array, each different number or text once, as an array
 * of its own: orfa_get("http://catalog/catalogs?ids=%v", orfa_pluck(orders, "catalog_id")). */
orfa_value orfa_pluck(orfa_value array, const char *name);

/* An object with some members of another one, named with commas between: "id,title,price". Members that
 * aren't there are left out; NULL where `object` is none. */
orfa_value orfa_pick(orfa_value object, const char *names);

/* ---- Calls ---- */

/* A call under way, and later what came of it. Below 0 it is the orfa_code of a call that the gateway
 * refused to send; every function here takes that too. 0 is no call. */
typedef orfa_handle orfa_future;

/* Sends a request and returns at once. The host of the URL is the name of a service. */
orfa_future orfa_get(const char *url, ...);

/* The same with a JSON body, made from the template; its arguments follow those of the URL. A NULL
 * template sends no body. */
orfa_future orfa_post(const char *url, const char *body, ...);
orfa_future orfa_put(const char *url, const char *body, ...);
orfa_future orfa_patch(const char *url, const char *body, ...);
orfa_future orfa_delete(const char *url, ...);

/* The same with any method, such as "QUERY". */
orfa_future orfa_send(const char *method, const char *url, const char *body, ...);

/* Gives the next call that is sent one header more. */
void orfa_with(const char *name, const char *value);

/* Waits for an answer and reads it as JSON; NULL where its body is empty. Ends the run where no answer
 * came, its status is not 2xx, or its body is not JSON. The future stays valid. */
orfa_value orfa_wait_json(orfa_future future);

/* orfa_wait_json(orfa_get(url, ...)). */
orfa_value orfa_get_json(const char *url, ...);

/* Waits for an answer and returns its status. Ends the run where no answer came or its status is not
 * 2xx. For writes, whose answer's body is of no interest. */
int orfa_wait_ok(orfa_future future);

/* Waits for a call to end, in whichever way, and returns the answer's status; 0 where no answer came.
 * This and the functions below are the careful way: none of them ends the run. */
int orfa_wait(orfa_future future);

/* Waits for all of `count` calls to end; futures that are 0 or below are skipped. */
void orfa_wait_all(const orfa_future *futures, int count);

/* Waits until one of `count` calls has ended and returns its index; -1 where all are 0. Set a future to 0
 * when you are done with it, so that it isn't found again. A refused call has ended. */
int orfa_wait_any(const orfa_future *futures, int count);

/* Waits; the answer's JSON, whatever its status; NULL where there is no answer, or no JSON in it. */
orfa_value orfa_try_json(orfa_future future);

/* Waits; the answer's status, 0 where no answer came. The same as orfa_wait. */
int orfa_status_of(orfa_future future);

/* Waits; ORFA_OK where an answer came, of whichever status, else the orfa_code that says why not. */
int orfa_error_of(orfa_future future);

/* Waits; the answer's body, NUL-terminated, and its length in `*len` (which may be NULL). NULL where no
 * answer came. */
const char *orfa_body_of(orfa_future future, int *len);

/* Waits; the value of a header of the answer, or NULL. Names are compared without case. */
const char *orfa_header_of(orfa_future future, const char *name);

/* What an orfa_code means, as a phrase. */
const char *orfa_reason(int code);

/* ---- The answer ---- */

/* JSON text that is being written. */
typedef struct orfa_out_s *orfa_out;

/* An empty array, or an empty object. */
orfa_out orfa_array(void);
orfa_out orfa_object(void);

/* Adds to it by a template: elements to an array, "name:%v" members to an object. Ends the run where the
 * template's brackets don't match or a % word is unknown. */
void orfa_add(orfa_out out, const char *members, ...);

/* Submits the answer as application/json. A run submits one answer. */
void orfa_done_json(orfa_out out);

/* The same for an answer that fits into one template: orfa_done_as("{total:%d}", total). */
void orfa_done_as(const char *json, ...);

/* Submits text, as text/plain in UTF-8. */
void orfa_done_text(const char *text);

/* Submits bytes, as application/octet-stream unless orfa_header said otherwise. They are copied. */
void orfa_done(const void *data, uint32_t len);

/* Sets the answer's status, 200 to 599. ORFA_OK or ORFA_INVALID. */
int32_t orfa_status(int32_t code);

/* Sets a header of the answer. ORFA_OK, ORFA_FORBIDDEN for a name that a program may not set, or
 * ORFA_INVALID. */
int orfa_header(const char *name, const char *value);

/* ---- The rest ---- */

/* Adds a line to the console: it is told with the problem of a run that ends badly, and in the trace.
 * Formats as printf. */
void orfa_log(const char *format, ...) ORFA_PRINTF(1, 2);

/* Ends the run: the client gets a problem of status 422 with this text. Formats as printf. */
_Noreturn void orfa_fail(const char *format, ...) ORFA_PRINTF(1, 2);

/* Milliseconds since 1970-01-01 UTC. */
int64_t orfa_clock(void);

/* Fills `data` with random bytes, fresh in every run. */
void orfa_random(void *data, uint32_t len);

/* Memory, aligned to 16 bytes; ends the run where there is none left, so never NULL. */
void *orfa_alloc(uint32_t len);

/* ---- The paper's functions (table 2), without convenience: see orfa_abi.h ---- */

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
