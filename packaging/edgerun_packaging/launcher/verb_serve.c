/* `serve`: HTTP on one thread. The model runs one request at a time (on all its threads); between runs, poll() serves
 * clients that are slow to send or to read. All memory is bounded: a fixed number of connections, heads of fixed size,
 * and bodies with their answers only while they fit into a common budget; others wait. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "launcher.h"

enum { MAX_CONNECTIONS = 16, HEAD_LIMIT = 8192, REQUESTS_IN_MEMORY = 4, LINGER_SECONDS = 1 };

typedef struct {
  int fd;                   /* -1: this place is free */
  enum { READ_HEAD, WAIT_FOR_MEMORY, READ_BODY, WRITE, LINGER } state;
  char head[HEAD_LIMIT];    /* of the request, and what came after it */
  size_t head_used;
  request r;
  uint8_t *memory;          /* body, then room for the answer */
  size_t memory_bytes, body_used;
  char reply[512];          /* status line and headers, and a short body */
  size_t reply_bytes, reply_sent;
  const char *body;         /* of the answer */
  size_t body_bytes, body_sent;
  int close_after;
  double deadline;
} connection;

typedef struct {
  const packed *p;
  bound b;
  connection list[MAX_CONNECTIONS];
  int listener;
  double timeout;
  uint64_t max_body, answer_room, budget, taken;
  uint64_t answered;
  char *metadata; /* rendered at start: binding shapes changes what the model says of itself */
  size_t metadata_bytes;
} server;

static volatile sig_atomic_t stopping;
static void on_signal(int number) {
  (void)number;
  stopping++;
}

/* -- listening */

static int parse_address(const char *text, struct sockaddr_storage *address, socklen_t *bytes) {
  char host[64] = "127.0.0.1";
  const char *colon = strrchr(text, ':');
  const char *port = colon ? colon + 1 : text;
  size_t n = colon ? (size_t)(colon - text) : 0;
  if (n >= sizeof host) return 0;
  if (n) memcpy(host, text, n), host[n] = 0;
  if (!strcmp(host, "localhost")) strcpy(host, "127.0.0.1");
  uint16_t number = htons((uint16_t)parse_count(port, "the port of --listen", 0, 65535));
  struct sockaddr_in *v4 = (struct sockaddr_in *)address;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
  memset(address, 0, sizeof *address);
  if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = number;
    *bytes = sizeof *v4;
    return 1;
  }
  n = strlen(host);
  if (n < 2 || host[0] != '[' || host[n - 1] != ']') return 0;
  host[n - 1] = 0;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = number;
  *bytes = sizeof *v6;
  return inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1;
}

static int open_listener(const char *text) {
  struct sockaddr_storage address;
  socklen_t bytes;
  if (!parse_address(text, &address, &bytes))
    fail(EXIT_USAGE, "--listen takes PORT, HOST:PORT or [IPV6]:PORT with a numeric host, not '%s'", text);
  int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
  if (fd < 0) fail(EXIT_HARDWARE, "this system has no network: %s", strerror(errno));
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, (struct sockaddr *)&address, bytes) || listen(fd, 64))
    fail(EXIT_IO, "cannot listen on %s: %s", text, strerror(errno));
  return fd;
}

/* The port that was chosen, for --listen 0. */
static int port_of(int listener) {
  struct sockaddr_storage address;
  socklen_t bytes = sizeof address;
  if (getsockname(listener, (struct sockaddr *)&address, &bytes)) return 0;
  return ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                            : ((struct sockaddr_in6 *)&address)->sin6_port);
}

/* -- connections */

static void give_memory(server *s, connection *c) {
  if (c->memory) munmap(c->memory, c->memory_bytes);
  s->taken -= c->memory_bytes;
  c->memory = NULL;
  c->memory_bytes = 0;
}

static void drop(server *s, connection *c) {
  give_memory(s, c);
  close(c->fd);
  c->fd = -1;
}

static void accept_one(server *s) {
  connection *place = NULL, *idle = NULL;
  for (int i = 0; i < MAX_CONNECTIONS; i++) {
    connection *c = &s->list[i];
    if (c->fd < 0) place = c;
    else if (c->state == READ_HEAD && c->head_used == 0 && (!idle || c->deadline < idle->deadline)) idle = c;
  }
  if (!place && !idle) return; /* all are busy: the next one waits in the kernel's queue */
  int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), yes = 1;
  if (fd < 0) return;
  if (!place) drop(s, place = idle);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  place->fd = fd;
  place->state = READ_HEAD;
  place->head_used = 0;
  place->deadline = seconds_now() + s->timeout;
}

/* Starts an answer: head in c->reply, body (which must stay) sent after it. */
static void reply(server *s, connection *c, int status, const char *type, const char *body, size_t bytes) {
  c->close_after = c->close_after || !c->r.keep_alive || stopping;
  c->reply_bytes = (size_t)snprintf(
      c->reply, sizeof c->reply, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s%s\r\n", status,
      http_status_text(status), type, bytes, status == 405 ? "Allow: GET, POST\r\n" : "",
      c->close_after ? "Connection: close\r\n" : "");
  c->reply_sent = c->body_sent = 0;
  c->body = body;
  c->body_bytes = bytes;
  c->state = WRITE;
  c->deadline = seconds_now() + s->timeout;
  s->answered++;
}

/* An error that needs no memory. `keep`: the request was read to its end, the connection can go on. */
static void refuse(server *s, connection *c, int status, const char *reason, int keep) {
  char body[256];
  c->close_after = !keep;
  int n = snprintf(body, sizeof body, "{\"error\": \"%s\"}\n", reason); /* reasons are ours: nothing to escape */
  reply(s, c, status, "application/json", "", (size_t)n);
  memcpy(c->reply + c->reply_bytes, body, (size_t)n);
  c->reply_bytes += (size_t)n;
  c->body_bytes = 0;
}

/* -- requests */

static void answer_infer(server *s, connection *c) {
  size_t body = (size_t)c->r.body_bytes;
  answer to = {(char *)c->memory + body, c->memory_bytes - body, 0, NULL};
  int status = infer(&s->b, &c->r, c->memory, &to);
  if (to.used > to.room) refuse(s, c, 500, "the answer is too long", 1);
  else reply(s, c, status, to.type, to.data, to.used);
}

/* What can be decided without a body. Returns whether the request was refused or answered. */
static int answered_by_head(server *s, connection *c) {
  const request *r = &c->r;
  int is_infer = !strcmp(r->path, "/infer"), is_health = !strcmp(r->path, "/healthz");
  int keep = r->body_bytes == 0;
  if (!is_infer && !is_health && strcmp(r->path, "/metadata"))
    return refuse(s, c, 404, "there are /healthz, /metadata and /infer", keep), 1;
  if (r->method != (is_infer ? HTTP_POST : HTTP_GET))
    return refuse(s, c, 405, is_infer ? "/infer takes POST" : "this takes GET", keep), 1;
  if (!is_infer && r->body_bytes) return refuse(s, c, 400, "GET takes no body", 0), 1;
  if (r->body_bytes > s->max_body) return refuse(s, c, 413, "the body is larger than --max-body", 0), 1;
  if (is_infer && r->type == BODY_OTHER)
    return refuse(s, c, 415, "Content-Type must be application/json or application/x-npy", keep), 1;
  if (is_health) return reply(s, c, 200, "application/json", "{\"status\": \"ok\"}\n", 17), 1;
  if (!is_infer) return reply(s, c, 200, "application/json", s->metadata, s->metadata_bytes), 1;
  return 0;
}

static void take_body(server *s, connection *c, const char *data, size_t bytes) {
  memcpy(c->memory + c->body_used, data, bytes);
  c->body_used += bytes;
  if (c->body_used == c->r.body_bytes) answer_infer(s, c);
}

/* Memory for body and answer, when the budget allows it; what came with the head goes there. */
static void try_memory(server *s, connection *c) {
  uint64_t need = c->r.body_bytes + s->answer_room;
  c->state = WAIT_FOR_MEMORY;
  if (s->taken && s->taken + need > s->budget) return;
  void *memory = mmap(NULL, (size_t)need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    refuse(s, c, 503, "there is no memory for this request", 0);
    return;
  }
  c->memory = memory;
  c->memory_bytes = (size_t)need;
  s->taken += need;
  c->body_used = 0;
  c->state = READ_BODY;
  c->deadline = seconds_now() + s->timeout;
  if (c->r.expects_continue && c->head_used < c->r.body_bytes)
    send(c->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL);
  size_t here = c->head_used < c->r.body_bytes ? c->head_used : (size_t)c->r.body_bytes;
  c->head_used -= here;
  char *rest = c->head + here;
  take_body(s, c, c->head, here);
  memmove(c->head, rest, c->head_used);
}

/* Looks for a complete head in what has been read. */
static void look_at_head(server *s, connection *c) {
  const char *reason;
  c->close_after = 0;
  int status = http_parse(c->head, c->head_used, &c->r, &reason);
  if (status == 0) {
    if (c->head_used == HEAD_LIMIT) refuse(s, c, 431, "the head of the request is longer than 8192 bytes", 0);
    return;
  }
  if (status != 1) {
    refuse(s, c, status, reason, 0);
    return;
  }
  c->head_used -= c->r.head_bytes;
  memmove(c->head, c->head + c->r.head_bytes, c->head_used);
  if (!answered_by_head(s, c)) try_memory(s, c);
}

/* -- bytes in and out */

static void read_more(server *s, connection *c) {
  char waste[4096];
  void *to = c->state == READ_HEAD ? c->head + c->head_used : c->state == READ_BODY ? (char *)c->memory + c->body_used : waste;
  size_t room = c->state == READ_HEAD   ? HEAD_LIMIT - c->head_used
                : c->state == READ_BODY ? (size_t)c->r.body_bytes - c->body_used
                                        : sizeof waste;
  ssize_t n = recv(c->fd, to, room, 0);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) {
    drop(s, c);
  } else if (c->state == READ_HEAD) {
    if (c->head_used == 0) c->deadline = seconds_now() + s->timeout; /* idle until now */
    c->head_used += (size_t)n;
    look_at_head(s, c);
  } else if (c->state == READ_BODY) {
    c->body_used += (size_t)n;
    if (c->body_used == c->r.body_bytes) answer_infer(s, c);
  }
}

/* Closing while the client still sends would reset the connection and lose the answer: read on for a moment. */
static void finish(server *s, connection *c) {
  give_memory(s, c);
  if (c->close_after) {
    shutdown(c->fd, SHUT_WR);
    c->state = LINGER;
    c->deadline = seconds_now() + LINGER_SECONDS;
    return;
  }
  c->state = READ_HEAD;
  c->deadline = seconds_now() + s->timeout;
  if (c->head_used) look_at_head(s, c);
}

static void write_more(server *s, connection *c) {
  int in_head = c->reply_sent < c->reply_bytes;
  const char *from = in_head ? c->reply + c->reply_sent : c->body + c->body_sent;
  size_t bytes = in_head ? c->reply_bytes - c->reply_sent : c->body_bytes - c->body_sent;
  ssize_t n = bytes ? send(c->fd, from, bytes, MSG_NOSIGNAL | (in_head && c->body_bytes ? MSG_MORE : 0)) : 0;
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n < 0) {
    drop(s, c);
    return;
  }
  if (in_head) c->reply_sent += (size_t)n;
  else c->body_sent += (size_t)n;
  if (c->reply_sent == c->reply_bytes && c->body_sent == c->body_bytes) finish(s, c);
}

/* -- the loop */

static void expire(server *s, connection *c) {
  int has_begun = c->state == READ_BODY || (c->state == READ_HEAD && c->head_used);
  if (has_begun) {
    give_memory(s, c);
    refuse(s, c, 408, "the request took too long", 0);
  } else if (c->state == WAIT_FOR_MEMORY) {
    refuse(s, c, 503, "too many requests at once", 0);
  } else {
    drop(s, c);
  }
}

/* Between the signal and the end only requests that have begun are served. Returns how many connections are left. */
static int still_open(server *s) {
  int n = 0;
  for (int i = 0; i < MAX_CONNECTIONS; i++) {
    connection *c = &s->list[i];
    if (c->fd >= 0 && stopping && ((c->state == READ_HEAD && !c->head_used) || c->state == LINGER)) drop(s, c);
    n += c->fd >= 0;
  }
  return n;
}

static int can_accept(const server *s) {
  for (int i = 0; i < MAX_CONNECTIONS; i++)
    if (s->list[i].fd < 0 || (s->list[i].state == READ_HEAD && !s->list[i].head_used)) return !stopping;
  return 0;
}

static void turn(server *s, const sigset_t *during_poll) {
  struct pollfd polled[MAX_CONNECTIONS + 1];
  double now = seconds_now(), next = now + 60;
  for (int i = 0; i < MAX_CONNECTIONS; i++) {
    connection *c = &s->list[i];
    if (c->fd >= 0 && c->state == WAIT_FOR_MEMORY) try_memory(s, c);
    if (c->fd >= 0 && c->deadline <= now) expire(s, c);
    short events = c->state == WRITE ? POLLOUT : c->state == WAIT_FOR_MEMORY ? 0 : POLLIN;
    polled[i] = (struct pollfd){c->fd, events, 0};
    if (c->fd >= 0 && c->deadline < next) next = c->deadline;
  }
  polled[MAX_CONNECTIONS] = (struct pollfd){can_accept(s) ? s->listener : -1, POLLIN, 0};
  double wait = next - seconds_now();
  struct timespec limit = {(time_t)(wait > 0 ? wait : 0), 0};
  limit.tv_nsec = (long)((wait > 0 ? wait - (double)limit.tv_sec : 0) * 1e9) + 1000000;
  if (limit.tv_nsec >= 1000000000) limit.tv_nsec = 999999999;
  if (ppoll(polled, MAX_CONNECTIONS + 1, &limit, during_poll) <= 0) return;
  for (int i = 0; i < MAX_CONNECTIONS; i++) {
    connection *c = &s->list[i];
    if (c->fd < 0 || !polled[i].revents) continue;
    if (c->state == WAIT_FOR_MEMORY) drop(s, c); /* nothing but an error was asked for */
    else if (c->state == WRITE) write_more(s, c);
    else read_more(s, c);
  }
  if (polled[MAX_CONNECTIONS].revents) accept_one(s);
}

static void catch_signals(sigset_t *during_poll) {
  sigset_t blocked;
  struct sigaction action = {.sa_handler = on_signal};
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigaddset(&blocked, SIGINT);
  sigprocmask(SIG_BLOCK, &blocked, during_poll);
  sigdelset(during_poll, SIGTERM);
  sigdelset(during_poll, SIGINT);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
}

static void render_metadata(server *s) {
  char none[1];
  out_capture(none, 0);
  print_info_json(s->p, s->b.model);
  size_t bytes = out_captured();
  s->metadata = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (s->metadata == MAP_FAILED) fail(EXIT_HARDWARE, "not enough memory for the metadata");
  out_capture(s->metadata, bytes);
  print_info_json(s->p, s->b.model);
  s->metadata_bytes = out_captured();
  out_capture(NULL, 0);
}

int verb_serve(const packed *p, const options *o) {
  static server s;
  sigset_t during_poll;
  s.p = p;
  s.timeout = o->timeout;
  er_model *model = load_model(p, o, o->threads ? (int)parse_count(o->threads, "--threads", 1, 1024) : 0);
  bound_open(&s.b, model);
  render_metadata(&s);
  s.max_body = o->max_body ? (uint64_t)o->max_body : largest_request(p);
  s.answer_room = largest_answer(p);
  s.budget = REQUESTS_IN_MEMORY * (s.max_body + s.answer_room);
  if (s.budget > SIZE_MAX / 4) fail(EXIT_HARDWARE, "requests of this size do not fit into memory; give --max-body");
  for (int i = 0; i < MAX_CONNECTIONS; i++) s.list[i].fd = -1;
  catch_signals(&during_poll);
  s.listener = open_listener(o->listen ? o->listen : "127.0.0.1:8080");
  note("listening on port %d: GET /healthz, GET /metadata, POST /infer up to %llu bytes; buffers up to %.2f MB",
       port_of(s.listener), (unsigned long long)s.max_body, (double)s.budget / 1e6);
  while (stopping < 2 && (still_open(&s) || !stopping)) turn(&s, &during_poll);
  note("stopped after %llu answers", (unsigned long long)s.answered);
  er_free(model);
  return EXIT_OK;
}
