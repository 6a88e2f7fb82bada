/* Error sentences: one buffer per thread. */
#ifndef EDGERUN_ERROR_H
#define EDGERUN_ERROR_H
/* Formats the sentence and returns `status`. */
int er_refuse(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *er_error_text(void); /* the last sentence of this thread */
#endif
