#include "error.h"
#include <stdarg.h>
#include <stdio.h>
#include "kernel.h"

#define ER_CHECK_TEXT 160 /* room of er_call.error */

static _Thread_local char text[512];

int er_refuse(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return status;
}

const char *er_error_text(void) { return text; }

int er_fail(const er_call *c, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(c->error, ER_CHECK_TEXT, format, arguments);
  va_end(arguments);
  return 1;
}
