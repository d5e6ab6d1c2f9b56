// h2o as a peer: h2o 127.0.0.1:0, or h2o version
//
// As in its TechEmpower entry: handlers in C on libh2o and its own event loop (epoll), with bodies out of memory. The
// program h2o itself could only serve files, which it opens anew in every turn of its loop, or mruby, which costs more.
// One thread. The library sets no-delay, and adds Date, Server and Connection to each answer; its answers to a pipeline
// leave one by one, which no setting changes.
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <h2o.h>

#define BODY_BYTES_MAX (1 << 20)
// As many as the program h2o takes in one turn by default.
#define ACCEPTS_PER_TURN 64
// A connection may wait for so long; the runner holds none of them for an hour.
#define WAIT_MILLISECONDS_MAX (3600 * 1000)

static const char HELLO[] = "Hello, World!";
static const char BYTES[] = "/bytes/";
static char filler[BODY_BYTES_MAX];

static h2o_globalconf_t config;
static h2o_context_t context;
static h2o_accept_ctx_t accepting = {.ctx = &context, .hosts = NULL};

// Sends a body that lives as long as its request, without a copy.
static int answer(h2o_req_t *request, const char *type, size_t type_length, h2o_iovec_t body)
{
    // With a body that is sent at once there is nothing to proceed with, nor to stop.
    static h2o_generator_t generator = {NULL, NULL};
    request->res.status = 200;
    request->res.reason = "OK";
    request->res.content_length = body.len;
    h2o_add_header(&request->pool, &request->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL, type, type_length);
    h2o_start_response(request, &generator);
    h2o_send(request, &body, 1, H2O_SEND_STATE_FINAL);
    return 0;
}

static int plaintext(h2o_handler_t *self, h2o_req_t *request)
{
    return answer(request, H2O_STRLIT("text/plain"), h2o_iovec_init(HELLO, sizeof(HELLO) - 1));
}

static int bytes(h2o_handler_t *self, h2o_req_t *request)
{
    size_t prefix = sizeof(BYTES) - 1;
    if (request->path_normalized.len <= prefix) {
        return -1;
    }
    size_t count = h2o_strtosize(request->path_normalized.base + prefix, request->path_normalized.len - prefix);
    if (count > sizeof(filler)) {
        return -1;
    }
    return answer(request, H2O_STRLIT("application/octet-stream"), h2o_iovec_init(filler, count));
}

// The body lies in the connection's input, which stays as it is until its answer is sent.
static int echo(h2o_handler_t *self, h2o_req_t *request)
{
    if (!h2o_memis(request->method.base, request->method.len, H2O_STRLIT("POST"))) {
        return -1;
    }
    return answer(request, H2O_STRLIT("application/octet-stream"), request->entity);
}

static void serve(h2o_hostconf_t *host, const char *path, int (*on_request)(h2o_handler_t *, h2o_req_t *))
{
    h2o_handler_t *handler = h2o_create_handler(h2o_config_register_path(host, path, 0), sizeof(*handler));
    handler->on_req = on_request;
}

static void on_accept(h2o_socket_t *listener, const char *error)
{
    if (error != NULL) {
        return;
    }
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        h2o_socket_t *socket = h2o_evloop_socket_accept(listener);
        if (socket == NULL) {
            return;
        }
        h2o_accept(&accepting, socket);
    }
}

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void usage(void)
{
    fprintf(stderr, "usage: h2o 127.0.0.1:PORT, or h2o version\n");
    exit(2);
}

// A socket that listens at ADDRESS:PORT. Says where that is, with the port that was free.
static int listener(char *where)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof(address);
    char *colon = strrchr(where, ':');
    if (colon == NULL) {
        usage();
    }
    *colon = '\0';
    if (inet_pton(AF_INET, where, &address.sin_addr) != 1) {
        fail(where);
    }
    address.sin_port = htons(atoi(colon + 1));
    int on = 1, listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listening < 0 || setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(listening, (struct sockaddr *)&address, length) != 0 || listen(listening, SOMAXCONN) != 0 ||
        getsockname(listening, (struct sockaddr *)&address, &length) != 0) {
        fail(where);
    }
    printf("listening on %s:%d\n", where, ntohs(address.sin_port));
    fflush(stdout);
    return listening;
}

int main(int count, char **arguments)
{
    if (count != 2) {
        usage();
    }
    if (strcmp(arguments[1], "version") == 0) {
        printf("libh2o %s\n", H2O_VERSION);
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    memset(filler, 'x', sizeof(filler));

    h2o_config_init(&config);
    config.max_request_entity_size = BODY_BYTES_MAX;
    config.http1.req_timeout = WAIT_MILLISECONDS_MAX;
    h2o_hostconf_t *host = h2o_config_register_host(&config, h2o_iovec_init(H2O_STRLIT("default")), 65535);
    serve(host, "/plaintext", plaintext);
    serve(host, "/bytes", bytes);
    serve(host, "/echo", echo);
    h2o_context_init(&context, h2o_evloop_create(), &config);
    accepting.hosts = config.hosts;

    h2o_socket_t *socket = h2o_evloop_socket_create(context.loop, listener(arguments[1]), H2O_SOCKET_FLAG_DONT_READ);
    h2o_socket_read_start(socket, on_accept);
    // A process that continues after SIGSTOP finds its wait interrupted.
    while (h2o_evloop_run(context.loop, INT32_MAX) == 0 || errno == EINTR) {
    }
    fail("event loop");
}
