/* A stand-in for libnvidia-ml.so.1, so that the real pynvml runs where there is no driver.
 *
 * It says what a text file says, which is read anew whenever it has changed: lines "key = value".
 *   init = 0                        what nvmlInit returns, an NVML error code
 *   count = 2, driver = 580.1
 *   gpu0/power = 686000             a value in NVML's own unit
 *   gpu0/util = 98 43               several numbers, in the order of NVML's structure
 *   gpu0/power = !3                 that NVML error code
 *   gpu0/power = hang               does not return until the file says something else
 *   gpu0/energy = 5000 +700         millijoules, growing by so many watts
 *   gpu0/delay = 8                  every call about the device takes so many microseconds of CPU
 *   gpu0/lost = 15                  every call about the device fails so, and the wait for events
 *   gpu0/mig = 2, gpu0/mig1/uuid = MIG-...
 *   gpu0/process_use = 17 30 42 60  pids, each with its percent of utilization
 *   gpu0/samples = 5 4 7            percent of utilization of the last fifths of a second
 *   gpu0/xids = 79 48               each after the first is one event, once per writing
 * What the file does not say is not supported. Structures are those of NVML's public interface.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, SMALL = 7, TIMEOUT = 10, LOST = 15 };
enum { LINES = 2048, BOARDS = 64 };

typedef struct { char key[64], value[192]; } Line;
typedef struct { char key[48]; } Sample;

static Line lines[LINES];
static int line_count, started, delivered[BOARDS], registered[BOARDS];
static struct timespec changed;
static off_t size = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void reread(void) {
    const char *path = getenv("STANDIN_NVML");
    struct stat now;
    if (!path || stat(path, &now)) { line_count = 0; size = -1; return; }
    if (now.st_size == size && now.st_mtim.tv_sec == changed.tv_sec
        && now.st_mtim.tv_nsec == changed.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    char text[320];
    line_count = 0;
    memset(delivered, 0, sizeof delivered);
    while (line_count < LINES && fgets(text, sizeof text, file)) {
        Line *line = &lines[line_count];
        if (sscanf(text, " %63[^= ] = %191[^\n]", line->key, line->value) == 2) line_count++;
    }
    fclose(file);
    changed = now.st_mtim;
    size = now.st_size;
}

/* The value of a key, copied; 0 where the file has none. */
static int find(const char *key, char *value) {
    int found = 0;
    pthread_mutex_lock(&lock);
    reread();
    for (int i = 0; i < line_count && !found; i++)
        if (!strcmp(lines[i].key, key)) { strcpy(value, lines[i].value); found = 1; }
    pthread_mutex_unlock(&lock);
    return found;
}

/* A handle is a number: 1 + 100 * board, + 1 + i for its i-th MIG device. */
static void *handle_of(int board, int mig) { return (void *)(intptr_t)(1 + 100 * board + mig + 1); }

static void prefix_of(void *handle, char *prefix) {
    int number = (int)(intptr_t)handle - 1, mig = number % 100;
    if (mig) sprintf(prefix, "gpu%d/mig%d", number / 100, mig - 1);
    else sprintf(prefix, "gpu%d", number / 100);
}

static void spend(int microseconds) {
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 1000L * microseconds;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec));
}

/* Looks a device's field up; an NVML return code, and the value where that is OK. */
static int look(const char *prefix, const char *field, char *value) {
    char key[96], lost[192];
    if (!started) return UNINITIALIZED;
    snprintf(key, sizeof key, "%.*s/lost", (int)strcspn(prefix, "/"), prefix);
    if (find(key, lost)) return atoi(lost);
    snprintf(key, sizeof key, "%.*s/delay", (int)strcspn(prefix, "/"), prefix);
    if (find(key, lost)) spend(atoi(lost));
    snprintf(key, sizeof key, "%s/%s", prefix, field);
    if (!find(key, value)) return NOT_SUPPORTED;
    while (!strcmp(value, "hang")) {
        usleep(10000);
        if (!find(key, value)) return NOT_SUPPORTED;
    }
    return value[0] == '!' ? atoi(value + 1) : OK;
}

static int text_of(void *device, const char *field, char *out, unsigned length) {
    char prefix[48], value[192];
    prefix_of(device, prefix);
    int code = look(prefix, field, value);
    if (code == OK) snprintf(out, length, "%s", value);
    return code;
}

static int number_at(void *device, const char *field, int place, unsigned long long *out) {
    char prefix[48], value[192], *rest = value;
    prefix_of(device, prefix);
    int code = look(prefix, field, value);
    for (int i = 0; code == OK && i <= place; i++) {
        char *start = rest;
        *out = strtoull(start, &rest, 0);
        if (rest == start) return NOT_SUPPORTED;
    }
    return code;
}

static int u32(void *device, const char *field, int place, unsigned *out) {
    unsigned long long number;
    int code = number_at(device, field, place, &number);
    if (code == OK) *out = (unsigned)number;
    return code;
}

int nvmlInitWithFlags(unsigned flags) {
    char value[192];
    (void)flags;
    int code = find("init", value) ? atoi(value) : 9;
    if (code == OK) started++;
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    if (!started) return UNINITIALIZED;
    started--;
    return OK;
}
const char *nvmlErrorString(int code) { (void)code; return "an error of the stand-in"; }
int nvmlSystemGetDriverVersion(char *out, unsigned length) {
    char value[192];
    if (!started) return UNINITIALIZED;
    if (!find("driver", value)) return NOT_SUPPORTED;
    snprintf(out, length, "%s", value);
    return OK;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    char value[192];
    if (!started) return UNINITIALIZED;
    if (!find("count", value)) return NOT_SUPPORTED;
    while (!strcmp(value, "hang") && find("count", value)) usleep(10000);
    if (value[0] == '!') return atoi(value + 1);
    *count = atoi(value);
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    char prefix[48], value[192];
    *device = handle_of(index, -1);
    prefix_of(*device, prefix);
    int code = look(prefix, "uuid", value);
    return code == NOT_SUPPORTED ? INVALID : code;
}
int nvmlDeviceGetUUID(void *d, char *out, unsigned n) { return text_of(d, "uuid", out, n); }
int nvmlDeviceGetName(void *d, char *out, unsigned n) { return text_of(d, "name", out, n); }

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} Pci;
int nvmlDeviceGetPciInfo_v3(void *d, Pci *out) {
    memset(out, 0, sizeof *out);
    return text_of(d, "pci", out->bus_id, sizeof out->bus_id);
}
int nvmlDeviceGetUtilizationRates(void *d, unsigned *out) {
    int code = u32(d, "util", 0, out);
    return code ? code : u32(d, "util", 1, out + 1);
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(void *d, Memory2 *out) {
    int code = number_at(d, "memory", 0, &out->total);
    code = code ? code : number_at(d, "memory", 1, &out->used);
    out->reserved = 0;
    out->free = out->total - out->used;
    return code;
}
int nvmlDeviceGetPowerUsage(void *d, unsigned *out) { return u32(d, "power", 0, out); }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *out) { return u32(d, "power_limit", 0, out); }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *out) {
    static struct timespec began;
    struct timespec now;
    unsigned long long watts;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!began.tv_sec) began = now;
    int code = number_at(d, "energy", 0, out);
    if (code == OK && number_at(d, "energy", 1, &watts) == OK)
        *out += watts * ((now.tv_sec - began.tv_sec) * 1000LL + (now.tv_nsec - began.tv_nsec) / 1000000);
    return code;
}
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out) {
    return sensor ? INVALID : u32(d, "temperature", 0, out);
}
int nvmlDeviceGetClockInfo(void *d, int type, unsigned *out) { return u32(d, "clocks", type, out); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *out) {
    return number_at(d, "throttle", 0, out);
}
int nvmlDeviceGetTotalEccErrors(void *d, int kind, int counter, unsigned long long *out) {
    return counter ? INVALID : number_at(d, "ecc", kind, out);
}

typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, Process *out) {
    char prefix[48], value[192], *rest = value;
    prefix_of(d, prefix);
    int code = look(prefix, "processes", value);
    if (code) return code;
    unsigned room = *count, found = 0;
    for (;;) {
        char *start = rest;
        unsigned long pid = strtoul(start, &rest, 10);
        if (rest == start) break;
        if (out && found < room) out[found] = (Process){pid, 1 << 20, 0xFFFFFFFF, 0xFFFFFFFF};
        found++;
    }
    *count = found;
    return found && (!out || found > room) ? SMALL : OK;
}

typedef struct {
    unsigned pid;
    unsigned long long at;
    unsigned sm, memory, encoder, decoder;
} Use;
int nvmlDeviceGetProcessUtilization(void *d, Use *out, unsigned *count, unsigned long long since) {
    char prefix[48], value[192], *rest = value;
    (void)since;
    prefix_of(d, prefix);
    int code = look(prefix, "process_use", value);
    if (code) return code;
    unsigned found = 0, room = out ? *count : 0;
    for (;;) {
        char *start = rest;
        unsigned pid = strtoul(start, &rest, 10);
        if (rest == start) break;
        unsigned sm = strtoul(rest, &rest, 10);
        if (out && found < room) out[found] = (Use){pid, 1, sm, 0, 0, 0};
        found++;
    }
    *count = found;
    return !found ? 6 : !out || found > room ? SMALL : OK;
}

typedef union { double d; unsigned u; unsigned long long ull; } Value;
typedef struct { unsigned long long at; Value value; } Kept;
int nvmlDeviceGetSamples(
    void *d, unsigned kind, unsigned long long since, unsigned *type, unsigned *count, Kept *out
) {
    char prefix[48], value[192], *rest = value;
    (void)since;
    if (kind != 1) return INVALID;
    prefix_of(d, prefix);
    int code = look(prefix, "samples", value);
    if (code) return code;
    unsigned room = out ? *count : 0, found = 0, all = 1;
    for (char *each = value; *each; each++) all += *each == ' ';
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long micros = now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
    for (; found < all && found < room; found++) {
        out[found].at = micros - 200000ULL * (all - found);
        out[found].value.u = strtoul(rest, &rest, 10);
    }
    *type = 1;
    *count = all;
    return OK;
}

int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *pending) {
    unsigned count;
    int code = u32(d, "mig", 0, &count);
    if (code == OK) *now = *pending = 1;
    return code;
}
int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *out) { return u32(d, "mig", 0, out); }
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned index, void **out) {
    char prefix[48], value[192];
    *out = handle_of(((int)(intptr_t)d - 1) / 100, index);
    prefix_of(*out, prefix);
    return look(prefix, "uuid", value) ? 6 : OK;
}
int nvmlDeviceGetGpuInstanceId(void *d, unsigned *out) { return u32(d, "instance", 0, out); }

int nvmlEventSetCreate(void **set) {
    memset(registered, 0, sizeof registered);
    *set = (void *)1;
    return started ? OK : UNINITIALIZED;
}
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceGetSupportedEventTypes(void *d, unsigned long long *out) {
    unsigned long long number;
    *out = number_at(d, "xids", 0, &number) == NOT_SUPPORTED ? 0 : 8;
    return OK;
}
int nvmlDeviceRegisterEvents(void *d, unsigned long long kinds, void *set) {
    unsigned long long number;
    (void)set;
    int code = kinds == 8 ? number_at(d, "xids", 0, &number) : INVALID;
    if (code == OK) registered[((int)(intptr_t)d - 1) / 100] = 1;
    return code;
}
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } Event;
int nvmlEventSetWait_v2(void *set, Event *out, unsigned timeout) {
    (void)set;
    (void)timeout;
    unsigned long long xid;
    for (int board = 0; board < BOARDS; board++) {
        if (!registered[board]) continue;
        void *device = handle_of(board, -1);
        int code = number_at(device, "xids", 1 + delivered[board], &xid);
        if (code == LOST) return code;
        if (code) continue;
        delivered[board]++;
        *out = (Event){device, 8, xid, 0, 0};
        return OK;
    }
    return TIMEOUT;
}

int nvmlGpmQueryDeviceSupport(void *d, unsigned *out) {
    char prefix[48], value[192];
    prefix_of(d, prefix);
    int code = look(prefix, "gpm", value);
    out[1] = code == OK;
    return code == NOT_SUPPORTED ? OK : code;
}
int nvmlGpmSampleAlloc(Sample **out) { return (*out = calloc(1, sizeof **out)) ? OK : 20; }
int nvmlGpmSampleFree(Sample *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(void *d, Sample *sample) {
    char value[192];
    prefix_of(d, sample->key);
    return look(sample->key, "gpm", value);
}
int nvmlGpmMigSampleGet(void *d, unsigned instance, Sample *sample) {
    unsigned own;
    for (int i = 0; i < 7; i++) {
        void *mig = handle_of(((int)(intptr_t)d - 1) / 100, i);
        if (u32(mig, "instance", 0, &own) || own != instance) continue;
        return nvmlGpmSampleGet(mig, sample);
    }
    return INVALID;
}
typedef struct {
    unsigned id, code;
    double value;
    const char *names[3];
} Metric;
typedef struct {
    unsigned version, count;
    Sample *first, *second;
    Metric metrics[];
} Metrics;
int nvmlGpmMetricsGet(Metrics *request) {
    char value[192], *rest = value;
    int code = look(request->second->key, "gpm", value);
    for (unsigned i = 0; code == OK && i < request->count; i++) {
        char *start = rest;
        request->metrics[i].value = strtod(start, &rest);
        request->metrics[i].code = rest == start ? NOT_SUPPORTED : OK;
    }
    return code;
}
