/* The server of the comparison on lwIP, as Debian builds it.
 *
 * One thread reads packets from a TUN device and gives each to lwIP, which calls what is below for
 * everything that follows from it; a second one, of lwIP, does so for timers. Both hold lwIP's lock
 * meanwhile. The protocol is described in common/src/job.rs, beside this folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <lwip/ip.h>
#include <lwip/ip4_addr.h>
#include <lwip/netif.h>
#include <lwip/tcp.h>
#include <lwip/tcpip.h>

enum {
    /* Bytes with which a connection begins. */
    HEADER = 9,
    /* Bytes of the largest block. */
    SCRATCH = 256 * 1024,
    /* The longest that the server sends, however long it is asked to. */
    LONGEST_MS = 60 * 1000,
    /* Writes between two looks at the clock. */
    WRITES_PER_LOOK = 32,
    /* The last byte that a client sends to a server that discards. */
    MARK = 1,
    MTU = 1500,
    BACKLOG = 255,
    /* How often lwIP calls for a connection that waits, in half seconds. */
    POLL = 1,
};

struct session {
    uint8_t header[HEADER];
    size_t filled;
    /* Bytes of a block. */
    size_t size;
    /* Blocks that were sent. */
    uint64_t sent;
    /* Of the request that comes in, and still to be written of blocks, or of the one that goes out. */
    size_t heard, owed;
    /* When the server stops to send, in milliseconds. */
    int64_t until;
    /* Whether the direction to the client is to end, and whether it has. */
    bool ending, ended;
    /* Whether the client has ended its direction. */
    bool client_ended;
};

static uint8_t block[SCRATCH];
static int device;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void fail(const char *what)
{
    fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Forgets a session. Nothing of it is called any more. */
static void forget(struct tcp_pcb *pcb, struct session *session)
{
    tcp_arg(pcb, NULL);
    tcp_recv(pcb, NULL);
    tcp_sent(pcb, NULL);
    tcp_err(pcb, NULL);
    tcp_poll(pcb, NULL, 0);
    free(session);
}

/* Closes a connection. If there is no memory for that, it is reset. */
static err_t finish(struct tcp_pcb *pcb, struct session *session)
{
    forget(pcb, session);
    if (tcp_close(pcb) == ERR_OK)
        return ERR_OK;
    tcp_abort(pcb);
    return ERR_ABRT;
}

/* Writes as much as fits of `owed` bytes. Says whether all of them did. */
static bool write_owed(struct tcp_pcb *pcb, struct session *session)
{
    while (session->owed > 0) {
        size_t count = LWIP_MIN(session->owed, tcp_sndbuf(pcb));
        if (count == 0 || tcp_write(pcb, block, (u16_t)count, TCP_WRITE_FLAG_COPY) != ERR_OK)
            return false;
        session->owed -= count;
        /* As a socket would after each call. */
        tcp_output(pcb);
    }
    return true;
}

/* Sends blocks until there is no space, or no time any more. */
static void send_blocks(struct tcp_pcb *pcb, struct session *session)
{
    while (write_owed(pcb, session)) {
        if (session->sent++ % WRITES_PER_LOOK == 0 && now_ms() >= session->until) {
            session->ending = true;
            return;
        }
        session->owed = session->size;
    }
}

/* Goes on with what a session has to write. */
static err_t go_on(struct tcp_pcb *pcb, struct session *session)
{
    bool sends = session->header[0] == 's' && session->filled >= HEADER;
    if (sends && !session->ending)
        send_blocks(pcb, session);
    else
        write_owed(pcb, session);
    if (session->owed > 0)
        return ERR_OK;
    if (session->client_ended)
        return finish(pcb, session);
    if (session->ending && !session->ended && tcp_shutdown(pcb, 0, 1) == ERR_OK)
        session->ended = true;
    return ERR_OK;
}

/* Begins with what the header asks for. Says whether it is known. */
static bool begin(struct tcp_pcb *pcb, struct session *session)
{
    uint32_t numbers[2];
    memcpy(numbers, session->header + 1, sizeof numbers);
    session->size = lwip_ntohl(numbers[0]);
    session->until = now_ms() + LWIP_MIN(lwip_ntohl(numbers[1]), LONGEST_MS);
    if (session->header[0] == 'a')
        tcp_nagle_disable(pcb);
    bool sized = session->size > 0 && session->size <= SCRATCH;
    bool blocks = session->header[0] == 's' || session->header[0] == 'a';
    return session->header[0] == 'd' || (sized && blocks);
}

/* Takes bytes of the client. Says whether they make sense. */
static bool take(struct tcp_pcb *pcb, struct session *session, const uint8_t *bytes, size_t count)
{
    while (count > 0 && session->filled < HEADER) {
        session->header[session->filled++] = *bytes++;
        count--;
        if (session->filled == HEADER && !begin(pcb, session))
            return false;
    }
    if (count == 0)
        return true;
    if (session->header[0] == 'd') {
        session->owed += bytes[count - 1] == MARK;
    } else if (session->header[0] == 'a') {
        session->heard += count;
        session->owed += session->heard / session->size * session->size;
        session->heard %= session->size;
    }
    return true;
}

static err_t on_receive(void *argument, struct tcp_pcb *pcb, struct pbuf *bytes, err_t error)
{
    struct session *session = argument;
    if (bytes == NULL) {
        session->client_ended = true;
        return go_on(pcb, session);
    }
    bool known = error == ERR_OK;
    for (struct pbuf *part = bytes; known && part != NULL; part = part->next)
        known = take(pcb, session, part->payload, part->len);
    tcp_recved(pcb, bytes->tot_len);
    pbuf_free(bytes);
    if (known)
        return go_on(pcb, session);
    forget(pcb, session);
    tcp_abort(pcb);
    return ERR_ABRT;
}

static err_t on_sent(void *argument, struct tcp_pcb *pcb, u16_t count)
{
    (void)count;
    return go_on(pcb, argument);
}

static err_t on_poll(void *argument, struct tcp_pcb *pcb)
{
    return go_on(pcb, argument);
}

/* The connection is gone already. */
static void on_error(void *argument, err_t error)
{
    (void)error;
    free(argument);
}

static err_t on_accept(void *argument, struct tcp_pcb *pcb, err_t error)
{
    (void)argument;
    if (error != ERR_OK || pcb == NULL)
        return ERR_VAL;
    struct session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return ERR_MEM;
    tcp_arg(pcb, session);
    tcp_recv(pcb, on_receive);
    tcp_sent(pcb, on_sent);
    tcp_err(pcb, on_error);
    tcp_poll(pcb, on_poll, POLL);
    return ERR_OK;
}

static err_t transmit(struct netif *netif, struct pbuf *packet, const ip4_addr_t *to)
{
    uint8_t bytes[MTU];
    (void)netif;
    (void)to;
    u16_t count = pbuf_copy_partial(packet, bytes, sizeof bytes, 0);
    return write(device, bytes, count) == count ? ERR_OK : ERR_IF;
}

static err_t init_netif(struct netif *netif)
{
    netif->name[0] = 't';
    netif->name[1] = 'u';
    netif->mtu = MTU;
    netif->output = transmit;
    netif->flags = NETIF_FLAG_LINK_UP;
    return ERR_OK;
}

static void open_device(const char *name)
{
    struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
    if (strlen(name) >= sizeof request.ifr_name) {
        errno = ENAMETOOLONG;
        fail(name);
    }
    strcpy(request.ifr_name, name);
    device = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (device < 0 || ioctl(device, TUNSETIFF, &request) < 0)
        fail(name);
}

/* Listens on an interface of this address. */
static void start(struct netif *netif, const ip4_addr_t *address, u16_t port)
{
    ip4_addr_t mask;
    IP4_ADDR(&mask, 255, 255, 255, 0);
    LOCK_TCPIP_CORE();
    bool up = netif_add(netif, address, &mask, IP4_ADDR_ANY4, NULL, init_netif, ip_input) != NULL;
    if (up) {
        netif_set_default(netif);
        netif_set_up(netif);
    }
    struct tcp_pcb *pcb = tcp_new_ip_type(IPADDR_TYPE_V4);
    up = up && pcb != NULL && tcp_bind(pcb, IP4_ADDR_ANY, port) == ERR_OK;
    struct tcp_pcb *listener = up ? tcp_listen_with_backlog(pcb, BACKLOG) : NULL;
    if (listener != NULL)
        tcp_accept(listener, on_accept);
    UNLOCK_TCPIP_CORE();
    if (listener == NULL) {
        errno = ENOMEM;
        fail("listening");
    }
}

int main(int count, char **words)
{
    char text[16];
    unsigned port;
    ip4_addr_t address;
    if (count != 3 || sscanf(words[2], "%15[0-9.]:%u", text, &port) != 2 || port > 65535
        || !ip4addr_aton(text, &address)) {
        fprintf(stderr, "error: usage: peer-lwip DEVICE ADDRESS:PORT\n");
        return 1;
    }
    open_device(words[1]);
    memset(block, 0x5a, sizeof block);
    tcpip_init(NULL, NULL);
    static struct netif netif;
    start(&netif, &address, (u16_t)port);
    printf("ready\n");
    fflush(stdout);
    static uint8_t bytes[MTU];
    for (;;) {
        ssize_t length = read(device, bytes, sizeof bytes);
        if (length < 0 && errno != EINTR)
            fail("reading from the device");
        /* Not from the pool: in Debian's build its buffers are smaller than lwIP takes them for. */
        struct pbuf *packet = length > 0 ? pbuf_alloc(PBUF_RAW, (u16_t)length, PBUF_RAM) : NULL;
        if (packet == NULL)
            continue;
        pbuf_take(packet, bytes, (u16_t)length);
        LOCK_TCPIP_CORE();
        if (ip_input(packet, &netif) != ERR_OK)
            pbuf_free(packet);
        UNLOCK_TCPIP_CORE();
    }
}
