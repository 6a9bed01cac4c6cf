/* A stand-in for libnccl over host memory: what tests on machines without a GPU load.

   Ranks are processes. They meet in POSIX shared memory that is named by the id, where
   each pair of them has a ring of bytes in either direction; every collective is sends
   and receives over these. A stream is a queue with a thread, by whatever pointer names
   it. It is stricter than the real one: a communicator that is called by two threads at
   once, or before a call that was in progress was polled, is an error, and so are sends
   and receives that do not pair, or that a captured graph makes on one rank only, and
   sums of other dtypes or sizes than on another rank. It adds from the last rank to the
   first.

   FAKE_NCCL_VERSION  the version to report (23203)
   FAKE_NCCL_DEVICE   the GPU of this process; two ranks with one are refused
   FAKE_NCCL_ERROR    the number of the group of calls that fails asynchronously here
   FAKE_NCCL_HANG     the number of the group of calls that never ends here
   FAKE_NCCL_LOG      a file for the calls, one a line */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS, CUDA, SYSTEM, INTERNAL, ARGUMENT, USAGE, REMOTE, PROGRESS };
enum { MOST = 8, RING = 4096, POLLS = 2, NAME = 96 };
typedef struct { char text[128]; } Id;
typedef struct { size_t size; unsigned magic, version; int blocking; } Config;
typedef struct { _Atomic size_t written, read; unsigned char bytes[RING]; } Ring;
typedef struct {
  _Atomic int arrived, device[MOST];
  Ring ring[MOST][MOST];
} Meeting;
typedef struct Comm {
  int rank, size, device, parts, color, key, groups;
  char name[NAME];
  Meeting* meeting;
  struct Comm *parent, **place; /* of a split that has not ended */
  pthread_t thread;
  _Atomic int inside, state, polls, aborted, has_thread, pending, finalizes;
  _Atomic int served; /* groups, of which the next one waits, on whatever stream */
} Comm;
typedef struct {
  int peer, is_send, has_head;
  size_t done, nbytes;
  char* at;
  int is_captured, what; /* what: which sum, of which dtype; 0: bytes */
} Part;
typedef struct { size_t nbytes; int is_captured, what; } Head;
typedef struct { /* a sum of the parts of all ranks, which `all` has in their order */
  char* all;
  void* to;
  size_t count;
  int type;
} Total;
typedef struct Work {
  Comm* comm;
  Part* parts;
  Total* totals;
  int count, sums, hangs, fails, turn; /* turn: which of the communicator's */
  struct Work* next;
} Work;
typedef struct { void* name; Work *first, *last; } Stream;

static Stream streams[16];
static pthread_mutex_t queues = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static char last_error[256];
static int captures; /* whether a captured graph makes the next calls */
static __thread int depth;       /* of groups */
static __thread Work* collected; /* by the group that is open */
static __thread void* collected_stream;

static int number(const char* name, int other) {
  const char* text = getenv(name);
  return text && *text ? atoi(text) : other;
}
static int fail(int status, const char* format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(last_error, sizeof last_error, format, values);
  va_end(values);
  return status;
}
static void record(const char* format, ...) {
  const char* path = getenv("FAKE_NCCL_LOG");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  va_list values;
  va_start(values, format);
  vfprintf(file, format, values);
  va_end(values);
  fputc('\n', file);
  fclose(file);
}
static int enter(Comm* comm, int must_be_ready) {
  if (!comm) return fail(ARGUMENT, "the communicator is NULL");
  if (atomic_fetch_add(&comm->inside, 1)) {
    fprintf(stderr, "fake NCCL: two threads inside of one communicator\n");
    abort();
  }
  int is_busy = comm->state == PROGRESS || comm->state == SUCCESS && comm->polls > 0;
  if (must_be_ready && (is_busy || comm->aborted))
    return fail(ARGUMENT, "used before the previous operation returned ncclSuccess");
  if (must_be_ready) return comm->state;
  return SUCCESS;
}
static int leave(Comm* comm, int status) {
  if (comm) atomic_fetch_sub(&comm->inside, 1);
  return status;
}
/* What was begun is seen as done after some polls. */
static int begin(Comm* comm) {
  comm->polls = POLLS;
  comm->state = PROGRESS;
  return PROGRESS;
}

/* --- bytes between ranks ------------------------------------------------------------ */

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t move(Ring* ring, char* at, size_t count, int is_send) {
  size_t used = ring->written - ring->read, from = is_send ? ring->written : ring->read;
  count = smaller(count, is_send ? RING - used : used);
  for (size_t i = 0; i < count; ++i) {
    unsigned char* byte = &ring->bytes[(from + i) % RING];
    if (is_send) *byte = at[i];
    else at[i] = *byte;
  }
  atomic_fetch_add(is_send ? &ring->written : &ring->read, count);
  return count;
}
/* Go on with a send or receive; its number of bytes goes before it. */
static int advance(Comm* comm, Part* part) {
  int me = comm->rank, you = part->peer;
  Ring* ring = &comm->meeting->ring[part->is_send ? me : you][part->is_send ? you : me];
  if (!part->has_head) {
    size_t used = ring->written - ring->read;
    Head head = {part->nbytes, part->is_captured, part->what};
    if ((part->is_send ? RING - used : used) < sizeof head) return 0;
    move(ring, (char*)&head, sizeof head, part->is_send);
    part->has_head = 1;
    if (head.what != part->what) {
      comm->state = fail(USAGE, "rank %d makes call %d, rank %d call %d", you, head.what,
                         me, part->what);
      return 0;
    }
    if (head.nbytes != part->nbytes) {
      comm->state = fail(USAGE, "rank %d sent %zu bytes, rank %d expected %zu", you,
                         head.nbytes, me, part->nbytes);
      return 0;
    }
    if (head.is_captured != part->is_captured) {
      const char* names[] = {"outside of", "in"};
      comm->state = fail(USAGE, "rank %d calls %s a captured graph, rank %d %s one", you,
                         names[head.is_captured], me, names[part->is_captured]);
      return 0;
    }
  }
  part->done += move(ring, part->at + part->done, part->nbytes - part->done,
                     part->is_send);
  return part->done == part->nbytes;
}
static float widened(unsigned short bits) { /* of bfloat16 */
  unsigned wide = (unsigned)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}
static unsigned short narrowed(float value) { /* to the nearest, ties to even */
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static void add_up(Total* total, int size) {
  for (size_t i = 0; i < total->count; ++i)
    for (int rank = size - 1; rank >= 0; --rank) {
      size_t at = rank * total->count + i;
      int is_first = rank == size - 1;
      if (total->type == 7) {
        float *to = total->to, x = ((float*)total->all)[at];
        to[i] = is_first ? x : to[i] + x;
      } else if (total->type == 8) {
        double *to = total->to, x = ((double*)total->all)[at];
        to[i] = is_first ? x : to[i] + x;
      } else {
        unsigned short *to = total->to, x = ((unsigned short*)total->all)[at];
        to[i] = is_first ? x : narrowed(widened(to[i]) + widened(x));
      }
    }
}
/* Run a group; those of one direction and peer in their order. */
static void run(Work* work) {
  Comm* comm = work->comm;
  for (int left = 1; left && !comm->aborted; usleep(left ? 20 : 0)) {
    int waits[2][MOST] = {{0}};
    left = work->hangs;
    for (Part* p = work->parts; p < work->parts + work->count && !work->hangs; ++p) {
      int *lane = &waits[p->is_send][p->peer], over = p->has_head && p->done == p->nbytes;
      if (!over && (*lane || comm->state > SUCCESS && comm->state < PROGRESS ||
                    !advance(comm, p)))
        *lane = left = 1;
    }
  }
}
static void* serve(void* argument) {
  Stream* stream = argument;
  for (;;) {
    pthread_mutex_lock(&queues);
    while (!stream->first) pthread_cond_wait(&filled, &queues);
    Work* work = stream->first;
    pthread_mutex_unlock(&queues);
    while (work->comm->served != work->turn && !work->comm->aborted) usleep(20);
    if (work->fails) { /* later than the call has returned */
      usleep(50000);
      work->comm->state = fail(REMOTE, "the connection to a rank was closed");
    }
    run(work);
    for (int i = 0; i < work->sums; ++i) {
      if (!work->comm->aborted) add_up(&work->totals[i], work->comm->size);
      free(work->totals[i].all);
    }
    free(work->totals);
    atomic_fetch_add(&work->comm->served, 1);
    pthread_mutex_lock(&queues);
    if (!(stream->first = work->next)) stream->last = NULL;
    atomic_fetch_sub(&work->comm->pending, 1);
    pthread_mutex_unlock(&queues);
    free(work->parts);
    free(work);
  }
  return NULL;
}
static Stream* stream_of(void* name) {
  static int made;
  for (int i = 0; i < made; ++i)
    if (streams[i].name == name) return &streams[i];
  if (made == 16) abort();
  streams[made].name = name;
  pthread_t thread;
  pthread_create(&thread, NULL, serve, &streams[made]);
  return &streams[made++];
}
/* Tell whether the next calls belong to the replay of a captured graph. */
void fakeReplay(int is_captured) { captures = is_captured; }
/* How many groups a stream has not ended: what an event would tell. */
int fakeStreamPending(void* name) {
  int count = 0;
  pthread_mutex_lock(&queues);
  for (Work* work = stream_of(name)->first; work; work = work->next) ++count;
  pthread_mutex_unlock(&queues);
  return count;
}

/* --- communicators ------------------------------------------------------------------ */

static void* meet(void* argument) {
  Comm* comm = argument;
  if (comm->parent) { /* tell all ranks of the parent color and key, then be counted */
    int mine[2] = {comm->color, comm->key}, all[MOST][2], count = comm->parent->size;
    Part parts[2 * MOST];
    for (int i = 0; i < count; ++i) {
      parts[2 * i] = (Part){i, 1, 0, 0, sizeof mine, (char*)mine};
      parts[2 * i + 1] = (Part){i, 0, 0, 0, sizeof mine, (char*)all[i]};
    }
    run(&(Work){.comm = comm->parent, .parts = parts, .count = 2 * count});
    for (int i = 0; i < count && !comm->parent->aborted; ++i) {
      int goes_before = all[i][1] < comm->key ||
                        all[i][1] == comm->key && i < comm->parent->rank;
      comm->size += all[i][0] == comm->color;
      comm->rank += all[i][0] == comm->color && goes_before;
    }
  }
  int file = shm_open(comm->name, O_CREAT | O_RDWR, 0600), state = SUCCESS;
  if (file < 0 || ftruncate(file, sizeof(Meeting))) abort();
  comm->meeting = mmap(NULL, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  comm->meeting->device[comm->rank] = comm->device;
  atomic_fetch_add(&comm->meeting->arrived, 1);
  while (comm->meeting->arrived < comm->size && !comm->aborted) usleep(100);
  for (int i = 0; i < comm->size && !comm->aborted; ++i)
    if (i != comm->rank && comm->device && comm->meeting->device[i] == comm->device)
      state = fail(USAGE, "Duplicate GPU detected : rank %d and rank %d both on CUDA "
                   "device %x", comm->rank, i, comm->device);
  if (!comm->rank || comm->aborted) shm_unlink(comm->name);
  Comm* shown = comm->parent ? comm->parent : comm;
  if (comm->place) *comm->place = comm;
  comm->state = comm->parent ? SUCCESS : state;
  if (shown == comm) return NULL;
  comm->parent = NULL;
  shown->state = state;
  return NULL;
}
int ncclGetVersion(int* version) {
  *version = number("FAKE_NCCL_VERSION", 23203);
  return SUCCESS;
}
const char* ncclGetErrorString(int status) {
  const char* texts[] = {"no error", "unhandled cuda error", "unhandled system error",
                         "internal error", "invalid argument", "invalid usage",
                         "remote process exited or there was a network error",
                         "NCCL operation in progress"};
  return status >= 0 && status < 8 ? texts[status] : "unknown result code";
}
const char* ncclGetLastError(Comm* comm) { return last_error; }
int ncclGetUniqueId(Id* id) {
  unsigned char noise[12];
  if (getentropy(noise, sizeof noise)) return fail(SYSTEM, "no entropy");
  memset(id, 0, sizeof *id);
  int at = sprintf(id->text, "/fake_nccl_");
  for (int i = 0; i < 12; ++i) at += sprintf(id->text + at, "%02x", noise[i]);
  return SUCCESS;
}
int ncclCommInitRankConfig(Comm** made, int size, Id id, int rank, Config* config) {
  record("CommInitRankConfig %d", size);
  if (config->magic != 0xcafebeef || config->size < sizeof *config)
    return fail(ARGUMENT, "ncclConfig_t argument not initialized");
  if (config->blocking) return fail(ARGUMENT, "the stand-in never blocks");
  if (rank < 0 || rank >= size || size > MOST)
    return fail(ARGUMENT, "Invalid rank requested : %d/%d", rank, size);
  Comm* comm = *made = calloc(1, sizeof *comm);
  comm->rank = rank, comm->size = size, comm->device = number("FAKE_NCCL_DEVICE", 0);
  snprintf(comm->name, NAME, "%.60s", id.text);
  begin(comm);
  comm->has_thread = 1;
  pthread_create(&comm->thread, NULL, meet, comm);
  return PROGRESS;
}
int ncclCommSplit(Comm* comm, int color, int key, Comm** made, Config* config) {
  record("CommSplit");
  int status = enter(comm, 1);
  if (status) return leave(comm, status);
  Comm* part = calloc(1, sizeof *part);
  *made = NULL;
  part->parent = comm, part->place = made, part->color = color, part->key = key;
  snprintf(part->name, NAME, "%.60s_%d_%d", comm->name, ++comm->parts, color);
  begin(part);
  part->has_thread = 1;
  status = begin(comm);
  pthread_create(&part->thread, NULL, meet, part);
  return leave(comm, status);
}
int ncclCommGetAsyncError(Comm* comm, int* error) {
  int status = enter(comm, 0);
  *error = comm->state;
  if (!status && *error == SUCCESS && comm->polls > 0 && comm->polls--) *error = PROGRESS;
  if (comm->finalizes) comm->state = comm->pending ? PROGRESS : SUCCESS;
  return leave(comm, status);
}
static int quantity(Comm* comm, int* to, int value) {
  *to = value;
  return leave(comm, SUCCESS);
}
int ncclCommCount(Comm* comm, int* count) {
  int status = enter(comm, 1);
  return status ? leave(comm, status) : quantity(comm, count, comm->size);
}
int ncclCommUserRank(Comm* comm, int* rank) {
  int status = enter(comm, 1);
  return status ? leave(comm, status) : quantity(comm, rank, comm->rank);
}
static void release(Comm* comm) {
  comm->aborted = 1;
  while (comm->pending) usleep(100);
  if (comm->has_thread) pthread_join(comm->thread, NULL);
  if (comm->meeting) munmap(comm->meeting, sizeof(Meeting));
  comm->meeting = NULL; /* the memory of `comm` stays, for a late look at it */
}
int ncclCommAbort(Comm* comm) {
  record("CommAbort");
  enter(comm, 0);
  release(comm);
  return leave(comm, SUCCESS);
}
int ncclCommFinalize(Comm* comm) {
  record("CommFinalize");
  int status = enter(comm, 1);
  comm->finalizes = 1;
  return leave(comm, status ? status : begin(comm));
}
int ncclCommDestroy(Comm* comm) {
  record("CommDestroy");
  int status = enter(comm, 0);
  if (!status) release(comm);
  return leave(comm, status);
}

/* --- calls on streams --------------------------------------------------------------- */

static Part* add(Comm* comm, void* stream) {
  if (!collected) {
    collected = calloc(1, sizeof *collected);
    collected->comm = comm;
    collected_stream = stream;
  }
  if (collected->comm != comm || collected_stream != stream) abort();
  int size = (collected->count + 1) * sizeof(Part);
  collected->parts = realloc(collected->parts, size);
  return &collected->parts[collected->count++];
}
static int submit(void) {
  Work* work = collected;
  collected = NULL;
  if (!work) return SUCCESS;
  Comm* comm = work->comm;
  int status = enter(comm, 1), mine = comm->groups;
  if (status) return leave(comm, status);
  ++comm->groups;
  work->hangs = mine == number("FAKE_NCCL_HANG", -1);
  work->turn = mine;
  for (int i = 0; i < work->count; ++i) work->parts[i].is_captured = captures;
  begin(comm);
  work->fails = mine == number("FAKE_NCCL_ERROR", -1);
  work->hangs |= work->fails;
  comm->state = SUCCESS; /* after some polls */
  atomic_fetch_add(&comm->pending, 1);
  pthread_mutex_lock(&queues);
  Stream* stream = stream_of(collected_stream);
  if (stream->last) stream->last->next = work;
  else stream->first = work;
  stream->last = work;
  pthread_cond_broadcast(&filled);
  pthread_mutex_unlock(&queues);
  return leave(comm, PROGRESS);
}
int ncclGroupStart(void) {
  record("GroupStart");
  ++depth;
  return SUCCESS;
}
int ncclGroupEnd(void) {
  record("GroupEnd");
  if (!depth) return fail(USAGE, "ncclGroupEnd without ncclGroupStart");
  return --depth ? SUCCESS : submit();
}
static size_t bytes_of(size_t count, int type) {
  static const int sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return count * sizes[type];
}
int ncclSend(const void* at, size_t count, int type, int peer, Comm* comm, void* stream) {
  record("Send %zu", bytes_of(count, type));
  if (peer < 0 || peer >= comm->size) return fail(ARGUMENT, "no rank %d", peer);
  *add(comm, stream) = (Part){peer, 1, 0, 0, bytes_of(count, type), (char*)at};
  return depth ? SUCCESS : submit();
}
int ncclRecv(void* at, size_t count, int type, int peer, Comm* comm, void* stream) {
  record("Recv %zu", bytes_of(count, type));
  if (peer < 0 || peer >= comm->size) return fail(ARGUMENT, "no rank %d", peer);
  *add(comm, stream) = (Part){peer, 0, 0, 0, bytes_of(count, type), at};
  return depth ? SUCCESS : submit();
}
int ncclAllGather(const void* from, void* to, size_t count, int type, Comm* comm,
                  void* stream) {
  size_t nbytes = bytes_of(count, type);
  record("AllGather %zu", nbytes);
  for (int i = 0; i < comm->size; ++i) {
    *add(comm, stream) = (Part){i, 1, 0, 0, nbytes, (char*)from};
    *add(comm, stream) = (Part){i, 0, 0, 0, nbytes, (char*)to + i * nbytes};
  }
  return depth ? SUCCESS : submit();
}
int ncclBroadcast(const void* from, void* to, size_t count, int type, int root,
                  Comm* comm, void* stream) {
  size_t nbytes = bytes_of(count, type);
  record("Broadcast %zu from %d", nbytes, root);
  if (root < 0 || root >= comm->size) return fail(ARGUMENT, "no rank %d", root);
  for (int i = 0; i < comm->size && comm->rank == root; ++i)
    *add(comm, stream) = (Part){i, 1, 0, 0, nbytes, (char*)from};
  *add(comm, stream) = (Part){root, 0, 0, 0, nbytes, to};
  return depth ? SUCCESS : submit();
}
static int sum(const char* name, const void* from, void* to, size_t count, int type,
               int op, int scatters, Comm* comm, void* stream) {
  size_t nbytes = bytes_of(count, type);
  record("%s %zu", name, nbytes);
  if (op || type < 7 || type > 9)
    return fail(ARGUMENT, "the stand-in adds float32, float64 and bfloat16 only");
  char* all = malloc(comm->size * nbytes + 1);
  int what = 1 + scatters + 2 * type;
  for (int i = 0; i < comm->size; ++i) {
    char* part = (char*)from + (scatters ? i * nbytes : 0);
    *add(comm, stream) = (Part){i, 1, 0, 0, nbytes, part, 0, what};
    *add(comm, stream) = (Part){i, 0, 0, 0, nbytes, all + i * nbytes, 0, what};
  }
  int size = (collected->sums + 1) * sizeof(Total);
  collected->totals = realloc(collected->totals, size);
  collected->totals[collected->sums++] = (Total){all, to, count, type};
  return depth ? SUCCESS : submit();
}
int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Comm* comm,
                  void* stream) {
  return sum("AllReduce", from, to, count, type, op, 0, comm, stream);
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op,
                      Comm* comm, void* stream) {
  return sum("ReduceScatter", from, to, count, type, op, 1, comm, stream);
}
